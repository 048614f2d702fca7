//! An echo tool and a resource on rmcp 3.8.0, the official Rust SDK.
//!
//! As it comes, it keeps sessions and answers each request with a stream. With `--stateless` it keeps none and
//! answers with JSON: the cheapest that it has for MCP 2026-07-28, which knows no sessions.

use std::sync::Arc;

use anyhow::Context;
use axum::{Router, serve::ListenerExt};
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    handler::server::wrapper::Parameters,
    model::{
        ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, ResourceContents,
        ServerCapabilities, ServerConfig,
    },
    schemars,
    service::RequestContext,
    tool, tool_handler, tool_router,
    transport::streamable_http_server::{
        StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
    },
};
use serde::Deserialize;
use tokio::net::TcpListener;

const TEXT_BYTES: usize = 1024;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let usage = "usage: peer-rmcp PORT [--stateless]";
    let port: u16 = std::env::args().nth(1).context(usage)?.parse().context(usage)?;
    let config = match std::env::args().nth(2).as_deref() {
        None => StreamableHttpServerConfig::default(),
        Some("--stateless") => {
            StreamableHttpServerConfig::default().with_legacy_session_mode(false).with_json_response(true)
        }
        Some(_) => anyhow::bail!(usage),
    };
    let service = StreamableHttpService::new(|| Ok(Bench), Arc::<LocalSessionManager>::default(), config);
    let listener = TcpListener::bind(("127.0.0.1", port)).await?.tap_io(|stream| {
        let _ = stream.set_nodelay(true);
    });
    axum::serve(listener, Router::new().nest_service("/mcp", service)).await?;
    Ok(())
}

#[derive(Clone)]
struct Bench;

#[derive(Deserialize, schemars::JsonSchema)]
struct Echo {
    text: String,
}

#[tool_router]
impl Bench {
    #[tool(description = "Returns the text.")]
    fn echo_tool(&self, Parameters(Echo { text }): Parameters<Echo>) -> String {
        text
    }
}

#[tool_handler]
impl ServerHandler for Bench {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().enable_resources().build())
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        Ok(ReadResourceResult::new(vec![ResourceContents::text("x".repeat(TEXT_BYTES), request.uri)]).into())
    }
}
