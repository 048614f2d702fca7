//! The server of `bench/mcp`: a plain tool, a resource, the built-in echo agent (the same as a durable tool),
//! and an agent that reports progress at once and ends a little later.

use std::{error::Error, io::Write as _, path::PathBuf, sync::Arc, time::Duration};

use clap::Parser;
use nuncio::{
    Nuncio, ShutdownSignals,
    engine::surface::{
        HandlerError, HandlerReply, HandlerRequest, Resource, ResourceContent, ResourceProfile, ToolOutput,
        ToolProfile, tool,
    },
    prelude::*,
};
use nuncio_agents::EchoAgent;

// The same allocator as the server.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const TEXT: &str = "bench://text";
const TEXT_BYTES: usize = 1024;
/// How long the `Talker` agent works after its first report.
const WORK: Duration = Duration::from_millis(5);

/// Serves what bench/mcp measures.
#[derive(Parser)]
struct Options {
    /// The address to listen on; port 0 picks a free port.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    listen: String,
    /// The data folder.
    #[arg(long, value_name = "DIR", default_value = "target/mcp-bench-data")]
    data: PathBuf,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse();
    let surface = Arc::new(Surface::default());
    let echo = ToolProfile::new("echo_tool", "Returns the text.").input(json!({
        "type": "object",
        "properties": { "text": { "type": "string" } },
        "required": ["text"],
    }));
    surface.add_tool(tool(echo, |request: HandlerRequest| async move {
        Ok(HandlerReply::Done(ToolOutput::text(request.text("text").unwrap_or_default())))
    }))?;
    surface.add_resource(Text("x".repeat(TEXT_BYTES)));

    let signals = ShutdownSignals::new()?;
    let server = Nuncio::new().agent(EchoAgent).agent(Talker).surface(surface);
    let running = server.listen(options.listen).data(options.data).start().await?;
    writeln!(std::io::stdout(), "{}/mcp", running.url())?;
    running.until(signals).await;
    Ok(())
}

/// Always the same text.
struct Text(String);

#[async_trait]
impl Resource for Text {
    fn profile(&self) -> ResourceProfile {
        ResourceProfile::new(TEXT, "text").media_type("text/plain")
    }

    async fn read(&self, _: HandlerRequest) -> Result<HandlerReply<Vec<ResourceContent>>, HandlerError> {
        Ok(HandlerReply::Done(vec![ResourceContent::text(TEXT, "text/plain", &*self.0)]))
    }
}

/// Reports progress at once, works, reports again and ends.
struct Talker;

#[async_trait]
impl Agent for Talker {
    fn profile(&self) -> Profile {
        Profile::new("talker", "Reports progress at once, and ends soon.")
    }

    async fn run(&self, cx: TaskContext) -> Result<Outcome, AgentError> {
        cx.progress(1.0, Some(2.0), "Begun").await?;
        tokio::time::sleep(WORK).await;
        cx.progress(2.0, Some(2.0), "Done").await?;
        Ok(Outcome::said("That was all."))
    }
}
