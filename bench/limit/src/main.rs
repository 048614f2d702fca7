//! What this machine can do. Not an A2A or MCP server: just enough of one to answer with the same JSON.
//!
//! `limit serve PORT` keeps tasks in a map and is L0, the limit of the HTTP stack; its stream is the bare
//! SSE loop. `limit bare PORT` answers with a fixed task by bare hyper, with `--grpc` over HTTP/2. At `/mcp` it calls its tool and reads its resource. `limit serve PORT --data DIR` is L2: it answers a message after SQLite has committed it, in the
//! layout of a log. `limit commits DIR` measures such commits by themselves, `limit fsync DIR` the disk below. At
//! `/endpoint` it echoes as an endpoint that an agent of kind `http` asks.

mod bare;
mod commits;
mod endpoint;
mod fsync;
mod log_store;
mod mcp;
mod rpc;
mod stream;
mod task_json;

use std::{path::PathBuf, sync::Arc, time::Duration};

use axum::{Router, routing::post, serve::ListenerExt};
use clap::Parser;
use tokio::net::TcpListener;

use crate::{log_store::LogStore, rpc::Tasks};

#[derive(Parser)]
#[command(about = "What this machine can do")]
enum Command {
    /// Answer messages: from memory (L0), or after a commit (L2)
    Serve {
        port: u16,
        /// Commit to SQLite in this folder
        #[arg(long)]
        data: Option<PathBuf>,
    },
    /// Answer every request with the same task, by bare hyper: what HTTP costs
    Bare {
        port: u16,
        /// A message of gRPC over HTTP/2 instead of JSON over HTTP/1.1
        #[arg(long)]
        grpc: bool,
    },
    /// Measure how often a second SQLite commits what L2 writes for a task, one after the other
    Commits {
        dir: PathBuf,
        /// How long it takes
        #[arg(long, default_value_t = 2.0)]
        secs: f64,
    },
    /// Measure how often a second the disk makes 4 KiB durable
    Fsync {
        dir: PathBuf,
        /// How long each of the two measurements takes
        #[arg(long, default_value_t = 2.0)]
        secs: f64,
    },
}

fn main() -> anyhow::Result<()> {
    match Command::parse() {
        Command::Serve { port, data } => serve(port, data),
        Command::Bare { port, grpc } => tokio::runtime::Runtime::new()?.block_on(bare::serve(port, grpc)),
        Command::Commits { dir, secs } => commits::measure(&dir, Duration::from_secs_f64(secs)),
        Command::Fsync { dir, secs } => fsync::measure(&dir, Duration::from_secs_f64(secs)),
    }
}

#[tokio::main]
async fn serve(port: u16, data: Option<PathBuf>) -> anyhow::Result<()> {
    let tasks = match data {
        None => Tasks::Memory(Default::default()),
        Some(dir) => Tasks::Log(LogStore::open(&dir)?),
    };
    let listener = TcpListener::bind(("127.0.0.1", port)).await?.tap_io(|stream| {
        let _ = stream.set_nodelay(true);
    });
    let app = Router::new().route("/", post(rpc::answer)).route("/mcp", post(mcp::answer));
    let app = app.route("/endpoint", post(endpoint::answer));
    let app = app.with_state(Arc::new(tasks));
    axum::serve(listener, app).await?;
    Ok(())
}
