//! Variables of the environment, planted in every key of `[[agent]]` that takes one: their values reach the program or
//! the server that they are for, and no card, list, error, log line, trace, audit line or event.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    sync::{Arc, Mutex, PoisonError},
};

use axum::{Router, extract::State, http::HeaderMap, routing::post};
use serde_json::json;

use crate::{
    caller::{Caller, until},
    command::{nuncio_in, run},
    server_process::ServerProcess,
};

/// Every value that is planted begins so.
const PLANTED: &str = "zq7planted";

/// What arrived at the stand-in: spans of traces, and what the endpoint was sent.
#[derive(Clone, Default)]
struct Arrived {
    spans: Arc<Mutex<Vec<String>>>,
    endpoint: Arc<Mutex<Vec<String>>>,
}

/// A collector of traces, and an endpoint that repeats everything it was sent in its refusal.
fn listen() -> (String, Arrived) {
    let arrived = Arrived::default();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let router = Router::new()
        .route("/v1/traces", post(take_spans))
        .route("/gossip/{*rest}", post(repeat))
        .with_state(arrived.clone());
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            axum::serve(listener, router).await.unwrap();
        });
    });
    (url, arrived)
}

async fn take_spans(State(arrived): State<Arrived>, body: String) -> &'static str {
    arrived.spans.lock().unwrap_or_else(PoisonError::into_inner).push(body);
    "{}"
}

async fn repeat(
    State(arrived): State<Arrived>,
    uri: http::Uri,
    headers: HeaderMap,
) -> (http::StatusCode, String) {
    let seen = format!("{uri} {:?}", headers.get("x-api-key"));
    arrived.endpoint.lock().unwrap_or_else(PoisonError::into_inner).push(seen.clone());
    (http::StatusCode::BAD_REQUEST, format!("no such key: {seen}"))
}

/// The tables: each key that takes a variable has one of its own, `${P_AGENT_KEY}`.
fn tables(stand_in: &str) -> String {
    format!(
        r#"
audit = "all"
[otlp]
endpoint = "{stand_in}"
interval = "20ms"

[[agent]]
name = "absent"
kind = "process"
command = ["/no/such/${{P_ABSENT_COMMAND}}", "--key", "${{P_ABSENT_ARGUMENT}}"]

[[agent]]
name = "elsewhere"
kind = "process"
command = ["sh", "-c", "true"]
dir = "/no/such/${{P_ELSEWHERE_DIR}}"

[[agent]]
name = "chatty"
kind = "process"
restarts = 1
command = ["sh", "-c", '''read line; echo "usage: $0 needs $TOKEN" >&2; exit 3''', "${{P_CHATTY_COMMAND}}"]
env = {{ TOKEN = "${{P_CHATTY_ENV}}" }}

[[agent]]
name = "speaker"
kind = "process"
command = ["sh", "-c", '''read line; echo '{{"type":"log","text":"key '$0'"}}'; echo '{{"type":"progress","done":1,"text":"'$0'"}}'; echo '{{"type":"done","text":"used '$0'"}}' ''', "${{P_SPEAKER_COMMAND}}"]

[[agent]]
name = "unreachable"
kind = "http"
retries = 1
url = "http://127.0.0.1:1/${{P_UNREACHABLE_URL}}?key=${{P_UNREACHABLE_QUERY}}"
headers = {{ x-api-key = "${{P_UNREACHABLE_HEADERS}}" }}

[[agent]]
name = "gossip"
kind = "http"
url = "{stand_in}/gossip/${{P_GOSSIP_URL}}?key=${{P_GOSSIP_QUERY}}"
headers = {{ x-api-key = "${{P_GOSSIP_HEADERS}}" }}

[[agent]]
name = "mcp_url"
kind = "mcp"
patience = "500ms"
url = "http://127.0.0.1:1/${{P_MCP_URL_URL}}"
token = "${{P_MCP_URL_TOKEN}}"

[[agent]]
name = "mcp_file"
kind = "mcp"
patience = "500ms"
url = "http://127.0.0.1:1/mcp"
token-file = "/no/such/${{P_MCP_FILE_TOKEN_FILE}}"

[[agent]]
name = "mcp_command"
kind = "mcp"
patience = "500ms"
command = ["sh", "-c", '''echo "usage: $0 $TOKEN" >&2; exit 1''', "${{P_MCP_COMMAND_COMMAND}}"]
env = {{ TOKEN = "${{P_MCP_COMMAND_ENV}}" }}

[[agent]]
name = "mcp_absent"
kind = "mcp"
patience = "500ms"
command = ["/no/such/${{P_MCP_ABSENT_COMMAND}}"]
dir = "/tmp/${{P_MCP_ABSENT_DIR}}"

[[agent]]
name = "a2a_url"
kind = "a2a"
patience = "500ms"
url = "http://127.0.0.1:1/${{P_A2A_URL_URL}}"
token = "${{P_A2A_URL_TOKEN}}"

[[agent]]
name = "a2a_oauth"
kind = "a2a"
patience = "500ms"
url = "http://127.0.0.1:1/a2a"
[agent.oauth]
client-id = "${{P_A2A_OAUTH_CLIENT_ID}}"
client-secret = "${{P_A2A_OAUTH_CLIENT_SECRET}}"
issuer = "http://127.0.0.1:1/${{P_A2A_OAUTH_ISSUER}}"

[[agent]]
name = "llm"
kind = "llm"
provider = "openai"
retries = 0
base-url = "http://127.0.0.1:1/${{P_LLM_BASE_URL}}"
api-key = "${{P_LLM_API_KEY}}"
model = "${{P_LLM_MODEL}}"
system = "${{P_LLM_SYSTEM}}"
"#
    )
}

