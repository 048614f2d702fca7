//! Callers that wait at a connection and have no other way to their task.

use std::time::Duration;

use nuncio_engine::{AgentError, Outcome, State, Submit, TaskContext};
use serde_json::json;

use crate::world::{EngineExt, HandClock, World, last_words, me, said, to};

const HOUR: Duration = Duration::from_secs(3600);

fn waiting(agent: &str) -> Submit {
    let mut submit = to(agent, "go");
    submit.waiting = Some(HOUR);
    submit
}

async fn curious(cx: TaskContext) -> Result<Outcome, AgentError> {
    let schema = json!({ "type": "object", "properties": { "n": { "type": "string" } }, "required": ["n"] });
    cx.ask("Well?", schema).await?;
    Ok(Outcome::said("thank you"))
}

/// The connection died with the node, and nobody will ask for the result: the work is not taken up again.
#[test]
fn their_task_ends_with_the_node_that_took_it() {
    let world = World::new().agent("busy", async |cx: TaskContext| {
        cx.step("for ever", async |_| std::future::pending::<Result<(), AgentError>>().await).await?;
        Ok(Outcome::done())
    });
    let life = world.life();
    let (task, kept) = life.block_on(async {
        let task = life.engine.submit(&me(), waiting("busy")).await.unwrap();
        let kept = life.engine.submit(&me(), to("busy", "go")).await.unwrap();
        (task, kept)
    });
    life.cut();
    let life = world.life();
    life.block_on(async {
        let task = life.engine.ended(&task).await;
        assert_eq!(task.state, State::Canceled);
        assert!(last_words(&task).contains("has stopped"), "{}", last_words(&task));
        let kept = life.engine.task(kept.origin.id).await;
        assert!(!kept.state.is_terminal(), "a caller that can reconnect finds it running");
        life.engine.cancel(&me(), &kept.origin.id.to_string()).await.unwrap();
    });
}

/// A question survives a restart as any other does, but not for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn their_questions_wait_for_so_long_and_no_longer() {
    let clock = HandClock::new();
    let world = World::new().clock(&clock).agent("curious", curious);
    let engine = world.start().await;
    let answered = engine.run(waiting("curious")).await;
    let unanswered = engine.run(waiting("curious")).await;
    let patient = engine.run(to("curious", "go")).await;
    for task in [&answered, &unanswered, &patient] {
        engine.parked(task).await;
    }
    engine.stop().await;
    drop(engine);
    clock.advance(HOUR / 2);
    let engine = world.start().await;
    engine.say(&answered, said("yes")).await.unwrap();
    assert_eq!(engine.ended(&answered).await.state, State::Completed);
    assert_eq!(engine.task(unanswered.origin.id).await.state, State::InputRequired);
    clock.advance(HOUR);
    let ended = engine.ended(&unanswered).await;
    assert_eq!(ended.state, State::Canceled);
    assert!(last_words(&ended).contains("did not answer"), "{}", last_words(&ended));
    assert_eq!(engine.task(patient.origin.id).await.state, State::InputRequired);
}
