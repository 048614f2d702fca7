//! The commit of one change of one task as SQL.
//!
//! All checks that can refuse a change run before its first write. So a refused change leaves nothing behind,
//! and its neighbours in the batch need no savepoint.

use std::sync::LazyLock;

use nuncio_engine::{
    clock::Timestamp,
    store::{
        Change, CommitError, CommitReceipt, Digest, JournalRecord, NewTask, NodeId, Precondition, RunChange,
        TaskNo,
    },
    task::{State, TaskId},
};
use rusqlite::{OptionalExtension, Result, params};

use super::{
    outbox,
    read::{self, MAX_SEQ},
    write_session::WriteSession,
};

/// The outcome of a change: committed or refused. A database error is the outer `Result`.
pub(super) type CommitOutcome = Result<CommitReceipt, CommitError>;

/// Checks the guard and writes the change.
pub(super) fn commit(session: &mut WriteSession, change: &Change) -> Result<CommitOutcome> {
    match &change.guard {
        Precondition::Create(new) => create(session, new, change),
        Precondition::Version { task, version } => update(session, *task, change, |now| {
            if now.version == *version { Ok(()) } else { Err(CommitError::Moved) }
        }),
        Precondition::Runner { task, epoch } => update(session, *task, change, |now| {
            if now.epoch != *epoch {
                Err(CommitError::Fenced)
            } else if now.state.is_terminal() {
                Err(CommitError::Ended)
            } else if now.node.is_none() {
                // Released or parked under this same epoch: no node runs it.
                Err(CommitError::Fenced)
            } else {
                Ok(())
            }
        }),
    }
}

fn create(session: &mut WriteSession, new: &NewTask, change: &Change) -> Result<CommitOutcome> {
    if let Some((task, digest)) = collision(session, new)? {
        return Ok(Err(CommitError::Exists { task, digest }));
    }
    let (seq, unfolded) = size(change);
    let journaled = change.journal.len() as u64;
    if seq.max(journaled) > MAX_SEQ {
        return Ok(Err(CommitError::LogFull(MAX_SEQ)));
    }
    let (state, status_at) = change.state.unwrap_or((State::Submitted, new.created_at));
    session.record_time(status_at);
    let owner = session.names.owner_no(&session.conn, &new.owner)?;
    let agent = session.names.agent_no(&session.conn, &new.agent)?;
    let no = session.next_no;
    let schedule = RunSchedule::after(change.run, state, session.now()).unwrap_or_default();
    let epoch = u64::from(matches!(change.run, RunChange::Lease(_)));
    let cancel = change.cancel.unwrap_or(false);
    let inserted = session
        .conn
        .prepare_cached(
            "INSERT INTO task (no, id, owner, agent, state, status_at, created_at, seq, version, epoch, node,
               due_at, attempts, cancel, snap_seq, unfolded, journaled, hooks, context, client_id, idempotency,
               parent, head)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 1, ?9, ?10, ?11, 0, ?12, 0, ?13, ?14, ?15, ?16, ?17, ?18,
               ?19, ?20)
             ON CONFLICT (id) DO NOTHING",
        )?
        .execute(params![
            no,
            new.id.0.as_bytes(),
            owner,
            agent,
            state.code(),
            status_at.0,
            new.created_at.0,
            seq as i64,
            epoch as i64,
            schedule.node(),
            schedule.due_at.map(|due| due.0),
            cancel,
            unfolded as i64,
            journaled as i64,
            new.webhooks.len() as i64,
            new.context.as_deref().filter(|context| TaskId::of_own_context(context) != Some(new.id)),
            new.client_id,
            new.idempotency.as_ref().map(|(key, _)| key),
            new.parent.as_ref().map(|parent| parent.0.as_bytes()),
            change.head.as_deref().unwrap_or_default(),
        ])?;
    if inserted == 0 {
        return Ok(Err(CommitError::Exists { task: new.id, digest: None }));
    }
    session.next_no += 1;
    session.count(owner, agent, state, 1);
    append_log(session, no, 1, change)?;
    append_journal(session, no, 0, &change.journal)?;
    if let Some(client_id) = &new.client_id {
        session
            .conn
            .prepare_cached("INSERT INTO client_id (owner, id, task) VALUES (?1, ?2, ?3)")?
            .execute(params![owner, client_id, no])?;
    }
    if let Some((key, digest)) = &new.idempotency {
        session
            .conn
            .prepare_cached("INSERT INTO idempotency (owner, key, task, digest) VALUES (?1, ?2, ?3, ?4)")?
            .execute(params![owner, key, no, digest])?;
    }
    for hook in &new.webhooks {
        outbox::insert(session, no, seq, hook)?;
    }
    Ok(Ok(CommitReceipt { task: TaskNo(no), first_seq: 1, seq, version: 1, epoch, cancel, unfolded }))
}

