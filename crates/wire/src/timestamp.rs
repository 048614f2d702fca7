//! Timestamps on the wire: ISO 8601, UTC, milliseconds, `Z`.
//!
//! The writer is handwritten because every status of every task contains a timestamp. `jiff` reads them, which
//! only clients and list filters need.

use jiff::{civil::DateTime, tz::TimeZone};
use nuncio_engine::clock::Timestamp;

/// The range of years with four digits.
const FIRST: i64 = -62_135_596_800_000;
const LAST: i64 = 253_402_300_799_999;

/// The timestamp as text.
pub fn format(at: Timestamp) -> String {
    let quoted = quoted(at);
    String::from_utf8_lossy(&quoted[1..quoted.len() - 1]).into_owned()
}

/// Writes the timestamp as a JSON string.
pub(crate) fn write(out: &mut Vec<u8>, at: Timestamp) {
    out.extend_from_slice(&quoted(at));
}

/// The timestamp as a JSON string.
fn quoted(at: Timestamp) -> [u8; 26] {
    let millis = shown_millis(at);
    let (days, rest) = (millis.div_euclid(86_400_000), millis.rem_euclid(86_400_000));
    let (year, month, day) = civil(days);
    let mut text = *b"\"0000-00-00T00:00:00.000Z\"";
    let fields = [
        (1, 4, year),
        (6, 2, month),
        (9, 2, day),
        (12, 2, rest / 3_600_000),
        (15, 2, rest / 60_000 % 60),
        (18, 2, rest / 1000 % 60),
        (21, 3, rest % 1000),
    ];
    for (start, width, mut number) in fields {
        for digit in text[start..start + width].iter_mut().rev() {
            *digit = b'0' + (number % 10) as u8;
            number /= 10;
        }
    }
    text
}

/// The milliseconds since 1970 that are written: years have four digits.
pub(crate) fn shown_millis(at: Timestamp) -> i64 {
    at.0.clamp(FIRST, LAST)
}

/// Year, month and day of a number of days since 1970, in the proleptic Gregorian calendar.
///
/// Counted in eras of 400 years that begin on the first of March, so that the leap day is the last of its year.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// Reads a timestamp in exactly the form of the writer: what this crate wrote is read back at a tenth of what the general
/// parser costs. `None` for any other form, which may be valid all the same.
pub(crate) fn read_written(text: &str) -> Option<Timestamp> {
    let text: &[u8; 24] = text.as_bytes().try_into().ok()?;
    let form = b"0000-00-00T00:00:00.000Z";
    let matches = |(byte, expected): (&u8, &u8)| match expected {
        b'0' => byte.is_ascii_digit(),
        _ => byte == expected,
    };
    if !text.iter().zip(form).all(matches) {
        return None;
    }
    let number = |start: usize, end: usize| {
        text[start..end].iter().fold(0_i64, |number, digit| number * 10 + i64::from(digit - b'0'))
    };
    let (year, month, day) = (number(0, 4), number(5, 7), number(8, 10));
    let (hour, minute, second) = (number(11, 13), number(14, 16), number(17, 19));
    let days = days_since_1970(year, month, day);
    let is_valid = year > 0
        && (1..=12).contains(&month)
        && civil(days) == (year, month, day)
        && (hour < 24 && minute < 60 && second < 60);
    let seconds = days * 86_400 + hour * 3_600 + minute * 60 + second;
    is_valid.then(|| Timestamp(seconds * 1000 + number(20, 23)))
}

/// The inverse of [`civil`].
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let shifted_month = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * shifted_month + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// Parses a timestamp. One without an offset, as the first A2A servers wrote it, counts as UTC.
pub fn parse(text: &str) -> Option<Timestamp> {
    let at = text.parse::<jiff::Timestamp>().or_else(|_| {
        let local = text.parse::<DateTime>()?;
        local.to_zoned(TimeZone::UTC).map(|zoned| zoned.timestamp())
    });
    at.ok().map(|at| Timestamp(at.as_millisecond()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(millis: i64) -> String {
        let mut out = vec![];
        write(&mut out, Timestamp(millis));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn times_are_written_to_the_millisecond() {
        for (millis, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_731_715_200_007, "2024-11-16T00:00:00.007Z"),
            (LAST, "9999-12-31T23:59:59.999Z"),
            (i64::MAX, "9999-12-31T23:59:59.999Z"),
            (i64::MIN, "0001-01-01T00:00:00.000Z"),
        ] {
            assert_eq!(written(millis), format!("\"{text}\""));
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        // A prime step, so that all times of day and all days of a year occur.
        for millis in (FIRST..LAST).step_by(1_234_567_891_011) {
            assert_eq!(parse(written(millis).trim_matches('"')), Some(Timestamp(millis)));
        }
    }

    #[test]
    fn the_fast_reader_takes_the_written_form_alone_and_reads_it_as_the_general_one_does() {
        for millis in (FIRST..LAST).step_by(1_234_567_891_011).chain([FIRST, -1, 0, LAST]) {
            assert_eq!(read_written(written(millis).trim_matches('"')), Some(Timestamp(millis)));
        }
        for text in [
            "2023-02-29T00:00:00.000Z",
            "2024-00-01T00:00:00.000Z",
            "2024-13-01T00:00:00.000Z",
            "2024-01-00T00:00:00.000Z",
            "2024-04-31T00:00:00.000Z",
            "2024-01-01T24:00:00.000Z",
            "2024-01-01T00:60:00.000Z",
            "2024-01-01T00:00:60.000Z",
            "0000-01-01T00:00:00.000Z",
            "2024-01-01T00:00:00.00Z",
            "2024-01-01t00:00:00.000Z",
            "2024-01-01T00:00:00.000+",
            "+024-01-01T00:00:00.000Z",
            "",
        ] {
            assert_eq!(read_written(text), None, "{text}");
        }
    }

    #[test]
    fn times_with_offset_and_without_are_read() {
        let noon = Some(Timestamp(1_710_504_000_000));
        for text in ["2024-03-15T12:00:00Z", "2024-03-15T14:00:00+02:00", "2024-03-15T12:00:00.000000"] {
            assert_eq!(parse(text), noon, "{text}");
        }
        assert_eq!(parse("yesterday"), None);
    }
}
