//! `nuncio trust`: allows `nuncio mcp` to start the programs of a configuration file that it finds in its
//! folder.

use std::path::PathBuf;

use clap::Args;

use super::{error::CliError, output};
use crate::config;

#[derive(Args)]
pub(crate) struct Flags {
    /// The file to trust, with its current content; after a change it must be trusted again
    #[arg(default_value = "nuncio.toml", value_name = "FILE")]
    file: PathBuf,
}

impl Flags {
    pub(crate) fn run(self) -> Result<(), CliError> {
        let shown = self.file.display();
        config::trust(&self.file)
            .map_err(|error| CliError::Usage(format!("cannot trust {shown}: {error}")))?;
        output::text(&format!("{shown} is trusted as it is now: `nuncio mcp` starts what it names.\n"))
    }
}
