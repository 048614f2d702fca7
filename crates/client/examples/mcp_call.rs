//! Calls a tool of any MCP server and prints what happens, one JSON object a line.
//!
//! ```text
//! mcp_call http://127.0.0.1:8080/mcp TOOL '{"text":"hello"}'
//! mcp_call '["npx","-y","@modelcontextprotocol/server-everything"]' TOOL '{}'
//! mcp_call PLACE --offers
//! mcp_call PLACE --request resources/list '{}'
//! mcp_call PLACE --handle '{"offer":…}'
//! ```
//!
//! `--answers '[…]'` answers the questions in the order in which they come: `"decline"`, `"cancel"`, `"unavailable"`,
//! or data to accept with; the last one counts for all that follow. Without it questions stay open. `--leave KIND`
//! ends at once, as by a crash, after the first thing of that kind that comes after a handle (`kept` itself
//! included); `--cancel KIND` stops the call there. `--version REVISION` insists on a revision, `--no-forms`,
//! `--no-links` and `--no-sampling` declare less, `--bearer TOKEN` shows a token.

#![allow(clippy::print_stdout, reason = "what happens goes to standard output")]

use std::{process::ExitCode, sync::Arc};

use nuncio_client::{
    auth::Bearer,
    mcp::{McpPeer, McpPeerOptions},
    peer::{CallEvent, Peer as _, PeerCall, PeerCallRequest, PeerError, PeerLocation, PeerProgram},
};
use nuncio_engine::{
    Answer, Level, State,
    content::{Message, Part, Role},
};
use nuncio_wire::mcp::McpVersion;
use serde_json::{Value, json};

/// What to do.
struct Order {
    place: PeerLocation,
    options: McpPeerOptions,
    what: What,
    answers: Vec<Value>,
    leave: Option<String>,
    cancel: Option<String>,
}

enum What {
    Offers,
    Request(String, Value),
    Call(String, Value),
    Resume(Value),
}

#[tokio::main]
async fn main() -> ExitCode {
    let order = match read(std::env::args().skip(1)) {
        Ok(order) => order,
        Err(why) => {
            say(&json!({ "error": "usage", "why": why }));
            return ExitCode::from(2);
        }
    };
    let peer = McpPeer::new(order.place.clone(), order.options.clone());
    let done = carry_out(&peer, &order).await;
    peer.close().await;
    match done {
        Ok(State::Completed) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(3),
        Err(error) => {
            let kind = format!("{error:?}");
            let kind = kind.split(['(', ' ']).next().unwrap_or_default().to_lowercase();
            say(&json!({ "error": kind, "why": error.to_string() }));
            ExitCode::FAILURE
        }
    }
}

async fn carry_out(peer: &McpPeer, order: &Order) -> Result<State, PeerError> {
    match &order.what {
        What::Offers => {
            let offers = peer.list_capabilities().await?;
            say(&json!({ "server": peer.name(), "version": peer.version().await?.name() }));
            for offer in offers {
                say(&json!({
                    "offer": offer.name, "title": offer.title, "description": offer.description,
                    "inputSchema": offer.input_schema, "idempotent": offer.idempotent,
                }));
            }
            Ok(State::Completed)
        }
        What::Request(method, params) => {
            say(&json!({ "result": peer.request(method, params.clone()).await? }));
            Ok(State::Completed)
        }
        What::Call(tool, arguments) => {
            let input = Message::of("mcp_call", Role::User, vec![Part::data(arguments.clone())]);
            let begin = PeerCallRequest { offer: tool.clone(), input, context: None, trace: None };
            follow(peer.begin(begin).await?, order).await
        }
        What::Resume(handle) => {
            let handle = serde_json::from_value(handle.clone())
                .map_err(|error| PeerError::Gone(format!("the handle is none: {error}")))?;
            follow(peer.resume(&handle).await?, order).await
        }
    }
}

