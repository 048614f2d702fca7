//! The reply command: adds a message to an existing task. It is the answer if the task has an open question.

use std::sync::Arc;

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use sha2::{Digest as _, Sha256};

use super::{
    DECIDE_AGAIN, moved_too_often,
    reply_decision::{ReplyRules, decide_reply},
    submit::Submit,
};
use crate::{
    access::{Caller, tenant_of},
    authorization::answered_by,
    content::Message,
    engine::EngineCore,
    error::Error,
    journal::JournalEntry,
    question::Answer,
    sent_by::SentBy,
    task::Task,
    usage::MeteredResource,
    webhook::WebhookConfig,
};

/// A message to an existing task.
#[derive(Debug, Clone)]
pub struct Reply {
    /// The task's id, or the id that its owner chose.
    pub task: String,
    /// The conversation to which the task must belong, if given.
    pub context: Option<String>,
    /// The message to add.
    pub message: Message,
    /// The idempotency key, which is scoped to the task. A repeat of the message under it adds no second
    /// message; another message under it is refused.
    pub idempotency_key: Option<String>,
    /// Webhooks to register with the message.
    pub webhooks: Vec<WebhookConfig>,
}

impl Reply {
    /// The message of a submit, for the existing task that has the chosen id.
    pub(crate) fn to_chosen_id(submit: &Submit, id: &str) -> Self {
        Self {
            task: id.to_owned(),
            context: submit.context.clone(),
            message: submit.message.clone(),
            idempotency_key: submit.idempotency_key.clone(),
            webhooks: submit.webhooks.clone(),
        }
    }

    /// The record by which a repeat is recognized.
    pub(super) fn idempotency_record(&self) -> Option<JournalEntry> {
        let key = self.idempotency_key.clone()?;
        // As in `Submit::digest`: serializing these types cannot fail.
        let what = serde_json::to_vec(&(&self.context, &self.message)).unwrap_or_default();
        Some(JournalEntry::Heard { key, digest: BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(what)) })
    }
}

impl EngineCore {
    pub(crate) async fn reply(self: &Arc<Self>, caller: &Caller, reply: Reply) -> Result<Task, Error> {
        self.receive_reply(caller, reply, true, None).await
    }

    /// Answers exactly this question of this task. `Error::NotAsked` if it is not open.
    ///
    /// `passes_up`: the calling task relays this question and gets the same answer. False if the answer comes
    /// from there. `by`: who gave the answer; `None`: the caller.
    pub(crate) async fn answer(
        self: &Arc<Self>,
        caller: &Caller,
        task: &str,
        question: &str,
        answer: &Answer,
        passes_up: bool,
        by: Option<Box<SentBy>>,
    ) -> Result<Task, Error> {
        let reply = Reply {
            task: task.to_owned(),
            context: None,
            message: answer.message(question),
            idempotency_key: None,
            webhooks: vec![],
        };
        self.receive_reply(caller, reply, passes_up, by).await
    }

    /// Like [`EngineCore::answer`], for an answer that does not come from the task's client. The history says whose it
    /// is, and the log who sent it.
    pub(crate) async fn answer_past_client(
        self: &Arc<Self>,
        caller: &Caller,
        task: &str,
        question: &str,
        answer: &Answer,
        (whose, by): (&str, SentBy),
    ) -> Result<Task, Error> {
        let message = Message { metadata: Some(answered_by(whose)), ..answer.message(question) };
        let reply =
            Reply { task: task.to_owned(), context: None, message, idempotency_key: None, webhooks: vec![] };
        self.receive_reply(caller, reply, true, Some(Box::new(by))).await
    }

    async fn receive_reply(
        self: &Arc<Self>,
        caller: &Caller,
        mut reply: Reply,
        passes_up: bool,
        by: Option<Box<SentBy>>,
    ) -> Result<Task, Error> {
        if self.is_closing() {
            return Err(super::submit::stopping());
        }
        self.name(&mut reply.message, reply.idempotency_key.as_deref());
        let mut webhooks_counted = reply.webhooks.is_empty();
        for _ in 0..DECIDE_AGAIN {
            let opened = self.find(caller, &reply.task).await?;
            let row = &opened.row;
            let mut task = self.fold(&opened).await?;
            let journal = match &reply.idempotency_key {
                Some(_) => self.store.journal(row.no).await?,
                None => vec![],
            };
            let journal = journal.iter().map(JournalEntry::decode).collect::<Result<Vec<_>, _>>()?;
            let registered = self.catalog.get(&row.agent).ok();
            let rules = ReplyRules {
                limits: &self.options.limits,
                idempotent_message_ids: self.options.idempotent_message_ids,
                profile: registered.as_ref().map(|registered| &*registered.profile),
                webhook_policy: &*self.check_webhook,
                passes_up,
                by: by.clone().unwrap_or_else(|| Box::new(SentBy::of(caller, &row.owner))),
            };
            let now = self.clock.now();
            let Some(decision) = decide_reply(&rules, row, &mut task, &journal, &reply, now)? else {
                return Ok(task);
            };
            if !webhooks_counted {
                let amount = reply.webhooks.len() as u64;
                self.usage.accept_stored(tenant_of(&row.owner), MeteredResource::Webhooks, amount)?;
                webhooks_counted = true;
            }
            if self.commit_command(&task.origin, &reply.task, decision).await?.is_some() {
                return Ok(task);
            }
        }
        Err(moved_too_often())
    }
}
