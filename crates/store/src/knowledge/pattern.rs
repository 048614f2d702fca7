//! Patterns of keys: `*`, `?`, `[abc]`, `[a-z]`, `[!a]` or `[^a]`; everything else stands for itself, also a `[`
//! that nothing closes. A `]` right after the opening is one of the set, as is a `-` at either end.

use std::fmt::Write as _;

/// A pattern that has been read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CompiledPattern(Vec<PatternPart>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum PatternPart {
    /// This character.
    This(char),
    /// Any one.
    One,
    /// Any number of any.
    Many,
    /// One of these, or of all others.
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
            // Two stars in a row mean what one does.
            if part != PatternPart::Many || parts.last() != Some(&PatternPart::Many) {
                parts.push(part);
            }
        }
        Self(parts)
    }

    /// What every key that fits begins with.
    pub(crate) fn prefix(&self) -> String {
        let literal = |part: &PatternPart| match part {
            PatternPart::This(c) => Some(*c),
            _ => None,
        };
        self.0.iter().map_while(literal).collect()
    }

    /// Whether a key fits. Takes no longer than the product of both lengths.
    pub(crate) fn fits(&self, key: &str) -> bool {
        let mut rest = key.chars();
        let mut at = 0;
        // The last star, and what was left of the key when it was met: where to go on when it must take one more.
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
                // Nothing is left for the star to take.
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

    /// The same as a regular expression of PostgreSQL, to be compared under the C collation.
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

/// A character that stands for itself wherever it stands. Those that could mean something else go by number.
fn literal(regex: &mut String, c: char) {
    if c.is_ascii_alphanumeric() || !c.is_ascii() {
        regex.push(c);
    } else {
        // Writing to a string does not fail.
        let _ = write!(regex, "\\u{:04x}", c as u32);
    }
}

/// The set that begins here, and how many characters it takes; `None` if nothing closes it.
fn set(chars: &[char]) -> Option<(PatternPart, usize)> {
    let others = matches!(chars.get(1), Some('!' | '^'));
    let first = if others { 2 } else { 1 };
    // At least one character before the bracket that closes it.
    let end = first + 1 + chars.get(first + 1..)?.iter().position(|c| *c == ']')?;
    let (mut ranges, mut at) = (vec![], first);
    while at < end {
        let from = chars[at];
        if chars[at + 1] == '-' && at + 2 < end {
            // One that goes backwards holds nothing but its beginning.
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

    /// A star that gives back would take exponential time here.
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