/// The names of the variables in a text.
fn variables(text: &str) -> Vec<&str> {
    text.split("${").skip(1).filter_map(|rest| rest.split('}').next()).collect()
}

#[test]
fn a_variable_planted_in_any_key_of_an_agent_is_shown_nowhere() {
    let (stand_in, arrived) = listen();
    let dir = tempfile::tempdir().unwrap();
    let text = tables(&stand_in);
    fs::write(dir.path().join("nuncio.toml"), &text).unwrap();
    let values: Vec<(String, String)> = variables(&text)
        .iter()
        .map(|name| ((*name).to_owned(), format!("{PLANTED}-{}-9f", name.to_lowercase().replace('_', "-"))))
        .collect();
    let server = ServerProcess::start_with(&dir.path().join("data"), &["--log", "trace"], &values);
    let caller = Caller::new(server.url());
    let mut shown: Vec<(String, String)> = vec![];
    let mut add = |place: String, text: &dyn ToString| shown.push((place, text.to_string()));

    let agents: Vec<String> = caller.send("GET", "/", &[], None).message()["agents"]
        .as_array()
        .unwrap()
        .iter()
        .map(|agent| agent["name"].as_str().unwrap().to_owned())
        .collect();
    let own: Vec<&String> =
        agents.iter().filter(|name| text.contains(&format!("name = \"{name}\""))).collect();
    assert_eq!(own.len(), text.matches("[[agent]]").count());
    for agent in &own {
        let message =
            json!({ "messageId": format!("m-{agent}"), "role": "ROLE_USER", "parts": [{ "text": "hello" }] });
        let request = json!({ "jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": { "message": message } });
        let headers = [("a2a-version", "1.0"), ("accept", "text/event-stream")];
        let events = caller.send("POST", &format!("/agents/{agent}"), &headers, Some(&request));
        add(format!("events of {agent}"), &events.body);
        let called = caller.mcp("tools/call", json!({ "name": agent, "arguments": { "message": "hello" } }));
        add(format!("call of {agent}"), &called);
        if let Some(task) = called["result"]["taskId"].as_str() {
            let ended = until("the end of a task", || {
                let task = caller.read(&format!("a2a://tasks/{task}"));
                let state = task["state"]
                    .as_str()
                    .or(task["status"]["state"].as_str())
                    .unwrap_or_default()
                    .to_owned();
                ["completed", "failed", "rejected"].iter().any(|end| state.contains(end)).then_some(task)
            });
            add(format!("task of {agent}"), &ended);
        }
        for card in ["agent-card.json", "agent.json"] {
            let card = caller.send("GET", &format!("/agents/{agent}/.well-known/{card}"), &[], None);
            assert_eq!(card.status, 200);
            add(format!("card of {agent}"), &card.body);
        }
    }
    add("index".into(), &caller.send("GET", "/", &[], None).body);
    for list in ["tools/list", "resources/list", "resources/templates/list", "prompts/list"] {
        add(list.into(), &caller.mcp(list, json!({})));
    }
    let registry = until("a look at the agents that are not there", || {
        let registry = caller.read("a2a://agents/registry");
        let failed = registry.to_string().matches("\"unhealthy\"").count();
        (failed >= 6).then_some(registry)
    });
    add("registry".into(), &registry);
    add("metrics".into(), &caller.send("GET", "/metrics", &[], None).body);
    for command in [&["audit", "-o", "json"][..], &["config"], &["agents"], &["task", "list", "-o", "json"]] {
        let ran =
            run(nuncio_in(dir.path()).args(command).args(["--data", "data"]).envs(values.iter().cloned()));
        add(format!("nuncio {}", command.join(" ")), &format!("{}{}", ran.stdout, ran.stderr));
    }
    until("traces", || {
        let spans = arrived.spans.lock().unwrap_or_else(PoisonError::into_inner);
        own.iter().all(|name| spans.iter().any(|body| body.contains(&format!("task {name}")))).then_some(())
    });
    for spans in arrived.spans.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        add("traces".into(), spans);
    }
    add("log".into(), &server.log());

    // They arrive where they are meant to.
    let sent = arrived.endpoint.lock().unwrap_or_else(PoisonError::into_inner).join("\n");
    for key in ["url", "query", "headers"] {
        assert!(sent.contains(&format!("{PLANTED}-p-gossip-{key}-9f")), "{key} of the endpoint: {sent}");
    }
    let found: Vec<String> = shown
        .iter()
        .filter_map(|(place, text)| {
            let at = text.find(PLANTED)?;
            let from = text[..at].char_indices().rev().nth(100).map_or(0, |(at, _)| at);
            let to = text[at..].char_indices().nth(60).map_or(text.len(), |(n, _)| at + n);
            Some(format!("{place}: …{}…", &text[from..to]))
        })
        .collect();
    assert!(found.is_empty(), "{} places:\n{}", found.len(), found.join("\n"));
}

