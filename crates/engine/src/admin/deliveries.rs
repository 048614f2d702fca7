//! Webhooks and their failed deliveries, for the callers whose tasks they belong to, and for administrators.
//!
//! A caller needs no scope of an administrator for its own tasks. For tasks of others it needs `read:admin:webhooks` or
//! `write:admin:webhooks`, and reaches its own tenant, or from the home tenant all. Secrets of a webhook are never shown.

use super::{ADMIN_WEBHOOKS, reaches};
use crate::{
    access::{AccessKind, Action, Caller},
    clock::Timestamp,
    commands::{list::MAX_PAGE, webhooks::decode_webhook},
    engine::Engine,
    error::Error,
    outbox::delivery_id,
    store::{FailedDelivery, FailedDeliveryCursor, FailedDeliveryQuery, TaskRow, Webhook},
    task::TaskId,
    webhook::WebhookConfig,
};

/// The maximum number of deliveries that one request replays or discards.
pub const MAX_DELIVERIES_PER_ACT: usize = 100;

/// Which failed deliveries to list.
#[derive(Debug, Clone, Default)]
pub struct DeliveryList {
    /// Whether those that were given up, or those that wait for a retry.
    pub dead: bool,
    /// Only those of this owner's tasks. Without it: of all that the caller may see.
    pub owner: Option<String>,
    /// Continue after this position.
    pub after: Option<FailedDeliveryCursor>,
    /// The maximum number of deliveries; 1 to [`MAX_PAGE`].
    pub limit: usize,
}

/// A page of failed deliveries.
#[derive(Debug, Clone)]
pub struct DeliveryPage {
    /// The deliveries, newest first.
    pub deliveries: Vec<FailedDeliveryView>,
    /// Where the next page begins; `None` after the last page.
    pub next: Option<FailedDeliveryCursor>,
    /// Whether these are only those of the caller's own tasks.
    pub own: bool,
}

/// What a caller sees of a failed delivery.
#[derive(Debug, Clone)]
pub struct FailedDeliveryView {
    /// The id under which it is sent.
    pub id: String,
    /// The task whose event it is.
    pub task: TaskId,
    /// The owner of the task.
    pub owner: String,
    /// The agent of the task.
    pub agent: String,
    /// The webhook, without its secrets; `None` if its record cannot be read.
    pub webhook: Option<WebhookConfig>,
    /// The webhook's id.
    pub webhook_id: String,
    /// The sequence number of the event.
    pub seq: u64,
    /// Failed attempts so far; `None` if they were not counted.
    pub attempts: Option<u32>,
    /// When it is tried next; of one in progress the end of its lease.
    pub due_at: Option<Timestamp>,
    /// Whether a node is delivering it.
    pub in_progress: bool,
    /// The last error, for the operator: it may tell how an address was reached.
    pub reason: Option<String>,
    /// Of a retry the time of its first failure, of a dead letter the time it was given up.
    pub since: Option<Timestamp>,
}

/// What a caller sees of a webhook and its deliveries.
#[derive(Debug, Clone)]
pub struct WebhookView {
    /// The webhook, without its secrets; `None` if its record cannot be read.
    pub webhook: Option<WebhookConfig>,
    /// The webhook's id.
    pub id: String,
    /// Whether it has a token that its deliveries carry.
    pub has_token: bool,
    /// The last event that was delivered, or needed no delivery.
    pub cursor: u64,
    /// The last event of the task.
    pub last: u64,
    /// Failed attempts at the event after the cursor.
    pub attempts: u32,
    /// When the next delivery is due; of one in progress the end of its lease. `None`: nothing to deliver.
    pub due_at: Option<Timestamp>,
    /// Whether a node is delivering.
    pub in_progress: bool,
    /// The last error, while attempts fail; as in [`FailedDeliveryView::reason`].
    pub reason: Option<String>,
    /// When the event after the cursor failed first.
    pub failing_since: Option<Timestamp>,
    /// How many of its deliveries were given up.
    pub dead: u64,
}

/// What to do with failed deliveries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeliveryAct {
    /// Attempt them at once.
    Replay,
    /// Never send them.
    Discard,
}

impl DeliveryAct {
    fn operations(self) -> (&'static str, &'static str) {
        match self {
            Self::Replay => ("task.webhook.replay", "admin.webhook.replay"),
            Self::Discard => ("task.webhook.discard", "admin.webhook.discard"),
        }
    }
}

/// What became of one delivery of a [`DeliveryAct`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeliveryActResult {
    /// It was done.
    Done,
    /// Nothing was changed: it was delivered, discarded or replayed meanwhile, or is in progress.
    Unchanged,
    /// There is no such task, or none that the caller may act on.
    NotFound,
}

