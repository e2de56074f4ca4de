//! [`Said`]: how much is told of what a backend says about a failure.

use std::error::Error as _;

/// The most of what a backend says about a failure that is told or logged, in characters.
const SAID_CHARACTERS: usize = 1_000;

/// A backend's words about a failure, with its causes, for the log: one line of at most [`SAID_CHARACTERS`].
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Said(String);

impl Said {
    pub(super) fn of(error: &sandbox::Error) -> Self {
        let mut said = bounded(&error.to_string());
        let mut cause = error.source();
        while let Some(inner) = cause.filter(|_| said.len() < SAID_CHARACTERS) {
            said.push_str(": ");
            said.push_str(&inner.to_string());
            cause = inner.source();
        }
        Self(bounded(&said))
    }
}

/// The beginning of a foreign text, in one line.
pub(super) fn bounded(said: &str) -> String {
    let seen = |character: char| if character.is_control() { ' ' } else { character };
    said.chars().take(SAID_CHARACTERS).map(seen).collect()
}

#[cfg(test)]
mod tests {
    use std::io;

    use sandbox::ErrorKind;

    use super::*;

    #[test]
    fn what_is_logged_is_one_bounded_line_with_the_causes() {
        let told = sandbox::Error::new(ErrorKind::Internal, "stat", "a\nb\u{1b}[2J")
            .because(io::Error::other("数据"));
        assert_eq!(Said::of(&told).to_string(), "stat: a b [2J: 数据");
        let much = || "数".repeat(1_000_000);
        let told = sandbox::Error::new(ErrorKind::Internal, "stat", much()).because(io::Error::other(much()));
        assert_eq!(Said::of(&told).to_string().chars().count(), SAID_CHARACTERS);
    }
}