/// A value in an error is as public as one on a card: what cannot be read is named, not shown.
#[test]
fn a_key_that_takes_no_variable_is_refused_without_its_value() {
    let dir = tempfile::tempdir().unwrap();
    let value = format!("{PLANTED}-number");
    for key in [
        "description",
        "version",
        "restarts",
        "time-limit",
        "question-limit",
        "retention",
        "speaks",
        "max-lines",
    ] {
        let table = format!(
            "[[agent]]\nname = \"a\"\nkind = \"process\"\ncommand = [\"true\"]\n{key} = \"${{P_VALUE}}\"\n"
        );
        fs::write(dir.path().join("nuncio.toml"), table).unwrap();
        let environment = vec![("P_VALUE".to_owned(), value.clone())];
        let started = ServerProcess::try_start_with(&dir.path().join("data"), &[], environment);
        let why = started.err().unwrap_or_else(|| panic!("{key}: the server has started"));
        assert!(why.contains(key) && !why.contains(PLANTED), "{key}: {why}");
    }
}

#[test]
fn private_cards_and_lists_are_for_known_callers() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("nuncio.toml"), "cards = \"private\"\nauth = \"on\"\n").unwrap();
    let server = ServerProcess::start(&dir.path().join("nuncio-data"), &[]);
    let stranger = Caller::new(server.url());
    let made =
        run(nuncio_in(dir.path()).args(["token", "create", "--name", "ada", "-o", "json"])).exits(0).json();
    let ada = Caller::with_token(server.url(), made["token"].as_str().unwrap());
    for path in ["/", "/agents/echo", "/.well-known/agent-card.json", "/.well-known/agent.json"] {
        assert_eq!(stranger.send("GET", path, &[], None).status, 401, "{path}");
        assert_eq!(ada.send("GET", path, &[], None).status, 200, "{path}");
    }
    // Whoever holds the folder shows its secret by itself.
    assert_eq!(run(nuncio_in(dir.path()).args(["card", "get"])).exits(0).field("Name"), "echo");
    assert_eq!(run(nuncio_in(dir.path()).args(["send", "hi"])).exits(0).field("State"), "completed");
}

