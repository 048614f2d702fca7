use std::time::Duration;

use nuncio_engine::{Message, Part, Role, State, Submit};
use serde_json::json;

use crate::server::{Server, ending};

#[tokio::test]
async fn an_echo_is_one_commit_and_has_ended_when_the_call_returns() {
    let server = Server::start(Duration::ZERO).await;
    let parts = vec![Part::text("hello"), Part::data(json!({ "n": 1 })), Part::text("again")];
    let message = Message::of("m", Role::User, parts.clone());
    let task = server.submit(Submit::new("echo", message)).await;
    assert_eq!(ending(&task), (State::Completed, String::new(), vec!["echo"]));
    assert_eq!(task.artifacts[0].parts, parts);
    assert!(task.artifacts[0].complete);
    assert_eq!(server.commits(&task).await, 1);
    assert_eq!(server.log(&task).await.len(), 4, "message, working, artifact, completed");
}
