//! `nuncio task download`: saves the artifacts of a task as files.
//!
//! The names come from the agent, so a file is created only directly in the chosen folder, and never over another
//! one unless `--force` says so. A part that is a URL is reported, not fetched: the agent chose the address.

use std::{
    collections::HashSet,
    fs::{self, OpenOptions},
    io::Write as _,
    path::{Path, PathBuf},
};

use clap::Args;
use nuncio_engine::content::{Artifact, Content, Part};
use serde_json::{Value, json};

use crate::{
    connection::{AgentConnection, AgentFlags},
    error::CliError,
    output,
    text::{TextOutput, shown_state},
};

/// The longest name of a file, in bytes.
const MAX_NAME: usize = 200;

#[derive(Args)]
pub(crate) struct Flags {
    /// The task
    #[arg(value_name = "TASK", env = "A2ACLI_TASK_ID")]
    task: String,
    /// The folder that the files are written to; it is created if there is none
    #[arg(long, short = 'd', default_value = ".", value_name = "DIR")]
    dir: PathBuf,
    /// Only the artifact of this id. Repeatable. Default: all
    #[arg(long = "artifact", value_name = "ID")]
    artifacts: Vec<String>,
    /// Replace files that exist
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    pub(crate) agent: AgentFlags,
}

/// Where a command that prints a task also saves its artifacts.
#[derive(Args, Debug, Clone, Default)]
pub(crate) struct SaveFlags {
    /// Save the artifacts as files in this folder, as `task download` does
    #[arg(long, value_name = "DIR")]
    pub(crate) save: Option<PathBuf>,
    /// With --save: replace files that exist
    #[arg(long, requires = "save")]
    force: bool,
}

impl SaveFlags {
    /// Saves all artifacts, if the user wants that. The files are named in the output, or beside JSON on the standard
    /// error.
    pub(crate) fn save_all(
        &self,
        connection: &AgentConnection,
        artifacts: &[Artifact],
    ) -> Result<(), CliError> {
        let Some(dir) = &self.save else { return Ok(()) };
        let folder = TargetFolder { dir, force: self.force };
        let parts = artifacts.iter().flat_map(parts_of);
        let mut text = TextOutput::default();
        folder.save(parts)?.iter().for_each(|part| part.show(&mut text));
        match connection.output.is_json() {
            true => text.0.lines().for_each(output::note),
            false => output::text(&text.0)?,
        }
        Ok(())
    }
}

/// A folder that files are written to.
struct TargetFolder<'f> {
    dir: &'f Path,
    /// Whether files that exist are replaced.
    force: bool,
}

/// A part of an artifact, and the file it was saved in.
struct SavedPart<'a> {
    artifact: &'a str,
    media_type: Option<&'a str>,
    /// The file and its size; `None` for a URL.
    file: Option<(PathBuf, usize)>,
    url: Option<&'a str>,
}

pub(super) async fn run(flags: Flags) -> Result<(), CliError> {
    let connection = flags.agent.clone().resolve()?;
    connection.record_task(&flags.task, None, None);
    connection.bounded(download(&connection, &flags)).await
}

async fn download(connection: &AgentConnection, flags: &Flags) -> Result<(), CliError> {
    let client = connection.client().await?;
    let found = client.get(&flags.task, Some(0)).await.map_err(|error| connection.failed(error))?;
    let task = &found.value;
    if let Some(missing) =
        flags.artifacts.iter().find(|id| !task.artifacts.iter().any(|artifact| artifact.id == **id))
    {
        let there: Vec<_> = task.artifacts.iter().map(|artifact| artifact.id.as_str()).collect();
        let there = if there.is_empty() { "none".to_owned() } else { there.join(", ") };
        return Err(CliError::Usage(format!("the task has no artifact {missing:?}; it has {there}")));
    }
    let wanted = task.artifacts.iter();
    let wanted = wanted
        .filter(|artifact| flags.artifacts.is_empty() || flags.artifacts.contains(&artifact.id))
        .flat_map(parts_of);
    let saved = TargetFolder { dir: &flags.dir, force: flags.force }.save(wanted)?;
    if connection.output.is_json() {
        let files: Vec<Value> = saved.iter().map(SavedPart::json).collect();
        let document = json!({ "taskId": task.id, "contextId": task.context, "files": files });
        return output::json_text(&document.to_string());
    }
    let mut text = TextOutput::default();
    let state = shown_state(task.state, task.unknown_state.as_ref());
    text.ids(&task.id, task.context.as_deref(), state);
    saved.iter().for_each(|part| part.show(&mut text));
    text.field("Files", &saved.iter().filter(|part| part.file.is_some()).count().to_string());
    output::text(&text.0)
}

impl SavedPart<'_> {
    fn show(&self, text: &mut TextOutput) {
        match (&self.file, self.url) {
            (Some((path, bytes)), _) => {
                let path = path.display();
                text.field("Saved", &format!("{path} (artifact {}, {bytes} bytes)", self.artifact));
            }
            (None, Some(url)) => text.field("Not fetched", &format!("{url} (artifact {})", self.artifact)),
            (None, None) => {}
        }
    }

    fn json(&self) -> Value {
        json!({
            "artifactId": self.artifact, "mediaType": self.media_type, "url": self.url,
            "path": self.file.as_ref().map(|(path, _)| path), "bytes": self.file.as_ref().map(|(_, bytes)| bytes),
        })
    }
}

