//! A call of the next agent, by its card, over the binding that the instruction names.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use nuncio::{
    client::a2a::{
        A2aBinding, A2aClient, A2aClientError, A2aCredentials, A2aHttpOptions, AgentCard, CardReference,
        Dialect, InterfacePreference, SendMessage, StreamEvent, fetch_card,
    },
    engine::webhook::WebhookConfig,
    prelude::*,
};

use super::{
    agent::FINISHED,
    instruction::{CallBehaviour, CallInstruction},
};

/// What the receiver of webhooks sees with each.
const TOKEN: &str = "itk-token";

/// Sends the instruction that is for the called agent, in a message of this id, and returns the texts of its response.
pub(crate) async fn call(call: &CallInstruction, message_id: String) -> Result<Vec<String>, A2aClientError> {
    let options = A2aHttpOptions::default();
    let card = fetch_card(&CardReference::parse(&call.card_uri)?, &options).await?.value;
    let preference = preference(&card, binding(&call.transport));
    let client = A2aClient::new(&card, &preference, &A2aCredentials::default(), &options)?;
    let mut send = SendMessage::new(Message::of(message_id, Role::User, parts(&client, &call.instruction)));
    match &call.behaviour {
        CallBehaviour::Resubscribe => return resubscribe(&client, send).await,
        CallBehaviour::PushNotification { url } => send.webhook = Some(webhook(url, client.dialect())),
        CallBehaviour::SendMessage => {}
    }
    if !call.streaming {
        return Ok(texts_of(&client.send(send).await?.value));
    }
    let mut events = client.send_streaming(send).await?;
    let mut results = vec![];
    while let Some(item) = events.next().await? {
        results.extend(texts_of(&item.event.value));
    }
    Ok(results)
}

/// Disconnects after the first event, follows the task by a subscription until it has responded, and cancels it.
async fn resubscribe(client: &A2aClient, send: SendMessage) -> Result<Vec<String>, A2aClientError> {
    let mut events = client.send_streaming(send).await?;
    events.next().await?;
    let Some(task) = events.task().map(str::to_owned) else { return Err(A2aClientError::Ended) };
    drop(events);
    let mut events = client.subscribe(&task, None).await?;
    let mut results = vec![];
    while let Some(item) = events.next().await? {
        let event = &item.event.value;
        let mut found = texts_of(event);
        let is_ended = match event {
            StreamEvent::Task(task) => {
                // Another status may have followed the response before the subscription.
                let said = task.history.iter().filter(|message| message.role == Role::Agent);
                found.extend(said.flat_map(texts).filter(|text| text.contains(FINISHED)).take(1));
                task.state.is_terminal()
            }
            StreamEvent::Status(update) => update.state.is_terminal(),
            StreamEvent::Message(_) | StreamEvent::Artifact(_) => false,
        };
        let is_finished = found.iter().any(|text| text.contains(FINISHED));
        results.extend(found.iter().map(|text| text.replace(FINISHED, "")));
        if is_finished && !is_ended {
            client.cancel(&task).await?;
        }
        if is_finished || is_ended {
            break;
        }
    }
    Ok(results)
}

/// The parts that hold an instruction.
fn parts(client: &A2aClient, instruction: &[u8]) -> Vec<Part> {
    let file = |bytes: Vec<u8>| Part {
        filename: Some("instruction.bin".into()),
        media_type: Some("application/x-protobuf".into()),
        ..Part::from(Content::Bytes(bytes))
    };
    if client.dialect() >= Dialect::V1 || client.binding() == A2aBinding::JsonRpc {
        return vec![file(instruction.to_vec())];
    }
    // The official SDKs of 0.3 do not agree on the bytes of a file in protobuf: base64 (Python, Go) or the bytes themselves
    // (JavaScript). The agent for the latter also reads base64 in a text.
    let encoded = BASE64_STANDARD.encode(instruction);
    vec![Part::text(encoded.clone()), file(encoded.into_bytes())]
}

/// The binding that the kit names, and the newest version in which the agent has it.
fn preference(card: &AgentCard, binding: A2aBinding) -> InterfacePreference {
    let offered = card.interfaces.iter().filter(|interface| interface.binding == binding);
    let dialect = offered.map(|interface| interface.dialect).max().unwrap_or(Dialect::V1);
    InterfacePreference { bindings: vec![binding.name().to_owned()], only: true, dialect }
}

fn binding(transport: &str) -> A2aBinding {
    match transport.to_ascii_lowercase().as_str() {
        "grpc" => A2aBinding::Grpc,
        "http_json" | "http+json" | "rest" => A2aBinding::HttpJson,
        _ => A2aBinding::JsonRpc,
    }
}

fn webhook(url: &str, dialect: Dialect) -> WebhookConfig {
    let scheme = if url.contains("://") { "" } else { "http://" };
    WebhookConfig {
        id: String::new(),
        url: format!("{scheme}{url}/notifications"),
        token: Some(TOKEN.into()),
        authentication: None,
        dialect: dialect.name().into(),
    }
}

/// The texts of the agent's message in an event.
fn texts_of(event: &StreamEvent) -> Vec<String> {
    let message = match event {
        StreamEvent::Task(task) => task.message.as_ref(),
        StreamEvent::Status(update) => update.message.as_ref(),
        StreamEvent::Message(addressed) => Some(&addressed.message),
        StreamEvent::Artifact(_) => None,
    };
    message.into_iter().flat_map(texts).collect()
}

fn texts(message: &Message) -> impl Iterator<Item = String> {
    message.parts.iter().filter_map(Part::as_text).map(str::to_owned)
}
