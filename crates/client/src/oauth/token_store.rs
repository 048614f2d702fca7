//! What was granted, from one run of a program to the next.

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

/// Keeps what was granted.
#[async_trait]
pub trait TokenStore: Send + Sync + 'static {
    /// What is known about a resource.
    async fn load(&self, resource: &Url) -> Option<OAuthRecord>;

    /// Keeps it. What cannot be kept is asked for again next time, so this does not fail.
    async fn store(&self, resource: &Url, kept: &OAuthRecord);

    /// Forgets it.
    async fn forget(&self, resource: &Url);
}

/// Keeps it for as long as the process lives.
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

    async fn forget(&self, resource: &Url) {
        self.0.lock().remove(resource);
    }
}

/// Keeps it in a folder that only its owner can read, a file for each resource.
pub struct FileTokenStore {
    dir: PathBuf,
}

impl FileTokenStore {
    /// In that folder, which is made when there is something to keep.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    /// Forgets everything; of how many resources that was.
    pub fn forget_all(&self) -> std::io::Result<usize> {
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

    fn write(&self, path: &Path, kept: &OAuthRecord) -> std::io::Result<()> {
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
            .inspect_err(|_| tracing::warn!(%resource, "what was kept of its tokens is damaged: a person will be asked"))
            .ok()
    }

    async fn store(&self, resource: &Url, kept: &OAuthRecord) {
        if let Err(error) = self.write(&self.path(resource), kept) {
            tracing::warn!(%resource, %error, "its token cannot be kept: a person will be asked again");
        }
    }

    async fn forget(&self, resource: &Url) {
        let _ = std::fs::remove_file(self.path(resource));
    }
}
