//! The one grammar of durations in configuration, plans, agents' tables and flags: numbers with units, such as
//! `500ms`, `2s`, `1.5h`, `1h30m` or `30d`.

use std::time::Duration;

/// Units in milliseconds, largest first.
const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Parses a duration. Every number needs a unit; what is finer than a millisecond is rounded to one.
pub fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no length of time: write 500ms, 2s, 5m, 1h30m or 30d");
    let mut rest = text.trim();
    let mut total = 0_u64;
    if rest.is_empty() {
        return Err(wrong());
    }
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(wrong)?;
        let (number, tail) = rest.split_at(end);
        let tail = tail.trim_start();
        let (unit, tail) = tail.split_at(tail.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(tail.len()));
        let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?;
        let part = millis(number, *factor).ok_or_else(wrong)?;
        total = total.checked_add(part).ok_or_else(wrong)?;
        rest = tail.trim_start();
    }
    Ok(Duration::from_millis(total))
}

fn millis(number: &str, factor: u64) -> Option<u64> {
    let Some((whole, fraction)) = number.split_once('.') else {
        return number.parse::<u64>().ok()?.checked_mul(factor);
    };
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    if !is_number(whole) || !is_number(fraction) {
        return None;
    }
    let fraction: f64 = format!("0.{fraction}").parse().ok()?;
    whole.parse::<u64>().ok()?.checked_mul(factor)?.checked_add((fraction * factor as f64).round() as u64)
}

/// Formats a duration in the largest unit that divides it.
pub fn format(duration: Duration) -> String {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let fits = |(_, factor): &&(&str, u64)| millis.is_multiple_of(*factor);
    let (unit, factor) = UNITS.iter().find(fits).filter(|_| millis > 0).unwrap_or(&("s", 1_000));
    format!("{}{unit}", millis / factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_that_is_written_is_read() {
        let check = |text: &str, millis: u64, again: &str| {
            let read = parse(text);
            assert_eq!(read, Ok(Duration::from_millis(millis)), "{text}");
            assert_eq!(format(Duration::from_millis(millis)), again);
        };
        check("50ms", 50, "50ms");
        check("2s", 2_000, "2s");
        check("90s", 90_000, "90s");
        check("120s", 120_000, "2m");
        check("1h30m", 5_400_000, "90m");
        check("1h 30m", 5_400_000, "90m");
        check("1.5h", 5_400_000, "90m");
        check("0.25s", 250, "250ms");
        check("5 s", 5_000, "5s");
        check("30d", 2_592_000_000, "30d");
        check("0s", 0, "0s");
        check("1s500ms", 1_500, "1500ms");
    }

    #[test]
    fn a_duration_that_is_unclear_is_refused_with_what_to_write() {
        for text in [
            "",
            "5",
            "s",
            "-5s",
            "1.s",
            ".5s",
            "1.2.3s",
            "1e3s",
            "5x",
            "5s6",
            "99999999999999999999s",
            "18446744073709551615d",
        ] {
            assert!(parse(text).is_err_and(|why| why.contains("1h30m")), "{text}");
        }
    }
}