/// The task that already has the idempotency key or the client id. The task id itself is left to the unique
/// index: it collides only when a change is repeated.
fn collision(session: &mut WriteSession, new: &NewTask) -> Result<Option<(TaskId, Option<Digest>)>> {
    if let Some((key, _)) = &new.idempotency
        && let Some((task, digest)) = read::idempotent(&session.conn, &new.owner, key)?
    {
        return Ok(Some((task, Some(digest))));
    }
    let Some(client_id) = &new.client_id else { return Ok(None) };
    let Some(owner) = session.names.find_owner(&session.conn, &new.owner)? else { return Ok(None) };
    let taken = session
        .conn
        .prepare_cached(
            "SELECT task.id FROM client_id JOIN task ON task.no = client_id.task
             WHERE client_id.owner = ?1 AND client_id.id = ?2",
        )?
        .query_row(params![owner, client_id], |row| read::task_id(row, 0))
        .optional()?;
    Ok(taken.map(|task| (task, None)))
}

/// The columns that guards check and that the new row is computed from.
struct CurrentRow {
    owner: i64,
    agent: i64,
    state: State,
    seq: u64,
    version: u64,
    epoch: u64,
    node: Option<[u8; 16]>,
    attempts: u32,
    cancel: bool,
    unfolded: u64,
    journaled: u64,
    hooks: i64,
}

fn update(
    session: &mut WriteSession,
    task: TaskNo,
    change: &Change,
    guard: impl FnOnce(&CurrentRow) -> Result<(), CommitError>,
) -> Result<CommitOutcome> {
    let Some(now) = current(session, task)? else { return Ok(Err(CommitError::Gone)) };
    if let Err(refused) = guard(&now) {
        return Ok(Err(refused));
    }
    let (events, bytes) = size(change);
    let (seq, journaled) = (now.seq + events, now.journaled + change.journal.len() as u64);
    if seq.max(journaled) > MAX_SEQ {
        return Ok(Err(CommitError::LogFull(MAX_SEQ)));
    }
    if let Some(added) = &change.webhooks
        && outbox::count_with(session, task, &added.hooks)? > added.cap
    {
        return Ok(Err(CommitError::TooManyWebhooks(added.cap)));
    }
    if let Some((state, at)) = change.state {
        session.record_time(at);
        session.count(now.owner, now.agent, now.state, -1);
        session.count(now.owner, now.agent, state, 1);
    }
    let progressed = events > 0 || !change.journal.is_empty();
    let by_runner = matches!(change.guard, Precondition::Runner { .. });
    let attempts = if by_runner && progressed { 0 } else { now.attempts };
    let unfolded = now.unfolded + bytes;
    let cancel = change.cancel.unwrap_or(now.cancel);
    let epoch = now.epoch + u64::from(matches!(change.run, RunChange::Lease(_)));
    let version = now.version + 1;
    let state = change.state.map_or(now.state, |(state, _)| state);
    let schedule = RunSchedule::after(change.run, state, session.now());
    let variant = usize::from(change.state.is_some())
        | usize::from(change.head.is_some()) << 1
        | usize::from(schedule.is_some()) << 2;
    let schedule = schedule.unwrap_or_default();
    session.conn.prepare_cached(&UPDATES[variant])?.execute(params![
        version as i64,
        seq as i64,
        unfolded as i64,
        attempts,
        journaled as i64,
        cancel,
        state.code(),
        change.state.map(|(_, at)| at.0),
        change.head.as_deref(),
        schedule.node(),
        schedule.due_at.map(|due| due.0),
        epoch as i64,
        task.0,
    ])?;
    append_log(session, task.0, now.seq + 1, change)?;
    append_journal(session, task.0, now.journaled, &change.journal)?;
    if now.hooks > 0 && events > 0 {
        outbox::schedule_delivery(session, task.0)?;
    }
    if let Some(added) = &change.webhooks {
        outbox::add(session, task, seq, &added.hooks)?;
    }
    Ok(Ok(CommitReceipt { task, first_seq: now.seq + 1, seq, version, epoch, cancel, unfolded }))
}

