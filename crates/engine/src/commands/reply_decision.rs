//! The decision on a reply: what a message does to the task as it was read. No IO.

use serde_json::Value;

use super::{
    check_id,
    reply::Reply,
    submit::{check_message, encode_webhook},
    webhooks::check_webhook,
};
use crate::{
    agent::Profile,
    clock::Timestamp,
    commit::{Decision, Effect},
    content::Message,
    engine::{Limits, WebhookCheck},
    error::Error,
    event::{Entry, Event, QuestionAnswer, Status},
    journal::JournalEntry,
    question::{Answer, Question, QuestionOutcome},
    sent_by::SentBy,
    store::{AddedWebhooks, RunChange, TaskRow, Webhook},
    task::{Task, state_while_asking},
    task_header::TaskHeader,
};

/// What a reply is checked against.
pub(super) struct ReplyRules<'a> {
    pub(super) limits: &'a Limits,
    /// Whether a repeated message id is a repeat of the message.
    pub(super) idempotent_message_ids: bool,
    /// The profile of the task's agent; `None` if this node does not serve it.
    pub(super) profile: Option<&'a Profile>,
    pub(super) webhook_policy: &'a WebhookCheck,
    /// Whether a calling task that relays the question gets the same answer. False if the answer comes from there.
    pub(super) passes_up: bool,
    /// The sender, whom the events name.
    pub(super) by: Box<SentBy>,
}

/// Decides on a reply. `Ok(None)`: the task has received this message before, and does not change.
///
/// `journal`: the task's journal, if the reply has an idempotency key. A message that arrived after it was read makes the
/// commit fail; the next decision then finds it.
pub(super) fn decide_reply(
    rules: &ReplyRules<'_>,
    row: &TaskRow,
    task: &mut Task,
    journal: &[JournalEntry],
    reply: &Reply,
    now: Timestamp,
) -> Result<Option<Decision>, Error> {
    let heard = reply.idempotency_record();
    // A repeat changes nothing, also if the task has meanwhile continued, asked something else, or ended.
    if rules.idempotent_message_ids && task.history.iter().any(|m| m.id == reply.message.id) {
        return Ok(None);
    }
    if let Some(heard) = &heard
        && is_repeat(journal, heard)?
    {
        return Ok(None);
    }
    check_reply(rules, task, row, reply)?;
    let MessageEffect { entries, answered } = apply_message(task, &reply.message, &rules.by, now)?;
    if answered.is_none() {
        check_room(rules.limits, task, row, &reply.message)?;
    }
    let mut decision = Decision::on(row, task, entries);
    let Decision { change, effects, .. } = &mut decision;
    change.journal.extend(heard.as_ref().map(JournalEntry::encode));
    if !reply.webhooks.is_empty() {
        let hooks = reply.webhooks.iter().map(|hook| Webhook { cursor: row.seq, ..encode_webhook(hook) });
        change.webhooks = Some(AddedWebhooks { hooks: hooks.collect(), cap: rules.limits.webhooks_per_task });
        effects.push(Effect::WatchWebhooks);
    }
    let Some((question, answer)) = answered else {
        // An agent that receives messages while it works gets it now.
        effects.push(Effect::NotifyRun);
        return Ok(Some(decision));
    };
    let record = JournalEntry::Answered { question: question.clone(), answer: answer.clone() };
    change.journal.push(record.encode());
    // Without a run, the task is due to be run. The precondition covers that as well.
    if row.node.is_none() {
        change.run = RunChange::Due(now);
        effects.push(Effect::Due(now));
    } else {
        let outcome = QuestionOutcome::Answered(answer.clone());
        effects.push(Effect::EndQuestion { question: question.clone(), outcome });
    }
    if let Some(parent) = row.parent.filter(|_| rules.passes_up) {
        effects.push(Effect::AnswerCaller { parent, question, answer, by: Some(rules.by.clone()) });
    }
    Ok(Some(decision))
}

