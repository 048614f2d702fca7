//! The parts of a message, from the command line: in the order of the flags, each with the media type that
//! follows it.

use std::{io::Read as _, path::Path};

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, error::ErrorKind};
use nuncio_engine::content::{Content, Part};
use serde_json::Value;

use super::error::CliError;

/// The part flags of one command line, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PartFlags(Vec<PartFlag>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct PartFlag {
    source: PartSource,
    media_type: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum PartSource {
    Text(String),
    /// The standard input, as text.
    Input,
    /// A path, or a URL that the agent fetches.
    File(String),
    /// JSON, a file of it, or `-` for the standard input.
    Data(String),
}

const MEDIA_TYPE: &str = "media-type";

impl Args for PartFlags {
    fn augment_args(command: Command) -> Command {
        let flag = |name: &'static str, value: &'static str, help: &'static str| {
            Arg::new(name).long(name).value_name(value).help(help).action(ArgAction::Append)
        };
        command
            .arg(
                Arg::new("TEXT")
                    .help("The text to send, or - for the standard input")
                    .action(ArgAction::Append)
                    .num_args(1),
            )
            .arg(flag("text", "TEXT", "A text part; may be repeated"))
            .arg(flag(
                "file",
                "PATH|URL",
                "A file part: the bytes of a file, or a URL that the agent fetches",
            ))
            .arg(flag("data", "JSON|PATH|-", "A data part: JSON, a file of it, or - for the standard input"))
            .arg(flag(MEDIA_TYPE, "TYPE", "The media type of the part before it"))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for PartFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut given: Vec<(usize, &str, String)> = vec![];
        for name in ["TEXT", "text", "file", "data", MEDIA_TYPE] {
            let values = matches.get_many::<String>(name).into_iter().flatten();
            let indices = matches.indices_of(name).into_iter().flatten();
            given.extend(indices.zip(values).map(|(index, value)| (index, name, value.clone())));
        }
        given.sort_unstable_by_key(|(index, ..)| *index);
        let mut parts: Vec<PartFlag> = vec![];
        for (_, name, value) in given {
            let source = match name {
                "file" => PartSource::File(value),
                "data" => PartSource::Data(value),
                MEDIA_TYPE => {
                    let Some(part) = parts.last_mut().filter(|part| part.media_type.is_none()) else {
                        let why = "--media-type describes the part before it: put it after one\n";
                        return Err(clap::Error::raw(ErrorKind::ArgumentConflict, why));
                    };
                    part.media_type = Some(value);
                    continue;
                }
                "TEXT" if value == "-" => PartSource::Input,
                _ => PartSource::Text(value),
            };
            parts.push(PartFlag { source, media_type: None });
        }
        Ok(Self(parts))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl PartFlags {
    /// Reads the files that the flags name.
    pub(crate) fn read(self) -> Result<Vec<Part>, CliError> {
        if self.0.is_empty() {
            return Err(CliError::Usage(
                "there is nothing to send: give a text, --file or --data".to_owned(),
            ));
        }
        let from_input = |part: &&PartFlag| match &part.source {
            PartSource::Input => true,
            PartSource::Data(given) => given == "-",
            _ => false,
        };
        if self.0.iter().filter(from_input).count() > 1 {
            return Err(CliError::Usage("the standard input can be one part only: give - once".to_owned()));
        }
        self.0.into_iter().map(PartFlag::read).collect()
    }
}

impl PartFlag {
    fn read(self) -> Result<Part, CliError> {
        let mut part = match self.source {
            PartSource::Text(text) => Part::text(text),
            PartSource::Input => Part::text(read_input()?),
            PartSource::Data(text) => Part::data(read_data(&text)?),
            PartSource::File(url) if url.starts_with("http://") || url.starts_with("https://") => {
                let mut part = Part::from(Content::Url(url.clone()));
                part.media_type = media_type_of(&url);
                part
            }
            PartSource::File(path) => {
                let bytes = std::fs::read(&path).map_err(|error| unreadable(&path, &error))?;
                let mut part = Part::from(Content::Bytes(bytes));
                part.filename = Path::new(&path).file_name().map(|name| name.to_string_lossy().into_owned());
                part.media_type = media_type_of(&path).or_else(|| Some("application/octet-stream".into()));
                part
            }
        };
        if self.media_type.is_some() {
            part.media_type = self.media_type;
        }
        Ok(part)
    }
}

fn read_data(given: &str) -> Result<Value, CliError> {
    let (text, what) = match given {
        "-" => (read_input()?, "the standard input"),
        inline if inline.starts_with(['{', '[']) => (inline.to_owned(), "--data"),
        path => (std::fs::read_to_string(path).map_err(|error| unreadable(path, &error))?, path),
    };
    serde_json::from_str(&text).map_err(|error| CliError::Usage(format!("{what} is not JSON: {error}")))
}

fn read_input() -> Result<String, CliError> {
    let mut text = String::new();
    let read = std::io::stdin().read_to_string(&mut text);
    read.map_err(|error| unreadable("the standard input", &error))?;
    Ok(text)
}

fn unreadable(what: &str, error: &std::io::Error) -> CliError {
    CliError::Usage(format!("cannot read {what}: {error}"))
}

/// The media type for a file extension.
fn media_type_of(name: &str) -> Option<String> {
    let media_type = match Path::new(name).extension()?.to_str()?.to_ascii_lowercase().as_str() {
        "txt" | "log" => "text/plain",
        "md" => "text/markdown",
        "html" | "htm" => "text/html",
        "csv" => "text/csv",
        "json" => "application/json",
        "xml" => "application/xml",
        "yaml" | "yml" => "application/yaml",
        "pdf" => "application/pdf",
        "zip" => "application/zip",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "svg" => "image/svg+xml",
        "mp3" => "audio/mpeg",
        "wav" => "audio/wav",
        "mp4" => "video/mp4",
        _ => return None,
    };
    Some(media_type.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<PartFlags, clap::Error> {
        let command = PartFlags::augment_args(Command::new("send").no_binary_name(true));
        PartFlags::from_arg_matches(&command.try_get_matches_from(args)?)
    }

    fn flag(source: PartSource, media_type: Option<&str>) -> PartFlag {
        PartFlag { source, media_type: media_type.map(str::to_owned) }
    }

    #[test]
    fn parts_keep_their_order_and_their_types() {
        let got = parse(&[
            "--data",
            "{}",
            "--media-type",
            "application/x",
            "hello",
            "--file",
            "a.bin",
            "--text",
            "t",
            "--media-type",
            "text/markdown",
            "--data",
            "-",
        ]);
        let expected = vec![
            flag(PartSource::Data("{}".into()), Some("application/x")),
            flag(PartSource::Text("hello".into()), None),
            flag(PartSource::File("a.bin".into()), None),
            flag(PartSource::Text("t".into()), Some("text/markdown")),
            flag(PartSource::Data("-".into()), None),
        ];
        assert_eq!(got.unwrap(), PartFlags(expected));
    }

    #[test]
    fn the_standard_input_is_one_part() {
        assert_eq!(parse(&["-"]).unwrap(), PartFlags(vec![flag(PartSource::Input, None)]));
        assert_eq!(
            parse(&["--text", "-"]).unwrap(),
            PartFlags(vec![flag(PartSource::Text("-".into()), None)]),
            "a text that was asked for as such"
        );
        let twice = parse(&["-", "--data", "-"]).unwrap().read();
        assert!(matches!(twice, Err(CliError::Usage(why)) if why.contains("give - once")));
    }

    #[test]
    fn a_media_type_needs_a_part_before_it() {
        assert!(parse(&["--media-type", "text/plain", "hello"]).is_err());
        assert!(parse(&["hello", "--media-type", "a/b", "--media-type", "c/d"]).is_err());
    }
}
