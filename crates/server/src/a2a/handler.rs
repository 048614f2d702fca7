//! The A2A service: what each call does to the engine, without HTTP and without JSON-RPC.

use std::sync::Arc;

use nuncio_engine::{
    AccessKind, AccessRequest, Action, Caller, Error, Follower, List, Reply, StartedTask, Submit, Task,
    catalog::RegisteredAgent, commands::list::FoldedTaskPage, event::Entry, task::Origin,
    webhook::WebhookConfig,
};
use nuncio_wire::{
    a2a::{A2aCall, Dialect, ListTasks, SendMessage, TaskDetail, TaskListPage},
    json,
};
use serde_json::Value;

use super::extensions;
use crate::{app::App, open_streams::StreamSlot};

/// The id of a webhook that was set without one: setting it again replaces it.
const DEFAULT_WEBHOOK: &str = "default";

/// The calls of one caller to one agent.
pub(crate) struct A2aHandler<'a> {
    pub(crate) app: &'a App,
    pub(crate) agent: &'a RegisteredAgent,
    pub(crate) caller: &'a Caller,
}

/// What a request carries beside its call: headers in JSON-RPC and REST, metadata in gRPC.
#[derive(Debug, Default)]
pub(crate) struct A2aRequestMeta {
    /// Makes a repeated send the same send.
    pub(crate) idempotency_key: Option<String>,
    /// The cursor after which a stream continues.
    pub(crate) last_event_id: Option<u64>,
    /// The W3C trace context of the request.
    pub(crate) trace: Option<String>,
    /// The active extensions; see [`extensions::ActiveExtensions`].
    pub(crate) extensions: Vec<String>,
}

/// The reply to a call.
pub(crate) enum A2aReply {
    Result(A2aResult),
    /// The events of a task, as they come.
    Events(Box<A2aEvents>),
    /// The agent has no card for authenticated callers.
    NoExtendedCard,
}

/// A reply that is one document.
pub(crate) enum A2aResult {
    Task {
        task: Arc<Task>,
        detail: TaskDetail,
    },
    Sent {
        task: Box<Task>,
        detail: TaskDetail,
    },
    Tasks {
        page: FoldedTaskPage,
        page_size: usize,
        detail: TaskDetail,
    },
    Webhook {
        task: String,
        config: WebhookConfig,
    },
    Webhooks {
        task: String,
        configs: Vec<WebhookConfig>,
        next: Option<String>,
    },
    Deleted,
    /// An extended card, already in the dialect of the call.
    Card(Arc<Value>),
}

/// The events of a task for one client.
pub(crate) struct A2aEvents {
    pub(crate) origin: Origin,
    pub(crate) follower: Follower,
    pub(crate) start: StreamStart,
    /// Whether the stream belongs to one message and ends with the agent's turn.
    pub(crate) one_turn: bool,
    /// The caller's share of open streams, reserved before the call had any effect.
    pub(crate) slot: StreamSlot,
}

/// The first frame of a stream.
pub(crate) enum StreamStart {
    /// The task as it was created, when its first event arrives.
    Birth,
    /// The task as it was created, or only the message with which its agent answers: undecided until an event
    /// arrives that shows the task. Until then its events are held here.
    Held(Vec<(u64, Entry)>),
    /// The current task.
    Current(Arc<Task>),
    /// None: the client has seen the beginning.
    Nothing,
}

