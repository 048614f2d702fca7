//! The webhook commands: register, read and remove. Secrets are write-only.

use std::sync::Arc;

use super::{check_id, submit::encode_webhook};
use crate::{
    access::{Action, Caller, tenant_of},
    agent::Profile,
    commit::{Effect, Writer},
    engine::{Engine, EngineCore, Limits, WebhookCheck},
    error::Error,
    store::{TaskRow, Webhook},
    usage::MeteredResource,
    webhook::WebhookConfig,
};

impl Engine {
    /// Adds a webhook to a task, or replaces the one with its id. It receives events from now on.
    pub async fn put_webhook(
        &self,
        caller: &Caller,
        task: &str,
        config: WebhookConfig,
    ) -> Result<WebhookConfig, Error> {
        self.allow_task(caller, Action::Write, "task.webhook.put", task)?;
        let inner = &self.0;
        let row = inner.find_row(caller, task).await?;
        let profile = inner.profile_of(&row);
        let limits = &inner.options.limits;
        check_webhook(&profile, &config, limits, &*inner.check_webhook)?;
        inner.usage.accept_stored(tenant_of(&row.owner), MeteredResource::Webhooks, 1)?;
        let hook = Webhook { cursor: row.seq, ..encode_webhook(&config) };
        inner.store.put_webhook(row.no, hook, limits.webhooks_per_task).await?;
        inner.apply(&Writer::Node(&row), Effect::WatchWebhooks);
        Ok(config.redacted())
    }

    /// One webhook of a task; the first, if no id is given.
    pub async fn webhook(
        &self,
        caller: &Caller,
        task: &str,
        id: Option<&str>,
    ) -> Result<WebhookConfig, Error> {
        let all = self.webhooks(caller, task).await?;
        let found = match id {
            Some(id) => all.into_iter().find(|config| config.id == id),
            None => all.into_iter().next(),
        };
        found.ok_or_else(|| match id {
            Some(id) => Error::NoSuchWebhook(id.to_owned()),
            None => Error::NoWebhooks(task.to_owned()),
        })
    }

    /// The webhooks of a task.
    pub async fn webhooks(&self, caller: &Caller, task: &str) -> Result<Vec<WebhookConfig>, Error> {
        self.allow_task(caller, Action::Read, "task.webhook.get", task)?;
        let row = self.0.find_row(caller, task).await?;
        if !self.0.profile_of(&row).push_notifications {
            return Err(Error::PushUnsupported);
        }
        let hooks = self.0.store.webhooks(row.no).await?;
        hooks.iter().map(|hook| Ok(decode_webhook(hook)?.redacted())).collect()
    }

    /// Removes a webhook and its pending deliveries. Idempotent (A2A 1.0 §3.1.10): a webhook that does not exist is
    /// as good as removed.
    pub async fn delete_webhook(&self, caller: &Caller, task: &str, id: &str) -> Result<(), Error> {
        self.allow_task(caller, Action::Write, "task.webhook.delete", task)?;
        let row = self.0.find_row(caller, task).await?;
        if !self.0.profile_of(&row).push_notifications {
            return Err(Error::PushUnsupported);
        }
        self.0.store.delete_webhook(row.no, id).await?;
        Ok(())
    }
}

impl EngineCore {
    fn profile_of(&self, row: &TaskRow) -> Arc<Profile> {
        match self.catalog.get(&row.agent) {
            Ok(registered) => Arc::clone(&registered.profile),
            Err(_) => self.unknown_agent(),
        }
    }
}

pub(super) fn check_webhook(
    profile: &Profile,
    config: &WebhookConfig,
    limits: &Limits,
    policy: &WebhookCheck,
) -> Result<(), Error> {
    if !profile.push_notifications {
        return Err(Error::PushUnsupported);
    }
    check_id("push notification config id", &config.id, limits)?;
    policy(config).map_err(Error::Invalid)
}

/// A stored webhook, with its secrets.
pub fn decode_webhook(hook: &Webhook) -> Result<WebhookConfig, Error> {
    serde_json::from_slice(&hook.config)
        .map_err(|e| Error::Internal(format!("a stored webhook is damaged: {e}")))
}