/// Whether this very message was received before.
fn is_repeat(journal: &[JournalEntry], heard: &JournalEntry) -> Result<bool, Error> {
    let JournalEntry::Heard { key, .. } = heard else { return Ok(false) };
    for before in journal {
        match before {
            before if before == heard => return Ok(true),
            JournalEntry::Heard { key: used, .. } if used == key => return Err(Error::KeyReused),
            _ => {}
        }
    }
    Ok(false)
}

fn check_reply(rules: &ReplyRules<'_>, task: &Task, row: &TaskRow, reply: &Reply) -> Result<(), Error> {
    if let Some(context) = reply.context.as_ref().filter(|context| **context != row.context) {
        return Err(Error::Invalid(format!(
            "contextId: task {} belongs to context {}, not to {context}",
            reply.task, row.context
        )));
    }
    if let Some(reason) = unanswered(task, row)? {
        return Err(Error::Unanswered(reason));
    }
    if task.state.is_terminal() {
        return Err(Error::Ended(task.state));
    }
    let limit = rules.limits.messages_per_task;
    if task.history.len() >= limit {
        return Err(Error::limit(
            "limits.messages-per-task",
            format!("limits.messages-per-task: a task has at most {limit} messages"),
        ));
    }
    check_id("messageId", &reply.message.id, rules.limits)?;
    if let Some(key) = &reply.idempotency_key {
        check_id("idempotency key", key, rules.limits)?;
    }
    let Some(profile) = rules.profile else { return Ok(()) };
    for webhook in &reply.webhooks {
        check_webhook(profile, webhook, rules.limits, rules.webhook_policy)?;
    }
    check_message(&reply.message, profile, rules.limits)
}

/// Why the task takes no answer any more, if its question was open for too long: it has ended for that, or is being
/// stopped.
fn unanswered(task: &Task, row: &TaskRow) -> Result<Option<String>, Error> {
    match task.unanswered() {
        None if row.cancel && !task.state.is_terminal() => Ok(TaskHeader::decode(&row.head)?.unanswered),
        reason => Ok(reason),
    }
}

/// Whether the log has room for a message that is not an answer.
fn check_room(limits: &Limits, task: &Task, row: &TaskRow, message: &Message) -> Result<(), Error> {
    if row.seq >= limits.events_per_task {
        return Err(Error::limit(
            "limits.events-per-task",
            format!("limits.events-per-task: a task has at most {} events", limits.events_per_task),
        ));
    }
    // The message that created the task is counted in the header.
    let said: usize = task.history.iter().skip(1).map(Message::size).sum();
    let held = TaskHeader::decode(&row.head)?.bytes + (said + message.size()) as u64;
    if held > limits.bytes_per_task {
        return Err(Error::limit(
            "limits.bytes-per-task",
            format!("limits.bytes-per-task: a task holds at most {} bytes", limits.bytes_per_task),
        ));
    }
    Ok(())
}

/// The effect of a message on a task.
pub(super) struct MessageEffect {
    pub(super) entries: Vec<Entry>,
    /// The question that it answers, with the answer.
    pub(super) answered: Option<(String, Answer)>,
}

/// Decides the effect of a message on a task that has not ended. Its sender is named once: by the answer, if it is one.
pub(super) fn apply_message(
    task: &Task,
    message: &Message,
    by: &SentBy,
    now: Timestamp,
) -> Result<MessageEffect, Error> {
    let by = Some(Box::new(by.clone()));
    let Some(question) = asked(task, message)? else {
        let said = Entry(now, Event::Message(Message { by, ..message.clone() }));
        return Ok(MessageEffect { entries: vec![said], answered: None });
    };
    let said = Entry(now, Event::Message(Message { by: None, ..message.clone() }));
    let answer = question.read_answer(message)?;
    let id = question.id.clone();
    let more = task.questions.len() > 1;
    let answered = Event::Answer(QuestionAnswer { question: id.clone(), answer: answer.clone(), more, by });
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
    (shown.id == answered).then(|| Status {
        state: state_while_asking(next),
        message: Some(message),
        by: None,
    })
}
