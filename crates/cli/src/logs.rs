//! Logging on the standard error: text for people by default, one JSON object per line for programs.
//!
//! Every line passes through the redactor, whichever module or library logged it, so that secrets stay out of
//! the log.

use std::{
    io::{self, IsTerminal as _, Write},
    sync::Arc,
};

use nuncio::engine::redact::Redactor;
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
            let fields = format::debug_fn(|out, field, value| match field.name() {
                "message" => write!(out, "{value:?}"),
                name => write!(out, "{name}={value:?}"),
            });
            let lines = lines.with_ansi(io::stderr().is_terminal()).compact();
            lines.fmt_fields(fields.delimited(" ")).try_init()
        }
        LogFormat::Json => lines.json().flatten_event(true).with_ansi(false).try_init(),
    };
}

/// Redacts secrets from each line.
struct RedactingMakeWriter<W> {
    redactor: Arc<Redactor>,
    to: W,
}

impl<'a, W: Fn() -> O + 'a, O: Write> MakeWriter<'a> for RedactingMakeWriter<W> {
    type Writer = RedactingWriter<'a, O>;

    fn make_writer(&'a self) -> Self::Writer {
        RedactingWriter { redactor: &self.redactor, to: (self.to)() }
    }
}

struct RedactingWriter<'a, O> {
    redactor: &'a Redactor,
    to: O,
}

impl<O: Write> Write for RedactingWriter<'_, O> {
    /// Writes everything in one call: an event arrives in one piece.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        self.to.write_all(self.redactor.text(&text).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}
