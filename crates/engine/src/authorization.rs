//! Callbacks: addresses at which an authorization is completed without a message of the client (A2A 1.0 §7.6.1).
//!
//! The address holds a ticket: the task and the question, sealed with a key of the database. So it cannot be guessed, is
//! the same on all nodes and after a restart, and nothing is stored for it. A ticket is good for one use: it answers its
//! question, and a question is answered once. The address is the permission. It is shown where the question is, to the
//! caller that could answer with a message as well.

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;

use crate::{
    access::{AccessKind, Action, Caller, TASKS, tenant_of},
    access_control::AccessRequest,
    engine::{Engine, EngineCore},
    error::Error,
    question::{Answer, Ask, Question},
    sent_by::SentBy,
    store::{OpenedTask, TaskKey},
    task::{Task, TaskId},
    task_header::TaskHeader,
};

/// The path of all callbacks, below the server's address.
pub const CALLBACK_PATH: &str = "/authorizations/";
/// What the key of the tickets is derived for.
const PURPOSE: &str = "authorization callbacks";
/// The length of a task's id in a ticket.
const ID_BYTES: usize = 16;

impl EngineCore {
    /// The address at which an authorization is completed; `None` if the server has no address.
    pub(crate) fn authorization_callback(&self, task: TaskId, question: &str) -> Option<String> {
        let base = self.catalog.surface().base_url();
        (!base.is_empty()).then(|| format!("{base}{CALLBACK_PATH}{}", self.seal_ticket(task, question)))
    }

    fn seal_ticket(&self, task: TaskId, question: &str) -> String {
        let payload = [task.0.as_bytes(), question.as_bytes()].concat();
        let seal = self.ticket_mac(&payload).finalize().into_bytes();
        let [payload, seal] = [&payload[..], &seal[..]].map(|bytes| BASE64_URL_SAFE_NO_PAD.encode(bytes));
        format!("{payload}.{seal}")
    }

    /// The task and the question of a ticket; `None` if this server did not issue it. Reads no store, so that guessing
    /// costs the server little and shows nothing.
    fn open_ticket(&self, ticket: &str) -> Option<(TaskId, String)> {
        let (payload, seal) = ticket.split_once('.')?;
        let payload = BASE64_URL_SAFE_NO_PAD.decode(payload).ok()?;
        let seal = BASE64_URL_SAFE_NO_PAD.decode(seal).ok()?;
        self.ticket_mac(&payload).verify_slice(&seal).ok()?;
        let (id, question) = payload.split_at_checked(ID_BYTES)?;
        let id = uuid::Uuid::from_slice(id).ok()?;
        Some((TaskId(id), String::from_utf8(question.to_vec()).ok()?))
    }

    #[allow(clippy::expect_used, reason = "HMAC takes keys of every length")]
    fn ticket_mac(&self, payload: &[u8]) -> Hmac<Sha256> {
        let key = self.master_key.derive(PURPOSE);
        let mut mac = Hmac::<Sha256>::new_from_slice(&key).expect("any length");
        mac.update(payload);
        mac
    }

    /// The task of a ticket and its question, which is open.
    async fn find_by_ticket(&self, ticket: &str) -> Result<(OpenedTask, Task, Question), Error> {
        let (task, id) =
            self.open_ticket(ticket).ok_or_else(|| Error::NoSuchTask("of this address".into()))?;
        let Some(opened) = self.store.open(&TaskKey::Id(task)).await? else {
            return Err(Error::NotAsked(id));
        };
        self.admin.check_open(tenant_of(&opened.row.owner))?;
        let task = self.fold(&opened).await?;
        match task.questions.iter().find(|(_, question)| question.id == id) {
            Some((_, question)) => {
                let question = question.clone();
                Ok((opened, task, question))
            }
            None => Err(Error::NotAsked(id)),
        }
    }
}

impl Engine {
    /// The question that a callback answers, for the page that a person sees there. Changes nothing.
    ///
    /// [`Error::NoSuchTask`] if this server did not issue the ticket, [`Error::NotAsked`] if it was used, or its
    /// question was answered in another way.
    pub async fn authorization(&self, ticket: &str) -> Result<Question, Error> {
        self.0.find_by_ticket(ticket).await.map(|(_, _, question)| question)
    }

    /// Accepts the authorization of a callback, once. The task continues without a message of its client.
    ///
    /// Errors are those of [`Engine::authorization`].
    pub async fn complete_authorization(&self, ticket: &str) -> Result<(), Error> {
        let (opened, task, question) = self.0.find_by_ticket(ticket).await?;
        let row = &opened.row;
        let caller = TaskHeader::decode(&row.head)?.caller(&row.owner);
        // Noted, not checked: the grants of the token that created the task do not matter, the address does.
        self.note_authorization(&caller, row.id)?;
        let (task, accepted) = (task.origin.id.to_string(), Answer::Accept(json!({})));
        let whose = ("callback", SentBy::owner_over("callback"));
        match self.0.answer_past_client(&caller, &task, &question.id, &accepted, whose).await {
            Ok(_) => Ok(()),
            Err(Error::Ended(_) | Error::Unanswered(_) | Error::NoSuchTask(_)) => {
                Err(Error::NotAsked(question.id))
            }
            Err(error) => Err(error),
        }
    }

    fn note_authorization(&self, caller: &Caller, task: TaskId) -> Result<(), Error> {
        let resource = format_args!("a2a://tasks/{task}");
        let (action, kind, operation) = (Action::Write, AccessKind::A2a, "task.authorize");
        let access = AccessRequest { action, kind, name: TASKS, operation, resource: &resource };
        self.0.guard.note(caller, &access, None, self.clock().now())
    }
}

/// The open authorization of a task that an answer without a message is for: the one of that id, else the oldest.
pub(crate) fn open_authorization<'a>(task: &'a Task, id: Option<&str>) -> Result<&'a Question, Error> {
    let mut open = task.questions.iter().map(|(_, question)| question);
    let found = open.find(|question| {
        matches!(question.ask, Ask::Authorization { .. }) && id.is_none_or(|id| id == question.id)
    });
    found.ok_or_else(|| Error::NoAuthorization { task: task.origin.id.to_string(), state: task.state })
}

/// The attributes of an answer that did not come from the task's client.
pub(crate) fn answered_by(whom: &str) -> serde_json::Map<String, Value> {
    [("nuncio/answeredBy".to_owned(), whom.into())].into_iter().collect()
}
