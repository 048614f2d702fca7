//! Glob patterns for keys: `*`, `?`, `[abc]`, `[a-z]`, `[!a]` or `[^a]`; every other character is literal, also
//! a `[` that is never closed. A `]` right after the opening belongs to the set, as does a `-` at either end.

use std::fmt::Write as _;

/// A parsed pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CompiledPattern(Vec<PatternPart>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum PatternPart {
    /// This character.
    This(char),
    /// Any one character.
    One,
    /// Any number of any characters.
    Many,
    /// A character of the set, or, with `others`, one outside it.
    Set { others: bool, ranges: Vec<(char, char)> },
}

impl PatternPart {
    fn takes(&self, c: char) -> bool {
        match self {
            Self::This(this) => *this == c,
            Self::One | Self::Many => true,
            Self::Set { others, ranges } => {
                ranges.iter().any(|(from, to)| (*from..=*to).contains(&c)) != *others
            }
        }
    }
}

impl CompiledPattern {
    pub(crate) fn read(text: &str) -> Self {
        let chars: Vec<char> = text.chars().collect();
        let (mut parts, mut at) = (vec![], 0);
        while let Some(c) = chars.get(at) {
            let (part, taken) = match c {
                '*' => (PatternPart::Many, 1),
                '?' => (PatternPart::One, 1),
                '[' => set(&chars[at..]).unwrap_or((PatternPart::This('['), 1)),
                c => (PatternPart::This(*c), 1),
            };
            at += taken;
            // Two stars in a row mean the same as one.
            if part != PatternPart::Many || parts.last() != Some(&PatternPart::Many) {
                parts.push(part);
            }
        }
        Self(parts)
    }

    /// The literal prefix of every key that matches.
    pub(crate) fn prefix(&self) -> String {
        let literal = |part: &PatternPart| match part {
            PatternPart::This(c) => Some(*c),
            _ => None,
        };
        self.0.iter().map_while(literal).collect()
    }

    /// Whether a key matches. Takes at most time proportional to the product of both lengths.
    pub(crate) fn fits(&self, key: &str) -> bool {
        let mut rest = key.chars();
        let mut at = 0;
        // The last star, and the rest of the key at that point: the position to backtrack to when the star must
        // take one more.
        let mut star: Option<(usize, std::str::Chars<'_>)> = None;
        loop {
            if let Some(PatternPart::Many) = self.0.get(at) {
                at += 1;
                star = Some((at, rest.clone()));
                continue;
            }
            let next = rest.next();
            match (self.0.get(at), next) {
                (None, None) => return true,
                (Some(part), Some(c)) if part.takes(c) => at += 1,
                // The key is used up: the star cannot take more.
                (_, None) => return false,
                _ => {
                    let Some((after, from)) = &mut star else { return false };
                    if from.next().is_none() {
                        return false;
                    }
                    (at, rest) = (*after, from.clone());
                }
            }
        }
    }

    /// The pattern as a PostgreSQL regular expression, for comparison under the C collation.
    pub(crate) fn regex(&self) -> String {
        let mut regex = String::from("^");
        for part in &self.0 {
            match part {
                PatternPart::This(c) => literal(&mut regex, *c),
                PatternPart::One => regex.push('.'),
                PatternPart::Many => regex.push_str(".*"),
                PatternPart::Set { others, ranges } => {
                    regex.push_str(if *others { "[^" } else { "[" });
                    for (from, to) in ranges {
                        literal(&mut regex, *from);
                        if from != to {
                            regex.push('-');
                            literal(&mut regex, *to);
                        }
                    }
                    regex.push(']');
                }
            }
        }
        regex.push('$');
        regex
    }
}

/// Writes a literal character. One that could have a special meaning is escaped by number.
fn literal(regex: &mut String, c: char) {
    if c.is_ascii_alphanumeric() || !c.is_ascii() {
        regex.push(c);
    } else {
        // Writing to a string does not fail.
        let _ = write!(regex, "\\u{:04x}", c as u32);
    }
}

/// Parses the set that begins here, with its length in characters; `None` if it is never closed.
fn set(chars: &[char]) -> Option<(PatternPart, usize)> {
    let others = matches!(chars.get(1), Some('!' | '^'));
    let first = if others { 2 } else { 1 };
    // At least one character before the closing bracket.
    let end = first + 1 + chars.get(first + 1..)?.iter().position(|c| *c == ']')?;
    let (mut ranges, mut at) = (vec![], first);
    while at < end {
        let from = chars[at];
        if chars[at + 1] == '-' && at + 2 < end {
            // A reversed range contains only its first character.
            ranges.push((from, from));
            ranges.extend((from < chars[at + 2]).then_some((from, chars[at + 2])));
            at += 3;
        } else {
            ranges.push((from, from));
            at += 1;
        }
    }
    Some((PatternPart::Set { others, ranges }, end + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &str, fitting: &[&str], others: &[&str]) {
        let read = CompiledPattern::read(pattern);
        for key in fitting {
            assert!(read.fits(key), "{key:?} fits {pattern:?}");
            assert!(key.starts_with(&read.prefix()), "{key:?} begins as {pattern:?}");
        }
        for key in others {
            assert!(!read.fits(key), "{key:?} does not fit {pattern:?}");
        }
    }

    #[test]
    fn patterns_mean_what_they_say() {
        check("user:*", &["user:", "user:1", "user:*"], &["user", "User:1", "a user:1"]);
        check("a?c", &["abc", "aéc", "a?c"], &["ac", "abbc"]);
        check("[a-c]x", &["ax", "cx"], &["dx", "-x", "x"]);
        check("[!a-c]x", &["dx", "!x"], &["ax"]);
        check("[^a]", &["b", "^"], &["a", ""]);
        check("[]a]", &["]", "a"], &["[", "[]a]"]);
        check("[!]a]", &["b"], &["]", "a"]);
        check("[a-]", &["a", "-"], &["b"]);
        check("[-a]", &["a", "-"], &["b"]);
        check("[z-a]", &["z"], &["a", "m", "-"]);
        check("[abc", &["[abc"], &["a", "abc"]);
        check("[]", &["[]"], &["]", ""]);
        check("[!]", &["[!]"], &["!", "a"]);
        check("", &[""], &["a"]);
        check("*", &["", "any", "a\nb"], &[]);
        check("**a**", &["a", "xax"], &["", "x"]);
        check("*ab*ab", &["abab", "xabyab", "ababab"], &["ab", "ababa"]);
        check("100%_\\.+", &["100%_\\.+"], &["100x_\\.+", "100%_."]);
        check("[東-京]?é", &["東aé"], &["éaé"]);
    }

    /// Naive backtracking would take exponential time here.
    #[test]
    fn many_stars_end() {
        let pattern = CompiledPattern::read(&"*a".repeat(50));
        assert!(!pattern.fits(&format!("{}b", "a".repeat(5_000))));
    }

    #[test]
    fn nothing_of_a_pattern_reaches_the_regular_expression_as_syntax() {
        assert_eq!(
            CompiledPattern::read("a.b(*)?[^]x-z\\]$").regex(),
            "^a\\u002eb\\u0028.*\\u0029.[^\\u005dxx-z\\u005c]\\u0024$"
        );
    }
}
