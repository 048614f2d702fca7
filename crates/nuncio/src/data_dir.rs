//! The server's own files in its data folder: its address and its secrets.
//!
//! Other commands on this machine find a running server through `server.json`, and its token shows that they
//! may read the folder. The file is written after the server listens and removed when it stops. After a crash
//! it stays behind, and a connection to its address fails.

use std::{
    fs::{self, DirBuilder, OpenOptions, Permissions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::Path,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use nuncio_server::signature::SigningSecret;
use serde::{Deserialize, Serialize};

use crate::StartError;

const SERVER_FILE: &str = "server.json";
const SECRET_FILE: &str = "webhook-secret";
const STATE_FILE: &str = "state-secret";
/// The folder of what users granted to agents (`nuncio agents login`).
pub const AGENT_TOKENS: &str = "agent-tokens";
/// How deep folders of agent tokens are copied.
const TOKEN_DEPTH: usize = 4;

/// The secrets that sign: the file of each in a data folder, and its name in a store that many nodes share.
pub const SIGNING_SECRETS: [(&str, &str); 2] = [(SECRET_FILE, WEBHOOK_SECRET), (STATE_FILE, STATE_SECRET)];
/// The name in a shared store of the secret that signs webhooks.
pub(crate) const WEBHOOK_SECRET: &str = "webhooks";
/// The name in a shared store of the secret that signs the state of MCP clients.
pub(crate) const STATE_SECRET: &str = "states";

/// A running server, as `server.json` describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PublishedServer {
    /// The URL for programs on this machine.
    pub url: String,
    /// The server's process id.
    pub pid: u32,
    /// The bearer token for `/admin`. A process that can read the folder may use it.
    pub admin_token: String,
    /// The SHA-256 of the server's certificate, in hexadecimal digits. A process that can read the folder trusts it,
    /// whatever name the certificate bears.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
}

impl PublishedServer {
    /// Reads `server.json`; `None` if it is missing or cannot be read.
    pub fn read(data: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(data.join(SERVER_FILE)).ok()?).ok()
    }

    /// Writes `server.json`, readable only by its owner.
    pub(crate) fn write(&self, data: &Path) -> Result<(), StartError> {
        let path = data.join(SERVER_FILE);
        let text = serde_json::to_vec(self).unwrap_or_default();
        // Renamed into place, so that a reader never sees half of it.
        let draft = data.join(format!("{SERVER_FILE}.new"));
        let written = fs::remove_file(&draft)
            .or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
            .and_then(|()| write_private(&draft, &text))
            .and_then(|()| fs::rename(&draft, &path));
        written.map_err(|source| StartError::DataDir { path, source })
    }

    /// Removes `server.json` if this process wrote it.
    pub(crate) fn remove(&self, data: &Path) {
        // The certificate may have been replaced since.
        if Self::read(data)
            .is_some_and(|found| found.pid == self.pid && found.admin_token == self.admin_token)
        {
            let _ = fs::remove_file(data.join(SERVER_FILE));
        }
    }
}

/// Creates the folder if it is missing. The content of tasks is private, so only the owner may enter it.
pub fn make(data: &Path) -> Result<(), StartError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(data);
    made.map_err(|source| StartError::DataDir { path: data.to_owned(), source })
}

/// Why the folder is not the operator's alone, if it is not: another user owns it, or other users may write
/// to it. Read access is no reason, because each secret in it is readable only by its owner.
pub(crate) fn shared_with(data: &Path) -> Option<String> {
    let found = fs::metadata(data).ok()?;
    if found.uid() != rustix::process::geteuid().as_raw() {
        return Some(format!("another user owns {}", data.display()));
    }
    let others = found.mode() & 0o022 != 0;
    others.then(|| format!("other users may write to {}", data.display()))
}

/// Warns at startup that other users may read the folder or write to it.
pub(crate) fn warn_if_open(data: &Path) {
    let Ok(found) = fs::metadata(data) else { return };
    let mode = found.mode() & 0o777;
    if mode & 0o077 != 0 {
        let data = data.display();
        tracing::warn!(
            "other users may open the data folder {data} (its mode is {mode:o}): chmod 700 {data}"
        );
    }
}

