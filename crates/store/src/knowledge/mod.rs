//! Text rules that both backends share for knowledge: tokens, key patterns, and the end of a prefix range.
//! Written once, so that a search finds the same on either.

mod pattern;
mod tokenize;

pub(crate) use pattern::CompiledPattern;
pub(crate) use tokenize::{tokenize, tokenize_in_namespace};

/// The first text after all that begin with `prefix`, ordered by bytes. `None` if the range has no end.
pub(crate) fn prefix_end(prefix: &str) -> Option<String> {
    let mut end = prefix.to_owned();
    while let Some(last) = end.pop() {
        // Not every number is a character: the surrogates are not.
        if let Some(next) = (last as u32 + 1..=char::MAX as u32).find_map(char::from_u32) {
            end.push(next);
            return Some(end);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_after_all_that_begin_with_it() {
        for (prefix, end) in [
            ("a", Some("b")),
            ("ab/", Some("ab0")),
            ("é", Some("ê")),
            ("a\u{d7ff}", Some("a\u{e000}")),
            ("a\u{10ffff}", Some("b")),
            ("\u{10ffff}", None),
            ("", None),
        ] {
            assert_eq!(prefix_end(prefix).as_deref(), end, "{prefix:?}");
            if let Some(end) = end {
                assert!(*format!("{prefix}\u{10ffff}") < *end && prefix < end);
            }
        }
    }
}
