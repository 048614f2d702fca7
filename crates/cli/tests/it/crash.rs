//! The server is killed, again and again, while it is at work. What it had acknowledged is there afterwards.
//!
//! It is killed at random moments, under a crowd of clients (`crowd.rs`), and everything is compared at the end.

use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use tokio::sync::watch;

use crate::{
    crowd::{Crowd, Times},
    random::{self, Random},
    server_process::ServerProcess,
    streams::{Endpoint, within},
};

/// Kills that may come before the server has got any further with anything. After more of them it starts its tasks a
/// few at a time, to find out which of them kills it.
const EARLY_KILLS_IN_A_ROW: usize = 3;

/// Kills the server under a crowd of clients. Twenty times under twenty of them by default, a hundred times
/// under fifty with `NUNCIO_FULL=1`, any number of times with `NUNCIO_CRASH_CYCLES`; the moments can be had
/// again with `NUNCIO_SEED`.
///
/// It fails when the acknowledgement is moved before the commit. Tried by having the store's writer answer the
/// jobs of a batch right before `COMMIT`, with ten seeds: a client is told "there is no task" of the task that
/// it was just given; and where it is made to overlook that, within a few kills "there is no event 35 to
/// continue after: the task's last event is 32". Without `hold_back_the_writer` half of the latter passed.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_survives_kills() {
    let plan = Plan::from_env();
    let seed = plan.seed;
    println!("NUNCIO_SEED={seed} repeats this");
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let mut server = ServerProcess::start_test_agents(&data);
    let (serving, process) = watch::channel(0);
    let endpoint = Endpoint::new(server.url(), "ledger", process);
    let crowd = Crowd::new(vec![endpoint], plan.tasks, seed);

    let mut clients = crowd.gather();
    let kills = tokio::select! {
        kills = kill_again_and_again(&mut server, &serving, &crowd, &plan) => kills,
        failure = crowd.failure(&mut clients) => panic!("seed {seed}: {failure}\n{}", server.log()),
    };
    let stories = crowd.disperse(clients, || server.log()).await;
    // Once more, so that nothing of what follows comes from memory.
    serving.send_replace(0);
    server.kill9();
    server.restart();
    serving.send_replace(server.pid());

    let told = crowd.check(&stories, &data).await;
    assert_eq!(crowd.turned_away.load(Ordering::Relaxed), 0, "a client was told to come again");
    println!(
        "crash: {} kills ({} of them before the server was back at work), {} tasks in flight, {told}, all at work {} \
         after a kill",
        plan.cycles, kills.early, plan.tasks, kills.takeovers,
    );
}

struct Plan {
    cycles: usize,
    tasks: usize,
    seed: u64,
}

impl Plan {
    fn from_env() -> Self {
        let (cycles, tasks) = if std::env::var_os("NUNCIO_FULL").is_some() { (100, 50) } else { (20, 20) };
        let chosen = std::env::var("NUNCIO_CRASH_CYCLES").ok().map(|cycles| cycles.parse().unwrap());
        Self { cycles: chosen.unwrap_or(cycles), tasks, seed: random::seed() }
    }
}

#[derive(Default)]
struct Kills {
    /// Those before every task had moved on.
    early: usize,
    /// From each other kill until every task had moved on again.
    takeovers: Times,
}

/// Leaves the server running after the last kill.
async fn kill_again_and_again(
    server: &mut ServerProcess,
    serving: &watch::Sender<u32>,
    crowd: &Crowd,
    plan: &Plan,
) -> Kills {
    let mut random = Random(plan.seed);
    let mut kills = Kills::default();
    let (mut early_in_a_row, mut killed_at) = (0, None);
    for _ in 0..plan.cycles {
        if early_in_a_row < EARLY_KILLS_IN_A_ROW && random.below(4) == 0 {
            // While it starts, takes up what was left, or has hardly begun.
            let (began, moment) = (Instant::now(), random.moment(Duration::from_millis(400)));
            if server.ready_within(moment) {
                serving.send_replace(server.pid());
                tokio::time::sleep(moment.saturating_sub(began.elapsed())).await;
            }
            early_in_a_row += 1;
            kills.early += 1;
        } else {
            server.ready();
            serving.send_replace(server.pid());
            within("work of the new process on every task", crowd.all_moved_by(&[server.pid()])).await;
            kills.takeovers.0.extend(killed_at.map(|at: Instant| at.elapsed()));
            if random.below(4) != 0 {
                hold_back_the_writer(server.pid());
            }
            tokio::time::sleep(random.moment(Duration::from_millis(300))).await;
            match random.below(3) {
                // The worst moment for a promise is when it has just been heard.
                0 => within("anything", crowd.heard.subscribe().changed()).await.unwrap(),
                // And for a send, when it was taken and not yet answered.
                1 => {
                    within("a send", crowd.sent.subscribe().changed()).await.unwrap();
                    tokio::time::sleep(random.moment(Duration::from_millis(8))).await;
                }
                _ => {}
            }
            early_in_a_row = 0;
        }
        serving.send_replace(0);
        server.kill9();
        killed_at = Some(Instant::now());
        server.respawn();
    }
    server.ready();
    serving.send_replace(server.pid());
    kills
}

/// Gives the server one core, and its writer what the others leave of it. Where something does not wait for the
/// commit, it is now far ahead of it, and a kill between the two shows it; on many free cores the commit would
/// have reached the kernel before anybody heard of it.
#[cfg(target_os = "linux")]
fn hold_back_the_writer(process: u32) {
    use rustix::{
        process::{Pid, setpriority_process},
        thread::{CpuSet, sched_getaffinity, sched_setaffinity},
    };
    for thread in std::fs::read_dir(format!("/proc/{process}/task")).unwrap() {
        let thread = thread.unwrap();
        let id = Pid::from_raw(thread.file_name().to_str().unwrap().parse().unwrap());
        // A thread may end meanwhile; then there is nothing to hold back.
        let Ok(cores) = sched_getaffinity(id) else { continue };
        let mut one = CpuSet::new();
        one.set((0..CpuSet::MAX_CPU).find(|core| cores.is_set(*core)).unwrap());
        let _ = sched_setaffinity(id, &one);
        if std::fs::read_to_string(thread.path().join("comm"))
            .is_ok_and(|name| name.trim() == "nuncio-writer")
        {
            setpriority_process(id, 19).unwrap();
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn hold_back_the_writer(_: u32) {}
