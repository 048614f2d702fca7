//! Log lines, on the standard error: for people by default, one JSON object a line for programs.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

use crate::config::LogFormat;

/// Logs what the filter lets through from here on.
pub(crate) fn start(filter: &str, format: LogFormat) {
    // The filter was checked when it was read; a program that embeds this may have its own subscriber.
    let filter = EnvFilter::try_new(filter).unwrap_or_default();
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let _ = match format {
        LogFormat::Text => lines.with_ansi(std::io::stderr().is_terminal()).compact().try_init(),
        LogFormat::Json => lines.json().flatten_event(true).with_ansi(false).try_init(),
    };
}
