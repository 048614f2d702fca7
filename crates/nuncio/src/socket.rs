//! A Unix socket that the server listens on beside its TCP address.
//!
//! The owner and the group may open its file, so that a proxy of another user can reach it through a shared
//! group. A file left over from a crash is replaced; one that a process listens on is not.

use std::{
    fs::{self, Permissions},
    io,
    os::unix::{
        fs::{FileTypeExt as _, PermissionsExt as _},
        net::UnixStream,
    },
    path::{Path, PathBuf},
};

use tokio::net::UnixListener;

use crate::StartError;

/// The file mode: the owner and the group may connect.
const MODE: u32 = 0o660;

/// A listening socket. Dropping its `SocketFile` removes the file.
pub(crate) struct Socket {
    listener: UnixListener,
    file: SocketFile,
}

/// The file of a socket, which is removed when this is dropped.
pub(crate) struct SocketFile(PathBuf);

impl Socket {
    pub(crate) fn bind(path: &Path) -> Result<Self, StartError> {
        let failed = |source| StartError::Socket { path: path.to_owned(), source };
        remove_stale(path).map_err(failed)?;
        let listener = UnixListener::bind(path).map_err(failed)?;
        let file = SocketFile(path.to_owned());
        fs::set_permissions(path, Permissions::from_mode(MODE)).map_err(failed)?;
        Ok(Self { listener, file })
    }

    pub(crate) fn split(self) -> (UnixListener, SocketFile) {
        (self.listener, self.file)
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Removes a socket that no process listens on, and nothing else.
fn remove_stale(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => match UnixStream::connect(path) {
            Ok(_) => Err(io::ErrorKind::AddrInUse.into()),
            Err(_) => fs::remove_file(path),
        },
        Ok(_) => Err(io::Error::new(io::ErrorKind::AlreadyExists, "it exists and is not a socket")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}
