//! `nuncio memory …`: the memory bank from the command line.

mod clear;
mod entry;
mod list;
mod search;
mod transfer;
mod value;

use clap::{Args, Subcommand};

use super::{error::CliError, server_connection::ServerFlags};

#[derive(Args)]
pub(crate) struct MemoryFlags {
    #[command(flatten)]
    pub(crate) server: ServerFlags,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show the value of a key
    Get(entry::MemoryGetFlags),
    /// Store a value under a key
    Set(entry::MemorySetFlags),
    /// Delete a key
    Delete(entry::MemoryDeleteFlags),
    /// List namespaces, or the keys of one
    List(list::MemoryListFlags),
    /// Search a namespace by key pattern, or by words in values
    Search(search::MemorySearchFlags),
    /// Write all entries of a namespace as JSON Lines
    Export(transfer::MemoryExportFlags),
    /// Import the entries of an exported file
    Import(transfer::MemoryImportFlags),
    /// Delete all entries of a namespace
    Clear(clear::MemoryClearFlags),
}

impl MemoryFlags {
    pub(crate) async fn run(self) -> Result<(), CliError> {
        let server = self.server;
        match self.command {
            Command::Get(get) => server.run_to_read(async |shared| get.run(shared).await).await,
            Command::Set(set) => {
                // Invalid input is an error before the server is called.
                let value = set.value()?;
                server.run_with_server(async |shared| set.run(shared, value).await).await
            }
            Command::Delete(delete) => server.run_to_read(async |shared| delete.run(shared).await).await,
            Command::List(list) => server.run_to_read(async |shared| list.run(shared).await).await,
            Command::Search(search) => server.run_to_read(async |shared| search.run(shared).await).await,
            Command::Export(export) => server.run_to_read(async |shared| export.run(shared).await).await,
            Command::Import(import) => {
                let input = import.open()?;
                server.run_with_server(async |shared| import.run(shared, input).await).await
            }
            Command::Clear(clear) => server.run_to_read(async |shared| clear.run(shared).await).await,
        }
    }
}
