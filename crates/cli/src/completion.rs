//! `nuncio completion SHELL` and `nuncio man DIR`: the completion script of a shell, and the man pages.
//!
//! Both are generated from the definition of the commands, so they cannot lag behind it.

use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

use super::{
    error::CliError,
    output::{self, note},
};

#[derive(Args)]
pub(crate) struct CompletionFlags {
    /// The shell that completes the command line
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

#[derive(Args)]
pub(crate) struct ManFlags {
    /// The folder that the pages are written to, such as ~/.local/share/man/man1
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

impl CompletionFlags {
    /// Prints the script of the shell.
    pub(crate) fn run(&self, mut command: clap::Command) -> Result<(), CliError> {
        let mut script = Vec::new();
        let name = command.get_name().to_owned();
        clap_complete::generate(self.shell, &mut command, name, &mut script);
        output::text(&String::from_utf8_lossy(&script))
    }
}

impl ManFlags {
    /// Writes one page for each command.
    pub(crate) fn run(&self, command: clap::Command) -> Result<(), CliError> {
        let cannot = |error: std::io::Error| {
            CliError::Usage(format!("cannot write to {}: {error}", self.dir.display()))
        };
        std::fs::create_dir_all(&self.dir).map_err(cannot)?;
        clap_mangen::generate_to(command, &self.dir).map_err(cannot)?;
        note(&format!("the pages are in {}", self.dir.display()));
        Ok(())
    }
}
