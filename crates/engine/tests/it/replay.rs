//! An agent that is cut off anywhere ends as if nothing had happened: what it finished is not redone, what it
//! said is not repeated, and an agent that does something else the second time is found out.

use std::{
    collections::BTreeMap,
    future::Future,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures_util::FutureExt;
use nuncio_engine::{
    AgentError, Answer, Chunk, Engine, Event, Level, Message, Next, Outcome, Part, Role, State, Submit, Task,
    TaskContext,
    event::Entry,
    store::{Change, Precondition, Store, TaskKey},
};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::world::{
    CommitMoment, EngineExt, Gate, HandClock, HookedStore, World, last_words, me, proceed, said, text_of, to,
    until, within,
};

// ------------------------------------------------------------------------------------------- the journey

/// What happened in the world outside, which no crash undoes.
#[derive(Default)]
struct Outside(Mutex<BTreeMap<String, u32>>);

impl Outside {
    fn begin(&self, what: &str) {
        *self.0.lock().unwrap().entry(what.to_owned()).or_default() += 1;
    }

    /// The same, as all of a step.
    fn done(&self, what: &str) -> Result<(), AgentError> {
        self.begin(what);
        Ok(())
    }

    fn begun(&self, what: &str) -> u32 {
        self.0.lock().unwrap().get(what).copied().unwrap_or_default()
    }

    fn all(&self) -> BTreeMap<String, u32> {
        self.0.lock().unwrap().clone()
    }
}

fn yes_or_no() -> Value {
    json!({"type": "object", "properties": {"go": {"type": "boolean"}}, "required": ["go"]})
}

/// One line of work with everything in it.
async fn journey(cx: TaskContext, outside: Arc<Outside>) -> Result<Outcome, AgentError> {
    let way: String = cx.decide("way", || "north".to_owned())?;
    cx.log(Level::Info, format!("off we go {way}")).await?;
    let seven: u32 = cx
        .step("count", async |_| {
            outside.begin("count");
            Ok(7)
        })
        .await?;
    cx.progress(1.0, Some(4.0), "counted").await?;
    cx.artifact(Chunk::text("report", format!("{seven} ")).named("Report")).await?;
    let failed = cx.step::<(), _>("fail", async |_| {
        outside.begin("fail");
        Err(AgentError::failed("as it should"))
    });
    assert_eq!(failed.await, Err(AgentError::failed("as it should")));
    cx.sleep(Duration::from_millis(3)).await?;
    let answer = cx.ask("Shall we?", yes_or_no()).await?;
    cx.artifact(Chunk::text("report", format!("{} ", answer.accepted::<Value>().unwrap()["go"]))).await?;
    let called = cx.call("helper", said("help")).await?;
    cx.artifact(Chunk::text("report", text_of(&called, "help")).complete()).await?;
    cx.progress(4.0, Some(4.0), "home").await?;
    cx.step_unwaited("rest", async |_| outside.done("rest")).await?;
    Ok(Outcome::said("there and back"))
}

async fn helper(cx: TaskContext, outside: Arc<Outside>) -> Result<Outcome, AgentError> {
    cx.step("help", async |_| {
        outside.begin("help");
        Ok(())
    })
    .await?;
    cx.artifact(Chunk::text("help", "helped")).await?;
    Ok(Outcome::done())
}

/// Lines of work beside each other, one of them with a step that speaks, and one that asks.
async fn crossroads(cx: TaskContext, outside: Arc<Outside>) -> Result<Outcome, AgentError> {
    cx.artifact(Chunk::text("root", "before ")).await?;
    let left = async {
        let branch = cx.branch("left");
        branch
            .step("draft", async |step| {
                outside.begin("draft");
                for word in ["a ", "b ", "c"] {
                    step.artifact(Chunk::text("draft", word)).await?;
                }
                step.log(Level::Debug, "drafted").await?;
                Ok(())
            })
            .await?;
        branch.artifact(Chunk::text("left", "l1 ")).await?;
        let inner = branch.branch("inner");
        inner.step("deep", async |_| outside.done("deep")).await?;
        inner.artifact(Chunk::text("inner", "deep")).await?;
        branch.artifact(Chunk::text("left", "l2")).await
    };
    let right = async {
        let branch = cx.branch("right");
        branch.artifact(Chunk::text("right", "r1 ")).await?;
        let answer = branch.ask("Right?", yes_or_no()).await?;
        branch.step("turn", async |_| outside.done("turn")).await?;
        branch.artifact(Chunk::text("right", format!("{:?}", matches!(answer, Answer::Accept(_))))).await
    };
    let (left, right) = tokio::join!(left, right);
    left.and(right)?;
    cx.artifact(Chunk::text("root", "after").complete()).await?;
    Ok(Outcome::done())
}

fn world_of(outside: &Arc<Outside>) -> World {
    let mut world = World::new();
    for name in ["journey", "helper", "crossroads"] {
        let outside = Arc::clone(outside);
        world = world.agent(name, move |cx| {
            let outside = Arc::clone(&outside);
            async move {
                match name {
                    "journey" => journey(cx, outside).await,
                    "helper" => helper(cx, outside).await,
                    _ => crossroads(cx, outside).await,
                }
            }
        });
    }
    world
}

/// A caller that wants one task done, asks again when it hears nothing, and answers what it is asked.
async fn see_it_through(engine: &Engine, agent: &str) -> Task {
    let mut submit = Submit::new(agent, Message::text("m-1", Role::User, "go"));
    submit.idempotency_key = Some("the one".into());
    let task = engine.send(submit).await;
    let mut follower = engine.follow(&me(), &task.origin.id.to_string(), 0).await.unwrap();
    let mut seen = Task::new(task.origin.clone());
    loop {
        match within(follower.next()).await.unwrap() {
            Next::Batch(batch) => batch.iter().for_each(|(_, entry)| seen.apply(entry)),
            Next::End => return seen,
            Next::Closing | Next::Nudge(_) => std::future::pending().await,
        }
        let now = engine.task(task.origin.id).await;
        if !now.questions.is_empty() {
            let answer = Message::of("m-2", Role::User, vec![Part::data(json!({"go": true}))]);
            // Stopping, or answered meanwhile: the next look tells.
            let _ = engine.say(&now, answer).await;
        }
    }
}

/// How a life ends before its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The process dies before the commit reaches the store.
    CutBefore,
    /// It dies after the commit is durable, before anybody knows.
    CutAfter,
    /// The server is stopped when the commit is durable.
    Stop,
}

