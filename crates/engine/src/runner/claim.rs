//! The claim loop: takes due tasks that no node runs, and resumes them.
//!
//! How due tasks are divided among tenants is the engine's claim queue; what a run writes goes through its lease.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use super::{
    Driver, Lease, STORE_RETRY, Suspicion,
    missing_agents::LOOK_AGAIN,
    probation::{MAX_DEATHS, TrialPermit},
};
use crate::{
    access::tenant_of,
    catalog::RegisteredAgent,
    commit::{Decision, Writer},
    content::{Message, Role},
    engine::{CalledSlot, EngineCore, Slot, wait_until_closing},
    error::Error,
    event::{Event, Status},
    journal::ReplayJournal,
    run::TaskRun,
    store::{Change, ClaimedTask, CommitError, Precondition, RunChange, TaskKey},
    task::{self, State, TaskId},
    task_header::TaskHeader,
};

/// The delay before a task that could not be read is claimed again.
const RESUME_AGAIN: Duration = Duration::from_secs(10);
/// The delay for a called task that is given back because too many wait for a slot.
const SLOT_AGAIN: Duration = Duration::from_secs(1);
/// The most called tasks that are claimed and wait for a slot.
const WAITING_CLAIMS: usize = 1_024;

/// Claims due tasks until the engine stops.
pub(crate) async fn claim_loop(engine: Arc<EngineCore>) {
    let mut closing = engine.closing();
    loop {
        let wait = match claim_some(&engine).await {
            Ok(wait) => wait,
            Err(error) => {
                tracing::warn!(%error, "tasks could not be claimed; retrying");
                STORE_RETRY[2]
            }
        };
        tokio::select! {
            () = engine.claims.notified() => {}
            () = tokio::time::sleep(wait) => {}
            () = wait_until_closing(&mut closing) => return,
        }
    }
}

/// Claims due tasks that have a slot, tenants in turn. Returns the delay until the next attempt.
async fn claim_some(engine: &Arc<EngineCore>) -> Result<Duration, Error> {
    loop {
        // Tasks that are handed back at a stop are due at once, and are meant for other nodes.
        if engine.is_closing() {
            return Ok(engine.options.claim_poll);
        }
        engine.stay_alive().await?;
        let now = engine.clock.now();
        let due = engine.recount().await?;
        let (of, mut slots) = engine.divide(&due);
        if of.is_empty() && !due.is_empty() {
            // All slots are taken. The next free one wakes the loop.
            return Ok(engine.options.claim_poll);
        }
        let claimed = match of.is_empty() {
            true => vec![],
            false => engine.store.claim_of(engine.node, now, &of).await?,
        };
        if claimed.is_empty() {
            let next = engine.store.next_due().await?;
            let wait =
                next.map_or(engine.options.claim_poll, |at| at.since(now).max(Duration::from_millis(5)));
            return Ok(wait.min(engine.options.claim_poll));
        }
        note_takeovers(engine, &claimed);
        for claim in claimed {
            let engine = Arc::clone(engine);
            let slot = match claim.row.parent {
                None => slots.get_mut(&claim.row.owner).and_then(Vec::pop),
                Some(_) => None,
            };
            let (queues, tenant) = (Arc::clone(&engine), tenant_of(&claim.row.owner).to_owned());
            let resumed = async move {
                let resumed = match slot {
                    Some(slot) => resume(Arc::clone(&engine), &claim, slot).await,
                    None => resume_called(&engine, &claim).await,
                };
                if let Err(error) = resumed {
                    tracing::error!(task = %claim.row.id, %error, "a task could not be resumed");
                    leave_alone(&engine, &claim, RESUME_AGAIN).await;
                }
            };
            tokio::spawn(queues.ready.queue(&tenant, resumed));
        }
    }
}

/// Counts and logs the claimed tasks whose earlier run ended with its process or node: one line, however many they are.
fn note_takeovers(engine: &EngineCore, claimed: &[ClaimedTask]) {
    let count = claimed.iter().filter(|claim| claim.row.attempts > 0).count();
    if count > 0 {
        engine.node_metrics.takeovers.increment(count as u64);
        tracing::warn!(count, "took over tasks whose process or node ended while it ran them");
    }
}

