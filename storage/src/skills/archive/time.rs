//! The two clocks of a ZIP: MS-DOS date and time, and seconds since 1970 in extra field 0x5455.
//!
//! An MS-DOS time has no zone and steps of two seconds; it is taken as UTC, so that one archive gives one tree on
//! every machine. Where an entry has the extra field, that counts.

use super::wire::Fields;

const SECONDS_PER_DAY: i64 = 86_400;
/// The first and last year of an MS-DOS date (seven bits from 1980).
const DOS_YEARS: std::ops::RangeInclusive<i64> = 1980..=2107;

/// The modification time in extra field 0x5455, in seconds since 1970-01-01T00:00:00Z.
///
/// Its first byte tells which times follow, the modification time being the first (`extrafld.txt`); times before
/// 1970 count as absent.
pub(super) fn from_timestamp_field(data: &[u8]) -> Option<i64> {
    let mut fields = Fields(data);
    let present = fields.u8()?;
    let seconds = fields.u32()?.cast_signed();
    (present & 1 == 1 && seconds >= 0).then_some(i64::from(seconds))
}

/// An MS-DOS time and date (APPNOTE.TXT 4.4.6) in seconds since 1970, `None` when no such moment exists.
pub(super) fn from_dos(time: u16, date: u16) -> Option<i64> {
    let (second, minute, hour) = (i64::from(time & 31) * 2, i64::from(time >> 5 & 63), i64::from(time >> 11));
    let (day, month, year) = (i64::from(date & 31), i64::from(date >> 5 & 15), i64::from(date >> 9) + 1980);
    if second > 59 || minute > 59 || hour > 23 || !(1..=12).contains(&month) || day == 0 {
        return None;
    }
    let days = days_from_civil(year, month, day);
    // The day after the last one of a month would be read back as another day.
    (civil_from_days(days) == (year, month, day))
        .then_some(days * SECONDS_PER_DAY + hour * 3600 + minute * 60 + second)
}

/// Year, month, day, hour, minute and second (UTC) that an MS-DOS time can hold, `None` outside 1980 to 2107.
pub(super) fn to_civil(seconds: i64) -> Option<(u16, [u8; 5])> {
    let (year, month, day) = civil_from_days(seconds.div_euclid(SECONDS_PER_DAY));
    if !DOS_YEARS.contains(&year) {
        return None;
    }
    let of_day = seconds.rem_euclid(SECONDS_PER_DAY);
    let narrow = |number: i64| u8::try_from(number).ok();
    let rest = [
        narrow(month)?,
        narrow(day)?,
        narrow(of_day / 3600)?,
        narrow(of_day / 60 % 60)?,
        narrow(of_day % 60)?,
    ];
    Some((u16::try_from(year).ok()?, rest))
}

/// Days since 1970-01-01 in the proleptic Gregorian calendar, counting years from March so that the leap day is
/// the last of its year.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    // 719 468 days lie between 0000-03-01 and 1970-01-01.
    year * 365 + leap_days + (153 * month + 2) / 5 + day - 1 - 719_468
}

fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let (month, carry) =
        if month_from_march < 10 { (month_from_march + 3, 0) } else { (month_from_march - 9, 1) };
    (era * 400 + year_of_era + carry, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_moments_convert_both_ways() {
        // `date -u -d @N` for each.
        for (seconds, civil) in [
            (315_532_800, (1980, [1, 1, 0, 0, 0])),
            (951_782_400, (2000, [2, 29, 0, 0, 0])),
            (1_709_210_096, (2024, [2, 29, 12, 34, 56])),
            (4_354_819_198, (2107, [12, 31, 23, 59, 58])),
        ] {
            assert_eq!(to_civil(seconds), Some(civil), "{seconds}");
            let (year, [month, day, hour, minute, second]) = civil;
            let date = (year - 1980) << 9 | u16::from(month) << 5 | u16::from(day);
            let time = u16::from(hour) << 11 | u16::from(minute) << 5 | u16::from(second / 2);
            assert_eq!(from_dos(time, date), Some(seconds));
        }
    }

    #[test]
    fn impossible_moments_are_absent() {
        let date = |year: u16, month: u16, day: u16| (year - 1980) << 9 | month << 5 | day;
        for impossible in
            [date(2023, 2, 29), date(2024, 13, 1), date(2024, 0, 1), date(2024, 1, 0), date(2024, 4, 31)]
        {
            assert_eq!(from_dos(0, impossible), None);
        }
        assert_eq!(from_dos(24 << 11, date(2024, 1, 1)), None);
        assert_eq!(to_civil(315_532_799), None);
        assert_eq!(to_civil(i64::from(u32::MAX) * 4), None);
        assert_eq!(from_timestamp_field(&[1, 0xFF, 0xFF, 0xFF, 0xFF]), None);
        assert_eq!(from_timestamp_field(&[2, 0, 0, 0, 1]), None);
        assert_eq!(from_timestamp_field(&[]), None);
    }
}