impl Engine {
    /// A page of deliveries that failed, newest first.
    pub async fn failed_deliveries(
        &self,
        caller: &Caller,
        list: DeliveryList,
    ) -> Result<DeliveryPage, Error> {
        let DeliveryList { dead, owner, after, limit } = list;
        let own = match &owner {
            Some(owner) => owner == caller.owner(),
            None => !caller.may(Action::Read, AccessKind::Admin, ADMIN_WEBHOOKS),
        };
        let (tenant, owner) = match own {
            true => {
                self.allow_task(caller, Action::Read, "task.webhook.failed", "")?;
                (Some(caller.tenant().to_owned()), Some(caller.owner().to_owned()))
            }
            false => {
                let tenant = (!reaches(caller, "")).then(|| caller.tenant().to_owned());
                let resource = format!("admin://webhooks?tenant={}", tenant.as_deref().unwrap_or("*"));
                self.allow_admin(caller, Action::Read, ADMIN_WEBHOOKS, "admin.webhook.list", &resource)?;
                (tenant, owner)
            }
        };
        if !(1..=MAX_PAGE).contains(&limit) {
            return Err(Error::Invalid(format!("limit: a page has 1 to {MAX_PAGE} deliveries")));
        }
        // One more, to know whether there is a next page.
        let query = FailedDeliveryQuery { dead, tenant, owner, after, limit: limit + 1 };
        let permit = self.0.list_permit(caller).await?;
        let mut found = self.0.store.failed_deliveries(&query).await?;
        drop(permit);
        let more = found.len() > limit;
        found.truncate(limit);
        let next = found.last().filter(|_| more).map(FailedDelivery::cursor);
        let seen = found
            .into_iter()
            .filter(|failed| !own || caller.sees_task(&failed.row.owner, &failed.row.agent))
            .map(|failed| self.delivery_view(caller, failed))
            .collect();
        Ok(DeliveryPage { deliveries: seen, next, own })
    }

    /// The webhooks of a task, with the progress of their deliveries.
    pub async fn webhook_views(&self, caller: &Caller, task: &str) -> Result<Vec<WebhookView>, Error> {
        let operations = ("task.webhook.get", "admin.webhook.get");
        let row = self.allow_webhooks(caller, Action::Read, operations, task, "").await?;
        let found = self.0.store.webhook_progress(row.no).await?;
        let view = |found: crate::store::WebhookProgress| WebhookView {
            webhook: self.shown_webhook(caller, &row, &found.hook),
            has_token: decode_webhook(&found.hook).is_ok_and(|config| config.token.is_some()),
            id: found.hook.id,
            cursor: found.hook.cursor,
            last: row.seq.max(found.hook.cursor),
            attempts: found.attempts,
            due_at: found.due_at,
            in_progress: found.in_progress,
            reason: found.reason,
            failing_since: found.failing_since.filter(|since| since.0 != 0),
            dead: found.dead,
        };
        Ok(found.into_iter().map(view).collect())
    }

    /// Removes a webhook of a task of the caller, or of one that it may administer, with its pending deliveries.
    /// False if there is none of that id.
    pub async fn remove_webhook(&self, caller: &Caller, task: &str, id: &str) -> Result<bool, Error> {
        let operations = ("task.webhook.delete", "admin.webhook.delete");
        let below = format!("/webhooks/{id}");
        let row = self.allow_webhooks(caller, Action::Write, operations, task, &below).await?;
        Ok(self.0.store.delete_webhook(row.no, id).await?)
    }

    /// Replays or discards failed deliveries, by their ids; what became of each. Nothing is done where the caller may not
    /// do so, or is too fast for one of them.
    pub async fn act_on_deliveries(
        &self,
        caller: &Caller,
        act: DeliveryAct,
        ids: &[String],
    ) -> Result<Vec<DeliveryActResult>, Error> {
        if ids.len() > MAX_DELIVERIES_PER_ACT {
            let why = format!(
                "a request has at most {MAX_DELIVERIES_PER_ACT} deliveries (console.deliveries), this one has {}",
                ids.len()
            );
            return Err(Error::limit("console.deliveries", why));
        }
        let mut found = Vec::with_capacity(ids.len());
        for id in ids {
            let Some(named) = NamedDelivery::read(id) else {
                found.push(None);
                continue;
            };
            let below = format!("/webhooks/{}/{}", named.hook, named.seq);
            let row = self.allow_webhooks(caller, Action::Write, act.operations(), named.task, &below).await;
            match row {
                Ok(row) => found.push(Some((row.no, named))),
                Err(Error::NoSuchTask(_)) => found.push(None),
                Err(error) => return Err(error),
            }
        }
        let (store, now) = (&self.0.store, self.0.clock.now());
        let mut results = Vec::with_capacity(ids.len());
        for found in found {
            let Some((no, NamedDelivery { hook, seq, .. })) = found else {
                results.push(DeliveryActResult::NotFound);
                continue;
            };
            let done = match act {
                DeliveryAct::Replay => store.replay_delivery(no, hook, seq, now).await?,
                DeliveryAct::Discard => store.discard_delivery(no, hook, seq, now).await?,
            };
            results.push(if done { DeliveryActResult::Done } else { DeliveryActResult::Unchanged });
        }
        self.0.outbox.notify_one();
        Ok(results)
    }

