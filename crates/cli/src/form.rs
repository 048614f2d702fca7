//! The fields of a form: the prompt of each, and the value that a typed line means. And a line of the standard input.
//!
//! A form's schema is flat: its fields are texts, numbers, booleans and choices. Prompts go to the standard error, to
//! keep the output clean.

use std::io::{self, BufRead as _, Write as _};

use serde_json::Value;

use super::{error::CliError, text::plain};

/// Asks a yes-or-no question; any other answer is no.
pub(crate) async fn ask_yes_no(question: &str) -> Result<bool, CliError> {
    let answer = read_line(question.to_owned()).await?;
    Ok(answer.is_some_and(|answer| matches!(&*answer.trim().to_lowercase(), "y" | "yes")))
}

/// One line from the terminal; `None` at its end. Read in a thread, which the process need not wait for.
pub(crate) async fn read_line(prompt: String) -> Result<Option<String>, CliError> {
    let read = tokio::task::spawn_blocking(move || {
        let mut err = io::stderr();
        write!(err, "{prompt}")?;
        err.flush()?;
        let mut line = String::new();
        let count = io::stdin().lock().read_line(&mut line)?;
        Ok((count > 0).then(|| line.trim_end_matches(['\n', '\r']).to_owned()))
    });
    read.await
        .map_err(io::Error::other)?
        .map_err(|error: io::Error| CliError::Usage(format!("cannot read an answer: {error}")))
}

/// The fields of a form, in the order of the schema.
pub(crate) fn fields(schema: &Value) -> Vec<PromptField<'_>> {
    let required = |name: &str| {
        schema["required"].as_array().is_some_and(|names| names.iter().any(|required| required == name))
    };
    let properties = schema["properties"].as_object().into_iter().flatten();
    properties
        .map(|(name, own)| PromptField { name, schema: within(schema, own), own, required: required(name) })
        .collect()
}

/// An answer to a form that can be copied and changed: its required fields, or all if none is. `None`: it has none.
pub(crate) fn example_answer(schema: &Value) -> Option<Value> {
    let fields = fields(schema);
    let only_required = fields.iter().any(|field| field.required);
    let wanted = fields.iter().filter(|field| field.required || !only_required);
    let content: serde_json::Map<_, _> =
        wanted.map(|field| (field.name.to_owned(), field.example())).collect();
    (!content.is_empty()).then_some(Value::Object(content))
}

/// The schema of a property: resolves a reference inside the schema, and skips `null` where the value may be
/// missing.
fn within<'a>(whole: &'a Value, property: &'a Value) -> &'a Value {
    let pointed = property["$ref"].as_str().and_then(|to| whole.pointer(to.strip_prefix('#')?));
    let property = pointed.unwrap_or(property);
    let ways = ["anyOf", "oneOf"].into_iter().find_map(|member| property[member].as_array());
    let mut real =
        ways.into_iter().flatten().filter(|way| way["type"] != "null" && way.get("const").is_none());
    match (real.next(), real.next()) {
        (Some(only), None) if only.is_object() => {
            only["$ref"].as_str().and_then(|to| whole.pointer(to.strip_prefix('#')?)).unwrap_or(only)
        }
        _ => property,
    }
}

/// One field of a form.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PromptField<'a> {
    pub(crate) name: &'a str,
    schema: &'a Value,
    /// The property as the form has it: title and description are here, even where the schema is behind a
    /// reference.
    own: &'a Value,
    pub(crate) required: bool,
}

