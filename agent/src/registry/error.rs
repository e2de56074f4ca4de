//! [`RegistryError`]: why something was not published, installed or removed.

use thiserror::Error;

use super::{AUTHOR_ENTRIES_MAX, ENTRIES_MAX, Kind};

/// Why something was not published, installed or removed. Nothing has changed then.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// A name that could be more than a name.
    #[error(
        "`{0}` is no name: letters, digits, `-`, `_`, `.` and blanks, not beginning with `.`, at most 64"
    )]
    Name(String),
    /// Tags that are too long.
    #[error("tags have more than 256 characters: send fewer")]
    Tags,
    /// The author has no such skill or agent.
    #[error("you have no {kind} `{name}` in your workspace")]
    NotYours {
        /// Its kind.
        kind: Kind,
        /// Its name.
        name: String,
    },
    /// Another author has it public.
    #[error("another author has published a {kind} `{name}`: choose another name")]
    Taken {
        /// Its kind.
        kind: Kind,
        /// Its name.
        name: String,
    },
    /// There is none that this user may see.
    #[error("there is no entry {0}")]
    NoEntry(u64),
    /// Only the author may do that.
    #[error("entry {0} is another author's")]
    NotAuthor(u64),
    /// The name is in use in the workspace.
    #[error("{kind} `{name}` is already installed: uninstall it first")]
    Installed {
        /// Its kind.
        kind: Kind,
        /// Its name.
        name: String,
    },
    /// It is not in the workspace.
    #[error("{kind} `{name}` is not installed")]
    NotInstalled {
        /// Its kind.
        kind: Kind,
        /// Its name.
        name: String,
    },
    /// The skill or agent cannot be published, for this reason.
    #[error("{0}")]
    Content(String),
    /// The registry is full.
    #[error("the registry is full, with at most {ENTRIES_MAX} entries: some must be removed")]
    Full,
    /// The author has too many.
    #[error("you have {AUTHOR_ENTRIES_MAX} entries: remove one of them")]
    TooMany,
    /// The same is being done just now.
    #[error("{kind} `{name}` is being changed just now: try again")]
    Busy {
        /// Its kind.
        kind: Kind,
        /// Its name.
        name: String,
    },
    /// A sandbox failed.
    #[error(transparent)]
    Sandbox(#[from] sandbox::Error),
}
