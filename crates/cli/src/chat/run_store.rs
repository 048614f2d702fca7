//! The store of resumable runs, which survives this process: one file for each server and caller.
//!
//! A file is written to a draft, flushed, and renamed, so that a kill leaves the old or the new version. The
//! process holds a lock on it for its lifetime. Two processes that talk to one server as one caller have a
//! file each, and a new process takes over the files that no process has locked. The file contains no
//! credentials, and the caller only as a digest.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use nuncio_client::peer::CallHandle;
use nuncio_engine::Message;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// The format version written today.
const VERSION: u32 = 1;
/// The most processes that may talk to one server as one caller and be resumed.
const MOST_FILES: usize = 64;

/// A run that can be resumed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct SavedRun {
    /// The capability that was called.
    pub(super) offer: String,
    /// The message it was called with, whose id is the run's id.
    pub(super) input: Message,
    /// The server's id of the conversation that it continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) context: Option<String>,
    /// The handle to resume by, once the server has given one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) handle: Option<CallHandle>,
    /// When it began, in milliseconds since 1970.
    pub(super) begun: i64,
    /// The run's trace, as `traceparent`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) trace: Option<String>,
    /// The text whose last line is incomplete and was not shown yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) unfinished: Option<UnfinishedText>,
}

/// The part of a streamed text that was not shown yet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct UnfinishedText {
    pub(super) artifact: String,
    /// The beginning of its next line.
    pub(super) rest: String,
}

#[derive(Serialize, Deserialize)]
struct RunStoreFile {
    version: u32,
    server: String,
    runs: Vec<SavedRun>,
}

/// The saved runs of one server and caller.
#[derive(Debug)]
pub(super) struct RunStore {
    path: PathBuf,
    server: String,
    runs: Vec<SavedRun>,
    /// Whether memory is newer than the file.
    stale: bool,
    /// The file lock, held until the process ends. `None`: nothing is stored.
    lock: Option<File>,
}

/// Why runs cannot be saved.
#[derive(Debug, thiserror::Error)]
pub(super) enum RunStoreError {
    /// An I/O error.
    #[error("{path}: {source}", path = .path.display())]
    System { path: PathBuf, source: io::Error },
    /// All files are locked by other processes.
    #[error("{MOST_FILES} other processes already talk to this server as this caller")]
    Full,
}

impl RunStore {
    /// Opens the store of a server, and takes over files that other processes left. Returns remarks about
    /// unusable files.
    pub(super) fn open(dir: &Path, server: &str, caller: &str) -> Result<(Self, Vec<String>), RunStoreError> {
        private_folder(dir).map_err(|source| RunStoreError::System { path: dir.to_owned(), source })?;
        let digest = Sha256::digest(format!("{server}\n{caller}"));
        let name = digest[..12].iter().fold(String::new(), |name, byte| format!("{name}{byte:02x}"));
        let mut own: Option<Self> = None;
        let mut remarks = vec![];
        for number in 0..MOST_FILES {
            let path = dir.join(format!("{name}-{number}.json"));
            let failed = |source| RunStoreError::System { path: path.clone(), source };
            if own.is_some() && !path.exists() {
                continue;
            }
            let Some(lock) = lock(&path.with_extension("lock")).map_err(failed)? else { continue };
            let runs = load(&path, &mut remarks).map_err(failed)?;
            match &mut own {
                None => {
                    own =
                        Some(Self { path, server: server.to_owned(), runs, stale: false, lock: Some(lock) });
                }
                Some(own) => {
                    own.take_over(runs);
                    own.save().map_err(failed)?;
                    // After a crash at this point a run is in both files: duplicates are recognised by id.
                    fs::remove_file(&path).or_else(absent).map_err(failed)?;
                }
            }
        }
        own.map(|own| (own, remarks)).ok_or(RunStoreError::Full)
    }

    /// A store without a file: its runs end with the process, as far as this program knows.
    pub(super) fn in_memory(server: &str) -> Self {
        Self { path: PathBuf::new(), server: server.to_owned(), runs: vec![], stale: false, lock: None }
    }

