//! `nuncio demo-server`: the built-in agents on this machine, to practise the client commands with. Nothing of it is
//! left when it ends.

use std::{process::ExitCode, sync::Arc};

use clap::Args;
use nuncio::{ServerEnd, ShutdownSignals};

use super::{error::CliError, output, program, scratch_folder::ScratchFolder, serve};
use crate::{
    config::{Config, LogFormat},
    logs,
};

#[derive(Args)]
pub(crate) struct DemoServerFlags {
    /// The address to listen on. Only this machine reaches it; port 0 takes a free one
    #[arg(long, default_value = "127.0.0.1:8080", value_name = "ADDR:PORT")]
    listen: std::net::SocketAddr,
}

impl DemoServerFlags {
    pub(crate) async fn run(self) -> Result<ExitCode, CliError> {
        if !self.listen.ip().is_loopback() {
            let why =
                "a demo server has no callers but those of this machine: --listen takes a loopback address";
            return Err(CliError::Usage(why.to_owned()));
        }
        nuncio::raise_descriptor_limit();
        logs::start("warn", LogFormat::Text, &Arc::default());
        let folder = ScratchFolder::new().map_err(CliError::Runtime)?;
        let config = Config {
            listen: self.listen.to_string(),
            data: folder.path().to_owned(),
            // A webhook of a practising user is on this machine.
            allow_private_webhooks: true,
            ..Config::default()
        };
        let ended = serve_until_stopped(config).await;
        // Before the process may exit at once.
        drop(folder);
        match ended? {
            ServerEnd::Stopped => Ok(ExitCode::SUCCESS),
            // 128 + SIGINT, as a shell would have it.
            ServerEnd::AtOnce => std::process::exit(130),
        }
    }
}

async fn serve_until_stopped(config: Config) -> Result<ServerEnd, CliError> {
    let signals = ShutdownSignals::new()?;
    let running = serve::server(config)?.start().await?;
    let (nuncio, at) = (program(), running.url());
    let try_it = format!(
        "\nTry it in another terminal:\n  {nuncio} card get -a {at}\n  {nuncio} send -a {at} \"Hello\"\n  \
         {nuncio} send -a {at} --agent travel_agent \"Lisbon\"\n  \
         {nuncio} send -a {at} --agent long_running_agent --stream \"go\"\n  {nuncio} task list -a {at}\n"
    );
    output::text(&format!("{}{try_it}", running.places()))?;
    Ok(running.until(signals).await)
}