async fn follow(mut call: PeerCall, order: &Order) -> Result<State, PeerError> {
    let mut answers = order.answers.iter();
    let mut last = None;
    let mut kept = false;
    loop {
        let happened = call.next().await?;
        let (kind, told) = told(&happened);
        say(&json!({ kind: told }));
        kept |= kind == "kept";
        if kept && order.leave.as_deref() == Some(kind) {
            // As by a crash: nothing is closed, nobody is told.
            std::process::exit(9);
        }
        if order.cancel.as_deref() == Some(kind) {
            call.cancel().await?;
        }
        match happened {
            CallEvent::Ended(ended) => return Ok(ended.state),
            CallEvent::Question(question) => {
                last = answers.next().or(last);
                if let Some(answer) = last {
                    let taken = call.answer(&question.id, answer_of(answer)).await;
                    let error = taken.err().map(|error| error.to_string());
                    say(&json!({ "answered": question.id, "error": error }));
                }
            }
            _ => {}
        }
    }
}

fn answer_of(answer: &Value) -> Answer {
    match answer.as_str() {
        Some("decline") => Answer::Decline(None),
        Some("cancel") => Answer::Cancel,
        Some("unavailable") => Answer::Unavailable,
        _ => Answer::Accept(answer.clone()),
    }
}

fn told(happened: &CallEvent) -> (&'static str, Value) {
    match happened {
        CallEvent::HandleUpdated(handle) => ("kept", json!(handle)),
        CallEvent::Progress(progress) => ("progress", json!(progress)),
        CallEvent::Log(line) => ("log", json!(line)),
        CallEvent::Artifact(chunk) => ("artifact", json!(chunk)),
        CallEvent::Context(context) => ("context", json!(context)),
        CallEvent::Message(message) => ("said", json!(message)),
        CallEvent::Question(question) => ("asks", json!(question)),
        CallEvent::QuestionClosed(question) => ("settled", json!(question)),
        CallEvent::Ended(ended) => ("ended", json!({ "state": ended.state, "message": ended.message })),
    }
}

fn read(mut arguments: impl Iterator<Item = String>) -> Result<Order, String> {
    let mut options = McpPeerOptions { log_level: Level::Debug.into(), ..McpPeerOptions::default() };
    let (mut words, mut answers, mut leave, mut cancel) = (vec![], vec![], None, None);
    let (mut what, mut bearer) = (None, None);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument}: a value is missing"));
        match argument.as_str() {
            "--answers" => match json_in(&value()?)? {
                Value::Array(given) => answers = given,
                _ => return Err("--answers: expected an array".into()),
            },
            "--leave" => leave = Some(value()?),
            "--cancel" => cancel = Some(value()?),
            "--version" => {
                let name = value()?;
                options.version = Some(McpVersion::parse(&name).ok_or(format!("there is no MCP {name}"))?);
            }
            "--bearer" => bearer = Some(value()?),
            "--no-forms" => options.declared.forms = false,
            "--no-links" => options.declared.links = false,
            "--no-sampling" => options.declared.sampling = false,
            "--offers" => what = Some(What::Offers),
            "--request" => what = Some(What::Request(value()?, Value::Null)),
            "--handle" => what = Some(What::Resume(json_in(&value()?)?)),
            _ => words.push(argument),
        }
    }
    let mut words = words.into_iter();
    let place = words.next().ok_or("the place is missing: a URL, or a command as a JSON array")?;
    let place = match place.starts_with('[') {
        true => {
            let command = serde_json::from_str(&place).map_err(|error| format!("the command: {error}"))?;
            let env = std::env::vars().filter(|(name, _)| name.starts_with("MCP_CALL_")).collect();
            PeerLocation::Command(PeerProgram { command, env, dir: None })
        }
        false => PeerLocation::Url(place.parse().map_err(|error| format!("{place}: {error}"))?),
    };
    if let (Some(token), PeerLocation::Url(url)) = (bearer, &place) {
        options.authorizer = Some(Arc::new(Bearer::new(token, url)));
    }
    let params =
        |words: &mut dyn Iterator<Item = String>| words.next().map_or(Ok(json!({})), |text| json_in(&text));
    let what = match what {
        Some(What::Request(method, _)) => What::Request(method, params(&mut words)?),
        Some(what) => what,
        None => {
            let tool = words.next().ok_or("the tool is missing")?;
            What::Call(tool, params(&mut words)?)
        }
    };
    Ok(Order { place, options, what, answers, leave, cancel })
}

fn json_in(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| format!("{text}: not JSON: {error}"))
}

fn say(line: &Value) {
    println!("{line}");
}
