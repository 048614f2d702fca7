//! The source of a plan: a file, the standard input, a request in words, or the id of a plan on the server.

use std::{io::Read as _, path::Path};

use crate::error::CliError;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PlanSource {
    /// The text of a plan file.
    File(String),
    /// A request in words.
    Request(String),
    /// A plan on the server.
    Id(String),
}

/// Reads a plan file.
pub(super) fn file(name: &str) -> Result<String, CliError> {
    let mut content = String::new();
    let (read, name) = match name {
        "-" => (std::io::stdin().read_to_string(&mut content), "the standard input"),
        path => (std::fs::File::open(path).and_then(|mut file| file.read_to_string(&mut content)), path),
    };
    read.map_err(|error| CliError::Usage(format!("cannot read {name}: {error}")))?;
    Ok(content)
}

/// A file, or an id.
pub(super) fn file_or_id(name: &str) -> Result<PlanSource, CliError> {
    if uuid::Uuid::try_parse(name).is_ok() && !Path::new(name).exists() {
        return Ok(PlanSource::Id(name.to_owned()));
    }
    file(name).map(PlanSource::File)
}

/// A file, or a request. A name that looks like a file name is one.
pub(super) fn file_or_request(name: &str) -> Result<PlanSource, CliError> {
    let looks_like_a_file = |name: &str| {
        !name.contains(char::is_whitespace)
            && Path::new(name).extension().is_some_and(|extension| extension == "toml" || extension == "json")
    };
    if name == "-" || Path::new(name).is_file() || looks_like_a_file(name) {
        let text = file(name)?;
        // Piped text that is no plan is a request.
        let is_plan = name != "-" || text.contains("[[tasks]]") || text.trim_start().starts_with('{');
        return Ok(if is_plan { PlanSource::File(text) } else { PlanSource::Request(text) });
    }
    Ok(PlanSource::Request(name.to_owned()))
}
