//! Trust in a configuration file that was found, not named: the `nuncio.toml` of the current folder may have
//! come with a cloned repository.
//!
//! A file that other users can write is refused. A file that starts programs is used by `nuncio mcp` only if
//! it is named (`--config`) or was trusted with its current content: the path and digest are stored in the
//! user's state folder.

use std::{
    fs,
    io::{self, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use sha2::{Digest as _, Sha256};

/// Whether users other than this one and root can write or replace a file; returns how.
pub(crate) fn writable_by_others(path: &Path) -> io::Result<Option<String>> {
    let own = rustix::process::geteuid().as_raw();
    // Where users have a private group (umask 002), what the group can write only the user can write.
    let own_group = Some(rustix::process::getegid().as_raw()).filter(|group| *group == own);
    let path = fs::canonicalize(path)?;
    let folder = path.parent().unwrap_or(Path::new("/"));
    for (place, is_folder) in [(path.as_path(), false), (folder, true)] {
        let about = fs::metadata(place)?;
        let mode = about.mode();
        // In a sticky folder, such as /tmp, users cannot replace each other's files.
        let is_sticky = is_folder && mode & 0o1000 != 0;
        if about.uid() != own && about.uid() != 0 {
            return Ok(Some(format!("{} belongs to another user ({})", place.display(), about.uid())));
        }
        let by_group = mode & 0o020 != 0 && Some(about.gid()) != own_group;
        if (by_group || mode & 0o002 != 0) && !is_sticky {
            return Ok(Some(format!(
                "{} can be written by others (mode {:o})",
                place.display(),
                mode & 0o777
            )));
        }
    }
    Ok(None)
}

/// The list of trusted files, one per line: digest and path.
fn list() -> io::Result<PathBuf> {
    let state = std::env::var_os("XDG_STATE_HOME").filter(|dir| !dir.is_empty()).map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/state"));
    let state =
        state.or_else(home).ok_or_else(|| io::Error::other("neither XDG_STATE_HOME nor HOME is set"))?;
    Ok(state.join("nuncio/trusted"))
}

/// A line of the list: the digest of the current content, and the path.
fn entry(path: &Path) -> io::Result<String> {
    let path = fs::canonicalize(path)?;
    let digest: String = Sha256::digest(fs::read(&path)?).iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("{digest} {}", path.display()))
}

/// Whether a file is trusted with its current content.
pub(crate) fn is_trusted(path: &Path) -> bool {
    let (Ok(list), Ok(entry)) = (list(), entry(path)) else { return false };
    fs::read_to_string(list).is_ok_and(|trusted| trusted.lines().any(|line| line == entry))
}

/// Trusts a file with its current content.
pub(crate) fn trust(path: &Path) -> io::Result<()> {
    let (list, entry) = (list()?, entry(path)?);
    if is_trusted(path) {
        return Ok(());
    }
    if let Some(folder) = list.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut file = fs::OpenOptions::new().create(true).append(true).mode(0o600).open(list)?;
    writeln!(file, "{entry}")?;
    file.sync_all()
}
