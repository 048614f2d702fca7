//! The server for the official MCP conformance suite: the tools, resources and prompts that the suite
//! expects, with its names and texts. `cargo run -p nuncio --example mcp_conformance` prints its address;
//! pass that to `scripts/mcp-conformance`.
//!
//! Tools that answer at once are plain tools (`plain`, `asking`). Work that takes time, reports progress, or
//! must outlive its connection is an agent (`jobs`), which needs no further code for that.

mod asking;
mod jobs;
mod media;
mod plain;
mod prompts;
mod resources;

use std::{error::Error, io::Write as _, path::PathBuf, sync::Arc};

use clap::Parser;
use nuncio::{Nuncio, ShutdownSignals, prelude::*};

/// Serves what the MCP conformance suite asks for.
#[derive(Parser)]
struct Options {
    /// The address to listen on; port 0 picks a free port.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    listen: String,
    /// The data folder.
    #[arg(long, value_name = "DIR", default_value = "target/mcp-conformance-data")]
    data: PathBuf,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse();
    let surface = Arc::new(Surface::default());
    plain::offer(&surface)?;
    asking::offer(&surface)?;
    resources::offer(&surface);
    prompts::offer(&surface);

    let signals = ShutdownSignals::new()?;
    let server = Nuncio::new().agents(jobs::all()).surface(surface);
    let running = server.listen(options.listen).data(options.data).start().await?;
    writeln!(std::io::stdout(), "{}/mcp", running.url())?;
    running.until(signals).await;
    Ok(())
}
