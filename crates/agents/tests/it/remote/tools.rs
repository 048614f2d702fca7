//! An MCP server as one agent with many skills: which tool a message means.

use std::sync::Arc;

use nuncio_client::peer::PeerProtocol;
use nuncio_engine::{Message, Part, Role, State, Submit, Task};
use serde_json::{Value, json};

use super::{
    far::{Far, ended, offer},
    server,
};
use crate::server::{Server, ending};

fn adds() -> Value {
    json!({
        "type": "object",
        "properties": { "a": { "type": "integer" }, "b": { "type": "integer" } },
        "required": ["a", "b"],
    })
}

fn echoes() -> Value {
    json!({ "type": "object", "properties": { "message": { "type": "string" } }, "required": ["message"] })
}

fn tags() -> Value {
    json!({
        "type": "object",
        "properties": { "tags": { "type": "array", "items": { "type": "string" } } },
        "required": ["tags"],
    })
}

/// A server with these tools that is called once.
async fn with_tools(tools: &[(&str, Value)]) -> (Arc<Far>, Server) {
    let far = Far::new(PeerProtocol::Mcp, false, vec![vec![ended(State::Completed, "")]]);
    *far.offers.lock().unwrap() =
        tools.iter().map(|(name, schema)| offer(name, Some(schema.clone()))).collect();
    let server = server(&far).await;
    (far, server)
}

fn all() -> Vec<(&'static str, Value)> {
    vec![("add", adds()), ("echo", echoes()), ("tag", tags())]
}

/// What was called, with what.
fn called(far: &Far) -> (String, Value) {
    let asked = far.asked();
    let [asked] = &asked[..] else { panic!("one call, not {}", asked.len()) };
    let begin = asked.begin.clone().unwrap();
    (begin.offer, begin.input.data().cloned().unwrap())
}

async fn check(tools: &[(&str, Value)], part: Part, tool: &str, arguments: Value) {
    let (far, server) = with_tools(tools).await;
    let task = server.send("far", part.clone()).await;
    assert_eq!(task.state, State::Completed, "{part:?}: {:?}", ending(&task));
    assert_eq!(called(&far), (tool.to_owned(), arguments), "{part:?}");
}

async fn rejected(tools: &[(&str, Value)], part: Part, words: &str) {
    let (far, server) = with_tools(tools).await;
    let task = server.send("far", part).await;
    assert_eq!(task.state, State::Rejected);
    assert!(ending(&task).1.contains(words), "{}", ending(&task).1);
    assert!(far.asked().is_empty(), "nobody was called");
}

#[tokio::test]
async fn a_message_names_its_tool_in_many_ways() {
    let sum = json!({ "a": 1, "b": 2 });
    check(&all(), Part::data(json!({ "tool": "add", "arguments": sum })), "add", sum.clone()).await;
    check(&all(), Part::data(json!({ "skill": "add", "a": 1, "b": 2 })), "add", sum.clone()).await;
    check(&all(), Part::data(json!({ "skillId": "add", "arguments": sum })), "add", sum.clone()).await;
    check(&all(), Part::text("add {\"a\": 1, \"b\": 2}"), "add", sum.clone()).await;
    check(&all(), Part::text("{\"tool\": \"add\", \"arguments\": {\"a\": 1, \"b\": 2}}"), "add", sum.clone())
        .await;
    check(&all(), Part::text("echo hello there"), "echo", json!({ "message": "hello there" })).await;
    check(&[("add", adds())], Part::data(sum.clone()), "add", sum).await;
    check(&[("echo", echoes())], Part::text("hello"), "echo", json!({ "message": "hello" })).await;
    check(&[("now", json!({ "type": "object" }))], Part::text("now"), "now", json!({})).await;
}

#[tokio::test]
async fn the_metadata_of_a_message_may_name_the_skill() {
    let (far, server) = with_tools(&all()).await;
    let mut message = Message::of("m", Role::User, vec![Part::text("hello")]);
    message.metadata = Some([("skillId".to_owned(), json!("echo"))].into_iter().collect());
    let task = server.submit(Submit::new("far", message)).await;
    assert_eq!(server.settle(task).await.state, State::Completed);
    assert_eq!(called(&far), ("echo".into(), json!({ "message": "hello" })));
}

#[tokio::test]
async fn what_cannot_be_called_is_rejected_before_anybody_is() {
    rejected(&all(), Part::data(json!({ "tool": "sub" })), "there is add, echo, tag").await;
    let wrong = json!({ "tool": "add", "arguments": { "a": "one", "b": 2 } });
    rejected(&all(), Part::data(wrong), "/a: \"one\" is not of type \"integer\"").await;
    rejected(&[], Part::text("x"), "has no tools").await;
}

fn question(task: &Task) -> (&str, &Value) {
    let [(_, question)] = &task.questions[..] else { panic!("one question, not {:?}", task.questions) };
    let nuncio_engine::question::Ask::Form { schema } = &question.ask else { panic!("a form") };
    (&question.text, schema)
}

#[tokio::test]
async fn what_a_message_leaves_open_is_asked() {
    let (far, server) = with_tools(&all()).await;
    let task = server.send("far", Part::text("please do something")).await;
    assert_eq!(question(&task).1["properties"]["tool"]["enum"], json!(["add", "echo", "tag"]));
    let task = server.answer(&task, Part::data(json!({ "tool": "add" }))).await;
    assert_eq!(question(&task).1["required"], json!(["a", "b"]));
    let task = server.answer(&task, Part::data(json!({ "a": 1, "b": 2 }))).await;
    assert_eq!(task.state, State::Completed);
    assert_eq!(called(&far), ("add".into(), json!({ "a": 1, "b": 2 })));
}

#[tokio::test]
async fn what_is_not_flat_is_asked_for_as_json() {
    let (far, server) = with_tools(&all()).await;
    let task = server.send("far", Part::text("tag")).await;
    assert_eq!(question(&task).1["properties"]["tags"]["type"], "string");
    let task = server.answer(&task, Part::data(json!({ "tags": "a, b" }))).await;
    assert!(question(&task).0.contains("tags: expected JSON"), "{}", question(&task).0);
    let task = server.answer(&task, Part::data(json!({ "tags": "[\"a\", \"b\"]" }))).await;
    assert_eq!(task.state, State::Completed);
    assert_eq!(called(&far), ("tag".into(), json!({ "tags": ["a", "b"] })));
}

#[tokio::test]
async fn nothing_is_called_without_an_answer() {
    let (far, server) = with_tools(&all()).await;
    let task = server.send("far", Part::text("hm")).await;
    let task = server.answer(&task, Part::data(json!({ "action": "decline" }))).await;
    assert_eq!(
        (task.state, ending(&task).1),
        (State::Rejected, "nothing was called: name a tool: add, echo, tag".into())
    );
    assert!(far.asked().is_empty());
}
