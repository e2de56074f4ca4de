//! The codes of the service's answers as kinds of errors: the one table.

use crate::ErrorKind;

/// Every code of `docs/API.md`, in its order.
const KINDS: [(&str, ErrorKind); 29] = [
    ("invalid", ErrorKind::Invalid),
    ("unauthenticated", ErrorKind::PermissionDenied),
    ("denied", ErrorKind::PermissionDenied),
    ("path_escape", ErrorKind::PermissionDenied),
    // The service offers a list of programs: one that is not on it is not there.
    ("command_not_allowed", ErrorKind::NotFound),
    ("not_found", ErrorKind::NotFound),
    ("method_not_allowed", ErrorKind::Unsupported),
    ("already_exists", ErrorKind::AlreadyExists),
    ("is_directory", ErrorKind::IsDirectory),
    ("not_a_directory", ErrorKind::NotADirectory),
    ("not_a_file", ErrorKind::PermissionDenied),
    ("not_empty", ErrorKind::NotEmpty),
    ("not_text", ErrorKind::Invalid),
    ("edit_mismatch", ErrorKind::Invalid),
    ("unencodable", ErrorKind::Invalid),
    ("conflict", ErrorKind::Busy),
    ("gone", ErrorKind::NotFound),
    // Sent as a condition only by `WriteMode::Create`: nothing was to be there.
    ("stale", ErrorKind::AlreadyExists),
    ("too_slow", ErrorKind::Timeout),
    ("too_large", ErrorKind::TooLarge),
    ("range_not_satisfiable", ErrorKind::Invalid),
    ("bad_archive", ErrorKind::Invalid),
    ("busy", ErrorKind::Busy),
    ("internal", ErrorKind::Internal),
    ("unsupported", ErrorKind::Unsupported),
    ("disconnected", ErrorKind::Disconnected),
    ("timeout", ErrorKind::Timeout),
    ("unsupported_media", ErrorKind::Unsupported),
    ("quota", ErrorKind::Quota),
];

/// The kind of an answer with `code`; one that a later version has is [`ErrorKind::Internal`].
pub(super) fn kind(code: &str) -> ErrorKind {
    KINDS.iter().find(|(known, _)| *known == code).map_or(ErrorKind::Internal, |(_, kind)| *kind)
}

/// The kind of an answer that is none of the service's, but of something in between.
pub(super) fn kind_of_status(status: u16) -> ErrorKind {
    match status {
        401 | 403 => ErrorKind::PermissionDenied,
        408 | 504 => ErrorKind::Timeout,
        413 => ErrorKind::TooLarge,
        429 => ErrorKind::Busy,
        502 | 503 => ErrorKind::Disconnected,
        _ => ErrorKind::Internal,
    }
}

#[cfg(test)]
mod tests {
    use super::KINDS;

    #[test]
    fn the_codes_are_those_of_the_interface() {
        let document = include_str!("../../../docs/API.md");
        let (_, table) = document.split_once("\n## Codes\n").unwrap();
        let (table, _) = table.split_once("\n## ").unwrap();
        let codes: Vec<&str> = table
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.split_once('`').map(|(code, _)| code))
            .collect();
        assert_eq!(KINDS.map(|(code, _)| code).as_slice(), codes);
    }
}