    /// The row of a task whose webhooks the caller may read or change: its own, or one that it may administer.
    async fn allow_webhooks(
        &self,
        caller: &Caller,
        action: Action,
        (operation, admin_operation): (&'static str, &'static str),
        task: &str,
        below: &str,
    ) -> Result<TaskRow, Error> {
        let own = TaskId::parse(task).is_none() || !caller.may(action, AccessKind::Admin, ADMIN_WEBHOOKS);
        if own || self.0.find_own(caller, task).await? {
            self.allow_task(caller, action, operation, &format!("{task}{below}"))?;
            return self.0.find_row(caller, task).await;
        }
        let resource = format!("admin://tasks/{task}{below}");
        self.allow_admin(caller, action, ADMIN_WEBHOOKS, admin_operation, &resource)?;
        self.0.reach(caller, None, task).await
    }

    fn delivery_view(&self, caller: &Caller, failed: FailedDelivery) -> FailedDeliveryView {
        let FailedDelivery { row, hook, seq, attempts, due_at, in_progress, reason, at } = failed;
        FailedDeliveryView {
            id: delivery_id(row.id, &hook.id, seq),
            task: row.id,
            webhook: self.shown_webhook(caller, &row, &hook),
            webhook_id: hook.id,
            seq,
            attempts: (attempts > 0).then_some(attempts),
            due_at,
            in_progress,
            reason,
            since: (at.0 != 0).then_some(at),
            owner: row.owner,
            agent: row.agent,
        }
    }

    /// A webhook without its secrets. Who did not register it sees its address without user and query, which often are
    /// secrets, too.
    fn shown_webhook(&self, caller: &Caller, row: &TaskRow, hook: &Webhook) -> Option<WebhookConfig> {
        let mut config = decode_webhook(hook).ok()?.redacted();
        if !caller.sees(&row.owner) {
            config.url = self.redactor().text(&without_secrets(&config.url)).into_owned();
        }
        Some(config)
    }
}

/// A delivery as its id names it.
struct NamedDelivery<'a> {
    task: &'a str,
    hook: &'a str,
    seq: u64,
}

impl<'a> NamedDelivery<'a> {
    /// Reads what [`delivery_id`] wrote. A webhook's id may have dots in it.
    fn read(id: &'a str) -> Option<Self> {
        let (task, rest) = id.split_once('.')?;
        let (hook, seq) = rest.rsplit_once('.')?;
        let seq = seq.parse().ok().filter(|seq| (1..=i64::MAX as u64).contains(seq))?;
        TaskId::parse(task)?;
        Some(Self { task, hook, seq })
    }
}

/// A URL without what stands before the host's `@`, and without its query and fragment.
pub(super) fn without_secrets(url: &str) -> String {
    let begin = url.find("://").map_or(0, |at| at + 3);
    let end = url[begin..].find(['/', '?', '#']).map_or(url.len(), |at| begin + at);
    let host = url[begin..end].rfind('@').map_or(begin, |at| begin + at + 1);
    let cut = url[end..].find(['?', '#']).map_or(url.len(), |at| end + at);
    let hidden = if cut < url.len() { "?(hidden)" } else { "" };
    format!("{}{}{hidden}", &url[..begin], &url[host..cut])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_as_it_was_written() {
        let task = "019a8f2e-7d11-7c3a-9b1e-000000000007";
        for hook in ["w", "a.b", "1.2.", ".", "", "ä b"] {
            let id = delivery_id(TaskId::parse(task).unwrap(), hook, 12);
            let read = NamedDelivery::read(&id).unwrap();
            assert_eq!((read.task, read.hook, read.seq), (task, hook, 12));
        }
        for id in ["", "x", "x.y.1", &format!("{task}.w"), &format!("{task}.w.x"), &format!("{task}.w.0")] {
            assert!(NamedDelivery::read(id).is_none(), "{id}");
        }
        assert!(NamedDelivery::read(&format!("{task}.w.{}", u64::MAX)).is_none());
    }

    #[test]
    fn an_address_has_no_secrets() {
        for (url, shown) in [
            ("https://a.example/hook", "https://a.example/hook"),
            ("https://me:pass@a.example:8443/hook?key=1#x", "https://a.example:8443/hook?(hidden)"),
            ("https://a.example?key=1", "https://a.example?(hidden)"),
            ("https://a.example/x@y", "https://a.example/x@y"),
            ("https://u@v@a.example", "https://a.example"),
        ] {
            assert_eq!(without_secrets(url), shown);
        }
    }
}
