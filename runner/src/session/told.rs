//! Results in the words of the wire; what founding peers do not know is told to exact ones only.

use std::time::{SystemTime, UNIX_EPOCH};

use sandbox::wire::response::Written;
use sandbox::wire::{Response, mode, response};
use sandbox::{DirEntry, FileInfo, FileKind, Version};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::Machine;

pub(super) fn info(found: &FileInfo, machine: &Machine) -> response::FileInfo {
    let since = nanoseconds(found.modified);
    response::FileInfo {
        name: found.name.clone(),
        size: found.size,
        mode: mode::to_wire(found.kind, found.mode),
        mod_time: seconds(since),
        is_dir: found.kind == FileKind::Directory,
        modified_ns: i64::try_from(since).ok().filter(|_| machine.is_exact),
        version: found.version.as_ref().filter(|_| machine.has_versions).map(Version::to_string),
    }
}

/// The answer to a write that is done.
pub(super) fn written(version: Option<&Version>, machine: &Machine) -> Response {
    match machine.has_versions {
        true => Response::Written(Written { version: version.map(Version::to_string) }),
        false => Response::Ok,
    }
}

pub(super) fn entry(found: DirEntry, is_exact: bool) -> response::DirEntry {
    response::DirEntry {
        name: found.name,
        is_dir: found.kind == FileKind::Directory,
        size: found.size,
        kind: is_exact.then_some(found.kind),
    }
}

/// Nanoseconds since 1970, negative before.
fn nanoseconds(moment: SystemTime) -> i128 {
    match moment.duration_since(UNIX_EPOCH) {
        Ok(since) => i128::try_from(since.as_nanos()).unwrap_or(i128::MAX),
        Err(before) => {
            i128::try_from(before.duration().as_nanos()).map_or(i128::MIN, |nanoseconds| -nanoseconds)
        }
    }
}

/// The second, as text; 1970 for moments whose year has not four digits, which `touch(1)` can make.
fn seconds(since: i128) -> String {
    let second = i64::try_from(since.div_euclid(1_000_000_000)).unwrap_or(0);
    let text =
        OffsetDateTime::from_unix_timestamp(second).ok().and_then(|moment| moment.format(&Rfc3339).ok());
    text.unwrap_or_else(|| "1970-01-01T00:00:00Z".to_owned())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_moment_that_a_file_can_have_is_told() {
        let told = |moment| seconds(nanoseconds(moment));
        assert_eq!(
            told(UNIX_EPOCH + Duration::from_nanos(1_774_483_200_999_999_999)),
            "2026-03-26T00:00:00Z"
        );
        assert_eq!(told(UNIX_EPOCH - Duration::from_nanos(1)), "1969-12-31T23:59:59Z");
        let far = UNIX_EPOCH.checked_add(Duration::from_secs(i64::MAX.unsigned_abs())).unwrap();
        assert_eq!(told(far), "1970-01-01T00:00:00Z");
        assert_eq!(i64::try_from(nanoseconds(far)).ok(), None);
    }
}
