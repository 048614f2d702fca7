//! The server's own tokens: `nun_<id>_<secret>`.
//!
//! Of a secret only its SHA-256 is kept; it has 256 random bits, so that nothing slower is needed. Each token is a
//! record of the store, so that all nodes know it. What was read is believed for a few seconds: a token that was
//! taken back is refused everywhere after that time, and at once where it was done.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use nuncio_engine::{
    Caller, Error, Grants, MeteredResource, StorageMeter,
    access::HOME_TENANT,
    admin::Eraser,
    clock::{Clock, Timestamp},
    knowledge::{ExpectedVersion, RecordError, RecordKey, RecordQuery, RecordWrite},
    store::{Store, StoreError},
};
use nuncio_server::{
    AuthError,
    auth::{NewToken, TokenAdminError, constant_time_eq},
};
use nuncio_wire::timestamp;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::watch;

use super::is_name;
use crate::data_dir::random_bytes;

/// How they begin, so that they are known where they turn up.
pub(super) const PREFIX: &str = "nun_";

const KIND: &str = "token";
/// When they were last used, apart from the tokens themselves: nobody waits for it.
const USED: &str = "token.used";
/// Characters of an id: digits and letters that are not taken for each other.
const ALPHABET: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
const ID_LENGTH: usize = 12;
/// How long what was read of a token is believed.
const BELIEVED: Duration = Duration::from_secs(5);
/// Tokens that are remembered.
const REMEMBERED: usize = 10_000;
/// How long a token is good, unless it is said otherwise.
const USUAL: Duration = Duration::from_secs(90 * 24 * 60 * 60);
/// How long a token is still listed when it is not good any more.
const LISTED: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// How often it is written down which tokens were used.
const NOTED: Duration = Duration::from_secs(60);
/// Tokens that are read at one time.
const PAGE: usize = 1_000;
/// What a token allows, unless it is said otherwise.
const EVERYTHING: &str = "*:*";
/// Names that mean somebody already.
const TAKEN: [&str; 2] = ["local", "anonymous"];

/// A token as it is kept. Fields are only ever added.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredToken {
    /// SHA-256 of the secret.
    digest: String,
    name: String,
    tenant: String,
    scopes: Vec<String>,
    created_at: Timestamp,
    created_by: String,
    expires_at: Option<Timestamp>,
    #[serde(default)]
    revoked_at: Option<Timestamp>,
    #[serde(default)]
    revoked_by: Option<String>,
}

impl StoredToken {
    fn owner(&self) -> String {
        match self.tenant == HOME_TENANT {
            true => self.name.clone(),
            false => format!("{}/{}", self.tenant, self.name),
        }
    }

    fn state(&self, now: Timestamp) -> &'static str {
        match (self.revoked_at, self.expires_at) {
            (Some(_), _) => "revoked",
            (None, Some(expires)) if expires <= now => "expired",
            _ => "active",
        }
    }

    fn show(&self, id: &str, now: Timestamp, used: Option<Timestamp>) -> Value {
        json!({
            "id": id,
            "name": self.name,
            "tenant": self.tenant,
            "scopes": self.scopes,
            "state": self.state(now),
            "createdAt": timestamp::format(self.created_at),
            "createdBy": self.created_by,
            "expiresAt": self.expires_at.map(timestamp::format),
            "revokedAt": self.revoked_at.map(timestamp::format),
            "revokedBy": self.revoked_by,
            "lastUsedAt": used.map(timestamp::format),
        })
    }
}

/// A token as it is remembered.
#[derive(Clone)]
struct CachedToken {
    stored: Arc<StoredToken>,
    caller: Caller,
    read_at: Timestamp,
}

/// The tokens of a store.
pub struct ServerTokens {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    known: Mutex<HashMap<String, CachedToken>>,
    used: Mutex<HashMap<String, Timestamp>>,
}

impl ServerTokens {
    /// The tokens of that store.
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Self {
        Self { store, clock, known: Mutex::default(), used: Mutex::default() }
    }

    /// Makes a token, of no more rights than those of whoever asks. The answer is the only place that shows it.
    pub async fn create(&self, by: &Caller, wish: NewToken) -> Result<Value, TokenAdminError> {
        self.create_as(&draw_id()?, by, wish).await
    }

