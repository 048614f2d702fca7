//! `nuncio memory …`: the memory bank from the command line.

mod clear;
mod entry;
mod list;
mod search;
mod transfer;
mod value;

use clap::{Args, Subcommand};

use super::{error::CliError, shared::ServerFlags};

#[derive(Args)]
pub(crate) struct Memory {
    #[command(flatten)]
    pub(crate) server: ServerFlags,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show the value of a key
    Get(entry::Get),
    /// Keep a value under a key
    Set(entry::Set),
    /// Forget a key
    Delete(entry::Delete),
    /// List namespaces, or the keys of one
    List(list::List),
    /// Search a namespace: by the shape of its keys, or by the words in its values
    Search(search::Search),
    /// Write all entries of a namespace as JSON Lines
    Export(transfer::Export),
    /// Keep the entries of a file that was exported
    Import(transfer::Import),
    /// Forget all entries of a namespace
    Clear(clear::Clear),
}

impl Memory {
    pub(crate) async fn run(self) -> Result<(), CliError> {
        let server = self.server;
        match self.command {
            Command::Get(get) => server.with(async |shared| get.run(shared).await).await,
            Command::Set(set) => {
                // What cannot be read is an error before anybody is called.
                let value = set.value()?;
                server.with(async |shared| set.run(shared, value).await).await
            }
            Command::Delete(delete) => server.with(async |shared| delete.run(shared).await).await,
            Command::List(list) => server.with(async |shared| list.run(shared).await).await,
            Command::Search(search) => server.with(async |shared| search.run(shared).await).await,
            Command::Export(export) => server.with(async |shared| export.run(shared).await).await,
            Command::Import(import) => {
                let input = import.open()?;
                server.with(async |shared| import.run(shared, input).await).await
            }
            Command::Clear(clear) => server.with(async |shared| clear.run(shared).await).await,
        }
    }
}
