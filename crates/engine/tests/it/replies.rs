//! Answers by a message: when they are one, and when they end a task.

use std::sync::Arc;

use nuncio_engine::{Caller, Error, List, Outcome, State, Submit, Task, TaskContext, store::TaskKey};
use tokio::sync::Notify;

use crate::world::{Scripted, World, last_words, me, reply_to, said, to, until, within};

/// A send whose caller waits, and takes a message for an answer.
fn waiting(agent: &str, text: &str) -> Submit {
    let mut submit = to(agent, text);
    submit.accepts_reply = true;
    submit
}

#[tokio::test]
async fn a_called_agent_that_replies_completes_its_task() {
    let engine = World::new()
        .agent("caller", async |cx: TaskContext| {
            let task = cx.call("replier", said("hello")).await?;
            Ok(Outcome::said(format!("{}: {}", task.state.name(), last_words(&task))))
        })
        .scripted(Scripted::new("replier", async |_: TaskContext| Ok(Outcome::replied("hi"))).replying())
        .start()
        .await;
    let task = within(engine.submit(&me(), waiting("caller", "go"))).await.unwrap();
    let task = within(engine.wait_until_idle(&me(), task)).await.unwrap();
    assert_eq!((task.state, last_words(&task)), (State::Completed, "completed: hi".into()));
}

#[tokio::test]
async fn a_task_that_got_a_further_message_is_completed_by_a_reply() {
    let (go, gate) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let opened = Arc::clone(&gate);
    let entered = Arc::clone(&go);
    let replier = Scripted::new("replier", move |cx: TaskContext| {
        let (entered, opened) = (Arc::clone(&entered), Arc::clone(&opened));
        async move {
            cx.wait_until_durable().await;
            entered.notify_one();
            opened.notified().await;
            Ok(Outcome::replied("hi"))
        }
    });
    let engine = World::new().scripted(replier.replying()).start().await;
    for told in [false, true] {
        let message = if told { "second" } else { "first" };
        let task = within(engine.submit(&me(), waiting("replier", message))).await.unwrap();
        within(go.notified()).await;
        // While its agent works it is listed, so its caller can cancel it.
        let listed = engine.list(&me(), List { page_size: 10, ..List::default() }).await.unwrap();
        assert!(listed.tasks.iter().any(|listed| listed.origin.id == task.origin.id));
        if told {
            within(engine.reply(&me(), reply_to(&task, said("more")))).await.unwrap();
        }
        gate.notify_one();
        let id = task.origin.id;
        let state = until("its end", async || {
            let row = engine.store_for_tests().row(&TaskKey::Id(id)).await.unwrap().unwrap();
            row.state.is_terminal().then_some(row.state)
        })
        .await;
        let expected = if told { State::Completed } else { State::Replied };
        assert_eq!(state, expected, "with a further message: {told}");
        let got = engine.get(&me(), &id.to_string()).await;
        assert_eq!(got.is_ok(), told, "{got:?}");
    }
}

#[tokio::test]
async fn a_reply_is_found_by_its_key_alone_and_by_no_other_owner() {
    let engine = World::new()
        .scripted(Scripted::new("replier", async |_: TaskContext| Ok(Outcome::replied("hi"))).replying())
        .start()
        .await;
    let mut send = waiting("replier", "go");
    send.idempotency_key = Some("key:1".into());
    let first = within(engine.submit(&me(), send.clone())).await.unwrap();
    assert_eq!((first.state, first.reply().is_some()), (State::Replied, true));
    let again: Task = within(engine.submit(&me(), send.clone())).await.unwrap();
    assert_eq!(again.reply(), first.reply());
    let id = first.origin.id.to_string();
    let gone = |result: Result<(), Error>| assert!(matches!(result, Err(Error::NoSuchTask(_))), "{result:?}");
    gone(engine.get(&me(), &id).await.map(|_| ()));
    gone(engine.cancel(&me(), &id).await.map(|_| ()));
    gone(engine.follow(&me(), &id, 0).await.map(|_| ()));
    gone(engine.webhooks(&me(), &id).await.map(|_| ()));
    gone(engine.reply(&me(), reply_to(&first, said("more"))).await.map(|_| ()));
    let other = Caller::named("acme/ada".to_owned());
    let theirs = within(engine.submit(&other, send)).await.unwrap();
    assert_ne!(theirs.origin.id, first.origin.id, "keys belong to their owners");
}
