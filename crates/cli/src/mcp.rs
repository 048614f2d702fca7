//! `nuncio mcp`: MCP on standard input and output, for clients that start their servers as commands.
//!
//! One process holds a data folder. If another process holds it, the client's messages are relayed there.
//! Otherwise this process takes the folder and serves on a free port, so that others can find it. The client
//! does not notice when the holder exits: sessions and tasks are in the store, and the next holder continues
//! them.

use std::{process::ExitCode, sync::Arc};

use async_trait::async_trait;
use nuncio::{ShutdownSignals, data_dir::PublishedServer};
use nuncio_client::mcp::{EndpointFinder, Relay, RelayEndpoint};
use nuncio_outbound::TlsClientOptions;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, stdin, stdout},
    sync::{Mutex, mpsc},
};

use super::{
    error::CliError,
    serve::Flags,
    server::{self, LocalServer},
};
use crate::{
    config::{self, Config},
    logs,
};

/// Messages that may wait for a client that does not read.
const WAITING: usize = 64;

pub(crate) async fn run(flags: &Flags) -> Result<ExitCode, CliError> {
    nuncio::raise_descriptor_limit();
    let loaded = config::load(&flags.given, flags.config.as_deref())?;
    if loaded.is_found && loaded.runs_code() && !config::is_trusted(&loaded.file) {
        let file = std::path::absolute(&loaded.file).unwrap_or_else(|_| loaded.file.clone());
        return Err(CliError::Usage(format!(
            "{} starts programs, and was only found here: name it (--config), or trust it once as it is \
             (`nuncio trust {}`)",
            file.display(),
            file.display()
        )));
    }
    let mut config = loaded.config;
    // The standard output belongs to the protocol; logs go to the standard error.
    logs::start(&config.log, config.log_format, &config.engine.access.redactor);
    if !flags.given.contains_key("listen") {
        config.listen = "127.0.0.1:0".into();
    }
    let mut signals = ShutdownSignals::new()?;
    let holder = Arc::new(DataFolderHolder { config, state: Mutex::default() });
    // A server that cannot start is an error now, not at the first request.
    holder.find().await.map_err(CliError::Admin)?;

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
    let found = HolderFinder(Arc::clone(&holder));
    let tls = server::trust_published(TlsClientOptions::default(), &holder.config.data);
    let mut relay = Relay::new(found, tls, out).map_err(|error| CliError::Admin(error.to_string()))?;
    let mut lines = BufReader::new(stdin()).lines();
    loop {
        let line = tokio::select! {
            line = lines.next_line() => line.map_err(CliError::Output)?,
            () = signals.next() => None,
        };
        match line {
            Some(line) if line.trim().is_empty() => {}
            Some(line) => relay.send(line.into_bytes()).await,
            None => break,
        }
    }
    relay.close().await;
    if let Some(LocalServer::Own(running)) = holder.state.lock().await.take() {
        running.stop().await;
    }
    // It ends with the relay, which held the other end.
    let _ = writer.await;
    Ok(ExitCode::SUCCESS)
}

/// Finds the holder of the folder, and takes the folder if there is none.
struct DataFolderHolder {
    config: Config,
    /// The holder that was found last.
    state: Mutex<Option<LocalServer>>,
}

impl DataFolderHolder {
    async fn find(&self) -> Result<RelayEndpoint, String> {
        let mut state = self.state.lock().await;
        if let Some(LocalServer::Own(own)) = &*state {
            return Ok(endpoint(own.published()));
        }
        // Read anew: the secret is another one after each start of that server.
        if let Some(LocalServer::Other(_)) = &*state
            && let Some(other) = server::find_running(&self.config.data).await
        {
            return Ok(endpoint(&other));
        }
        *state = None;
        let found = server::start_or_find(&self.config).await.map_err(|error| error.to_string())?;
        Ok(endpoint(state.insert(found).published()))
    }
}

struct HolderFinder(Arc<DataFolderHolder>);

#[async_trait]
impl EndpointFinder for HolderFinder {
    async fn find(&self) -> Result<RelayEndpoint, String> {
        self.0.find().await
    }
}

/// A process that can read the data folder acts as the operator.
fn endpoint(server: &PublishedServer) -> RelayEndpoint {
    RelayEndpoint { url: format!("{}/mcp", server.url), bearer: Some(server.admin_token.clone()) }
}
