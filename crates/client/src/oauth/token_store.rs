//! Storage for OAuth grants across runs of a program.

use std::{
    collections::BTreeMap,
    io::Write as _,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use async_trait::async_trait;
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use url::Url;

use super::OAuthRecord;

/// Stores OAuth grants.
#[async_trait]
pub trait TokenStore: Send + Sync + 'static {
    /// The stored record of a resource.
    async fn load(&self, resource: &Url) -> Option<OAuthRecord>;

    /// Stores a record. This cannot fail: if storing does not work, the user is asked again next time.
    async fn store(&self, resource: &Url, kept: &OAuthRecord);

    /// Stores a renewed record, unless the one that it replaces was deleted, or replaced by a login, meanwhile.
    async fn renew(&self, resource: &Url, replaced: &OAuthRecord, kept: &OAuthRecord);

    /// Deletes the record of a resource.
    async fn forget(&self, resource: &Url);
}

/// A token store in memory.
#[derive(Default)]
pub struct MemoryTokenStore(Mutex<BTreeMap<Url, OAuthRecord>>);

#[async_trait]
impl TokenStore for MemoryTokenStore {
    async fn load(&self, resource: &Url) -> Option<OAuthRecord> {
        self.0.lock().get(resource).cloned()
    }

    async fn store(&self, resource: &Url, kept: &OAuthRecord) {
        self.0.lock().insert(resource.clone(), kept.clone());
    }

    async fn renew(&self, resource: &Url, replaced: &OAuthRecord, kept: &OAuthRecord) {
        if let Some(stored) = self.0.lock().get_mut(resource).filter(|stored| **stored == *replaced) {
            *stored = kept.clone();
        }
    }

    async fn forget(&self, resource: &Url) {
        self.0.lock().remove(resource);
    }
}

/// A token store in a folder that only its owner can read, with one file per resource.
pub struct FileTokenStore {
    dir: PathBuf,
    /// Held while records are written or deleted, so that a renewal brings no deleted record back.
    writing: Mutex<()>,
}

impl FileTokenStore {
    /// A store in that folder, which is created when the first record is stored.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into(), writing: Mutex::default() }
    }

    /// Deletes all records; returns their number.
    pub fn forget_all(&self) -> std::io::Result<usize> {
        let _writing = self.writing.lock();
        let entries = match std::fs::read_dir(&self.dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(0),
            Err(error) => return Err(error),
        };
        let mut count = 0;
        for entry in entries {
            let path = entry?.path();
            count += usize::from(path.extension().is_some_and(|ending| ending == "json"));
            std::fs::remove_file(path)?;
        }
        Ok(count)
    }

    fn path(&self, resource: &Url) -> PathBuf {
        let digest = Sha256::digest(resource.as_str().as_bytes());
        let name: String = digest[..16].iter().map(|byte| format!("{byte:02x}")).collect();
        self.dir.join(format!("{name}.json"))
    }

    fn write(&self, resource: &Url, kept: &OAuthRecord) {
        if let Err(error) = self.try_write(&self.path(resource), kept) {
            tracing::warn!(%resource, %error, "the token could not be stored: a new login will be needed");
        }
    }

    fn try_write(&self, path: &Path, kept: &OAuthRecord) -> std::io::Result<()> {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)?;
        let beside = path.with_extension(format!("{}.new", std::process::id()));
        let mut file =
            std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
        file.write_all(&serde_json::to_vec(kept)?)?;
        file.sync_all()?;
        std::fs::rename(&beside, path)
    }
}

#[async_trait]
impl TokenStore for FileTokenStore {
    async fn load(&self, resource: &Url) -> Option<OAuthRecord> {
        let bytes = std::fs::read(self.path(resource)).ok()?;
        serde_json::from_slice(&bytes)
            .inspect_err(|_| tracing::warn!(%resource, "damaged token file: a new login is needed"))
            .ok()
    }

    async fn store(&self, resource: &Url, kept: &OAuthRecord) {
        let _writing = self.writing.lock();
        self.write(resource, kept);
    }

    async fn renew(&self, resource: &Url, replaced: &OAuthRecord, kept: &OAuthRecord) {
        let _writing = self.writing.lock();
        let stored = std::fs::read(self.path(resource)).ok();
        let stored = stored.and_then(|bytes| serde_json::from_slice::<OAuthRecord>(&bytes).ok());
        if stored.as_ref() == Some(replaced) {
            self.write(resource, kept);
        }
    }

    async fn forget(&self, resource: &Url) {
        let _writing = self.writing.lock();
        let _ = std::fs::remove_file(self.path(resource));
    }
}
