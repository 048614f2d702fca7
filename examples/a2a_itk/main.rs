//! The agent for the official A2A integration test kit (a2aproject/a2a-itk): it follows the nested instructions of the
//! kit, and calls the next agent of the chain with our own client. docs/a2a-itk.md says how the kit is run with it.
//!
//! The kit assigns a port for HTTP and one for gRPC. Nuncio serves every binding on one port, so the second one stays free;
//! agents find the address in the card.

mod agent;
mod call;
mod instruction;

use std::{error::Error, io::Write as _};

use agent::ItkAgent;
use clap::Parser;
use nuncio::{Nuncio, ShutdownSignals};

/// Serves the agent that the A2A integration test kit asks for.
#[derive(Parser)]
struct Options {
    /// The port of all bindings; 0 picks a free port.
    #[arg(long = "httpPort", value_name = "PORT", default_value_t = 0)]
    http_port: u16,
    /// Not used: gRPC is on the same port.
    #[arg(long = "grpcPort", value_name = "PORT", default_value_t = 0)]
    _grpc_port: u16,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse();
    let signals = ShutdownSignals::new()?;
    let data = tempfile::tempdir()?;
    let nuncio = Nuncio::new().agent(ItkAgent).listen(format!("127.0.0.1:{}", options.http_port));
    // The kit sends its first request to this path, whatever the card says. Its receiver of webhooks is on this machine.
    let nuncio = nuncio.base_path("/jsonrpc").allow_private_webhooks(true);
    let running = nuncio.data(data.path().join("data")).start().await?;
    writeln!(std::io::stdout(), "{}/", running.url())?;
    running.until(signals).await;
    Ok(())
}
