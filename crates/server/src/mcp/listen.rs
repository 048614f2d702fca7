//! The change streams: notifications about lists that changed, and about resources and tasks that were updated.
//!
//! In a session this is the GET stream, and the session holds its subscriptions; in stateless MCP it is
//! `subscriptions/listen`, and the request holds them. Nothing is queued for a disconnected client: a session
//! that reconnects gets a notification for every subscribed task that has changed since it subscribed.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use nuncio_engine::{
    Event, Next,
    event::{Entry, EntryBatch},
    surface::{LIST_URI, SurfaceChange},
};
use nuncio_wire::{
    a2a::TaskIds,
    json,
    jsonrpc::RpcId,
    mcp::{
        self, ClientCapabilities, ListenParams, McpFault, TaskEventRequest, write_bare_notification,
        write_cancelled, write_resource_updated, write_subscribed, write_task_changed, write_task_event,
    },
};
use serde::Deserialize;
use tokio::{
    sync::{broadcast, mpsc, watch},
    task::{AbortHandle, JoinSet},
};

use super::{
    Mcp,
    call_stream::McpFrame,
    client::McpClient,
    dispatch::McpRequest,
    session::{SessionStreamSlot, StreamTopic},
    task_resource::task_of,
    tasks::unknown_cursor,
};
use crate::resource_subscription::may_be_notified;

/// Messages queued for a client that does not read. Task followers wait for space; other changes are sent once
/// there is some.
const WAITING: usize = 64;
/// How often a stream reads its session for changes that were made on another node. Requests of the session
/// that arrive at this node have the same effect.
const LOOK: Duration = Duration::from_secs(15);

/// The messages of a change stream.
pub(crate) struct ListenStream {
    frames: mpsc::Receiver<McpFrame>,
    work: AbortHandle,
}

impl ListenStream {
    pub(crate) async fn next(&mut self) -> Option<McpFrame> {
        self.frames.recv().await
    }
}

impl Drop for ListenStream {
    fn drop(&mut self) {
        self.work.abort();
    }
}

impl Mcp {
    /// Answers `subscriptions/listen` (2026-07-28).
    pub(super) async fn listen(
        self: &Arc<Self>,
        client: &McpClient,
        request: &McpRequest<'_>,
    ) -> Result<ListenStream, McpFault> {
        #[derive(Default, Deserialize)]
        struct Params {
            #[serde(default)]
            notifications: ListenParams,
        }
        let mut wanted = mcp::read_params::<Params>(request.params)?.notifications;
        if !wanted.task_ids.is_empty() && !client.capabilities.tasks {
            return Err(McpFault::missing_capability(
                client.version,
                ClientCapabilities { tasks: true, ..ClientCapabilities::default() },
            ));
        }
        let count = wanted.resource_subscriptions.len() + wanted.task_ids.len();
        if count > self.options.max_subscriptions {
            return Err(McpFault::invalid_params(format!(
                "one subscription follows at most {} resources and tasks (max_subscriptions)",
                self.options.max_subscriptions
            )));
        }
        // Resources that do not exist, or are not the caller's, are left out of the acknowledgement.
        let mut followed = BTreeMap::new();
        for uri in std::mem::take(&mut wanted.resource_subscriptions) {
            if let Ok(seq) = self.known_up_to(client, &uri).await {
                followed.insert(uri.clone(), seq);
                wanted.resource_subscriptions.push(uri);
            }
        }
        let mut tasks = vec![];
        for task in std::mem::take(&mut wanted.task_ids) {
            if let Ok(about) = self.engine.task_summary(&client.caller, &task).await {
                let after = request.meta.events.as_ref().and_then(|cursors| cursors.get(&task)).copied();
                if let Some(after) = after.filter(|after| *after > about.seq) {
                    return Err(unknown_cursor(&task, after, about.seq));
                }
                tasks.push(match after {
                    Some(after) => TaskSubscription { task: task.clone(), after, by_cursor: true },
                    None => TaskSubscription { task: task.clone(), after: about.seq, by_cursor: false },
                });
                wanted.task_ids.push(task);
            }
        }
        let (send, frames) = mpsc::channel(WAITING);
        let listener = SubscriptionListener {
            mcp: Arc::clone(self),
            client: client.clone(),
            subscription: Some(request.id.clone()),
            changes: self.surface().changes(),
            wanted,
            followed,
            send,
        };
        let work = tokio::spawn(listener.run(tasks)).abort_handle();
        Ok(ListenStream { frames, work })
    }

