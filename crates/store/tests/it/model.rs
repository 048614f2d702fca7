//! Random sequences of changes, claims and expiries on the store and on a model of it that fits on two pages.
//! After every step both must answer the same; at the end, and after a reopen, both must hold the same.

use nuncio_engine::store::TaskStore as _;
use std::{collections::BTreeMap, path::Path};

use nuncio_engine::{
    clock::Timestamp,
    event::EncodedBatch,
    store::{
        Change, CommitError, JournalRecord, ListQuery, NewTask, NodeId, Precondition, RunChange, TaskKey,
        TaskNo, TaskRow,
    },
    task::{State, TaskId},
};
use nuncio_store::{SqliteOptions, SqliteStore};
use proptest::{prelude::*, sample::select};
use uuid::Uuid;

/// One step. Tasks are picked by position, so that most steps meet a task that exists.
#[derive(Debug, Clone)]
enum Step {
    Create {
        key: Option<u8>,
        client_id: Option<u8>,
        write: Write,
    },
    /// `stale`: under a version or an epoch that is past.
    Commit {
        task: usize,
        by_runner: bool,
        stale: bool,
        write: Write,
    },
    Heartbeat {
        node: u8,
        for_ms: i64,
    },
    Claim {
        node: u8,
        limit: usize,
    },
    Expire {
        limit: usize,
    },
    Later {
        ms: i64,
    },
}

#[derive(Debug, Clone)]
struct Write {
    events: u32,
    journal: usize,
    state: Option<State>,
    run: u8,
    cancel: Option<bool>,
}

fn step() -> impl Strategy<Value = Step> {
    let write = || {
        (
            0..4_u32,
            0..3_usize,
            proptest::option::of(select(State::ALL.to_vec())),
            0..4_u8,
            any::<Option<bool>>(),
        )
            .prop_map(|(events, journal, state, run, cancel)| Write {
                events,
                journal,
                state,
                run,
                cancel,
            })
    };
    let name = || proptest::option::weighted(0.3, 0..3_u8);
    prop_oneof![
        3 => (name(), name(), write())
            .prop_map(|(key, client_id, write)| Step::Create { key, client_id, write }),
        8 => (any::<usize>(), any::<bool>(), proptest::bool::weighted(0.2), write())
            .prop_map(|(task, by_runner, stale, write)| Step::Commit { task, by_runner, stale, write }),
        2 => (0..3_u8, 0..50_i64).prop_map(|(node, for_ms)| Step::Heartbeat { node, for_ms }),
        2 => (0..3_u8, 0..4_usize).prop_map(|(node, limit)| Step::Claim { node, limit }),
        1 => (0..3_usize).prop_map(|limit| Step::Expire { limit }),
        2 => (1..30_i64).prop_map(|ms| Step::Later { ms }),
    ]
}

/// What the store should hold of a task.
#[derive(Debug, Clone)]
struct Task {
    row: TaskRow,
    due: Option<i64>,
    log: Vec<(u64, u32)>,
    journal: usize,
    key: Option<String>,
}

#[derive(Default)]
struct Model {
    now: i64,
    /// The last time that the store was told: what it takes for the time of a lease.
    told: i64,
    tasks: BTreeMap<i64, Task>,
    alive: BTreeMap<u8, i64>,
}

fn node(n: u8) -> NodeId {
    NodeId(Uuid::from_u128(u128::from(n) + 1))
}

impl Model {
    fn change(&self, guard: Precondition, write: &Write) -> Change {
        let mut change = Change::new(guard);
        change.events = (write.events > 0)
            .then(|| EncodedBatch { count: write.events, bytes: write.events.to_be_bytes().to_vec().into() });
        change.journal = vec![JournalRecord("record".into()); write.journal];
        change.state = write.state.map(|state| (state, Timestamp(self.now)));
        change.cancel = write.cancel;
        change.run = match write.run {
            0 => RunChange::Keep,
            1 => RunChange::Rest,
            2 => RunChange::Due(Timestamp(self.now + 10)),
            _ => RunChange::Lease(node(0)),
        };
        change
    }

