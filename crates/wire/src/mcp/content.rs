//! Content blocks: text, images, audio, resources. Written by the server, read by the client.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use nuncio_engine::{
    Content, Part,
    surface::{ContentBlock, ResourceBody, ResourceContent},
};
use serde_json::Value;

use super::McpVersion;
use crate::json;

/// Writes a block.
pub(super) fn write_block(out: &mut Vec<u8>, version: McpVersion, block: &ContentBlock) {
    match block {
        ContentBlock::Text(text) => write_text(out, text),
        ContentBlock::Image { data, media_type } => write_media(out, "image", data, media_type),
        // 2024-11-05 has no audio blocks; it becomes a file there.
        ContentBlock::Audio { data, media_type } if version == McpVersion::V2024_11_05 => {
            write_file(out, "audio", data, Some(media_type));
        }
        ContentBlock::Audio { data, media_type } => write_media(out, "audio", data, media_type),
        ContentBlock::Resource(content) => json::object(out, |block| {
            block.value("type", "resource");
            write_content(block.key("resource"), content);
        }),
        ContentBlock::Link { uri, name, media_type } => {
            write_link(out, version, uri, name, media_type.as_deref());
        }
    }
}

/// Writes a part of an agent's output as a block. `place` is its name if the protocol requires one.
pub(super) fn write_part(out: &mut Vec<u8>, version: McpVersion, part: &Part, place: &str) {
    let media_type = part.media_type.as_deref();
    let name = part.filename.as_deref().unwrap_or(place);
    match &part.content {
        Content::Text(text) => write_text(out, text),
        Content::Data(value) => write_text(out, &value.to_string()),
        Content::Url(url) => write_link(out, version, url, name, media_type),
        Content::Bytes(bytes) => match media_type {
            Some(kind) if kind.starts_with("image/") => write_media(out, "image", bytes, kind),
            Some(kind) if kind.starts_with("audio/") && version > McpVersion::V2024_11_05 => {
                write_media(out, "audio", bytes, kind);
            }
            _ => write_file(out, name, bytes, media_type),
        },
    }
}

/// Writes the content of a resource.
pub(super) fn write_content(out: &mut Vec<u8>, content: &ResourceContent) {
    json::object(out, |resource| {
        resource.value("uri", &content.uri);
        resource.optional("mimeType", content.media_type.as_ref());
        match &content.body {
            ResourceBody::Text(text) => {
                let out = resource.key("text");
                // With its escapes a text of JSON grows by about a sixth. A long one would else be copied as the
                // buffer grows.
                out.reserve(text.len() + text.len() / 4);
                json::value(out, text);
            }
            ResourceBody::Bytes(bytes) => json::base64(resource.key("blob"), bytes),
        }
        resource.optional("_meta", content.meta.as_ref());
    });
}

fn write_text(out: &mut Vec<u8>, text: &str) {
    json::object(out, |block| {
        block.value("type", "text");
        block.value("text", text);
    });
}

fn write_media(out: &mut Vec<u8>, kind: &str, data: &[u8], media_type: &str) {
    json::object(out, |block| {
        block.value("type", kind);
        json::base64(block.key("data"), data);
        block.value("mimeType", media_type);
    });
}

fn write_file(out: &mut Vec<u8>, name: &str, bytes: &[u8], media_type: Option<&str>) {
    json::object(out, |block| {
        block.value("type", "resource");
        block.object("resource", |resource| {
            resource.value("uri", &format!("file:///{name}"));
            resource.optional("mimeType", media_type);
            json::base64(resource.key("blob"), bytes);
        });
    });
}

fn write_link(out: &mut Vec<u8>, version: McpVersion, uri: &str, name: &str, media_type: Option<&str>) {
    if version < McpVersion::V2025_06_18 {
        // Earlier revisions have no links; the URI becomes text.
        return write_text(out, uri);
    }
    json::object(out, |block| {
        block.value("type", "resource_link");
        block.value("uri", uri);
        block.value("name", name);
        block.optional("mimeType", media_type);
    });
}

/// Reads a block. A block of an unknown kind, or one that cannot be decoded, is kept as data.
pub(super) fn read_block(block: &Value) -> Part {
    read_known_block(block).unwrap_or_else(|| Part::data(block.clone()))
}

fn read_known_block(block: &Value) -> Option<Part> {
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