/// Runs the agent once, with an end of the first life at its nth commit. `None`: there is no such commit.
fn run_with_end(agent: &str, end: End, nth: usize) -> Option<(Arc<Outside>, Vec<Entry>, Task)> {
    let outside = Arc::new(Outside::default());
    let world = world_of(&outside);
    let (reached, commits) = (Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)));
    let signal = Arc::clone(&reached);
    let life = world.life_with(|store| {
        HookedStore::new(store, move |moment, _| {
            let wanted = if end == End::CutBefore { CommitMoment::Before } else { CommitMoment::After };
            if moment != wanted || commits.fetch_add(1, Ordering::SeqCst) != nth {
                return proceed();
            }
            signal.notify_one();
            if end == End::Stop { proceed() } else { std::future::pending().boxed() }
        })
    });
    let ended_early = life.block_on(async {
        tokio::select! {
            biased;
            () = reached.notified() => true,
            _ = see_it_through(&life.engine, agent) => false,
        }
    });
    if ended_early && end == End::Stop {
        life.block_on(life.engine.stop());
    }
    life.cut();
    if !ended_early {
        return None;
    }
    let before = outside.all();
    assert!(
        nth > 0 || end != End::CutBefore || before.is_empty(),
        "no step begins before the task is durable"
    );
    let rt = tokio::runtime::Runtime::new().unwrap();
    let finished = rt.block_on(async { finished_steps(&*world.open().await).await });

    let life = world.life();
    let (log, task) = life.block_on(async {
        let task = see_it_through(&life.engine, agent).await;
        let row = life.engine.row(task.origin.id).await;
        assert!(end != End::Stop || row.attempts == 0, "a hand-back is no attempt");
        let total =
            life.engine.list(&me(), nuncio_engine::List { page_size: 10, ..Default::default() }).await;
        let expected = if agent == "journey" { 2 } else { 1 };
        assert_eq!(total.unwrap().total, expected, "no task was made twice");
        life.engine.checked(task.origin.id).await;
        (life.engine.log(task.origin.id).await, task)
    });
    life.cut();
    for (step, times) in before {
        let after = outside.begun(&step);
        match finished.contains(&step) {
            true => assert_eq!(after, times, "{end:?} at {nth}: step {step:?} was finished and is redone"),
            false => assert!(after <= times + 1, "{end:?} at {nth}: step {step:?} is begun {after} times"),
        }
    }
    Some((outside, log, task))
}

