//! The bare SSE loop: the bench agent's stream with nothing behind it.

use std::{convert::Infallible, time::Duration};

use axum::response::{
    IntoResponse, Response,
    sse::{Event, Sse},
};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::task_json;

const CHUNKS: u32 = 100;
const CHUNK_BYTES: usize = 200;
const WAIT: Duration = Duration::from_secs(600);

/// Working, a hundred chunks, completed; with `wait`, working and then nothing for ten minutes.
pub(crate) fn events(request: &Value, wait: bool) -> Response {
    let stream = Stream {
        request: request.clone(),
        task: Uuid::new_v4().to_string(),
        context: Uuid::new_v4().to_string(),
        text: "x".repeat(CHUNK_BYTES),
        sent: 0,
    };
    let events = futures_util::stream::unfold(stream, move |mut stream| async move {
        if wait && stream.sent == 1 {
            tokio::time::sleep(WAIT).await;
        }
        let event = stream.next()?;
        Some((Ok::<_, Infallible>(event), stream))
    });
    Sse::new(events).into_response()
}

struct Stream {
    request: Value,
    task: String,
    context: String,
    text: String,
    sent: u32,
}

impl Stream {
    fn next(&mut self) -> Option<Event> {
        let n = self.sent;
        self.sent += 1;
        let result = match n {
            0 => task_json::status(&self.task, &self.context, "TASK_STATE_WORKING"),
            1..=CHUNKS => task_json::chunk(&self.task, &self.context, &self.text, n > 1, n == CHUNKS),
            _ if n == CHUNKS + 1 => task_json::status(&self.task, &self.context, "TASK_STATE_COMPLETED"),
            _ => return None,
        };
        let answer = json!({ "jsonrpc": "2.0", "id": self.request, "result": result });
        Some(Event::default().data(answer.to_string()))
    }
}
