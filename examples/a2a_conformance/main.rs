//! The agent for the official A2A conformance kit (a2aproject/a2a-tck): it does what the prefix of the message's id
//! names, with the kit's texts. `cargo run -p nuncio --example a2a_conformance` prints its address.
//!
//! `nuncio.toml` and `agent.py` beside it are the same agent as a program. `expected.json` is what both answer: the tests
//! of the crates `nuncio` and `nuncio-cli` hold them against it.

mod agent;
mod behaviour;

use std::{error::Error, io::Write as _, path::PathBuf};

use agent::{CardProfile, ConformanceAgent};
use clap::Parser;
use nuncio::{Nuncio, ShutdownSignals};

/// Serves the agent that the A2A conformance kit asks for.
#[derive(Parser)]
struct Options {
    /// The address to listen on; port 0 picks a free port.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    listen: String,
    /// The data folder.
    #[arg(long, value_name = "DIR", default_value = "target/a2a-conformance-data")]
    data: PathBuf,
    /// What the card announces.
    #[arg(long, value_enum, default_value_t = CardProfile::Full)]
    profile: CardProfile,
    /// For the kit of 0.3: a message whose id has no known prefix ends with a question, and so does every answer.
    #[arg(long)]
    ask_by_default: bool,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse();
    let signals = ShutdownSignals::new()?;
    let agent = ConformanceAgent { profile: options.profile, ask_by_default: options.ask_by_default };
    let running = Nuncio::new().agent(agent).listen(options.listen).data(options.data).start().await?;
    writeln!(std::io::stdout(), "{}/", running.url())?;
    running.until(signals).await;
    Ok(())
}
