//! What programs and endpoints can answer with: artifacts of every form, and a message instead of a task.

use axum::{Router, http::header, routing::post};
use nuncio_engine::{Artifact, Content, Message, Part, State, Task};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::{
    program::{Program, agent, extend},
    server::{Server, ending, submit},
};

/// An endpoint that always answers with this JSON.
async fn endpoint(answer: Value, keys: Value) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let take = async move || ([(header::CONTENT_TYPE, "application/json")], answer.to_string());
    let router = Router::new().route("/", post(take));
    tokio::spawn(async move { axum::serve(listener, router).await });
    let mut table = json!({ "name": "endpoint", "kind": "http", "url": url });
    extend(&mut table, keys);
    Server::with(vec![agent(table)]).await
}

/// A program that sends one message of the protocol, and is done.
fn sending(message: &Value) -> Program {
    let text = format!("print({:?}, flush=True)\nsay(type=\"done\")", message.to_string());
    Program::python(&text)
}

async fn artifacts_of(message: Value) -> Vec<Artifact> {
    let program = sending(&message);
    let server = Server::with(vec![program.agent(json!({}))]).await;
    let task = server.send("program", Part::text("go")).await;
    assert_eq!(task.state, State::Completed, "{:?}", ending(&task));
    task.artifacts
}

/// An artifact with everything that one can have.
fn whole_artifact() -> Value {
    json!({
        "id": "report", "name": "A report", "description": "of everything",
        "parts": [
            { "text": "see", "metadata": { "language": "en" } },
            { "url": "https://example.org/a.png", "filename": "a.png", "mediaType": "image/png" },
            { "file": "AAE=", "filename": "dot.bin", "mediaType": "application/x-dot" },
            { "data": { "n": 1 } },
        ],
        "metadata": { "pages": 3 }, "extensions": ["urn:ext:a"],
    })
}

fn check_whole(artifact: &Artifact) {
    let [text, url, file, data] = &artifact.parts[..] else { panic!("four parts: {artifact:?}") };
    assert_eq!(text.as_text(), Some("see"));
    assert_eq!(text.metadata.as_ref().unwrap()["language"], "en");
    assert_eq!(url.content, Content::Url("https://example.org/a.png".into()));
    assert_eq!((url.filename.as_deref(), url.media_type.as_deref()), (Some("a.png"), Some("image/png")));
    assert_eq!(file.content, Content::Bytes(vec![0, 1]));
    assert_eq!(data.content, Content::Data(json!({ "n": 1 })));
    assert_eq!(artifact.metadata.as_ref().unwrap()["pages"], 3);
    assert_eq!(artifact.extensions, ["urn:ext:a"]);
    assert_eq!(artifact.name.as_deref(), Some("A report"));
}

#[tokio::test]
async fn a_program_makes_artifacts_with_several_parts_urls_and_attributes() {
    let mut message = whole_artifact();
    message["type"] = "artifact".into();
    check_whole(&artifacts_of(message).await[0]);
    let link = json!({ "type": "artifact", "url": "https://example.org/b", "mediaType": "text/html" });
    let made = artifacts_of(link).await;
    assert_eq!(made[0].parts[0].content, Content::Url("https://example.org/b".into()));
    assert_eq!(made[0].parts[0].media_type.as_deref(), Some("text/html"));
}

#[tokio::test]
async fn an_endpoint_makes_such_artifacts_too() {
    let server = endpoint(json!({ "text": "made", "artifacts": [whole_artifact()] }), json!({})).await;
    let task = server.send("endpoint", Part::text("go")).await;
    assert_eq!(task.state, State::Completed, "{:?}", ending(&task));
    check_whole(&task.artifacts[0]);
}

#[tokio::test]
async fn an_artifact_that_means_two_things_is_refused_by_name() {
    for (message, why) in [
        (json!({ "text": "a", "url": "b" }), "one of text, data, file and url"),
        (json!({ "text": "a", "parts": [{ "text": "b" }] }), "not both"),
        (json!({ "mediaType": "text/html", "parts": [{ "text": "b" }] }), "not both"),
        (json!({ "parts": [] }), "no parts"),
        (json!({ "parts": [{ "text": "b", "file": "AAE=" }] }), "one of text, data, file and url"),
        (json!({ "parts": [{ "file": "%" }] }), "not base64"),
        (json!({ "parts": [{ "text": "b", "name": "c" }] }), "unknown field"),
    ] {
        let mut message = message;
        message["type"] = "artifact".into();
        let program = sending(&message);
        let server = Server::with(vec![program.agent(json!({}))]).await;
        let task = server.send("program", Part::text("go")).await;
        let (state, words, _) = ending(&task);
        assert_eq!(state, State::Failed, "{message}");
        assert!(words.contains(why), "{message}: {words}");
    }
}

/// Sends a message as a caller that waits, and takes a message for an answer.
async fn ask(server: &Server, agent: &str) -> Task {
    let mut submit = submit(agent, Part::text("go"));
    submit.accepts_reply = true;
    let task = server.submit(submit).await;
    server.settle(task).await
}

fn reply() -> Value {
    json!({
        "type": "reply", "text": "hello", "data": { "n": 1 },
        "parts": [{ "url": "https://example.org/c", "metadata": { "k": 1 } }],
        "metadata": { "mood": "good" }, "extensions": ["urn:ext:a"], "referenceTaskIds": ["task-1"],
    })
}

fn check_reply(message: &Message) {
    assert_eq!((message.joined_text(), message.data()), ("hello".into(), Some(&json!({ "n": 1 }))));
    assert_eq!(message.parts[2].content, Content::Url("https://example.org/c".into()));
    assert_eq!(message.parts[2].metadata.as_ref().unwrap()["k"], 1);
    assert_eq!(message.metadata.as_ref().unwrap()["mood"], "good");
    assert_eq!(message.extensions, ["urn:ext:a"]);
    assert_eq!(message.reference_task_ids, ["task-1"]);
}

#[tokio::test]
async fn a_program_answers_with_a_message_instead_of_a_task() {
    let text = format!(
        "print('note for the log', file=sys.stderr, flush=True)\nprint({:?}, flush=True)",
        reply().to_string()
    );
    let program = Program::python(&text);
    let server = Server::with(vec![program.agent(json!({ "replies": true }))]).await;
    let task = ask(&server, "program").await;
    assert_eq!(task.state, State::Replied, "{:?}", ending(&task));
    check_reply(task.reply().unwrap());
    // Without the key callers were not told to wait for it, so it is the end of a task.
    let server = Server::with(vec![program.agent(json!({}))]).await;
    let task = ask(&server, "program").await;
    assert_eq!(task.state, State::Completed, "{:?}", ending(&task));
    check_reply(task.status_message.as_ref().unwrap());
}

#[tokio::test]
async fn an_endpoint_answers_with_a_message_instead_of_a_task() {
    let server = endpoint(reply(), json!({ "replies": true })).await;
    let task = ask(&server, "endpoint").await;
    assert_eq!(task.state, State::Replied, "{:?}", ending(&task));
    check_reply(task.reply().unwrap());
}

#[tokio::test]
async fn a_reply_without_content_fails_and_names_what_it_needs() {
    let program = Program::python("say(type=\"reply\")");
    let server = Server::with(vec![program.agent(json!({ "replies": true }))]).await;
    let task = ask(&server, "program").await;
    let (state, words, _) = ending(&task);
    assert_eq!(state, State::Failed, "{words}");
    assert!(words.contains("text, data or parts"), "{words}");
}
