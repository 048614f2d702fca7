//! Full-text words of a JSON value. Both stores index and query the same runs of letters and digits, so that
//! their own definitions of a word make no difference.

use serde_json::Value;

/// The most bytes of words indexed for one value.
const TEXT_BYTES: usize = 64 * 1024;

/// The runs of letters and digits in a text.
pub fn words(text: &str) -> Vec<String> {
    runs(text).map(str::to_owned).collect()
}

fn runs(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric()).filter(|run| !run.is_empty())
}

/// The words of all strings and numbers in a value, separated by spaces; field names are not included.
pub(super) fn extract(value: &Value) -> String {
    let mut out = String::new();
    gather(value, &mut out);
    out
}

/// Returns false once the limit is reached.
fn gather(value: &Value, out: &mut String) -> bool {
    match value {
        Value::String(text) => add(text, out),
        Value::Number(number) => add(&number.to_string(), out),
        Value::Array(items) => items.iter().all(|item| gather(item, out)),
        Value::Object(fields) => fields.values().all(|field| gather(field, out)),
        Value::Null | Value::Bool(_) => true,
    }
}

fn add(text: &str, out: &mut String) -> bool {
    for run in runs(text) {
        let space = usize::from(!out.is_empty());
        let room = TEXT_BYTES.saturating_sub(out.len() + space);
        if room == 0 {
            return false;
        }
        if space == 1 {
            out.push(' ');
        }
        if run.len() > room {
            out.push_str(&run[..run.floor_char_boundary(room)]);
            return false;
        }
        out.push_str(run);
    }
    true
}

/// Whether arrays and objects are nested deeper than `levels`.
pub(super) fn deeper_than(value: &Value, levels: usize) -> bool {
    match value {
        Value::Array(items) => levels == 0 || items.iter().any(|item| deeper_than(item, levels - 1)),
        Value::Object(fields) => levels == 0 || fields.values().any(|field| deeper_than(field, levels - 1)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn strings_and_numbers_are_found_wherever_they_stand() {
        let value =
            json!({ "title": "Hello, World!", "n": [1, 2.5, { "x": "ünï_code" }], "no": [true, null] });
        assert_eq!(extract(&value), "Hello World 1 2 5 ünï code");
        assert_eq!(words("a-b c3"), ["a", "b", "c3"]);
        assert_eq!(extract(&json!({})), "");
    }

    #[test]
    fn a_long_value_is_cut_between_characters() {
        let text = extract(&json!(["a", "ü".repeat(TEXT_BYTES)]));
        assert_eq!(text.len(), TEXT_BYTES);
        let text = extract(&json!(vec!["word"; TEXT_BYTES]));
        assert!(text.len() <= TEXT_BYTES && text.starts_with("word word "));
    }
}
