//! The contract suite: what every [`Sandbox`] must do, one law a function, for any backend.
//!
//! A backend describes itself as a [`Subject`]; [`check`] tries one [`Law`] on it, and panics where it does not hold,
//! as a test does. [`laws`] are all of them. `tests/conformance` of this crate shows how they become tests with names
//! of their own.
//!
//! * [`subject`]: what a backend says about itself; [`case`]: what a law has in its hands.
//! * The other modules hold the laws, by what they are about.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a law that does not hold panics, as a test that fails"
)]

/// Makes the table of a module: name of the function, what it needs, what it says.
macro_rules! laws {
    ($($name:ident [$($need:ident)*] $says:literal;)*) => {
        pub(super) const LAWS: &[$crate::conformance::Law] = &[$($crate::conformance::Law {
            name: stringify!($name),
            says: $says,
            needs: &[$($crate::conformance::Ability::$need),*],
            run: |case| Box::pin($name(case)),
        }),*];
    };
}

mod case;
mod closing;
mod commands;
mod directories;
mod ending;
mod large;
mod links;
mod live;
mod names;
mod output;
mod reading;
mod removing;
mod subject;
mod together;
mod versions;
mod writing;

use std::pin::Pin;
use std::sync::Arc;

pub use self::case::Case;
pub use self::subject::{Ability, Subject};
#[cfg(doc)]
use crate::Sandbox;

/// One promise of every backend.
#[derive(Clone, Copy, Debug)]
pub struct Law {
    /// The law as a sentence, fit for the name of a test.
    pub name: &'static str,
    /// The same in other words, with what exactly is tried.
    pub says: &'static str,
    /// The abilities that a backend needs for the law to mean anything.
    pub needs: &'static [Ability],
    run: fn(Case) -> Pin<Box<dyn Future<Output = ()> + Send>>,
}

/// How a law went. One that does not hold panics instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The law holds.
    Holds,
    /// The backend says that it cannot do this, so the law was not tried.
    Skipped(Ability),
}

/// All laws, by what they are about.
pub fn laws() -> impl Iterator<Item = &'static Law> {
    [
        reading::LAWS,
        writing::LAWS,
        versions::LAWS,
        large::LAWS,
        names::LAWS,
        directories::LAWS,
        removing::LAWS,
        links::LAWS,
        commands::LAWS,
        output::LAWS,
        ending::LAWS,
        live::LAWS,
        together::LAWS,
        closing::LAWS,
    ]
    .into_iter()
    .flatten()
}

/// Tries one law.
///
/// # Panics
/// When the law does not hold.
pub async fn check(subject: &Arc<dyn Subject>, law: &Law) -> Verdict {
    if let Some(need) = law.needs.iter().find(|need| !subject.abilities().contains(need)) {
        return Verdict::Skipped(*need);
    }
    (law.run)(Case::new(subject.clone(), law.name).await).await;
    Verdict::Holds
}

#[cfg(test)]
mod tests {
    use super::laws;

    #[test]
    fn every_law_has_a_name_of_its_own() {
        let mut names: Vec<&str> = laws().map(|law| law.name).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
        assert!(all >= 80, "{all}");
    }
}
