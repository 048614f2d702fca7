//! `nuncio memory export|import`: whole namespaces as JSON Lines, in pages, so that the file may be of any
//! length.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, BufWriter, Write},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use clap::{Args, ValueEnum};
use nuncio_client::mcp::ToolError;
use nuncio_flows::memory::api::{
    MemoryExportAnswer, MemoryExportRequest, MemoryImportAnswer, MemoryImportMode, MemoryImportRequest,
};
use serde::Deserialize as _;
use serde_json::json;

use crate::{
    error::CliError, progress::ProgressDisplay, server_connection::ServerConnection, table, text::plain,
};

/// Entries per request; the server returns fewer where they are large.
const PAGE: usize = 1000;
/// Lines and bytes per request.
const LINES: u64 = 500;
const BYTES: usize = 512 * 1024;
/// The most invalid lines that are reported.
const TOLD: usize = 10;

#[derive(Args)]
pub(super) struct MemoryExportFlags {
    /// The namespace
    #[arg(value_name = "NS")]
    namespace: String,
    /// The file to write. Default: the standard output
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
}

impl MemoryExportFlags {
    pub(super) async fn run(self, shared: &ServerConnection) -> Result<(), CliError> {
        let Some(path) = &self.file else {
            let count = self.write(shared, &mut BufWriter::new(io::stdout())).await?;
            shared.remark(&entries(count));
            return Ok(());
        };
        let failed = |error: io::Error| CliError::Usage(format!("cannot write {}: {error}", path.display()));
        // An existing file stays intact until the new one is complete.
        let draft = draft_of(path);
        let mut file = BufWriter::new(create_private(&draft).map_err(failed)?);
        let written = self.write(shared, &mut file).await;
        let kept = written.and_then(|count| {
            file.flush().and_then(|()| std::fs::rename(&draft, path)).map_err(failed)?;
            Ok(count)
        });
        let count = match kept {
            Ok(count) => count,
            Err(error) => {
                let _ = std::fs::remove_file(&draft);
                return Err(error);
            }
        };
        let report = json!({ "namespace": self.namespace, "exported": count, "file": path });
        shared.print(&report, |_| {
            format!("{} of {} in {}.\n", entries(count), plain(&self.namespace), path.display())
        })
    }

    async fn write(&self, shared: &ServerConnection, out: &mut impl Write) -> Result<u64, CliError> {
        let mut progress = ProgressDisplay::on_terminal(shared.is_json());
        let mut request =
            MemoryExportRequest { namespace: self.namespace.clone(), after: None, limit: Some(PAGE) };
        let mut count = 0;
        loop {
            let page = shared.call_typed_with_retry::<MemoryExportAnswer>("memory_export", &request).await?;
            out.write_all(page.value.lines.as_bytes())?;
            count += page.value.count;
            progress.update_progress(count, None, "entries");
            request.after = page.value.next;
            if request.after.is_none() {
                break;
            }
        }
        out.flush()?;
        Ok(count)
    }
}

fn entries(number: u64) -> String {
    table::count(number, "entry", "entries")
}

/// Creates a file that only its owner can read: an export may contain secrets.
fn create_private(path: &Path) -> io::Result<File> {
    File::options().write(true).create(true).truncate(true).mode(0o600).open(path)
}

fn draft_of(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".part");
    path.with_file_name(name)
}

/// What happens to existing keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ExistingKeyMode {
    /// Existing keys are overwritten
    Overwrite,
    /// Existing keys stay as they are
    Keep,
    /// The import stops at the first chunk with an existing key
    Fail,
}

impl ExistingKeyMode {
    fn mode(self) -> MemoryImportMode {
        match self {
            Self::Overwrite => MemoryImportMode::Overwrite,
            Self::Keep => MemoryImportMode::Keep,
            Self::Fail => MemoryImportMode::Fail,
        }
    }
}

#[derive(Args)]
pub(super) struct MemoryImportFlags {
    /// The namespace
    #[arg(value_name = "NS")]
    namespace: String,
    /// The file to read, JSON Lines as written by `export`. Default: the standard input
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// What happens to keys that exist already
    #[arg(long, value_name = "MODE", default_value = "overwrite")]
    mode: ExistingKeyMode,
}