    fn take_over(&mut self, runs: Vec<SavedRun>) {
        for run in runs {
            if self.runs.iter().all(|own| own.input.id != run.input.id) {
                self.runs.push(run);
                self.stale = true;
            }
        }
    }

    /// Whether the runs survive this process.
    pub(super) fn is_stored(&self) -> bool {
        self.lock.is_some()
    }

    /// The runs that can be resumed.
    pub(super) fn runs(&self) -> &[SavedRun] {
        &self.runs
    }

    /// Saves a run; returns when it is on disk.
    pub(super) fn add(&mut self, run: SavedRun) -> io::Result<()> {
        self.runs.retain(|kept| kept.input.id != run.input.id);
        self.runs.push(run);
        self.stale = true;
        self.save()
    }

    /// Sets the handle of a run. On disk with the next [`Self::save`].
    pub(super) fn advance(&mut self, run: &str, handle: &CallHandle) {
        if let Some(kept) = self.runs.iter_mut().find(|kept| kept.input.id == run)
            && kept.handle.as_ref() != Some(handle)
        {
            kept.handle = Some(handle.clone());
            self.stale = true;
        }
    }

    /// Sets the text of a run that was not shown yet. On disk with the next [`Self::save`].
    pub(super) fn set_unfinished(&mut self, run: &str, unfinished: Option<UnfinishedText>) {
        if let Some(kept) = self.runs.iter_mut().find(|kept| kept.input.id == run)
            && kept.unfinished != unfinished
        {
            kept.unfinished = unfinished;
            self.stale = true;
        }
    }

    /// Removes a run.
    pub(super) fn forget(&mut self, run: &str) {
        let before = self.runs.len();
        self.runs.retain(|kept| kept.input.id != run);
        self.stale |= self.runs.len() != before;
    }

    /// Removes all runs and returns how many there were.
    pub(super) fn clear(&mut self) -> io::Result<usize> {
        let count = self.runs.len();
        self.runs.clear();
        self.stale |= count > 0;
        self.save().map(|()| count)
    }

    /// Writes changes to disk. A store without runs has no file.
    pub(super) fn save(&mut self) -> io::Result<()> {
        if !self.stale || self.lock.is_none() {
            return Ok(());
        }
        if self.runs.is_empty() {
            fs::remove_file(&self.path).or_else(absent)?;
        } else {
            let contents =
                RunStoreFile { version: VERSION, server: self.server.clone(), runs: self.runs.clone() };
            let draft = self.path.with_extension("new");
            fs::remove_file(&draft).or_else(absent)?;
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
            file.write_all(&serde_json::to_vec(&contents).map_err(io::Error::other)?)?;
            file.sync_all()?;
            fs::rename(&draft, &self.path)?;
        }
        if let Some(dir) = self.path.parent() {
            File::open(dir)?.sync_all()?;
        }
        self.stale = false;
        Ok(())
    }
}

/// Creates a folder that only its owner can enter.
pub(super) fn private_folder(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    if fs::metadata(dir)?.permissions().mode() & 0o077 != 0 {
        fs::set_permissions(dir, Permissions::from_mode(0o700))?;
    }
    Ok(())
}

/// Takes a lock. `None`: another process has it.
fn lock(path: &Path) -> io::Result<Option<File>> {
    let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Reads a file. One that cannot be parsed is renamed and its runs are lost; other files are not affected.
fn load(path: &Path, remarks: &mut Vec<String>) -> io::Result<Vec<SavedRun>> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
        Err(error) => return Err(error),
    };
    let why = match serde_json::from_slice::<RunStoreFile>(&bytes) {
        Ok(contents) if contents.version == VERSION => return Ok(contents.runs),
        Ok(contents) => format!("it has the version {}, this program reads {VERSION}", contents.version),
        Err(error) => error.to_string(),
    };
    let aside = path.with_extension("damaged");
    fs::rename(path, &aside)?;
    remarks.push(format!(
        "{} cannot be read ({why}): it is set aside as {}, and the runs in it are not taken up again",
        path.display(),
        aside.display()
    ));
    Ok(vec![])
}

