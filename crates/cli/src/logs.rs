//! Logging on the standard error: text for people by default, one JSON object per line for programs.
//!
//! Every line passes through the redactor, whichever module or library logged it, so that secrets stay out of
//! the log. A value with line breaks or escape sequences stays on its line, as text: what others name or say cannot look like
//! a line of this server.

use std::{
    fmt::{self, Write as _},
    io::{self, IsTerminal as _, Write},
    panic,
    sync::Arc,
};

use nuncio::engine::{TASK_LOG_TARGET, redact::Redactor};
use tracing::{Level, Metadata};
use tracing_subscriber::{
    EnvFilter,
    field::MakeExt as _,
    fmt::{MakeWriter, format},
};

use crate::config::LogFormat;

/// Starts logging with this filter.
pub(crate) fn start(filter: &str, format: LogFormat, redactor: &Arc<Redactor>) {
    // The filter was validated when it was parsed; a program that embeds this may have its own subscriber.
    let filter = EnvFilter::try_new(filter).unwrap_or_default();
    let writer = RedactingMakeWriter { redactor: Arc::clone(redactor), to: io::stderr };
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer);
    let _ = match format {
        LogFormat::Text => {
            // Fields without colours, whose codes would stand between a name and its value.
            let fields = format::debug_fn(|out, field, value| {
                if field.name() != "message" {
                    write!(out, "{}=", field.name())?;
                }
                write!(OneLine(out), "{value:?}")
            });
            let lines = lines.with_ansi(wants_colour()).compact();
            lines.fmt_fields(fields.delimited(" ")).try_init()
        }
        LogFormat::Json => {
            log_panics();
            lines.json().flatten_event(true).with_ansi(false).try_init()
        }
    };
}

/// Whether lines are for a person who wants colours (<https://no-color.org>).
fn wants_colour() -> bool {
    io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Logs panics, which would be plain text between the lines.
fn log_panics() {
    panic::set_hook(Box::new(|info| {
        let text = info.payload_as_str().unwrap_or("a panic without a text");
        let at = info.location().map(ToString::to_string).unwrap_or_default();
        tracing::error!(at, "panicked: {text}");
    }));
}

/// Writes control characters as escapes, so that a text is one line.
struct OneLine<'a>(&'a mut dyn fmt::Write);

impl fmt::Write for OneLine<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for part in text.split_inclusive(is_unsafe) {
            match part.chars().next_back().filter(|last| is_unsafe(*last)) {
                None => self.0.write_str(part)?,
                Some(last) => {
                    self.0.write_str(&part[..part.len() - last.len_utf8()])?;
                    write!(self.0, "{}", last.escape_default())?;
                }
            }
        }
        Ok(())
    }
}

/// Whether a terminal or a reader of lines may take a character for something else than text: control characters, the
/// separators of lines, and what changes the direction of the text after it.
fn is_unsafe(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Redacts secrets from each line.
struct RedactingMakeWriter<W> {
    redactor: Arc<Redactor>,
    to: W,
}

impl<'a, W: Fn() -> O + 'a, O: Write> MakeWriter<'a> for RedactingMakeWriter<W> {
    type Writer = RedactingWriter<'a, O>;

    fn make_writer(&'a self) -> Self::Writer {
        RedactingWriter { redactor: Some(&self.redactor), to: (self.to)() }
    }

    /// The lines of tasks that go well are the most by far, and hold nothing but ids, names of the configuration and words of
    /// this program: a search for secrets would cost more than the line.
    fn make_writer_for(&'a self, metadata: &Metadata<'_>) -> Self::Writer {
        let is_plain = metadata.target() == TASK_LOG_TARGET && *metadata.level() == Level::INFO;
        RedactingWriter { redactor: (!is_plain).then_some(&*self.redactor), to: (self.to)() }
    }
}

struct RedactingWriter<'a, O> {
    /// `None`: the line needs no redaction.
    redactor: Option<&'a Redactor>,
    to: O,
}

impl<O: Write> Write for RedactingWriter<'_, O> {
    /// Writes everything in one call: an event arrives in one piece.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.redactor {
            Some(redactor) => {
                let text = String::from_utf8_lossy(bytes);
                self.to.write_all(redactor.text(&text).as_bytes())?;
            }
            None => self.to.write_all(bytes)?,
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_stays_on_its_line() {
        let check = |text: &str, expected: &str| {
            let mut out = String::new();
            write!(OneLine(&mut out), "{text}").unwrap();
            assert_eq!(out, expected);
        };
        check("plain, with ü and 日本", "plain, with ü and 日本");
        check("a\n2026-01-01 INFO forged", r"a\n2026-01-01 INFO forged");
        check("\u{1b}[2Jgone\r\n\n", r"\u{1b}[2Jgone\r\n\n");
        check("\u{202e}reversed\u{2028}", r"\u{202e}reversed\u{2028}");
        check("tab\tstop", r"tab\tstop");
    }
}
