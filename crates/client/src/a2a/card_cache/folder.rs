//! A folder of agent cards, one file for each, for processes that live shorter than a card is valid.
//!
//! A file is replaced as a whole, only its user can read it, and its name is a digest of the card's URL and of the
//! credentials that it was fetched with. A file that is damaged, or another's, is none: the card is fetched, and replaces it.
//! A folder that cannot be written costs requests and nothing else.

use std::{
    fs::{self, DirBuilder, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use ::http::HeaderValue;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{CardCacheKey, DocumentValidator, MAX_AGE, MAX_CARD};

/// Files in the folder. With more, the oldest go.
const MAX_FILES: usize = 200;
/// Bytes of all files in the folder. With more, the oldest go.
const MAX_FOLDER: u64 = 8 * 1024 * 1024;
/// Bytes of a file that is read: a card, escaped, and what is stored with it.
const MAX_FILE: u64 = 2 * MAX_CARD as u64 + 16 * 1024;
/// The form of the files; those of another are ignored.
const FORMAT: u32 = 1;

/// A folder of agent cards.
pub(super) struct CardFolder {
    path: PathBuf,
}

/// A card that was found.
pub(super) struct StoredCard {
    pub(super) body: Arc<[u8]>,
    pub(super) validator: DocumentValidator,
    /// How long it may still be used without a request.
    pub(super) remaining: Duration,
}

/// The content of a file.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CardFile {
    format: u32,
    url: String,
    etag: Option<String>,
    last_modified: Option<String>,
    /// Milliseconds since 1970.
    stored_at: u64,
    max_age_ms: u64,
    /// The SHA-256 of the card.
    digest: String,
    card: String,
}

impl CardFolder {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// The card of that key, if it was stored and its file is whole.
    pub(super) fn load(&self, key: &CardCacheKey) -> Option<StoredCard> {
        let path = self.path.join(file_name(key));
        if fs::metadata(&path).ok()?.len() > MAX_FILE {
            return None;
        }
        let file: CardFile = serde_json::from_slice(&fs::read(&path).ok()?).ok()?;
        let is_whole = file.digest == hex(&Sha256::digest(&file.card));
        if file.format != FORMAT || file.url != key.url.as_str() || !is_whole {
            return None;
        }
        let header = |text: Option<String>| text.and_then(|text| HeaderValue::try_from(text).ok());
        let validator =
            DocumentValidator { etag: header(file.etag), last_modified: header(file.last_modified) };
        // A time in the future is one of another clock.
        let age = now().checked_sub(file.stored_at).map(Duration::from_millis);
        let max_age = Duration::from_millis(file.max_age_ms).min(MAX_AGE);
        let remaining = age.map_or(Duration::ZERO, |age| max_age.saturating_sub(age));
        Some(StoredCard { body: file.card.into_bytes().into(), validator, remaining })
    }

    /// Stores a card.
    pub(super) fn store(
        &self,
        key: &CardCacheKey,
        body: &[u8],
        validator: &DocumentValidator,
        max_age: Duration,
    ) {
        let Ok(card) = std::str::from_utf8(body) else { return };
        let text = |value: &Option<HeaderValue>| value.as_ref()?.to_str().ok().map(str::to_owned);
        let file = CardFile {
            format: FORMAT,
            url: key.url.to_string(),
            etag: text(&validator.etag),
            last_modified: text(&validator.last_modified),
            stored_at: now(),
            max_age_ms: u64::try_from(max_age.as_millis()).unwrap_or(u64::MAX),
            digest: hex(&Sha256::digest(card)),
            card: card.to_owned(),
        };
        let written = serde_json::to_vec(&file).map_err(io::Error::other);
        let written = written.and_then(|bytes| self.replace(&self.path.join(file_name(key)), &bytes));
        if let Err(error) = written.and_then(|()| self.prune()) {
            tracing::debug!(folder = %self.path.display(), %error, "a card could not be stored");
        }
    }

    /// Removes the card of that key.
    pub(super) fn remove(&self, key: &CardCacheKey) {
        let _ = fs::remove_file(self.path.join(file_name(key)));
    }

    /// Writes a file and gives it its name when it is whole.
    fn replace(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        DirBuilder::new().recursive(true).mode(0o700).create(&self.path)?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let unnamed = self.path.join(format!("{}-{number}-{}.part", std::process::id(), now()));
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unnamed)?;
        let written = file.write_all(bytes).and_then(|()| fs::rename(&unnamed, path));
        if written.is_err() {
            let _ = fs::remove_file(&unnamed);
        }
        written
    }

    /// Removes the oldest files, also those that a process left unfinished, until the folder is within its limits.
    fn prune(&self) -> io::Result<()> {
        let mut files = vec![];
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            // Another process may have removed it.
            if let Ok(about) = entry.metadata()
                && about.is_file()
            {
                files.push((about.modified()?, about.len(), entry.path()));
            }
        }
        files.sort();
        let (mut count, mut bytes) = (files.len(), files.iter().map(|(_, len, _)| len).sum::<u64>());
        for (_, len, path) in files {
            if count <= MAX_FILES && bytes <= MAX_FOLDER {
                break;
            }
            let _ = fs::remove_file(path);
            (count, bytes) = (count - 1, bytes - len);
        }
        Ok(())
    }
}

