//! The client that the official MCP conformance suite tests: it uses everything that the server at the URL offers.
//!
//! ```text
//! conformance client --command target/debug/examples/conformance_client --scenario tools_call
//! ```
//!
//! The suite says which revision to speak (`MCP_CONFORMANCE_PROTOCOL_VERSION`), and for some scenarios which tools to
//! call with what, or as which client (`MCP_CONFORMANCE_CONTEXT`). Questions are answered with what their schemas propose,
//! and consent is given to everything.

#![allow(clippy::print_stderr, reason = "the suite shows what is said there")]

use std::{process::ExitCode, sync::Arc, time::Duration};

use async_trait::async_trait;
use nuncio_client::{
    auth::Authorizer,
    mcp::{McpPeer, McpPeerOptions},
    oauth::{Consent, ConsentVisit, MemoryTokenStore, OAuth, OAuthClient, OAuthOptions},
    peer::{CallEvent, Peer as _, PeerCallEnd, PeerCallRequest, PeerCapability, PeerError, PeerLocation},
};
use nuncio_engine::{
    Answer,
    content::{Message, Part, Role},
    question::{Ask, Question},
};
use nuncio_wire::mcp::McpVersion;
use serde_json::{Map, Value, json};
use url::Url;

/// Where the suite takes this client's metadata to be.
const METADATA: &str = "https://conformance-test.local/client-metadata.json";

#[tokio::main]
async fn main() -> ExitCode {
    let Some(url) = std::env::args().next_back().and_then(|url| url.parse().ok()) else {
        eprintln!("usage: conformance_client URL");
        return ExitCode::from(2);
    };
    let version = std::env::var("MCP_CONFORMANCE_PROTOCOL_VERSION").ok();
    let version = version.and_then(|name| McpVersion::parse(&name));
    let authorizer = match authorizer() {
        Ok(authorizer) => Some(authorizer),
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::FAILURE;
        }
    };
    let request_timeout = Duration::from_secs(10);
    let options = McpPeerOptions { version, request_timeout, authorizer, ..McpPeerOptions::default() };
    let peer = McpPeer::new(PeerLocation::Url(url), options);
    let done = use_everything(&peer).await;
    peer.close().await;
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// What gets tokens, as the client that the suite wants this one to be.
fn authorizer() -> Result<Arc<dyn Authorizer>, String> {
    let context = context();
    let text = |member: &str| context[member].as_str().map(str::to_owned);
    let client = text("client_id").map(|id| OAuthClient {
        id,
        secret: text("client_secret"),
        method: None,
        redirect_uri: None,
    });
    let scenario = std::env::var("MCP_CONFORMANCE_SCENARIO").unwrap_or_default();
    let options = OAuthOptions {
        metadata_url: Url::parse(METADATA).ok(),
        client,
        for_itself: scenario.starts_with("auth/client-credentials"),
        ..OAuthOptions::default()
    };
    let oauth = OAuth::new(options, Arc::new(MemoryTokenStore::default()), Arc::new(Yes))?;
    Ok(Arc::new(oauth))
}

/// Somebody who says yes to everything, without a browser.
struct Yes;

#[async_trait]
impl Consent for Yes {
    async fn prepare(&self, _: Option<&str>) -> Result<Box<dyn ConsentVisit>, String> {
        Ok(Box::new(Self))
    }
}

#[async_trait]
impl ConsentVisit for Yes {
    fn redirect_uri(&self) -> &str {
        "http://localhost:3000/callback"
    }

    async fn ask(self: Box<Self>, url: &Url) -> Result<Url, String> {
        let client = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none());
        let client = client.build().map_err(|error| error.to_string())?;
        let answer = client.get(url.clone()).send().await.map_err(|error| error.to_string())?;
        let back = answer.headers().get("location").and_then(|back| back.to_str().ok());
        back.and_then(|back| Url::parse(back).ok()).ok_or_else(|| format!("HTTP {}", answer.status()))
    }
}

/// What the suite says beside the address.
fn context() -> Value {
    let context = std::env::var("MCP_CONFORMANCE_CONTEXT").unwrap_or_default();
    serde_json::from_str(&context).unwrap_or_default()
}

