//! Durations as people write them: `50ms`, `2s`, `1h30m`, `30d`.

use std::time::Duration;

/// Units in milliseconds, largest first.
const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Parses a duration. Every number needs a unit.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no length of time: write 50ms, 2s, 5m, 1h30m or 30d");
    let mut rest = text.trim();
    let mut total = 0_u64;
    if rest.is_empty() {
        return Err(wrong());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let (number, tail) = rest.split_at(digits);
        let letters = tail.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(letters);
        let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?;
        let number: u64 = number.parse().map_err(|_| wrong())?;
        total = number.checked_mul(*factor).and_then(|part| total.checked_add(part)).ok_or_else(wrong)?;
        rest = tail.trim_start();
    }
    Ok(Duration::from_millis(total))
}

/// Formats a duration in the largest unit that divides it.
pub(crate) fn format(duration: Duration) -> String {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let fits = |(_, factor): &&(&str, u64)| millis.is_multiple_of(*factor);
    let (unit, factor) = UNITS.iter().find(fits).filter(|_| millis > 0).unwrap_or(&("s", 1_000));
    format!("{}{unit}", millis / factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let check = |text: &str, millis: u64, again: &str| {
            let read = parse(text).unwrap();
            assert_eq!(read, Duration::from_millis(millis), "{text}");
            assert_eq!(format(read), again);
        };
        check("50ms", 50, "50ms");
        check("2s", 2_000, "2s");
        check("90s", 90_000, "90s");
        check("120s", 120_000, "2m");
        check("1h30m", 5_400_000, "90m");
        check("1h 30m", 5_400_000, "90m");
        check("30d", 2_592_000_000, "30d");
        check("0s", 0, "0s");
        check("1s500ms", 1_500, "1500ms");
    }

    #[test]
    fn what_is_unclear_is_refused() {
        for text in [
            "",
            "5",
            "s",
            "5 s",
            "-5s",
            "1.5s",
            "5x",
            "5s6",
            "99999999999999999999s",
            "18446744073709551615d",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
