//! `nuncio trust`: lets `nuncio mcp` start the programs of a configuration file that it finds in its folder.

use std::path::PathBuf;

use clap::Args;

use super::{error::CliError, output};
use crate::config;

#[derive(Args)]
pub(crate) struct Flags {
    /// The file to trust, as it is now; a change of it has to be trusted again
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
