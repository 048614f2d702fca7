//! One trace through a task, what it calls, and what goes on after a crash.

use std::sync::{Arc, Mutex};

use nuncio_engine::{
    Engine, Outcome, State,
    trace::{Span, Trace, Tracer, parse},
};
use serde_json::json;

use crate::world::{EngineExt as _, World, said, to};

const GIVEN: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// A tracer that remembers.
#[derive(Default)]
struct Seen(Mutex<Vec<Span>>);

impl Tracer for Seen {
    fn record_span(&self, span: Span) {
        self.0.lock().unwrap().push(span);
    }
}

impl Seen {
    fn named(&self, name: &str) -> Vec<Span> {
        self.0.lock().unwrap().iter().filter(|span| span.name == name).cloned().collect()
    }
}

fn traced() -> (World, Arc<Seen>) {
    let seen = Arc::new(Seen::default());
    let world = World::new()
        .agent("asker", async |cx| {
            cx.step("look", async |_| Ok(1)).await?;
            let schema = json!({ "type": "object", "properties": { "ok": { "type": "boolean" } } });
            cx.ask("Go on?", schema).await?;
            cx.call("helper", said("please")).await?;
            Ok(Outcome::done())
        })
        .agent("helper", async |cx| {
            cx.step("help", async |_| Ok(())).await?;
            Ok(Outcome::said(cx.trace().header()))
        })
        .agent("failing", async |_| Ok(Outcome::failed("the password=hunter2 was refused")))
        .tracer(&(Arc::clone(&seen) as Arc<dyn Tracer>));
    (world, seen)
}

async fn ended_span(seen: &Seen, name: &str) -> Span {
    crate::world::until(name, async || seen.named(name).pop()).await
}

#[test]
fn a_task_its_children_and_its_resumed_work_are_one_trace() {
    let (world, seen) = traced();
    let (trace, asker, _) = parse(GIVEN).unwrap();
    let life = world.life();
    let task = life.block_on(async {
        let mut submit = to("asker", "hi");
        submit.trace = Some(GIVEN.into());
        let task = life.engine.run(submit).await;
        life.engine.parked(&task).await
    });
    assert_eq!(task.state, State::InputRequired);
    life.cut();
    let life = world.life();
    life.block_on(async {
        let engine: &Engine = &life.engine;
        engine.say(&task, said(r#"{"ok": true}"#)).await.unwrap();
        assert_eq!(engine.ended(&task).await.state, State::Completed);
        let whole = ended_span(&seen, "task asker").await;
        assert_eq!((whole.trace, whole.parent), (trace, Some(asker)));
        let helped = ended_span(&seen, "task helper").await;
        assert_eq!((helped.trace, helped.parent), (trace, Some(whole.id)));
        assert_ne!(helped.id, whole.id);
        let step = ended_span(&seen, "step help").await;
        assert_eq!((step.trace, step.parent), (trace, Some(helped.id)));
        // One before the question and before the end of the process, one after it.
        crate::world::until("both runs", async || (seen.named("run asker").len() == 2).then_some(())).await;
        let runs = seen.named("run asker");
        assert!(runs.iter().all(|run| run.parent == Some(whole.id) && run.trace == trace));
        assert_ne!(runs[0].id, runs[1].id);
        // Done once, though the agent began twice.
        assert_eq!(seen.named("step look").len(), 1);
        assert_eq!(seen.named("task asker").len(), 1);
        assert!(whole.start <= whole.end && whole.start == task.origin.id.made_at());
    });
}

#[tokio::test]
async fn a_task_without_a_trace_is_the_first_of_its_own_and_what_nobody_wants_is_not_told() {
    let (world, seen) = traced();
    let engine = world.start().await;
    let task = engine.run(to("helper", "hi")).await;
    let whole = ended_span(&seen, "task helper").await;
    assert_eq!((whole.trace, whole.parent), (task.origin.id.0.into_bytes(), None));
    assert_eq!(crate::world::last_words(&task), Trace::of(&task.origin).header());

    let mut unwanted = to("helper", "hi");
    unwanted.trace = Some(GIVEN.replace("-01", "-00"));
    let task = engine.run(unwanted).await;
    assert!(crate::world::last_words(&task).ends_with("-00"), "it is passed on all the same");
    let mut nonsense = to("failing", "hi");
    nonsense.trace = Some("x".repeat(10_000));
    let task = engine.run(nonsense).await;
    assert_eq!(task.origin.trace, None);
    let failed = ended_span(&seen, "task failing").await;
    let why = failed.error.unwrap();
    assert!(why.contains("refused") && !why.contains("hunter2"), "{why}");
    assert_eq!(seen.named("task helper").len(), 1);
}