    /// The GET stream of a session.
    pub(super) fn listen_in_session(self: &Arc<Self>, client: &McpClient) -> ListenStream {
        let (send, frames) = mpsc::channel(WAITING);
        let wanted = ListenParams {
            tools_list_changed: true,
            prompts_list_changed: true,
            resources_list_changed: true,
            ..ListenParams::default()
        };
        let listener = SubscriptionListener {
            mcp: Arc::clone(self),
            client: client.clone(),
            subscription: None,
            changes: self.surface().changes(),
            wanted,
            followed: BTreeMap::new(),
            send,
        };
        let work = tokio::spawn(listener.run(vec![])).abort_handle();
        ListenStream { frames, work }
    }
}

/// A task that a stream follows.
struct TaskSubscription {
    task: String,
    /// The last event that the client knows.
    after: u64,
    /// Whether the client wants every event after it.
    by_cursor: bool,
}

struct SubscriptionListener {
    mcp: Arc<Mcp>,
    client: McpClient,
    /// The request that opened the stream; every message names it. `None`: the stream of a session.
    subscription: Option<RpcId>,
    changes: broadcast::Receiver<SurfaceChange>,
    wanted: ListenParams,
    /// Subscribed resources; for a task, with the last event that the client knows.
    followed: BTreeMap<String, u64>,
    send: mpsc::Sender<McpFrame>,
}

