//! An agent that is strict about its input gets nothing else, whichever way a task begins.

use std::sync::{Arc, Mutex};

use nuncio_engine::{Content, Error, Message, Outcome, Part, Role, Submit, TaskContext};
use serde_json::{Value, json};

use crate::world::{EngineExt, Scripted, World, me, said, to};

fn adds() -> Value {
    json!({
        "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"],
        "additionalProperties": false,
    })
}

fn message(parts: Vec<Part>) -> Message {
    Message::of("", Role::User, parts)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_does_not_fit_begins_no_task() {
    let heard = Arc::new(Mutex::new(vec![]));
    let hears = |heard: &Arc<Mutex<Vec<Message>>>| {
        let heard = Arc::clone(heard);
        move |cx: TaskContext| {
            heard.lock().unwrap().push(cx.input().clone());
            async { Ok(Outcome::done()) }
        }
    };
    let talks = json!({
        "type": "object", "properties": { "text": { "type": "string", "maxLength": 9 } }, "required": ["text"],
    });
    let world = World::new()
        .scripted(Scripted::new("adds", hears(&heard)).strict(adds()))
        .scripted(Scripted::new("talks", hears(&heard)).strict(talks))
        .agent("free", hears(&heard));
    let engine = world.start().await;
    let send = async |agent: &str, parts: Vec<Part>| match engine
        .submit(&me(), Submit::new(agent, message(parts)))
        .await
    {
        Ok(_) => Ok(heard.lock().unwrap().pop().expect("it ran").parts),
        Err(Error::Invalid(why)) => Err(why),
        Err(error) => panic!("{error}"),
    };
    let (seven, file) = (json!({ "n": 7 }), Part::from(Content::Url("https://example.org/a".into())));
    let data = |value: &Value| Part::data(value.clone());

    // One data part, with whatever goes along.
    assert_eq!(send("adds", vec![data(&seven)]).await, Ok(vec![data(&seven)]));
    let along = vec![Part::text("please"), data(&seven), file.clone()];
    assert_eq!(send("adds", along.clone()).await, Ok(along));
    let why = send("adds", vec![data(&json!({ "n": "x" }))]).await.unwrap_err();
    let expected = "the data part does not fit the input schema of the agent \"adds\": /n: \"x\" is not of type \"integer\"";
    assert_eq!(why, expected);
    let why = send("adds", vec![data(&seven), data(&seven)]).await.unwrap_err();
    assert!(why.contains("several data parts"), "{why}");

    // A text that is the object, and one that is none.
    let text = vec![Part::text("{\"n\":"), Part::text("7}"), file.clone()];
    assert_eq!(send("adds", text).await, Ok(vec![data(&seven), file.clone()]));
    let why = send("adds", vec![Part::text("{\"n\": 7.5}")]).await.unwrap_err();
    assert!(why.starts_with("the object in the text") && why.contains("/n: 7.5"), "{why}");
    for text in ["add seven", "7", "[7]", "{\"n\": 7"] {
        let why = send("adds", vec![Part::text(text)]).await.unwrap_err();
        assert!(why.starts_with("the text does not fit") && why.contains("send a data part"), "{why}");
    }
    let why = send("adds", vec![file]).await.unwrap_err();
    assert!(why.contains("no data part") && why.contains("\"n\" is a required property"), "{why}");

    // A schema that takes text takes it as a tool call with nothing but a text does.
    for text in ["hello", "{\"a\":1}"] {
        assert_eq!(send("talks", vec![Part::text(text)]).await, Ok(vec![Part::text(text)]));
    }
    let why = send("talks", vec![Part::text("far too long")]).await.unwrap_err();
    assert!(why.contains("/text: "), "{why}");
    // Who has no schema takes what it took.
    assert!(send("free", vec![Part::text("anything")]).await.is_ok());
    assert!(send("free", vec![data(&seven), data(&seven)]).await.is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_is_held_against_its_question_and_a_call_against_the_schema() {
    let world = World::new()
        .agent("calls", |cx: TaskContext| async move {
            let called = cx.call_until("adds", said("seven"), None).await?;
            Ok(Outcome::said(format!("{:?}", called.end)))
        })
        .scripted(
            Scripted::new("adds", |cx: TaskContext| async move {
                let form = json!({ "type": "object", "properties": { "sure": { "type": "boolean" } } });
                cx.ask("Sure?", form).await?;
                Ok(Outcome::done())
            })
            .strict(adds()),
        );
    let engine = world.start().await;
    let refused = engine.run(to("calls", "go")).await;
    let words = crate::world::last_words(&refused);
    assert!(words.starts_with("Refused(") && words.contains("send a data part"), "{words}");
    let submit = Submit::new("adds", message(vec![Part::data(json!({ "n": 1 }))]));
    let asking = engine.run(submit).await;
    let answered = message(vec![Part::data(json!({ "sure": true }))]);
    engine.say(&asking, answered).await.unwrap();
    engine.ended(&asking).await;
}
