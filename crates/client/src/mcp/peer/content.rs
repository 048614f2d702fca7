//! Converts the result of a tool to the engine's parts.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use nuncio_engine::content::{Content, Message, Part, Role};
use nuncio_engine::task::State;
use serde_json::Value;

use crate::peer::PeerCallEnd;

/// The parts of a result: its content blocks, and the structured result if there is one.
pub(super) fn parts(result: &Value) -> Vec<Part> {
    let structured = result.get("structuredContent").filter(|value| !value.is_null());
    let blocks = result["content"].as_array().map(Vec::as_slice).unwrap_or_default();
    // Servers repeat the structured result as text for older clients.
    let repeats = |block: &&Value| {
        let text = block["text"].as_str().filter(|_| block["type"] == "text");
        structured.is_some()
            && text.and_then(|text| serde_json::from_str::<Value>(text).ok()).as_ref() == structured
    };
    let mut parts: Vec<Part> = blocks.iter().filter(|block| !repeats(block)).map(part).collect();
    parts.extend(structured.cloned().map(Part::data));
    parts
}

/// The end of a call whose tool reports an error. `None`: it did not.
pub(super) fn failed(result: &Value, id: &str) -> Option<PeerCallEnd> {
    if result["isError"].as_bool() != Some(true) {
        return None;
    }
    let mut said = parts(result);
    if said.is_empty() {
        said.push(Part::text("the tool failed, and does not say why"));
    }
    Some(PeerCallEnd { state: State::Failed, message: Some(Message::of(id, Role::Agent, said)) })
}

/// Converts a content block. A block of an unknown kind is kept as data.
fn part(block: &Value) -> Part {
    known(block).unwrap_or_else(|| Part::data(block.clone()))
}

fn known(block: &Value) -> Option<Part> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    match block["type"].as_str()? {
        "text" => text(&block["text"]).map(Part::text),
        "image" | "audio" => {
            let bytes = BASE64_STANDARD.decode(block["data"].as_str()?).ok()?;
            Some(Part { media_type: text(&block["mimeType"]), ..Content::Bytes(bytes).into() })
        }
        "resource" => {
            let resource = &block["resource"];
            let content = match (resource["text"].as_str(), resource["blob"].as_str()) {
                (Some(text), _) => Content::Text(text.to_owned()),
                (None, Some(blob)) => Content::Bytes(BASE64_STANDARD.decode(blob).ok()?),
                (None, None) => return None,
            };
            let uri = text(&resource["uri"]);
            let filename = uri.as_deref().and_then(last_segment);
            let metadata = uri.map(|uri| [("uri".to_owned(), uri.into())].into_iter().collect());
            Some(Part { content, metadata, filename, media_type: text(&resource["mimeType"]) })
        }
        "resource_link" => {
            let content = Content::Url(text(&block["uri"])?);
            let (filename, media_type) = (text(&block["name"]), text(&block["mimeType"]));
            Some(Part { content, metadata: None, filename, media_type })
        }
        _ => None,
    }
}

fn last_segment(uri: &str) -> Option<String> {
    let name = uri.split(['?', '#']).next()?.rsplit('/').next()?;
    (!name.is_empty()).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_kind_of_content_is_a_part() {
        let check = |block: Value, expected: Part| {
            assert_eq!(parts(&json!({ "content": [block] })), [expected]);
        };
        check(json!({ "type": "text", "text": "hello" }), Part::text("hello"));
        let bytes = |media_type: &str| Part {
            media_type: Some(media_type.into()),
            ..Content::Bytes(b"abc".into()).into()
        };
        check(json!({ "type": "image", "data": "YWJj", "mimeType": "image/png" }), bytes("image/png"));
        check(json!({ "type": "audio", "data": "YWJj", "mimeType": "audio/wav" }), bytes("audio/wav"));
        let link =
            json!({ "type": "resource_link", "uri": "memory://a", "name": "a", "mimeType": "text/plain" });
        let content = Content::Url("memory://a".into());
        let (filename, media_type) = (Some("a".into()), Some("text/plain".into()));
        check(link, Part { content, metadata: None, filename, media_type });
        let embedded =
            json!({ "type": "resource", "resource": { "uri": "file:///x/y.txt", "text": "inside" } });
        let read = parts(&json!({ "content": [embedded] }));
        assert_eq!((read[0].as_text(), read[0].filename.as_deref()), (Some("inside"), Some("y.txt")));
        // A block that cannot be decoded is kept.
        let damaged = json!({ "type": "image", "data": "***", "mimeType": "image/png" });
        check(damaged.clone(), Part::data(damaged));
        let unknown = json!({ "type": "smell" });
        check(unknown.clone(), Part::data(unknown));
    }

    #[test]
    fn a_structured_result_is_there_once() {
        let result = json!({
            "content": [{ "type": "text", "text": "{ \"n\": 1 }" }, { "type": "text", "text": "one" }],
            "structuredContent": { "n": 1 },
        });
        assert_eq!(parts(&result), [Part::text("one"), Part::data(json!({ "n": 1 }))]);
    }

    #[test]
    fn a_tool_that_failed_says_why() {
        assert_eq!(failed(&json!({ "content": [] }), "m"), None);
        let content = json!([{ "type": "text", "text": "no such city" }]);
        let ended = failed(&json!({ "isError": true, "content": content }), "m").unwrap();
        assert_eq!(
            (ended.state, ended.message.unwrap().joined_text().as_str()),
            (State::Failed, "no such city")
        );
    }
}
