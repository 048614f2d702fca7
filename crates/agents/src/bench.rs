//! An agent for benchmarks: it does as little work as possible, so that the server is measured.

use std::time::Duration;

use async_trait::async_trait;
use nuncio_engine::{Agent, AgentError, Chunk, Outcome, Part, Profile, TaskContext};
use serde_json::{Value, json};

/// Chunks of a streamed artifact, and the content of each.
const CHUNKS: usize = 100;
const CHUNK: &str = match std::str::from_utf8(&[b'x'; 200]) {
    Ok(text) => text,
    Err(_) => unreachable!(),
};
/// How long a waiting task works.
const WAIT: Duration = Duration::from_secs(600);

/// The agent of the benchmarks. The first word of the text decides: `stream…` makes one artifact of a
/// hundred chunks, `wait…` works for ten minutes, anything else is echoed.
#[derive(Debug, Clone, Copy, Default)]
pub struct BenchAgent;

#[async_trait]
impl Agent for BenchAgent {
    fn profile(&self) -> Profile {
        let mut profile = Profile::new(
            "bench",
            "For measurements. A text that begins with \"stream\" gives one artifact in 100 chunks of 200 \
             bytes, \"wait\" works for 600 s or until it is canceled, anything else is echoed.",
        )
        .demo();
        profile.input_schema = Some(json!({
            "type": "object",
            "properties": {
                "text": { "type": "string", "description": "stream, wait, or anything to be echoed." }
            },
            "required": ["text"],
        }));
        let skill = &mut profile.skills[0];
        skill.name = "Benchmark load".into();
        skill.tags = vec!["benchmark".into(), "test".into()];
        skill.examples = vec!["stream".into(), "wait".into(), "hello".into()];
        profile
    }

    async fn run(&self, cx: TaskContext) -> Result<Outcome, AgentError> {
        let text = cx.input().parts.iter().find_map(Part::as_text);
        let text = text.or_else(|| cx.argument("text").and_then(Value::as_str)).unwrap_or_default();
        if text.starts_with("stream") {
            for _ in 1..CHUNKS {
                cx.artifact(Chunk::text("stream", CHUNK)).await?;
            }
            cx.artifact(Chunk::text("stream", CHUNK).complete()).await?;
        } else if text.starts_with("wait") {
            // Not `cx.sleep`: a sleep of this length would suspend the task, and this one has to keep
            // running.
            tokio::select! {
                () = cx.canceled() => return Err(AgentError::Canceled),
                () = tokio::time::sleep(WAIT) => {}
            }
        } else {
            cx.artifact(Chunk::parts("echo", cx.input().parts.clone()).complete()).await?;
        }
        Ok(Outcome::done())
    }
}
