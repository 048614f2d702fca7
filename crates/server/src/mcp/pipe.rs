//! MCP over stdio, one message per line: the transport of a desktop client that starts the server itself.

use std::{io, sync::Arc};

use nuncio_engine::{Caller, Engine};
use nuncio_wire::mcp::McpFault;
use tokio::{
    io::{AsyncBufRead, AsyncBufReadExt, AsyncWrite, AsyncWriteExt},
    sync::mpsc,
};

use super::{Mcp, dispatch::McpResponse, duplex::McpDuplex};
use crate::options::ServerOptions;

/// Messages queued for a client that does not read.
const WAITING: usize = 64;

/// Serves one client until it closes its end or the engine stops. Then the calls that the client waits for are
/// cancelled; its tasks continue.
pub async fn serve_pipe(
    engine: Engine,
    options: &ServerOptions,
    mut input: impl AsyncBufRead + Unpin,
    mut output: impl AsyncWrite + Unpin + Send + 'static,
) -> io::Result<()> {
    let mut closing = engine.closing();
    let (max_bytes, max_depth) = (options.limits.max_body_bytes, options.limits.max_json_depth);
    let mcp = Mcp::new(engine, options.mcp.clone());
    let (out, mut messages) = mpsc::channel::<Vec<u8>>(WAITING);
    let writer = tokio::spawn(async move {
        while let Some(mut message) = messages.recv().await {
            message.push(b'\n');
            output.write_all(&message).await?;
            output.flush().await?;
        }
        io::Result::Ok(())
    });
    let endpoint = mcp.endpoint();
    let mut duplex = McpDuplex::new(Arc::clone(&mcp), Caller::local(), endpoint, out.clone());
    loop {
        let line = tokio::select! {
            line = read_line(&mut input, max_bytes) => line?,
            _ = closing.changed() => PipeLine::End,
        };
        match line {
            PipeLine::End => break,
            PipeLine::Whole(line) if line.iter().all(u8::is_ascii_whitespace) => {}
            PipeLine::Whole(line) => duplex.handle_body(&line, max_depth).await,
            PipeLine::TooLong => {
                let fault = McpFault::invalid_request(format!(
                    "the message is larger than {max_bytes} bytes (max_body_bytes)"
                ));
                if out.send(McpResponse::fault(None, fault).body).await.is_err() {
                    break;
                }
            }
        }
        // The client no longer reads: it has disconnected.
        if writer.is_finished() {
            break;
        }
    }
    duplex.close().await;
    drop(out);
    match writer.await {
        Ok(Err(error)) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}

enum PipeLine {
    Whole(Vec<u8>),
    TooLong,
    End,
}

/// Reads the next line. Discards one that is too long.
async fn read_line(input: &mut (impl AsyncBufRead + Unpin), max: usize) -> io::Result<PipeLine> {
    let (mut line, mut too_long) = (Vec::new(), false);
    loop {
        let chunk = input.fill_buf().await?;
        if chunk.is_empty() {
            return Ok(match (line.is_empty(), too_long) {
                (_, true) => PipeLine::TooLong,
                (true, false) => PipeLine::End,
                (false, false) => PipeLine::Whole(line),
            });
        }
        let end = chunk.iter().position(|byte| *byte == b'\n');
        let used = end.map_or(chunk.len(), |end| end + 1);
        if line.len() + used > max + 1 {
            (line, too_long) = (Vec::new(), true);
        }
        if !too_long {
            line.extend_from_slice(&chunk[..end.unwrap_or(used)]);
        }
        input.consume(used);
        if end.is_some() {
            return Ok(if too_long { PipeLine::TooLong } else { PipeLine::Whole(line) });
        }
    }
}
