//! The agent for the A2A integration test kit, `examples/a2a_itk`: two servers that call each other by the kit's nested
//! instructions, in both directions, over each binding and with each behaviour.

#[path = "../../../../examples/a2a_itk/agent.rs"]
mod agent;
#[path = "../../../../examples/a2a_itk/call.rs"]
mod call;
#[path = "../../../../examples/a2a_itk/instruction.rs"]
mod instruction;

use std::time::Duration;

use agent::ItkAgent;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use instruction::{CallBehaviour, CallInstruction, Instruction};
use nuncio::{Nuncio, RunningServer, prelude::*};
use tempfile::TempDir;
use tokio::{io::AsyncReadExt as _, io::AsyncWriteExt as _, net::TcpListener, sync::mpsc};

/// A field of protobuf's encoding with a length.
fn bytes_field(number: u8, value: impl AsRef<[u8]>) -> Vec<u8> {
    let (mut field, mut length) = (vec![number << 3 | 2], value.as_ref().len());
    while length >= 0x80 {
        field.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    field.push(length as u8);
    field.extend(value.as_ref());
    field
}

fn flag_field(number: u8, value: bool) -> Vec<u8> {
    vec![number << 3, value.into()]
}

fn respond(text: &str, hold: bool) -> Vec<u8> {
    bytes_field(2, [bytes_field(1, text), flag_field(2, hold)].concat())
}

fn call(call: &CallInstruction) -> Vec<u8> {
    let behaviour = match &call.behaviour {
        CallBehaviour::SendMessage => bytes_field(5, ""),
        CallBehaviour::PushNotification { url } => bytes_field(6, bytes_field(1, url)),
        CallBehaviour::Resubscribe => bytes_field(7, ""),
    };
    let CallInstruction { transport, card_uri, instruction, streaming, .. } = call;
    let named = [bytes_field(1, transport), bytes_field(2, card_uri), bytes_field(3, instruction)].concat();
    bytes_field(1, [named, flag_field(4, *streaming), behaviour].concat())
}

fn series(steps: &[Vec<u8>]) -> Vec<u8> {
    let steps: Vec<u8> = steps.iter().flat_map(|step| bytes_field(1, step)).collect();
    bytes_field(3, [steps, flag_field(2, true)].concat())
}

async fn start() -> (RunningServer, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let nuncio = Nuncio::new().agent(ItkAgent).listen("127.0.0.1:0").data(dir.path().join("data"));
    (nuncio.base_path("/jsonrpc").allow_private_webhooks(true).start().await.unwrap(), dir)
}

/// Sends an instruction as the kit does, and returns the body of the response.
async fn send(server: &RunningServer, instruction: &[u8], streaming: bool, webhook: Option<&str>) -> String {
    let method = if streaming { "SendStreamingMessage" } else { "SendMessage" };
    let part = json!({
        "raw": BASE64_STANDARD.encode(instruction), "mediaType": "application/x-protobuf", "filename": "instruction.bin",
    });
    let mut params = json!({ "message": { "messageId": "kit", "role": "ROLE_USER", "parts": [part] } });
    if let Some(url) = webhook {
        params["configuration"] =
            json!({ "taskPushNotificationConfig": { "url": format!("{url}/notifications") } });
    }
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let request = client.post(format!("{}/jsonrpc/", server.url())).header("A2A-Version", "1.0");
    let request = request.header("Content-Type", "application/json").body(body.to_string());
    let mut response = request.send().await.unwrap();
    let mut text = String::new();
    while let Some(chunk) = response.chunk().await.unwrap() {
        text.push_str(std::str::from_utf8(&chunk).unwrap());
        // Like the kit, which does not wait for the end of a task that is held.
        if streaming && text.contains("traversal-completed") {
            break;
        }
    }
    text
}

/// A receiver of webhooks: its URL, and the bodies as they arrive.
async fn receiver() -> (String, mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (sender, received) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let sender = sender.clone();
            tokio::spawn(async move {
                let (mut read, mut buffer) = (vec![], [0; 4096]);
                loop {
                    match stream.read(&mut buffer).await {
                        Ok(count) if count > 0 => read.extend(&buffer[..count]),
                        _ => return,
                    }
                    let text = String::from_utf8_lossy(&read).into_owned();
                    let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
                    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
                    if body.len() >= length.and_then(|length| length.parse().ok()).unwrap_or(0) {
                        let _ = sender.send(body.to_owned());
                        read.clear();
                        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
                    }
                }
            });
        }
    });
    (url, received)
}

