//! The source of a plan: a file, the standard input, a request in words, or the id of a plan on the server.

use std::{io::Read as _, path::Path};

use crate::{error::CliError, output::note};

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

/// A file, or a request. A name that looks like a file name is one, and a folder is neither.
pub(super) fn file_or_request(name: &str) -> Result<PlanSource, CliError> {
    let looks_like_a_file = |name: &str| {
        let is_plan =
            Path::new(name).extension().is_some_and(|extension| extension == "toml" || extension == "json");
        !name.contains(char::is_whitespace) && (is_plan || name.contains('/'))
    };
    if Path::new(name).is_dir() {
        let why = format!(
            "{name} is a folder: name a plan file in it, or say the request in words (nuncio plan make writes a plan file)"
        );
        return Err(CliError::Usage(why));
    }
    if name == "-" || Path::new(name).is_file() || looks_like_a_file(name) {
        let text = file(name)?;
        // Piped text that is no plan is a request.
        let is_plan = name != "-" || text.contains("[[tasks]]") || text.trim_start().starts_with('{');
        return Ok(if is_plan { PlanSource::File(text) } else { PlanSource::Request(text) });
    }
    if !name.contains(char::is_whitespace) {
        note(&format!("note: there is no file {name:?}: it is taken as a request in words"));
    }
    Ok(PlanSource::Request(name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_never_taken_as_a_request() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).display().to_string();
        std::fs::write(path("plan.toml"), "[[tasks]]").unwrap();
        let wrong = |name: &str| match file_or_request(name) {
            Err(CliError::Usage(why)) => why,
            other => panic!("{other:?}"),
        };
        assert!(wrong(&path("")).contains("is a folder"));
        assert!(wrong(&path("missing")).contains("cannot read"));
        assert!(wrong("missing.toml").contains("cannot read"));
        assert_eq!(file_or_request(&path("plan.toml")).unwrap(), PlanSource::File("[[tasks]]".into()));
        let request = "compare Lisbon and/or Porto";
        assert_eq!(file_or_request(request).unwrap(), PlanSource::Request(request.into()));
        assert_eq!(file_or_request("Lisbon").unwrap(), PlanSource::Request("Lisbon".into()));
    }
}
