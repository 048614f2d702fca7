//! Tool answers as the types of the flows' contracts (`api.rs` of each flow).
//!
//! `--output json` prints what the server sent, also where a newer server sends more; text is made from the typed
//! value.

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use nuncio_client::mcp::ToolError;

use super::{error::CliError, server_connection::ServerConnection};

/// The answer of a tool: as it was sent, and as this program reads it.
pub(crate) struct TypedAnswer<T> {
    pub(crate) json: Value,
    pub(crate) value: T,
}

impl ServerConnection {
    /// Calls a tool with a typed request; returns its typed answer.
    pub(crate) async fn call_typed<T: DeserializeOwned>(
        &self,
        tool: &str,
        request: &impl Serialize,
    ) -> Result<TypedAnswer<T>, CliError> {
        let json = self.call(tool, self.arguments(request)?).await?;
        self.typed(tool, json)
    }

    /// The same for one of many calls: retries a call that was certainly not executed.
    pub(crate) async fn call_typed_with_retry<T: DeserializeOwned>(
        &self,
        tool: &str,
        request: &impl Serialize,
    ) -> Result<TypedAnswer<T>, CliError> {
        let json = self.call_with_retry(tool, &self.arguments(request)?).await?;
        self.typed(tool, json)
    }

    /// The same for a read-only tool, with retries, so that it survives a restart of the server.
    pub(crate) async fn poll_typed<T: DeserializeOwned>(
        &self,
        tool: &str,
        request: &impl Serialize,
    ) -> Result<TypedAnswer<T>, CliError> {
        let json = self.poll_tool(tool, &self.arguments(request)?).await?;
        self.typed(tool, json)
    }

    /// Reads an answer of a tool or a resource.
    pub(crate) fn typed<T: DeserializeOwned>(
        &self,
        what: &str,
        json: Value,
    ) -> Result<TypedAnswer<T>, CliError> {
        match T::deserialize(&json) {
            Ok(value) => Ok(TypedAnswer { json, value }),
            Err(error) => Err(self.failed(ToolError::Malformed(format!(
                "{what} answered what this version of nuncio cannot read ({error}): update the older of the two"
            )))),
        }
    }

    /// Prints an answer: the JSON as it was sent, or text made from the typed value.
    pub(crate) fn print_typed<T>(
        &self,
        answer: &TypedAnswer<T>,
        text: impl FnOnce(&T) -> String,
    ) -> Result<(), CliError> {
        self.print(&answer.json, |_| text(&answer.value))
    }

    /// The arguments of a call, from a typed request.
    pub(crate) fn arguments(&self, request: &impl Serialize) -> Result<Value, CliError> {
        serde_json::to_value(request).map_err(|error| CliError::Usage(error.to_string()))
    }
}