/// The way there and back over one binding, as the kit nests it.
fn round_trip(
    [first, second]: [&RunningServer; 2],
    transport: &str,
    behaviour: &CallBehaviour,
    streaming: bool,
) -> Vec<u8> {
    let hold = *behaviour == CallBehaviour::Resubscribe;
    let hop = |to: &RunningServer, token: &str, instruction: Vec<u8>| {
        let call_instruction = CallInstruction {
            transport: transport.to_owned(),
            card_uri: to.url().to_owned(),
            instruction,
            streaming,
            behaviour: behaviour.clone(),
        };
        series(&[respond(token, hold), call(&call_instruction)])
    };
    let last = respond(&format!("traversal-completed:{transport}"), hold);
    series(&[hop(second, "there", hop(first, "back", last))])
}

const TRANSPORTS: [&str; 3] = ["jsonrpc", "http_json", "grpc"];

#[tokio::test]
async fn instructions_lead_through_both_servers_over_every_binding() {
    let ((first, _one), (second, _two)) = (start().await, start().await);
    for transport in TRANSPORTS {
        let expected = format!("there\\nback\\ntraversal-completed:{transport}");
        for streaming in [false, true] {
            for both in [[&first, &second], [&second, &first]] {
                let instruction = round_trip(both, transport, &CallBehaviour::SendMessage, streaming);
                let answer = send(both[0], &instruction, streaming, None).await;
                assert!(answer.contains(&expected), "{transport}, streaming {streaming}: {answer}");
            }
        }
    }
    first.stop().await;
    second.stop().await;
}

#[tokio::test]
async fn every_server_on_the_way_notifies_of_its_response() {
    let ((first, _one), (second, _two)) = (start().await, start().await);
    for transport in TRANSPORTS {
        let (url, mut received) = receiver().await;
        let behaviour = CallBehaviour::PushNotification { url: url.clone() };
        let instruction = round_trip([&first, &second], transport, &behaviour, false);
        send(&first, &instruction, false, Some(&url)).await;
        let done = format!("traversal-completed:{transport}");
        let mut missing = vec![done.clone(), format!("back\\n{done}"), format!("there\\nback\\n{done}")];
        while !missing.is_empty() {
            let next = tokio::time::timeout(Duration::from_secs(30), received.recv()).await;
            let body =
                next.unwrap_or_else(|_| panic!("{transport}: no notification of {missing:?}")).unwrap();
            missing.retain(|state| !body.contains(&format!("\"{state}\"")));
        }
    }
    first.stop().await;
    second.stop().await;
}

#[tokio::test]
async fn a_held_task_is_followed_by_a_second_subscription_and_canceled() {
    let ((first, _one), (second, _two)) = (start().await, start().await);
    for transport in TRANSPORTS {
        let instruction = round_trip([&first, &second], transport, &CallBehaviour::Resubscribe, true);
        let answer = send(&first, &instruction, true, None).await;
        for token in ["there", "back", &format!("traversal-completed:{transport}")] {
            assert!(answer.contains(token), "{transport}: {answer}");
        }
    }
    first.stop().await;
    second.stop().await;
}

#[test]
fn what_is_no_instruction_is_none() {
    let read = Instruction::decode(&series(&[respond("a", false), respond("b", true)])).unwrap();
    assert!(read.holds());
    let mut nested = respond("deep", false);
    for _ in 0..100 {
        nested = series(&[nested]);
    }
    for bytes in [b"".as_slice(), b"\xff", b"\x12\x7f", b"hello", &nested] {
        assert_eq!(Instruction::decode(bytes), None);
    }
}
