//! Who ran a task and when, and what its agent did: told by its journal, also after kills and parks.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use nuncio_engine::{
    AgentError, Outcome, TaskContext,
    engine::{EffectKind, RunEnd, TaskJournal},
};
use serde_json::{Value, json};

use crate::world::{EngineExt, World, data, me, to, until};

fn form() -> Value {
    json!({ "type": "object", "properties": { "go": { "type": "boolean" } }, "required": ["go"] })
}

/// A step, a step that only a later life ends, a question, a call.
async fn work(cx: TaskContext, lives: Arc<AtomicU32>) -> Result<Outcome, AgentError> {
    cx.step("first", async |_| Ok(7)).await?;
    cx.step("second", async |_| {
        if lives.fetch_add(1, Ordering::SeqCst) == 0 {
            std::future::pending::<()>().await;
        }
        Err::<(), _>(AgentError::failed("as it should"))
    })
    .await
    .unwrap_err();
    cx.ask("Go on?", form()).await?;
    cx.call("helper", data(json!({}))).await?;
    Ok(Outcome::done())
}

fn names(journal: &TaskJournal) -> Vec<String> {
    let name = |kind: &EffectKind| match kind {
        EffectKind::Step { name, result } => {
            format!("{name} {}", if result.is_ok() { "ok" } else { "failed" })
        }
        EffectKind::Sleep { .. } => "sleep".to_owned(),
        EffectKind::Call { agent, state, .. } => format!("call {agent} {state:?}"),
        EffectKind::RefusedCall { agent, .. } => format!("refused {agent}"),
        EffectKind::Question { text } => text.clone(),
    };
    journal.effects.iter().map(|effect| name(&effect.kind)).collect()
}

#[test]
fn the_lives_of_a_task_are_told_by_its_journal() {
    let lives = Arc::new(AtomicU32::new(0));
    let begun = Arc::clone(&lives);
    let world = World::new()
        .agent("work", move |cx: TaskContext| work(cx, Arc::clone(&lives)))
        .agent("helper", async |_| Ok(Outcome::done()));

    let first = world.life();
    let (id, before) = first.block_on(async {
        let engine = &first.engine;
        let task = engine.send(to("work", "go")).await;
        let id = task.origin.id;
        let journal = until("the first step is kept", async || {
            let journal = engine.task_journal(&me(), &id.to_string()).await.unwrap();
            (!journal.effects.is_empty()).then_some(journal)
        })
        .await;
        // The step that only a later life ends has to begin in this one.
        until("the second step has begun", async || (begun.load(Ordering::SeqCst) == 1).then_some(())).await;
        (id, journal)
    });
    assert_eq!(names(&before), ["first ok"]);
    assert_eq!(before.runs.len(), 1);
    assert_eq!((before.runs[0].end, before.runs[0].ended), (RunEnd::Running, None));
    first.cut();

    let second = world.life();
    second.block_on(async {
        let engine = &second.engine;
        let task = engine.task(id).await;
        let task = engine.parked(&task).await;
        let parked = engine.task_journal(&me(), &id.to_string()).await.unwrap();
        assert_eq!(names(&parked), ["first ok", "second failed", "Go on?"]);
        let ends: Vec<RunEnd> = parked.runs.iter().map(|run| run.end).collect();
        assert_eq!(ends, [RunEnd::Lost, RunEnd::Parked]);
        assert_eq!(parked.runs[0].node, before.runs[0].node);
        assert_ne!(parked.runs[1].node, before.runs[0].node, "another process is another node");
        assert_eq!((parked.runs[1].epoch, parked.runs[1].attempts), (2, 1));
        assert!(parked.runs[1].ended >= Some(parked.runs[1].began));

        let accepted = data(json!({ "go": true }));
        engine.say(&task, accepted).await.unwrap();
        engine.ended(&task).await;
        let ended = engine.task_journal(&me(), &id.to_string()).await.unwrap();
        assert_eq!(names(&ended), ["first ok", "second failed", "Go on?", "call helper Completed"]);
        let run = ended.runs.last().unwrap();
        assert_eq!((ended.runs.len(), run.end, run.attempts), (3, RunEnd::Ended, 0));
        assert_eq!(run.ended, Some(engine.task(id).await.status_at));
        for effect in &ended.effects {
            if !matches!(effect.kind, EffectKind::Question { .. }) {
                assert!(effect.began.is_some() && effect.began <= effect.ended, "{effect:?}");
            }
        }
        assert!(!ended.more_runs);
    });
}

/// A stranger learns nothing, and a task that ran at once in one commit has its one run.
#[tokio::test]
async fn a_journal_is_read_by_who_may_read_the_task() {
    let world = World::new().agent("quick", async |_| Ok(Outcome::done()));
    let engine = world.start().await;
    let task = engine.run(to("quick", "go")).await;
    let id = task.origin.id.to_string();
    let journal = engine.task_journal(&me(), &id).await.unwrap();
    let ends: Vec<RunEnd> = journal.runs.iter().map(|run| run.end).collect();
    assert_eq!((ends, journal.effects), (vec![RunEnd::Ended], vec![]));
    let stranger = nuncio_engine::Caller::named("stranger");
    let refused = engine.task_journal(&stranger, &id).await.unwrap_err();
    let missing =
        engine.task_journal(&stranger, &task.origin.id.to_string().replace('7', "8")).await.unwrap_err();
    assert_eq!(std::mem::discriminant(&refused), std::mem::discriminant(&missing));
}
