//! A data folder for one command, which leaves nothing behind.

use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

/// A folder below that for temporary files, which only its owner may enter. Removed when this is dropped.
#[derive(Debug)]
pub(crate) struct ScratchFolder(PathBuf);

impl ScratchFolder {
    pub(crate) fn new() -> io::Result<Self> {
        let path = std::env::temp_dir().join(format!("nuncio-{}", uuid::Uuid::now_v7()));
        // Not recursive: a folder of that name that exists already belongs to another process.
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        // A folder that cannot be removed is in the way of nothing.
        let _ = fs::remove_dir_all(&self.0);
    }
}
