//! [`Refusal`]: why a command may not run, and what its sender should do instead.

use std::fmt;

use serde::Serialize;
use thiserror::Error;

/// Longest excerpt of an argument in a [`Refusal`], in characters.
const EXCERPT_CHARS: usize = 120;

/// Stands for text that only a running shell knows (a variable, a substitution) in a scanned word.
pub(crate) const UNKNOWN: char = '\u{1a}';

/// Why a command was refused before it ran. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize)]
#[serde(tag = "refusal", rename_all = "snake_case")]
pub enum Refusal {
    /// The program is none of those that a caller may start.
    #[error("`{command}` is not allowed: {hint}; allowed: {}", allowed.join(", "))]
    CommandNotAllowed {
        /// The command as sent, shortened to 120 characters.
        command: String,
        /// The names that may be used instead, in the order of the rules.
        allowed: Vec<String>,
        /// The likely mistake of the sender.
        hint: CommandHint,
    },
    /// An argument points outside the tree.
    #[error("{}`{argument}` {rule}", ArgumentNumber(*.position))]
    PathEscape {
        /// The argument, or the word inside a script, shortened to 120 characters.
        argument: String,
        /// Which argument, counted from 1; `None` when the whole command is one shell line.
        position: Option<usize>,
        /// The rule that was broken.
        rule: Rule,
    },
    /// The request itself cannot be carried out as sent.
    #[error("{problem}")]
    Invalid {
        /// The fault, and the advice what to send instead.
        problem: String,
    },
}

/// The likely mistake of the sender of a command that is not allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandHint {
    /// The name is unknown here.
    Unknown,
    /// The program may run, but only as a child of a direct command.
    Helper,
    /// The text holds a `/` or white space: it is a path or a whole command line.
    NotABareName,
}

impl fmt::Display for CommandHint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Unknown => "use one of the allowed commands",
            Self::Helper => "run it inside a script, as `bash` with the arguments `-c` and the command line",
            Self::NotABareName => {
                "send the bare name of a command and its arguments in the body, or a whole line to `bash -c`"
            }
        })
    }
}

/// A rule of anchoring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// An absolute path must lie under the tree.
    OutsideTree,
    /// The machine's temporary directory is not the command's own.
    Temporary,
    /// A path has no `..` segment.
    ParentSegment,
    /// Of the device files, only those that carry data are used.
    Device,
}

impl fmt::Display for Rule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::OutsideTree => {
                "is an absolute path outside the tree: use a path relative to the working directory"
            }
            Self::Temporary => {
                "is in the temporary directory of the machine: use `$TMPDIR` inside a script, or a directory of the tree"
            }
            Self::ParentSegment => {
                "has a `..` segment: name the file from the root of the tree, without going up"
            }
            Self::Device => {
                "is a device that may not be used: `/dev/null`, `/dev/zero`, `/dev/random`, `/dev/urandom`, \
                 `/dev/stdin`, `/dev/stdout`, `/dev/stderr` and `/dev/fd/N` may"
            }
        })
    }
}

/// Writes the position of an argument as the beginning of a sentence.
struct ArgumentNumber(Option<usize>);

impl fmt::Display for ArgumentNumber {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(position) => write!(formatter, "argument {position}: "),
            None => Ok(()),
        }
    }
}

impl Refusal {
    pub(crate) fn escape(argument: &str, rule: Rule) -> Self {
        Self::PathEscape { argument: excerpt(argument), position: None, rule }
    }

    pub(crate) fn invalid(problem: impl Into<String>) -> Self {
        Self::Invalid { problem: problem.into() }
    }

    /// The same refusal, found in the argument at `index` (from 0).
    pub(crate) fn at(mut self, index: usize) -> Self {
        if let Self::PathEscape { position, .. } = &mut self {
            *position = Some(index + 1);
        }
        self
    }

    /// The same refusal without a position, for a request that has no argument list.
    pub(crate) fn nowhere(mut self) -> Self {
        if let Self::PathEscape { position, .. } = &mut self {
            *position = None;
        }
        self
    }
}

/// The beginning of `text`, fit for one line of a message: bounded, no control characters.
pub(crate) fn excerpt(text: &str) -> String {
    let mut short = String::new();
    for (count, character) in text.chars().enumerate() {
        if count == EXCERPT_CHARS {
            short.push('…');
            break;
        }
        match character {
            UNKNOWN => short.push_str("$…"),
            _ if character.is_control() => short.extend(character.escape_default()),
            _ => short.push(character),
        }
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_bounded_line_that_names_argument_position_and_rule() {
        let long = format!("/etc/\n{}", "长".repeat(1000));
        let message = Refusal::escape(&long, Rule::OutsideTree).at(1).to_string();
        assert!(message.starts_with("argument 2: `/etc/\\n长"), "{message}");
        assert!(message.contains("outside the tree"), "{message}");
        assert!(!message.contains('\n') && message.chars().count() < 260, "{message}");
    }

    #[test]
    fn a_refusal_is_readable_as_json() {
        let json = serde_json::to_value(Refusal::escape("..", Rule::ParentSegment).at(0)).unwrap();
        let expected = serde_json::json!({
            "refusal": "path_escape", "argument": "..", "position": 1, "rule": "parent_segment"
        });
        assert_eq!(json, expected);
    }
}