impl MemoryImportFlags {
    pub(super) fn open(&self) -> Result<Box<dyn BufRead>, CliError> {
        match self.file.as_deref().filter(|file| *file != Path::new("-")) {
            None => Ok(Box::new(BufReader::new(io::stdin()))),
            Some(path) => {
                let file = File::open(path)
                    .map_err(|error| CliError::Usage(format!("cannot read {}: {error}", path.display())))?;
                Ok(Box::new(BufReader::new(file)))
            }
        }
    }

    pub(super) async fn run(
        self,
        shared: &ServerConnection,
        mut input: Box<dyn BufRead>,
    ) -> Result<(), CliError> {
        let mut progress = ProgressDisplay::on_terminal(shared.is_json());
        let (mut written, mut kept, mut lines) = (0, 0, 0);
        loop {
            let (piece, count) = next_piece(&mut *input)?;
            if count == 0 {
                break;
            }
            let request = MemoryImportRequest {
                namespace: self.namespace.clone(),
                lines: piece,
                mode: self.mode.mode(),
            };
            let done = shared.call_typed_with_retry::<MemoryImportAnswer>("memory_import", &request).await;
            let done = match done {
                Ok(done) => done.value,
                Err(error) => {
                    drop(progress);
                    return Err(stopped(error, lines));
                }
            };
            written += done.written;
            kept += done.kept;
            lines += count;
            progress.update_progress(lines, None, "lines");
        }
        drop(progress);
        let report = json!({ "namespace": self.namespace, "written": written, "kept": kept });
        shared.print(&report, |_| {
            format!(
                "{} written to {}; {kept} were there and stayed.\n",
                entries(written),
                plain(&self.namespace)
            )
        })
    }
}

/// The error of an incomplete import: what is wrong in which line of the file, and what was imported.
fn stopped(error: CliError, before: u64) -> CliError {
    let (error, target) = match error {
        CliError::Tool { error, target } => (*error, target),
        other => return other,
    };
    let ToolError::Tool { why, structured } = error else {
        return CliError::Tool { error: Box::new(error), target };
    };
    let answer = structured.as_ref().and_then(|said| MemoryImportAnswer::deserialize(said).ok());
    let wrong = answer.map(|answer| answer.errors).unwrap_or_default();
    let told = wrong.iter().take(TOLD).map(|wrong| format!("line {}: {}", before + wrong.line, wrong.error));
    let told: Vec<String> = told.collect();
    let mut why = if told.is_empty() { why } else { told.join("; ") };
    let more = wrong.len().saturating_sub(TOLD);
    if more > 0 {
        why = format!("{why}; and {more} more");
    }
    let done = match before {
        0 => "nothing is imported".to_owned(),
        before => format!("the {before} lines before line {} are imported", before + 1),
    };
    let error = ToolError::Tool { why: format!("{why} ({done})"), structured };
    CliError::Tool { error: Box::new(error), target }
}

/// The next lines to send in one request, and their number; empty at the end.
fn next_piece(input: &mut dyn BufRead) -> Result<(String, u64), CliError> {
    let (mut piece, mut lines) = (String::new(), 0);
    while lines < LINES && piece.len() < BYTES {
        let read = input.read_line(&mut piece);
        if read.map_err(|error| CliError::Usage(format!("cannot read the entries: {error}")))? == 0 {
            break;
        }
        lines += 1;
    }
    Ok((piece, lines))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_sent_in_pieces_of_whole_lines() {
        let text = (0..1200).map(|n| format!("{{\"n\":{n}}}\r\n")).collect::<String>();
        let mut input = text.as_bytes();
        let (mut sizes, mut whole) = (vec![], String::new());
        while let Ok((piece, lines @ 1..)) = next_piece(&mut input) {
            sizes.push(lines);
            whole.push_str(&piece);
        }
        assert_eq!((sizes, whole), (vec![500, 500, 200], text));
        let long = format!("{}\ny", "x".repeat(BYTES));
        let mut input = long.as_bytes();
        assert_eq!(
            next_piece(&mut input).ok().map(|(piece, lines)| (piece.len(), lines)),
            Some((BYTES + 1, 1))
        );
        assert_eq!(next_piece(&mut input).ok(), Some(("y".to_owned(), 1)));
    }
}
