//! The server's own tokens: `nun_<id>_<secret>`.
//!
//! Only the SHA-256 of a secret is stored; the secret has 256 random bits, so a slower hash is not needed.
//! Each token is a record in the store, so all nodes know it. A token read from the store is cached for a few
//! seconds: a revoked token is refused at once on the node that revoked it, and on all others after that
//! time.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use nuncio_engine::{
    Caller, Engine, Error, Grants, MeteredResource, StorageMeter,
    access::HOME_TENANT,
    admin::Eraser,
    clock::{Clock, Timestamp},
    knowledge::{ExpectedVersion, RecordWrite},
    records::Records,
    store::Store,
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

/// The prefix of tokens, so that they are recognised where they leak.
pub(super) const PREFIX: &str = "nun_";

const KIND: &str = "token";
/// When tokens were last used, stored apart from the tokens themselves so that no request waits for the
/// write.
const USED: &str = "token.used";
/// The characters of an id: digits and letters that are not easily confused.
const ALPHABET: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
const ID_LENGTH: usize = 12;
/// How long a token stays in the cache.
const BELIEVED: Duration = Duration::from_secs(5);
/// The most tokens in the cache.
const REMEMBERED: usize = 10_000;
/// The default lifetime of a token.
const USUAL: Duration = Duration::from_secs(90 * 24 * 60 * 60);
/// How long a token is still listed after it expired or was revoked.
const LISTED: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// How often the last uses are written to the store.
const NOTED: Duration = Duration::from_secs(60);
/// Tokens per read of the store.
const PAGE: usize = 1_000;
/// The default scopes of a token.
const EVERYTHING: &str = "*:*";
/// Reserved names.
const TAKEN: [&str; 2] = ["local", "anonymous"];

/// A token as it is stored. Fields are only ever added.
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

#[derive(Clone)]
struct CachedToken {
    stored: Arc<StoredToken>,
    caller: Caller,
    read_at: Timestamp,
}

/// The tokens in a store, with a cache.
pub struct ServerTokens {
    tokens: Records<Value>,
    /// The time of each token's last use.
    uses: Records<Value>,
    clock: Arc<dyn Clock>,
    known: Mutex<HashMap<String, CachedToken>>,
    used: Mutex<HashMap<String, Timestamp>>,
}

impl ServerTokens {
    /// The tokens of an engine's store.
    pub fn of(engine: &Engine) -> Self {
        Self::over(engine.records(KIND), engine.records(USED), Arc::clone(engine.clock()))
    }

    /// The tokens of a store that no engine runs on.
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Self {
        let tokens = Records::new(Arc::clone(&store), Arc::clone(&clock), KIND);
        Self::over(tokens, Records::new(store, Arc::clone(&clock), USED), clock)
    }

    fn over(tokens: Records<Value>, uses: Records<Value>, clock: Arc<dyn Clock>) -> Self {
        Self { tokens, uses, clock, known: Mutex::default(), used: Mutex::default() }
    }

    /// Creates a token with at most the caller's own rights. The secret is only in this response.
    pub async fn create(&self, by: &Caller, wish: NewToken) -> Result<Value, TokenAdminError> {
        self.create_as(&draw_id()?, by, wish).await
    }

    /// The same, under an id from [`draw_id`].
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
        let grants = match Grants::parse(&scopes.join(" "))
            .and_then(|grants| grants.check_admin_names().map(|()| grants))
        {
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
        if !self.write(id, &kept, ExpectedVersion::Absent).await? {
            // 60 random bits have met 60 others.
            return Err(Error::Internal("the token's id is taken: try again".into()).into());
        }
        let mut shown = kept.show(id, now, None);
        shown["token"] = format!("{PREFIX}{id}_{secret}").into();
        Ok(shown)
    }

