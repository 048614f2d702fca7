//! Prints lines above the line that is being edited.
//!
//! The editor has a printer for this, but with it keys that arrive together are processed one at a time, each
//! only when the next key arrives. So this module remembers the edited line whenever the editor reports it,
//! and writes it again below the printed lines. At the next key the editor finds the screen as it left it.

use std::{
    io::{self, Write as _},
    sync::Arc,
};

use parking_lot::Mutex;
use unicode_width::UnicodeWidthStr as _;

/// The line that is being edited, if there is one.
#[derive(Debug, Clone, Default)]
pub(super) struct PromptPrinter(Arc<Mutex<Option<EditedLine>>>);

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct EditedLine {
    prompt: String,
    line: String,
    /// The cursor, as a byte offset into the line.
    at: usize,
}

impl PromptPrinter {
    /// A line is being edited from now on.
    pub(super) fn begin(&self, prompt: &str) {
        self.set(Some(EditedLine { prompt: prompt.to_owned(), ..EditedLine::default() }));
    }

    /// Records the current line and cursor.
    pub(super) fn edited(&self, line: &str, at: usize) {
        if let Some(edited) = &mut *self.0.lock() {
            (edited.line, edited.at) = (line.to_owned(), at);
        }
    }

    /// No line is being edited any more.
    pub(super) fn end(&self) {
        self.set(None);
    }

    fn set(&self, edited: Option<EditedLine>) {
        *self.0.lock() = edited;
    }

    /// Prints complete lines.
    pub(super) fn print(&self, text: &str) -> io::Result<()> {
        let edited = self.0.lock();
        let width = terminal_size::terminal_size().map_or(80, |(width, _)| usize::from(width.0));
        let mut out = io::stdout().lock();
        match &*edited {
            Some(edited) => out.write_all(edited.below(text, width).as_bytes())?,
            None => out.write_all(text.as_bytes())?,
        }
        out.flush()
    }
}

impl EditedLine {
    /// The terminal output: the text, and below it the edited line again.
    fn below(&self, text: &str, width: usize) -> String {
        let width = width.max(1);
        let before = self.prompt.width() + self.line.get(..self.at).unwrap_or(&self.line).width();
        let all = self.prompt.width() + self.line.width();
        let up = |rows: usize| if rows > 0 { format!("\u{1b}[{rows}A") } else { String::new() };
        let right = match before % width {
            0 => String::new(),
            columns => format!("\u{1b}[{columns}C"),
        };
        // A terminal wraps a full row only when the next character arrives.
        let wrap = if all > 0 && all.is_multiple_of(width) { "\r\n" } else { "" };
        let clear = format!("\r{}\u{1b}[J", up(before / width));
        let text = text.replace('\n', "\r\n");
        let back = format!("\r{}{right}", up(all / width - before / width));
        format!("{clear}{text}{}{}{wrap}{back}", self.prompt, self.line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_comes_back_with_its_cursor() {
        let edited = |line: &str, at: usize| EditedLine { prompt: "> ".into(), line: line.into(), at };
        let check = |edited: EditedLine, width: usize, expected: &str| {
            assert_eq!(edited.below("new\n", width), expected);
        };
        check(edited("", 0), 80, "\r\u{1b}[Jnew\r\n> \r\u{1b}[2C");
        check(edited("abc", 1), 80, "\r\u{1b}[Jnew\r\n> abc\r\u{1b}[3C");
        // Two rows, with the cursor in the second, then in the first.
        check(edited("abcdefghij", 10), 8, "\r\u{1b}[1A\u{1b}[Jnew\r\n> abcdefghij\r\u{1b}[4C");
        check(edited("abcdefghij", 2), 8, "\r\u{1b}[Jnew\r\n> abcdefghij\r\u{1b}[1A\u{1b}[4C");
        check(edited("größe", 7), 80, "\r\u{1b}[Jnew\r\n> größe\r\u{1b}[7C");
        check(edited("abcdef", 6), 8, "\r\u{1b}[1A\u{1b}[Jnew\r\n> abcdef\r\n\r");
    }
}
