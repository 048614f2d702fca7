//! The reply command: adds a message to an existing task. It is the answer if the task has an open question.

use std::sync::Arc;

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::{
    DECIDE_AGAIN, check_id, moved_too_often,
    submit::{Submit, encode_webhook},
};
use crate::{
    access::Caller,
    clock::Timestamp,
    content::Message,
    engine::EngineCore,
    error::Error,
    event::{Entry, Event, QuestionAnswer, Status},
    journal::JournalEntry,
    question::{Answer, Question},
    store::{Change, Precondition, RunChange, TaskRow, Webhook},
    task::{Task, state_while_asking},
    task_header::TaskHeader,
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
    fn idempotency_record(&self) -> Option<JournalEntry> {
        let key = self.idempotency_key.clone()?;
        // As in `Submit::digest`: serializing these types cannot fail.
        let what = serde_json::to_vec(&(&self.context, &self.message)).unwrap_or_default();
        Some(JournalEntry::Heard { key, digest: BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(what)) })
    }
}

impl EngineCore {
    pub(crate) async fn reply(self: &Arc<Self>, caller: &Caller, reply: Reply) -> Result<Task, Error> {
        let (task, answered) = self.hear_reply(caller, reply).await?;
        if let Some((row, question, answer)) = answered {
            self.answer_parent(&row, question, answer);
        }
        Ok(task)
    }

    /// Answers exactly this question of this task. `Error::NotAsked` if it is not open.
    ///
    /// `passes_up`: the calling task relays this question and gets the same answer. False if the answer comes
    /// from there.
    pub(crate) async fn answer(
        self: &Arc<Self>,
        caller: &Caller,
        task: &str,
        question: &str,
        answer: &Answer,
        passes_up: bool,
    ) -> Result<Task, Error> {
        let reply = Reply {
            task: task.to_owned(),
            context: None,
            message: answer.message(question),
            idempotency_key: None,
            webhooks: vec![],
        };
        let (task, answered) = self.hear_reply(caller, reply).await?;
        if let Some((row, question, answer)) = answered.filter(|_| passes_up) {
            self.answer_parent(&row, question, answer);
        }
        Ok(task)
    }

    async fn hear_reply(
        self: &Arc<Self>,
        caller: &Caller,
        mut reply: Reply,
    ) -> Result<(Task, Option<ReplyAnswer>), Error> {
        if self.is_closing() {
            return Err(super::submit::stopping());
        }
        self.name(&mut reply.message, reply.idempotency_key.as_deref());
        for _ in 0..DECIDE_AGAIN {
            if let Some(done) = self.try_reply(caller, &reply).await? {
                return Ok(done);
            }
        }
        Err(moved_too_often())
    }

    /// `Ok(None)`: the task has changed meanwhile.
    async fn try_reply(
        self: &Arc<Self>,
        caller: &Caller,
        reply: &Reply,
    ) -> Result<Option<(Task, Option<ReplyAnswer>)>, Error> {
        let opened = self.find(caller, &reply.task).await?;
        let row = &opened.row;
        let mut task = self.fold(&opened).await?;
        let heard = reply.idempotency_record();
        // A repeat changes nothing, also if the task has meanwhile continued, asked something else, or ended.
        if self.options.idempotent_message_ids && task.history.iter().any(|m| m.id == reply.message.id) {
            return Ok(Some((task, None)));
        }
        if let Some(heard) = &heard
            && self.is_repeat(row, heard).await?
        {
            return Ok(Some((task, None)));
        }
        self.check_reply(&task, row, reply)?;
        let now = self.clock.now();
        let MessageEffect { entries, answered } = apply_message(&task, &reply.message, now)?;
        if answered.is_none() {
            self.check_room(&task, row, &reply.message)?;
        }
        for webhook in &reply.webhooks {
            let hook = Webhook { cursor: row.seq, ..encode_webhook(webhook) };
            self.store_webhook(row, &hook, self.options.limits.webhooks_per_task).await?;
        }
        let before = (task.state, task.status_at);
        for entry in &entries {
            task.apply(entry);
        }
        let mut change =
            Change::new(Precondition::Version { task: row.no, version: row.version }).of_owner(&row.owner);
        change.state = Some((task.state, task.status_at)).filter(|after| *after != before);
        change.journal.extend(heard.as_ref().map(JournalEntry::encode));
        if let Some((question, answer)) = &answered {
            let record = JournalEntry::Answered { question: question.clone(), answer: answer.clone() };
            change.journal.push(record.encode());
            if row.node.is_none() {
                change.run = RunChange::Due(now);
            }
        }
        if self.decide(change, entries, &reply.task).await?.is_none() {
            return Ok(None);
        }
        match &answered {
            Some((question, answer)) => self.deliver_answer(row, question.clone(), answer.clone()),
            // An agent that receives messages while it works gets it now.
            None => drop(self.local_run(row.id).map(|run| run.notify_external_write())),
        }
        let answered = answered.map(|(question, answer)| (opened.row, question, answer));
        Ok(Some((task, answered)))
    }

