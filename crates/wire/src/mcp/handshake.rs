//! The handshake: `server/discover` (2026-07-28) and `initialize` (before), as the client writes the requests and reads
//! the results, and as the server writes the results.

use serde_json::{Value, json};

use super::{
    ClientCapabilities, HEADER_MISMATCH, Implementation, MISSING_CAPABILITY, McpVersion, ServerCapabilities,
    UNSUPPORTED_VERSION, notification::take,
};
use crate::{json::JsonObject, jsonrpc::RpcErrorObject};

/// The `_meta` member that describes a server.
pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";

/// How a client describes itself: once in `initialize`, from 2026-07-28 on in every request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientDescription {
    /// What it supports.
    pub capabilities: ClientCapabilities,
    /// Its name and version.
    pub info: Implementation,
}

impl ClientDescription {
    /// The params of `initialize` for that revision.
    pub fn initialize_params(&self, version: McpVersion) -> Value {
        json!({
            "protocolVersion": version.name(),
            "capabilities": self.capabilities.write(version),
            "clientInfo": self.info,
        })
    }

    /// Adds the description to the `_meta` of a stateless request.
    pub fn add_to(&self, params: &mut Value, version: McpVersion) {
        let meta = &mut params["_meta"];
        meta["io.modelcontextprotocol/protocolVersion"] = version.name().into();
        meta["io.modelcontextprotocol/clientCapabilities"] = self.capabilities.write(version);
        meta["io.modelcontextprotocol/clientInfo"] = json!(self.info);
    }
}

/// How a server describes itself.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ServerDescription {
    /// `serverInfo` as received: its name and version.
    pub info: Value,
    /// Its declared capabilities.
    pub capabilities: ServerCapabilities,
}

impl ServerDescription {
    /// The server's name for people.
    pub fn display_name(&self) -> Option<&str> {
        [&self.info["title"], &self.info["name"]].into_iter().find_map(Value::as_str)
    }
}

/// Writes the members of the result of `initialize`.
pub fn write_initialize_result(
    result: &mut JsonObject<'_>,
    version: McpVersion,
    info: &Implementation,
    instructions: Option<&String>,
) {
    result.value("protocolVersion", version.name());
    result.value("capabilities", ServerCapabilities::of_nuncio(version).as_json());
    result.value("serverInfo", info);
    result.optional("instructions", instructions);
}

/// Writes the members of the result of `server/discover`, without `_meta`, `resultType` and cache hints.
pub fn write_discover_result(
    result: &mut JsonObject<'_>,
    version: McpVersion,
    instructions: Option<&String>,
) {
    let versions: Vec<&str> = McpVersion::ALL.iter().rev().map(|version| version.name()).collect();
    result.value("supportedVersions", &versions);
    result.value("capabilities", ServerCapabilities::of_nuncio(version).as_json());
    result.optional("instructions", instructions);
}

/// The result of `initialize`, as a client reads it.
#[derive(Debug, Clone, PartialEq)]
pub struct InitializeResult {
    /// The name of the revision that the server selected; empty if it names none.
    pub version: String,
    /// The server.
    pub server: ServerDescription,
}

impl InitializeResult {
    /// Reads a result. Tolerant: see [`super::read_messages`].
    pub fn read(mut result: Value) -> Self {
        Self {
            version: result["protocolVersion"].as_str().unwrap_or_default().to_owned(),
            server: ServerDescription {
                info: take(&mut result, "serverInfo"),
                capabilities: ServerCapabilities::from_json(take(&mut result, "capabilities")),
            },
        }
    }
}

/// The outcome of `server/discover`, as a client reads it.
#[derive(Debug, Clone, PartialEq)]
pub enum DiscoverReply {
    /// The server speaks the newest revision.
    Newest(ServerDescription),
    /// It does not; it may have named the newest that it speaks.
    Older(Option<McpVersion>),
    /// It asks for the request in the revision in which it was sent.
    SameVersion,
    /// It speaks only revisions that are not known here; these are their names, as received.
    NoKnownVersion(Value),
    /// It knows the request and refuses it.
    Refused(RpcErrorObject),
}

impl DiscoverReply {
    /// Reads an outcome. Only the body of the response distinguishes the revisions, never a single code: older
    /// servers reject an unknown method in many different ways.
    pub fn read(outcome: Result<Value, RpcErrorObject>) -> Self {
        match outcome {
            Ok(mut result) if result.is_object() => {
                let newest = newest_of(&result["supportedVersions"]);
                if result["supportedVersions"].is_array() && !newest.is_some_and(McpVersion::is_stateless) {
                    return Self::Older(newest);
                }
                let info = [&result["_meta"][SERVER_INFO], &result["serverInfo"]];
                let info = info.into_iter().find(|info| info.is_object()).cloned().unwrap_or_default();
                let capabilities = ServerCapabilities::from_json(take(&mut result, "capabilities"));
                Self::Newest(ServerDescription { info, capabilities })
            }
            Ok(_) => Self::Older(None),
            Err(error) if error.code == i64::from(UNSUPPORTED_VERSION) => {
                let supported = error.data.map(|mut data| take(&mut data, "supported")).unwrap_or_default();
                match newest_of(&supported) {
                    Some(version) if version.is_stateless() => Self::SameVersion,
                    Some(version) => Self::Older(Some(version)),
                    None => Self::NoKnownVersion(supported),
                }
            }
            Err(error) if [HEADER_MISMATCH, MISSING_CAPABILITY].map(i64::from).contains(&error.code) => {
                Self::Refused(error)
            }
            Err(_) => Self::Older(None),
        }
    }
}

/// The newest known revision in a list of names.
fn newest_of(names: &Value) -> Option<McpVersion> {
    let names = names.as_array().into_iter().flatten().filter_map(Value::as_str);
    names.filter_map(McpVersion::parse).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_answers_tells_its_era() {
        let check = |outcome: Result<Value, (i64, Value)>, expected: &str| {
            let outcome = outcome.map_err(|(code, data)| RpcErrorObject {
                code,
                message: "words".into(),
                data: Some(data),
            });
            let said = format!("{outcome:?}");
            let found = match DiscoverReply::read(outcome) {
                DiscoverReply::Newest(server) => format!("newest, can {}", server.capabilities.as_json()),
                other => format!("{other:?}"),
            };
            assert!(found.starts_with(expected), "{said}: {found}");
        };
        let tools = json!({ "supportedVersions": ["2026-07-28"], "capabilities": { "tools": {} } });
        check(Ok(tools), r#"newest, can {"tools":{}}"#);
        check(Ok(json!({ "supportedVersions": "2026-07-28" })), "newest, can null");
        check(Ok(json!({ "supportedVersions": ["2025-06-18", "2025-03-26"] })), "Older(Some(V2025_06_18))");
        check(Ok(json!({ "supportedVersions": ["2999-01-01"] })), "Older(None)");
        check(Ok(json!(["2026-07-28"])), "Older(None)");
        let older = json!({ "supported": ["2025-11-25", "2024-11-05"] });
        check(Err((-32022, older)), "Older(Some(V2025_11_25))");
        check(Err((-32022, json!({ "supported": ["2999-01-01"] }))), "NoKnownVersion");
        check(Err((-32022, Value::Null)), "NoKnownVersion(Null)");
        check(Err((-32022, json!({ "supported": ["2026-07-28"] }))), "SameVersion");
        for code in [-32601, -32602, -32600, -32000, 0] {
            check(Err((code, Value::Null)), "Older(None)");
        }
        check(Err((-32020, Value::Null)), "Refused");
    }
}