    /// Lists all tokens that the caller may see, by id.
    pub async fn list(&self, by: &Caller) -> Result<Value, TokenAdminError> {
        let now = self.clock.now();
        let used: HashMap<String, Timestamp> = self
            .all(&self.uses)
            .await?
            .into_iter()
            .filter_map(|(id, value)| Some((id, serde_json::from_value(value).ok()?)))
            .collect();
        let recent = self.used.lock().clone();
        let mut tokens = vec![];
        for (id, value) in self.all(&self.tokens).await? {
            let kept = read(&id, value)?;
            if by.tenant() == HOME_TENANT || by.tenant() == kept.tenant {
                let used = used.get(&id).max(recent.get(&id)).copied();
                tokens.push(kept.show(&id, now, used));
            }
        }
        Ok(json!({ "tokens": tokens }))
    }

    /// Revokes a token: at once on this node, within seconds on all others.
    pub async fn revoke(&self, by: &Caller, id: &str) -> Result<Value, TokenAdminError> {
        let unknown = || TokenAdminError::NoSuchToken(id.to_owned());
        loop {
            let now = self.clock.now();
            let record = self.tokens.get(HOME_TENANT, id).await?.ok_or_else(unknown)?;
            let mut kept = read(id, record.value)?;
            if by.tenant() != HOME_TENANT && by.tenant() != kept.tenant {
                return Err(unknown());
            }
            if kept.revoked_at.is_none() {
                kept.revoked_at = Some(now);
                kept.revoked_by = Some(by.owner().to_owned());
                if !self.write(id, &kept, ExpectedVersion::Version(record.version)).await? {
                    continue;
                }
            }
            self.known.lock().remove(id);
            return Ok(kept.show(id, now, self.used.lock().get(id).copied()));
        }
    }

    /// The owner of a token.
    pub(super) async fn owner(&self, id: &str) -> Result<String, TokenAdminError> {
        let found = self.tokens.get(HOME_TENANT, id).await?;
        let record = found.ok_or_else(|| TokenAdminError::NoSuchToken(id.to_owned()))?;
        Ok(read(id, record.value)?.owner())
    }

    /// Verifies a token and returns its caller.
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
        let found = self.tokens.get(HOME_TENANT, id).await;
        let found = found.map_err(|error| unavailable(error.to_string()))?;
        let Some(record) = found else {
            self.known.lock().remove(id);
            return Ok(None);
        };
        let kept = read(id, record.value).map_err(|error| unavailable(error.to_string()))?;
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

    /// Writes a token; returns false, with nothing written, if it is not at that version.
    async fn write(&self, id: &str, kept: &StoredToken, expected: ExpectedVersion) -> Result<bool, Error> {
        let ends = [kept.revoked_at, kept.expires_at].into_iter().flatten().min();
        let value = serde_json::to_value(kept).map_err(|error| Error::Internal(error.to_string()))?;
        let write = self.tokens.put(HOME_TENANT, id, &value, expected)?;
        let write = RecordWrite { expires_at: ends.map(|ends| ends.after(LISTED)), ..write };
        Ok(self.tokens.write(vec![write]).await?.is_some())
    }

    async fn all(&self, records: &Records<Value>) -> Result<Vec<(String, Value)>, Error> {
        let mut all = vec![];
        let mut after = String::new();
        loop {
            let page = records.page(Some(HOME_TENANT), "", &after, PAGE).await?;
            let more = page.len() == PAGE;
            all.extend(page.into_iter().map(|record| (record.id, record.value)));
            match all.last().filter(|_| more) {
                Some((last, _)) => after = last.clone(),
                None => return Ok(all),
            }
        }
    }

    /// The name of a created token in the audit log: by its id, as when it is revoked. The caller's name
    /// would survive the erasure of the caller's tenant, in another tenant's line.
    pub fn created_address(id: &str, tenant: &str) -> String {
        match is_name(tenant) {
            true => format!("admin://tokens/{id}?tenant={tenant}"),
            false => format!("admin://tokens/{id}"),
        }
    }