    /// Whether this very message was received before. A message received since the row was read makes the
    /// commit fail; the retry then finds it.
    async fn is_repeat(&self, row: &TaskRow, heard: &JournalEntry) -> Result<bool, Error> {
        let JournalEntry::Heard { key, .. } = heard else { return Ok(false) };
        for record in self.store.journal(row.no).await? {
            match JournalEntry::decode(&record)? {
                before @ JournalEntry::Heard { .. } if before == *heard => return Ok(true),
                JournalEntry::Heard { key: used, .. } if used == *key => return Err(Error::KeyReused),
                _ => {}
            }
        }
        Ok(false)
    }

    fn check_reply(&self, task: &Task, row: &TaskRow, reply: &Reply) -> Result<(), Error> {
        if let Some(context) = reply.context.as_ref().filter(|context| **context != row.context) {
            return Err(Error::Invalid(format!(
                "contextId: task {} belongs to context {}, not to {context}",
                reply.task, row.context
            )));
        }
        if task.state.is_terminal() {
            return Err(Error::Ended(task.state));
        }
        let limit = self.options.limits.messages_per_task;
        if task.history.len() >= limit {
            return Err(Error::Limit(format!("messages_per_task: a task has at most {limit} messages")));
        }
        check_id("messageId", &reply.message.id, &self.options.limits)?;
        if let Some(key) = &reply.idempotency_key {
            check_id("idempotency key", key, &self.options.limits)?;
        }
        match self.catalog.get(&row.agent) {
            Ok(registered) => {
                for webhook in &reply.webhooks {
                    self.check_webhook(&registered.profile, webhook)?;
                }
                self.check_message(&reply.message, &registered.profile)
            }
            Err(_) => Ok(()),
        }
    }

    /// Whether the log has room for a message that is not an answer.
    fn check_room(&self, task: &Task, row: &TaskRow, message: &Message) -> Result<(), Error> {
        let limits = &self.options.limits;
        if row.seq >= limits.events_per_task {
            return Err(Error::Limit(format!(
                "events_per_task: a task has at most {} events",
                limits.events_per_task
            )));
        }
        // The message that created the task is counted in the header.
        let said: usize = task.history.iter().skip(1).map(Message::size).sum();
        let held = TaskHeader::decode(&row.head)?.bytes + (said + message.size()) as u64;
        if held > limits.bytes_per_task {
            return Err(Error::Limit(format!(
                "bytes_per_task: a task holds at most {} bytes",
                limits.bytes_per_task
            )));
        }
        Ok(())
    }

    /// Passes the answer to the run, if there was one when it was committed; otherwise the task is due to be
    /// run.
    fn deliver_answer(&self, row: &TaskRow, question: String, answer: Answer) {
        match row.node {
            None => self.due(&row.owner, self.clock.now()),
            Some(_) => {
                if let Some(run) = self.local_run(row.id) {
                    run.answered(question, answer);
                }
            }
        }
    }
}

/// A question that a reply has answered, and the task's row before it.
type ReplyAnswer = (TaskRow, String, Answer);

/// The effect of a message on a task.
pub(super) struct MessageEffect {
    pub(super) entries: Vec<Entry>,
    /// The question that it answers, with the answer.
    pub(super) answered: Option<(String, Answer)>,
}

/// Decides the effect of a message on a task that has not ended.
pub(super) fn apply_message(task: &Task, message: &Message, now: Timestamp) -> Result<MessageEffect, Error> {
    let said = Entry(now, Event::Message(message.clone()));
    let Some(question) = asked(task, message)? else {
        return Ok(MessageEffect { entries: vec![said], answered: None });
    };
    let answer = question.read_answer(message)?;
    let id = question.id.clone();
    let more = task.questions.len() > 1;
    let answered = Event::Answer(QuestionAnswer { question: id.clone(), answer: answer.clone(), more });
    let next = next_question(task, &id).map(|status| Entry(now, Event::Status(status)));
    // The message comes last: the answer moves the question to the history, and the question came first.
    let entries = std::iter::once(Entry(now, answered)).chain(next).chain([said]).collect();
    Ok(MessageEffect { entries, answered: Some((id, answer)) })
}

/// The question that a message answers: the one it names, else the oldest.
fn asked<'a>(task: &'a Task, message: &Message) -> Result<Option<&'a Question>, Error> {
    let named = message.data().and_then(|data| data.get("questionId")).and_then(Value::as_str);
    match named {
        None => Ok(task.questions.first().map(|(_, question)| question)),
        Some(id) => match task.questions.iter().find(|(_, question)| question.id == id) {
            Some((_, question)) => Ok(Some(question)),
            None => Err(Error::NotAsked(id.to_owned())),
        },
    }
}

/// The status that shows the next open question, after the current one was answered or withdrawn.
pub(super) fn next_question(task: &Task, answered: &str) -> Option<Status> {
    let [(_, shown), (seq, next), ..] = &task.questions[..] else { return None };
    let message = next.message(&task.origin.public_id(), *seq);
    (shown.id == answered).then(|| Status { state: state_while_asking(next), message: Some(message) })
}
