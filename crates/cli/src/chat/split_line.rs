//! A line split into words as a shell does: spaces separate them, quotes keep them together, `\` escapes the
//! next character.

/// A word of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LineWord {
    /// The word without its quotes.
    pub(super) text: String,
    /// Whether it began with a quote: then it is text, whatever it looks like.
    pub(super) quoted: bool,
    /// The byte offset of its start in the line.
    pub(super) start: usize,
}

/// Splits a line. An unclosed quote extends to the end of the line.
pub(super) fn split_words(line: &str) -> Vec<LineWord> {
    let mut words = vec![];
    let mut open: Option<LineWord> = None;
    let mut quote = None;
    let mut chars = line.char_indices();
    while let Some((at, c)) = chars.next() {
        let fresh = || LineWord { text: String::new(), quoted: false, start: at };
        match (quote, c) {
            (Some(end), _) if c == end => quote = None,
            (None, '\'' | '"') => {
                open.get_or_insert_with(|| LineWord { quoted: true, ..fresh() });
                quote = Some(c);
            }
            (None | Some('"'), '\\') => {
                let next = chars.next().map_or('\\', |(_, next)| next);
                let word = open.get_or_insert_with(fresh);
                // Inside quotes `\` escapes only quotes and itself, so that JSON stays JSON.
                if quote.is_some() && !matches!(next, '"' | '\\') {
                    word.text.push('\\');
                }
                word.text.push(next);
            }
            (None, _) if c.is_whitespace() => words.extend(open.take()),
            _ => open.get_or_insert_with(fresh).text.push(c),
        }
    }
    words.extend(open);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_hold_words_together() {
        let check = |line: &str, expected: &[&str]| {
            let found: Vec<String> = split_words(line).into_iter().map(|word| word.text).collect();
            assert_eq!(found, expected, "{line}");
        };
        check("", &[]);
        check("  a  b ", &["a", "b"]);
        check("a='b c' d", &["a=b c", "d"]);
        check(r#"a="b \"c\"" d"#, &["a=b \"c\"", "d"]);
        check(r"a\ b", &["a b"]);
        check("'never closed", &["never closed"]);
        check("größe='ä ö'", &["größe=ä ö"]);
    }

    #[test]
    fn a_word_knows_where_it_began() {
        let found = split_words(r#"one "two three""#);
        assert_eq!((found[1].start, found[1].quoted, found[0].quoted), (4, true, false));
    }
}