/// The parts of an artifact, with their positions.
fn parts_of(artifact: &Artifact) -> impl Iterator<Item = (&Artifact, usize, &Part)> {
    artifact.parts.iter().enumerate().map(move |(number, part)| (artifact, number, part))
}

impl TargetFolder<'_> {
    fn save<'a>(
        &self,
        parts: impl Iterator<Item = (&'a Artifact, usize, &'a Part)>,
    ) -> Result<Vec<SavedPart<'a>>, CliError> {
        let mut taken = HashSet::new();
        parts.map(|(artifact, number, part)| self.save_part(artifact, number, part, &mut taken)).collect()
    }

    fn save_part<'a>(
        &self,
        artifact: &'a Artifact,
        number: usize,
        part: &'a Part,
        taken: &mut HashSet<String>,
    ) -> Result<SavedPart<'a>, CliError> {
        let media_type = part.media_type.as_deref();
        let mut saved = SavedPart { artifact: &artifact.id, media_type, file: None, url: None };
        let (bytes, ending) = match &part.content {
            Content::Text(text) => (text.clone().into_bytes(), "txt"),
            Content::Data(data) => (serde_json::to_vec_pretty(data).unwrap_or_default(), "json"),
            Content::Bytes(bytes) => (bytes.clone(), "bin"),
            Content::Url(url) => {
                saved.url = Some(url);
                return Ok(saved);
            }
        };
        let name = unique_name(&file_name(artifact, number, part, ending), taken);
        let path = self.dir.join(name);
        fs::create_dir_all(self.dir).map_err(|error| cannot(self.dir, &error))?;
        write_file(&path, &bytes, self.force).map_err(|error| match error.kind() {
            std::io::ErrorKind::AlreadyExists => CliError::Usage(format!(
                "{} exists: --force replaces it, or name another folder",
                path.display()
            )),
            _ => cannot(&path, &error),
        })?;
        saved.file = Some((path, bytes.len()));
        Ok(saved)
    }
}

fn cannot(path: &Path, error: &std::io::Error) -> CliError {
    CliError::Usage(format!("cannot write {}: {error}", path.display()))
}

/// Writes a file whole or not at all. An existing one, and what a link points to, stays without `force`; with it the
/// link itself is replaced.
fn write_file(path: &Path, bytes: &[u8], force: bool) -> std::io::Result<()> {
    let create = |path: &Path| OpenOptions::new().write(true).create_new(true).open(path);
    if !force {
        return create(path)?.write_all(bytes);
    }
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}.part", std::process::id()));
    let beside = PathBuf::from(beside);
    create(&beside)?.write_all(bytes)?;
    fs::rename(&beside, path).inspect_err(|_| drop(fs::remove_file(&beside)))
}

/// The name of a part's file: the agent's, if there is one that can be used, else one made of the artifact.
fn file_name(artifact: &Artifact, number: usize, part: &Part, ending: &str) -> String {
    if let Some(name) = part.filename.as_deref().and_then(safe_name) {
        return name;
    }
    let stem = artifact.name.as_deref().and_then(safe_name).or_else(|| safe_name(&artifact.id));
    let stem = stem.unwrap_or_else(|| "artifact".to_owned());
    let has_ending = artifact.parts.len() == 1 && Path::new(&stem).extension().is_some();
    match (number, has_ending) {
        (_, true) => stem,
        (0, _) => format!("{stem}.{ending}"),
        _ => format!("{stem}-{}.{ending}", number + 1),
    }
}

/// The last component of a name, without what a shell, a terminal or another system would take for something else.
fn safe_name(name: &str) -> Option<String> {
    let last = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let is_plain =
        |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | ' ' | '(' | ')' | '+' | ',');
    let name: String = last.chars().map(|c| if is_plain(c) { c } else { '_' }).collect();
    // A hidden file may be a configuration that a program reads, and a name with a dash may be a flag.
    let mut name = name.trim().trim_start_matches(['.', '-']).to_owned();
    while name.len() > MAX_NAME {
        name.pop();
    }
    (!name.is_empty()).then_some(name)
}

/// A name that no other part of this task has.
fn unique_name(name: &str, taken: &mut HashSet<String>) -> String {
    let (stem, ending) = match name.rsplit_once('.') {
        Some((stem, ending)) if !stem.is_empty() => (stem, format!(".{ending}")),
        _ => (name, String::new()),
    };
    let mut unique = name.to_owned();
    let mut number = 1;
    while !taken.insert(unique.to_lowercase()) {
        number += 1;
        unique = format!("{stem}-{number}{ending}");
    }
    unique
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stays_in_its_folder() {
        for (given, safe) in [
            ("report.pdf", Some("report.pdf")),
            ("../../.ssh/authorized_keys", Some("authorized_keys")),
            ("..", None),
            ("/", None),
            (".bashrc", Some("bashrc")),
            ("C:\\windows\\a.exe", Some("a.exe")),
            ("-rf", Some("rf")),
            ("a\u{1b}[2Jb\u{202e}txt", Some("a__2Jb_txt")),
        ] {
            assert_eq!(safe_name(given).as_deref(), safe, "{given}");
        }
        assert_eq!(safe_name(&"é".repeat(300)).map(|name| name.len()), Some(MAX_NAME));
    }

    #[test]
    fn two_parts_of_one_name_are_two_files() {
        let mut taken = HashSet::new();
        let names = ["a.txt", "A.txt", "a.txt", "b"].map(|name| unique_name(name, &mut taken));
        assert_eq!(names, ["a.txt", "A-2.txt", "a-3.txt", "b"]);
    }
}
