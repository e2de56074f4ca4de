//! [`Code`]: the codes of the service's answers, and the kind of error that each is to a caller of [`Sandbox`](crate::Sandbox).

use crate::ErrorKind;

/// What an answer of the service that is no success says in its field `code`; a word never changes (`docs/API.md`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// The request makes no sense as sent.
    Invalid,
    /// No valid token.
    Unauthenticated,
    /// The token's role, or the mode of a file, does not allow it.
    Denied,
    /// A path leads out of its tree.
    PathEscape,
    /// The program is not on the list.
    CommandNotAllowed,
    /// There is nothing there.
    NotFound,
    /// The route has no such method.
    MethodNotAllowed,
    /// The path is taken.
    AlreadyExists,
    /// A file was needed and a directory is there.
    IsDirectory,
    /// A directory was needed and something else is there.
    NotADirectory,
    /// Neither a file nor a directory is there.
    NotAFile,
    /// The directory to be removed has entries.
    NotEmpty,
    /// The file is no text.
    NotText,
    /// An edit does not fit the file.
    EditMismatch,
    /// The file's encoding lacks a character.
    Unencodable,
    /// Something else is under way there.
    Conflict,
    /// The beginning of a log is kept no more.
    Gone,
    /// A condition of the request does not hold.
    Stale,
    /// The request took too long to come.
    TooSlow,
    /// More than a bound allows.
    TooLarge,
    /// The range begins after the end.
    RangeNotSatisfiable,
    /// The archive is refused.
    BadArchive,
    /// Too much at once: try again later.
    Busy,
    /// The service failed.
    Internal,
    /// This service, or this host, cannot do that.
    Unsupported,
    /// What was to answer cannot be reached.
    Disconnected,
    /// What was to answer did not do so in time.
    Timeout,
    /// The body is encoded in a way that is not taken.
    UnsupportedMedia,
    /// There is no room left for it.
    Quota,
}

impl Code {
    /// Every code, in the order of `docs/API.md`.
    pub const ALL: [Self; 29] = [
        Self::Invalid,
        Self::Unauthenticated,
        Self::Denied,
        Self::PathEscape,
        Self::CommandNotAllowed,
        Self::NotFound,
        Self::MethodNotAllowed,
        Self::AlreadyExists,
        Self::IsDirectory,
        Self::NotADirectory,
        Self::NotAFile,
        Self::NotEmpty,
        Self::NotText,
        Self::EditMismatch,
        Self::Unencodable,
        Self::Conflict,
        Self::Gone,
        Self::Stale,
        Self::TooSlow,
        Self::TooLarge,
        Self::RangeNotSatisfiable,
        Self::BadArchive,
        Self::Busy,
        Self::Internal,
        Self::Unsupported,
        Self::Disconnected,
        Self::Timeout,
        Self::UnsupportedMedia,
        Self::Quota,
    ];

    /// The word, and the kind of error.
    fn row(self) -> (&'static str, ErrorKind) {
        match self {
            Self::Invalid => ("invalid", ErrorKind::Invalid),
            Self::Unauthenticated => ("unauthenticated", ErrorKind::PermissionDenied),
            Self::Denied => ("denied", ErrorKind::PermissionDenied),
            Self::PathEscape => ("path_escape", ErrorKind::PermissionDenied),
            // The service offers a list of programs: one that is not on it is not there.
            Self::CommandNotAllowed => ("command_not_allowed", ErrorKind::NotFound),
            Self::NotFound => ("not_found", ErrorKind::NotFound),
            Self::MethodNotAllowed => ("method_not_allowed", ErrorKind::Unsupported),
            Self::AlreadyExists => ("already_exists", ErrorKind::AlreadyExists),
            Self::IsDirectory => ("is_directory", ErrorKind::IsDirectory),
            Self::NotADirectory => ("not_a_directory", ErrorKind::NotADirectory),
            Self::NotAFile => ("not_a_file", ErrorKind::PermissionDenied),
            Self::NotEmpty => ("not_empty", ErrorKind::NotEmpty),
            Self::NotText => ("not_text", ErrorKind::Invalid),
            Self::EditMismatch => ("edit_mismatch", ErrorKind::Invalid),
            Self::Unencodable => ("unencodable", ErrorKind::Invalid),
            Self::Conflict => ("conflict", ErrorKind::Busy),
            Self::Gone => ("gone", ErrorKind::NotFound),
            Self::Stale => ("stale", ErrorKind::Stale),
            Self::TooSlow => ("too_slow", ErrorKind::Timeout),
            Self::TooLarge => ("too_large", ErrorKind::TooLarge),
            Self::RangeNotSatisfiable => ("range_not_satisfiable", ErrorKind::Invalid),
            Self::BadArchive => ("bad_archive", ErrorKind::Invalid),
            Self::Busy => ("busy", ErrorKind::Busy),
            Self::Internal => ("internal", ErrorKind::Internal),
            Self::Unsupported => ("unsupported", ErrorKind::Unsupported),
            Self::Disconnected => ("disconnected", ErrorKind::Disconnected),
            Self::Timeout => ("timeout", ErrorKind::Timeout),
            Self::UnsupportedMedia => ("unsupported_media", ErrorKind::Unsupported),
            Self::Quota => ("quota", ErrorKind::Quota),
        }
    }

    /// The code that is spelled so; `None` for one that a later version has.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.word() == word)
    }

    /// How it is spelled.
    #[must_use]
    pub fn word(self) -> &'static str {
        self.row().0
    }

    /// What it is to a caller of a sandbox.
    #[must_use]
    pub fn kind(self) -> ErrorKind {
        self.row().1
    }
}

/// The code of a failure of a backend; `None` for a fault of the backend alone, and for kinds that a later version adds.
impl TryFrom<ErrorKind> for Code {
    type Error = ErrorKind;

    fn try_from(kind: ErrorKind) -> Result<Self, ErrorKind> {
        match kind {
            ErrorKind::NotFound => Ok(Self::NotFound),
            ErrorKind::PermissionDenied => Ok(Self::Denied),
            ErrorKind::IsDirectory => Ok(Self::IsDirectory),
            ErrorKind::NotADirectory => Ok(Self::NotADirectory),
            ErrorKind::NotEmpty => Ok(Self::NotEmpty),
            ErrorKind::AlreadyExists => Ok(Self::AlreadyExists),
            ErrorKind::Stale => Ok(Self::Stale),
            ErrorKind::TooLarge => Ok(Self::TooLarge),
            ErrorKind::Quota => Ok(Self::Quota),
            ErrorKind::Timeout => Ok(Self::Timeout),
            ErrorKind::Disconnected => Ok(Self::Disconnected),
            ErrorKind::Invalid => Ok(Self::Invalid),
            ErrorKind::Unsupported => Ok(Self::Unsupported),
            ErrorKind::Busy => Ok(Self::Busy),
            ErrorKind::Internal => Err(kind),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Code;

    #[test]
    fn the_codes_are_those_of_the_interface() {
        let document = include_str!("../../docs/API.md");
        let (_, table) = document.split_once("\n## Codes\n").unwrap();
        let (table, _) = table.split_once("\n## ").unwrap();
        let codes: Vec<&str> = table
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.split_once('`').map(|(code, _)| code))
            .collect();
        assert_eq!(Code::ALL.map(Code::word).as_slice(), codes);
    }

    #[test]
    fn a_kind_that_has_a_code_is_the_kind_of_that_code() {
        for code in Code::ALL {
            if let Ok(of_kind) = Code::try_from(code.kind()) {
                assert_eq!(of_kind.kind(), code.kind(), "{code:?}");
            }
        }
    }
}
