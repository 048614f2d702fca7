//! The process dies after every commit of a plan in turn. Each time the plan is completed, nothing that was finished is
//! done again, and what it came to is the same to the byte.

use std::{collections::BTreeSet, sync::Arc};

use nuncio_engine::{AgentError, Outcome, Part, State, Task, TaskContext};
use nuncio_testkit::fault_injection::CrashAfterCommits;
use tokio::runtime::Runtime;

use super::world::{Counts, Health, Server, World, completed, does, elsewhere, part, result, sleeper, until};

/// Ten tasks with everything in it: parallel parts, a retry, somebody who is down, a fallback, an optional failure.
const PLAN: &str = r#"
name = "everything"
[budget]
retries = 5
[[tasks]]
id = "a"
agent = "worker"
input = { data = { id = "a", ms = 5 } }
[[tasks]]
id = "b"
agent = "worker"
input = { data = { id = "b", ms = 10 } }
[[tasks]]
id = "shaky"
agent = "shaky"
retry = { attempts = 3, backoff = "5ms" }
[[tasks]]
id = "gone"
agent = "away"
input = { data = { id = "gone" } }
[[tasks]]
id = "c"
needs = ["a", "b"]
agent = "worker"
input = { text = "{{ tasks.a.text }}", data = { id = "c", ms = "{{ tasks.a.data.ms }}" } }
[[tasks]]
id = "d"
needs = ["a"]
skill = "work"
input = { data = { id = "d" } }
[[tasks]]
id = "bad"
needs = ["a"]
agent = "bad"
optional = true
[[tasks]]
id = "other"
agent = "bad"
fallbacks = ["worker"]
input = { data = { id = "other" } }
[[tasks]]
id = "e"
needs = ["c", "d", "bad", "shaky"]
agent = "worker"
timeout = "60s"
input = { data = { id = "e" } }
[[tasks]]
id = "f"
needs = ["e", "gone", "other"]
agent = "worker"
input = { text = "{{ tasks.bad.state }} {{ tasks.gone.agent }}", data = { id = "f" } }
"#;

/// Tasks that are called in all: ten, two more tries, one that rejects, and two who cannot be reached.
const TASKS: usize = 15;

fn world(counts: &Counts) -> World {
    let shaky = {
        let counts = counts.clone();
        does("shaky", "shake", move |cx: TaskContext| {
            let counts = counts.clone();
            async move {
                // The first two of its tasks fail, however often each of them is begun: told by where they are called.
                let n: usize = cx.input().id.rsplit('#').next().unwrap().parse().unwrap();
                drop(counts.enter(&format!("shaky {n}")));
                if n < 10 { Err(AgentError::failed("not yet")) } else { Ok(Outcome::said("steady")) }
            }
        })
    };
    let away = does("away", "work", async |_| Err(AgentError::Unreachable("no route".into())));
    let bad = does("bad", "badness", async |_| Ok(Outcome::rejected("never")));
    World::new(vec![sleeper("worker", "work", counts), shaky, away, bad])
}

/// One life of a server, which can be cut off at any point.
struct Life {
    runtime: Runtime,
    server: Server,
}

impl Life {
    fn begin(world: &World, commits: Option<u64>) -> (Self, Option<Arc<CrashAfterCommits>>) {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let (server, cut) = runtime.block_on(async {
            let store = world.store().await;
            match commits {
                None => (world.serve_on(store).await, None),
                Some(commits) => {
                    let cut = CrashAfterCommits::after(commits);
                    (world.serve_on(cut.on(store)).await, Some(cut))
                }
            }
        });
        (Self { runtime, server }, cut)
    }

    /// The process dies here and now: everything stops at its next await, and nothing is tidied up.
    fn die(self) {
        let Self { runtime, server } = self;
        runtime.shutdown_background();
        // What the system does for a process that is gone: its files are closed.
        Runtime::new().unwrap().block_on(server.engine.store_for_tests().close()).unwrap();
    }
}

/// The subtasks that are finished as the store has it: the ids of ended tasks.
fn finished(life: &Life) -> BTreeSet<String> {
    let all = ["worker", "shaky", "away", "bad"];
    let mut ended = BTreeSet::new();
    for agent in all {
        for task in life.runtime.block_on(life.server.tasks(agent)) {
            if task.state.is_terminal() {
                ended.insert(task.origin.id.to_string());
            }
        }
    }
    ended
}

fn check(life: &Life, task: &Task, before: &str) -> usize {
    let ended = life.runtime.block_on(life.server.ended(task));
    completed(&ended);
    assert_eq!(result(&ended), before, "the same, to the byte");
    assert_eq!(part(&ended, "shaky")["attempts"], 3);
    assert_eq!(part(&ended, "gone")["reroutedFrom"][0]["agent"], "away");
    assert_eq!(part(&ended, "other")["agent"], "worker");
    // One task for every try, and not one more.
    let mut tasks = 0;
    for (agent, expected) in [("worker", 8), ("shaky", 3), ("away", 2), ("bad", 2)] {
        let found = life.runtime.block_on(life.server.tasks(agent));
        assert_eq!(found.len(), expected, "{agent}");
        assert!(found.iter().all(|task| task.state != State::Working), "{agent}");
        tasks += found.len();
    }
    tasks
}

