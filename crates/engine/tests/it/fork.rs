//! A task forked at a question: the log and the journal up to there, and another answer.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use async_trait::async_trait;
use nuncio_engine::{
    Agent, AgentError, Answer, Caller, Chunk, Engine, Error, Event, Fork, ForkError, ForkPoint, ForkRefusal,
    Grants, Level, Outcome, Profile, State, Task, TaskContext, TaskId, store::Precondition,
};
use proptest::{prelude::*, test_runner::TestRunner};
use serde_json::{Value, json};

use crate::{
    script::{Finish, Op, Script, any_script, world},
    world::{CommitMoment, EngineExt, Gate, World, cases, last_words, me, text_of, to, within},
};

fn form() -> Value {
    json!({ "type": "object", "properties": { "x": { "type": "string" } }, "required": ["x"] })
}

fn accept(x: &str) -> Answer {
    Answer::Accept(json!({ "x": x }))
}

/// Counts how often each step of its agent was done.
#[derive(Default)]
struct Steps {
    first: AtomicU32,
    second: AtomicU32,
}

impl Steps {
    fn done(&self) -> (u32, u32) {
        (self.first.load(Ordering::SeqCst), self.second.load(Ordering::SeqCst))
    }
}

/// Works, calls an agent, asks, works and asks again.
fn two_questions(steps: &Arc<Steps>) -> World {
    let steps = Arc::clone(steps);
    let asks = move |cx: TaskContext| {
        let steps = Arc::clone(&steps);
        async move {
            cx.log(Level::Info, "begun").await?;
            let first = cx.step("first", async |step| {
                step.log(Level::Info, "in the step").await?;
                Ok(steps.first.fetch_add(1, Ordering::SeqCst))
            });
            let first = first.await?;
            let helped = cx
                .call("helper", nuncio_engine::Message::text("", nuncio_engine::Role::User, "help"))
                .await?;
            cx.artifact(Chunk::text("notes", format!("{first} {} ", last_words(&helped)))).await?;
            let one = cx.ask("First?", form()).await?;
            cx.artifact(Chunk::text("notes", format!("{} ", text(&one)))).await?;
            cx.step("second", async |_| Ok(steps.second.fetch_add(1, Ordering::SeqCst))).await?;
            let two = cx.ask("Second?", form()).await?;
            Ok(Outcome::said(format!("{} {}", text(&one), text(&two))))
        }
    };
    World::new().agent("asks", asks).agent("helper", async |_: TaskContext| Ok(Outcome::said("helped")))
}

fn text(answer: &Answer) -> String {
    answer
        .accepted::<Value>()
        .map_or_else(|| "nothing".to_owned(), |form| form["x"].as_str().unwrap().to_owned())
}

/// Where a task asks.
async fn questions(engine: &Engine, id: TaskId) -> Vec<u64> {
    let log = engine.log(id).await;
    let numbered = (1..).zip(&log);
    numbered.filter(|(_, entry)| matches!(entry.event(), Event::Question(_))).map(|(seq, _)| seq).collect()
}

async fn answer(engine: &Engine, task: &Task, x: &str) -> Task {
    let task = engine.settled(&engine.task(task.origin.id).await).await;
    let (_, question) = task.questions.first().unwrap();
    let id = task.origin.id.to_string();
    within(engine.answer(&me(), &id, &question.id, &accept(x))).await.unwrap()
}

async fn fork(engine: &Engine, task: &Task, at: u64, answer: Option<Answer>) -> Result<Task, ForkError> {
    let forked = within(engine.fork(&me(), &Fork { task: task.origin.id.to_string(), at, answer })).await;
    forked.map(|forked| forked.task)
}

