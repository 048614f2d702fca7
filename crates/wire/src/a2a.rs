//! The A2A dialects as pairs of conversions between wire JSON and the engine's types.
//!
//! Three generations of one protocol differ in spelling far more than in substance. Each *thing* (a part, a
//! message, a task, an event, a call …) therefore has one file with both directions, in which the differences
//! between the dialects stand side by side. What a dialect cannot express is listed in its own module: [`v0_1`],
//! [`v0_3`], [`v1`]. The round-trip tests normalize by those lists and by nothing else.
//!
//! A server reads calls and writes tasks, events and faults; a client writes calls and reads the rest.

mod artifact;
mod call;
pub mod card;
pub mod card_signature;
mod event;
mod fault;
mod grpc;
mod input;
mod message;
mod method;
mod params;
mod part;
mod request;
mod rest;
mod status;
mod stream;
mod task;
pub mod v0_1;
pub mod v0_3;
pub mod v1;
mod webhook;

pub use call::{A2aCall, ListTasks, SendMessage};
pub use event::A2aFrame;
pub use fault::{A2aFault, A2aProblem};
pub use grpc::GrpcMethod;
pub use input::MalformedInput;
pub use message::AddressedMessage;
pub use method::{DialectChoice, DialectRefusal, choose_dialect};
use nuncio_engine::{
    content::Message,
    event::{Entry, Event},
    task::{State, Task},
    webhook::WebhookConfig,
};
pub use rest::{RestOperation, RestRequest};
use serde_json::value::RawValue;
pub use stream::{ArtifactUpdate, StatusUpdate, StreamEvent};
pub use task::{TaskDetail, TaskView, write_resource as write_task_resource};

use crate::json;

/// A generation of A2A, ordered by age. 0.2 is treated as 0.3. Code asks for the generation in which something
/// appeared (`dialect >= Dialect::V1`), so that a later one has it, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dialect {
    /// The first: the client chooses the task id, parts have a `type`.
    V0_1,
    /// Objects have a `kind`.
    V0_3,
    /// ProtoJSON.
    V1,
}

/// The ids of a task on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskIds<'a> {
    /// The task's public id.
    pub task: &'a str,
    /// The conversation that it belongs to.
    pub context: &'a str,
}

/// One page of a list of tasks.
#[derive(Debug, Clone, Copy)]
pub struct TaskListPage<'a> {
    /// The tasks of this page, in order.
    pub tasks: &'a [Task],
    /// How much of each task is written.
    pub view: TaskDetail,
    /// The requested page size.
    pub page_size: usize,
    /// The number of tasks on all pages.
    pub total: u64,
    /// The token of the next page; `None` on the last.
    pub next: Option<&'a str>,
}

impl Dialect {
    /// All dialects, oldest first.
    pub const ALL: [Self; 3] = [Self::V0_1, Self::V0_3, Self::V1];