async fn use_everything(peer: &McpPeer) -> Result<(), PeerError> {
    let offers = peer.list_capabilities().await?;
    let calls = wanted().unwrap_or_else(|| {
        offers.iter().map(|offer| (offer.name.clone(), arguments_for(offer, &offers))).collect()
    });
    for (tool, arguments) in calls {
        match call(peer, &tool, arguments).await {
            Ok(ended) => eprintln!("{tool}: {:?}", ended.state),
            Err(error) => eprintln!("{tool}: {error}"),
        }
    }
    let listed = async |method: &str, member: &str| match peer.request(method, json!({})).await {
        Ok(mut result) => result[member].take().as_array().cloned().unwrap_or_default(),
        // A server need not have any.
        Err(_) => vec![],
    };
    for resource in listed("resources/list", "resources").await {
        let _ = peer.request("resources/read", json!({ "uri": resource["uri"] })).await;
    }
    for prompt in listed("prompts/list", "prompts").await {
        let arguments = prompt["arguments"].as_array().into_iter().flatten();
        let arguments: Map<String, Value> = arguments
            .filter_map(|argument| Some((argument["name"].as_str()?.to_owned(), "something".into())))
            .collect();
        let params = json!({ "name": prompt["name"], "arguments": arguments });
        let _ = peer.request("prompts/get", params).await;
    }
    Ok(())
}

/// The calls that the suite wants.
fn wanted() -> Option<Vec<(String, Value)>> {
    let context = context();
    let calls = context["toolCalls"].as_array()?.iter();
    Some(
        calls
            .filter_map(|call| Some((call["name"].as_str()?.to_owned(), call["arguments"].clone())))
            .collect(),
    )
}

async fn call(peer: &McpPeer, tool: &str, arguments: Value) -> Result<PeerCallEnd, PeerError> {
    let input = Message::of("conformance", Role::User, vec![Part::data(arguments)]);
    let begin = PeerCallRequest { offer: tool.to_owned(), input, context: None, trace: None };
    let mut call = peer.begin(begin).await?;
    loop {
        match call.next().await? {
            CallEvent::Question(question) => call.answer(&question.id, answer_to(&question)).await?,
            CallEvent::Ended(ended) => return Ok(ended),
            _ => {}
        }
    }
}

fn answer_to(question: &Question) -> Answer {
    Answer::Accept(match &question.ask {
        Ask::Form { schema } => filled_in(schema, |property| property.get("default").is_some()),
        Ask::Sample { .. } => json!({ "text": "something" }),
        Ask::Authorization { .. } => json!({}),
    })
}

fn arguments_for(offer: &PeerCapability, offers: &[PeerCapability]) -> Value {
    let mut arguments = filled_in(offer.input_schema.as_ref().unwrap_or(&Value::Null), |_| true);
    // A tool that is told a schema wants to see what became of the first one.
    if let (Some(schema), Some(first)) = (arguments.get_mut("schema"), offers.first()) {
        *schema = first.input_schema.clone().unwrap_or_default();
    }
    arguments
}

/// An object that fits a schema: what is required, and what else is wanted.
fn filled_in(schema: &Value, wanted: impl Fn(&Value) -> bool) -> Value {
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let properties = schema["properties"].as_object().into_iter().flatten();
    let filled = properties
        .filter(|(name, property)| required.contains(&name.as_str()) || wanted(property))
        .map(|(name, property)| (name.clone(), value_for(property)));
    Value::Object(filled.collect())
}

fn value_for(property: &Value) -> Value {
    if let Some(default) = property.get("default") {
        return default.clone();
    }
    if let Some(choice) = property["enum"].get(0).or_else(|| property["oneOf"][0].get("const")) {
        return choice.clone();
    }
    match property["type"].as_str() {
        Some("integer" | "number") => 5.into(),
        Some("boolean") => true.into(),
        Some("array") => json!([]),
        Some("object") => filled_in(property, |_| false),
        _ => "something".into(),
    }
}
