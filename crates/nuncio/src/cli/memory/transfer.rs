//! `nuncio memory export|import`: whole namespaces as JSON Lines, a page at a time, so that no file is too long.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, BufWriter, Write},
    path::{Path, PathBuf},
};

use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use crate::cli::{error::CliError, progress::Progress, shared::Shared, text::plain};

/// Entries that are asked for at once; the server gives fewer where they are large.
const PAGE: usize = 1000;
/// Lines and bytes that are sent at once.
const LINES: usize = 500;
const BYTES: usize = 512 * 1024;

#[derive(Args)]
pub(super) struct Export {
    /// The namespace
    #[arg(value_name = "NS")]
    namespace: String,
    /// The file to write. Default: the standard output
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Only keys that begin so
    #[arg(long, value_name = "TEXT")]
    prefix: Option<String>,
}

impl Export {
    pub(super) async fn run(self, shared: &Shared) -> Result<(), CliError> {
        let Some(path) = &self.file else {
            let count = self.write(shared, &mut BufWriter::new(io::stdout())).await?;
            shared.remark(&format!("{count} entries"));
            return Ok(());
        };
        let failed = |error: io::Error| CliError::Usage(format!("cannot write {}: {error}", path.display()));
        // A file that is there stays whole until the new one is.
        let draft = draft_of(path);
        let mut file = BufWriter::new(File::create(&draft).map_err(failed)?);
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
            format!("{count} entries of {} are in {}.\n", plain(&self.namespace), path.display())
        })
    }

    async fn write(&self, shared: &Shared, out: &mut impl Write) -> Result<u64, CliError> {
        let mut progress = Progress::on_terminal(shared.is_json());
        let mut arguments = json!({ "namespace": self.namespace, "limit": PAGE });
        if let Some(prefix) = &self.prefix {
            arguments["prefix"] = prefix.as_str().into();
        }
        let mut count = 0;
        loop {
            let page = shared.call_patiently("memory_export", &arguments).await?;
            let lines = page["jsonl"].as_str().unwrap_or_default();
            out.write_all(lines.as_bytes())?;
            if !lines.is_empty() && !lines.ends_with('\n') {
                out.write_all(b"\n")?;
            }
            count += lines.lines().count() as u64;
            progress.at(count, None, "entries");
            match page["next"].as_str() {
                Some(next) => arguments["after"] = next.into(),
                None => break,
            }
        }
        out.flush()?;
        Ok(count)
    }
}

fn draft_of(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".part");
    path.with_file_name(name)
}

/// What becomes of keys that are there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Mode {
    /// They are written over.
    Overwrite,
    /// They stay as they are.
    Skip,
}

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Self::Overwrite => "overwrite",
            Self::Skip => "skip",
        }
    }
}

#[derive(Args)]
pub(super) struct Import {
    /// The namespace
    #[arg(value_name = "NS")]
    namespace: String,
    /// The file to read, JSON Lines as `export` writes them. Default: the standard input
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// What becomes of keys that are there
    #[arg(long, value_name = "MODE", default_value = "overwrite")]
    mode: Mode,
}

/// How an import goes.
#[derive(Default)]
struct Tally {
    imported: u64,
    skipped: u64,
    lines: u64,
}

impl Import {
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

    pub(super) async fn run(self, shared: &Shared, mut input: Box<dyn BufRead>) -> Result<(), CliError> {
        let mut progress = Progress::on_terminal(shared.is_json());
        let mut tally = Tally::default();
        loop {
            let (piece, lines) = next_piece(&mut *input)?;
            if lines == 0 {
                break;
            }
            let sent = self.send(shared, &piece).await;
            let done = sent.inspect_err(|_| {
                if tally.lines > 0 {
                    shared.remark(&format!("the first {} lines are imported", tally.lines));
                }
            })?;
            tally.imported += done["imported"].as_u64().unwrap_or(0);
            tally.skipped += done["skipped"].as_u64().unwrap_or(0);
            tally.lines += lines;
            progress.at(tally.lines, None, "lines");
        }
        let Tally { imported, skipped, .. } = tally;
        let report = json!({ "namespace": self.namespace, "imported": imported, "skipped": skipped });
        shared.print(&report, |_| {
            format!("{imported} entries are in {}; {skipped} were skipped.\n", plain(&self.namespace))
        })
    }

    async fn send(&self, shared: &Shared, piece: &str) -> Result<Value, CliError> {
        let arguments = json!({ "namespace": self.namespace, "jsonl": piece, "mode": self.mode.name() });
        shared.call_patiently("memory_import", &arguments).await
    }
}

/// As many lines as are sent at once, without empty ones; how many.
fn next_piece(input: &mut dyn BufRead) -> Result<(String, u64), CliError> {
    let (mut piece, mut lines, mut line) = (String::new(), 0, String::new());
    while lines < LINES as u64 && piece.len() < BYTES {
        line.clear();
        let read = input.read_line(&mut line);
        if read.map_err(|error| CliError::Usage(format!("cannot read the entries: {error}")))? == 0 {
            break;
        }
        if line.trim().is_empty() {
            continue;
        }
        piece.push_str(line.trim_end_matches(['\n', '\r']));
        piece.push('\n');
        lines += 1;
    }
    Ok((piece, lines))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_sent_in_pieces_of_whole_lines() {
        let text = (0..1200).map(|n| format!("{{\"n\":{n}}}\r\n\n")).collect::<String>();
        let mut input = text.as_bytes();
        let sizes: Vec<u64> = std::iter::from_fn(|| next_piece(&mut input).ok().map(|(_, lines)| lines))
            .take_while(|lines| *lines > 0)
            .collect();
        assert_eq!(sizes, [500, 500, 200]);
        let long = format!("{}\n{}\n", "x".repeat(BYTES), "y");
        let mut input = long.as_bytes();
        assert_eq!(
            next_piece(&mut input).ok().map(|(piece, lines)| (piece.len(), lines)),
            Some((BYTES + 1, 1))
        );
    }
}