impl PromptField<'_> {
    /// The prompt text.
    pub(crate) fn prompt(&self) -> String {
        let title = plain(self.title());
        let about = self.about().map(|about| format!(" ({})", plain(about))).unwrap_or_default();
        let kind = self.wanted();
        let kind = if kind.is_empty() { kind } else { format!(" [{kind}]") };
        format!("{title}{about}{kind}: ")
    }

    /// The field in one line, by the name that it has in an answer.
    pub(crate) fn in_one_line(&self) -> String {
        let kind = Some(self.wanted()).filter(|kind| !kind.is_empty()).map(|kind| format!("[{kind}]"));
        let title = Some(plain(self.title())).filter(|title| title != self.name);
        let about = self.about().map(|about| format!("({})", plain(about)));
        let words = [Some(plain(self.name)), kind, title, about].into_iter().flatten().collect::<Vec<_>>();
        words.join(" ").replace('\n', " ")
    }

    /// What may be entered, in a few words; empty for any text.
    fn wanted(&self) -> String {
        let mut kind = match self.kind() {
            "boolean" => "y/n".to_owned(),
            "array" if !self.choices().is_empty() => {
                format!("any of {}, with commas", self.choices_with_titles().join(", "))
            }
            _ if !self.choices().is_empty() => self.choices_with_titles().join(" | "),
            "array" => "a list in JSON, or words with commas".to_owned(),
            "object" => "JSON".to_owned(),
            "integer" => "a whole number".to_owned(),
            "number" => "a number".to_owned(),
            _ => String::new(),
        };
        match self.default() {
            Some(default) => {
                let default = default.as_str().map_or_else(|| default.to_string(), str::to_owned);
                kind =
                    format!("{kind}{}default: {}", if kind.is_empty() { "" } else { "; " }, plain(&default));
            }
            None if !self.required => {
                kind = format!("{kind}{}may be empty", if kind.is_empty() { "" } else { "; " });
            }
            None => {}
        }
        plain(&kind)
    }

    /// A member of the field's schema, from the property itself or from what it refers to.
    fn member(&self, name: &str) -> Option<&Value> {
        self.own.get(name).or_else(|| self.schema.get(name)).filter(|value| !value.is_null())
    }

    /// The value of an empty answer.
    pub(crate) fn default(&self) -> Option<&Value> {
        self.member("default")
    }

    /// The schema's description.
    pub(crate) fn about(&self) -> Option<&str> {
        self.member("description").and_then(Value::as_str)
    }

    /// The title, or else the name.
    pub(crate) fn title(&self) -> &str {
        self.member("title").and_then(Value::as_str).unwrap_or(self.name)
    }

    /// The schema that a value must satisfy.
    pub(crate) fn schema(&self) -> &Value {
        self.schema
    }

    /// The type of the value; of several, the first that is not `null`.
    pub(crate) fn kind(&self) -> &str {
        let kinds = self.schema["type"].as_array().into_iter().flatten();
        let first = kinds.filter_map(Value::as_str).find(|kind| *kind != "null");
        let implied = if self.schema.get("properties").is_some() { "object" } else { "string" };
        self.schema["type"].as_str().or(first).unwrap_or(implied)
    }

    /// The allowed values, if it is a choice.
    pub(crate) fn choices(&self) -> Vec<String> {
        self.titled_choices().into_iter().map(|(value, _)| value.to_owned()).collect()
    }

    /// The allowed values with their titles: `enum` with `enumNames`, or the constants of `oneOf` and `anyOf`.
    fn titled_choices(&self) -> Vec<(&str, Option<&str>)> {
        let schema = if self.kind() == "array" { &self.schema["items"] } else { self.schema };
        let named = schema["enum"].as_array().into_iter().flatten().enumerate();
        let named = named.map(|(at, value)| (value, &schema["enumNames"][at]));
        let titled =
            ["oneOf", "anyOf"].into_iter().flat_map(|member| schema[member].as_array().into_iter().flatten());
        let choices = named.chain(titled.map(|one| (&one["const"], &one["title"])));
        choices
            .filter_map(|(value, title)| {
                let value = value.as_str()?;
                Some((value, title.as_str().filter(|title| *title != value && !title.trim().is_empty())))
            })
            .collect()
    }

    /// The allowed values for people: with the title behind the value, where there is one.
    fn choices_with_titles(&self) -> Vec<String> {
        let shown = |(value, title): (&str, Option<&str>)| match title {
            Some(title) => format!("{value} ({title})"),
            None => value.to_owned(),
        };
        self.titled_choices().into_iter().map(shown).collect()
    }

    /// The value of a choice that was typed: the value itself, or the title that only it has.
    fn chosen<'t>(&'t self, typed: &'t str) -> Result<&'t str, String> {
        let choices = self.titled_choices();
        if choices.is_empty() || choices.iter().any(|(value, _)| *value == typed) {
            return Ok(typed);
        }
        let is_title =
            |title: Option<&str>| title.is_some_and(|title| title.to_lowercase() == typed.to_lowercase());
        let mut titled = choices.iter().filter(|(_, title)| is_title(*title));
        match (titled.next(), titled.next()) {
            (Some((value, _)), None) => Ok(value),
            _ => Err(format!("one of {}", plain(&self.choices_with_titles().join(", ")))),
        }
    }

    /// An example of the value, for a command that is copied and changed.
    pub(crate) fn example(&self) -> Value {
        if let Some(default) = self.default() {
            return default.clone();
        }
        let first = self.choices().into_iter().next();
        match (self.kind(), first) {
            ("array", first) => first.into_iter().collect::<Vec<_>>().into(),
            (_, Some(first)) => first.into(),
            ("boolean", None) => true.into(),
            ("integer" | "number", None) => match &self.schema["minimum"] {
                Value::Null => 1.into(),
                least => least.clone(),
            },
            ("object", None) => Value::Object(serde_json::Map::new()),
            _ => "…".into(),
        }
    }

    /// Parses a line. `None`: it is empty, and the field is optional.
    pub(crate) fn read(&self, line: &str) -> Result<Option<Value>, String> {
        let line = line.trim();
        if line.is_empty() {
            return match self.default() {
                Some(default) => Ok(Some(default.clone())),
                None if self.required => Err("something has to be said here".to_owned()),
                None => Ok(None),
            };
        }
        let value = match self.kind() {
            "boolean" => match &*line.to_lowercase() {
                "y" | "yes" | "true" => true.into(),
                "n" | "no" | "false" => false.into(),
                _ => return Err("y or n".to_owned()),
            },
            "integer" => {
                line.parse::<i64>().map(Value::from).map_err(|_| "a whole number, such as 3".to_owned())?
            }
            "number" => match line.parse::<f64>().ok().and_then(serde_json::Number::from_f64) {
                Some(number) => Value::Number(number),
                None => return Err("a number, such as 2.5".to_owned()),
            },
            "array" if line.starts_with('[') => json(line)?,
            "object" => json(line)?,
            "array" => {
                let chosen: Vec<&str> =
                    line.split(',').map(str::trim).filter(|one| !one.is_empty()).collect();
                chosen.into_iter().map(|one| self.chosen(one)).collect::<Result<Vec<_>, _>>()?.into()
            }
            _ => self.chosen(line)?.into(),
        };
        self.in_bounds(&value)?;
        Ok(Some(value))
    }

    fn in_bounds(&self, value: &Value) -> Result<(), String> {
        let bound = |member: &str| self.schema[member].as_f64();
        let (size, least, most, unit) = match value {
            Value::String(text) => (text.chars().count() as f64, "minLength", "maxLength", " characters"),
            Value::Number(number) => (number.as_f64().unwrap_or_default(), "minimum", "maximum", ""),
            Value::Array(items) => (items.len() as f64, "minItems", "maxItems", " of them"),
            _ => return Ok(()),
        };
        match (bound(least), bound(most)) {
            (Some(least), _) if size < least => Err(format!("at least {least}{unit}")),
            (_, Some(most)) if size > most => Err(format!("at most {most}{unit}")),
            _ => Ok(()),
        }
    }
}

