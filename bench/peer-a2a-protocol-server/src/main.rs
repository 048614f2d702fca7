//! The bench agent on a2a-protocol-server 0.15.0, the fastest of the in-memory SDKs at streaming.
//!
//! Its store keeps the newest 10,000 tasks, and it serves 1,024 streams at once: the `idle` workload
//! counts those.

use std::{sync::Arc, time::Duration};

use a2a_protocol_server::{EventEmitter, JsonRpcDispatcher, RequestHandlerBuilder, agent_executor, serve};
use a2a_protocol_types::{AgentCard, AgentInterface, AgentSkill, Part, TaskState};
use anyhow::Context;

const CHUNKS: usize = 100;
const CHUNK_BYTES: usize = 200;
const WAIT: Duration = Duration::from_secs(600);

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let port: u16 = std::env::args().nth(1).context("usage: peer-a2a-protocol-server PORT")?.parse()?;
    let interface = AgentInterface::jsonrpc(format!("http://127.0.0.1:{port}"));
    let card = AgentCard::new("bench", "1.0.0", interface)
        .with_description("For measurements.")
        .with_streaming(true)
        .with_skill(AgentSkill::new("bench", "Bench", "Echoes text").with_tags(["benchmark"]));
    let handler = RequestHandlerBuilder::new(Bench).with_agent_card(card).build()?;
    serve(format!("127.0.0.1:{port}"), JsonRpcDispatcher::new(Arc::new(handler))).await?;
    Ok(())
}

struct Bench;

agent_executor!(Bench, |cx, queue| async {
    let text = cx.message.parts.first().and_then(|part| part.text_content()).unwrap_or_default().to_owned();
    let emit = EventEmitter::new(cx, queue);
    emit.status(TaskState::Working).await?;
    if text.starts_with("stream") {
        let content = "x".repeat(CHUNK_BYTES);
        for n in 1..=CHUNKS {
            let parts = vec![Part::text(content.clone())];
            emit.artifact("out", parts, Some(n > 1), Some(n == CHUNKS)).await?;
        }
    } else if text.starts_with("wait") {
        tokio::time::sleep(WAIT).await;
    } else {
        emit.artifact("out", vec![Part::text(text)], None, Some(true)).await?;
    }
    emit.status(TaskState::Completed).await?;
    Ok(())
});
