use std::time::Duration;

use nuncio_engine::{Event, Part, State};
use serde_json::json;

use crate::server::{Server, ending, result_text, submit};

#[tokio::test]
async fn stream_is_a_hundred_chunks_of_one_artifact() {
    let server = Server::start(Duration::ZERO).await;
    for part in [Part::text("stream please"), Part::data(json!({ "text": "stream" }))] {
        let task = server.send("bench", part).await;
        assert_eq!(ending(&task), (State::Completed, String::new(), vec!["stream"]));
        assert_eq!(result_text(&task).len(), 100 * 200);
        let log = server.log(&task).await;
        assert_eq!(log.iter().filter(|event| matches!(event, Event::Artifact(_))).count(), 100);
    }
}

#[tokio::test]
async fn wait_stays_at_work_until_it_is_canceled() {
    let server = Server::start(Duration::ZERO).await;
    let task = server.submit(submit("bench", Part::text("wait"))).await;
    assert_eq!(task.state, State::Working);
    assert_eq!(server.row(&task).await.node, Some(server.engine.node()), "it is held, not parked");
    assert_eq!(server.cancel(&task).await.state, State::Canceled);
}

#[tokio::test]
async fn anything_else_is_echoed_in_one_commit() {
    let server = Server::start(Duration::ZERO).await;
    let task = server.submit(submit("bench", Part::text("hello"))).await;
    assert_eq!(ending(&task), (State::Completed, String::new(), vec!["echo"]));
    assert_eq!(result_text(&task), "hello");
    assert_eq!(server.commits(&task).await, 1);
}
