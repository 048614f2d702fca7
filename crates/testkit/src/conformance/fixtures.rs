//! Fixtures of the suite: tasks, batches and times with short names.

use std::sync::Arc;

use bytes::Bytes;
use nuncio_engine::{
    clock::Timestamp,
    event::EncodedBatch,
    store::{
        Change, CommitError, CommitReceipt, NewTask, NodeId, OpenedTask, Precondition, RunChange, Store,
        TaskKey, TaskNo, TaskRow, Webhook,
    },
    task::{State, TaskId},
};
use uuid::Uuid;

/// A time of the suite's own clock.
pub(super) fn at(ms: i64) -> Timestamp {
    Timestamp(1_700_000_000_000 + ms)
}

/// A new node, not seen before.
pub(super) fn node() -> NodeId {
    NodeId(Uuid::now_v7())
}

/// A plain task of `alice` for `echo`.
pub(super) fn new_task() -> NewTask {
    NewTask {
        id: TaskId(Uuid::now_v7()),
        client_id: None,
        owner: "alice".into(),
        context: None,
        agent: "echo".into(),
        parent: None,
        idempotency: None,
        webhooks: vec![],
        created_at: at(0),
    }
}

/// A batch of `count` events. Stores do not interpret them.
pub(super) fn events(count: u32, bytes: impl Into<Bytes>) -> EncodedBatch {
    EncodedBatch { count, bytes: bytes.into() }
}

/// A webhook that has delivered nothing yet.
pub(super) fn webhook(id: &str) -> Webhook {
    Webhook { id: id.into(), cursor: 0, config: format!("config of {id}").into() }
}

/// The creation of a task with one event, which is submitted at `at(0)` and not scheduled.
pub(super) fn create(new: NewTask) -> Change {
    let mut change = Change::new(Precondition::Create(Box::new(new)));
    change.events = Some(events(1, "born"));
    change.state = Some((State::Submitted, at(0)));
    change.head = Some("head".into());
    change.run = RunChange::Rest;
    change
}

/// Like `create`, in another state and with another schedule.
pub(super) fn create_as(new: NewTask, state: State, since: Timestamp, run: RunChange) -> Change {
    let mut change = create(new);
    change.state = Some((state, since));
    change.run = run;
    change
}

/// A change by the runner of that epoch.
pub(super) fn by_runner(task: TaskNo, epoch: u64) -> Change {
    Change::new(Precondition::Runner { task, epoch })
}

/// A change that was decided on that version.
pub(super) fn by_version(task: TaskNo, version: u64) -> Change {
    Change::new(Precondition::Version { task, version })
}

/// Short forms of what checks do most.
pub(super) trait StoreFixtureExt {
    /// Creates a task and returns its number.
    async fn create_task(&self, change: Change) -> TaskNo;
    async fn row_of(&self, id: TaskId) -> TaskRow;
    async fn opened(&self, id: TaskId) -> OpenedTask;
    /// Commits a change that must be accepted.
    async fn commit_ok(&self, change: Change) -> CommitReceipt;
    async fn commit_err(&self, change: Change) -> CommitError;
}

impl StoreFixtureExt for Arc<dyn Store> {
    async fn create_task(&self, change: Change) -> TaskNo {
        self.commit_ok(change).await.task
    }

    async fn row_of(&self, id: TaskId) -> TaskRow {
        self.row(&TaskKey::Id(id)).await.unwrap().expect("the task is there")
    }

    async fn opened(&self, id: TaskId) -> OpenedTask {
        self.open(&TaskKey::Id(id)).await.unwrap().expect("the task is there")
    }

    async fn commit_ok(&self, change: Change) -> CommitReceipt {
        self.commit(change).await.expect("the commit is accepted")
    }

    async fn commit_err(&self, change: Change) -> CommitError {
        self.commit(change).await.expect_err("the commit is refused")
    }
}

/// Asserts that a value matches a pattern, and prints the value otherwise.
macro_rules! assert_is {
    ($value:expr, $shape:pat $(if $guard:expr)?) => {{
        let value = $value;
        assert!(matches!(value, $shape $(if $guard)?), "{value:?} is not {}", stringify!($shape));
    }};
}
pub(super) use assert_is;
