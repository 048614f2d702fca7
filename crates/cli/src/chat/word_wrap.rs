//! Text in lines of a terminal's width, broken between words. Text that arrives in pieces is written as it comes: only
//! its last word is held back, because more of it may follow.

use unicode_width::UnicodeWidthChar as _;

use crate::text::plain;

/// What stands before every line of a text.
const INDENT: &str = "  ";

/// Where a text that arrives in pieces stands on the screen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct WrappedText {
    /// The columns that are used of the line; 0: nothing of it is written yet.
    column: usize,
    /// Something else ended its line: the space at which it goes on is not shown.
    was_broken: bool,
}

impl WrappedText {
    /// Whether its last line is on the screen and may go on.
    pub(super) fn is_within_line(&self) -> bool {
        self.column > 0
    }

    /// The line was ended by something else: the text goes on in a line of its own.
    pub(super) fn begin_line(&mut self) {
        (self.column, self.was_broken) = (0, true);
    }

    /// Writes everything up to the last word, which remains in `text`. A word that grows beyond any line is written in
    /// pieces of `longest` bytes.
    pub(super) fn write(&mut self, text: &mut String, width: Option<usize>, longest: usize) -> String {
        let complete = match text.rfind(char::is_whitespace) {
            _ if text.len() > longest => text.len(),
            // The spaces before the last word are written with it, if it fits into the line.
            Some(space) => text[..space].trim_end_matches([' ', '\t']).len().max(last_line_break(text)),
            None => 0,
        };
        let rest = text.split_off(complete);
        self.write_all(&std::mem::replace(text, rest), width)
    }

    /// Writes a text to its last word.
    pub(super) fn write_all(&mut self, text: &str, width: Option<usize>) -> String {
        let mut out = String::new();
        for (number, line) in text.split('\n').enumerate() {
            if number > 0 {
                if self.column == 0 {
                    out.push_str(INDENT);
                }
                out.push('\n');
                (self.column, self.was_broken) = (0, false);
            }
            self.write_line(&mut out, line.strip_suffix('\r').unwrap_or(line), width);
        }
        out
    }

    fn write_line(&mut self, out: &mut String, line: &str, width: Option<usize>) {
        for (spaces, word) in words(line).filter(|(_, word)| !word.is_empty()) {
            let (spaces, word) = (plain(spaces), plain(word));
            let wanted = columns(&spaces) + columns(&word);
            let is_full = width.is_some_and(|width| self.column + wanted > width);
            if self.column > 0 && is_full {
                out.push('\n');
                self.column = 0;
            }
            if self.column == 0 {
                out.push_str(INDENT);
                self.column = INDENT.len();
                // Spaces at which a line is broken are not shown; those that begin a text's own line are.
                if is_full || std::mem::take(&mut self.was_broken) {
                    out.push_str(&word);
                    self.column += columns(&word);
                    continue;
                }
            }
            out.push_str(&spaces);
            out.push_str(&word);
            self.column += wanted;
        }
    }
}

/// A whole line, broken where it is wider than the terminal. Colours take no room.
pub(super) fn wrap(line: &str, width: Option<usize>) -> String {
    let Some(width) = width.filter(|width| columns(line) > *width) else { return line.to_owned() };
    let (mut out, mut column) = (String::new(), 0);
    for (spaces, word) in words(line) {
        let wanted = columns(spaces) + columns(word);
        if column > 0 && column + wanted > width {
            out.push('\n');
            out.push_str(INDENT);
            out.push_str(word);
            column = INDENT.len() + columns(word);
        } else {
            out.push_str(spaces);
            out.push_str(word);
            column += wanted;
        }
    }
    out
}

/// The words of a line, each with the spaces before it. Spaces at the end are before an empty word.
fn words(line: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut rest = line;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let begin = rest.find(|c: char| !c.is_whitespace()).unwrap_or(rest.len());
        let end = rest[begin..].find(char::is_whitespace).map_or(rest.len(), |at| begin + at);
        let (spaces, word) = (&rest[..begin], &rest[begin..end]);
        rest = &rest[end..];
        Some((spaces, word))
    })
}

/// The end of the last whole line of a text.
fn last_line_break(text: &str) -> usize {
    text.rfind('\n').map_or(0, |at| at + 1)
}

/// The columns that a text takes, without the sequences that colour it.
fn columns(text: &str) -> usize {
    let (mut count, mut is_sequence) = (0, false);
    for c in text.chars() {
        match (is_sequence, c) {
            (false, '\u{1b}') => is_sequence = true,
            (true, 'm') => is_sequence = false,
            (true, _) => {}
            (false, c) => count += c.width().unwrap_or(0),
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a text shows that arrives in these pieces, with a mark after each of them.
    fn shown(pieces: &[&str], width: Option<usize>) -> String {
        let (mut text, mut rest, mut out) = (WrappedText::default(), String::new(), String::new());
        for piece in pieces {
            rest.push_str(piece);
            out.push_str(&text.write(&mut rest, width, 4096));
            out.push('|');
        }
        out + &text.write_all(&rest, width)
    }

    #[test]
    fn words_are_shown_as_they_come_and_lines_end_between_them() {
        assert_eq!(shown(&["Twi", "ce three", " is six"], None), "|  Twice| three is| six");
        assert_eq!(shown(&["one two three four"], Some(11)), "  one two\n  three|\n  four");
        assert_eq!(shown(&["one\ntwo ", "three\n", "\nfour"], Some(20)), "  one\n  two| three\n|  \n|  four");
        assert_eq!(shown(&["a\r\nb", "\r\n"], None), "  a\n|  b\n|");
        // Code keeps its indentation; a word that is wider than the line is not broken.
        assert_eq!(shown(&["if x:\n    go()\n"], Some(20)), "  if x:\n      go()\n|");
        assert_eq!(
            shown(&["see https://example.com/very/long now"], Some(10)),
            "  see\n  https://example.com/very/long|\n  now"
        );
        assert_eq!(shown(&["wide 日本語 日本語"], Some(10)), "  wide\n  日本語|\n  日本語");
        assert_eq!(shown(&["a\u{1b}[2Jb ", "c"], None), "  a\u{fffd}[2Jb|| c");
    }

    #[test]
    fn any_cut_shows_the_same() {
        let text = "The quick  brown fox\n\n  jumps over\tthe lazy dog, and it is  \nnot amused. ";
        for width in [None, Some(10), Some(17), Some(80)] {
            let whole = shown(&[text], width).replace('|', "");
            for cut in (1..text.len()).filter(|at| text.is_char_boundary(*at)) {
                let (head, tail) = text.split_at(cut);
                assert_eq!(shown(&[head, tail], width).replace('|', ""), whole, "{width:?}, cut at {cut}");
            }
            let letters: Vec<String> = text.chars().map(String::from).collect();
            let letters: Vec<&str> = letters.iter().map(String::as_str).collect();
            assert_eq!(shown(&letters, width).replace('|', ""), whole, "{width:?}");
        }
    }

    #[test]
    fn a_wide_line_is_broken_and_its_colours_take_no_room() {
        assert_eq!(wrap("[1 a] one two three", Some(13)), "[1 a] one two\n  three");
        assert_eq!(
            wrap("\u{1b}[1;36m[1 a]\u{1b}[0m one two", Some(13)),
            "\u{1b}[1;36m[1 a]\u{1b}[0m one two"
        );
        assert_eq!(wrap("short", Some(13)), "short");
        assert_eq!(wrap("one two three", None), "one two three");
    }
}
