//! The server that the official MCP conformance suite expects to meet: its tools, resources and prompts, by
//! its names and in its words. `cargo run -p nuncio --example mcp_conformance` prints where it is; give that to
//! `scripts/mcp-conformance`.
//!
//! What answers at once is a plain tool (`plain`, `asking`). What takes time, reports, or has to outlive its
//! connection is an agent (`jobs`), and needs nothing else for it.

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
    /// Where to listen; port 0 takes a free one.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    listen: String,
    /// The folder in which everything is kept.
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