/// The names of all steps in all journals of the store.
async fn finished_steps(store: &dyn Store) -> Vec<String> {
    let query = nuncio_engine::store::ListQuery {
        owner: "local".into(),
        context: None,
        state: None,
        agent: None,
        since: None,
        after: None,
        limit: 10,
        only_rows: false,
    };
    let mut names = vec![];
    for opened in store.list(&query).await.unwrap().tasks {
        for record in store.journal(opened.row.no).await.unwrap() {
            let record: Value = serde_json::from_slice(&record.0[1..]).unwrap();
            names.extend(record["step"]["name"].as_str().map(str::to_owned));
        }
    }
    names
}

/// The log without what differs between two runs of the same thing: times, and ids that were drawn.
fn told(log: &[Entry]) -> Vec<Event> {
    let told = log.iter().map(|entry| {
        let mut event = entry.event().clone();
        if let Event::Status(nuncio_engine::event::Status { message: Some(message), .. }) = &mut event {
            message.id = String::new();
        }
        event
    });
    told.collect()
}

fn uninterrupted(agent: &str) -> (BTreeMap<String, u32>, Vec<Event>, Task) {
    let outside = Arc::new(Outside::default());
    let life = world_of(&outside).life();
    let (log, task) = life.block_on(async {
        let task = see_it_through(&life.engine, agent).await;
        (life.engine.log(task.origin.id).await, task)
    });
    life.cut();
    assert_eq!(task.state, State::Completed, "{task:?}");
    (outside.all(), told(&log), task)
}

/// Ends the first life at every commit there is, and compares.
fn at_every_commit(agent: &str, end: End, same: impl Fn(&[Event], &[Event])) {
    let (steps, expected, whole) = uninterrupted(agent);
    for nth in 0.. {
        let Some((outside, log, task)) = run_with_end(agent, end, nth) else {
            assert!(nth >= 4, "only {nth} commits: this is not the agent that was meant");
            return;
        };
        assert_eq!(outside.all().keys().collect::<Vec<_>>(), steps.keys().collect::<Vec<_>>());
        assert_eq!((task.state, &task.artifacts), (whole.state, &whole.artifacts), "{end:?} at {nth}");
        same(&told(&log), &expected);
    }
}

#[test]
fn a_journey_that_is_cut_before_any_commit_ends_as_if_it_was_not() {
    at_every_commit("journey", End::CutBefore, |log, expected| assert_eq!(log, expected));
}

#[test]
fn a_journey_that_is_cut_after_any_commit_ends_as_if_it_was_not() {
    at_every_commit("journey", End::CutAfter, |log, expected| assert_eq!(log, expected));
}

#[test]
fn a_journey_that_is_handed_back_at_any_commit_ends_as_if_it_was_not() {
    at_every_commit("journey", End::Stop, |log, expected| assert_eq!(log, expected));
}

#[test]
fn lines_of_work_that_are_cut_at_any_commit_each_find_their_own_past() {
    for end in [End::CutBefore, End::CutAfter] {
        at_every_commit("crossroads", end, |log, expected| {
            // Lines are told in any order among each other, each in its own.
            for artifact in ["root", "left", "right", "inner"] {
                assert_eq!(chunks(log, artifact), chunks(expected, artifact), "{artifact}");
            }
        });
    }
}

fn chunks<'a>(log: &'a [Event], artifact: &str) -> Vec<(&'a [Part], bool)> {
    let of = |event: &'a Event| match event {
        Event::Artifact(chunk) if chunk.id == artifact => Some((&chunk.parts[..], chunk.append)),
        _ => None,
    };
    log.iter().filter_map(of).collect()
}

