//! Which files of the log may go: when all together are too large, the oldest, and none younger than a least age.

use std::time::Duration;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::record::at;
use super::seals::Seals;

/// The bounds of the kept files.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept {
    /// Bytes that all files together may have.
    pub(super) bytes: u64,
    /// How old the last record of a file is at least when it goes, by the clock of the host.
    pub(super) least_age: Duration,
    /// Bytes of the file that is being written, which is not sealed.
    pub(super) current_bytes: u64,
}

/// The files that are to go, and the seals after that.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Planned {
    /// The numbers of the first records of the files that go.
    pub(super) removed: Vec<u64>,
    /// The seals of the files that are left.
    pub(super) seals: Seals,
    /// Whether more would have to go and is too young to.
    pub(super) is_overdue: bool,
}

impl Kept {
    /// Decides what goes at the moment `now`. The newest sealed file never does.
    pub(super) fn plan(&self, seals: &Seals, now: OffsetDateTime) -> Planned {
        let mut planned = Planned { removed: Vec::new(), seals: seals.clone(), is_overdue: false };
        let sealed: u64 = seals.files.iter().map(|file| file.bytes).sum();
        let mut total = sealed + self.current_bytes;
        while total > self.bytes && planned.seals.files.len() > 1 {
            let Some(oldest) = planned.seals.files.first() else { break };
            if !self.is_old(&oldest.ended, now) {
                planned.is_overdue = true;
                break;
            }
            total = total.saturating_sub(oldest.bytes);
            planned.removed.extend(planned.seals.remove_oldest(at(now)));
        }
        planned
    }

    /// Tells whether what ended then is old enough. What is not known to be old stays.
    fn is_old(&self, ended: &str, now: OffsetDateTime) -> bool {
        self.least_age.is_zero()
            || OffsetDateTime::parse(ended, &Rfc3339).is_ok_and(|ended| now - ended >= self.least_age)
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::Head;
    use super::super::seals::Sealed;
    use super::*;

    /// Four files of 100 bytes that ended ten, nine, eight and seven days before `now`.
    fn seals(now: OffsetDateTime) -> Seals {
        let file = |number: u64| Sealed {
            first: number * 10 + 1,
            last: Head { seq: number * 10 + 10, hash: number.to_string() },
            bytes: 100,
            ended: at(now - Duration::from_hours((10 - number) * 24)),
        };
        Seals { files: (0..4).map(file).collect(), ..Seals::default() }
    }

    fn plan(bytes: u64, days: u64) -> (Vec<u64>, bool) {
        let now = OffsetDateTime::now_utc();
        let least_age = Duration::from_hours(days * 24);
        let planned = Kept { bytes, least_age, current_bytes: 50 }.plan(&seals(now), now);
        assert_eq!(planned.seals.removed.files, planned.removed.len() as u64);
        (planned.removed, planned.is_overdue)
    }

    #[test]
    fn the_oldest_files_go_for_size_and_none_that_is_too_young() {
        assert_eq!(plan(450, 0), (vec![], false));
        assert_eq!(plan(449, 0), (vec![1], false));
        assert_eq!(plan(250, 8), (vec![1, 11], false));
        assert_eq!(plan(1, 9), (vec![1, 11], true));
        assert_eq!(plan(1, 90), (vec![], true));
        assert_eq!(plan(1, 0), (vec![1, 11, 21], false), "the newest stays");
    }
}