/// SQLite rewrites an index entry whenever a statement names one of its columns, changed or not. So there is
/// one statement for each set of indexes that a change touches; a chunk's touches none.
static UPDATES: LazyLock<[String; 8]> = LazyLock::new(|| {
    std::array::from_fn(|variant| {
        let with = |bit: usize, columns| if variant & 1 << bit == 0 { "" } else { columns };
        format!(
            "UPDATE task SET version = ?1, seq = ?2, unfolded = ?3, attempts = ?4, journaled = ?5, cancel = ?6
             {} {} {} WHERE no = ?13",
            with(0, ", state = ?7, status_at = ?8"),
            with(1, ", head = ?9"),
            with(2, ", node = ?10, due_at = ?11, epoch = ?12"),
        )
    })
});

fn current(session: &WriteSession, task: TaskNo) -> Result<Option<CurrentRow>> {
    session
        .conn
        .prepare_cached(
            "SELECT owner, agent, state, seq, version, epoch, node, attempts, cancel, unfolded, journaled, hooks
             FROM task WHERE no = ?1",
        )?
        .query_row([task.0], |row| {
            Ok(CurrentRow {
                owner: row.get(0)?,
                agent: row.get(1)?,
                state: read::state(row, 2)?,
                seq: read::number(row, 3)?,
                version: read::number(row, 4)?,
                epoch: read::number(row, 5)?,
                node: row.get(6)?,
                attempts: row.get(7)?,
                cancel: row.get(8)?,
                unfolded: read::number(row, 9)?,
                journaled: read::number(row, 10)?,
                hooks: row.get(11)?,
            })
        })
        .optional()
}

/// The node that runs a task, and when the task may be claimed.
#[derive(Default)]
struct RunSchedule {
    node: Option<NodeId>,
    due_at: Option<Timestamp>,
}

impl RunSchedule {
    /// `None` leaves the schedule as it is. A terminal task is never scheduled, whatever the change requests.
    fn after(run: RunChange, state: State, now: Timestamp) -> Option<Self> {
        match run {
            _ if state.is_terminal() => Some(Self::default()),
            RunChange::Keep => None,
            RunChange::Rest => Some(Self::default()),
            RunChange::Due(at) => Some(Self { node: None, due_at: Some(at) }),
            // Due as well, so that a claim finds it when the node dies.
            RunChange::Lease(node) => Some(Self { node: Some(node), due_at: Some(now) }),
        }
    }

    fn node(&self) -> Option<&[u8; 16]> {
        self.node.as_ref().map(|node| node.0.as_bytes())
    }
}

/// The number of events that a change appends, and their bytes in the log.
fn size(change: &Change) -> (u64, u64) {
    let events = change.events.as_ref().filter(|events| events.count > 0);
    events.map_or((0, 0), |events| (events.count.into(), events.bytes.len() as u64))
}

fn append_log(session: &WriteSession, no: i64, first_seq: u64, change: &Change) -> Result<()> {
    let Some(events) = change.events.as_ref().filter(|events| events.count > 0) else { return Ok(()) };
    session
        .conn
        .prepare_cached("INSERT INTO log (key, bytes) VALUES (?1, ?2)")?
        .execute(params![read::key(no, first_seq), &*events.bytes])?;
    Ok(())
}

fn append_journal(session: &WriteSession, no: i64, before: u64, records: &[JournalRecord]) -> Result<()> {
    for (n, JournalRecord(bytes)) in (before + 1..).zip(records) {
        session
            .conn
            .prepare_cached("INSERT INTO journal (key, bytes) VALUES (?1, ?2)")?
            .execute(params![read::key(no, n), &**bytes])?;
    }
    Ok(())
}