// ----------------------------------------------------------------------------------- what it is written with

/// Runs an agent to its end, and says what each commit wrote: the bytes of the head, and the journal.
async fn commits_of<F>(run: impl Fn(TaskContext) -> F + Send + Sync + 'static) -> Vec<(usize, Vec<Value>)>
where
    F: Future<Output = Result<Outcome, AgentError>> + Send + 'static,
{
    let world = World::new().agent("writer", run);
    let written = Arc::new(Mutex::new(vec![]));
    let into = Arc::clone(&written);
    let store = HookedStore::new(world.open().await, move |moment, change| {
        if moment == CommitMoment::Before {
            let records = change.journal.iter().map(|record| serde_json::from_slice(&record.0[1..]).unwrap());
            let head = change.head.as_ref().map_or(0, Bytes::len);
            into.lock().unwrap().push((head, records.collect()));
        }
        proceed()
    });
    let engine = world.start_on(store).await;
    let task = engine.send(to("writer", "go")).await;
    let task = engine.ended(&task).await;
    assert_eq!(task.state, State::Completed, "{task:?}");
    engine.stop().await;
    std::mem::take(&mut *written.lock().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_that_is_not_waited_for_is_written_with_the_end() {
    let commits = commits_of(async |cx: TaskContext| {
        let way: u32 = cx.decide("way", || 7)?;
        cx.step_unwaited("walk", async |_| Ok(way)).await?;
        Ok(Outcome::done())
    });
    let names = |records: &[Value]| -> Vec<String> {
        records.iter().map(|record| record["step"]["name"].as_str().unwrap().to_owned()).collect()
    };
    let commits: Vec<_> = commits.await.iter().map(|(_, journal)| names(journal)).collect();
    assert_eq!(commits, [vec!["way".to_owned()], vec!["walk".to_owned()]]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_step_begins_when_the_one_before_is_durable() {
    let outside = Arc::new(Outside::default());
    let did = Arc::clone(&outside);
    let world = World::new().agent("walker", move |cx: TaskContext| {
        let outside = Arc::clone(&did);
        async move {
            cx.step_unwaited("one", async |_| outside.done("one")).await?;
            cx.step_unwaited("two", async |_| outside.done("two")).await?;
            Ok(Outcome::done())
        }
    });
    let gate = Gate::new();
    let store = gate.on(world.open().await, CommitMoment::Before, |change| !change.journal.is_empty());
    let engine = world.start_on(store).await;
    let task = engine.send(to("walker", "go")).await;
    gate.arrival().await;
    // Whatever could go on without that commit has time to.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!((outside.begun("one"), outside.begun("two")), (1, 0));
    gate.open();
    assert_eq!(engine.ended(&task).await.state, State::Completed);
    assert_eq!(outside.begun("two"), 1);
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn branches_that_have_ended_do_not_pile_up_in_the_head() {
    let commits = commits_of(async |cx: TaskContext| {
        for n in 0..200 {
            let branch = cx.branch(&format!("branch-{n}"));
            branch.progress(1.0, None, "here").await?;
            branch.step("step", async |_| Ok(())).await?;
        }
        Ok(Outcome::done())
    });
    let commits = commits.await;
    assert!(commits.len() >= 200, "{} commits", commits.len());
    let heads: Vec<usize> = commits.iter().map(|(head, _)| *head).collect();
    let (first, longest) = (heads[1], heads.iter().max().copied().unwrap_or_default());
    assert!(longest < first + 100, "the head grew from {first} to {longest} bytes");
}

// -------------------------------------------------------------------------------------- second thoughts

/// Runs an agent twice on one task: `first`, which is then cut, and `second` after the restart.
async fn twice<F, G>(
    first: impl Fn(Arc<TaskContext>) -> F + Send + Sync + 'static,
    second: impl Fn(Arc<TaskContext>) -> G + Send + Sync + 'static,
) -> Task
where
    F: Future<Output = Result<(), AgentError>> + Send + 'static,
    G: Future<Output = Result<(), AgentError>> + Send + 'static,
{
    let runs = Arc::new(AtomicU32::new(0));
    let (first, second, did) = (Arc::new(first), Arc::new(second), Arc::new(Notify::new()));
    let done = Arc::clone(&did);
    let world = World::new()
        .agent("fickle", move |cx: TaskContext| {
            let (first, second, done) = (Arc::clone(&first), Arc::clone(&second), Arc::clone(&done));
            let run = runs.fetch_add(1, Ordering::SeqCst);
            async move {
                if run == 0 {
                    // The context lives on: what is emitted is written when the task is handed back.
                    let cx = Arc::new(cx);
                    first(Arc::clone(&cx)).await?;
                    done.notify_one();
                    std::future::pending().await
                } else {
                    second(Arc::new(cx)).await.map(|()| Outcome::done())
                }
            }
        })
        .agent("helper", async |cx: TaskContext| Ok(Outcome::said(cx.text())))
        .agent("other", async |_: TaskContext| Ok(Outcome::done()));
    let engine = world.start().await;
    let task = engine.send(to("fickle", "go")).await;
    tokio::select! {
        () = within(did.notified()) => {}
        _ = engine.parked(&task) => {}
    }
    engine.stop().await;
    drop(engine);
    let engine = world.start().await;
    let mut task = engine.settled(&task).await;
    if !task.questions.is_empty() {
        engine.say(&task, said("yes")).await.unwrap();
        task = engine.ended(&task).await;
    }
    engine.checked(task.origin.id).await;
    task
}

macro_rules! differs {
    ($($name:ident: $first:expr => $second:expr;)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            let task = twice(
                async |cx: Arc<TaskContext>| { let cx = &*cx; $first(cx).await },
                async |cx: Arc<TaskContext>| { let cx = &*cx; $second(cx).await },
            ).await;
            assert_eq!(task.state, State::Failed, "{task:?}");
            let words = last_words(&task);
            assert!(words.starts_with("nondeterministic: "), "{words}");
        }
    )*};
}

async fn step(cx: &TaskContext, name: &str) -> Result<(), AgentError> {
    cx.step(name, async |_| Ok(())).await
}

async fn log(cx: &TaskContext, lines: usize) -> Result<(), AgentError> {
    for _ in 0..lines {
        cx.log(Level::Info, "line").await?;
    }
    Ok(())
}

async fn progress(cx: &TaskContext) -> Result<(), AgentError> {
    cx.progress(1.0, None, "").await
}

async fn chunk(cx: &TaskContext, id: &str) -> Result<(), AgentError> {
    cx.artifact(Chunk::text(id, "text")).await
}

async fn ask(cx: &TaskContext, text: &str) -> Result<(), AgentError> {
    cx.ask(text, yes_or_no()).await.map(drop)
}

async fn sleep(cx: &TaskContext) -> Result<(), AgentError> {
    cx.sleep(Duration::from_millis(1)).await
}

async fn call(cx: &TaskContext, agent: &str) -> Result<(), AgentError> {
    cx.call(agent, said("help")).await.map(drop)
}

differs! {
    another_step_is_noticed: async |cx| step(cx, "a").await => async |cx| step(cx, "b").await;
    a_question_for_a_step_is_noticed: async |cx| step(cx, "a").await => async |cx| ask(cx, "Really?").await;
    a_sleep_for_a_step_is_noticed: async |cx| step(cx, "a").await => async |cx| sleep(cx).await;
    a_call_for_a_step_is_noticed: async |cx| step(cx, "a").await => async |cx| call(cx, "helper").await;
    a_step_for_a_question_is_noticed: async |cx| ask(cx, "Really?").await => async |cx| step(cx, "a").await;
    another_question_is_noticed: async |cx| ask(cx, "Really?").await => async |cx| ask(cx, "Truly?").await;
    a_step_for_a_sleep_is_noticed: async |cx| sleep(cx).await => async |cx| step(cx, "a").await;
    a_step_for_a_call_is_noticed: async |cx| call(cx, "helper").await => async |cx| step(cx, "a").await;
    a_call_of_another_is_noticed: async |cx| call(cx, "helper").await => async |cx| call(cx, "other").await;
    fewer_emissions_are_noticed: async |cx| log(cx, 3).await => async |cx| log(cx, 2).await;
    no_emissions_are_noticed: async |cx| log(cx, 1).await => async |_: &TaskContext| Ok(());
    another_kind_of_emission_is_noticed: async |cx| log(cx, 1).await => async |cx| progress(cx).await;
    another_artifact_is_noticed: async |cx| chunk(cx, "a").await => async |cx| chunk(cx, "b").await;
    fewer_emissions_in_a_branch_are_noticed:
        async |cx: &TaskContext| log(&cx.branch("x"), 2).await => async |cx: &TaskContext| log(&cx.branch("x"), 1).await;
    another_step_in_a_branch_is_noticed:
        async |cx: &TaskContext| step(&cx.branch("x"), "a").await => async |cx: &TaskContext| step(&cx.branch("x"), "b").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_of_another_type_is_noticed() {
    let task = twice(
        async |cx: Arc<TaskContext>| cx.step("a", async |_| Ok(7)).await.map(drop),
        async |cx: Arc<TaskContext>| cx.step("a", async |_| Ok("seven".to_owned())).await.map(drop),
    )
    .await;
    assert_eq!(task.state, State::Failed);
    assert!(
        last_words(&task).starts_with("nondeterministic: the recorded result of step \"a\""),
        "{}",
        last_words(&task)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn to_go_on_and_do_more_is_no_second_thought() {
    let task = twice(
        async |cx: Arc<TaskContext>| {
            log(&cx, 2).await?;
            step(&cx, "a").await
        },
        async |cx: Arc<TaskContext>| {
            log(&cx, 2).await?;
            step(&cx, "a").await?;
            log(&cx, 2).await?;
            step(&cx, "b").await
        },
    )
    .await;
    assert_eq!(task.state, State::Completed, "{task:?}");
}

#[test]
fn an_agent_that_finds_itself_canceled_after_a_restart_may_do_something_else() {
    let world = World::new().agent("tidy", async |cx: TaskContext| {
        if cx.is_canceled() {
            cx.progress(0.0, None, "tidying up").await?;
            return Ok(Outcome::canceled("tidied up"));
        }
        log(&cx, 3).await?;
        cx.canceled().await;
        Ok(Outcome::canceled("at once"))
    });
    let life = world.life();
    let task = life.block_on(async {
        let task = life.engine.send(to("tidy", "go")).await;
        until("it is at work", async || (life.engine.row(task.origin.id).await.seq == 5).then_some(())).await;
        task
    });
    life.cut();
    // The wish to cancel is the last thing that is committed before the next start.
    let rt = tokio::runtime::Runtime::new().unwrap();
    rt.block_on(async {
        let store = world.open().await;
        let row = store.row(&TaskKey::Id(task.origin.id)).await.unwrap().unwrap();
        let mut wish = Change::new(Precondition::Version { task: row.no, version: row.version });
        wish.cancel = Some(true);
        store.commit(wish).await.unwrap();
    });
    let life = world.life();
    let task = life.block_on(life.engine.ended(&task));
    assert_eq!((task.state, last_words(&task).as_str()), (State::Canceled, "tidied up"));
}

// -------------------------------------------------------------------------------------------- small print

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_branch_has_a_name_of_its_own() {
    let world = World::new().agent("careless", async |cx: TaskContext| {
        let name = cx.text();
        let first: Result<u32, _> = cx.branch(&name).step("a", async |_| Ok(1)).await;
        let again: Result<u32, _> = cx.branch(&name).step("a", async |_| Ok(2)).await;
        cx.artifact(Chunk::text("first", format!("{first:?}"))).await?;
        cx.artifact(Chunk::text("again", format!("{again:?}"))).await?;
        let spoken = cx.branch(&name).log(Level::Info, "unheard").await;
        assert!(matches!(spoken, Err(AgentError::Misuse(_))), "{spoken:?}");
        Ok(Outcome::done())
    });
    let engine = world.start().await;
    let task = engine.run(to("careless", "x")).await;
    assert_eq!((task.state, text_of(&task, "first").as_str()), (State::Completed, "Ok(1)"), "{task:?}");
    assert!(text_of(&task, "again").contains("there was a branch"), "not the result of the first");
    for name in ["", "a/b", "a#1"] {
        let task = engine.run(to("careless", name)).await;
        assert!(text_of(&task, "first").contains("a branch's name"), "{name:?}: {task:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_context_does_one_thing_at_a_time() {
    let world = World::new().agent("busy", async |cx: TaskContext| {
        let inside = cx.step("outer", async |_| {
            let (log, step) = (cx.log(Level::Info, "no").await, cx.step("inner", async |_| Ok(())).await);
            Ok(format!("{log:?} {step:?}"))
        });
        cx.artifact(Chunk::text("inside", inside.await?)).await?;
        Ok(Outcome::done())
    });
    let engine = world.start().await;
    let task = engine.run(to("busy", "go")).await;
    assert_eq!(text_of(&task, "inside").matches("inside a step use the context it is given").count(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_begins_again_from_the_top_finds_what_it_did() {
    let outside = Arc::new(Outside::default());
    let counted = Arc::clone(&outside);
    let world = World::new().agent("persistent", move |cx: TaskContext| {
        let outside = Arc::clone(&counted);
        async move {
            cx.wait_until_durable().await;
            cx.progress(1.0, None, "one").await?;
            step(&cx, "first").await?;
            cx.remark(Level::Info, "once").await?;
            // Cut in the middle of a step, before it has done all of it.
            let cut = cx.step::<(), _>("second", async |step| {
                outside.begin("second");
                step.artifact(Chunk::text("list", "cut")).await?;
                Err(AgentError::Canceled)
            });
            assert_eq!(cut.await, Err(AgentError::Canceled));
            // And again at once, before it has said what it had said.
            let cx = cx.restart().restart();
            cx.progress(1.0, None, "one").await?;
            cx.step("first", async |_| outside.done("first, again")).await?;
            cx.remark(Level::Info, "twice").await?;
            cx.step("second", async |step| {
                outside.begin("second");
                step.artifact(Chunk::text("list", "whole").complete()).await
            })
            .await?;
            Ok(Outcome::done())
        }
    });
    let engine = world.start().await;
    let task = engine.run(to("persistent", "go")).await;
    assert_eq!((task.state, text_of(&task, "list").as_str()), (State::Completed, "whole"), "{task:?}");
    assert_eq!((outside.begun("first, again"), outside.begun("second")), (0, 2));
    let log = crate::world::read_log(&**engine.store_for_tests(), task.origin.id).await;
    let progress = log.iter().filter(|entry| matches!(entry.event(), Event::Progress(_))).count();
    let remarks = log.iter().filter(|entry| matches!(entry.event(), Event::Log(_))).count();
    assert_eq!((progress, remarks), (1, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_lines_do_not_write_one_artifact() {
    let world = World::new().agent("careless", async |cx: TaskContext| {
        cx.artifact(Chunk::text("shared", "root")).await?;
        cx.branch("x").artifact(Chunk::text("shared", "branch")).await?;
        Ok(Outcome::done())
    });
    let engine = world.start().await;
    let task = engine.run(to("careless", "go")).await;
    assert_eq!((task.state, text_of(&task, "shared").as_str()), (State::Failed, "root"));
    assert!(last_words(&task).contains("writes its own artifacts"), "{task:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_returns_the_first_time_what_it_would_return_after_a_restart() {
    #[derive(serde::Serialize, serde::Deserialize)]
    struct Kept {
        kept: u32,
        #[serde(skip)]
        forgotten: u32,
    }
    let world = World::new().agent("careful", async |cx: TaskContext| {
        let kept = cx.step("a", async |_| Ok(Kept { kept: 1, forgotten: 2 })).await?;
        assert_eq!((kept.kept, kept.forgotten), (1, 0));
        let unkept = cx.step("b", async |_| Ok(f64::NAN)).await;
        assert!(matches!(unkept, Err(AgentError::Misuse(_))), "{unkept:?}");
        Ok(Outcome::done())
    });
    let engine = world.start().await;
    let task = engine.run(to("careful", "go")).await;
    assert_eq!(task.state, State::Completed, "{task:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn progress_that_is_no_number_leaves_the_log_readable() {
    let world = World::new().agent("careless", async |cx: TaskContext| {
        cx.progress(f64::NAN, Some(f64::INFINITY), "nothing of nothing").await?;
        cx.step("a", async |step| step.progress(f64::NAN, None, "").await).await?;
        Ok(Outcome::done())
    });
    let engine = world.start().await;
    let task = engine.run(to("careless", "go")).await;
    assert_eq!(engine.checked(task.origin.id).await.state, State::Completed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_is_not_repeated_when_the_called_task_has_expired() {
    let clock = HandClock::new();
    let helped = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&helped);
    let world = World::new()
        .clock(&clock)
        .options(|options| options.expiry_poll = Duration::from_millis(5))
        .agent("caller", async |cx: TaskContext| {
            let task = cx.call("helper", said("help")).await?;
            cx.ask("And now?", yes_or_no()).await?;
            Ok(Outcome::said(last_words(&task)))
        })
        .agent("helper", move |cx: TaskContext| {
            let count = Arc::clone(&count);
            async move {
                cx.step("help", async |_| Ok(count.fetch_add(1, Ordering::SeqCst))).await?;
                Ok(Outcome::said("helped"))
            }
        });
    let engine = world.start().await;
    let task = engine.run(to("caller", "go")).await;
    let task = engine.parked(&task).await;
    clock.advance(engine.options().retention * 2);
    until("the called task is gone", async || {
        let list = nuncio_engine::List { page_size: 10, ..Default::default() };
        (engine.list(&me(), list).await.unwrap().total == 1).then_some(())
    })
    .await;
    engine.say(&task, said("yes")).await.unwrap();
    let task = engine.ended(&task).await;
    assert_eq!((task.state, last_words(&task).as_str()), (State::Completed, "helped"));
    assert_eq!(helped.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_sleep_is_slept_elsewhere_and_ends_when_it_is_over() {
    let clock = HandClock::new();
    let world = World::new()
        .clock(&clock)
        .options(|options| options.claim_poll = Duration::from_millis(5))
        .agent("sleeper", async |cx: TaskContext| {
            cx.sleep(Duration::from_secs(3600)).await?;
            Ok(Outcome::said("good morning"))
        });
    let engine = world.start().await;
    let task = engine.send(to("sleeper", "go")).await;
    engine.parked(&task).await;
    engine.stop().await;
    drop(engine);
    let engine = world.start().await;
    clock.advance(Duration::from_secs(3599));
    engine.parked(&task).await;
    assert_eq!(engine.row(task.origin.id).await.state, State::Working);
    clock.advance(Duration::from_secs(2));
    let task = engine.ended(&task).await;
    assert_eq!((task.state, last_words(&task).as_str()), (State::Completed, "good morning"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn snapshots_of_a_long_log_are_together_no_longer_than_a_few_logs() {
    let world = World::new().agent("writer", async |cx: TaskContext| {
        for n in 0..8_000 {
            cx.artifact(Chunk::text("book", format!("{n:0100}"))).await?;
            // Time enough for a snapshot wherever one is thought to be due.
            if n % 50 == 0 {
                cx.step("pause", async |_| Ok(())).await?;
            }
        }
        Ok(Outcome::done())
    });
    let store = HookedStore::new(world.open().await, |_, _| proceed());
    let engine = world.start_on(Arc::clone(&store) as Arc<dyn Store>).await;
    let task = engine.send(to("writer", "go")).await;
    engine.ended(&task).await;
    let task = engine.checked(task.origin.id).await;
    let opened = engine.store_for_tests().open(&TaskKey::Id(task.origin.id)).await.unwrap().unwrap();
    assert!(opened.snapshot.is_some(), "there is one");
    let fold = serde_json::to_vec(&task).unwrap().len();
    let tail: usize = opened.log.iter().map(|batch| batch.bytes.len()).sum();
    assert!(tail < 3 * fold, "{tail} bytes to fold on top of a snapshot of {fold}");
    let all: usize = store.snapshots.lock().iter().sum();
    assert!(all < 4 * fold, "{all} bytes of snapshots for a task of {fold}");
}