fn json(line: &str) -> Result<Value, String> {
    serde_json::from_str(line).map_err(|error| format!("this is no JSON: {error}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(schema: &Value, required: bool, line: &str) -> Result<Option<Value>, String> {
        PromptField { name: "field", schema, own: schema, required }.read(line)
    }

    #[test]
    fn what_is_typed_is_what_the_schema_asks_for() {
        #[track_caller]
        #[allow(clippy::needless_pass_by_value, reason = "the table below reads better")]
        fn check(schema: Value, line: &str, expected: Option<Value>) {
            assert_eq!(read(&schema, true, line).ok().flatten(), expected, "{schema} {line}");
        }
        check(json!({ "type": "string" }), " hello ", Some(json!("hello")));
        check(json!({ "type": "string", "minLength": 3 }), "no", None);
        check(json!({ "type": "string", "maxLength": 3 }), "größe", None);
        check(json!({ "type": "string" }), "", None);
        check(json!({ "type": "string", "default": "x" }), "", Some(json!("x")));
        check(json!({ "type": "boolean" }), "Y", Some(json!(true)));
        check(json!({ "type": "boolean" }), "perhaps", None);
        check(json!({ "type": "integer", "minimum": 1 }), "3", Some(json!(3)));
        check(json!({ "type": "integer", "minimum": 1 }), "0", None);
        check(json!({ "type": "integer" }), "3.5", None);
        check(json!({ "type": "number" }), "3.5", Some(json!(3.5)));
        check(json!({ "type": "number" }), "NaN", None);
        let choice = json!({ "type": "string", "oneOf": [{ "const": "a", "title": "A" }, { "const": "b" }] });
        check(choice.clone(), "b", Some(json!("b")));
        check(choice.clone(), "A", Some(json!("a")));
        check(choice, "c", None);
        let named = json!({ "type": "string", "enum": ["w", "a"], "enumNames": ["Window", "Aisle"] });
        check(named.clone(), "aisle", Some(json!("a")));
        check(named, "floor", None);
        // A title that two have says nothing; one that is another's value is that value.
        let same = json!({ "enum": ["x", "y", "z"], "enumNames": ["Same", "Same", "x"] });
        check(same.clone(), "Same", None);
        check(same, "x", Some(json!("x")));
        let some = json!({ "type": "array", "maxItems": 1, "items": { "enum": ["a", "b"] } });
        check(some.clone(), "a", Some(json!(["a"])));
        check(some.clone(), "a, b", None);
        check(some, "c", None);
    }

    #[test]
    fn a_prompt_says_what_is_wanted() {
        let check = |schema: Value, required: bool, expected: &str| {
            assert_eq!(
                PromptField { name: "field", schema: &schema, own: &schema, required }.prompt(),
                expected
            );
        };
        check(
            json!({ "type": "string", "title": "Goal", "description": "in a sentence" }),
            true,
            "Goal (in a sentence): ",
        );
        check(json!({ "type": "string" }), false, "field [may be empty]: ");
        check(json!({ "type": "boolean", "default": true }), true, "field [y/n; default: true]: ");
        check(json!({ "enum": ["a", "b"] }), true, "field [a | b]: ");
        check(
            json!({ "enum": ["w", "a", "m"], "enumNames": ["Window", "Aisle\u{7}"] }),
            true,
            "field [w (Window) | a (Aisle\u{fffd}) | m]: ",
        );
        let seats = json!({ "oneOf": [{ "const": "w", "title": "Window" }, { "const": "a", "title": "a" }] });
        check(seats.clone(), true, "field [w (Window) | a]: ");
        check(
            json!({ "type": "array", "items": { "anyOf": seats["oneOf"] } }),
            true,
            "field [any of w (Window), a, with commas]: ",
        );
        check(json!({ "type": "string", "title": "\u{1b}[2J" }), true, "\u{fffd}[2J: ");
    }

    #[test]
    fn a_field_and_an_answer_fit_into_a_line_each() {
        let schema = json!({
            "properties": {
                "seat": { "enum": ["w", "a"], "enumNames": ["Window", "Aisle"], "title": "Seat" },
                "confirm": { "type": "boolean", "description": "book it\nnow" },
                "count": { "type": "integer", "minimum": 2 },
                "notes": { "type": "string" },
            },
            "required": ["seat", "confirm", "count"],
        });
        let lines: Vec<_> = fields(&schema).iter().map(PromptField::in_one_line).collect();
        let expected = [
            "seat [w (Window) | a (Aisle)] Seat",
            "confirm [y/n] (book it now)",
            "count [a whole number]",
            "notes [may be empty]",
        ];
        assert_eq!(
            lines.iter().collect::<std::collections::BTreeSet<_>>(),
            expected.map(String::from).iter().collect()
        );
        let example = example_answer(&schema).unwrap();
        assert_eq!(example, json!({ "seat": "w", "confirm": true, "count": 2 }));
        assert_eq!(example_answer(&json!({ "properties": { "note": {} } })), Some(json!({ "note": "…" })));
        assert_eq!(example_answer(&json!({})), None);
    }

    #[test]
    fn a_field_may_be_described_elsewhere() {
        let schema = json!({
            "$defs": { "Mood": { "enum": ["good", "bad"], "type": "string" } },
            "properties": {
                "mood": { "$ref": "#/$defs/Mood", "default": "good" },
                "age": { "anyOf": [{ "type": "integer" }, { "type": "null" }], "title": "Age", "default": null },
                "many": { "type": ["array", "null"], "items": { "type": "string" } },
            },
            "required": ["mood"],
        });
        let fields = fields(&schema);
        assert_eq!(fields[0].prompt(), "mood [good | bad; default: good]: ");
        assert_eq!(fields[1].prompt(), "Age [a whole number; may be empty]: ");
        assert_eq!(fields[1].read("7"), Ok(Some(json!(7))));
        assert_eq!(fields[1].read(""), Ok(None));
        assert_eq!(fields[2].read(r#"["a,b"]"#), Ok(Some(json!(["a,b"]))));
        assert_eq!(fields[2].read("a, b"), Ok(Some(json!(["a", "b"]))));
    }
}
