//! The lock file of a data folder: one process per folder. SQLite itself would let two servers share a
//! database, but the counters that the writer keeps in memory, and the rule that all earlier nodes are dead at
//! open, would break.

use std::{
    fs::{DirBuilder, File, OpenOptions},
    io::{Read, Seek, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::Path,
};

use rustix::fs::{FlockOperation, flock};

use super::SqliteOpenError;

/// Holds the lock until it is dropped, or until the process ends in any way.
#[derive(Debug)]
pub(super) struct FolderLock {
    file: File,
}

impl FolderLock {
    /// Creates the folder if it is missing (for its owner only) and locks it.
    pub(super) fn take(dir: &Path) -> Result<Self, SqliteOpenError> {
        let failed = |source| SqliteOpenError::Folder { dir: dir.to_owned(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed)?;
        let mut options = OpenOptions::new();
        // Not truncated: until the lock is ours, the content belongs to the holder.
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut file = options.open(dir.join("lock")).map_err(failed)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut holder = String::new();
                file.read_to_string(&mut holder).map_err(failed)?;
                let holder = holder.trim().parse().ok();
                return Err(SqliteOpenError::Locked { dir: dir.to_owned(), holder });
            }
            Err(errno) => return Err(failed(errno.into())),
        }
        file.set_len(0).map_err(failed)?;
        file.rewind().map_err(failed)?;
        writeln!(file, "{}", std::process::id()).map_err(failed)?;
        Ok(Self { file })
    }
}

impl Drop for FolderLock {
    /// Unlocks instead of only closing: a child process that has been forked and not yet executed still has a
    /// copy of the descriptor, and the lock would last as long as that copy.
    fn drop(&mut self) {
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_of_the_descriptor_in_a_forked_child_does_not_keep_the_folder_locked() {
        let folder = tempfile::tempdir().unwrap();
        let lock = FolderLock::take(folder.path()).unwrap();
        let inherited = lock.file.try_clone().unwrap();
        assert!(matches!(FolderLock::take(folder.path()), Err(SqliteOpenError::Locked { .. })));
        drop(lock);
        FolderLock::take(folder.path()).expect("the folder is free as soon as its holder is dropped");
        drop(inherited);
    }
}