/// A card may name any address: what is shown to its server is not shown there.
#[test]
fn a_card_leads_no_credentials_elsewhere() {
    let dir = tempfile::tempdir().unwrap();
    let elsewhere = crate::fake_agent::FakeAgent::start(json!({}), |_| {
        crate::fake_agent::Reply::Error(-32603, "it was reached")
    });
    let interface = json!([{ "url": format!("{}/rpc", elsewhere.url), "protocolBinding": "JSONRPC", "protocolVersion": "1.0" }]);
    let named = crate::fake_agent::FakeAgent::start(
        json!({ "url": format!("{}/rpc", elsewhere.url), "supportedInterfaces": interface }),
        |_| crate::fake_agent::Reply::Error(-32603, "it was reached"),
    );
    let refused =
        run(nuncio_in(dir.path()).args(["send", "hi", "-a", &named.url, "--bearer", "t-1"])).exits(2);
    assert!(refused.stderr.contains("--credentials-for"), "{}", refused.stderr);
    assert!(elsewhere.asked().is_empty());
    let origin = elsewhere.url.clone();
    run(nuncio_in(dir.path()).args([
        "send",
        "hi",
        "-a",
        &named.url,
        "--bearer",
        "t-1",
        "--credentials-for",
        &origin,
    ]));
    assert_eq!(elsewhere.asked()[0].header("authorization"), Some("Bearer t-1"));
}

#[test]
fn a_folder_that_was_only_found_starts_no_programs() {
    let dir = tempfile::tempdir().unwrap();
    let mark = dir.path().join("ran");
    let table = format!(
        "[[agent]]\nname = \"evil\"\nkind = \"mcp\"\ncommand = [\"sh\", \"-c\", \"touch {}\"]\n",
        mark.display()
    );
    let file = dir.path().join("nuncio.toml");
    fs::write(&file, table).unwrap();
    let nuncio =
        |args: &[&str]| run(nuncio_in(dir.path()).args(args).env("XDG_STATE_HOME", dir.path().join("state")));
    nuncio(&["memory", "list"]).exits(0);
    assert!(!mark.exists(), "a command about the memory starts no agents");
    let refused = nuncio(&["mcp"]).exits(2);
    assert!(refused.stderr.contains("nuncio trust") && !mark.exists(), "{}", refused.stderr);
    nuncio(&["trust"]).exits(0);
    nuncio(&["mcp"]).exits(0);
    // What has changed since is trusted anew.
    fs::write(&file, fs::read_to_string(&file).unwrap() + "# more\n").unwrap();
    nuncio(&["mcp"]).exits(2);
    nuncio(&["mcp", "--config", "nuncio.toml"]).exits(0);

    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
    let refused = nuncio(&["mcp"]);
    assert!(refused.code != 0 && refused.stderr.contains("can be written by others"), "{}", refused.stderr);
}