    /// The same, under an id that [`draw_id`] made.
    pub(super) async fn create_as(
        &self,
        id: &str,
        by: &Caller,
        wish: NewToken,
    ) -> Result<Value, TokenAdminError> {
        let invalid = |why: String| Err(TokenAdminError::Invalid(why));
        let tenant = wish.tenant.unwrap_or_else(|| by.tenant().to_owned());
        for (field, name) in [("name", &wish.name), ("tenant", &tenant)] {
            if !is_name(name) {
                return invalid(format!(
                    "{field}: {name:?} is no name: write 1 to 64 letters, digits, '.', '_', '-' or '@'"
                ));
            }
        }
        if tenant == HOME_TENANT && TAKEN.contains(&wish.name.as_str()) {
            return invalid(format!("name: {:?} is the server's own: choose another one", wish.name));
        }
        if by.tenant() != HOME_TENANT && tenant != by.tenant() {
            return invalid(format!("tenant: a token of {:?} is made there, not by {}", tenant, by.owner()));
        }
        let scopes = if wish.scopes.is_empty() { vec![EVERYTHING.to_owned()] } else { wish.scopes };
        let grants = match Grants::parse(&scopes.join(" ")) {
            Ok(grants) => grants,
            Err(error) => return invalid(format!("scopes: {error}")),
        };
        if !by.grants().cover(&grants) {
            return invalid(format!("scopes: {grants} is more than {} may do itself", by.owner()));
        }
        let now = self.clock.now();
        let expires_at = match wish.expires_in {
            Some(0) => None,
            Some(seconds) => Some(now.after(Duration::from_secs(seconds))),
            None => Some(now.after(USUAL)),
        };
        let secret = BASE64_URL_SAFE_NO_PAD.encode(draw()?);
        let kept = StoredToken {
            digest: digest(&secret),
            name: wish.name,
            tenant,
            scopes: grants.to_string().split(' ').map(str::to_owned).collect(),
            created_at: now,
            created_by: by.owner().to_owned(),
            expires_at,
            revoked_at: None,
            revoked_by: None,
        };
        self.write(id, &kept, ExpectedVersion::Absent).await.map_err(failed)?;
        let mut shown = kept.show(id, now, None);
        shown["token"] = format!("{PREFIX}{id}_{secret}").into();
        Ok(shown)
    }

    /// All tokens that the caller may know of, by their ids.
    pub async fn list(&self, by: &Caller) -> Result<Value, TokenAdminError> {
        let now = self.clock.now();
        let used: HashMap<String, Timestamp> = self
            .records(USED, now)
            .await?
            .into_iter()
            .filter_map(|(id, body)| Some((id, serde_json::from_slice(&body).ok()?)))
            .collect();
        let recent = self.used.lock().clone();
        let mut tokens = vec![];
        for (id, body) in self.records(KIND, now).await? {
            let kept = read(&id, &body)?;
            if by.tenant() == HOME_TENANT || by.tenant() == kept.tenant {
                let used = used.get(&id).max(recent.get(&id)).copied();
                tokens.push(kept.show(&id, now, used));
            }
        }
        Ok(json!({ "tokens": tokens }))
    }

    /// Takes a token back; from now on here, and everywhere within seconds.
    pub async fn revoke(&self, by: &Caller, id: &str) -> Result<Value, TokenAdminError> {
        let unknown = || TokenAdminError::NoSuchToken(id.to_owned());
        loop {
            let now = self.clock.now();
            let found = self.store.knowledge().record(&key(KIND, id), now).await.map_err(Error::from)?;
            let record = found.ok_or_else(unknown)?;
            let mut kept = read(id, &record.body)?;
            if by.tenant() != HOME_TENANT && by.tenant() != kept.tenant {
                return Err(unknown());
            }
            if kept.revoked_at.is_none() {
                kept.revoked_at = Some(now);
                kept.revoked_by = Some(by.owner().to_owned());
                match self.write(id, &kept, ExpectedVersion::Version(record.version)).await {
                    Ok(()) => {}
                    Err(RecordError::Moved { .. }) => continue,
                    Err(error) => return Err(failed(error)),
                }
            }
            self.known.lock().remove(id);
            return Ok(kept.show(id, now, self.used.lock().get(id).copied()));
        }
    }

    /// Whose token it is.
    pub(super) async fn owner(&self, id: &str) -> Result<String, TokenAdminError> {
        let found =
            self.store.knowledge().record(&key(KIND, id), self.clock.now()).await.map_err(Error::from)?;
        let record = found.ok_or_else(|| TokenAdminError::NoSuchToken(id.to_owned()))?;
        Ok(read(id, &record.body)?.owner())
    }