#[test]
fn a_plan_survives_a_death_after_every_commit() {
    let counts = Counts::default();
    let calm = world(&counts);
    let (life, cut) = Life::begin(&calm, Some(u64::MAX));
    let task = life.runtime.block_on(life.server.begin(Part::text(PLAN)));
    let ended = life.runtime.block_on(life.server.ended(&task));
    completed(&ended);
    let expected = result(&ended);
    assert!(expected.contains("## f\n\nf is done\n\n_from agent worker_"), "{expected}");
    assert!(expected.contains("Not done: rejected: never"), "{expected}");
    assert_eq!(check(&life, &task, &expected), TASKS);
    // So many commits in a run without a death; one more or less by how they fall together.
    let commits = cut.unwrap().commits();
    life.die();
    assert!(commits > 20, "{commits}");

    let mut deaths = 0;
    for n in 1..=commits {
        let counts = Counts::default();
        let world = world(&counts);
        let (life, cut) = Life::begin(&world, Some(n));
        let cut = cut.unwrap();
        let begun = life.runtime.block_on(async {
            tokio::select! {
                task = life.server.begin(Part::text(PLAN)) => Some(task),
                () = cut.wait_for_crash() => None,
            }
        });
        let died = life.runtime.block_on(async {
            let Some(task) = &begun else { return true };
            tokio::select! {
                biased;
                () = cut.wait_for_crash() => true,
                _ = life.server.ended(task) => false,
            }
        });
        deaths += usize::from(died);
        life.die();
        let (life, _) = Life::begin(&world, None);
        // Whoever began it and got no answer finds it.
        let task = match begun {
            Some(task) => task,
            None => life.runtime.block_on(life.server.tasks("orchestrator")).remove(0),
        };
        let done = finished(&life);
        let ran = counts.all();
        check(&life, &task, &expected);
        // What was finished was not run again: a run more only for what was cut in its middle.
        let again: usize =
            counts.all().iter().map(|(id, times)| times - ran.get(id).copied().unwrap_or(0)).sum();
        assert!(
            again + done.len() <= TASKS + 3,
            "after commit {n}: {again} ran with {} finished",
            done.len()
        );
        life.die();
    }
    assert!(deaths as u64 >= commits * 3 / 4, "{deaths} of {commits}");
    println!(
        "a plan of 10 subtasks: {deaths} deaths, one after each of {commits} commits, same synthesis each time"
    );
}

/// One agent elsewhere hangs until it is given up for another; after a death it is well again.
#[test]
fn whoever_was_given_up_before_a_death_or_not_the_plan_is_completed() {
    const PLAN: &str = "[[tasks]]\nid = \"t\"\nagent = \"far\"\ninput = { data = { id = \"t\" } }\n";
    let (mut deaths, mut n, mut by) = (0, 0, BTreeSet::new());
    loop {
        n += 1;
        let (counts, health) = (Counts::default(), Arc::new(Health::default()));
        let far = {
            let health = Arc::clone(&health);
            elsewhere("far", "work", &health.clone(), move |cx: TaskContext| {
                let health = Arc::clone(&health);
                async move {
                    if health.is_well() {
                        return Ok(Outcome::said("t is done"));
                    }
                    cx.canceled().await;
                    Err(AgentError::Canceled)
                }
            })
        };
        let world = World::new(vec![far, sleeper("near", "work", &counts)]);
        health.ill("away");
        let (life, cut) = Life::begin(&world, Some(n));
        let cut = cut.unwrap();
        let (begun, died) = life.runtime.block_on(async {
            let server = &life.server;
            let begun = tokio::select! {
                task = server.begin(Part::text(PLAN)) => task,
                () = cut.wait_for_crash() => return (None, true),
            };
            let gives_up = async {
                until("it is called", async || (!server.tasks("far").await.is_empty()).then_some(())).await;
                until("it is given up", async || {
                    server.registry.probe_down_reason("far").await;
                    server.registry.open_breaker_reason("far")
                })
                .await;
                server.ended(&begun).await;
            };
            let died = tokio::select! {
                biased;
                () = cut.wait_for_crash() => true,
                () = gives_up => false,
            };
            (Some(begun), died)
        });
        life.die();
        if !died {
            break;
        }
        deaths += 1;
        health.well();
        let (life, _) = Life::begin(&world, None);
        let task = match begun {
            Some(task) => task,
            None => life.runtime.block_on(life.server.tasks("orchestrator")).remove(0),
        };
        let ended = life.runtime.block_on(life.server.ended(&task));
        completed(&ended);
        let found = part(&ended, "t");
        assert_eq!(
            result(&ended),
            format!("## t\n\nt is done\n\n_from agent {}_\n", found["agent"].as_str().unwrap())
        );
        by.insert(found["agent"].as_str().unwrap().to_owned());
        life.die();
    }
    assert!(deaths > 6, "{deaths}");
    assert_eq!(
        by.into_iter().collect::<Vec<_>>(),
        ["far", "near"],
        "given up before some deaths, and not before others"
    );
}
