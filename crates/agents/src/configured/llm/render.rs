//! Renders messages and tasks as text for a model: data becomes JSON, a file its name.

use nuncio_client::model::{ModelReply, ModelRequest, ModelTurn};
use nuncio_engine::{Content, Message, Part, State, Task};
use serde_json::Value;

/// Bytes of a tool result that a model is shown.
pub(super) const MAX_RESULT: usize = 64 * 1024;

/// Estimated bytes per token, for a provider that does not report tokens.
const BYTES_PER_TOKEN: usize = 4;

/// Renders a message.
pub(super) fn render_message(message: &Message) -> String {
    match (&message.parts[..], message.data()) {
        // A tool call wraps plain text in an object; only the text is meant.
        ([_], Some(Value::Object(data))) if data.len() == 1 => match data.get("text") {
            Some(Value::String(text)) => text.clone(),
            _ => render_parts(&message.parts),
        },
        _ => render_parts(&message.parts),
    }
}

/// Renders parts, one after another.
pub(super) fn render_parts(parts: &[Part]) -> String {
    let texts: Vec<String> = parts.iter().map(render_part).filter(|text| !text.is_empty()).collect();
    texts.join("\n")
}

fn render_part(part: &Part) -> String {
    let file = |size: String| {
        let name = part.filename.as_deref().unwrap_or("without a name");
        let kind = part.media_type.as_deref().unwrap_or("of an unknown type");
        format!("[a file that is not shown here: {name}, {kind}{size}]")
    };
    match &part.content {
        Content::Text(text) => text.clone(),
        Content::Data(value) => value.to_string(),
        Content::Bytes(bytes) => file(format!(", {} bytes", bytes.len())),
        Content::Url(url) => file(format!(", {url}")),
    }
}

/// Renders a called task: its artifacts, then its final message unless that repeats them. Also returns
/// whether it failed.
pub(super) fn render_task(task: &Task) -> (String, bool) {
    let made: Vec<String> = task.artifacts.iter().map(|artifact| render_parts(&artifact.parts)).collect();
    let last = task.status_message.as_ref().map(render_message).unwrap_or_default();
    let failed = task.state != State::Completed;
    let mut texts: Vec<&str> = made.iter().map(String::as_str).filter(|text| !text.is_empty()).collect();
    if !last.is_empty() && !texts.contains(&last.as_str()) {
        texts.push(&last);
    }
    let text = match (failed, texts.is_empty()) {
        (false, true) => "It completed without a result.".to_owned(),
        (false, false) => texts.join("\n"),
        (true, _) => {
            let how = format!("{:?}", task.state).to_lowercase();
            format!(
                "It ended as {how}: {}",
                if texts.is_empty() { "no reason was given".into() } else { texts.join("\n") }
            )
        }
    };
    (truncate_text(text), failed)
}

/// Truncates a text to what a model is shown, and notes the omission.
pub(super) fn truncate_text(mut text: String) -> String {
    let all = text.len();
    if all > MAX_RESULT {
        text.truncate(text.floor_char_boundary(MAX_RESULT));
        text.push_str(&format!("\n[cut here: it has {all} bytes, and {MAX_RESULT} are shown]"));
    }
    text
}

/// The estimated number of tokens of a request and its reply.
pub(super) fn guessed_tokens(request: &ModelRequest, said: &ModelReply) -> u64 {
    let of_said = |said: &ModelReply| {
        let calls: usize = said.calls.iter().map(|call| call.name.len() + call.arguments.len()).sum();
        said.text.len() + calls
    };
    let turns: usize = request
        .turns
        .iter()
        .map(|turn| match turn {
            ModelTurn::User(text) => text.len(),
            ModelTurn::Model(said) => of_said(said),
            ModelTurn::Results(results) => results.iter().map(|result| result.text.len()).sum(),
        })
        .sum();
    let tools: usize =
        request.tools.iter().map(|tool| tool.description.len() + tool.schema.to_string().len()).sum();
    let bytes = request.system.as_ref().map_or(0, String::len) + turns + tools + of_said(said);
    (bytes / BYTES_PER_TOKEN) as u64
}

#[cfg(test)]
mod tests {
    use nuncio_engine::Role;
    use serde_json::json;

    use super::*;

    #[test]
    fn text_and_data_are_shown_and_files_are_named() {
        let mut file = Part::from(Content::Bytes(vec![1, 2, 3]));
        file.filename = Some("a.png".into());
        file.media_type = Some("image/png".into());
        let parts = vec![Part::text("Look:"), Part::data(json!({ "n": 1 })), file];
        let message = Message::of("m", Role::User, parts);
        let expected = "Look:\n{\"n\":1}\n[a file that is not shown here: a.png, image/png, 3 bytes]";
        assert_eq!(render_message(&message), expected);
        let only_text = Message::of("m", Role::User, vec![Part::data(json!({ "text": "hi" }))]);
        assert_eq!(render_message(&only_text), "hi");
    }

    #[test]
    fn what_is_too_long_is_cut_with_a_word() {
        let text = truncate_text("é".repeat(MAX_RESULT));
        assert!(text.len() < MAX_RESULT + 100);
        assert!(
            text.ends_with(&format!(
                "[cut here: it has {} bytes, and {MAX_RESULT} are shown]",
                2 * MAX_RESULT
            ))
        );
        assert_eq!(truncate_text("short".into()), "short");
    }
}