    /// The caller that a token stands for.
    pub async fn verify(&self, shown: &str) -> Result<Caller, AuthError> {
        let refused = |why: &str| Err(AuthError::Invalid(why.to_owned()));
        let parts = shown.strip_prefix(PREFIX).and_then(|rest| rest.split_once('_'));
        let Some((id, secret)) = parts.filter(|(id, _)| is_id(id)) else {
            return refused("it is no token of this server");
        };
        let shown_digest = digest(secret);
        let now = self.clock.now();
        let Some(known) = self.load_token(id, now).await? else {
            return refused("there is no such token");
        };
        if !constant_time_eq(shown_digest.as_bytes(), known.stored.digest.as_bytes()) {
            return Err(AuthError::Invalid(format!("the secret is not that of token {id}")));
        }
        if known.stored.state(now) != "active" {
            return Err(AuthError::Invalid(format!("token {id} is {}", known.stored.state(now))));
        }
        let mut used = self.used.lock();
        match used.get_mut(id) {
            Some(at) => *at = now,
            None => drop(used.insert(id.to_owned(), now)),
        }
        Ok(known.caller)
    }

    async fn load_token(&self, id: &str, now: Timestamp) -> Result<Option<CachedToken>, AuthError> {
        let fresh = |known: &CachedToken| known.read_at <= now && now < known.read_at.after(BELIEVED);
        if let Some(known) = self.known.lock().get(id).filter(|known| fresh(known)) {
            return Ok(Some(known.clone()));
        }
        let unavailable = |why: String| AuthError::Unavailable(why);
        let found = self.store.knowledge().record(&key(KIND, id), now).await;
        let found = found.map_err(|error| unavailable(error.to_string()))?;
        let Some(record) = found else {
            self.known.lock().remove(id);
            return Ok(None);
        };
        let kept = read(id, &record.body).map_err(|error| unavailable(error.to_string()))?;
        let grants = Grants::parse(&kept.scopes.join(" ")).map_err(|error| unavailable(error.to_string()))?;
        let caller = Caller::named(kept.owner()).limited_to(grants).with_credential(id);
        let known = CachedToken { stored: Arc::new(kept), caller, read_at: now };
        let mut all = self.known.lock();
        if all.len() >= REMEMBERED {
            all.retain(|_, known| fresh(known));
            if all.len() >= REMEMBERED {
                all.clear();
            }
        }
        all.insert(id.to_owned(), known.clone());
        Ok(Some(known))
    }

    async fn write(
        &self,
        id: &str,
        kept: &StoredToken,
        expected: ExpectedVersion,
    ) -> Result<(), RecordError> {
        let ends = [kept.revoked_at, kept.expires_at].into_iter().flatten().min();
        let write = RecordWrite {
            key: key(KIND, id),
            body: Some(serde_json::to_vec(kept).unwrap_or_default().into()),
            expected,
            expires_at: ends.map(|ends| ends.after(LISTED)),
            now: self.clock.now(),
        };
        self.store.knowledge().write_records(vec![write]).await.map(drop)
    }

    async fn records(&self, kind: &str, now: Timestamp) -> Result<Vec<(String, Vec<u8>)>, TokenAdminError> {
        let mut all = vec![];
        let mut after = String::new();
        loop {
            let query = RecordQuery {
                tenant: Some(HOME_TENANT.to_owned()),
                kind: kind.to_owned(),
                prefix: String::new(),
                after,
                limit: PAGE,
                now,
            };
            let page = self.store.knowledge().records(&query).await.map_err(Error::from)?;
            let more = page.len() == PAGE;
            all.extend(page.into_iter().map(|record| (record.id, record.body.to_vec())));
            match all.last().filter(|_| more) {
                Some((last, _)) => after = last.clone(),
                None => return Ok(all),
            }
        }
    }

    /// How the audit names a token that is made: by its id, as where it is revoked, and not by the name of a caller, which
    /// would outlive the erasure of the caller's tenant in a line of another one.
    pub fn created_address(id: &str, tenant: &str) -> String {
        match is_name(tenant) {
            true => format!("admin://tokens/{id}?tenant={tenant}"),
            false => format!("admin://tokens/{id}"),
        }
    }

    async fn delete(&self, keys: &[RecordKey]) -> Result<(), Error> {
        let now = self.clock.now();
        let delete = |key: &RecordKey| RecordWrite {
            key: key.clone(),
            body: None,
            expected: ExpectedVersion::Any,
            expires_at: None,
            now,
        };
        match self.store.knowledge().write_records(keys.iter().map(delete).collect()).await {
            Ok(_) | Err(RecordError::Moved { .. }) => Ok(()),
            Err(RecordError::Store(error)) => Err(error.into()),
        }
    }

