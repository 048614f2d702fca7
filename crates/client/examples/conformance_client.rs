//! The client that the official MCP conformance suite tests: it uses everything that the server at the URL offers.
//!
//! ```text
//! conformance client --command target/debug/examples/conformance_client --scenario tools_call
//! ```
//!
//! The suite says which revision to speak (`MCP_CONFORMANCE_PROTOCOL_VERSION`), and for some scenarios which tools to
//! call with what (`MCP_CONFORMANCE_CONTEXT`). Questions are answered with what their schemas propose.

#![allow(clippy::print_stderr, reason = "the suite shows what is said there")]

use std::{process::ExitCode, time::Duration};

use nuncio_client::{
    mcp::{McpOptions, McpPeer},
    peer::{Begin, Ended, Happened, Offer, Peer as _, PeerError, Place},
};
use nuncio_engine::{
    Answer,
    content::{Message, Part, Role},
    question::{Ask, Question},
};
use nuncio_wire::mcp::Version;
use serde_json::{Map, Value, json};

#[tokio::main]
async fn main() -> ExitCode {
    let Some(url) = std::env::args().next_back().and_then(|url| url.parse().ok()) else {
        eprintln!("usage: conformance_client URL");
        return ExitCode::from(2);
    };
    let version = std::env::var("MCP_CONFORMANCE_PROTOCOL_VERSION").ok();
    let version = version.and_then(|name| Version::parse(&name));
    let options = McpOptions { version, request_timeout: Duration::from_secs(10), ..McpOptions::default() };
    let peer = McpPeer::new(Place::Url(url), options);
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

async fn use_everything(peer: &McpPeer) -> Result<(), PeerError> {
    let offers = peer.offers().await?;
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
    let context = std::env::var("MCP_CONFORMANCE_CONTEXT").ok()?;
    let context: Value = serde_json::from_str(&context).ok()?;
    let calls = context["toolCalls"].as_array()?.iter();
    Some(
        calls
            .filter_map(|call| Some((call["name"].as_str()?.to_owned(), call["arguments"].clone())))
            .collect(),
    )
}

async fn call(peer: &McpPeer, tool: &str, arguments: Value) -> Result<Ended, PeerError> {
    let input = Message::of("conformance", Role::User, vec![Part::data(arguments)]);
    let begin = Begin { offer: tool.to_owned(), input, context: None, trace: None };
    let mut call = peer.begin(begin).await?;
    loop {
        match call.next().await? {
            Happened::Asks(question) => call.answer(&question.id, answer_to(&question)).await?,
            Happened::Ended(ended) => return Ok(ended),
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

fn arguments_for(offer: &Offer, offers: &[Offer]) -> Value {
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