    /// Deletes the last uses of deleted tokens: a node may have written one after the token was deleted.
    async fn delete_orphaned_uses(&self) -> Result<(), Error> {
        let used = self.all(&self.uses).await?;
        let there: HashSet<String> = self.all(&self.tokens).await?.into_iter().map(|(id, _)| id).collect();
        let orphans = used.iter().filter(|(id, _)| !there.contains(id));
        let orphans: Vec<RecordWrite> =
            orphans.map(|(id, _)| self.uses.delete(HOME_TENANT, id, ExpectedVersion::Any)).collect();
        for chunk in orphans.chunks(PAGE) {
            self.uses.write(chunk.to_vec()).await?;
        }
        Ok(())
    }

    /// Writes the last uses to the store.
    async fn record_uses(&self) -> Result<(), Error> {
        let used: Vec<(String, Timestamp)> = self.used.lock().drain().collect();
        for chunk in used.chunks(PAGE) {
            let write = |(id, at): &(String, Timestamp)| {
                let value = serde_json::to_value(at).map_err(|error| Error::Internal(error.to_string()))?;
                let write = self.uses.put(HOME_TENANT, id, &value, ExpectedVersion::Any)?;
                Ok::<_, Error>(RecordWrite { expires_at: Some(write.now.after(USUAL + LISTED)), ..write })
            };
            self.uses.write(chunk.iter().map(write).collect::<Result<_, _>>()?).await?;
        }
        Ok(())
    }
}

/// Tokens are records of the home tenant: erasing a tenant deletes its tokens.
#[async_trait]
impl Eraser for ServerTokens {
    async fn erase(&self, tenant: &str) -> Result<u64, Error> {
        let mut erased = 0;
        for (id, value) in self.all(&self.tokens).await? {
            // A record that cannot be parsed belongs to no tenant.
            if !serde_json::from_value::<StoredToken>(value).is_ok_and(|kept| kept.tenant == tenant) {
                continue;
            }
            self.used.lock().remove(&id);
            let records = [&self.tokens, &self.uses];
            let deletions = records.map(|records| records.delete(HOME_TENANT, &id, ExpectedVersion::Any));
            self.tokens.write(deletions.into()).await?;
            self.known.lock().remove(&id);
            erased += 1;
        }
        self.delete_orphaned_uses().await?;
        Ok(erased)
    }
}

/// Counts the tokens of a tenant, including expired and revoked ones that are still listed.
#[async_trait]
impl StorageMeter for ServerTokens {
    fn resource(&self) -> MeteredResource {
        MeteredResource::Tokens
    }

    async fn measure(&self) -> Result<Vec<(String, u64)>, Error> {
        let mut counts: HashMap<String, u64> = HashMap::new();
        for (id, value) in self.all(&self.tokens).await? {
            let kept = read(&id, value)?;
            *counts.entry(kept.tenant).or_default() += 1;
        }
        Ok(counts.into_iter().collect())
    }
}

/// Writes the last uses periodically. A crash may lose a minute of them, which is acceptable.
pub(super) async fn record_uses_periodically(tokens: Arc<ServerTokens>, mut closing: watch::Receiver<bool>) {
    loop {
        let ends = tokio::select! {
            () = tokio::time::sleep(NOTED) => false,
            _ = closing.wait_for(|closing| *closing) => true,
        };
        if let Err(error) = tokens.record_uses().await {
            tracing::debug!(%error, "the last uses of tokens could not be written");
        }
        if ends {
            return;
        }
    }
}

fn read(id: &str, value: Value) -> Result<StoredToken, Error> {
    let damaged = |error| Error::Internal(format!("token {id} is damaged: {error}"));
    serde_json::from_value(value).map_err(damaged)
}

fn draw() -> Result<[u8; 32], TokenAdminError> {
    random_bytes().map_err(|error| TokenAdminError::Engine(Error::Internal(error.to_string())))
}

/// Generates a new id.
pub(super) fn draw_id() -> Result<String, TokenAdminError> {
    Ok(draw()?[..ID_LENGTH].iter().map(|byte| char::from(ALPHABET[usize::from(byte % 32)])).collect())
}

fn is_id(text: &str) -> bool {
    text.len() == ID_LENGTH && text.bytes().all(|byte| ALPHABET.contains(&byte))
}

fn digest(secret: &str) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(secret))
}
