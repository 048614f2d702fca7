//! The load generator. It is one thread and keeps one request in flight per connection, so that what it
//! takes from a small machine is the same for every server. Every run is bounded by a count and a time, and
//! ends with one JSON line; every answer is checked, and a run with bad answers says so.

mod closed_loop;
mod connection;
mod endpoint;
mod figures;
mod first;
mod grpc;
mod idle;
mod mcp;
mod plan;
mod process;
mod request;

use std::{path::PathBuf, time::Duration};

use anyhow::Context;
use clap::{Parser, ValueEnum};
use tokio::task::LocalSet;

use crate::{endpoint::Endpoint, request::Dialect};

#[derive(Parser)]
#[command(about = "Loads an A2A or MCP server on this machine and prints one JSON line")]
struct Flags {
    workload: Workload,
    /// Where the server listens on 127.0.0.1
    #[arg(long)]
    port: u16,
    /// The server's process, for CPU time and memory
    #[arg(long)]
    pid: u32,
    /// Connections, each with one request in flight
    #[arg(long, default_value_t = 1)]
    conns: usize,
    /// End after so many requests
    #[arg(long, default_value_t = 1_000)]
    count: usize,
    /// End after so many seconds
    #[arg(long, default_value_t = 5.0)]
    secs: f64,
    /// How the server is spoken to
    #[arg(long, value_enum, default_value_t = Dialect::A2a)]
    dialect: Dialect,
    /// Encrypt the connections
    #[arg(long, requires = "ca")]
    tls: bool,
    /// The certificate that is trusted, as PEM
    #[arg(long, value_name = "FILE", requires = "tls")]
    ca: Option<PathBuf>,
    /// Where messages go: an agent of a server that has several, or an endpoint
    #[arg(long, default_value = "/")]
    path: String,
    /// call: the tool
    #[arg(long, default_value = mcp::PLAIN)]
    tool: String,
    /// fill: write a sample of the new tasks' ids to this file; get: read the ids from it
    #[arg(long)]
    ids: Option<PathBuf>,
    /// idle: seconds between the last stream's first event and the look at the memory
    #[arg(long, default_value_t = 3.0)]
    hold: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Workload {
    /// Messages that are echoed
    Send,
    /// The same, to have tasks stored
    Fill,
    /// Single tasks by id
    Get,
    /// Pages of 50 tasks, one after the other
    List,
    /// Streams of 100 chunks
    Stream,
    /// Streams that stay open on a task at work
    Idle,
    /// MCP: calls of a tool that echoes and keeps nothing
    Call,
    /// An endpoint that is no agent: requests such as an agent of kind `http` makes
    Post,
    /// MCP: calls of an agent that echoes
    Durable,
    /// MCP: a resource of 1 KiB
    Read,
    /// MCP: the first event of calls that are answered by a stream, one call after the other
    First,
}

/// How much longer than asked a run may take before it is given up.
const GRACE: Duration = Duration::from_secs(60);

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let flags = Flags::parse();
    let limit = Duration::from_secs_f64(flags.secs + flags.hold) + GRACE;
    let line = LocalSet::new()
        .run_until(tokio::time::timeout(limit, run(&flags)))
        .await
        .with_context(|| format!("the run did not end within {} s", limit.as_secs()))??;
    println!("{line}");
    Ok(())
}

async fn run(flags: &Flags) -> anyhow::Result<String> {
    let endpoint = Endpoint::new(flags)?;
    Ok(match flags.workload {
        Workload::Idle => serde_json::to_string(&idle::run(flags, &endpoint).await?)?,
        Workload::First => serde_json::to_string(&first::run(flags, &endpoint).await?)?,
        _ => serde_json::to_string(&closed_loop::run(flags, &endpoint).await?)?,
    })
}