impl SubscriptionListener {
    async fn run(mut self, tasks: Vec<TaskSubscription>) {
        let mut followers = JoinSet::new();
        let mut following: HashMap<String, AbortHandle> = HashMap::new();
        if self.subscription.is_some() && self.send_message(self.acknowledgement()).await.is_err() {
            return;
        }
        for TaskSubscription { task, after, by_cursor } in tasks {
            let follower = TaskSubscriptionRunner { uri: None, task, ..self.follows() };
            match by_cursor {
                true => followers.spawn(follower.run_by_cursor(after)),
                false => followers.spawn(follower.run(after)),
            };
        }
        let mut closing = self.mcp.engine.closing();
        let session = self.client.session.clone();
        let mut silent = false;
        let mut seat = session.as_ref().map(|session| session.open_stream_slot(StreamTopic::Session));
        let shared = session.is_some() && self.mcp.engine.is_shared();
        let (mut ended, mut changed) = match &session {
            Some(session) => (session.ended(), session.changed()),
            None => (watch::channel(false).1, watch::channel(0).1),
        };
        loop {
            if let Some(session) = &session {
                self.followed = if silent { BTreeMap::new() } else { session.state().subscriptions };
            }
            following.retain(|uri, follower| {
                let keep = self.followed.contains_key(uri);
                if !keep {
                    follower.abort();
                }
                keep
            });
            for (uri, seq) in &self.followed {
                if let Some(task) = task_of(&self.mcp.surface().canonical(uri))
                    && !following.contains_key(uri)
                {
                    let task = task.to_owned();
                    let follower = TaskSubscriptionRunner { uri: Some(uri.clone()), task, ..self.follows() };
                    following.insert(uri.clone(), followers.spawn(follower.run(*seq)));
                }
            }
            tokio::select! {
                change = self.changes.recv(), if !silent => {
                    let told = match change {
                        Ok(change) => self.send_change(&change).await,
                        // The receiver lagged and lost changes: notify about everything.
                        Err(broadcast::error::RecvError::Lagged(_)) => self.send_all_updates().await,
                        Err(broadcast::error::RecvError::Closed) => return,
                    };
                    if told.is_err() {
                        return;
                    }
                }
                () = wait_until_true(&mut closing) => break,
                Ok(()) = changed.changed(), if session.is_some() => {}
                () = wait_until_true(&mut ended), if session.is_some() => break,
                // The stream stays open without messages: the newer stream carries them all.
                () = wait_until_replaced(&mut seat), if !silent => silent = true,
                Some(_) = followers.join_next(), if !followers.is_empty() => {}
                () = tokio::time::sleep(LOOK), if shared => {
                    if let Some(session) = &session {
                        let _ = self.mcp.sessions.refresh(session).await;
                    }
                }
            }
        }
        if let Some(id) = &self.subscription {
            let (mcp, version) = (&self.mcp, self.client.version);
            let subscribed = |meta: &mut json::JsonObject<'_>| {
                meta.key("io.modelcontextprotocol/subscriptionId").extend_from_slice(id.as_json().as_bytes());
            };
            let mut cancelled = Vec::with_capacity(128);
            write_cancelled(&mut cancelled, id.as_json(), Some(id.as_json()));
            let _ = self.send_message(cancelled).await;
            let _ = self.send_message(mcp.result_of(version, id, "complete", |_| {}, subscribed)).await;
        }
    }

    fn follows(&self) -> TaskSubscriptionRunner {
        TaskSubscriptionRunner {
            mcp: Arc::clone(&self.mcp),
            client: self.client.clone(),
            subscription: self.subscription.clone(),
            send: self.send.clone(),
            uri: None,
            task: String::new(),
        }
    }

    async fn send_message(&self, data: Vec<u8>) -> Result<(), ()> {
        self.send.send(McpFrame::plain(data)).await.map_err(drop)
    }

    async fn send_change(&self, change: &SurfaceChange) -> Result<(), ()> {
        let wanted = &self.wanted;
        let method = match change {
            SurfaceChange::Tools if wanted.tools_list_changed => "notifications/tools/list_changed",
            SurfaceChange::Prompts if wanted.prompts_list_changed => "notifications/prompts/list_changed",
            SurfaceChange::Resources if wanted.resources_list_changed => {
                "notifications/resources/list_changed"
            }
            SurfaceChange::Updated(updated) if &*updated.uri == LIST_URI => {
                if !wanted.resources_list_changed || !updated.concerns(self.client.caller.tenant(), LIST_URI)
                {
                    return Ok(());
                }
                "notifications/resources/list_changed"
            }
            SurfaceChange::Updated(updated) => {
                let (tenant, surface) = (self.client.caller.tenant(), self.mcp.surface());
                for uri in self.followed.keys() {
                    let meant = surface.canonical(uri);
                    if updated.concerns(tenant, &meant) && may_be_notified(&self.client.caller, &meant) {
                        self.send_updated(uri).await?;
                    }
                }
                return Ok(());
            }
            SurfaceChange::Missed => return Box::pin(self.send_all_updates()).await,
            SurfaceChange::Tools | SurfaceChange::Prompts | SurfaceChange::Resources => return Ok(()),
        };
        let mut data = Vec::with_capacity(160);
        write_bare_notification(&mut data, method, self.subscription.as_ref().map(RpcId::as_json));
        self.send_message(data).await
    }

    async fn send_all_updates(&self) -> Result<(), ()> {
        for change in [SurfaceChange::Tools, SurfaceChange::Prompts, SurfaceChange::Resources] {
            self.send_change(&change).await?;
        }
        for uri in self.followed.keys() {
            self.send_updated(uri).await?;
        }
        Ok(())
    }

    async fn send_updated(&self, uri: &str) -> Result<(), ()> {
        let mut data = Vec::with_capacity(160);
        write_resource_updated(&mut data, uri, self.subscription.as_ref().map(RpcId::as_json));
        self.send_message(data).await
    }

    /// The acknowledgement of the subscriptions: the first message of the stream.
    fn acknowledgement(&self) -> Vec<u8> {
        let mut data = Vec::with_capacity(256);
        write_subscribed(&mut data, &self.wanted, self.subscription.as_ref().map(RpcId::as_json));
        data
    }
}

/// Follows one task for a stream.
struct TaskSubscriptionRunner {
    mcp: Arc<Mcp>,
    client: McpClient,
    subscription: Option<RpcId>,
    send: mpsc::Sender<McpFrame>,
    /// The resource that the task is followed as; `None`: the task itself is sent (`notifications/tasks`).
    uri: Option<String>,
    task: String,
}

impl TaskSubscriptionRunner {
    async fn run(self, after: u64) {
        let Ok(mut follower) = self.mcp.engine.follow(&self.client.caller, &self.task, after).await else {
            return;
        };
        if self.uri.is_none() && self.send_task().await.is_err() {
            return;
        }
        loop {
            match follower.next().await {
                Ok(Next::Batch(batch)) => {
                    let told = match &self.uri {
                        Some(uri) => self.send_updated(uri, &batch).await,
                        None if batch.entries.iter().any(|entry| changes_task_view(entry.event())) => {
                            self.send_task().await
                        }
                        None => Ok(()),
                    };
                    if told.is_err() {
                        return;
                    }
                }
                Ok(Next::Nudge(_)) => {}
                Ok(Next::End | Next::Closing) | Err(_) => return,
            }
        }
    }