/// The secret that signs webhooks, which their receivers know too. Created at the first start.
pub(crate) fn webhook_secret(data: &Path) -> Result<SigningSecret, StartError> {
    secret(data, SECRET_FILE)
}

/// The secret that signs the state which MCP clients carry for the server. Only the server knows it. Created
/// at the first start.
pub(crate) fn state_secret(data: &Path) -> Result<SigningSecret, StartError> {
    secret(data, STATE_FILE)
}

fn secret(data: &Path, file: &str) -> Result<SigningSecret, StartError> {
    let path = data.join(file);
    let failed = |source| StartError::DataDir { path: path.clone(), source };
    match fs::read_to_string(&path) {
        Ok(text) if !text.trim().is_empty() => {
            // A restored backup may have lost its file permissions on the way.
            let _ = fs::set_permissions(&path, Permissions::from_mode(0o600));
            let damaged = |error| failed(io::Error::new(io::ErrorKind::InvalidData, error));
            return SigningSecret::parse(text.trim()).map_err(damaged);
        }
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    let secret = SigningSecret::from_random(random_bytes()?);
    // Only this server writes the folder, so an empty file is left over from a crash during the first start.
    let _ = fs::remove_file(&path);
    write_private(&path, format!("{}\n", secret.reveal()).as_bytes()).map_err(failed)?;
    Ok(secret)
}

/// Copies the secrets of one data folder into another: those that sign, and the agent tokens. Returns the names of those
/// that there are. Each is readable by its owner only, whatever its mode was; one that is there already is an error.
pub fn copy_secrets(from: &Path, to: &Path) -> io::Result<Vec<&'static str>> {
    let mut copied = vec![];
    for (file, _) in SIGNING_SECRETS {
        if copy_file(&from.join(file), &to.join(file))? {
            copied.push(file);
        }
    }
    if copy_folder(&from.join(AGENT_TOKENS), &to.join(AGENT_TOKENS), TOKEN_DEPTH)? {
        copied.push(AGENT_TOKENS);
    }
    Ok(copied)
}

/// Copies a file, if there is one.
fn copy_file(from: &Path, to: &Path) -> io::Result<bool> {
    match fs::read(from) {
        Ok(secret) => write_private(to, &secret).map(|()| true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Copies the files of a folder, if there is one. Links are left out: they could lead anywhere.
fn copy_folder(from: &Path, to: &Path, depth: usize) -> io::Result<bool> {
    let entries = match fs::read_dir(from) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    DirBuilder::new().mode(0o700).create(to)?;
    for entry in entries {
        let entry = entry?;
        let (kind, to) = (entry.file_type()?, to.join(entry.file_name()));
        if kind.is_dir() && depth > 1 {
            copy_folder(&entry.path(), &to, depth - 1)?;
        } else if kind.is_file() {
            copy_file(&entry.path(), &to)?;
        }
    }
    Ok(true)
}

/// A signing secret of a data folder, by its file; `None` if it has none.
pub fn read_secret(data: &Path, file: &str) -> io::Result<Option<String>> {
    match fs::read_to_string(data.join(file)) {
        Ok(text) => Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes a signing secret into a data folder that has none.
pub fn write_secret(data: &Path, file: &str, secret: &str) -> io::Result<()> {
    write_private(&data.join(file), format!("{secret}\n").as_bytes())
}

/// A new signing secret, as it is stored.
pub fn new_secret() -> Result<String, StartError> {
    Ok(SigningSecret::from_random(random_bytes()?).reveal())
}

/// The operator's secret for one run of a server.
pub(crate) fn admin_token() -> Result<String, StartError> {
    Ok(BASE64_STANDARD.encode(random_bytes()?))
}

pub(crate) fn random_bytes() -> Result<[u8; 32], StartError> {
    let mut bytes = [0; 32];
    let random = rustls::crypto::ring::default_provider().secure_random;
    random.fill(&mut bytes).map_err(|_| StartError::System("the system has no random numbers".into()))?;
    Ok(bytes)
}

/// Writes a new file that only its owner can read.
fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}
