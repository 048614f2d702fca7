//! Plans in which something goes wrong: tries, timeouts, fallbacks, and those who are down.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use nuncio_engine::{AgentError, Caller, Grants, Message, Outcome, Part, Role, State, Submit, TaskContext};
use nuncio_flows::registry::Breaker;
use serde_json::json;

use super::world::{
    Counts, Does, Health, World, completed, does, elsewhere, part, provenance, said, sleeper, until,
};

/// Fails so many times, then says its name.
fn failing(name: &'static str, skill: &str, times: usize) -> (Arc<Does>, Arc<AtomicUsize>) {
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let agent = does(name, skill, move |_: TaskContext| {
        let run = counted.fetch_add(1, Ordering::SeqCst) + 1;
        async move {
            if run <= times { Ok(Outcome::failed(format!("try {run}"))) } else { Ok(Outcome::said(name)) }
        }
    });
    (agent, runs)
}

fn task(keys: &str) -> String {
    format!("[[tasks]]\nid = \"t\"\n{keys}\n")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subtask_is_tried_again_after_growing_waits() {
    let (agent, runs) = failing("shaky", "s", 2);
    let server = World::new(vec![agent]).serve().await;
    let begun = Instant::now();
    let ended = server.run(&task("agent = \"shaky\"\nretry = { attempts = 3, backoff = \"100ms\" }")).await;
    completed(&ended);
    assert!(begun.elapsed() >= Duration::from_millis(300), "100 ms, then 200 ms");
    assert_eq!((runs.load(Ordering::SeqCst), &part(&ended, "t")["attempts"]), (3, &3.into()));
    assert_eq!(provenance(&ended)["parts"][0]["reroutedFrom"], serde_json::json!([]));

    let (agent, runs) = failing("worse", "s", 9);
    let server = World::new(vec![agent]).serve().await;
    let ended = server.run(&task("agent = \"worse\"\nretry = { attempts = 3, backoff = \"1ms\" }")).await;
    assert_eq!((ended.state, runs.load(Ordering::SeqCst)), (State::Failed, 3));
    assert_eq!(said(&ended), "plan was not completed.\n- t (worse): try 3");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_budget_holds_for_all_subtasks_together() {
    let (left, of_left) = failing("left", "l", 99);
    let (right, of_right) = failing("right", "r", 99);
    let server = World::new(vec![left, right]).serve().await;
    let retry = "retry = { attempts = 5, backoff = \"1ms\" }";
    let plan = format!(
        "[budget]\nretries = 3\n[[tasks]]\nid = \"a\"\nagent = \"left\"\n{retry}\n[[tasks]]\nid = \"b\"\nagent = \"right\"\n{retry}\n"
    );
    let ended = server.run(&plan).await;
    assert_eq!(ended.state, State::Failed);
    let (left, right) = (of_left.load(Ordering::SeqCst), of_right.load(Ordering::SeqCst));
    assert_eq!(left + right, 2 + 3, "{left} and {right}");
    assert!(said(&ended).contains("- a (left)") && said(&ended).contains("- b (right)"), "{}", said(&ended));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timeout_stops_the_try_and_the_next_one_may_do_better() {
    let counts = Counts::default();
    let (slow, tries) = (counts.clone(), Arc::new(AtomicUsize::new(0)));
    let agent = {
        let tries = Arc::clone(&tries);
        does("slow", "s", move |cx: TaskContext| {
            let (slow, n) = (slow.clone(), tries.fetch_add(1, Ordering::SeqCst));
            async move {
                cx.step("work", async |step| {
                    let _in = slow.enter("slow");
                    if n == 0 { step.sleep(Duration::from_secs(600)).await } else { Ok(()) }
                })
                .await?;
                Ok(Outcome::said("in time"))
            }
        })
    };
    let server = World::new(vec![agent]).serve().await;
    let keys = "agent = \"slow\"\ntimeout = \"400ms\"\nretry = { attempts = 2, backoff = \"1ms\" }";
    let ended = server.run(&task(keys)).await;
    completed(&ended);
    let mut states: Vec<State> = server.tasks("slow").await.iter().map(|task| task.state).collect();
    states.sort();
    assert_eq!(states, [State::Completed, State::Canceled], "the first was really stopped");
    assert_eq!((counts.now(), counts.of("slow")), (0, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_cannot_be_reached_is_replaced_by_somebody_with_the_same_skill() {
    let counts = Counts::default();
    let calls = Counts::default();
    let counted = calls.clone();
    let away = does("away", "sums", move |_: TaskContext| {
        drop(counted.enter("away"));
        async { Err(AgentError::Unreachable("far.example cannot be reached: refused".into())) }
    });
    let server =
        World::new(vec![away, sleeper("stand-in", "sums", &counts), sleeper("other", "else", &counts)]);
    let server = server.serve().await;
    for keys in ["agent = \"away\"", "skill = \"sums\"", "agent = \"away\"\nfallbacks = [\"other\"]"] {
        let ended = server.run(&task(keys)).await;
        completed(&ended);
        let found = part(&ended, "t");
        let instead = if keys.contains("other") { "other" } else { "stand-in" };
        assert_eq!(found["agent"], instead, "{keys}");
        assert_eq!(found["reroutedFrom"][0]["agent"], "away");
        assert_eq!(found["reroutedFrom"][0]["why"], "far.example cannot be reached: refused");
    }
    assert_eq!(calls.of("away"), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_is_known_to_be_down_is_not_even_called() {
    let (counts, calls) = (Counts::default(), Counts::default());
    let health = Arc::new(Health::default());
    let counted = calls.clone();
    let far = elsewhere("far", "sums", &health, move |_: TaskContext| {
        drop(counted.enter("far"));
        async { Ok(Outcome::said("from afar")) }
    });
    let server = World::new(vec![far, sleeper("near", "sums", &counts)]).serve().await;
    // Nothing is known of it yet: that is no reason against it.
    let ended = server.run(&task("agent = \"far\"")).await;
    assert_eq!(part(&ended, "t")["agent"], "far");
    assert!(server.registry.agent("far").unwrap().healthy, "a call that went well counts as a probe");
    health.ill("connection refused");
    server.registry.probe("far").await.unwrap();
    let known = server.registry.agent("far").unwrap();
    assert_eq!((known.healthy, known.breaker), (false, Breaker::Closed));
    let ended = server.run(&task("agent = \"far\"")).await;
    completed(&ended);
    assert_eq!(part(&ended, "t")["agent"], "near");
    assert_eq!(part(&ended, "t")["reroutedFrom"][0]["why"], "connection refused");
    assert_eq!(calls.of("far"), 1);
    // Nobody else: it is said who is down, and why.
    let lonely = elsewhere("lonely", "alone", &health, async |_| Ok(Outcome::done()));
    // A demonstration with the same skill is nobody: what it makes only looks like work.
    let show = does("show", "alone", async |_| Ok(Outcome::done())).demo();
    server.engine.catalog().change(vec![lonely, show], &[]).unwrap();
    server.registry.probe("lonely").await.unwrap();
    let ended = server.run(&task("agent = \"lonely\"")).await;
    assert_eq!(
        said(&ended),
        "plan was not completed.\n- t: nobody is left who could do it (lonely: connection refused)"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_dies_at_work_is_looked_at_and_replaced() {
    let counts = Counts::default();
    let health = Arc::new(Health::default());
    let dies = {
        let health = Arc::clone(&health);
        elsewhere("dies", "sums", &health.clone(), move |_: TaskContext| {
            let health = Arc::clone(&health);
            async move {
                health.ill("it is gone");
                Ok(Outcome::failed("the connection broke off"))
            }
        })
    };
    let server = World::new(vec![dies, sleeper("near", "sums", &counts)]).serve().await;
    let ended = server.run(&task("agent = \"dies\"")).await;
    completed(&ended);
    assert_eq!(part(&ended, "t")["agent"], "near");
    assert_eq!(part(&ended, "t")["attempts"], 2);
    assert!(!server.registry.agent("dies").unwrap().healthy, "the registry knows it now");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_fails_by_their_own_word_is_replaced_only_by_those_the_plan_names() {
    let (bad, _) = failing("bad", "sums", 99);
    let counts = Counts::default();
    let server = World::new(vec![bad, sleeper("near", "sums", &counts)]).serve().await;
    let ended = server.run(&task("agent = \"bad\"")).await;
    assert_eq!((ended.state, &*said(&ended)), (State::Failed, "plan was not completed.\n- t (bad): try 1"));
    let ended =
        server.run(&task("agent = \"bad\"\nfallbacks = [\"bad\", { skill = \"sums\" }, \"near\"]")).await;
    completed(&ended);
    let found = part(&ended, "t");
    assert_eq!((found["agent"].as_str(), found["attempts"].as_u64()), (Some("near"), Some(4)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_goes_on_without_what_is_optional_and_without_nothing_else() {
    let (bad, _) = failing("bad", "b", 99);
    let counts = Counts::default();
    let server = World::new(vec![bad, sleeper("worker", "work", &counts)]).serve().await;
    let tasks = |optional: &str| {
        format!(
            "[[tasks]]\nid = \"bad\"\nagent = \"bad\"\n{optional}\n\
             [[tasks]]\nid = \"after\"\nneeds = [\"bad\"]\nagent = \"worker\"\ninput = {{ text = \"[{{{{ tasks.bad.text }}}}]\", data = {{ id = \"after\" }} }}\n\
             [[tasks]]\nid = \"last\"\nneeds = [\"after\"]\nagent = \"worker\"\ninput = {{ data = {{ id = \"last\" }} }}\n\
             [[tasks]]\nid = \"beside\"\nagent = \"worker\"\ninput = {{ data = {{ id = \"beside\" }} }}\n"
        )
    };
    let ended = server.run(&tasks("optional = true")).await;
    completed(&ended);
    assert_eq!(said(&ended), "plan: 3 of 4 subtasks are done.");
    let ended = server.run(&tasks("")).await;
    assert_eq!(ended.state, State::Failed);
    assert_eq!(
        said(&ended),
        "plan was not completed.\n- bad (bad): try 2\n- after: it needs bad, which failed\n\
         - last: it needs after, which was skipped"
    );
    assert_eq!((counts.of("beside"), counts.of("after")), (2, 1), "what does not need it is done");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_come_and_go_while_it_is_looked_at_them() {
    let health = Arc::new(Health::default());
    let far = |health: &Arc<Health>| elsewhere("far", "sums", health, async |_| Ok(Outcome::done()));
    let server = World::new(vec![does("here", "h", async |_| Ok(Outcome::done()))]).serve().await;
    let (registry, catalog) = (&server.registry, server.engine.catalog());
    assert!(registry.agent("far").is_none());
    catalog.change(vec![far(&health)], &[]).unwrap();
    assert!(!registry.agent("far").unwrap().healthy, "nobody has seen it");
    assert_eq!(registry.down_reason("far"), None, "which speaks against nobody");
    registry.round().await;
    assert!(registry.agent("far").unwrap().healthy && registry.agent("far").unwrap().last_seen.is_some());
    health.ill("away");
    for _ in 0..3 {
        assert_eq!(
            registry.probe_down_reason("far").await.as_deref(),
            Some("away"),
            "what was seen before is not believed"
        );
    }
    assert_eq!(registry.agent("far").unwrap().breaker, Breaker::Open);
    assert_eq!(registry.down_reason("far").as_deref(), Some("away"));
    // Another in its place is looked at anew.
    let other = Arc::new(Health::default());
    catalog.change(vec![far(&other)], &[]).unwrap();
    assert_eq!(registry.down_reason("far"), None);
    catalog.change(vec![], &["far".to_owned()]).unwrap();
    assert!(registry.agent("far").is_none() && registry.probe("far").await.is_none());
    until("the one who is here is well", async || registry.agent("here").filter(|here| here.healthy)).await;
}

/// An agent elsewhere that is at work until it is told to stop.
fn hanging(name: &str, health: &Arc<Health>, counts: &Counts) -> Arc<Does> {
    let counts = counts.clone();
    elsewhere(name, "sums", health, move |cx: TaskContext| {
        let counts = counts.clone();
        async move {
            let _in = counts.enter("hanging");
            cx.canceled().await;
            Err(AgentError::Canceled)
        }
    })
}

/// The registry looks at somebody until it gives them up.
async fn give_up(registry: &Arc<nuncio_flows::registry::Registry>, name: &str) {
    until("its breaker is open", async || {
        registry.probe_down_reason(name).await;
        registry.open_breaker_reason(name)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_is_given_up_while_at_work_is_replaced_at_once() {
    let (counts, health) = (Counts::default(), Arc::new(Health::default()));
    let server = World::new(vec![hanging("far", &health, &counts), sleeper("near", "sums", &counts)]);
    let server = server.serve().await;
    let plan = server.plan(&task("agent = \"far\"")).await;
    until("it is at work", async || (counts.of("hanging") == 1).then_some(())).await;
    health.ill("connection refused");
    server.registry.probe_down_reason("far").await;
    assert_eq!(server.registry.down_reason("far").as_deref(), Some("connection refused"));
    assert_eq!(counts.now(), 1, "one bad look is no reason to give up what is under way");
    give_up(&server.registry, "far").await;
    let ended = server.ended(&plan).await;
    completed(&ended);
    let found = part(&ended, "t");
    assert_eq!((found["agent"].as_str(), found["attempts"].as_u64()), (Some("near"), Some(2)));
    assert_eq!(found["reroutedFrom"][0]["agent"], "far");
    assert_eq!(found["reroutedFrom"][0]["why"], "connection refused");
    assert_eq!(server.tasks("far").await[0].state, State::Canceled);
    assert_eq!(counts.now(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_given_up_where_nobody_else_could_do_it_and_a_cancel_is_one() {
    let (counts, health) = (Counts::default(), Arc::new(Health::default()));
    let world = World::new(vec![hanging("far", &health, &counts), sleeper("other", "else", &counts)]);
    let server = world.serve().await;
    let plan = server.plan(&task("agent = \"far\"")).await;
    until("it is at work", async || (counts.of("hanging") == 1).then_some(())).await;
    health.ill("connection refused");
    give_up(&server.registry, "far").await;
    assert_eq!((counts.now(), server.get(&plan).await.state), (1, State::Working));
    // Its task is canceled by hand: that is no reason to ask another. An agent is polled before its task is stored.
    let stored = async || server.tasks("far").await.first().map(|child| child.origin.id.to_string());
    let child = until("its task is stored", stored).await;
    server.engine.cancel(&server.caller, &child).await.unwrap();
    let ended = server.ended(&plan).await;
    assert_eq!(ended.state, State::Failed);
    assert!(
        said(&ended).starts_with("plan was not completed.\n- t (far): its task was canceled"),
        "{}",
        said(&ended)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tags_that_are_asked_for_hold_when_somebody_is_down() {
    let (counts, health) = (Counts::default(), Arc::new(Health::default()));
    let inside = elsewhere("inside", "sums", &health, async |_| Ok(Outcome::said("from inside")));
    let inside = Arc::new(Arc::into_inner(inside).unwrap().tagged("on-premise"));
    let server = World::new(vec![inside, sleeper("cloud", "sums", &counts)]).serve().await;
    health.ill("connection refused");
    server.registry.probe("inside").await.unwrap();
    let ended = server.run(&task("skill = \"sums\"\ntags = [\"on-premise\"]")).await;
    assert_eq!(
        said(&ended),
        "plan was not completed.\n- t: nobody is left who could do it (inside: connection refused)"
    );
    assert_eq!(counts.all().len(), 0, "nothing went elsewhere");
    let ended = server.run(&task("skill = \"sums\"")).await;
    assert_eq!(part(&ended, "t")["agent"], "cloud", "where it does not matter, anybody will do");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plans_are_nested_only_so_deep() {
    let works = does("works", "work", async |_: TaskContext| Ok(Outcome::said("done")));
    let server = World::new(vec![works]).serve().await;
    let nested = |levels: usize| {
        let innermost = json!({ "name": "p", "tasks": [{ "id": "t", "agent": "works", "input": "go" }] });
        (0..levels).fold(innermost, |inner, _| {
            let input = json!({ "data": { "plan": inner } });
            json!({ "name": "p", "tasks": [{ "id": "t", "agent": "orchestrator", "input": input }] })
        })
    };
    let run = async |levels: usize| {
        let task = server.begin(Part::data(json!({ "plan": nested(levels) }))).await;
        server.ended(&task).await
    };
    let within = run(3).await;
    completed(&within);
    let refused = run(4).await;
    assert_eq!(refused.state, State::Failed, "{refused:?}");
    assert!(said(&refused).contains("plans_around: "), "{}", said(&refused));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_calls_no_agent_that_its_caller_may_not_and_its_other_parts_go_on() {
    let works = |name: &str| does(name, name, async |_: TaskContext| Ok(Outcome::said("done")));
    let server = World::new(vec![works("vault"), works("lobby")]).serve().await;
    let grants = Grants::parse("execute:a2a:orchestrator execute:a2a:lobby").unwrap();
    let caller = Caller::named("acme/ada").limited_to(grants);
    let plan = json!({ "name": "p", "tasks": [
        { "id": "open", "agent": "lobby", "input": "go" },
        { "id": "shut", "agent": "vault", "input": "go" },
    ] });
    let message = Message::of("m", Role::User, vec![Part::data(json!({ "plan": plan }))]);
    let task = server.engine.submit(&caller, Submit::new("orchestrator", message)).await.unwrap();
    let task = server.engine.wait_until_idle(&caller, task).await.unwrap();
    assert_eq!(task.state, State::Failed, "{task:?}");
    assert!(said(&task).contains("execute:a2a:vault"), "{}", said(&task));
    assert_eq!(part(&task, "open")["state"], "done");
    assert_eq!(part(&task, "shut")["state"], "failed");
}
