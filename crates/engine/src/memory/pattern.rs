//! Key patterns, and the score of a key that matches one.
//!
//! `*` matches any characters, `?` one character, `[abc]`, `[a-z]` and `[!a]` one of (or not of) those;
//! everything else matches itself. The store does the matching. The score of a match is the share of the key's
//! characters that the pattern contains literally: a key that the pattern spells out has 1, and `*` alone gives
//! 0.

use super::{BankError, MemoryLimits};

/// A valid pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyPattern {
    literals: usize,
}

impl KeyPattern {
    /// Parses a pattern.
    pub fn parse(text: &str, limits: &MemoryLimits) -> Result<Self, BankError> {
        let wrong = |why: String| Err(BankError::invalid("pattern", why));
        if text.is_empty() {
            return wrong("must not be empty; * finds all keys".into());
        }
        if text.len() > limits.pattern_bytes {
            return wrong(format!(
                "has {} bytes, and may have {} (pattern_bytes)",
                text.len(),
                limits.pattern_bytes
            ));
        }
        if let Some(c) = text.chars().find(|c| c.is_control()) {
            return wrong(format!("has the control character U+{:04X} in it", u32::from(c)));
        }
        let (mut literals, mut stars) = (0, 0);
        let mut rest = text.chars();
        while let Some(c) = rest.next() {
            match c {
                '*' => stars += 1,
                '?' => {}
                '[' => {
                    let Some(one) = class(&mut rest) else {
                        return wrong(
                            "has a [ that is not closed; write [[] for the character itself".into(),
                        );
                    };
                    literals += usize::from(one);
                }
                _ => literals += 1,
            }
        }
        if stars > limits.pattern_stars {
            return wrong(format!(
                "has {stars} stars, and may have {} (pattern_stars)",
                limits.pattern_stars
            ));
        }
        Ok(Self { literals })
    }

    /// The score of a key that matches: from 0 to 1, rounded to four digits.
    pub fn score(&self, key: &str) -> f64 {
        let length = key.chars().count().max(1);
        let share = (self.literals as f64 / length as f64).min(1.0);
        (share * 10_000.0).round() / 10_000.0
    }
}

/// Reads to the end of a class. Returns whether it matches exactly one character; `None`: it is not closed.
fn class(rest: &mut std::str::Chars<'_>) -> Option<bool> {
    let mut first = rest.next()?;
    let negated = matches!(first, '!' | '^');
    if negated {
        first = rest.next()?;
    }
    // A bracket in first position is one of the characters.
    let _ = first;
    let mut count = 1;
    loop {
        match rest.next()? {
            ']' => return Some(count == 1 && !negated),
            _ => count += 1,
        }
    }
}

/// Whether a key matches a pattern, as the stores decide it.
pub fn fits(pattern: &str, key: &str) -> bool {
    let (pattern, key): (Vec<char>, Vec<char>) = (pattern.chars().collect(), key.chars().collect());
    let (mut p, mut k, mut star) = (0, 0, None);
    while k < key.len() {
        if pattern.get(p) == Some(&'*') {
            star = Some((p, k));
            p += 1;
            continue;
        }
        if let Some(next) = one_fits(&pattern, p, key[k]) {
            (p, k) = (next, k + 1);
            continue;
        }
        // Backtrack: the last star takes one more character.
        let Some((at, taken)) = star else { return false };
        star = Some((at, taken + 1));
        (p, k) = (at + 1, taken + 1);
    }
    pattern[p..].iter().all(|c| *c == '*')
}

/// The pattern's next position if this character matches at `at`.
fn one_fits(pattern: &[char], at: usize, c: char) -> Option<usize> {
    match *pattern.get(at)? {
        '?' => Some(at + 1),
        '[' => {
            let negated = matches!(pattern.get(at + 1), Some('!' | '^'));
            let first = at + 1 + usize::from(negated);
            // A bracket in first position is one of the characters.
            let end = first + 1 + pattern.get(first + 1..)?.iter().position(|c| *c == ']')?;
            let (mut n, mut among) = (first, false);
            while n < end {
                match (pattern.get(n + 1), pattern.get(n + 2)) {
                    (Some('-'), Some(last)) if n + 2 < end => {
                        among |= (pattern[n]..=*last).contains(&c);
                        n += 3;
                    }
                    _ => {
                        among |= pattern[n] == c;
                        n += 1;
                    }
                }
            }
            (among != negated).then_some(end + 1)
        }
        literal => (literal == c).then_some(at + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &str, key: &str, expected: f64) {
        let parsed = KeyPattern::parse(pattern, &MemoryLimits::default());
        assert_eq!(parsed.map(|parsed| parsed.score(key)).ok(), Some(expected), "{pattern} {key}");
    }

    #[test]
    fn the_score_is_the_share_of_characters_that_were_said() {
        check("task:123:specification", "task:123:specification", 1.0);
        check("*", "anything", 0.0);
        // 19 of 22 characters.
        check("task:*:specification", "task:123:specification", 0.8636);
        check("a?c", "abc", 0.6667);
        check("a[bx]c", "abc", 0.6667);
        check("a[!x]c", "abc", 0.6667);
        check("a[*]c", "a*c", 1.0);
        check("[[]a]", "[a]", 1.0);
        check("[]]", "]", 1.0);
        check("grö*", "größe", 0.6);
    }

    #[test]
    fn a_pattern_that_cannot_be_used_is_refused() {
        for (pattern, word) in [
            ("", "empty"),
            ("[abc", "not closed"),
            ("[]", "not closed"),
            ("[!]", "not closed"),
            ("a\nb", "U+000A"),
            ("*a*a*a*a*a*a*a*a*", "pattern_stars"),
            (&"x".repeat(257), "pattern_bytes"),
        ] {
            let error = KeyPattern::parse(pattern, &MemoryLimits::default()).unwrap_err().to_string();
            assert!(error.starts_with("pattern: ") && error.contains(word), "{pattern}: {error}");
        }
        assert!(KeyPattern::parse("********", &MemoryLimits::default()).is_ok());
    }

    #[test]
    fn a_key_fits_or_does_not() {
        for (pattern, fitting, other) in [
            ("task:*:spec", "task:1:spec", "task:1:code"),
            ("*", "", "\u{0}not used"),
            ("a?c", "abc", "ac"),
            ("[ab]x", "bx", "cx"),
            ("[!ab]x", "cx", "ax"),
            ("[a-c]*", "b-long", "d"),
            ("a*b*c", "a1b2b3c", "a1c"),
            ("[[]x", "[x", "x"),
        ] {
            assert!(fits(pattern, fitting), "{pattern} {fitting}");
            assert!(pattern == "*" || !fits(pattern, other), "{pattern} {other}");
        }
        let long = "a".repeat(512);
        assert!(!fits("*a*a*a*a*a*a*a*b", &long));
    }
}
