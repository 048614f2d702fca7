//! MCP: its requests in both eras, and the beginning of a session.

use anyhow::{Context, ensure};
use bytes::Bytes;
use http_body_util::Full;
use hyper::{Request, header::HeaderValue};

use crate::{
    connection::{Answer, Connection},
    request::{Dialect, Requests, TEXT},
};

pub(crate) const SESSION: &str = "mcp-session-id";
const PATH: &str = "/mcp";
const WITH_SESSIONS: &str = "2025-11-25";
const STATELESS: &str = "2026-07-28";
const STATELESS_META: &str = concat!(
    r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","#,
    r#""io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"},"#,
    r#""io.modelcontextprotocol/clientCapabilities":{}"#
);

/// The tools and the resource of every server, and the agents that only ours has.
pub(crate) const PLAIN: &str = "echo_tool";
pub(crate) const DURABLE: &str = "echo";
pub(crate) const TALKER: &str = "talker";
const RESOURCE: &str = "bench://text";
/// The beginning of what the resource holds.
pub(crate) const CONTENT: &str = "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx";
pub(crate) const LAST_WORDS: &str = "That was all.";

impl Requests {
    /// A call of a tool with a text. One that talks is asked for progress.
    pub(crate) fn call(&self, tool: &str) -> Request<Full<Bytes>> {
        let meta = self.meta(tool == TALKER);
        let params = format!(r#"{{{meta}"name":"{tool}","arguments":{{"text":"{TEXT}"}}}}"#);
        self.mcp("tools/call", tool, &params)
    }

    pub(crate) fn read(&self) -> Request<Full<Bytes>> {
        let params = format!(r#"{{{}"uri":"{RESOURCE}"}}"#, self.meta(false));
        self.mcp("resources/read", RESOURCE, &params)
    }

    fn is_stateless(&self) -> bool {
        self.dialect == Dialect::McpStateless
    }

    /// The member `_meta`, where there has to be one.
    fn meta(&self, progress: bool) -> String {
        let token = if progress { r#""progressToken":1"# } else { "" };
        match (self.is_stateless(), progress) {
            (false, false) => String::new(),
            (false, true) => format!(r#""_meta":{{{token}}},"#),
            (true, false) => format!(r#""_meta":{{{STATELESS_META}}},"#),
            (true, true) => format!(r#""_meta":{{{token},{STATELESS_META}}},"#),
        }
    }

    fn mcp(&self, method: &'static str, name: &str, params: &str) -> Request<Full<Bytes>> {
        let mut request = self.post(PATH, method, params);
        let headers = request.headers_mut();
        let version = if self.is_stateless() { STATELESS } else { WITH_SESSIONS };
        headers.insert("mcp-protocol-version", HeaderValue::from_static(version));
        if self.is_stateless() {
            headers.insert("mcp-method", HeaderValue::from_static(method));
            headers.insert("mcp-name", HeaderValue::from_str(name).expect("names here are plain"));
        }
        request
    }
}

/// Begins a session, to which the connection's requests belong from then on.
pub(crate) async fn begin_session(requests: &Requests, connection: &mut Connection) -> anyhow::Result<()> {
    let params = format!(
        r#"{{"protocolVersion":"{WITH_SESSIONS}","capabilities":{{}},"clientInfo":{{"name":"bench","version":"1"}}}}"#
    );
    let answer = connection.call(requests.post(PATH, "initialize", &params)).await?;
    succeeded("initialize", &answer)?;
    // Bare axum keeps none.
    connection.session = answer.headers.get(SESSION).cloned();
    let body = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    let mut request = requests.post_body(PATH, body.into());
    request.headers_mut().insert("mcp-protocol-version", HeaderValue::from_static(WITH_SESSIONS));
    let answer = connection.call(request).await.context("notifications/initialized")?;
    succeeded("notifications/initialized", &answer)
}

fn succeeded(what: &str, answer: &Answer) -> anyhow::Result<()> {
    let Answer { status, body, .. } = answer;
    ensure!(status.is_success(), "{what}: {status}: {}", String::from_utf8_lossy(body));
    Ok(())
}