impl A2aHandler<'_> {
    /// Carries a call out. `dialect` is recorded as the generation in which a task was created.
    pub(crate) async fn handle(
        &self,
        dialect: Dialect,
        call: A2aCall,
        meta: A2aRequestMeta,
    ) -> Result<A2aReply, Error> {
        // Boxed separately, so that the future of a small call is not as large as the largest: it is moved more than
        // once on its way into the connection.
        match call {
            A2aCall::Get { task, history_length } => {
                let task = self.app.engine.get(self.caller, &task).await?;
                Ok(A2aReply::Result(A2aResult::Task { task, detail: TaskDetail::history(history_length) }))
            }
            A2aCall::Send(send) => Box::pin(self.send(dialect, *send, meta)).await.map(A2aReply::Result),
            A2aCall::Stream(send) => Box::pin(self.stream(dialect, *send, meta))
                .await
                .map(|events| A2aReply::Events(Box::new(events))),
            A2aCall::Subscribe { task } => {
                let events = Box::pin(self.subscribe(dialect, &task, meta.last_event_id)).await?;
                Ok(A2aReply::Events(Box::new(events)))
            }
            A2aCall::Cancel { task, .. } => {
                let caller = self.caller.clone().over(dialect.name());
                let task = Arc::new(Box::pin(self.app.engine.cancel(&caller, &task)).await?);
                Ok(A2aReply::Result(A2aResult::Task { task, detail: TaskDetail::default() }))
            }
            A2aCall::List(list) => Box::pin(self.list(list)).await.map(A2aReply::Result),
            A2aCall::SetWebhook { task, config } => {
                let set = self.app.engine.put_webhook(self.caller, &task, named_webhook(config));
                let config = Box::pin(set).await.map_err(|error| self.without_webhooks(error))?;
                Ok(A2aReply::Result(A2aResult::Webhook { task, config }))
            }
            A2aCall::GetWebhook { task, id } => {
                let found = Box::pin(self.app.engine.webhook(self.caller, &task, id.as_deref())).await;
                let config = found.map_err(|error| self.without_webhooks(error))?;
                Ok(A2aReply::Result(A2aResult::Webhook { task, config }))
            }
            A2aCall::ListWebhooks { task, page_size, page_token } => {
                let configs = Box::pin(self.app.engine.webhooks(self.caller, &task)).await;
                let configs = configs.map_err(|error| self.without_webhooks(error))?;
                let (configs, next) = page_of(configs, page_size, page_token.as_deref());
                Ok(A2aReply::Result(A2aResult::Webhooks { task, configs, next }))
            }
            A2aCall::DeleteWebhook { task, id } => {
                let deleted = Box::pin(self.app.engine.delete_webhook(self.caller, &task, &id)).await;
                deleted.map_err(|error| self.without_webhooks(error))?;
                Ok(A2aReply::Result(A2aResult::Deleted))
            }
            A2aCall::ExtendedCard => Box::pin(self.extended_card(dialect)).await,
        }
    }

    /// The card for authenticated callers (A2A 1.0, sections 3.1.11 and 13.3). Every binding has authenticated the caller
    /// by now, where callers have to be; a caller must also be allowed to read the agent.
    async fn extended_card(&self, dialect: Dialect) -> Result<A2aReply, Error> {
        let name = self.agent.profile.name.as_str();
        if self.agent.profile.extended_card.is_none() {
            return Ok(A2aReply::NoExtendedCard);
        }
        self.allow_extended_card(name)?;
        let at_root = self.caller.only_agent().is_none();
        let card = self.app.cards.extended(&self.app.engine, name, at_root, dialect).await;
        Ok(card.map_or(A2aReply::NoExtendedCard, |card| A2aReply::Result(A2aResult::Card(card))))
    }

    fn allow_extended_card(&self, name: &str) -> Result<(), Error> {
        let resource = format_args!("a2a://agents/{name}/extended-card");
        let (action, kind, operation) = (Action::Read, AccessKind::A2a, "card.extended");
        let access = AccessRequest { action, kind, name, operation, resource: &resource };
        self.app.engine.allow(self.caller, &access)
    }

    async fn send(
        &self,
        dialect: Dialect,
        send: SendMessage,
        meta: A2aRequestMeta,
    ) -> Result<A2aResult, Error> {
        let (blocking, detail) = (send.blocking, TaskDetail::history(send.history_length));
        let started = self.submit_message(dialect, send, meta).await?;
        // Also for a client that repeats the send of another, and does not wait: there may be no task to return.
        let started = self.app.engine.wait_until_shown(self.caller, started).await?;
        let task = match blocking {
            true => self.app.engine.wait_until_idle(self.caller, started).await?,
            false => started.task,
        };
        Ok(A2aResult::Sent { task: Box::new(task), detail })
    }

    async fn stream(
        &self,
        dialect: Dialect,
        mut send: SendMessage,
        meta: A2aRequestMeta,
    ) -> Result<A2aEvents, Error> {
        self.check_streaming()?;
        // Reserved before the message is submitted: a refusal must not leave a task behind.
        let slot = self.app.reserve_stream_slot(self.caller)?;
        let follow_up = send.task_id.is_some();
        // A stream waits, whatever else its request says.
        send.blocking = true;
        let started = self.submit_message(dialect, send, meta).await?;
        let existed = follow_up || started.task.history.len() > 1;
        let is_current = existed || started.task.reply().is_some();
        let after = if is_current { started.task.seq } else { 0 };
        let (task, follower) = self.app.engine.follow_started(self.caller, started, after).await?;
        let origin = task.origin.clone();
        let start = match (is_current, task.awaits_reply()) {
            (true, _) => StreamStart::Current(Arc::new(task)),
            (false, true) => StreamStart::Held(vec![]),
            (false, false) => StreamStart::Birth,
        };
        Ok(A2aEvents { origin, follower, start, one_turn: true, slot })
    }

    /// Streams an existing task: from its current state, or after a cursor. A cursor costs one read of the task's row.
    pub(crate) async fn subscribe(
        &self,
        dialect: Dialect,
        name: &str,
        last_event_id: Option<u64>,
    ) -> Result<A2aEvents, Error> {
        self.check_streaming()?;
        let slot = self.app.reserve_stream_slot(self.caller)?;
        let engine = &self.app.engine;
        let ((origin, follower), start) = match last_event_id {
            Some(cursor) => {
                (engine.follow_with_origin(self.caller, name, cursor).await?, StreamStart::Nothing)
            }
            None => {
                let task = engine.get(self.caller, name).await?;
                if task.state.is_terminal() && dialect >= Dialect::V1 {
                    return Err(Error::Unsupported(format!(
                        "the task has ended ({}): get it, or resume its stream with Last-Event-ID",
                        dialect.state_name(task.state)
                    )));
                }
                let follower = engine.follow(self.caller, name, task.seq).await?;
                ((task.origin.clone(), follower), StreamStart::Current(task))
            }
        };
        Ok(A2aEvents { origin, follower, start, one_turn: false, slot })
    }

    async fn list(&self, list: ListTasks) -> Result<A2aResult, Error> {
        let detail = TaskDetail { history_length: list.history_length, artifacts: list.include_artifacts };
        let page_size = list.page_size;
        let query = List {
            context: list.context,
            state: list.state,
            agent: None,
            since: list.since,
            page_token: list.page_token,
            page_size,
            without_artifacts: !list.include_artifacts,
            history: list.history_length,
        };
        let page = self.app.engine.list(self.caller, query).await?;
        Ok(A2aResult::Tasks { page, page_size, detail })
    }

    /// Submits a message to the engine: for a new task, or for one that exists.
    async fn submit_message(
        &self,
        dialect: Dialect,
        send: SendMessage,
        meta: A2aRequestMeta,
    ) -> Result<StartedTask, Error> {
        extensions::check_required(&self.agent.profile, &meta.extensions)?;
        let waits = send.blocking;
        let webhooks: Vec<WebhookConfig> = send.webhook.map(named_webhook).into_iter().collect();
        let idempotency_key = meta.idempotency_key;
        let caller = &self.caller.clone().over(dialect.name());
        if let Some(task) = send.task_id {
            let (context, message) = (send.context_id, send.message);
            let reply = Reply { task, context, message, idempotency_key, webhooks };
            return self.app.engine.reply(caller, reply).await.map(StartedTask::from);
        }
        let mut submit = Submit::new(&self.agent.profile.name, send.message);
        submit.context = send.context_id;
        submit.client_id = send.client_task_id;
        submit.metadata = send.metadata;
        submit.dialect = dialect.name().to_owned();
        submit.idempotency_key = idempotency_key;
        submit.webhooks = webhooks;
        submit.accepted_output_modes = send.accepted_output_modes;
        // 0.1 has no answer without a task.
        submit.accepts_reply = waits && dialect > Dialect::V0_1;
        submit.trace = meta.trace;
        submit.extensions = meta.extensions;
        self.app.engine.begin(caller, submit).await
    }

    fn check_streaming(&self) -> Result<(), Error> {
        match self.agent.profile.streaming {
            true => Ok(()),
            false => Err(Error::StreamingUnsupported),
        }
    }

    /// An agent without push notifications says so also of a task that does not exist (A2A 1.0, section 3.3.4). Of a task
    /// that exists, its own agent decides: at the root there are tasks of all agents.
    fn without_webhooks(&self, error: Error) -> Error {
        match error {
            Error::NoSuchTask(_) if !self.agent.profile.push_notifications => Error::PushUnsupported,
            error => error,
        }
    }
}

