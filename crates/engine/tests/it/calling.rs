//! In whose name a task calls others: in its caller's, checked, counted and audited as the caller's own sends are.

use nuncio_engine::{
    AuditLevel, Caller, Engine, Error, Grants, Next, Outcome, State, Task, TaskContext,
    context::CallEnd,
    knowledge::{AuditEntry, AuditQuery},
};

use crate::world::{World, last_words, said, to, until, within};

/// A caller that may do only this.
fn caller(owner: &str, scopes: &str) -> Caller {
    Caller::named(owner.to_owned()).limited_to(Grants::parse(scopes).unwrap())
}

pub(crate) async fn ended(engine: &Engine, caller: &Caller, task: &Task) -> Task {
    let mut follower = engine.follow(caller, &task.origin.id.to_string(), 0).await.unwrap();
    let mut task = Task::new(task.origin.clone());
    loop {
        match within(follower.next()).await.unwrap() {
            Next::Batch(batch) => batch.iter().for_each(|(_, entry)| task.apply(entry)),
            Next::End => return task,
            Next::Closing | Next::Nudge(_) => panic!("the server stops"),
        }
    }
}

async fn audited(engine: &Engine, operation: &str) -> Vec<AuditEntry> {
    engine.flush_audit().await;
    let query = AuditQuery { limit: 1_000, ..AuditQuery::default() };
    let lines = engine.store_for_tests().knowledge().audit(&query).await.unwrap().entries;
    lines.into_iter().map(|(_, line)| line).filter(|line| line.operation == operation).collect()
}

/// Calls the agent that its text names, and says how that ended.
fn messenger() -> World {
    World::new()
        .options(|options| options.access.audit = AuditLevel::Changes)
        .agent("messenger", async |cx: TaskContext| {
            let agent = cx.text();
            Ok(match cx.call_until(&agent, said("hello"), None).await?.end {
                CallEnd::Ended(task) | CallEnd::Late(task) => Outcome::said(last_words(&task)),
                CallEnd::Refused(why) => Outcome::failed(why),
            })
        })
        .agent("vault", async |_: TaskContext| Ok(Outcome::said("the secret")))
        .agent("lobby", async |_: TaskContext| Ok(Outcome::said("welcome")))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_calls_no_agent_that_its_caller_may_not() {
    let engine = messenger().start().await;
    let ada = caller("acme/ada", "execute:a2a:messenger execute:a2a:lobby");
    let task = engine.submit(&ada, to("messenger", "vault")).await.unwrap();
    let task = ended(&engine, &ada, &task).await;
    assert_eq!(task.state, State::Failed, "{}", last_words(&task));
    assert!(last_words(&task).contains("execute:a2a:vault"), "{}", last_words(&task));
    let line = audited(&engine, "task.call").await.pop().expect("the refusal is in the audit");
    assert!(line.refused.is_some(), "{line:?}");
    assert!(line.resource.contains("a2a://agents/vault"), "{line:?}");
    assert!(line.resource.contains(&task.origin.id.to_string()), "it names the task that called: {line:?}");
    assert_eq!(&*line.caller, "acme/ada");

    let task = engine.submit(&ada, to("messenger", "lobby")).await.unwrap();
    let task = ended(&engine, &ada, &task).await;
    assert_eq!((task.state, last_words(&task).as_str()), (State::Completed, "welcome"));
    let lines = audited(&engine, "task.call").await;
    let line = lines.iter().find(|line| line.refused.is_none()).expect("so is what was allowed");
    assert!(line.resource.contains(&task.origin.id.to_string()), "{line:?}");
    assert_eq!(lines.len(), 2, "one line for each call: {lines:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wired_part_of_a_composition_needs_no_scope_and_is_audited() {
    let world = messenger().agent("composition", async |cx: TaskContext| {
        let part = cx.call_wired("vault", said("hello")).await?;
        Ok(Outcome::said(last_words(&part)))
    });
    let engine = world.start().await;
    let ada = caller("acme/ada", "execute:a2a:composition");
    let task = engine.submit(&ada, to("composition", "go")).await.unwrap();
    let task = ended(&engine, &ada, &task).await;
    assert_eq!((task.state, last_words(&task).as_str()), (State::Completed, "the secret"));
    let lines = audited(&engine, "task.call").await;
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].resource.contains(&task.origin.id.to_string()), "{lines:?}");
    assert!(lines[0].refused.is_none(), "{lines:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_count_against_the_callers_rate() {
    let world = messenger().options(|options| {
        options.access.rates = vec![(nuncio_engine::AccessKind::A2a, "2/h".parse().unwrap())];
    });
    let engine = world.start().await;
    let ada = Caller::named("acme/ada");
    // The send and its call.
    let begun = engine.submit(&ada, to("messenger", "lobby")).await.unwrap();
    until("it has called", async || {
        let row =
            engine.store_for_tests().row(&nuncio_engine::store::TaskKey::Id(begun.origin.id)).await.unwrap();
        row.unwrap().state.is_terminal().then_some(())
    })
    .await;
    let refused = engine.submit(&ada, to("messenger", "lobby")).await.unwrap_err();
    assert!(matches!(refused, Error::TooFast { .. }), "{refused}");
}