/// Resumes a task that another task called, once it has a slot. When too many wait for one, it is given back for
/// a moment so that the tasks it may be waiting for are claimed too.
async fn resume_called(engine: &Arc<EngineCore>, claimed: &ClaimedTask) -> Result<(), Error> {
    let (row, head) = (&claimed.row, TaskHeader::decode(&claimed.row.head)?);
    let root = root_of(engine, claimed, &head).await?;
    let granted = match engine.called_slot(&row.owner, root, head.depth) {
        CalledSlot::Now(slot) => return resume(Arc::clone(engine), claimed, slot).await,
        CalledSlot::Later(granted) => granted,
    };
    let Some(_waiting) = WaitingClaim::enter(engine, row.id) else {
        leave_alone(engine, claimed, SLOT_AGAIN).await;
        return Ok(());
    };
    let mut closing = engine.closing();
    let slot = tokio::select! {
        slot = granted => slot.ok(),
        () = wait_until_closing(&mut closing) => None,
    };
    match slot {
        Some(slot) => resume(Arc::clone(engine), claimed, slot).await,
        None => {
            leave_alone(engine, claimed, Duration::ZERO).await;
            Ok(())
        }
    }
}

/// The root of the call tree that a task belongs to. Headers of older tasks lack it: their parents are followed.
async fn root_of(engine: &EngineCore, claimed: &ClaimedTask, head: &TaskHeader) -> Result<TaskId, Error> {
    if let Some(root) = head.root {
        return Ok(root);
    }
    let (mut root, mut parent) = (claimed.row.id, claimed.row.parent);
    for _ in 0..=head.depth {
        let Some(id) = parent else { break };
        root = id;
        parent = engine.store.row(&TaskKey::Id(id)).await?.and_then(|row| row.parent);
    }
    Ok(root)
}

/// A claimed task that waits for a slot. This node holds it although no run of it exists yet.
struct WaitingClaim<'a>(&'a EngineCore, TaskId);

impl<'a> WaitingClaim<'a> {
    /// `None`: too many wait already.
    fn enter(engine: &'a EngineCore, task: TaskId) -> Option<Self> {
        let mut waiting = engine.waiting_claims.lock();
        if waiting.len() >= WAITING_CLAIMS {
            return None;
        }
        waiting.insert(task);
        Some(Self(engine, task))
    }
}

impl Drop for WaitingClaim<'_> {
    fn drop(&mut self) {
        self.0.waiting_claims.lock().remove(&self.1);
    }
}

/// Resumes a task where its log and journal end.
async fn resume(engine: Arc<EngineCore>, claimed: &ClaimedTask, slot: Slot) -> Result<(), Error> {
    let Some((run, mut lease)) = read(&engine, claimed).await? else { return Ok(()) };
    let entered = engine.enter(&run);
    // After the run is registered: a webhook that is added from now on finds the run.
    if engine.store.webhooks(claimed.row.no).await.is_ok_and(|hooks| !hooks.is_empty()) {
        run.hooked.store(true, Ordering::Relaxed);
    }
    if claimed.row.cancel {
        run.cancel();
    }
    let served = engine.catalog.get(&claimed.row.agent);
    let unserved = "canceled; its agent is no longer served and could not be notified";
    let canceled = (claimed.row.cancel && served.is_err()).then_some(unserved);
    if let Some(why) = canceled.or_else(|| abandoned(&engine, claimed, &run)) {
        let message = Message::text(engine.clock.new_id().to_string(), Role::Agent, why);
        engine.cancel_children_of(&run).await;
        lease
            .finish(&run, Event::Status(Status { state: State::Canceled, message: Some(message), by: None }))
            .await;
        return Ok(());
    }
    let refusal = match served {
        Err(error) => {
            let patience = engine.options.missing_agent;
            if engine.missing.should_retry(&claimed.row, engine.clock.now(), patience) {
                tracing::warn!(task = %claimed.row.id, %error, "the agent is not served here; retrying");
                drop(entered);
                leave_alone(&engine, claimed, LOOK_AGAIN).await;
                return Ok(());
            }
            format!("{error}; no node has served this agent for {patience:?}")
        }
        Ok(registered) => match wait_for_trial(&engine, claimed, &run, &registered).await {
            ClaimAdmission::Quarantined(why) => why,
            ClaimAdmission::Canceled => {
                lease
                    .finish(&run, Event::Status(Status { state: State::Canceled, message: None, by: None }))
                    .await;
                return Ok(());
            }
            ClaimAdmission::Stopping => {
                drop(entered);
                leave_alone(&engine, claimed, Duration::ZERO).await;
                return Ok(());
            }
            ClaimAdmission::Free(trial) => {
                // Durable before the agent can do anything.
                if let Some(trial) = &trial
                    && lease.suspect(&run, Some(trial.suspicion.clone())).await.is_err()
                {
                    return Ok(());
                }
                if claimed.row.epoch == 1 {
                    engine.node_metrics.record_queue_wait(engine.clock.now().since(claimed.row.created_at));
                }
                Driver::new(run, &registered, slot).on_trial(trial).drive(lease, entered).await;
                return Ok(());
            }
        },
    };
    let _ = run.failure.set(refusal.clone());
    let message = Message::text(engine.clock.new_id().to_string(), Role::Agent, refusal);
    let message = Some(task::as_fault(message));
    lease.finish(&run, Event::Status(Status { state: State::Failed, message, by: None })).await;
    Ok(())
}