/// The file of a card: no name of it says what it is of, and none that a server could choose.
fn file_name(key: &CardCacheKey) -> String {
    let mut hash = Sha256::new();
    hash.update(key.credentials);
    hash.update(key.url.as_str());
    format!("{}.json", hex(&hash.finalize()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use url::Url;

    use super::*;

    fn key(path: &str, credentials: u8) -> CardCacheKey {
        let url = Url::parse(&format!("https://a.example/{path}")).unwrap();
        CardCacheKey { url, credentials: [credentials; 32] }
    }

    fn validator() -> DocumentValidator {
        DocumentValidator { etag: Some(HeaderValue::from_static("\"1\"")), last_modified: None }
    }

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn a_card_is_found_under_its_url_and_its_credentials_alone() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("nuncio/cards");
        CardFolder::new(path.clone()).store(&key("a", 1), b"{}", &validator(), MINUTE);
        let folder = CardFolder::new(path.clone());
        let found = folder.load(&key("a", 1)).unwrap();
        assert_eq!((&found.body[..], found.validator), (&b"{}"[..], validator()));
        assert!(found.remaining > Duration::from_secs(50) && found.remaining <= MINUTE);
        assert!(folder.load(&key("b", 1)).is_none() && folder.load(&key("a", 2)).is_none());
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let files: Vec<_> = fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(
            (mode(&path), files.iter().map(|file| mode(file)).collect::<Vec<_>>()),
            (0o700, vec![0o600])
        );
        folder.remove(&key("a", 1));
        assert!(folder.load(&key("a", 1)).is_none());
    }

    #[test]
    fn a_damaged_file_is_none_and_is_replaced() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = CardFolder::new(scratch.path().to_owned());
        let (one, path) = (key("a", 1), scratch.path().join(file_name(&key("a", 1))));
        let store = || folder.store(&one, b"{\"name\":\"a\"}", &validator(), MINUTE);
        store();
        let whole = fs::read(&path).unwrap();
        let text = String::from_utf8(whole.clone()).unwrap();
        let damaged = [
            vec![],
            whole[..whole.len() / 2].to_vec(),
            text.replace("name", "nome").into_bytes(),
            text.replace("a.example", "b.example").into_bytes(),
            text.replace("\"format\":1", "\"format\":2").into_bytes(),
            vec![b'x'; MAX_FILE as usize + 1],
        ];
        for bytes in damaged {
            fs::write(&path, &bytes).unwrap();
            assert!(folder.load(&one).is_none(), "{}", String::from_utf8_lossy(&bytes));
            store();
            assert!(folder.load(&one).is_some());
        }
        // A file of another clock has no age.
        fs::write(&path, text.replace("\"storedAt\":", "\"storedAt\":9")).unwrap();
        assert_eq!(folder.load(&one).unwrap().remaining, Duration::ZERO);
    }

    #[test]
    fn the_folder_has_its_limits() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = CardFolder::new(scratch.path().to_owned());
        let count = || fs::read_dir(scratch.path()).unwrap().count();
        for number in 0..MAX_FILES + 5 {
            folder.store(&key(&number.to_string(), 1), b"{}", &validator(), MINUTE);
        }
        assert_eq!(count(), MAX_FILES);
        let large = vec![b' '; MAX_CARD];
        for number in 0..40 {
            folder.store(&key(&format!("large{number}"), 1), &large, &validator(), MINUTE);
        }
        let bytes: u64 =
            fs::read_dir(scratch.path()).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
        assert!(bytes <= MAX_FOLDER, "{bytes}");
        assert!(folder.load(&key("large39", 1)).is_some(), "the newest stays");
    }

    #[test]
    fn a_folder_that_cannot_be_written_costs_nothing_else() {
        let scratch = tempfile::tempdir().unwrap();
        fs::write(scratch.path().join("file"), "").unwrap();
        let folder = CardFolder::new(scratch.path().join("file/cards"));
        folder.store(&key("a", 1), b"{}", &validator(), MINUTE);
        assert!(folder.load(&key("a", 1)).is_none());
    }
}
