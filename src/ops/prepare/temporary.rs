//! Names of directories in which a round writes aside what is to get its name in one step.

use std::time::{SystemTime, UNIX_EPOCH};

/// The beginning of such a name.
pub(super) const TEMPORARY: &str = ".tmp-";

/// A name that no other round uses, for what is to become `purpose`.
pub(super) fn temporary_name(purpose: &str) -> String {
    unlike(&format!("{TEMPORARY}{purpose}"))
}

/// `beginning` with an end that no other round uses.
pub(super) fn unlike(beginning: &str) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let random = getrandom::u64().unwrap_or_default();
    format!("{beginning}-{now}-{random:x}")
}

/// Whether an entry may be one that a round has left.
pub(super) fn is_temporary(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    name.strip_prefix(TEMPORARY).is_some_and(|rest| !rest.is_empty() && rest.bytes().all(allowed))
}
