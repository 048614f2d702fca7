//! Errors of what stands behind an agent: in full for `home` and in the log, a plain sentence for other tenants.

use serde_json::{Value, json};

use super::Place;
use crate::http::client;

/// What breaks says this; it is nobody's business beyond `home`.
const PRINTED: &str = "Traceback: /srv/private/agent.py exploded";

/// Agents whose other side is not there, or breaks, and what an error of theirs names.
fn agents(port: u16) -> (String, Vec<(&'static str, String)>) {
    let address = format!("http://127.0.0.1:{port}/there");
    let breaks = format!("command = [\"sh\", \"-c\", \"echo {PRINTED} >&2; exit 3\"]\nrestarts = 1\n");
    let tables = [
        ("far", format!("kind = \"a2a\"\nurl = \"{address}\"\npatience = \"300ms\"\n"), port.to_string()),
        ("tools", format!("kind = \"mcp\"\nurl = \"{address}\"\npatience = \"300ms\"\n"), port.to_string()),
        ("endpoint", format!("kind = \"http\"\nurl = \"{address}\"\nretries = 1\n"), "refused".to_owned()),
        ("breaks", format!("kind = \"process\"\n{breaks}"), "exploded".to_owned()),
        ("plain", format!("kind = \"process\"\nspeaks = \"lines\"\n{breaks}"), "exploded".to_owned()),
        (
            "missing",
            "kind = \"process\"\ncommand = [\"/srv/private/none\"]\n".to_owned(),
            "private".to_owned(),
        ),
        (
            "model",
            format!(
                "kind = \"llm\"\nprovider = \"openai\"\nmodel = \"m\"\nbase-url = \"{address}\"\nretries = 1\n"
            ),
            "refused".to_owned(),
        ),
    ];
    let file = tables.iter().map(|(name, table, _)| format!("[[agent]]\nname = \"{name}\"\n{table}\n"));
    (file.collect(), tables.iter().map(|(name, _, named)| (*name, named.clone())).collect())
}

/// The whole text of an answer.
fn post(url: &str, token: &str, headers: &[(&str, &str)], body: &Value) -> (String, Option<String>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut request = client().post(url).bearer_auth(token).header("Content-Type", "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = request.body(body.to_string()).send().await.unwrap();
        let session = answer.headers().get("mcp-session-id").map(|id| id.to_str().unwrap().to_owned());
        (answer.text().await.unwrap(), session)
    })
}

/// All that a caller of A2A sees of a task, from its first event to its end.
fn streamed(place: &Place, agent: &str, token: &str) -> String {
    let message = json!({
        "messageId": uuid::Uuid::now_v7().to_string(), "role": "ROLE_USER", "parts": [{ "text": "go" }] });
    let body = json!({
        "jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": { "message": message } });
    let log = "https://nuncio.dev/extensions/log/v1";
    let headers = [("A2A-Version", "1.0"), ("A2A-Extensions", log), ("Accept", "text/event-stream")];
    post(&format!("{}/agents/{agent}", place.server.url()), token, &headers, &body).0
}

/// All that a client of MCP sees of a call.
fn called(place: &Place, agent: &str, token: &str) -> String {
    let url = format!("{}/mcp", place.server.url());
    let accept = ("Accept", "application/json, text/event-stream");
    let params = json!({
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "test", "version": "1" } });
    let body = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
    let (answer, session) = post(&url, token, &[accept], &body);
    let session = session.unwrap_or_else(|| panic!("a session: {answer}"));
    let headers = [accept, ("Mcp-Session-Id", session.as_str()), ("MCP-Protocol-Version", "2025-06-18")];
    let level =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "logging/setLevel", "params": { "level": "debug" } });
    post(&url, token, &headers, &level);
    let params = json!({ "name": agent, "arguments": { "text": "go" }, "_meta": { "progressToken": 1 } });
    let body = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params });
    post(&url, token, &headers, &body).0
}

#[test]
fn errors_behind_an_agent_are_for_home_and_the_log_and_others_read_that_it_failed() {
    // A port at which nothing listens: it was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (file, agents) = agents(port);
    let place = Place::configured(&file, &[]);
    let token = |args: &[&str]| place.token(args)["token"].as_str().unwrap().to_owned();
    let home = token(&["--name", "ada", "--scope", "*:*"]);
    let other = token(&["--name", "bob", "--tenant", "acme", "--scope", "*:*"]);
    for (agent, named) in &agents {
        for see in [streamed, called] {
            let shown = see(&place, agent, &home);
            assert!(shown.contains(named.as_str()), "{agent}: home sees {named:?}: {shown}");
            let shown = see(&place, agent, &other);
            for secret in
                [named.as_str(), "127.0.0.1", "private", "exploded", "exit code", "refused", "os error"]
            {
                assert!(!shown.contains(secret), "{agent}: another tenant sees {secret:?}: {shown}");
            }
            let sentence = format!("the agent \\\"{agent}\\\" ");
            assert!(shown.contains(&sentence), "{agent}: it is told which: {shown}");
            let at = shown.find("by the task's id ").unwrap_or_else(|| panic!("{agent}: {shown}"));
            let id = &shown[at + "by the task's id ".len()..][..36];
            // The log is read from a pipe, behind the response.
            place.server.logs(id);
            let line = place.server.log();
            let line = line.lines().find(|line| line.contains(id) && line.contains("WARN"));
            let line =
                line.unwrap_or_else(|| panic!("{agent}: no warning has {id}:\n{}", place.server.log()));
            assert!(line.contains(named.as_str()), "{agent}: {line}");
        }
    }
    // How agents are is known from everybody's calls.
    let known = post_tool(&place, &other, "agents_list");
    for secret in [port.to_string().as_str(), "exploded", "private"] {
        assert!(!known.contains(secret), "{known}");
    }
}

fn post_tool(place: &Place, token: &str, tool: &str) -> String {
    let params = json!({ "name": tool, "arguments": {} });
    let url = format!("{}/mcp", place.server.url());
    let accept = ("Accept", "application/json, text/event-stream");
    let begin = json!({
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "test", "version": "1" } });
    let body = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": begin });
    let session = post(&url, token, &[accept], &body).1.unwrap();
    let headers = [accept, ("Mcp-Session-Id", session.as_str()), ("MCP-Protocol-Version", "2025-06-18")];
    let body = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params });
    post(&url, token, &headers, &body).0
}