fn refusal(forked: Result<Task, ForkError>) -> ForkRefusal {
    match forked {
        Err(ForkError::Refused(refusal)) => refusal,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fork_has_the_log_up_to_the_question_and_repeats_nothing() {
    let steps = Arc::new(Steps::default());
    let world = two_questions(&steps);
    let engine = world.start().await;
    let task = engine.send(to("asks", "go")).await;
    answer(&engine, &task, "a").await;
    answer(&engine, &task, "b").await;
    let ended = engine.ended(&task).await;
    assert_eq!(last_words(&ended), "a b");
    assert_eq!(steps.done(), (1, 1));
    let (log, asked) = (engine.log(task.origin.id).await, questions(&engine, task.origin.id).await);

    // At the first question: the first step and the call are not repeated, the second step is the fork's own.
    let forked = fork(&engine, &ended, asked[0], Some(accept("c"))).await.unwrap();
    assert_ne!(forked.origin.id, task.origin.id);
    assert_eq!((&forked.origin.owner, &forked.origin.context), (&task.origin.owner, &task.origin.context));
    answer(&engine, &forked, "d").await;
    let forked = engine.ended(&forked).await;
    assert_eq!(
        (last_words(&forked), text_of(&forked, "notes")),
        ("c d".to_owned(), "0 helped c ".to_owned())
    );
    assert_eq!(steps.done(), (1, 2));
    let copied = engine.log(forked.origin.id).await;
    assert_eq!(copied[..asked[0] as usize], log[..asked[0] as usize]);
    engine.checked(forked.origin.id).await;
    let about = engine.task_details(&me(), &forked.origin.id.to_string()).await.unwrap();
    assert_eq!(about.forked_from, Some(ForkPoint { task: task.origin.id, at: asked[0] }));
    assert_eq!(about.row.parent, None, "it is no called task");

    // At the second: the first answer is that of the original, and the fork waits for its own, also over a restart.
    let forked = fork(&engine, &ended, asked[1], None).await.unwrap();
    assert_eq!(forked.state, State::InputRequired);
    assert_eq!(forked.questions.len(), 1);
    engine.stop().await;
    drop(engine);
    let engine = world.start().await;
    answer(&engine, &forked, "e").await;
    assert_eq!(last_words(&engine.ended(&forked).await), "a e");
    assert_eq!(steps.done(), (1, 2), "nothing is done again");
    engine.checked(forked.origin.id).await;
    // The original is as it was.
    assert_eq!(engine.log(task.origin.id).await, log);

    // A fork of a fork.
    let again = fork(&engine, &forked, asked[0], Some(accept("f"))).await.unwrap();
    answer(&engine, &again, "g").await;
    assert_eq!(last_words(&engine.ended(&again).await), "f g");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_task_is_forked_at_its_open_question() {
    let steps = Arc::new(Steps::default());
    let world = two_questions(&steps);
    let engine = world.start().await;
    let task = engine.run(to("asks", "go")).await;
    let asked = questions(&engine, task.origin.id).await;
    let forked = fork(&engine, &task, asked[0], Some(accept("x"))).await.unwrap();
    answer(&engine, &forked, "y").await;
    assert_eq!(last_words(&engine.ended(&forked).await), "x y");
    assert_eq!(engine.task(task.origin.id).await.questions.len(), 1, "the original still asks");
    answer(&engine, &task, "a").await;
    answer(&engine, &task, "b").await;
    assert_eq!(last_words(&engine.ended(&task).await), "a b");
}

/// An agent whose work is done on another server.
struct Remote;

#[async_trait]
impl Agent for Remote {
    fn profile(&self) -> Profile {
        Profile::new("remote", "Works elsewhere.")
    }

    fn works_elsewhere(&self) -> bool {
        true
    }

    async fn run(&self, cx: TaskContext) -> Result<Outcome, AgentError> {
        cx.ask("Which?", form()).await?;
        Ok(Outcome::done())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_forked_is_refused_with_the_reason() {
    let steps = Arc::new(Steps::default());
    let world = two_questions(&steps)
        .agent("branches", async |cx: TaskContext| {
            let side = cx.branch("side");
            side.step("aside", async |_| Ok(1)).await?;
            drop(side);
            cx.ask("Which?", form()).await?;
            Ok(Outcome::done())
        })
        .agent("caller", async |cx: TaskContext| {
            cx.call("asks", nuncio_engine::Message::text("", nuncio_engine::Role::User, "go")).await?;
            Ok(Outcome::done())
        });
    let world = world.plain(Arc::new(Remote));
    let engine = world.start().await;
    let task = engine.run(to("asks", "go")).await;
    let asked = questions(&engine, task.origin.id).await[0];
    for at in [0, 1, asked - 1, asked + 1, u64::MAX] {
        assert_eq!(refusal(fork(&engine, &task, at, None).await), ForkRefusal::NoQuestion(at));
    }
    let invalid = fork(&engine, &task, asked, Some(Answer::Accept(json!({ "x": 1 })))).await;
    assert!(matches!(invalid, Err(ForkError::Engine(Error::Answer(_) | Error::Invalid(_)))), "{invalid:?}");

    for (agent, expected) in
        [("branches", ForkRefusal::Branches), ("remote", ForkRefusal::WorksElsewhere("remote".into()))]
    {
        let task = engine.run(to(agent, "go")).await;
        let asked = questions(&engine, task.origin.id).await[0];
        assert_eq!(refusal(fork(&engine, &task, asked, Some(accept("x"))).await), expected);
    }
    let calling = engine.run(to("caller", "go")).await;
    let asked = questions(&engine, calling.origin.id).await[0];
    let ForkRefusal::OfCalledTask(called) = refusal(fork(&engine, &calling, asked, None).await) else {
        panic!()
    };
    // The called task itself is forked; the fork is nobody's called task.
    let called = engine.task(called).await;
    let asked = questions(&engine, called.origin.id).await[0];
    let forked = fork(&engine, &called, asked, Some(accept("x"))).await.unwrap();
    answer(&engine, &forked, "y").await;
    assert_eq!(last_words(&engine.ended(&forked).await), "x y");

    // Who may not see the task, and who may not send to its agent.
    let request = Fork { task: task.origin.id.to_string(), at: 1, answer: None };
    let stranger = engine.fork(&Caller::named("acme/eve"), &request).await;
    assert!(matches!(stranger, Err(ForkError::Engine(Error::NoSuchTask(_)))), "{stranger:?}");
    let reader = me().limited_to(Grants::parse("read:a2a").unwrap());
    let refused = engine.fork(&reader, &request).await;
    assert!(matches!(refused, Err(ForkError::Engine(Error::Forbidden(_)))), "{refused:?}");
    let total = engine
        .overview(&me(), &nuncio_engine::engine::OverviewQuery { limit: 100, ..Default::default() })
        .await;
    assert_eq!(total.unwrap().rows.len(), 8, "seven, and the fork: what was refused left no task");
}

/// What a fork copies is bounded, because it is one commit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fork_copies_no_more_than_its_limit() {
    let world = World::new().agent("large", async |cx: TaskContext| {
        for n in 0..5 {
            cx.artifact(Chunk::text(format!("a{n}"), "x".repeat(1024 * 1024))).await?;
        }
        cx.ask("Which?", form()).await?;
        Ok(Outcome::done())
    });
    let engine = world.start().await;
    let task = engine.run(to("large", "go")).await;
    let asked = questions(&engine, task.origin.id).await[0];
    assert_eq!(refusal(fork(&engine, &task, asked, None).await), ForkRefusal::TooLarge);
}

/// A server that dies while it forks leaves nothing or a whole task.
#[test]
fn a_crash_while_forking_leaves_all_or_nothing() {
    for moment in [CommitMoment::Before, CommitMoment::After] {
        let steps = Arc::new(Steps::default());
        let world = two_questions(&steps);
        let life = world.life();
        let (task, asked) = life.block_on(async {
            let task = life.engine.run(to("asks", "go")).await;
            let asked = questions(&life.engine, task.origin.id).await[0];
            life.engine.parked(&task).await;
            (task, asked)
        });
        life.block_on(life.engine.stop());
        life.cut();
        let gate = Gate::new();
        let life = world.life_with(|store| {
            gate.on(store, moment, |change| matches!(change.guard, Precondition::Create(_)))
        });
        let engine = life.engine.clone();
        let forking = task.clone();
        life.block_on(async {
            tokio::spawn(async move { fork(&engine, &forking, asked, Some(accept("c"))).await });
            gate.arrival().await;
        });
        life.cut();
        let life = world.life();
        life.block_on(async {
            let query =
                nuncio_engine::engine::OverviewQuery { limit: 100, roots: true, ..Default::default() };
            let rows = life.engine.overview(&me(), &query).await.unwrap().rows;
            match moment {
                CommitMoment::Before => assert_eq!(rows.len(), 1, "nothing was made"),
                CommitMoment::After => {
                    let forked = rows.iter().find(|row| row.id != task.origin.id).expect("it was made");
                    let forked = life.engine.task(forked.id).await;
                    answer(&life.engine, &forked, "d").await;
                    assert_eq!(last_words(&life.engine.ended(&forked).await), "c d");
                    assert_eq!(steps.done().0, 1);
                    life.engine.checked(forked.origin.id).await;
                }
            }
        });
        life.block_on(life.engine.stop());
    }
}

/// The same, one after the other.
fn straight(ops: Vec<Op>) -> Vec<Op> {
    let each = ops.into_iter().flat_map(|op| match op {
        Op::Fork(left, right) => straight(left.into_iter().chain(right).collect()),
        Op::Call(ops) => vec![Op::Call(straight(ops))],
        other => vec![other],
    });
    each.collect()
}

/// Whatever an agent did, a fork at any of its questions with the answer that was given ends as the original did.
#[test]
fn a_fork_with_the_same_answers_ends_as_its_original() {
    let world = world();
    let life = world.life();
    let config = ProptestConfig {
        failure_persistence: None,
        max_shrink_iters: 30,
        ..ProptestConfig::with_cases(cases(24, 400))
    };
    let (mut runner, forks) = (TestRunner::new(config), AtomicU32::new(0));
    let given = |task: &Task| match &task.questions[0].1.ask {
        nuncio_engine::question::Ask::Authorization { .. } => Answer::Accept(json!({})),
        _ => accept("y"),
    };
    let to_end = async |engine: &Engine, task: Task| {
        let mut task = engine.settled(&task).await;
        while !task.state.is_terminal() {
            let id = task.origin.id.to_string();
            let question = task.questions[0].1.id.clone();
            // A question may be answered and asked again by the next read.
            let _ = engine.answer(&me(), &id, &question, &given(&task)).await;
            task = engine.settled(&engine.task(task.origin.id).await).await;
        }
        task
    };
    let checked = runner.run(&any_script(), |script| {
        let finish = match script.finish {
            Finish::Panic => Finish::Done,
            other => other,
        };
        let script = Script { ops: straight(script.ops), finish };
        life.block_on(async {
            let engine = &life.engine;
            let task = engine.send(nuncio_engine::Submit::new("script", script.message())).await;
            let original = to_end(engine, task).await;
            let log = engine.log(original.origin.id).await;
            for (seq, entry) in (1..).zip(&log) {
                let Event::Question(question) = entry.event() else { continue };
                let answer = match question.ask {
                    nuncio_engine::question::Ask::Authorization { .. } => Answer::Accept(json!({})),
                    _ => accept("y"),
                };
                let forked = match fork(engine, &original, seq, Some(answer)).await {
                    Ok(forked) => forked,
                    Err(ForkError::Refused(ForkRefusal::OfCalledTask(_))) => continue,
                    Err(error) => panic!("{error}"),
                };
                forks.fetch_add(1, Ordering::SeqCst);
                let forked = to_end(engine, forked).await;
                assert_eq!((forked.state, last_words(&forked)), (original.state, last_words(&original)));
                assert_eq!(forked.artifacts, original.artifacts);
                assert_eq!(engine.log(forked.origin.id).await.len(), log.len());
                engine.checked(forked.origin.id).await;
            }
        });
        Ok(())
    });
    checked.unwrap();
    assert!(forks.load(Ordering::SeqCst) > 5, "only {forks:?} forks were made");
    life.block_on(life.engine.stop());
}
