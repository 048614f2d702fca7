//! `nuncio init`: a configuration file to begin with. Every setting stands in it as a comment, so the file changes
//! nothing until a line is uncommented.

use std::{
    fs::OpenOptions,
    io::{self, Write as _},
    path::PathBuf,
};

use clap::Args;

use super::{error::CliError, output, program};
use crate::config;

#[derive(Args)]
pub(crate) struct InitFlags {
    /// The file to write, which must not exist; - prints it
    #[arg(default_value = "nuncio.toml", value_name = "FILE")]
    file: PathBuf,
}

impl InitFlags {
    pub(crate) fn run(self) -> Result<(), CliError> {
        let content = config::commented_settings();
        if self.file.as_os_str() == "-" {
            return output::text(&content);
        }
        let shown = self.file.display();
        let created = OpenOptions::new().write(true).create_new(true).open(&self.file);
        let mut file = created.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => CliError::Exists {
                message: format!("{shown} exists already and stays as it is"),
                hint: format!("`{} init -` prints what a new one would have", program()),
            },
            _ => CliError::Usage(format!("cannot write {shown}: {error}")),
        })?;
        file.write_all(content.as_bytes())?;
        file.sync_all()?;
        output::text(&format!(
            "Wrote {shown}: every setting is in it as a comment.\nNext: {} serve\n",
            program()
        ))
    }
}