    /// Deletes when tokens were last used that there are no more: a node may have noted it after the token went.
    async fn delete_orphaned_uses(&self) -> Result<(), Error> {
        let now = self.clock.now();
        let used = self.records(USED, now).await.map_err(engine_error)?;
        let there = self.records(KIND, now).await.map_err(engine_error)?;
        let there: HashSet<String> = there.into_iter().map(|(id, _)| id).collect();
        let orphans = used.into_iter().filter(|(id, _)| !there.contains(id));
        let orphans: Vec<RecordKey> = orphans.map(|(id, _)| key(USED, &id)).collect();
        for chunk in orphans.chunks(PAGE) {
            self.delete(chunk).await?;
        }
        Ok(())
    }

    /// Writes down when tokens were last used.
    async fn record_uses(&self) -> Result<(), StoreError> {
        let now = self.clock.now();
        let used: Vec<(String, Timestamp)> = self.used.lock().drain().collect();
        for chunk in used.chunks(PAGE) {
            let writes = chunk.iter().map(|(id, at)| RecordWrite {
                key: key(USED, id),
                body: Some(serde_json::to_vec(at).unwrap_or_default().into()),
                expected: ExpectedVersion::Any,
                expires_at: Some(now.after(USUAL + LISTED)),
                now,
            });
            match self.store.knowledge().write_records(writes.collect()).await {
                Ok(_) | Err(RecordError::Moved { .. }) => {}
                Err(RecordError::Store(error)) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Tokens are records of the home tenant: those of a tenant that is erased go with it.
#[async_trait]
impl Eraser for ServerTokens {
    async fn erase(&self, tenant: &str) -> Result<u64, Error> {
        let now = self.clock.now();
        let mut erased = 0;
        for (id, body) in self.records(KIND, now).await.map_err(engine_error)? {
            // One that cannot be read names nobody.
            if !serde_json::from_slice::<StoredToken>(&body).is_ok_and(|kept| kept.tenant == tenant) {
                continue;
            }
            self.used.lock().remove(&id);
            self.delete(&[key(KIND, &id), key(USED, &id)]).await?;
            self.known.lock().remove(&id);
            erased += 1;
        }
        self.delete_orphaned_uses().await?;
        Ok(erased)
    }
}

/// Tokens of a tenant, those that are listed though they are not good any more included.
#[async_trait]
impl StorageMeter for ServerTokens {
    fn resource(&self) -> MeteredResource {
        MeteredResource::Tokens
    }

    async fn measure(&self) -> Result<Vec<(String, u64)>, Error> {
        let mut counts: HashMap<String, u64> = HashMap::new();
        for (id, body) in self.records(KIND, self.clock.now()).await.map_err(engine_error)? {
            let kept = read(&id, &body).map_err(engine_error)?;
            *counts.entry(kept.tenant).or_default() += 1;
        }
        Ok(counts.into_iter().collect())
    }
}

/// Writes down now and then which tokens were used. What a crash loses is not missed.
pub(super) async fn record_uses_periodically(tokens: Arc<ServerTokens>, mut closing: watch::Receiver<bool>) {
    loop {
        let ends = tokio::select! {
            () = tokio::time::sleep(NOTED) => false,
            _ = closing.wait_for(|closing| *closing) => true,
        };
        if let Err(error) = tokens.record_uses().await {
            tracing::debug!(%error, "it could not be written which tokens were used");
        }
        if ends {
            return;
        }
    }
}

fn key(kind: &str, id: &str) -> RecordKey {
    RecordKey::new(HOME_TENANT, kind, id)
}

fn engine_error(error: TokenAdminError) -> Error {
    match error {
        TokenAdminError::Engine(error) => error,
        other => Error::Internal(other.to_string()),
    }
}

fn read(id: &str, body: &[u8]) -> Result<StoredToken, TokenAdminError> {
    let damaged = |error| Error::Internal(format!("token {id} is damaged: {error}"));
    Ok(serde_json::from_slice(body).map_err(damaged)?)
}

fn failed(error: RecordError) -> TokenAdminError {
    TokenAdminError::Engine(match error {
        RecordError::Store(error) => error.into(),
        // 60 random bits have met 60 others.
        RecordError::Moved { .. } => Error::Internal("the token's id is taken: try again".into()),
    })
}

fn draw() -> Result<[u8; 32], TokenAdminError> {
    random_bytes().map_err(|error| TokenAdminError::Engine(Error::Internal(error.to_string())))
}

/// A new id.
pub(super) fn draw_id() -> Result<String, TokenAdminError> {
    Ok(draw()?[..ID_LENGTH].iter().map(|byte| char::from(ALPHABET[usize::from(byte % 32)])).collect())
}

fn is_id(text: &str) -> bool {
    text.len() == ID_LENGTH && text.bytes().all(|byte| ALPHABET.contains(&byte))
}

fn digest(secret: &str) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(secret))
}
