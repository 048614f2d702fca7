//! The `.env` files of the client commands: `A2ACLI_NAME=value`, one per line. Lines for other programs are skipped.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use super::{CLIENT_SETTINGS, SettingKind, user_folder};
use crate::config;

/// The name of the local file.
const LOCAL: &str = ".env";
/// The largest file that is read.
const MAX_BYTES: u64 = 1024 * 1024;

/// The values of the files, by variable. The local file comes before the user's.
#[derive(Debug, Clone, Default)]
pub(crate) struct ClientFiles {
    values: BTreeMap<&'static str, FileValue>,
    /// The files that were read, first the one that wins.
    pub(crate) read: Vec<PathBuf>,
    /// What was not used, and why.
    pub(crate) notes: Vec<String>,
}

/// A value of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileValue {
    pub(crate) text: String,
    pub(crate) file: PathBuf,
    /// Whether the file was found, not named.
    pub(crate) is_found: bool,
}

impl ClientFiles {
    /// Reads the local file, or the named one in its place, and the user's. A named file must exist.
    pub(crate) fn load(named: Option<&Path>) -> Result<Self, String> {
        let mut files = Self::default();
        match named {
            Some(path) => {
                files.add(path, false).map_err(|why| format!("--config {}: {why}", path.display()))?;
            }
            None => {
                if let Some(path) = local_file() {
                    match config::writable_by_others(&path) {
                        Ok(None) => files.add_or_note(&path, true),
                        Ok(Some(why)) => files.notes.push(format!("{} is not used: {why}", path.display())),
                        Err(error) => files.notes.push(format!("{} is not used: {error}", path.display())),
                    }
                }
            }
        }
        if let Some(path) = user_file().filter(|path| path.is_file()) {
            files.add_or_note(&path, false);
        }
        Ok(files)
    }

    pub(crate) fn value(&self, variable: &str) -> Option<&FileValue> {
        self.values.get(variable)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    fn add_or_note(&mut self, path: &Path, is_found: bool) {
        if let Err(why) = self.add(path, is_found) {
            self.notes.push(format!("{} is not used: {why}", path.display()));
        }
    }

    fn add(&mut self, path: &Path, is_found: bool) -> Result<(), String> {
        let about = fs::metadata(path).map_err(|error| error.to_string())?;
        if !about.is_file() || about.len() > MAX_BYTES {
            return Err(format!("it is no file of at most {MAX_BYTES} bytes"));
        }
        let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let is_private = about.permissions().mode() & 0o077 == 0;
        self.read.push(path.clone());
        for (name, value) in assignments(&text) {
            let Some(setting) = CLIENT_SETTINGS.iter().find(|setting| setting.variable == name) else {
                if name.starts_with("A2ACLI_") {
                    self.notes.push(format!("{}: {name} is no setting of a file", path.display()));
                }
                continue;
            };
            let refused = match setting.kind {
                SettingKind::Secret if !is_private => {
                    Some(format!("others can read the file: chmod 600 {}", path.display()))
                }
                SettingKind::Trusted if is_found => {
                    Some("a file that was found cannot set it: name it with --config".to_owned())
                }
                _ => None,
            };
            if let Some(why) = refused {
                self.notes.push(format!("{}: {name} is not used: {why}", path.display()));
                continue;
            }
            let value = FileValue { text: value, file: path.clone(), is_found };
            // Within a file the last line wins, as in a shell; a file before this one wins over it.
            match self.values.get_mut(setting.variable) {
                Some(before) if before.file == path => *before = value,
                Some(_) => {}
                None => drop(self.values.insert(setting.variable, value)),
            }
        }
        Ok(())
    }
}

/// The user's file.
pub(crate) fn user_file() -> Option<PathBuf> {
    Some(user_folder("XDG_CONFIG_HOME", ".config")?.join("a2a-cli").join(LOCAL))
}

/// The nearest `.env`, in this folder or above.
fn local_file() -> Option<PathBuf> {
    let here = std::env::current_dir().ok()?;
    here.ancestors().map(|folder| folder.join(LOCAL)).find(|path| path.is_file())
}

/// The assignments of a file. Quotes around a value are removed; nothing is expanded.
fn assignments(text: &str) -> impl Iterator<Item = (&str, String)> {
    text.lines().filter_map(|line| {
        let line = line.trim();
        let line = line.strip_prefix("export ").unwrap_or(line);
        let (name, value) = line.split_once('=').filter(|_| !line.starts_with('#'))?;
        let value = value.trim();
        let quoted = ['"', '\''].into_iter().find_map(|quote| value.strip_prefix(quote)?.strip_suffix(quote));
        let value = match quoted {
            Some(inner) => inner,
            None => value.split(" #").next().unwrap_or(value).trim_end(),
        };
        (!value.is_empty()).then(|| (name.trim(), value.to_owned()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assignments_are_read_as_dotenv_writes_them() {
        let text = "# A2ACLI_OUTPUT=json\nexport A2ACLI_TIMEOUT=5s # soon\nA2ACLI_BEARER='a #b'\n\nEMPTY=\nnothing\n";
        let read: Vec<_> = assignments(text).collect();
        assert_eq!(read, [("A2ACLI_TIMEOUT", "5s".to_owned()), ("A2ACLI_BEARER", "a #b".to_owned())]);
    }
}