impl A2aResult {
    /// Writes the result as JSON of a dialect, without an envelope.
    pub(crate) fn write(&self, dialect: Dialect, out: &mut Vec<u8>) {
        match self {
            Self::Task { task, detail } => dialect.write_task(out, task, *detail),
            Self::Sent { task, detail } => dialect.write_sent(out, task, *detail),
            Self::Tasks { page, page_size, detail } => {
                let next = page.next_page_token.as_deref();
                let (tasks, total) = (&page.tasks, page.total);
                dialect.write_list(
                    out,
                    &TaskListPage { tasks, view: *detail, page_size: *page_size, total, next },
                );
            }
            Self::Webhook { task, config } => dialect.write_webhook(out, task, config),
            Self::Webhooks { task, configs, next } => {
                dialect.write_webhooks(out, task, configs, next.as_deref());
            }
            Self::Deleted => dialect.write_deleted(out),
            Self::Card(card) => json::value(out, card),
        }
    }
}

fn named_webhook(mut config: WebhookConfig) -> WebhookConfig {
    if config.id.is_empty() {
        config.id = DEFAULT_WEBHOOK.to_owned();
    }
    config
}

/// A page of webhooks; the token is the last id of the previous page. There are few enough to cut here.
fn page_of(
    mut configs: Vec<WebhookConfig>,
    size: Option<usize>,
    token: Option<&str>,
) -> (Vec<WebhookConfig>, Option<String>) {
    if let Some(token) = token.filter(|token| !token.is_empty()) {
        configs.drain(..configs.partition_point(|config| config.id.as_str() <= token));
    }
    let size = size.filter(|size| *size > 0).unwrap_or(configs.len()).min(configs.len());
    let next = (size < configs.len()).then(|| configs[size - 1].id.clone());
    configs.truncate(size);
    (configs, next)
}
