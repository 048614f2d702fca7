//! A minimal MCP client for measurements: stateless requests (2026-07-28).

use nuncio::prelude::{Value, json};

use crate::Outcome;

pub(crate) struct Wire {
    http: reqwest::Client,
    url: String,
}

impl Wire {
    pub(crate) fn new(server: &str) -> Self {
        // Plain HTTP on loopback; the client requires a TLS provider all the same.
        let _ = rustls::crypto::ring::default_provider().install_default();
        Self { http: reqwest::Client::new(), url: format!("{server}/mcp") }
    }

    pub(crate) async fn read(&self, uri: &str) -> Outcome<Value> {
        self.request("resources/read", uri, json!({ "uri": uri })).await
    }

    pub(crate) async fn tool(&self, name: &str, arguments: Value) -> Outcome<Value> {
        self.request("tools/call", name, json!({ "name": name, "arguments": arguments })).await
    }

    async fn request(&self, method: &str, name: &str, mut params: Value) -> Outcome<Value> {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": { "name": "bench", "version": "1" },
        });
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let answer = self
            .http
            .post(&self.url)
            .header("accept", "application/json, text/event-stream")
            .header("mcp-protocol-version", "2026-07-28")
            .header("mcp-method", method)
            .header("mcp-name", name)
            .json(&body)
            .send()
            .await?;
        let answer: Value = serde_json::from_slice(&answer.bytes().await?)?;
        match answer.get("error") {
            Some(error) => Err(format!("{method} {name}: {error}").into()),
            None => Ok(answer["result"].clone()),
        }
    }
}
