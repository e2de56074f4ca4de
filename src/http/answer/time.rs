//! Times as requests and answers have them.

use std::fmt;
use std::time::{Duration, UNIX_EPOCH};

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

pub(in crate::http) use crate::ops::tree::facts::nanoseconds;

/// The beginning of the year 0, in seconds since 1970.
const FIRST_SECOND: i128 = -62_167_219_200;
/// The end of the year 9999, in seconds since 1970.
const LAST_SECOND: i128 = 253_402_300_799;
/// Room for the longest, such as `9999-12-31T23:59:59.999Z`.
const TEXT_BYTES: usize = 24;

/// A time as RFC 3339 has it, in UTC, to the millisecond.
pub(in crate::http) struct Rfc3339Text {
    text: [u8; TEXT_BYTES],
    length: usize,
}

impl Rfc3339Text {
    /// Of nanoseconds since 1970. Years have four digits: a time before the year 0 or after 9999, which a file may have, is the
    /// first or last that can be written.
    pub(in crate::http) fn new(nanoseconds: i128) -> Self {
        let milliseconds =
            nanoseconds.div_euclid(1_000_000).clamp(FIRST_SECOND * 1000, LAST_SECOND * 1000 + 999);
        let mut text = [0; TEXT_BYTES];
        let mut room = text.as_mut_slice();
        let written = OffsetDateTime::from_unix_timestamp_nanos(milliseconds * 1_000_000)
            .ok()
            .and_then(|time| time.format_into(&mut room, &Rfc3339).ok());
        // The number that it returns leaves out a part of the fraction.
        let length = written.map_or(0, |_| TEXT_BYTES - room.len());
        Self { text, length }
    }
}

impl fmt::Display for Rfc3339Text {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.text.get(..self.length).and_then(|text| str::from_utf8(text).ok());
        formatter.write_str(text.unwrap_or_default())
    }
}

/// Nanoseconds since 1970 as [`Rfc3339Text`] has them.
pub(in crate::http) fn rfc3339(nanoseconds: i128) -> String {
    Rfc3339Text::new(nanoseconds).to_string()
}

/// Milliseconds since 1970 as [`rfc3339`] has them.
pub(in crate::http) fn rfc3339_of_ms(milliseconds: i64) -> String {
    rfc3339(i128::from(milliseconds) * 1_000_000)
}

/// Nanoseconds since 1970 as a date of HTTP (RFC 9110, section 5.6.7), to the second. What it has no words for, because
/// it is before 1970 or after the year 9999, is the first or last that it has: a file may have any time.
pub(in crate::http) fn http_date(nanoseconds: i128) -> String {
    let seconds = nanoseconds.div_euclid(1_000_000_000).clamp(0, LAST_SECOND);
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_no_date_has_words_for_are_the_nearest_that_it_has() {
        let first = "Thu, 01 Jan 1970 00:00:00 GMT";
        let last = "Fri, 31 Dec 9999 23:59:59 GMT";
        for (nanoseconds, date) in [
            (i128::MIN, first),
            (-1, first),
            (999_999_999, first),
            (LAST_SECOND * 1_000_000_000 + 1, last),
            ((LAST_SECOND + 1) * 1_000_000_000, last),
            (i128::MAX, last),
        ] {
            assert_eq!(http_date(nanoseconds), date, "{nanoseconds}");
        }
        for (milliseconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (1, "1970-01-01T00:00:00.001Z"),
            (300, "1970-01-01T00:00:00.3Z"),
            (345, "1970-01-01T00:00:00.345Z"),
            (1_795_874_762_390, "2026-11-28T14:06:02.39Z"),
        ] {
            assert_eq!(rfc3339_of_ms(milliseconds), text);
        }
        assert_eq!(rfc3339(i128::MIN), "0000-01-01T00:00:00Z");
        assert_eq!(rfc3339(i128::MAX), "9999-12-31T23:59:59.999Z");
    }
}
