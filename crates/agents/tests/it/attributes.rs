//! What a caller says beside its text: ids, metadata, extensions, references and accepted media types reach
//! every kind of agent.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use axum::{Router, body::Bytes, extract::State as Shared, routing::post};
use nuncio_engine::{
    Agent, AgentError, Message, Outcome, Part, Profile, Role, Submit, TaskContext, content::Metadata,
};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::{
    program::{Program, agent},
    server::{Server, result_data, until},
};

fn object(value: Value) -> Metadata {
    let Value::Object(object) = value else { panic!("an object") };
    object
}

/// A message with everything that a message of A2A 1.0 can have, and the request around it.
fn whole_request(agent: &str) -> Submit {
    let part = Part { metadata: Some(object(json!({ "part": 1 }))), ..Part::text("hello") };
    let mut message = Message::of("message-7", Role::User, vec![part]);
    message.metadata = Some(object(json!({ "of": "the message" })));
    message.extensions = vec!["urn:ext:a".into()];
    message.reference_task_ids = vec!["task-1".into(), "task-2".into()];
    let mut submit = Submit::new(agent, message);
    submit.metadata = Some(object(json!({ "of": "the request" })));
    submit.accepted_output_modes = vec!["text/plain".into(), "image/*".into()];
    submit.extensions = vec!["urn:ext:a".into()];
    submit
}

/// Checks the first message of the line protocol against [`whole_request`].
fn check_input(given: &Value) {
    let attributes = [
        ("messageId", json!("message-7")),
        ("metadata", json!({ "of": "the message" })),
        ("extensions", json!(["urn:ext:a"])),
        ("referenceTaskIds", json!(["task-1", "task-2"])),
    ];
    for (name, value) in &attributes {
        assert_eq!(given[*name], *value, "{name} of the input: {given}");
        assert_eq!(given["messages"][0][*name], *value, "{name} of the first message: {given}");
    }
    assert_eq!(given["messages"][0]["parts"], json!([{ "text": "hello", "metadata": { "part": 1 } }]));
    assert_eq!(given["requestMetadata"], json!({ "of": "the request" }));
    assert_eq!(given["acceptedOutputModes"], json!(["text/plain", "image/*"]));
    assert_eq!(given["activeExtensions"], json!(["urn:ext:a"]));
}

#[tokio::test]
async fn a_program_is_told_what_the_caller_said_beside_its_text() {
    let program = Program::python("say(type=\"done\", data=given)");
    let server = Server::with(vec![program.agent(json!({}))]).await;
    let task = server.submit(whole_request("program")).await;
    let task = server.settle(task).await;
    check_input(&result_data(&task));
}

#[tokio::test]
async fn a_program_is_told_no_attribute_that_the_caller_did_not_name() {
    let program = Program::python("say(type=\"done\", data=given)");
    let server = Server::with(vec![program.agent(json!({}))]).await;
    let given = result_data(&server.send("program", Part::text("hello")).await);
    assert_eq!(given["messageId"], "request");
    for name in [
        "metadata",
        "extensions",
        "referenceTaskIds",
        "requestMetadata",
        "acceptedOutputModes",
        "activeExtensions",
    ] {
        assert!(given.get(name).is_none(), "{name}: {given}");
    }
}

#[tokio::test]
async fn a_message_to_a_working_program_comes_with_its_attributes() {
    let program = Program::python(
        "say(type=\"listen\")\nsay(type=\"progress\", done=1)\nsay(type=\"done\", data=hear())",
    );
    let server = Server::with(vec![program.agent(json!({}))]).await;
    let task = server.submit(whole_request("program")).await;
    server.tell(&task, "message-8", "and more").await;
    let heard = result_data(&server.settle(task).await);
    assert_eq!((&heard["type"], &heard["messageId"]), (&json!("message"), &json!("message-8")), "{heard}");
}

#[tokio::test]
async fn an_endpoint_is_told_what_the_caller_said_beside_its_text() {
    let got: Arc<Mutex<Vec<Value>>> = Arc::default();
    let take = async |Shared(got): Shared<Arc<Mutex<Vec<Value>>>>, body: Bytes| {
        got.lock().unwrap().push(serde_json::from_slice(&body).unwrap());
        "thanks"
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let router = Router::new().route("/", post(take)).with_state(Arc::clone(&got));
    tokio::spawn(async move { axum::serve(listener, router).await });
    let server = Server::with(vec![agent(json!({ "name": "endpoint", "kind": "http", "url": url }))]).await;
    let task = server.submit(whole_request("endpoint")).await;
    server.settle(task).await;
    until("the endpoint was asked", || !got.lock().unwrap().is_empty()).await;
    check_input(&got.lock().unwrap()[0]);
}

/// Reports what its context says of the request, after a question: so from a run that the store restored.
struct Reporter;

#[async_trait]
impl Agent for Reporter {
    fn profile(&self) -> Profile {
        Profile::new("reporter", "reports what it is told")
    }

    async fn run(&self, cx: TaskContext) -> Result<Outcome, AgentError> {
        cx.ask_text("Go on?").await?;
        let report = json!({
            "messageId": cx.input().id,
            "metadata": cx.metadata(),
            "acceptedOutputModes": cx.accepted_output_modes(),
            "extensions": cx.extensions(),
        });
        cx.artifact(nuncio_engine::Chunk::data("report", report).complete()).await?;
        Ok(Outcome::done())
    }
}

#[tokio::test]
async fn an_agent_in_rust_reads_the_attributes_also_after_a_restart() {
    let server = Server::with(vec![Arc::new(Reporter)]).await;
    let task = server.submit(whole_request("reporter")).await;
    let task = server.settle(task).await;
    let server = server.restart().await;
    let task = server.answer(&task, Part::text("yes")).await;
    assert_eq!(
        result_data(&task),
        json!({
            "messageId": "message-7",
            "metadata": { "of": "the request" },
            "acceptedOutputModes": ["text/plain", "image/*"],
            "extensions": ["urn:ext:a"],
        })
    );
}