/// What to do with a claimed task whose agent is served.
enum ClaimAdmission {
    /// It runs; on trial if it is a suspect.
    Free(Option<TrialPermit>),
    /// It fails for this reason.
    Quarantined(String),
    /// It was canceled before it began.
    Canceled,
    /// The engine is stopping.
    Stopping,
}

/// Waits for a trial if the task is a suspect, see `probation.rs`.
async fn wait_for_trial(
    engine: &Arc<EngineCore>,
    claimed: &ClaimedTask,
    run: &TaskRun,
    registered: &RegisteredAgent,
) -> ClaimAdmission {
    let row = &claimed.row;
    let Some(suspicion) = Suspicion::of(row, run.suspicion()) else { return ClaimAdmission::Free(None) };
    tracing::warn!(
        task = %row.id, agent = row.agent, attempts = row.attempts, deaths = suspicion.deaths,
        "processes died under this task before it committed anything; it starts on trial"
    );
    // Work that runs elsewhere can only be stopped there by starting the agent once more.
    let canceled = async {
        match registered.agent.works_elsewhere() {
            true => std::future::pending().await,
            false => run.canceled().await,
        }
    };
    let admitted = tokio::select! {
        admitted = engine.probation.admit(engine, row, suspicion) => admitted,
        () = canceled => return ClaimAdmission::Canceled,
    };
    match admitted {
        None => ClaimAdmission::Stopping,
        Some(trial) if trial.suspicion.deaths >= MAX_DEATHS => {
            tracing::error!(task = %row.id, agent = row.agent, "quarantined a task that crashed the server");
            ClaimAdmission::Quarantined(format!(
                "quarantined: {} attempts in a row ended with the server and without getting any further; in the last {} \
                 the task was started alone, the server died within {:?}, and the next one lived without it",
                row.attempts, trial.suspicion.deaths, trial.length
            ))
        }
        trial => ClaimAdmission::Free(trial),
    }
}

/// Why the result is no longer wanted, for a task whose caller waits on a connection.
fn abandoned(engine: &EngineCore, claimed: &ClaimedTask, run: &TaskRun) -> Option<&'static str> {
    let waiting = run.waiting()?;
    let row = &claimed.row;
    if row.attempts > 0 {
        return Some("the caller waited on a connection to a server that has stopped");
    }
    let unanswered = row.state.is_interrupted() && engine.clock.now() >= row.status_at.after(waiting);
    unanswered.then_some("the caller waited, and did not answer in time")
}

/// Reads the part of a task's past that a run needs. The rest is not held in memory.
async fn read(
    engine: &Arc<EngineCore>,
    claimed: &ClaimedTask,
) -> Result<Option<(Arc<TaskRun>, Lease)>, Error> {
    let row = &claimed.row;
    let Some(opened) = engine.store.open(&TaskKey::Id(row.id)).await? else { return Ok(None) };
    let task = engine.fold(&opened).await?;
    let mut head = TaskHeader::decode(&opened.row.head)?;
    if head.depth > 0 {
        head.root = Some(root_of(engine, claimed, &head).await?);
    }
    let replay = ReplayJournal::new(&engine.store.journal(row.no).await?)?;
    let profile = match engine.catalog.get(&row.agent) {
        Ok(registered) => Arc::clone(&registered.profile),
        Err(_) => engine.unknown_agent(),
    };
    let snapshot = opened.snapshot.as_ref().map_or(0, |(_, bytes)| bytes.len() as u64);
    let lease = Lease::claimed(Arc::clone(engine), claimed, snapshot);
    let run = TaskRun::new(Arc::clone(engine), profile, &task, head, replay, true);
    run.record_claim(row.epoch, row.attempts);
    Ok(Some((Arc::new(run), lease)))
}

/// Gives a task back for a while: it could not be read (a disk error, or a task of a newer version), or its agent
/// is missing.
async fn leave_alone(engine: &Arc<EngineCore>, claimed: &ClaimedTask, wait: Duration) {
    let mut change = Change::new(Precondition::Runner { task: claimed.row.no, epoch: claimed.row.epoch })
        .of_owner(&claimed.row.owner);
    change.run = RunChange::Due(engine.clock.now().after(wait));
    for wait in STORE_RETRY {
        match engine.commit_and_apply(Writer::Node(&claimed.row), Decision::silent(change.clone())).await {
            Err(CommitError::Store(_)) => tokio::time::sleep(wait).await,
            _ => return,
        }
    }
}
