//! Deliveries that were given up, as the operator's commands list them: with the address, without its secrets.

use std::collections::HashMap;

use serde::Serialize;

use super::deliveries::without_secrets;
use crate::{
    commands::webhooks::decode_webhook,
    redact::Redactor,
    store::{DeadLetter, FailedDelivery, FailedDeliveryQuery, Store, StoreError},
    task::TaskId,
};

/// A dead letter with the address of its webhook.
#[derive(Debug, Clone, Serialize)]
pub struct ListedDeadLetter {
    /// The delivery.
    #[serde(flatten)]
    pub letter: DeadLetter,
    /// The webhook's address without user, query and what looks like a secret; `None` if its record cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

/// The dead letters of a store, newest first. For the operator, who needs no engine.
pub async fn list_dead_letters(
    store: &dyn Store,
    redactor: &Redactor,
    limit: usize,
) -> Result<Vec<ListedDeadLetter>, StoreError> {
    let letters = store.dead_letters(limit).await?;
    let query = FailedDeliveryQuery { dead: true, tenant: None, owner: None, after: None, limit };
    let failed = store.failed_deliveries(&query).await?;
    let address = |failed: FailedDelivery| {
        let config = decode_webhook(&failed.hook).ok()?;
        let url = redactor.text(&without_secrets(&config.url)).into_owned();
        Some(((failed.row.id, failed.hook.id), url))
    };
    let addresses: HashMap<(TaskId, String), String> = failed.into_iter().filter_map(address).collect();
    let listed = letters.into_iter().map(|letter| {
        let url = addresses.get(&(letter.task, letter.webhook.clone())).cloned();
        ListedDeadLetter { letter, url }
    });
    Ok(listed.collect())
}
