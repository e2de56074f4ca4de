//! Error codes: names of `errno(3)`, as real runners send them, and the kinds of errors of this crate.

use crate::ErrorKind;

/// The code for a kind. Those that runners have always sent keep their meaning: a directory with entries is `EEXIST`.
#[must_use]
pub fn of(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::NotFound => "ENOENT",
        ErrorKind::PermissionDenied => "EPERM",
        ErrorKind::IsDirectory => "EISDIR",
        ErrorKind::NotADirectory => "ENOTDIR",
        ErrorKind::NotEmpty | ErrorKind::AlreadyExists => "EEXIST",
        // Runners with `Feature::Swap` tell the kind as well; the `ESTALE` of a founding one is a failure of its network.
        ErrorKind::Stale => "ESTALE",
        ErrorKind::TooLarge => "EFBIG",
        ErrorKind::Quota => "ENOSPC",
        ErrorKind::Timeout => "ETIMEDOUT",
        ErrorKind::Invalid => "EINVAL",
        ErrorKind::Unsupported => "ENOTSUP",
        ErrorKind::Busy => "EBUSY",
        ErrorKind::Disconnected | ErrorKind::Internal => "EIO",
    }
}

/// The kind for a code of a runner that tells no kind. `is_removal`: `EEXIST` is then a directory with entries.
#[must_use]
pub fn kind(code: &str, is_removal: bool) -> ErrorKind {
    match code {
        "ENOENT" => ErrorKind::NotFound,
        "EPERM" | "EACCES" => ErrorKind::PermissionDenied,
        "EISDIR" => ErrorKind::IsDirectory,
        "ENOTDIR" => ErrorKind::NotADirectory,
        "ENOTEMPTY" => ErrorKind::NotEmpty,
        "EEXIST" if is_removal => ErrorKind::NotEmpty,
        "EEXIST" => ErrorKind::AlreadyExists,
        "EFBIG" => ErrorKind::TooLarge,
        "ENOSPC" | "EDQUOT" => ErrorKind::Quota,
        "ETIMEDOUT" => ErrorKind::Timeout,
        "EINVAL" => ErrorKind::Invalid,
        "ENOTSUP" | "ENOSYS" => ErrorKind::Unsupported,
        "EBUSY" | "EAGAIN" => ErrorKind::Busy,
        _ => ErrorKind::Internal,
    }
}
