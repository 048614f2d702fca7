//! The topic `resource` of a live stream: a notification whenever the resource was updated, at the moments at which a
//! subscriber over MCP is notified. It reads nothing: the page reads the resource over MCP.

use std::time::Duration;

use axum::http::StatusCode;
use nuncio_engine::{Caller, Engine, Event, Follower, Next, surface::SurfaceChange};
use serde_json::json;
use tokio::{sync::broadcast, time::Instant};

use super::{
    api::ConsoleRequest,
    live::{FrameSender, ReaderGone, TopicEnd, end_frame},
    problem::ConsoleProblem,
};
use crate::{
    mcp::task_of,
    resource_subscription::{MAX_URI, SubscriptionRefusal, check_subscription, exists, may_be_notified},
};

/// The shortest time between two frames of a topic: at most four a second, the last update always at last.
const PAUSE: Duration = Duration::from_millis(250);

/// A resource that is followed.
pub(super) struct ResourceTopic {
    key: String,
    engine: Engine,
    uri: String,
    after: Option<String>,
    source: UpdateSource,
}

/// Where the updates of a resource come from.
enum UpdateSource {
    /// A task: its log.
    Task(Box<Follower>),
    /// Any other resource: the changes that all subscribers receive.
    Surface { changes: broadcast::Receiver<SurfaceChange>, caller: Caller, meant: String },
}

/// What a source reports.
enum Update {
    Updated,
    Unrelated,
    End(&'static str),
    Closing,
}

impl ResourceTopic {
    /// Checks that the resource exists and that the caller may read it.
    pub(super) async fn prepare(
        request: &ConsoleRequest<'_>,
        key: String,
        uri: String,
        after: Option<String>,
    ) -> Result<Self, ConsoleProblem> {
        let (engine, caller) = (request.engine().clone(), request.caller.clone());
        // Before the check, so that no update falls between the two.
        let changes = engine.catalog().surface().changes();
        let last = check_subscription(&engine, &caller, &uri).await.map_err(|refusal| match refusal {
            SubscriptionRefusal::TooLong => ConsoleProblem::new(
                StatusCode::BAD_REQUEST,
                "bad_request",
                format!("uri: at most {MAX_URI} bytes"),
            ),
            SubscriptionRefusal::NotFound => ConsoleProblem::not_found("there is no such resource"),
            SubscriptionRefusal::Engine(error) => error.into(),
        })?;
        let meant = engine.catalog().surface().canonical(&uri).into_owned();
        let source = match task_of(&meant) {
            Some(task) => {
                let from = after.as_deref().and_then(|after| after.parse().ok()).unwrap_or(last);
                UpdateSource::Task(Box::new(engine.follow(&caller, task, from).await?))
            }
            None => UpdateSource::Surface { changes, caller, meant },
        };
        Ok(Self { key, engine, uri, after, source })
    }

    /// Sends a frame for every update, until the reader has gone.
    pub(super) async fn run(mut self, frames: &FrameSender) -> TopicEnd {
        self.follow(frames).await.unwrap_or(TopicEnd::Done)
    }

    async fn follow(&mut self, frames: &FrameSender) -> Result<TopicEnd, ReaderGone> {
        let readable = match (&self.after, &self.source) {
            (None, _) => true,
            (Some(after), UpdateSource::Task(_)) => after.parse::<u64>().is_ok(),
            (Some(_), UpdateSource::Surface { .. }) => false,
        };
        if !readable {
            let why = "a resource has no log: read it again";
            let frame = json!({ "key": self.key, "cursor": self.cursor(), "why": why });
            frames.send("gap", &frame).await?;
        }
        frames.send("caught-up", &json!({ "key": self.key, "cursor": self.cursor() })).await?;
        let (mut pending, mut next_at) = (false, Instant::now());
        loop {
            // Updates are taken while a frame waits for its time, so that a busy resource never lags behind.
            let update = tokio::select! {
                () = tokio::time::sleep_until(next_at), if pending => {
                    (pending, next_at) = (false, Instant::now() + PAUSE);
                    self.send_updated(frames).await?;
                    continue;
                }
                update = self.source.next(&self.engine) => update,
            };
            match update {
                Update::Updated => pending = true,
                Update::Unrelated => {}
                Update::Closing => return Ok(TopicEnd::Closing),
                Update::End(why) => {
                    if pending {
                        self.send_updated(frames).await?;
                    }
                    frames.send("end", &end_frame(&self.key, why)).await?;
                    return Ok(TopicEnd::Done);
                }
            }
        }
    }

    async fn send_updated(&self, frames: &FrameSender) -> Result<(), ReaderGone> {
        let frame = json!({ "key": self.key, "cursor": self.cursor(), "uri": self.uri });
        frames.send("resource", &frame).await
    }

    fn cursor(&self) -> String {
        match &self.source {
            UpdateSource::Task(follower) => follower.cursor().to_string(),
            UpdateSource::Surface { .. } => format!("u-{:x}", self.engine.clock().now().0),
        }
    }
}

impl UpdateSource {
    /// Waits for the next change. Cancel-safe, as both of its sources are.
    async fn next(&mut self, engine: &Engine) -> Update {
        match self {
            Self::Task(follower) => match follower.next().await {
                Ok(Next::Batch(batch)) => {
                    let shown = batch.entries.iter().any(|entry| !matches!(entry.event(), Event::Log(_)));
                    if shown { Update::Updated } else { Update::Unrelated }
                }
                Ok(Next::Nudge(_)) => Update::Unrelated,
                Ok(Next::End) => Update::End("ended"),
                Ok(Next::Closing) => Update::Closing,
                Err(_) => Update::End("not_found"),
            },
            Self::Surface { changes, caller, meant } => match changes.recv().await {
                Ok(SurfaceChange::Updated(updated)) => {
                    let concerned =
                        updated.concerns(caller.tenant(), meant) && may_be_notified(caller, meant);
                    if concerned { Update::Updated } else { Update::Unrelated }
                }
                // The receiver lagged, or updates were lost before they reached this node.
                Ok(SurfaceChange::Missed) | Err(broadcast::error::RecvError::Lagged(_)) => Update::Updated,
                Ok(SurfaceChange::Resources) if !exists(engine, meant) => Update::End("not_found"),
                Ok(SurfaceChange::Tools | SurfaceChange::Prompts | SurfaceChange::Resources) => {
                    Update::Unrelated
                }
                Err(broadcast::error::RecvError::Closed) => Update::Closing,
            },
        }
    }
}
