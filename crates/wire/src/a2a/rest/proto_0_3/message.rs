//! Messages, artifacts and their parts.

use serde_json::{Value, json};

use super::{Members, ROLES, change, change_each, pick, read_name, rename, tagged, write_name};

pub(super) fn write_message(mut members: Members) -> Members {
    write_name(&mut members, "role", &ROLES);
    change_each(&mut members, "parts", write_part);
    rename(&mut members, "parts", "content");
    pick(members, &["messageId", "contextId", "taskId", "role", "content", "metadata", "extensions"])
}

/// Reads a message in either form.
pub(super) fn read_message(mut members: Members) -> Members {
    rename(&mut members, "content", "parts");
    read_name(&mut members, "role", &ROLES);
    change_each(&mut members, "parts", read_part);
    members
}

/// Reads a message of a result. Without a role it is the agent's, as for the official clients.
pub(super) fn read_said(mut members: Members) -> Members {
    if members.get("role").is_none_or(|role| *role == "ROLE_UNSPECIFIED" || *role == 0) {
        members.insert("role".to_owned(), "agent".into());
    }
    let mut message = read_message(members);
    change_each(&mut message, "parts", tag_part);
    tagged("message", message)
}

pub(super) fn write_artifact(members: Members) -> Members {
    let names = ["artifactId", "name", "description", "parts", "metadata", "extensions"];
    let mut artifact = pick(members, &names);
    change_each(&mut artifact, "parts", write_part);
    artifact
}

pub(super) fn read_artifact(mut artifact: Members) -> Members {
    change_each(&mut artifact, "parts", |part| tag_part(read_part(part)));
    artifact
}

fn write_part(mut members: Members) -> Members {
    change(&mut members, "file", |mut file| {
        rename(&mut file, "uri", "fileWithUri");
        rename(&mut file, "bytes", "fileWithBytes");
        file
    });
    if let Some(data) = members.get_mut("data") {
        *data = json!({ "data": data.take() });
    }
    pick(members, &["text", "file", "data", "metadata"])
}

fn read_part(mut part: Members) -> Members {
    change(&mut part, "file", |mut file| {
        const NAMES: [(&str, &str); 4] = [
            ("fileWithUri", "uri"),
            ("file_with_uri", "uri"),
            ("fileWithBytes", "bytes"),
            ("file_with_bytes", "bytes"),
        ];
        // An empty text is absence where its alternative is present.
        for (proto, plain) in NAMES {
            if file.get(proto).is_some_and(|value| value != "") {
                rename(&mut file, proto, plain);
            }
        }
        if !file.contains_key("uri") && !file.contains_key("bytes") {
            for (proto, plain) in NAMES.into_iter().rev() {
                rename(&mut file, proto, plain);
            }
        }
        file
    });
    let wrapped = |data: &Value| {
        data.as_object().is_some_and(|members| members.len() == 1 && members.contains_key("data"))
    };
    if !part.contains_key("kind") && part.get("data").is_some_and(wrapped) {
        let inner = part["data"]["data"].take();
        part.insert("data".to_owned(), inner);
    }
    part
}

fn tag_part(part: Members) -> Members {
    match ["text", "file", "data"].into_iter().find(|kind| part.contains_key(*kind)) {
        Some(kind) if !part.contains_key("kind") => tagged(kind, part),
        _ => part,
    }
}
