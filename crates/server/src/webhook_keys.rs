//! The keys that webhooks are signed with: one per tenant, derived from the key of the database, and rotated with an
//! overlap in which deliveries carry two signatures.
//!
//! A tenant whose key was shared with another could have its receivers believe what the other made up. The home tenant
//! begins with the secret of the data folder, which its receivers know from before there were others.

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
    time::Duration,
};

use nuncio_engine::{
    AccessKind, AccessRequest, Action, Caller, Engine, Error,
    access::HOME_TENANT,
    clock::Timestamp,
    knowledge::{ExpectedVersion, RecordError, RecordKey, RecordWrite},
};
use nuncio_wire::timestamp;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::signature::SigningSecret;

const KIND: &str = "webhook.key";
const ID: &str = "signing";
/// How long what was read of a tenant's key is believed: so soon every node signs with a new one.
const BELIEVED: Duration = Duration::from_secs(5);
/// Tenants whose keys are remembered.
const REMEMBERED: usize = 10_000;
/// For how long deliveries carry the signature of the key before, unless it is said otherwise.
pub const OVERLAP: Duration = Duration::from_secs(24 * 60 * 60);
/// The longest overlap.
const MAX_OVERLAP: Duration = Duration::from_secs(90 * 24 * 60 * 60);

/// Which key a tenant has. Fields are only ever added.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WebhookKeyGeneration {
    /// Counts rotations.
    number: u64,
    /// Until when the one before is good, too.
    previous_until: Option<Timestamp>,
}

/// The keys of all tenants.
pub struct WebhookKeys {
    home: SigningSecret,
    engine: OnceLock<Engine>,
    known: Mutex<HashMap<String, (WebhookKeyGeneration, Timestamp)>>,
}

impl WebhookKeys {
    /// Keys of which the home tenant's first is that one. Without an engine there is no other.
    pub fn new(home: SigningSecret) -> Arc<Self> {
        Arc::new(Self { home, engine: OnceLock::new(), known: Mutex::default() })
    }

    /// Takes the engine that derives the others.
    pub fn attach(&self, engine: &Engine) {
        // Another one is the same: there is one engine.
        let _ = self.engine.set(engine.clone());
    }

    /// The value of `webhook-signature` for a delivery of that tenant: a signature, or two while a key is rotated.
    pub(crate) async fn sign(
        &self,
        tenant: &str,
        delivery: &str,
        timestamp: i64,
        body: &[u8],
    ) -> Result<String, Error> {
        let Some(engine) = self.engine.get() else { return Ok(self.home.sign(delivery, timestamp, body)) };
        let now = engine.clock().now();
        let generation = self.generation(engine, tenant, now).await?;
        let keys = self.keys(engine, tenant, generation, now);
        let signatures: Vec<String> = keys.iter().map(|key| key.sign(delivery, timestamp, body)).collect();
        Ok(signatures.join(" "))
    }

    /// A tenant's key, for who may see it.
    pub(crate) async fn show(&self, caller: &Caller, tenant: Option<&str>) -> Result<Value, Error> {
        let engine = self.engine()?;
        let tenant = allow(engine, caller, Action::Read, "webhook.key.show", tenant)?;
        let now = engine.clock().now();
        let generation = self.read(engine, &tenant).await?.0;
        Ok(self.shown(engine, &tenant, generation, now))
    }

    /// Gives a tenant a new key. Deliveries carry the signatures of both until the overlap is over.
    pub(crate) async fn rotate(
        &self,
        caller: &Caller,
        tenant: Option<&str>,
        overlap: Option<Duration>,
    ) -> Result<Value, Error> {
        let engine = self.engine()?;
        let tenant = allow(engine, caller, Action::Write, "webhook.key.rotate", tenant)?;
        let overlap = overlap.unwrap_or(OVERLAP);
        if overlap > MAX_OVERLAP {
            let days = MAX_OVERLAP.as_secs() / 86_400;
            return Err(Error::Invalid(format!("overlapSeconds: at most {days} days")));
        }
        loop {
            let (generation, version) = self.read(engine, &tenant).await?;
            let now = engine.clock().now();
            let next = WebhookKeyGeneration {
                number: generation.number + 1,
                previous_until: Some(now.after(overlap)),
            };
            let write = RecordWrite {
                key: RecordKey::new(&*tenant, KIND, ID),
                body: Some(serde_json::to_vec(&next).unwrap_or_default().into()),
                expected: version.map_or(ExpectedVersion::Absent, ExpectedVersion::Version),
                expires_at: None,
                now,
            };
            match engine.store().knowledge().write_records(vec![write]).await {
                Ok(_) => {
                    self.remember(&tenant, next, now);
                    return Ok(self.shown(engine, &tenant, next, now));
                }
                Err(RecordError::Moved { .. }) => {}
                Err(RecordError::Store(error)) => return Err(error.into()),
            }
        }
    }

