//! The contract of the registry: what its tools take, and what its tools and its resource answer. The doc
//! comments of the fields are published as their descriptions.

#![allow(missing_docs, reason = "a doc comment is published; most names say enough")]

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::Breaker;

/// The arguments of `agents_list`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentsListRequest {
    /// Only those who are so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<AgentHealth>,
    /// Only those who have this skill.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub skill: Option<String>,
}

/// The arguments of `agents_probe`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentsProbeRequest {
    /// As agents_list has it.
    #[schemars(length(max = 64))]
    pub name: String,
}

/// Whether the last attempt to reach an agent succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AgentHealth {
    Healthy,
    Unhealthy,
}

impl AgentHealth {
    /// Its name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Unhealthy => "unhealthy",
        }
    }
}

/// Whether an agent is one of this server's, or by which protocol it is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ListedAgentKind {
    Local,
    A2a,
    Mcp,
}

/// The answer of `agents_list`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct AgentsListAnswer {
    pub agents: Vec<AgentSummary>,
    pub discovery: DiscoverySummary,
}

/// The content of `a2a://agents/registry`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct AgentRegistryAnswer {
    pub agents: Vec<AgentDetails>,
    pub discovery: DiscoverySummary,
}

/// An agent or MCP server in a list.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentSummary {
    /// The name of the agent.
    pub agent_type: String,
    /// Null for a remote, like its card and its errors, unless the caller is of the operator's tenant.
    pub url: Option<String>,
    pub status: AgentHealth,
    pub capabilities: Vec<String>,
    #[schemars(extend("format" = "date-time"))]
    pub last_seen: Option<String>,
    pub kind: ListedAgentKind,
    pub breaker: Breaker,
    pub last_error: Option<String>,
    /// How long the last probe took; null where nobody was probed.
    #[schemars(range(min = 0))]
    pub latency_ms: Option<f64>,
}

/// An agent or MCP server with its card. The answer of `agents_probe`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentDetails {
    #[serde(flatten)]
    pub summary: AgentSummary,
    pub agent_card: Option<Map<String, Value>>,
    pub server_info: Option<Map<String, Value>>,
}

/// How many agents are known, and when they were last looked for.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiscoverySummary {
    #[schemars(extend("format" = "date-time"))]
    pub last_scan: Option<String>,
    pub total_agents: u64,
    pub healthy_agents: u64,
}