fn absent(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

#[cfg(test)]
mod tests {
    use nuncio_engine::Role;
    use serde_json::json;

    use super::*;

    fn kept(id: &str) -> SavedRun {
        SavedRun {
            offer: "travel_agent".into(),
            input: Message::text(id, Role::User, ""),
            context: None,
            handle: None,
            begun: 0,
            trace: None,
            unfinished: None,
        }
    }

    fn handle(at: u64) -> CallHandle {
        CallHandle { offer: "travel_agent".into(), task: Some("t".into()), state: json!({ "cursor": at }) }
    }

    fn open(dir: &Path) -> RunStore {
        let (run_store, remarks) = RunStore::open(dir, "http://a", "me").unwrap();
        assert!(remarks.is_empty(), "{remarks:?}");
        run_store
    }

    #[test]
    fn what_was_kept_is_there_at_the_next_start() {
        let dir = tempfile::tempdir().unwrap();
        let mut run_store = open(dir.path());
        run_store.add(kept("1")).unwrap();
        run_store.add(kept("2")).unwrap();
        run_store.advance("2", &handle(7));
        let unfinished = Some(UnfinishedText { artifact: "report".into(), rest: "half a li".into() });
        run_store.set_unfinished("2", unfinished.clone());
        run_store.forget("1");
        run_store.save().unwrap();
        drop(run_store);
        let run_store = open(dir.path());
        assert_eq!(run_store.runs(), [SavedRun { handle: Some(handle(7)), unfinished, ..kept("2") }]);
    }

    #[test]
    fn others_neither_see_nor_find_it() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state/chat");
        let mut run_store = open(&state);
        run_store.add(kept("1")).unwrap();
        drop(run_store);
        assert!(RunStore::open(&state, "http://a", "you").unwrap().0.runs().is_empty());
        assert!(RunStore::open(&state, "http://b", "me").unwrap().0.runs().is_empty());
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&state), 0o700);
        for entry in fs::read_dir(&state).unwrap() {
            assert_eq!(mode(&entry.unwrap().path()), 0o600);
        }
    }

    #[test]
    fn two_at_once_share_nothing_and_the_next_takes_over() {
        let dir = tempfile::tempdir().unwrap();
        let mut one = open(dir.path());
        one.add(kept("1")).unwrap();
        let mut two = open(dir.path());
        assert!(two.runs().is_empty(), "the first still has it");
        two.add(kept("2")).unwrap();
        drop((one, two));
        let mut ids: Vec<String> = open(dir.path()).runs().iter().map(|run| run.input.id.clone()).collect();
        ids.sort();
        assert_eq!(ids, ["1", "2"]);
        assert_eq!(open(dir.path()).runs().len(), 2, "and it is in one file now");
    }

    #[test]
    fn a_damaged_file_is_set_aside() {
        let dir = tempfile::tempdir().unwrap();
        let mut run_store = open(dir.path());
        run_store.add(kept("1")).unwrap();
        let path = run_store.path.clone();
        drop(run_store);
        fs::write(&path, b"{ half of").unwrap();
        let (mut run_store, remarks) = RunStore::open(dir.path(), "http://a", "me").unwrap();
        assert!(run_store.runs().is_empty() && remarks[0].contains("set aside"), "{remarks:?}");
        assert!(path.with_extension("damaged").exists());
        run_store.add(kept("2")).unwrap();
        drop(run_store);
        assert_eq!(open(dir.path()).runs().len(), 1);
    }

    #[test]
    fn nothing_is_left_of_what_was_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let mut run_store = open(dir.path());
        run_store.add(kept("1")).unwrap();
        assert_eq!(run_store.clear().unwrap(), 1);
        assert!(!run_store.path.exists());
        run_store.advance("1", &handle(1));
        run_store.save().unwrap();
        assert!(!run_store.path.exists(), "a run that goes on is not kept again");
    }
}
