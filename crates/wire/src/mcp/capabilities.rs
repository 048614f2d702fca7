//! The capabilities that a client and a server declare.

use nuncio_engine::TaskUse;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{EVENTS, McpVersion};

/// The name of the tasks extension.
pub const TASKS: &str = "io.modelcontextprotocol/tasks";

/// The client capabilities that a server here uses, and a client here has.
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

    /// Writes the capabilities in the form of a revision, without those that the revision does not have.
    pub fn write(self, version: McpVersion) -> Value {
        let mut capabilities = Map::new();
        let mut modes = Map::new();
        if version >= McpVersion::V2025_11_25 {
            for (declared, mode) in [(self.form, "form"), (self.url, "url")] {
                if declared {
                    modes.insert(mode.into(), json!({}));
                }
            }
        }
        let asks = self.form || (self.url && version >= McpVersion::V2025_11_25);
        if asks && version >= McpVersion::V2025_06_18 {
            capabilities.insert("elicitation".into(), Value::Object(modes));
        }
        for (declared, name) in [(self.sampling, "sampling"), (self.roots, "roots")] {
            if declared {
                capabilities.insert(name.into(), json!({}));
            }
        }
        if self.tasks && version.is_stateless() {
            capabilities.insert("extensions".into(), json!({ TASKS: {} }));
        }
        Value::Object(capabilities)
    }
}

/// The capabilities of a server, as declared.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ServerCapabilities(Value);

impl ServerCapabilities {
    /// The capabilities of the server of this workspace in that revision.
    pub fn of_nuncio(version: McpVersion) -> Self {
        let mut capabilities = json!({
            "tools": { "listChanged": true },
            "resources": { "listChanged": true, "subscribe": true },
            "prompts": { "listChanged": true },
            "logging": {},
        });
        if version >= McpVersion::V2025_03_26 {
            capabilities["completions"] = json!({});
        }
        if version == McpVersion::V2025_11_25 {
            capabilities["tasks"] =
                json!({ "list": {}, "cancel": {}, "requests": { "tools": { "call": {} } } });
            capabilities["experimental"] = json!({ EVENTS: {} });
        }
        if version.is_stateless() {
            capabilities["extensions"] = json!({ TASKS: {}, EVENTS: {} });
        }
        Self(capabilities)
    }

    /// Capabilities as received; anything is accepted.
    pub fn from_json(declared: Value) -> Self {
        Self(declared)
    }

    /// The capabilities as declared.
    pub fn as_json(&self) -> &Value {
        &self.0
    }

    /// The names of the declared capabilities, such as `tools` and `resources`.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.as_object().into_iter().flatten().map(|(name, _)| name.as_str())
    }

    /// Whether tool calls can be tasks, in the form of that revision.
    pub fn has_tasks(&self, version: McpVersion) -> bool {
        match version {
            McpVersion::V2025_11_25 => self.0["tasks"]["requests"]["tools"]["call"].is_object(),
            McpVersion::V2026_07_28 => self.0["extensions"][TASKS].is_object(),
            _ => false,
        }
    }

    /// Whether the client has to request a task for a call of a tool that uses them so. From 2026-07-28 on the
    /// server decides.
    pub fn wants_task_request(&self, version: McpVersion, tasks: TaskUse) -> bool {
        version == McpVersion::V2025_11_25 && self.has_tasks(version) && tasks != TaskUse::Never
    }

    /// Whether tasks can be followed by their events ([`EVENTS`]), in the form of that revision.
    pub fn has_events(&self, version: McpVersion) -> bool {
        match version {
            McpVersion::V2025_11_25 => self.0["experimental"][EVENTS].is_object(),
            McpVersion::V2026_07_28 => self.0["extensions"][EVENTS].is_object(),
            _ => false,
        }
    }

    /// Whether the server sends log lines.
    pub fn has_logging(&self) -> bool {
        self.0["logging"].is_object()
    }

    /// Whether the server announces changes of its tools.
    pub fn announces_tools(&self) -> bool {
        self.0["tools"]["listChanged"].as_bool() == Some(true)
    }
}
