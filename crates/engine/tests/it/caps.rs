//! There is a limit on everything that one task may hold; each has a name and is met exactly.

use std::time::Duration;

use nuncio_engine::{
    AgentError, Chunk, Error, Level, Message, Outcome, Part, Role, State, Submit, Task, TaskContext,
    webhook::WebhookConfig,
};
use serde_json::json;

use crate::world::{EngineExt, World, last_words, me, reply_to, said, to, until};

/// Does what it is told until something is refused, and says what was.
fn greedy() -> World {
    World::new().agent("greedy", async |cx: TaskContext| {
        let form = json!({"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]});
        let (what, times) =
            cx.text().split_once(' ').map(|(a, b)| (a.to_owned(), b.parse().unwrap())).unwrap();
        for _ in 0..times {
            match what.as_str() {
                "log" => cx.log(Level::Info, "x").await?,
                "chunk" => cx.artifact(Chunk::text("a", "x".repeat(1000))).await?,
                "step" => cx.step("s", async |_| Ok(())).await?,
                "result" => cx.step("s", async |_| Ok("x".repeat(1000))).await.map(drop)?,
                "said" => cx.step("s", async |step| step.log(Level::Info, "x").await).await?,
                "ask" => cx.ask("?", form.clone()).await.map(drop)?,
                "wait" => cx.canceled().await,
                _ => cx.sleep(Duration::from_millis(1)).await?,
            }
        }
        Ok(Outcome::done())
    })
}

async fn refused(engine: &nuncio_engine::Engine, how: &str, cap: &str) {
    let task = engine.run(to("greedy", how)).await;
    assert_eq!(task.state, State::Failed, "{how}: {task:?}");
    assert!(last_words(&task).starts_with(&format!("{cap}: ")), "{how}: {}", last_words(&task));
    engine.checked(task.origin.id).await;
}

async fn allowed(engine: &nuncio_engine::Engine, how: &str) -> Task {
    let task = engine.run(to("greedy", how)).await;
    assert_eq!(task.state, State::Completed, "{how}: {task:?}");
    engine.checked(task.origin.id).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_per_task() {
    let engine = greedy().options(|options| options.limits.events_per_task = 20).start().await;
    // The message and the beginning are two of them; the end always finds room.
    let task = allowed(&engine, "log 18").await;
    assert_eq!(task.seq, 21);
    refused(&engine, "log 19", "limits.events-per-task").await;
    refused(&engine, "said 19", "limits.events-per-task").await;
    // As many steps, for they are kept too.
    allowed(&engine, "step 20").await;
    refused(&engine, "step 21", "limits.events-per-task").await;
    allowed(&engine, "sleep 20").await;
    refused(&engine, "sleep 21", "limits.events-per-task").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_per_task_stops_questions_and_messages_and_no_answers() {
    let engine = greedy().options(|options| options.limits.events_per_task = 8).start().await;
    let mut task = engine.run(to("greedy", "ask 9")).await;
    for _ in 0..9 {
        if task.state.is_terminal() {
            break;
        }
        let told = engine.say(&task, said("y")).await.unwrap();
        task = engine.settled(&told).await;
    }
    assert_eq!(task.state, State::Failed);
    assert!(last_words(&task).starts_with("limits.events-per-task: "), "{task:?}");

    let task = engine.send(to("greedy", "wait 1")).await;
    until("it is at work", async || (engine.row(task.origin.id).await.seq == 2).then_some(())).await;
    for _ in 0..6 {
        engine.say(&task, said("more")).await.unwrap();
    }
    let error = engine.say(&task, said("more")).await.unwrap_err();
    assert!(matches!(&error, Error::Limit(why) if why.starts_with("limits.events-per-task: ")), "{error}");
    let task = engine.cancel(&me(), &task.origin.id.to_string()).await.unwrap();
    assert!(task.state.is_terminal(), "the end always finds room");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_per_task() {
    let engine = greedy().options(|options| options.limits.bytes_per_task = 10_000).start().await;
    allowed(&engine, "chunk 9").await;
    refused(&engine, "chunk 10", "limits.bytes-per-task").await;
    allowed(&engine, "result 9").await;
    refused(&engine, "result 10", "limits.bytes-per-task").await;

    let task = engine.send(to("greedy", "wait 1")).await;
    for _ in 0..9 {
        engine.say(&task, said("x".repeat(1_000))).await.unwrap();
    }
    for much in ["x".repeat(1_000), "x".repeat(10_001)] {
        let error = engine.say(&task, said(much)).await.unwrap_err();
        assert!(matches!(&error, Error::Limit(why) if why.starts_with("limits.bytes-per-task: ")), "{error}");
    }
    let letters = |count: usize| format!("log {}0", "0".repeat(count - 5));
    engine.send(to("greedy", &letters(10_000))).await;
    let error = engine.submit(&me(), to("greedy", &letters(10_001))).await.unwrap_err();
    assert!(matches!(&error, Error::Limit(why) if why.starts_with("limits.bytes-per-task: ")), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_per_task() {
    let engine = greedy().options(|options| options.limits.messages_per_task = 3).start().await;
    let task = engine.send(to("greedy", "wait 1")).await;
    engine.say(&task, said("two")).await.unwrap();
    engine.say(&task, said("three")).await.unwrap();
    let before = engine.row(task.origin.id).await;
    let error = engine.say(&task, said("four")).await.unwrap_err();
    assert!(matches!(&error, Error::Limit(why) if why.starts_with("limits.messages-per-task: ")), "{error}");
    assert_eq!(engine.row(task.origin.id).await, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parts_per_message() {
    let engine = greedy().options(|options| options.limits.parts_per_message = 3).start().await;
    let of = |parts: usize| {
        let mut all = vec![Part::text("wait 1")];
        all.resize(parts, Part::data(json!(1)));
        Message::of("m", Role::User, all)
    };
    let task = engine.send(Submit::new("greedy", of(3))).await;
    engine.say(&task, of(3)).await.unwrap();
    let submitted = engine.submit(&me(), Submit::new("greedy", of(4))).await.unwrap_err();
    let replied = engine.say(&task, of(4)).await.unwrap_err();
    for error in [submitted, replied] {
        assert!(
            matches!(&error, Error::Limit(why) if why.starts_with("limits.parts-per-message: ")),
            "{error}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metadata_bytes() {
    let engine = greedy().options(|options| options.limits.metadata_bytes = 100).start().await;
    // `{"k":"…"}` with so many bytes in all. A control character is six of them.
    let metadata = |bytes: usize| {
        let text = format!("\u{1}{}", "x".repeat(bytes - 8 - 6));
        json!({ "k": text }).as_object().cloned()
    };
    let message = |of_message: usize, of_part: usize| {
        let mut message = Message::of("m", Role::User, vec![Part::text("wait 1")]);
        message.metadata = metadata(of_message);
        message.parts[0].metadata = metadata(of_part);
        message
    };
    let request = |bytes: usize| {
        let mut submit = to("greedy", "wait 1");
        submit.metadata = metadata(bytes);
        submit
    };
    engine.send(request(100)).await;
    let task = engine.send(Submit::new("greedy", message(70, 30))).await;
    engine.say(&task, message(30, 70)).await.unwrap();
    let before = engine.row(task.origin.id).await;
    for (whose, refused) in [
        ("a request", engine.submit(&me(), request(101)).await.unwrap_err()),
        ("a message", engine.submit(&me(), Submit::new("greedy", message(70, 31))).await.unwrap_err()),
        ("a message", engine.say(&task, message(31, 70)).await.unwrap_err()),
    ] {
        let expected = format!("limits.metadata-bytes: the metadata of {whose}");
        let named = matches!(&refused, Error::Limit(why) if why.starts_with(&expected));
        assert!(named && refused.to_string().ends_with("at most 100 bytes, this has 101"), "{refused}");
    }
    assert_eq!(engine.row(task.origin.id).await, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn id_bytes() {
    let engine = greedy().options(|options| options.limits.id_bytes = 10).start().await;
    let (fits, long) = ("x".repeat(10), "x".repeat(11));
    let with = |set: &dyn Fn(&mut Submit, String), id: &str| {
        let mut submit = Submit::new("greedy", Message::text("m", Role::User, "log 1"));
        set(&mut submit, id.to_owned());
        submit
    };
    let hook = |id: String| WebhookConfig {
        id,
        url: "https://a.example".into(),
        token: None,
        authentication: None,
        dialect: "engine".into(),
    };
    type Place<'a> = (&'a str, &'a dyn Fn(&mut Submit, String));
    let places: [Place<'_>; 5] = [
        ("messageId", &|submit, id| submit.message.id = id),
        ("contextId", &|submit, id| submit.context = Some(id)),
        ("task id", &|submit, id| submit.client_id = Some(id)),
        ("idempotency key", &|submit, id| submit.idempotency_key = Some(id)),
        ("push notification config id", &|submit, id| submit.webhooks = vec![hook(id)]),
    ];
    for (what, set) in places {
        engine.submit(&me(), with(set, &fits)).await.unwrap();
        for bad in [long.as_str(), "a\nb", "a\0b"] {
            let error = engine.submit(&me(), with(set, bad)).await.unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("{what}: ")) && error.contains("limits.id-bytes"),
                "{what} {bad:?}: {error}"
            );
        }
    }
    let task = engine.send(Submit::new("greedy", Message::text("m", Role::User, "wait 1"))).await;
    let reply = |id: &str| reply_to(&task, Message::text(id, Role::User, "hi"));
    engine.reply(&me(), reply(&fits)).await.unwrap();
    assert!(engine.reply(&me(), reply(&long)).await.unwrap_err().to_string().contains("limits.id-bytes"));
    let name = task.origin.id.to_string();
    engine.put_webhook(&me(), &name, hook(fits)).await.unwrap();
    assert!(
        engine
            .put_webhook(&me(), &name, hook(long))
            .await
            .unwrap_err()
            .to_string()
            .contains("limits.id-bytes")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn webhooks_per_task() {
    let engine = greedy().options(|options| options.limits.webhooks_per_task = 2).start().await;
    let hook = |id: &str| WebhookConfig {
        id: id.into(),
        url: "https://a.example".into(),
        token: None,
        authentication: None,
        dialect: "engine".into(),
    };
    let of = |ids: &[&str]| {
        let mut submit = to("greedy", "wait 1");
        submit.webhooks = ids.iter().map(|id| hook(id)).collect();
        submit
    };
    let is_refused = |error: Error| {
        assert!(
            matches!(&error, Error::Limit(why) if why.starts_with("limits.webhooks-per-task: ")),
            "{error}"
        );
    };
    is_refused(engine.submit(&me(), of(&["a", "b", "c"])).await.unwrap_err());
    let task = engine.send(of(&["a", "b"])).await;
    let name = task.origin.id.to_string();
    is_refused(engine.put_webhook(&me(), &name, hook("c")).await.unwrap_err());
    let mut reply = reply_to(&task, said("hi"));
    reply.webhooks = vec![hook("c")];
    let before = engine.row(task.origin.id).await;
    is_refused(engine.reply(&me(), reply).await.unwrap_err());
    assert_eq!(engine.row(task.origin.id).await, before, "and the message is not taken either");
    // One that is there may be replaced, and one that is removed makes room.
    engine.put_webhook(&me(), &name, hook("b")).await.unwrap();
    engine.delete_webhook(&me(), &name, "a").await.unwrap();
    engine.put_webhook(&me(), &name, hook("c")).await.unwrap();
    let ids: Vec<String> =
        engine.webhooks(&me(), &name).await.unwrap().into_iter().map(|hook| hook.id).collect();
    assert_eq!(ids, ["b", "c"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_depth() {
    let world = World::new().options(|options| options.calls.call_depth = 3).agent(
        "nest",
        async |cx: TaskContext| match cx.text().split_once(' ') {
            Some((_, deeper)) => {
                let inner = cx.call("nest", said(deeper)).await?;
                match inner.state {
                    State::Completed => Ok(Outcome::done()),
                    _ => Err(AgentError::failed(last_words(&inner))),
                }
            }
            None => Ok(Outcome::done()),
        },
    );
    let engine = world.start().await;
    assert_eq!(engine.run(to("nest", "x x x end")).await.state, State::Completed);
    let task = engine.run(to("nest", "x x x x end")).await;
    assert_eq!(task.state, State::Failed);
    assert!(last_words(&task).starts_with("limits.call-depth: "), "{task:?}");
}
