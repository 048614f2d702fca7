//! The value to store, from the command line.

use std::io::Read as _;

use serde_json::Value;

use crate::error::CliError;

pub(super) struct MemoryValueSource<'a> {
    pub(super) inline: Option<&'a str>,
    /// In a file, or `-` for the standard input.
    pub(super) file: Option<&'a str>,
    /// Whether it is a string, whatever it looks like.
    pub(super) text: bool,
}

impl MemoryValueSource<'_> {
    pub(super) fn read(&self) -> Result<Value, CliError> {
        match (self.inline, self.file) {
            (Some(inline), _) => inline_value(inline, self.text),
            (None, Some(file)) => file_value(file, self.text),
            (None, None) => Err(CliError::Usage("there is no value: give one, or --file".to_owned())),
        }
    }
}

/// JSON, or a bare word. Text that begins like JSON but is invalid was not meant as a word.
fn inline_value(given: &str, text: bool) -> Result<Value, CliError> {
    if text {
        return Ok(given.into());
    }
    match serde_json::from_str(given) {
        Ok(value) => Ok(value),
        Err(error) if given.trim_start().starts_with(['{', '[', '"']) => {
            Err(CliError::Usage(format!("the value is not JSON: {error}; --text keeps it as a string")))
        }
        Err(_) => Ok(given.into()),
    }
}

fn file_value(file: &str, text: bool) -> Result<Value, CliError> {
    let mut content = String::new();
    let (read, name) = match file {
        "-" => (std::io::stdin().read_to_string(&mut content), "the standard input"),
        path => (std::fs::File::open(path).and_then(|mut file| file.read_to_string(&mut content)), path),
    };
    read.map_err(|error| CliError::Usage(format!("cannot read {name}: {error}")))?;
    if text {
        return Ok(content.into());
    }
    serde_json::from_str(&content)
        .map_err(|error| CliError::Usage(format!("{name} is not JSON: {error}; --text keeps it as a string")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn words_are_strings_and_the_rest_is_json() {
        let check = |given: &str, text: bool, expected: Option<Value>| {
            assert_eq!(inline_value(given, text).ok(), expected, "{given}");
        };
        check("{\"a\": 1}", false, Some(json!({ "a": 1 })));
        check("42", false, Some(json!(42)));
        check("42", true, Some(json!("42")));
        check("null", false, Some(json!(null)));
        check("hello world", false, Some(json!("hello world")));
        check("", false, Some(json!("")));
        check("{\"a\": ", false, None);
        check("\"open", false, None);
        check("{\"a\": ", true, Some(json!("{\"a\": ")));
    }
}