    /// What the change does to a task whose guard holds.
    fn apply(&mut self, no: i64, change: &Change) {
        if let Some((_, at)) = change.state {
            self.told = at.0;
        }
        let (told, Some(task)) = (self.told, self.tasks.get_mut(&no)) else { return };
        let row = &mut task.row;
        row.version += 1;
        if let Some(events) = &change.events {
            task.log.push((row.seq + 1, events.count));
            row.seq += u64::from(events.count);
        }
        task.journal += change.journal.len();
        if let Some((state, at)) = change.state {
            (row.state, row.status_at) = (state, at);
        }
        row.cancel = change.cancel.unwrap_or(row.cancel);
        if matches!(change.guard, Precondition::Runner { .. })
            && (change.events.is_some() || !change.journal.is_empty())
        {
            row.attempts = 0;
        }
        row.epoch += u64::from(matches!(change.run, RunChange::Lease(_)));
        let ended = row.state.is_terminal();
        (row.node, task.due) = match change.run {
            _ if ended => (None, None),
            RunChange::Keep => (row.node, task.due),
            RunChange::Rest => (None, None),
            RunChange::Due(at) => (None, Some(at.0)),
            RunChange::Lease(node) => (Some(node), Some(told)),
        };
    }

    fn create(&mut self, no: TaskNo, new: &NewTask, change: &Change) {
        let row = TaskRow {
            no,
            id: new.id,
            client_id: new.client_id.clone(),
            owner: new.owner.clone(),
            context: new.id.own_context(),
            agent: new.agent.clone(),
            parent: None,
            state: State::Submitted,
            status_at: new.created_at,
            created_at: new.created_at,
            seq: 0,
            version: 0,
            epoch: 0,
            node: None,
            attempts: 0,
            cancel: false,
            head: "".into(),
        };
        let key = new.idempotency.as_ref().map(|(key, _)| key.clone());
        self.told = self.now;
        self.tasks.insert(no.0, Task { row, due: None, log: vec![], journal: 0, key });
        self.apply(no.0, change);
    }

    fn taken(&self, new: &NewTask) -> Option<TaskId> {
        let key = new.idempotency.as_ref().map(|(key, _)| key);
        let by_key = self.tasks.values().find(|task| key.is_some() && task.key.as_ref() == key);
        let by_client_id =
            self.tasks.values().find(|task| new.client_id.is_some() && task.row.client_id == new.client_id);
        by_key.or(by_client_id).map(|task| task.row.id)
    }

    fn claim(&mut self, by: u8, limit: usize) -> Vec<TaskRow> {
        self.told = self.now;
        let dead = |holder: NodeId| {
            let alive = self.alive.iter().any(|(n, until)| node(*n) == holder && *until >= self.now);
            holder != node(by) && !alive
        };
        let mut due: Vec<(i64, i64)> = self
            .tasks
            .values()
            .filter(|task| task.row.node.is_none_or(dead))
            .filter_map(|task| task.due.filter(|due| *due <= self.now).map(|due| (due, task.row.no.0)))
            .collect();
        due.sort_unstable();
        due.truncate(limit);
        let mut claimed = vec![];
        for (_, no) in due {
            let Some(Task { row, .. }) = self.tasks.get_mut(&no) else { continue };
            row.attempts += u32::from(row.node.is_some());
            (row.node, row.epoch, row.version) = (Some(node(by)), row.epoch + 1, row.version + 1);
            claimed.push(row.clone());
        }
        claimed
    }
}

fn open(dir: &Path) -> SqliteStore {
    SqliteStore::open(dir, SqliteOptions::default()).unwrap()
}

async fn run(steps: Vec<Step>) {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let mut model = Model::default();
    for step in steps {
        take(&store, &mut model, step).await;
    }
    compare(&store, &model).await;
    drop(store);
    compare(&open(folder.path()), &model).await;
}