    /// Sends every event after the cursor, and the task when it asks or ends. The task as sent is never ahead
    /// of the events, except for questions that were asked meanwhile.
    async fn run_by_cursor(self, after: u64) {
        let engine = &self.mcp.engine;
        let Ok(mut follower) = engine.follow(&self.client.caller, &self.task, after).await else { return };
        let Ok(task) = engine.get(&self.client.caller, &self.task).await else { return };
        let (id, context) = (task.origin.id.to_string(), task.origin.context.clone());
        // The task is sent once the client has all events up to this one.
        let mut due = task.seq;
        if task.questions.iter().any(|(seq, _)| *seq <= after) && self.send_task().await.is_err() {
            return;
        }
        loop {
            let batch = match follower.next().await {
                Ok(Next::Batch(batch)) => batch,
                Ok(Next::Nudge(_)) => continue,
                Ok(Next::End | Next::Closing) | Err(_) => return,
            };
            let ids = TaskIds { task: &id, context: &context };
            for (seq, entry) in batch.iter() {
                if self.send_event(&ids, seq, entry).await.is_err() {
                    return;
                }
            }
            if !batch.entries.iter().any(|entry| changes_task_view(entry.event())) && batch.last_seq() < due {
                continue;
            }
            let Ok(task) = engine.get(&self.client.caller, &self.task).await else { return };
            let asks = |entry: &Entry| match entry.event() {
                Event::Question(asked) => task.questions.iter().any(|(_, open)| open.id == asked.id),
                _ => false,
            };
            if task.seq > batch.last_seq() && !batch.entries.iter().any(asks) {
                due = task.seq;
                continue;
            }
            due = u64::MAX;
            if self.send_task().await.is_err() {
                return;
            }
        }
    }

    async fn send_event(&self, ids: &TaskIds<'_>, seq: u64, entry: &Entry) -> Result<(), ()> {
        if matches!(entry.event(), Event::Log(line) if !self.client.wants_level(line.level)) {
            return Ok(());
        }
        let Some(subscription) = &self.subscription else { return Ok(()) };
        let mut data = Vec::with_capacity(384);
        match write_task_event(
            &mut data,
            ids,
            seq,
            entry,
            TaskEventRequest::Subscription(subscription.as_json()),
        ) {
            true => self.send.send(McpFrame::plain(data)).await.map_err(drop),
            false => Ok(()),
        }
    }

    /// One notification for the whole batch.
    async fn send_updated(&self, uri: &str, batch: &EntryBatch) -> Result<(), ()> {
        if !batch.entries.iter().any(|entry| !matches!(entry.event(), Event::Log(_))) {
            return Ok(());
        }
        let mut data = Vec::with_capacity(160);
        write_resource_updated(&mut data, uri, self.subscription.as_ref().map(RpcId::as_json));
        self.send.send(McpFrame::plain(data)).await.map_err(drop)
    }

    async fn send_task(&self) -> Result<(), ()> {
        let Ok(task) = self.mcp.engine.get(&self.client.caller, &self.task).await else { return Err(()) };
        let view = self.mcp.view(&self.client, &task, true);
        let mut data = Vec::with_capacity(512);
        write_task_changed(&mut data, &task, view, self.subscription.as_ref().map(RpcId::as_json));
        self.send.send(McpFrame::plain(data)).await.map_err(drop)
    }
}

/// Waits until the flag is true; returns at once if it already is.
async fn wait_until_true(flag: &mut watch::Receiver<bool>) {
    // An error means that the sender was dropped, which has the same meaning.
    let _ = flag.wait_for(|is_so| *is_so).await;
}

/// Waits until a newer stream has replaced this one; for ever without a slot.
async fn wait_until_replaced(seat: &mut Option<SessionStreamSlot>) {
    match seat {
        Some(seat) => seat.wait_until_replaced().await,
        None => std::future::pending().await,
    }
}

/// Whether the event changes how a task is shown.
fn changes_task_view(event: &Event) -> bool {
    matches!(
        event,
        Event::Status(_) | Event::Question(_) | Event::Answer(_) | Event::Withdrawn(_) | Event::Progress(_)
    )
}
