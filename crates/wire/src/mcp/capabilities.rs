//! The capabilities that a client declares.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::McpVersion;

/// The name of the tasks extension.
pub const TASKS: &str = "io.modelcontextprotocol/tasks";

/// The client capabilities that this server uses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientCapabilities {
    /// It can show forms (elicitation).
    pub form: bool,
    /// It can send the user to a URL (elicitation).
    pub url: bool,
    /// It has a model for sampling.
    pub sampling: bool,
    /// It can list its root folders.
    pub roots: bool,
    /// It accepts a task instead of a result (the extension of 2026-07-28).
    pub tasks: bool,
}

impl ClientCapabilities {
    /// Reads declared capabilities. A capability that the revision does not have counts as not declared.
    pub fn read(declared: &Value, version: McpVersion) -> Self {
        let elicitation = declared.get("elicitation").and_then(Value::as_object);
        let url = elicitation.is_some_and(|modes| modes.contains_key("url"));
        // An empty object means forms, as it did before elicitation had modes.
        let form = elicitation.is_some_and(|modes| modes.contains_key("form") || !modes.contains_key("url"));
        Self {
            form: form && version >= McpVersion::V2025_06_18,
            url: url && version >= McpVersion::V2025_11_25,
            sampling: declared.get("sampling").is_some_and(Value::is_object),
            roots: declared.get("roots").is_some_and(Value::is_object),
            tasks: version.is_stateless()
                && declared.get("extensions").and_then(|e| e.get(TASKS)).is_some_and(Value::is_object),
        }
    }
}
