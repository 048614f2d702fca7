//! The standard output: JSON in the protocol's own types, as one document or one line per event, or text.
//! Nothing else writes to it.

use std::io::{self, IsTerminal as _, Write as _};

use clap::{Args, ValueEnum};
use serde_json::{Value, value::RawValue};

use super::{
    error::CliError,
    text::{is_safe, plain},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people: one `Label: value` per line.
    Text,
    /// For programs: the protocol's own types.
    Json,
}

/// The output flags that all client commands share.
#[derive(Args, Debug, Clone, Copy)]
pub(crate) struct OutputFlags {
    /// The output format
    #[arg(
        short = 'o',
        long = "output",
        env = "A2ACLI_OUTPUT",
        default_value = "text",
        value_name = "FORMAT"
    )]
    pub(crate) format: Format,
    /// Show events as they arrive; with `-o json`, one JSON object per line
    #[arg(long)]
    pub(crate) stream: bool,
    /// Show everything: history, ids, media types, metadata
    #[arg(long, env = "A2ACLI_VERBOSE")]
    pub(crate) verbose: bool,
}

impl OutputFlags {
    pub(crate) fn is_json(&self) -> bool {
        self.format == Format::Json
    }
}

/// Prints a JSON document on one line, otherwise unchanged.
pub(crate) fn json(document: &RawValue) -> Result<(), CliError> {
    json_text(document.get())
}

/// The same, for a document as text.
pub(crate) fn json_text(document: &str) -> Result<(), CliError> {
    let escaped;
    let document = match document.chars().all(is_safe) || !io::stdout().is_terminal() {
        true => document,
        false => {
            escaped = escape(document);
            &escaped
        }
    };
    let mut out = io::stdout().lock();
    if document.contains(['\n', '\r']) {
        // A server may pretty-print; the output is one line per document.
        let value: Value = serde_json::from_str(document).map_err(io::Error::other)?;
        writeln!(out, "{value}")?;
    } else {
        writeln!(out, "{document}")?;
    }
    Ok(out.flush()?)
}

/// Escapes characters that a terminal would interpret. In JSON they occur only inside strings.
fn escape(document: &str) -> String {
    let mut out = String::with_capacity(document.len());
    for letter in document.chars() {
        if is_safe(letter) || letter == '\r' {
            out.push(letter);
        } else {
            let mut units = [0; 2];
            for unit in letter.encode_utf16(&mut units) {
                let _ = std::fmt::Write::write_fmt(&mut out, format_args!("\\u{unit:04x}"));
            }
        }
    }
    out
}

/// Prints text as it is.
pub(crate) fn text(text: &str) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// Prints a note on the standard error.
pub(crate) fn note(text: &str) {
    let _ = writeln!(io::stderr(), "{}", plain(text));
}