async fn take(store: &SqliteStore, model: &mut Model, step: Step) {
    match step {
        Step::Create { key, client_id, write } => {
            let new = NewTask {
                id: TaskId(Uuid::now_v7()),
                client_id: client_id.map(|n| n.to_string()),
                owner: "alice".into(),
                context: None,
                agent: "echo".into(),
                parent: None,
                idempotency: key.map(|n| (n.to_string(), [n; 32])),
                webhooks: vec![],
                created_at: Timestamp(model.now),
            };
            let change = model.change(Precondition::Create(Box::new(new.clone())), &write);
            match (model.taken(&new), store.commit(change.clone()).await) {
                (None, Ok(done)) => model.create(done.task, &new, &change),
                (Some(expected), Err(CommitError::Exists { task, .. })) => assert_eq!(task, expected),
                (expected, answer) => panic!("{expected:?}, but {answer:?}"),
            }
        }
        Step::Commit { task, by_runner, stale, write } => {
            let Some((no, row)) = model.tasks.iter().nth(task % model.tasks.len().max(1)) else { return };
            let (no, row) = (*no, row.row.clone());
            let guard = if by_runner {
                Precondition::Runner { task: TaskNo(no), epoch: row.epoch + u64::from(stale) }
            } else {
                Precondition::Version { task: TaskNo(no), version: row.version + u64::from(stale) }
            };
            let change = model.change(guard, &write);
            let answer = store.commit(change.clone()).await;
            match (by_runner, stale) {
                (false, true) => assert!(matches!(answer, Err(CommitError::Moved)), "{answer:?}"),
                (true, true) => assert!(matches!(answer, Err(CommitError::Fenced)), "{answer:?}"),
                (true, _) if row.state.is_terminal() => {
                    assert!(matches!(answer, Err(CommitError::Ended)), "{answer:?}");
                }
                (true, _) if row.node.is_none() => {
                    assert!(matches!(answer, Err(CommitError::Fenced)), "{answer:?}");
                }
                _ => {
                    let done = answer.unwrap();
                    model.apply(no, &change);
                    let after = &model.tasks[&no].row;
                    assert_eq!((done.first_seq, done.seq), (row.seq + 1, after.seq));
                    assert_eq!(
                        (done.version, done.epoch, done.cancel),
                        (after.version, after.epoch, after.cancel)
                    );
                }
            }
        }
        Step::Heartbeat { node: n, for_ms } => {
            store.heartbeat(node(n), Timestamp(model.now + for_ms)).await.unwrap();
            model.alive.insert(n, model.now + for_ms);
        }
        Step::Claim { node: n, limit } => {
            let claimed = store.claim(node(n), Timestamp(model.now), limit).await.unwrap();
            let claimed: Vec<TaskRow> = claimed.into_iter().map(|task| task.row).collect();
            assert_eq!(claimed, model.claim(n, limit));
        }
        Step::Expire { limit } => {
            let before = Timestamp(model.now - 20);
            let old = |task: &Task| task.row.state.is_terminal() && task.row.status_at < before;
            let expired = store.expire(before, limit).await.unwrap();
            let there = model.tasks.values().filter(|task| old(task)).count();
            assert_eq!(expired as usize, there.min(limit));
            // Which of them went is the store's choice.
            let mut gone = vec![];
            for (no, task) in &model.tasks {
                if store.row(&TaskKey::Id(task.row.id)).await.unwrap().is_none() {
                    assert!(old(task));
                    gone.push(*no);
                }
            }
            assert_eq!(gone.len(), expired as usize);
            model.tasks.retain(|no, _| !gone.contains(no));
        }
        Step::Later { ms } => model.now += ms,
    }
}

async fn compare(store: &SqliteStore, model: &Model) {
    for task in model.tasks.values() {
        let opened = store.open(&TaskKey::Id(task.row.id)).await.unwrap().unwrap();
        assert_eq!(opened.row, task.row);
        let log: Vec<(u64, u32)> = opened
            .log
            .iter()
            .map(|batch| (batch.first_seq, u32::from_be_bytes((*batch.bytes).try_into().unwrap())))
            .collect();
        assert_eq!(log, task.log);
        assert_eq!(store.journal(task.row.no).await.unwrap().len(), task.journal);
    }
    for state in State::ALL.map(Some).into_iter().chain([None]) {
        let query = ListQuery {
            owner: "alice".into(),
            context: None,
            state,
            agent: None,
            since: None,
            after: None,
            limit: 1_000,
            only_rows: false,
        };
        let page = store.list(&query).await.unwrap();
        let expected = model.tasks.values().filter(|task| state.is_none_or(|state| task.row.state == state));
        let expected = expected.count();
        assert_eq!((page.total as usize, page.tasks.len()), (expected, expected), "{state:?}");
    }
    let waiting = model.tasks.values().filter(|task| task.row.node.is_none());
    let next_due = waiting.filter_map(|task| task.due).min().map(Timestamp);
    assert_eq!(store.next_due().await.unwrap(), next_due);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn the_store_agrees_with_its_model(steps in proptest::collection::vec(step(), 1..80)) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        runtime.block_on(run(steps));
    }
}
