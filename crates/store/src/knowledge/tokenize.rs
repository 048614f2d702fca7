//! The tokenizer: runs of letters and digits, in lower case. Both backends index its words, never raw text, so
//! that neither applies its own rules.

use std::fmt::Write as _;

/// The longest indexed word, in characters; longer ones are cut. (PostgreSQL accepts 2046 bytes.)
const MAX_CHARS: usize = 128;

/// The words of a text, in order.
pub(crate) fn tokenize(text: &str) -> impl Iterator<Item = String> {
    text.split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(|word| word.chars().take(MAX_CHARS).flat_map(char::to_lowercase).collect())
}

/// The words of a text as they are indexed: each with the number of its namespace as a prefix.
pub(crate) fn tokenize_in_namespace(space: i64, text: &str) -> String {
    let mut indexed = String::with_capacity(text.len() * 2);
    for word in tokenize(text) {
        // Writing to a string does not fail.
        let _ = write!(indexed, "{space}:{word} ");
    }
    indexed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_runs_of_letters_and_digits() {
        let of = |text: &str| tokenize(text).collect::<Vec<_>>();
        assert_eq!(
            of("Hello, \"wörld\"! v1.2 \0a_b ÇÉ 東京"),
            ["hello", "wörld", "v1", "2", "a", "b", "çé", "東京"]
        );
        assert!(of(" -_*^\"' ").is_empty());
        assert_eq!(of(&"x".repeat(1_000)), ["x".repeat(MAX_CHARS)]);
        assert_eq!(tokenize_in_namespace(7, "To be"), "7:to 7:be ");
    }
}
