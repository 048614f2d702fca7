//! Salts of tenants whose name was used before: keys derived for such a tenant differ from those of the
//! erased tenant of the same name.
//!
//! A salt is drawn in the commit that opens the name again. It is a record of the tenant itself, so the next
//! erasure deletes it. Nodes read all salts together with the orders, and after them: a node that sees the
//! name open has its salt.

use std::collections::HashMap;

use parking_lot::RwLock;
use serde::{Deserialize, Serialize};

use crate::{
    clock::Timestamp,
    engine::{Engine, EngineCore},
    error::Error,
    knowledge::{ExpectedVersion, RecordKey, RecordQuery, RecordWrite},
};

const KIND: &str = "tenant.salt";
const ID: &str = "salt";
/// The page size when reading salts.
const PAGE: usize = 1_000;

/// A salt as stored. Fields are only ever added.
#[derive(Debug, Serialize, Deserialize)]
struct StoredSalt {
    salt: String,
}

/// The salts of all tenants that have one, by tenant.
#[derive(Debug, Default)]
pub(super) struct TenantSalts(RwLock<HashMap<String, String>>);

impl TenantSalts {
    pub(super) fn replace(&self, salts: HashMap<String, String>) {
        *self.0.write() = salts;
    }

    fn get(&self, tenant: &str) -> Option<String> {
        self.0.read().get(tenant).cloned()
    }
}

/// The write that gives a tenant a salt.
pub(super) fn salt_write(tenant: &str, salt: String, now: Timestamp) -> Result<RecordWrite, Error> {
    let body =
        serde_json::to_vec(&StoredSalt { salt }).map_err(|error| Error::Internal(error.to_string()))?;
    let key = RecordKey::new(tenant, KIND, ID);
    Ok(RecordWrite { key, body: Some(body.into()), expected: ExpectedVersion::Any, expires_at: None, now })
}

impl Engine {
    /// Like [`Engine::derive_key`], for one tenant: another key once its name has been erased and opened
    /// again.
    pub fn derive_tenant_key(&self, tenant: &str, purpose: &str) -> [u8; 32] {
        match self.0.admin.salts.get(tenant) {
            None => self.derive_key(purpose),
            Some(salt) => self.derive_key(&format!("{purpose}/{salt}")),
        }
    }
}

impl EngineCore {
    /// All salts, by tenant.
    pub(super) async fn read_tenant_salts(&self) -> Result<HashMap<String, String>, Error> {
        let (mut salts, mut after) = (HashMap::new(), String::new());
        loop {
            let query = RecordQuery {
                tenant: None,
                kind: KIND.to_owned(),
                prefix: String::new(),
                after,
                limit: PAGE,
                now: self.clock.now(),
            };
            let page = self.store.knowledge().records(&query).await?;
            let last = page.last().filter(|_| page.len() == PAGE).map(|record| record.id.clone());
            for record in page {
                // In a query over all tenants, an id is preceded by its tenant and a line feed.
                let Some((tenant, _)) = record.id.split_once('\n') else { continue };
                let damaged =
                    |error| Error::Internal(format!("the salt of tenant {tenant:?} is damaged: {error}"));
                let StoredSalt { salt } = serde_json::from_slice(&record.body).map_err(damaged)?;
                salts.insert(tenant.to_owned(), salt);
            }
            match last {
                Some(last) => after = last,
                None => return Ok(salts),
            }
        }
    }
}
