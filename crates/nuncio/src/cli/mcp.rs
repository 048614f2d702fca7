//! `nuncio mcp`: MCP on standard input and output, for clients that start their servers as commands.
//!
//! One process holds a data folder. Where a server has it already, what the client says is passed on to that
//! one; else this process is the server, on a free port, so that others find it in their turn.

use std::process::ExitCode;

use nuncio::data_dir::Published;
use nuncio_client::mcp::Relay;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, stdin, stdout},
    sync::mpsc,
};

use super::{
    error::CliError,
    serve::{Flags, server},
};
use crate::{config, logs};

/// Messages that may wait for a client that does not read.
const WAITING: usize = 64;

pub(crate) async fn run(flags: &Flags) -> Result<ExitCode, CliError> {
    let mut config = config::load(&flags.given, flags.config.as_deref())?.config;
    // The standard output belongs to the protocol; log lines go to the standard error.
    logs::start(&config.log, config.log_format);
    if let Some(running) = Published::read(&config.data).filter(is_alive) {
        return relay(&format!("{}/mcp", running.url)).await;
    }
    if !flags.given.contains_key("listen") {
        config.listen = "127.0.0.1:0".into();
    }
    let data = config.data.clone();
    let running = match server(config).start().await {
        Ok(running) => running,
        // Another one was faster.
        Err(error) => match Published::read(&data).filter(is_alive) {
            Some(other) => return relay(&format!("{}/mcp", other.url)).await,
            None => return Err(error.into()),
        },
    };
    let served = running.serve_pipe(BufReader::new(stdin()), stdout()).await;
    running.stop().await;
    served.map_err(CliError::Output)?;
    Ok(ExitCode::SUCCESS)
}

/// Whether somebody listens where the folder says.
fn is_alive(published: &Published) -> bool {
    let address = published.url.strip_prefix("http://").unwrap_or_default();
    std::net::TcpStream::connect(address).is_ok()
}

async fn relay(url: &str) -> Result<ExitCode, CliError> {
    let (out, mut messages) = mpsc::channel::<Vec<u8>>(WAITING);
    let writer = tokio::spawn(async move {
        let mut output = stdout();
        while let Some(mut message) = messages.recv().await {
            message.push(b'\n');
            output.write_all(&message).await?;
            output.flush().await?;
        }
        std::io::Result::Ok(())
    });
    let mut relay = Relay::new(url, out).map_err(|error| CliError::Admin(error.to_string()))?;
    let mut lines = BufReader::new(stdin()).lines();
    while let Some(line) = lines.next_line().await.map_err(CliError::Output)? {
        if !line.trim().is_empty() {
            relay.send(line.into_bytes()).await;
        }
    }
    relay.close().await;
    let _ = writer.await;
    Ok(ExitCode::SUCCESS)
}
