//! Finds tasks that nobody runs, and goes on with them.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use super::{Driver, Lease, MAX_IDLE_ATTEMPTS, STORE_RETRY, missing::LOOK_AGAIN};
use crate::{
    content::{Message, Role},
    engine::{Inner as Engine, Permit, closed},
    error::Error,
    event::{Event, Status},
    head::Head,
    journal::Replay,
    run::Run,
    store::{Change, Claimed, CommitError, Guard, RunChange, TaskKey},
    task::{self, State},
};

/// How long a task that could not be read is left alone.
const RESUME_AGAIN: Duration = Duration::from_secs(10);

/// Finds tasks that nobody runs, for as long as the server does.
pub(crate) async fn claim_loop(engine: Arc<Engine>) {
    let mut closing = engine.closing();
    loop {
        let wait = match claim_some(&engine).await {
            Ok(wait) => wait,
            Err(error) => {
                tracing::warn!(%error, "tasks could not be claimed; trying again");
                STORE_RETRY[2]
            }
        };
        tokio::select! {
            () = engine.claims.notified() => {}
            // Counted again also while all places are taken and nothing is claimed.
            () = tokio::time::sleep(wait) => engine.recount().await,
            () = closed(&mut closing) => return,
        }
    }
}

/// Claims what is due and fits; how long until it is worth looking again.
async fn claim_some(engine: &Arc<Engine>) -> Result<Duration, Error> {
    const AT_ONCE: usize = 64;
    let mut more = 0;
    loop {
        // No more places than tasks are known to wait: a new task would find all of them taken meanwhile.
        let waiting = usize::try_from(engine.queued()).unwrap_or(usize::MAX).max(more);
        let permits: Vec<Permit> = std::iter::from_fn(|| engine.admit()).take(waiting.min(AT_ONCE)).collect();
        if permits.is_empty() && !engine.has_place() {
            return Ok(engine.options.claim_poll);
        }
        engine.stay_alive().await?;
        let now = engine.clock.now();
        let limit = permits.len().max(1);
        let claimed = engine.store.claim(engine.node, now, limit).await?;
        let full = claimed.len() == limit;
        let mut permits = permits.into_iter();
        for claim in claimed {
            let engine = Arc::clone(engine);
            let permit = permits.next().unwrap_or_else(|| engine.admit_anyway());
            tokio::spawn(async move {
                if let Err(error) = resume(Arc::clone(&engine), &claim, permit).await {
                    tracing::error!(task = %claim.row.id, %error, "a task could not be resumed");
                    leave_alone(&engine, &claim, RESUME_AGAIN).await;
                }
            });
        }
        drop(permits);
        engine.recount().await;
        if !full {
            let next = engine.store.next_due().await?;
            let wait =
                next.map_or(engine.options.claim_poll, |at| at.since(now).max(Duration::from_millis(5)));
            return Ok(wait.min(engine.options.claim_poll));
        }
        // Those of a dead node are not counted, and there may be many.
        more = 2 * limit;
    }
}

/// Goes on with a task where its log and journal end.
async fn resume(engine: Arc<Engine>, claimed: &Claimed, permit: Permit) -> Result<(), Error> {
    let Some((run, mut lease)) = read(&engine, claimed).await? else { return Ok(()) };
    let entered = engine.enter(&run);
    // After that: whoever adds one from now on finds the run.
    if engine.store.webhooks(claimed.row.no).await.is_ok_and(|hooks| !hooks.is_empty()) {
        run.hooked.store(true, Ordering::Relaxed);
    }
    if claimed.row.cancel {
        run.cancel();
    }
    let served = engine.catalog.get(&claimed.row.agent);
    let unserved = "canceled; its agent is not served any more and was not told";
    let canceled = (claimed.row.cancel && served.is_err()).then_some(unserved);
    if let Some(why) = canceled.or_else(|| abandoned(&engine, claimed, &run)) {
        let message = Message::text(engine.clock.new_id().to_string(), Role::Agent, why);
        engine.cancel_children(claimed.row.id).await;
        lease.finish(&run, Event::Status(Status { state: State::Canceled, message: Some(message) })).await;
        return Ok(());
    }
    let refusal = match served {
        Err(error) => {
            let patience = engine.options.missing_agent;
            if engine.missing.again(&claimed.row, engine.clock.now(), patience) {
                tracing::warn!(task = %claimed.row.id, %error, "its agent is not served here; looking again");
                drop(entered);
                leave_alone(&engine, claimed, LOOK_AGAIN).await;
                return Ok(());
            }
            format!("{error}; it was waited for for {patience:?}")
        }
        Ok(_) if claimed.row.attempts >= MAX_IDLE_ATTEMPTS => {
            format!(
                "quarantined: {} attempts in a row ended without getting any further",
                claimed.row.attempts
            )
        }
        Ok(registered) => {
            Driver::new(run, &registered, permit).drive(lease, entered).await;
            return Ok(());
        }
    };
    let message = Message::text(engine.clock.new_id().to_string(), Role::Agent, refusal);
    let message = Some(task::as_fault(message));
    lease.finish(&run, Event::Status(Status { state: State::Failed, message })).await;
    Ok(())
}

/// Why nobody wants the result any more, if the caller waited at a connection.
fn abandoned(engine: &Engine, claimed: &Claimed, run: &Run) -> Option<&'static str> {
    let waiting = run.waiting()?;
    let row = &claimed.row;
    if row.attempts > 0 {
        return Some("the caller waited at a server that is gone");
    }
    let unanswered = row.state.is_interrupted() && engine.clock.now() >= row.status_at.after(waiting);
    unanswered.then_some("the caller waited, and did not answer in time")
}

/// What a run needs of a task's past. The rest of it is not held while the run goes on.
async fn read(engine: &Arc<Engine>, claimed: &Claimed) -> Result<Option<(Arc<Run>, Lease)>, Error> {
    let row = &claimed.row;
    let Some(opened) = engine.store.open(&TaskKey::Id(row.id)).await? else { return Ok(None) };
    let task = engine.fold(&opened).await?;
    let head = Head::decode(&opened.row.head)?;
    let replay = Replay::new(&engine.store.journal(row.no).await?)?;
    let profile = match engine.catalog.get(&row.agent) {
        Ok(registered) => Arc::clone(&registered.profile),
        Err(_) => engine.unknown_agent(),
    };
    let snapshot = opened.snapshot.as_ref().map_or(0, |(_, bytes)| bytes.len() as u64);
    let lease = Lease::claimed(Arc::clone(engine), claimed, snapshot);
    Ok(Some((Arc::new(Run::new(Arc::clone(engine), profile, &task, head, replay, true)), lease)))
}

/// Gives a task back that could not be read, for a while: it may be the disk, or a newer version's task. Or one whose
/// agent is missing.
async fn leave_alone(engine: &Engine, claimed: &Claimed, wait: Duration) {
    let mut change = Change::new(Guard::Runner { task: claimed.row.no, epoch: claimed.row.epoch });
    change.run = RunChange::Due(engine.clock.now().after(wait));
    for wait in STORE_RETRY {
        match engine.store.commit(change.clone()).await {
            Err(CommitError::Store(_)) => tokio::time::sleep(wait).await,
            _ => return,
        }
    }
}
