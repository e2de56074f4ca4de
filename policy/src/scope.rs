//! [`Scope`]: the owner of the skills that a request means.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Which layer a skill is written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// The application's public skills, shared by all users of an agent.
    Baseline,
    /// One user's private changes.
    #[default]
    Overlay,
}

/// A text that names no scope.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{0}` is no scope: use `overlay` or `baseline`")]
pub struct UnknownScope(pub String);

impl FromStr for Scope {
    type Err = UnknownScope;

    /// Reads `baseline` or `overlay`, in any case of letters (as the founding service did).
    fn from_str(text: &str) -> Result<Self, UnknownScope> {
        if text.eq_ignore_ascii_case("baseline") {
            Ok(Self::Baseline)
        } else if text.eq_ignore_ascii_case("overlay") {
            Ok(Self::Overlay)
        } else {
            Err(UnknownScope(text.to_owned()))
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Baseline => "baseline",
            Self::Overlay => "overlay",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_scope_is_an_error_and_never_becomes_overlay() {
        assert_eq!("BASELINE".parse(), Ok(Scope::Baseline));
        assert_eq!("overlay".parse(), Ok(Scope::Overlay));
        assert_eq!("public".parse::<Scope>(), Err(UnknownScope("public".into())));
        assert!("".parse::<Scope>().is_err());
    }
}
