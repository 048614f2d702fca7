//! Values that are mirrored into headers: `Mcp-Name` and `Mcp-Param-*`.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::Value;

const OPEN: &str = "=?base64?";
const CLOSE: &str = "?=";

/// Decodes a header's value. `None`: it is malformed.
pub fn decode_value(header: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(header).ok()?;
    if !text.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\t')) {
        return None;
    }
    let Some(encoded) = text.strip_prefix(OPEN).and_then(|rest| rest.strip_suffix(CLOSE)) else {
        return Some(text.to_owned());
    };
    String::from_utf8(BASE64_STANDARD.decode(encoded).ok()?).ok()
}

/// The arguments that a tool wants mirrored: the header's name after `Mcp-Param-`, and the path of the argument.
/// Only arguments reachable through `properties` count.
pub fn mirrored_arguments(schema: &Value) -> Vec<(String, Vec<String>)> {
    let mut found = vec![];
    collect(schema, &mut vec![], &mut found);
    found
}

fn collect(schema: &Value, path: &mut Vec<String>, found: &mut Vec<(String, Vec<String>)>) {
    if let Some(name) = schema.get("x-mcp-header").and_then(Value::as_str)
        && !path.is_empty()
    {
        found.push((name.to_owned(), path.clone()));
    }
    for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        path.push(name.clone());
        collect(property, path, found);
        path.pop();
    }
}

/// The argument at a path.
pub fn value_at<'a>(arguments: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(arguments, |value, name| value.get(name)).filter(|value| !value.is_null())
}

/// Whether a header has the same value as an argument. Numbers are compared as numbers.
pub fn same_value(header: &str, argument: &Value) -> bool {
    match argument {
        Value::String(text) => header == text,
        Value::Bool(flag) => header == if *flag { "true" } else { "false" },
        Value::Number(number) => match (header.trim().parse::<f64>(), number.as_f64()) {
            (Ok(said), Some(meant)) => said == meant,
            _ => false,
        },
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn headers_are_decoded_where_they_say_so() {
        let check = |header: &str, value: Option<&str>| {
            assert_eq!(decode_value(header.as_bytes()).as_deref(), value, "{header}");
        };
        check("us-west1", Some("us-west1"));
        check("=?base64?SGVsbG8sIOS4lueVjA==?=", Some("Hello, 世界"));
        check("=?base64?IHBhZGRlZCA=?=", Some(" padded "));
        check("=?base64?***?=", None);
        check("=?base64?/w==?=", None);
        check("=?base64?unfinished", Some("=?base64?unfinished"));
        assert_eq!(decode_value(b"caf\xc3\xa9"), None, "not ASCII");
    }

    #[test]
    fn what_is_mirrored_is_what_properties_lead_to() {
        let schema = json!({
            "type": "object",
            "properties": {
                "region": { "type": "string", "x-mcp-header": "Region" },
                "at": { "type": "object", "properties": { "zone": { "type": "integer", "x-mcp-header": "Zone" } } },
                "list": { "type": "array", "items": { "type": "string", "x-mcp-header": "Not" } },
            },
        });
        let expected = vec![
            ("Region".to_owned(), vec!["region".to_owned()]),
            ("Zone".to_owned(), vec!["at".to_owned(), "zone".to_owned()]),
        ];
        assert_eq!(mirrored_arguments(&schema), expected);
        let arguments = json!({ "region": null, "at": { "zone": 7 } });
        assert_eq!(value_at(&arguments, &expected[0].1), None);
        assert!(same_value("7.0", value_at(&arguments, &expected[1].1).unwrap()));
        assert!(!same_value("8", &json!(7)));
        assert!(same_value("true", &json!(true)) && !same_value("True", &json!(true)));
    }
}
