//! The signing keys of webhooks: one per tenant, derived from the database's key, and rotated with an overlap
//! in which deliveries carry two signatures.
//!
//! If two tenants shared a key, one could forge deliveries to the other's receivers. The home tenant starts
//! with the secret of the data folder, which its receivers have known since before there were other tenants.

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
    time::Duration,
};

use nuncio_engine::{
    AccessKind, AccessRequest, Action, Caller, Engine, Error, access::HOME_TENANT, clock::Timestamp,
    records::Records,
};
use nuncio_wire::timestamp;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::signature::SigningSecret;

const KIND: &str = "webhook.key";
const ID: &str = "signing";
/// How long a tenant's key is cached: the time until every node signs with a rotated one.
const BELIEVED: Duration = Duration::from_secs(5);
/// Maximum tenants whose keys are cached.
const REMEMBERED: usize = 10_000;
/// The default overlap: how long deliveries also carry the signature of the previous key.
pub const OVERLAP: Duration = Duration::from_secs(24 * 60 * 60);
/// Most attempts to write a rotation that conflicts with concurrent ones.
const ATTEMPTS: usize = 64;
const MAX_OVERLAP: Duration = Duration::from_secs(90 * 24 * 60 * 60);

/// The generation of a tenant's key. Fields are only ever added.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WebhookKeyGeneration {
    /// Number of rotations so far.
    number: u64,
    /// The end of the overlap: until then the previous key signs as well.
    previous_until: Option<Timestamp>,
}

/// The webhook signing keys of all tenants.
pub struct WebhookKeys {
    home: SigningSecret,
    engine: OnceLock<Engine>,
    known: Mutex<HashMap<String, (WebhookKeyGeneration, Timestamp)>>,
}

impl WebhookKeys {
    /// Keys with `home` as the home tenant's first one. Other tenants have a key only once an engine is
    /// attached.
    pub fn new(home: SigningSecret) -> Arc<Self> {
        Arc::new(Self { home, engine: OnceLock::new(), known: Mutex::default() })
    }

    /// Sets the engine that derives the other tenants' keys.
    pub fn attach(&self, engine: &Engine) {
        // A second call changes nothing: there is one engine.
        let _ = self.engine.set(engine.clone());
    }

    /// The value of `webhook-signature` for a tenant's delivery: one signature, or two during a rotation.
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

    /// Shows a tenant's key to a caller that may see it.
    pub(crate) async fn show(&self, caller: &Caller, tenant: Option<&str>) -> Result<Value, Error> {
        let engine = self.engine()?;
        let tenant = allow(engine, caller, Action::Read, "webhook.key.show", tenant)?;
        let now = engine.clock().now();
        let record = Self::records(engine).get(&tenant, ID).await?;
        let generation = record.map(|record| record.value).unwrap_or_default();
        Ok(self.shown(engine, &tenant, generation, now))
    }

    /// Rotates a tenant's key. Deliveries carry both signatures until the overlap ends.
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
        let now = engine.clock().now();
        let updated = Self::records(engine)
            .update(&tenant, ID, ATTEMPTS, |found| {
                let number = found.map_or(0, |record| record.value.number);
                let previous_until = Some(now.after(overlap));
                Ok::<_, Error>(Some(WebhookKeyGeneration { number: number + 1, previous_until }))
            })
            .await?;
        let next = updated.map(|record| record.value).unwrap_or_default();
        self.remember(&tenant, next, now);
        Ok(self.shown(engine, &tenant, next, now))
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

    /// The current key, and the previous one during the overlap.
    fn keys(
        &self,
        engine: &Engine,
        tenant: &str,
        generation: WebhookKeyGeneration,
        now: Timestamp,
    ) -> Vec<SigningSecret> {
        let key = |number: u64| match (tenant, number) {
            (HOME_TENANT, 0) => self.home.clone(),
            // Unambiguous, because a tenant's name has no slash.
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
        let record = Self::records(engine).get(tenant, ID).await?;
        let generation = record.map(|record| record.value).unwrap_or_default();
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

    fn records(engine: &Engine) -> Records<WebhookKeyGeneration> {
        engine.records(KIND)
    }
}

/// Resolves the tenant that the caller means, if the caller may. An administrator of the home tenant may name
/// any tenant; others have only their own.
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