    /// The name stored with tasks that were created in this dialect.
    pub fn name(self) -> &'static str {
        match self {
            Self::V0_1 => "a2a/0.1",
            Self::V0_3 => "a2a/0.3",
            Self::V1 => "a2a/1.0",
        }
    }

    /// The dialect of a stored name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dialect| dialect.name() == name)
    }

    /// The version as in `A2A-Version` and in cards.
    pub fn version(self) -> &'static str {
        &self.name()["a2a/".len()..]
    }

    /// The name of a state in this dialect, for texts about it.
    pub fn state_name(self, state: State) -> &'static str {
        status::state_name(self, state)
    }

    // The server's side.

    /// Reads a request.
    pub fn read_call(self, method: &str, params: Option<&RawValue>) -> Result<A2aCall, A2aFault> {
        params::read(self, method, params)
    }

    /// The `tenant` that the params of a call name. Only 1.0 has one.
    pub fn tenant(self, params: Option<&RawValue>) -> Result<Option<String>, A2aFault> {
        match params.filter(|_| self >= Self::V1) {
            Some(params) => params::read_tenant(params.get()).map_err(|malformed| self.malformed(&malformed)),
            None => Ok(None),
        }
    }

    /// Writes a task: the result of get and cancel.
    pub fn write_task(self, out: &mut Vec<u8>, task: &Task, view: TaskDetail) {
        task::write(out, self, task, view);
    }

    /// Writes the result of sending a message: the task, or the message with which the agent answered.
    pub fn write_sent(self, out: &mut Vec<u8>, task: &Task, view: TaskDetail) {
        if let Some(message) = task.reply() {
            self.write_reply(out, &task.origin.context, message);
        } else if self >= Self::V1 {
            json::object(out, |shell| task::write(shell.key("task"), self, task, view));
        } else {
            task::write(out, self, task, view);
        }
    }

    /// Writes an answer that is a message without a task: the result of a send, and the only frame of a stream.
    pub fn write_reply(self, out: &mut Vec<u8>, context: &str, message: &Message) -> A2aFrame {
        let ids = message::MessageIds { task: None, context: Some(context) };
        if self >= Self::V1 {
            json::object(out, |shell| message::write(shell.key("message"), self, ids, message));
        } else {
            message::write(out, self, ids, message);
        }
        A2aFrame { ends_stream: true, ends_turn: true }
    }

    /// Writes the first frame of a stream: the current task. 0.1 has only updates: there it is a status update.
    ///
    /// If the task has ended or waits for the caller, nothing may follow, and the frame marks that.
    pub fn write_stream_start(self, out: &mut Vec<u8>, task: &Task, view: TaskDetail) -> A2aFrame {
        let frame = A2aFrame::for_state(self, task.state);
        if self == Self::V0_1 {
            let id = task.origin.public_id();
            let ids = TaskIds { task: &id, context: &task.origin.context };
            event::write_status(out, self, ids, frame.ends_stream, |out| {
                task::write_status(out, self, ids, task);
            });
        } else {
            self.write_sent(out, task, view);
        }
        frame
    }

    /// Writes an event of a stream. `None`: it has no frame in this dialect, and nothing was written.
    ///
    /// The same event at the same position always gives the same bytes.
    pub fn write_event(
        self,
        out: &mut Vec<u8>,
        ids: &TaskIds<'_>,
        seq: u64,
        entry: &Entry,
    ) -> Option<A2aFrame> {
        event::write(out, self, *ids, seq, entry)
    }

    /// As [`Self::write_event`], but log lines have a frame too (`card::LOG_EXTENSION`).
    pub fn write_event_or_log(
        self,
        out: &mut Vec<u8>,
        ids: &TaskIds<'_>,
        seq: u64,
        entry: &Entry,
    ) -> Option<A2aFrame> {
        match entry.event() {
            Event::Log(line) => Some(event::write_log(out, self, *ids, seq, (entry.at(), line))),
            _ => event::write(out, self, *ids, seq, entry),
        }
    }

    /// Writes a page of tasks.
    pub fn write_list(self, out: &mut Vec<u8>, page: &TaskListPage<'_>) {
        json::object(out, |list| {
            list.array("tasks", page.tasks, |out, task| task::write_listed(out, self, task, page.view));
            list.value("nextPageToken", page.next.unwrap_or_default());
            list.value("pageSize", &page.page_size);
            list.value("totalSize", &page.total);
        });
    }

    /// Writes a webhook, without its secrets.
    pub fn write_webhook(self, out: &mut Vec<u8>, task: &str, config: &WebhookConfig) {
        webhook::write(out, self, task, config, webhook::SecretVisibility::Kept);
    }

    /// Writes a page of webhooks, without their secrets.
    pub fn write_webhooks(
        self,
        out: &mut Vec<u8>,
        task: &str,
        configs: &[WebhookConfig],
        next: Option<&str>,
    ) {
        let write = |out: &mut Vec<u8>, config| self.write_webhook(out, task, config);
        match self {
            Self::V0_1 | Self::V0_3 => json::array(out, configs, write),
            Self::V1 => json::object(out, |list| {
                list.array("configs", configs, write);
                list.value("nextPageToken", next.unwrap_or_default());
            }),
        }
    }

    /// Writes the result of deleting a webhook.
    pub fn write_deleted(self, out: &mut Vec<u8>) {
        out.extend_from_slice(if self >= Self::V1 { b"{}" } else { b"null" });
    }

    /// Writes the webhook payload for an event and returns its media type. `None`: this event is not sent.
    ///
    /// `task` is the task as of this event. Up to 0.3 a webhook gets the task whenever a turn ends; since 1.0 it
    /// gets what a stream gets.
    pub fn push_body(self, out: &mut Vec<u8>, task: &Task, seq: u64, entry: &Entry) -> Option<&'static str> {
        if self >= Self::V1 {
            let id = task.origin.public_id();
            let ids = TaskIds { task: &id, context: &task.origin.context };
            return event::write(out, self, ids, seq, entry).map(|_| "application/a2a+json");
        }
        if !event::ends_turn(entry.event()) {
            return None;
        }
        task::write_pushed(out, self, task);
        Some("application/json")
    }

    // The client's side.

    /// Writes the params of a request and returns its method. `None`: the dialect has no such method, and nothing
    /// was written.
    pub fn write_call(self, out: &mut Vec<u8>, call: &A2aCall) -> Option<&'static str> {
        request::write(out, self, call)
    }

    /// Reads a task: the result of get and cancel, and the payload of older webhooks.
    pub fn read_task(self, json: &RawValue) -> Result<TaskView, MalformedInput> {
        let task: task::TaskIn<'_> = input::parse("result", json.get())?;
        task.read(self, input::JsonPath::Root("result"))
    }

    /// Reads the result of sending a message: a task, or a message if the agent created no task.
    pub fn read_sent(self, json: &RawValue) -> Result<StreamEvent, MalformedInput> {
        if self == Self::V0_1 {
            return self.read_task(json).map(|task| StreamEvent::Task(Box::new(task)));
        }
        stream::read(self, json.get())
    }

    /// Reads an item of a stream, or the payload of a 1.0 webhook.
    pub fn read_event(self, json: &RawValue) -> Result<StreamEvent, MalformedInput> {
        stream::read(self, json.get())
    }

    /// Reads a page of tasks.
    pub fn read_list(self, json: &RawValue) -> Result<TaskList, MalformedInput> {
        input::parse::<task::TaskListIn<'_>>("result", json.get())?
            .read(self, input::JsonPath::Root("result"))
    }

    /// Reads a webhook and the id of its task.
    pub fn read_webhook(self, json: &RawValue) -> Result<(String, WebhookConfig), MalformedInput> {
        input::parse::<webhook::WebhookIn>("result", json.get())?.read(self, input::JsonPath::Root("result"))
    }

    /// Reads a page of webhooks and the token of the next page.
    pub fn read_webhooks(
        self,
        json: &RawValue,
    ) -> Result<(Vec<WebhookConfig>, Option<String>), MalformedInput> {
        webhook::read_page(self, json.get())
    }
}

/// A page of tasks, as a client reads it.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskList {
    /// The tasks of this page, in order.
    pub tasks: Vec<TaskView>,
    /// The token of the next page; `None` on the last.
    pub next: Option<String>,
    /// The number of tasks on all pages, if the server reports it.
    pub total: Option<u64>,
}
