//! A task is not to blame for the deaths of a server under which it merely ran; one that takes the server down with it
//! is found, and given up.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use nuncio_engine::{Outcome, State, Task, TaskContext};
use tokio::sync::Semaphore;

use crate::world::{EngineExt, Life, World, last_words, me, to, until};

/// A trial that is long beside what a start takes here, and short beside a test.
const PROBATION: Duration = Duration::from_millis(300);

fn brief(world: World) -> World {
    world.options(|options| options.probation = PROBATION)
}

/// An agent that says nothing until it is let go, and counts its runs.
fn silent(world: World, name: &str) -> (World, Arc<Semaphore>, Arc<AtomicU32>) {
    let (gate, runs) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicU32::new(0)));
    let (wait, count) = (Arc::clone(&gate), Arc::clone(&runs));
    let world = world.agent(name, move |_: TaskContext| {
        let (wait, count) = (Arc::clone(&wait), Arc::clone(&count));
        async move {
            // Not in the send itself: its task is to be there when it runs.
            tokio::task::yield_now().await;
            count.fetch_add(1, Ordering::SeqCst);
            wait.acquire().await.unwrap().forget();
            Ok(Outcome::done())
        }
    });
    (world, gate, runs)
}

/// An agent that takes the process down with it as soon as it runs: the test cuts the life when it sees that.
fn pill(world: World) -> (World, Arc<AtomicBool>) {
    let ran = Arc::new(AtomicBool::new(false));
    let run = Arc::clone(&ran);
    let world = world.agent("pill", move |cx: TaskContext| {
        let run = Arc::clone(&run);
        async move {
            cx.wait_until_durable().await;
            run.store(true, Ordering::SeqCst);
            std::future::pending().await
        }
    });
    (world, ran)
}

/// Waits until this life has claimed all of these tasks.
async fn claimed(life: &Life, tasks: &[Task]) {
    for task in tasks {
        until("it is claimed", async || {
            let row = life.engine.row(task.origin.id).await;
            (row.node == Some(life.engine.node())).then_some(())
        })
        .await;
    }
}

#[test]
fn a_silent_task_lives_through_eight_crashes_of_its_server() {
    let (world, gate, runs) = silent(brief(World::new()), "silent");
    let mut tasks = vec![];
    for crash in 1..=8 {
        let life = world.life();
        life.block_on(async {
            if tasks.is_empty() {
                for _ in 0..3 {
                    tasks.push(life.engine.send(to("silent", "go")).await);
                }
            }
            claimed(&life, &tasks).await;
        });
        life.cut();
        assert!(crash < 3 || runs.load(Ordering::SeqCst) > 0);
    }
    let life = world.life();
    gate.add_permits(3);
    for task in &tasks {
        let task = life.block_on(life.engine.ended(task));
        assert_eq!(task.state, State::Completed, "{}", last_words(&task));
    }
}

/// The same, killed whenever the server has reached an age at which the last start of the task was still on trial.
#[test]
fn a_server_that_always_dies_at_the_same_age_blames_nobody() {
    let (world, gate, runs) = silent(brief(World::new()), "silent");
    let mut task: Option<Task> = None;
    for _ in 0..12 {
        let life = world.life();
        life.block_on(async {
            if task.is_none() {
                task = Some(life.engine.send(to("silent", "go")).await);
            }
            tokio::time::sleep(PROBATION * 3 / 2).await;
        });
        life.cut();
    }
    assert!(runs.load(Ordering::SeqCst) >= 3);
    let life = world.life();
    gate.add_permits(1);
    let task = life.block_on(life.engine.ended(&task.unwrap()));
    assert_eq!(task.state, State::Completed, "{}", last_words(&task));
}

#[test]
fn a_task_that_takes_the_server_down_is_quarantined_and_those_beside_it_are_not() {
    for beside in [0, 1, 12] {
        let (world, gate, _) = silent(brief(World::new()), "silent");
        let (world, ran) = pill(world);
        let (mut others, mut poison) = (vec![], None);
        let mut deaths = 0;
        let (ended, life) = loop {
            let life = world.life();
            let ended = life.block_on(async {
                if poison.is_none() {
                    for _ in 0..beside {
                        others.push(life.engine.send(to("silent", "go")).await);
                    }
                    poison = Some(life.engine.send(to("pill", "go")).await);
                }
                until("the pill works, or is given up", async || {
                    let task = life.engine.task(poison.as_ref().unwrap().origin.id).await;
                    let ended = task.state.is_terminal();
                    (ended || ran.swap(false, Ordering::SeqCst)).then_some(ended.then_some(task))
                })
                .await
            });
            if let Some(ended) = ended {
                break (ended, life);
            }
            life.cut();
            deaths += 1;
            assert!(deaths < 20, "beside {beside}: it is never given up");
        };
        assert_eq!(ended.state, State::Failed);
        assert!(last_words(&ended).contains("quarantined"), "{}", last_words(&ended));
        assert!((5..=12).contains(&deaths), "beside {beside}: {deaths}");
        gate.add_permits(beside);
        for task in &others {
            let task = life.block_on(life.engine.ended(task));
            assert_eq!(task.state, State::Completed, "beside {beside}: {}", last_words(&task));
        }
        life.cut();
    }
}

#[test]
fn a_run_that_lives_through_its_trial_is_cleared() {
    let (world, gate, runs) = silent(brief(World::new()), "silent");
    let mut task: Option<Task> = None;
    // Each third life is long. What was held against the task before is forgotten each time.
    for crash in 1..=12 {
        let life = world.life();
        life.block_on(async {
            if task.is_none() {
                task = Some(life.engine.send(to("silent", "go")).await);
            }
            let id = task.as_ref().unwrap().origin.id;
            until("it runs again", async || (runs.load(Ordering::SeqCst) >= crash).then_some(())).await;
            if crash % 3 == 0 {
                until("nothing is held against it", async || {
                    let head = life.engine.row(id).await.head;
                    (!String::from_utf8_lossy(&head).contains("suspicion")).then_some(())
                })
                .await;
            }
        });
        life.cut();
    }
    let life = world.life();
    gate.add_permits(1);
    let task = life.block_on(life.engine.ended(&task.unwrap()));
    assert_eq!(task.state, State::Completed, "{}", last_words(&task));
}

#[test]
fn a_suspect_that_waits_for_its_trial_is_canceled_without_being_started() {
    let (world, ran) =
        pill(brief(World::new()).options(|options| options.probation = Duration::from_secs(50)));
    let mut task: Option<Task> = None;
    // The third start is on trial.
    for _ in 1..=3 {
        let life = world.life();
        life.block_on(async {
            if task.is_none() {
                task = Some(life.engine.send(to("pill", "go")).await);
            }
            until("it works", async || ran.swap(false, Ordering::SeqCst).then_some(())).await;
        });
        life.cut();
    }
    let life = world.life();
    let task = task.unwrap();
    life.block_on(async {
        claimed(&life, std::slice::from_ref(&task)).await;
        life.engine.cancel(&me(), &task.origin.id.to_string()).await.unwrap();
    });
    let task = life.block_on(life.engine.ended(&task));
    assert_eq!((task.state, ran.load(Ordering::SeqCst)), (State::Canceled, false));
}
