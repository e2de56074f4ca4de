//! Times as requests and answers have them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Nanoseconds since 1970 as RFC 3339 in UTC, to the millisecond.
pub(super) fn rfc3339(nanoseconds: i128) -> String {
    let milliseconds = nanoseconds.div_euclid(1_000_000) * 1_000_000;
    OffsetDateTime::from_unix_timestamp_nanos(milliseconds)
        .ok()
        .and_then(|time| time.format(&Rfc3339).ok())
        .unwrap_or_default()
}

/// Nanoseconds since 1970 as a date of HTTP (RFC 9110, section 5.6.7), to the second.
pub(super) fn http_date(nanoseconds: i128) -> String {
    let seconds = u64::try_from(nanoseconds.div_euclid(1_000_000_000)).unwrap_or(0);
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(seconds))
}

/// A time as nanoseconds since 1970.
pub(super) fn nanoseconds(time: SystemTime) -> i128 {
    let whole = |distance: Duration| i128::try_from(distance.as_nanos()).unwrap_or(i128::MAX);
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => whole(after),
        Err(before) => -whole(before.duration()),
    }
}