    fn engine(&self) -> Result<&Engine, Error> {
        self.engine.get().ok_or_else(|| Error::Internal("the keys of webhooks have no engine yet".into()))
    }

    fn shown(
        &self,
        engine: &Engine,
        tenant: &str,
        generation: WebhookKeyGeneration,
        now: Timestamp,
    ) -> Value {
        let keys = self.keys(engine, tenant, generation, now);
        json!({
            "tenant": tenant,
            "generation": generation.number,
            "secret": keys[0].reveal(),
            "previous": keys.get(1).map(SigningSecret::reveal),
            "previousUntil": generation.previous_until.filter(|_| keys.len() > 1).map(timestamp::format),
        })
    }

    /// The key that stands, and the one before while it is good, too.
    fn keys(
        &self,
        engine: &Engine,
        tenant: &str,
        generation: WebhookKeyGeneration,
        now: Timestamp,
    ) -> Vec<SigningSecret> {
        let key = |number: u64| match (tenant, number) {
            (HOME_TENANT, 0) => self.home.clone(),
            // A tenant's name has no slash.
            _ => {
                let purpose = format!("webhook/{tenant}/{number}");
                SigningSecret::from_random(engine.derive_tenant_key(tenant, &purpose))
            }
        };
        let mut keys = vec![key(generation.number)];
        if generation.number > 0 && generation.previous_until.is_some_and(|until| now < until) {
            keys.push(key(generation.number - 1));
        }
        keys
    }

    async fn generation(
        &self,
        engine: &Engine,
        tenant: &str,
        now: Timestamp,
    ) -> Result<WebhookKeyGeneration, Error> {
        let known = self.known.lock().get(tenant).copied();
        if let Some((generation, at)) = known
            && at <= now
            && now < at.after(BELIEVED)
        {
            return Ok(generation);
        }
        let (generation, _) = self.read(engine, tenant).await?;
        self.remember(tenant, generation, now);
        Ok(generation)
    }

    fn remember(&self, tenant: &str, generation: WebhookKeyGeneration, now: Timestamp) {
        let mut known = self.known.lock();
        if known.len() >= REMEMBERED {
            known.clear();
        }
        known.insert(tenant.to_owned(), (generation, now));
    }

    async fn read(
        &self,
        engine: &Engine,
        tenant: &str,
    ) -> Result<(WebhookKeyGeneration, Option<u64>), Error> {
        let key = RecordKey::new(tenant, KIND, ID);
        let Some(record) = engine.store().knowledge().record(&key, engine.clock().now()).await? else {
            return Ok((WebhookKeyGeneration::default(), None));
        };
        let damaged = |error| Error::Internal(format!("the webhook key of {tenant:?} is damaged: {error}"));
        Ok((serde_json::from_slice(&record.body).map_err(damaged)?, Some(record.version)))
    }
}

/// The tenant that is meant, where the caller may. An administrator of the home tenant may name any, others have their
/// own.
fn allow(
    engine: &Engine,
    caller: &Caller,
    action: Action,
    operation: &'static str,
    tenant: Option<&str>,
) -> Result<String, Error> {
    let tenant = tenant.unwrap_or(caller.tenant());
    let resource = format!("admin://webhook-key?tenant={tenant}");
    let access =
        AccessRequest { action, kind: AccessKind::Admin, name: "webhooks", operation, resource: &resource };
    engine.allow(caller, &access)?;
    let reached = caller.tenant() == HOME_TENANT || caller.tenant() == tenant;
    match reached && !tenant.is_empty() && !tenant.contains(['/', ':']) && tenant.len() <= 64 {
        true => Ok(tenant.to_owned()),
        false => Err(Error::Invalid(format!("there is no tenant {tenant:?}"))),
    }
}
