//! Previews of values in listings. Secrets are redacted, because the reader of a preview did not request that value.

use nuncio_engine::redact::Redactor;
use serde_json::{Map, Value};

/// Maximum characters of a preview.
const CHARACTERS: usize = 120;
/// Maximum bytes of a value that are read for its preview.
const LOOKED_AT: usize = 16 * 1024;
/// Characters removed before the point where a text was truncated. The redactor recognizes a secret from fewer
/// characters, so no unrecognized half of one remains.
const CUT_EDGE: usize = 256;

/// The beginning of a value as compact JSON.
pub(super) fn preview(redactor: &Redactor, value: &Value) -> String {
    let mut left = LOOKED_AT;
    let text = redactor.json(&beginning(redactor, value, &mut left)).to_string();
    match text.char_indices().nth(CHARACTERS) {
        None => text,
        // One character is the ellipsis.
        Some(_) => text.chars().take(CHARACTERS - 1).chain(['…']).collect(),
    }
}

/// The part of a value that is read for its preview.
fn beginning(redactor: &Redactor, value: &Value, left: &mut usize) -> Value {
    match value {
        Value::String(text) if text.len() <= *left => {
            *left -= text.len();
            value.clone()
        }
        Value::String(text) => {
            let cut = redactor.text(&text[..text.floor_char_boundary(*left)]).into_owned();
            *left = 0;
            let kept = cut.chars().count().saturating_sub(CUT_EDGE);
            Value::String(cut.chars().take(kept).chain(['…']).collect())
        }
        Value::Array(items) => {
            let mut kept = vec![];
            for item in items {
                if *left == 0 {
                    break;
                }
                *left -= 1;
                kept.push(beginning(redactor, item, left));
            }
            Value::Array(kept)
        }
        Value::Object(fields) => {
            let mut kept = Map::new();
            for (name, field) in fields {
                if *left <= name.len() {
                    *left = 0;
                    break;
                }
                *left -= name.len() + 1;
                kept.insert(name.clone(), beginning(redactor, field, left));
            }
            Value::Object(kept)
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_preview_is_short_and_tells_no_secret() {
        let redactor = Redactor::default();
        assert_eq!(preview(&redactor, &json!({ "a": 1 })), r#"{"a":1}"#);
        let long = preview(&redactor, &json!("ü".repeat(500)));
        assert_eq!((long.chars().count(), long.ends_with('…')), (120, true));
        assert_eq!(preview(&redactor, &json!("x".repeat(118))).chars().count(), 120);
        let value =
            json!({ "password": "hunter2", "note": "key sk-live-abcdefghijklmnop", "api_key": ["hunter2"] });
        let shown = preview(&redactor, &value);
        assert!(!shown.contains("hunter2") && !shown.contains("sk-live"), "{shown}");
    }

    #[test]
    fn a_secret_at_the_edge_of_what_is_looked_at_is_not_shown_by_half() {
        // A token so long that it is a single word when it is redacted, and the secret after it is truncated.
        let token = format!("eyJ{}.{}.x", "a".repeat(20), "b".repeat(LOOKED_AT - 45));
        let shown = preview(&Redactor::default(), &json!(format!("{token} sk-live-abcdefghijklmnop")));
        assert!(!shown.contains("sk-live"), "{shown}");
        let many = json!(vec![json!({ "n": 1 }); 100_000]);
        assert!(preview(&Redactor::default(), &many).starts_with(r#"[{"n":1},"#));
    }
}
