//! A question that nobody answers ends its task: after its limit, once, with the reason, and never beside an answer.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use nuncio_engine::{
    Agent, AgentError, Chunk, Engine, Error, Fork, Outcome, Profile, QuestionLimit, State, Task, TaskContext,
    store::{Change, TaskKey},
};
use serde_json::{Value, json};

use crate::world::{
    CommitMoment, EngineExt, Gate, HandClock, Scripted, World, is_end, last_words, me, read_log, said,
    text_of, to, until,
};

const LIMIT: Duration = Duration::from_secs(3600);
const REASON: &str = "nobody answered within 1h (question-limit)";

fn form() -> Value {
    json!({ "type": "object", "properties": { "name": { "type": "string" } }, "required": ["name"] })
}

async fn curious(cx: TaskContext) -> Result<Outcome, AgentError> {
    let answer = cx.ask("Who?", form()).await?;
    cx.artifact(Chunk::text("answer", serde_json::to_string(&answer).unwrap())).await?;
    Ok(Outcome::done())
}

fn world(clock: &Arc<HandClock>) -> World {
    World::new().clock(clock).agent("curious", curious).options(|options| {
        options.question_limit = QuestionLimit::After(LIMIT);
        options.expiry_poll = Duration::from_millis(5);
    })
}

/// Ends with the reason, and once.
async fn check_unanswered(engine: &Engine, task: &Task) {
    let ended = engine.ended(task).await;
    assert_eq!((ended.state, last_words(&ended).as_str()), (State::Failed, REASON));
    assert!(ended.questions.is_empty());
    let ends = engine.log(task.origin.id).await.iter().filter(|entry| is_end(entry.event())).count();
    assert_eq!(ends, 1);
    engine.checked(task.origin.id).await;
    let row = engine.row(task.origin.id).await;
    assert_eq!(engine.store_for_tests().next_due().await.unwrap(), None, "nothing is left to run: {row:?}");
    let error = engine.say(task, said("me")).await.unwrap_err();
    assert!(matches!(&error, Error::Unanswered(reason) if reason == REASON), "{error}");
    assert_eq!(engine.row(task.origin.id).await, row, "refused, and nothing changed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_nobody_answers_fails_after_its_limit_and_no_other() {
    let clock = HandClock::new();
    let limited = |name: &str, limit| Scripted::new(name, curious).question_limit(limit);
    let world = world(&clock)
        .scripted(limited("patient", QuestionLimit::Never))
        .scripted(limited("quick", QuestionLimit::After(LIMIT / 2)));
    let engine = world.start().await;
    let (old, patient) = (engine.run(to("curious", "go")).await, engine.run(to("patient", "go")).await);
    clock.advance(LIMIT);
    let (young, quick) = (engine.run(to("curious", "go")).await, engine.run(to("quick", "go")).await);
    clock.advance(Duration::from_millis(1));
    check_unanswered(&engine, &old).await;
    clock.advance(LIMIT / 2);
    // Its end shows that those before it were looked at.
    let quick = engine.ended(&quick).await;
    assert_eq!(last_words(&quick), "nobody answered within 30m (question-limit)");
    for task in [&young, &patient] {
        assert_eq!(engine.checked(task.origin.id).await.state, State::InputRequired);
        engine.say(task, said("Ada")).await.unwrap();
        assert_eq!(engine.ended(task).await.state, State::Completed);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_limit_counts_from_the_last_answer_and_over_restarts() {
    let clock = HandClock::new();
    let world = world(&clock).agent("twice", async |cx: TaskContext| {
        cx.ask("First?", form()).await?;
        cx.ask("Second?", form()).await?;
        Ok(Outcome::done())
    });
    let engine = world.start().await;
    let other = engine.run(to("curious", "go")).await;
    let task = engine.run(to("twice", "go")).await;
    clock.advance(LIMIT - Duration::from_millis(1));
    let task = engine.say(&task, said("Ada")).await.unwrap();
    let task = engine.settled(&task).await;
    let task = engine.parked(&task).await;
    assert_eq!(task.questions[0].1.text, "Second?");
    clock.advance(Duration::from_millis(2));
    check_unanswered(&engine, &other).await;
    assert_eq!(engine.task(task.origin.id).await.state, State::InputRequired, "it was answered in between");
    engine.stop().await;
    drop(engine);
    clock.advance(LIMIT);
    let engine = world.start().await;
    check_unanswered(&engine, &task).await;
}

/// The commit that ends a task.
fn ends(change: &Change) -> bool {
    change.state.is_some_and(|(state, _)| state == State::Failed)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_is_earlier_than_the_end_wins() {
    let (clock, gate) = (HandClock::new(), Gate::new());
    let world = world(&clock);
    let engine = world.start_on(gate.on(world.open().await, CommitMoment::Before, ends)).await;
    let task = engine.run(to("curious", "go")).await;
    let task = engine.parked(&task).await;
    clock.advance(LIMIT * 2);
    gate.arrival().await;
    engine.say(&task, said("Ada")).await.unwrap();
    gate.open();
    let task = engine.ended(&task).await;
    assert_eq!(task.state, State::Completed, "{}", last_words(&task));
    assert_eq!(text_of(&task, "answer"), r#"{"accept":{"name":"Ada"}}"#);
    engine.checked(task.origin.id).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_end_a_task_once() {
    let clock = HandClock::new();
    let world = world(&clock);
    let store = world.open().await;
    let first = world.start_on(Arc::clone(&store)).await;
    let mut tasks = vec![];
    for _ in 0..40 {
        tasks.push(first.run(to("curious", "go")).await);
    }
    for task in &tasks {
        first.parked(task).await;
    }
    let second = world.start_on(Arc::clone(&store)).await;
    clock.advance(LIMIT * 2);
    for task in &tasks {
        let id = task.origin.id;
        until("it has ended", async || {
            let row = store.row(&TaskKey::Id(id)).await.unwrap().unwrap();
            row.state.is_terminal().then_some(())
        })
        .await;
        let log = read_log(&*store, id).await;
        assert_eq!(log.iter().filter(|entry| is_end(entry.event())).count(), 1);
        assert_eq!(log.len() as u64, task.seq + 1, "the end, and nothing else");
    }
    second.begin_stop();
    first.stop().await;
}

async fn calls(cx: TaskContext, agent: &str) -> Result<Outcome, AgentError> {
    let called = cx.call(agent, said("go")).await?;
    Ok(Outcome::said(format!("{:?}: {}", called.state, last_words(&called))))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_task_that_called_one_that_nobody_answers_goes_on_with_its_failure() {
    let clock = HandClock::new();
    let world = world(&clock)
        .agent("parent", async |cx: TaskContext| calls(cx, "curious").await)
        .agent("grandparent", async |cx: TaskContext| calls(cx, "parent").await);
    let engine = world.start().await;
    let task = engine.run(to("grandparent", "go")).await;
    assert_eq!(task.state, State::InputRequired);
    engine.parked(&task).await;
    clock.advance(LIMIT * 2);
    let task = engine.ended(&task).await;
    assert_eq!(task.state, State::Completed, "{}", last_words(&task));
    assert_eq!(last_words(&task), format!("Completed: Failed: {REASON}"));
    engine.checked(task.origin.id).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_task_called_ends_with_it() {
    let clock = HandClock::new();
    let patient = Scripted::new("patient", curious).question_limit(QuestionLimit::Never);
    let world = world(&clock).scripted(patient).agent("parent", async |cx: TaskContext| {
        cx.call("patient", said("go")).await?;
        Ok(Outcome::done())
    });
    let engine = world.start().await;
    let task = engine.run(to("parent", "go")).await;
    let task = engine.parked(&task).await;
    let (called, _) = task.questions[0].1.id.split_once('.').unwrap();
    let called = nuncio_engine::TaskId::parse(called).unwrap();
    clock.advance(LIMIT * 2);
    check_unanswered(&engine, &task).await;
    let called = engine.settled(&engine.task(called).await).await;
    assert_eq!(called.state, State::Canceled);
}

/// An agent with work on another server, which only a run of it can stop.
struct WorksElsewhere {
    stopped: Arc<AtomicUsize>,
}

#[async_trait]
impl Agent for WorksElsewhere {
    fn profile(&self) -> Profile {
        Profile::new("elsewhere", "Works elsewhere.")
    }

    fn works_elsewhere(&self) -> bool {
        true
    }

    async fn run(&self, cx: TaskContext) -> Result<Outcome, AgentError> {
        let answer = cx.ask("Which?", form()).await;
        if cx.is_canceled() {
            self.stopped.fetch_add(1, Ordering::SeqCst);
        }
        answer.map(|_| Outcome::done())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_elsewhere_is_stopped_and_takes_no_answer_meanwhile() {
    let (clock, gate, stopped) = (HandClock::new(), Gate::new(), Arc::new(AtomicUsize::new(0)));
    let world = world(&clock).plain(Arc::new(WorksElsewhere { stopped: Arc::clone(&stopped) }));
    let engine = world.start_on(gate.on(world.open().await, CommitMoment::Before, ends)).await;
    let task = engine.run(to("elsewhere", "go")).await;
    let task = engine.parked(&task).await;
    clock.advance(LIMIT * 2);
    gate.arrival().await;
    // Its stop was requested, and it has not ended yet.
    let error = engine.say(&task, said("me")).await.unwrap_err();
    assert!(matches!(&error, Error::Unanswered(reason) if reason == REASON), "{error}");
    gate.open();
    check_unanswered(&engine, &task).await;
    assert_eq!(stopped.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_works_beside_its_question_is_stopped() {
    let clock = HandClock::new();
    let world = world(&clock).agent("busy", async |cx: TaskContext| {
        let (asking, working) = (cx.branch("asking"), cx.branch("working"));
        let asked = async { asking.ask("Who?", form()).await.map(drop) };
        let worked = async {
            working
                .step("work", async |step| {
                    step.canceled().await;
                    Ok(())
                })
                .await
        };
        let (asked, _): (_, Result<(), AgentError>) = tokio::join!(asked, worked);
        asked.map(|()| Outcome::done())
    });
    let engine = world.start().await;
    let task = engine.run(to("busy", "go")).await;
    assert_eq!((task.state, engine.load().0), (State::InputRequired, 1));
    clock.advance(LIMIT * 2);
    check_unanswered(&engine, &task).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fork_off_an_old_question_has_the_whole_limit() {
    let clock = HandClock::new();
    let world = world(&clock);
    let engine = world.start().await;
    let task = engine.run(to("curious", "go")).await;
    let task = engine.parked(&task).await;
    let at = task.questions[0].0;
    clock.advance(LIMIT * 2);
    check_unanswered(&engine, &task).await;
    let fork = Fork { task: task.origin.id.to_string(), at, answer: None };
    let forked = engine.fork(&me(), &fork).await.unwrap().task;
    let other = engine.run(to("curious", "go")).await;
    clock.advance(LIMIT);
    assert_eq!(engine.task(forked.origin.id).await.state, State::InputRequired);
    clock.advance(Duration::from_millis(1));
    check_unanswered(&engine, &other).await;
    check_unanswered(&engine, &forked).await;
}
