//! A server behind a proxy, and another user of the same machine: who may call, and who administers.

use nuncio::data_dir::Published;
use serde_json::{Value, json};

use crate::{
    http::{client, rpc},
    nginx::Nginx,
    server_process::ServerProcess,
};

fn hello() -> Value {
    json!({ "message": { "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": "hello" }] } })
}

/// The status and the text of an answer.
fn http(method: &str, url: &str, headers: &[(&str, &str)], body: Option<&Value>) -> (u16, String) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut request = client().request(method.parse().unwrap(), url);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    })
}

/// What a server says to a read of the audit over MCP.
fn read_audit(url: &str, headers: &[(&str, &str)]) -> (u16, String) {
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {
        "uri": "audit://log",
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": { "name": "t", "version": "1" },
        },
    } });
    let own = [
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "resources/read"),
        ("mcp-name", "audit://log"),
    ];
    http("POST", &format!("{url}/mcp"), &[&own, headers].concat(), Some(&body))
}

const NEEDS_SECRET: &str = "administration needs the secret of the data folder";

#[test]
fn a_stranger_behind_a_bare_proxy_administers_nothing() {
    let mut place = super::Place::new(&[]);
    let token = place.token(&["--name", "ada", "--tenant", "acme"]);
    let sent = place.send_as(token["token"].as_str().unwrap(), "a secret of acme").exits(0);
    let task = sent.field("Task").to_owned();
    place.server.terminate();

    // The same folder, now open to whatever reaches the loopback address; nginx reaches it with a loopback Host and
    // without any header that names it.
    let server = ServerProcess::start(&place.dir.path().join("nuncio-data"), &["--auth", "off"]);
    let nginx = Nginx::start(server.url(), "");
    let sent = rpc(&nginx.url(), "SendMessage", &hello());
    assert_eq!(sent["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED", "{sent}");

    let (status, text) = read_audit(&nginx.url(), &[]);
    assert!(status == 403 && text.contains(NEEDS_SECRET), "{status} {text}");
    let wish = json!({ "name": "eve", "scopes": ["*:*", "*:admin"] });
    for (method, path, body) in [
        ("GET", "/admin/tokens", None),
        ("POST", "/admin/tokens", Some(&wish)),
        ("DELETE", &*format!("/admin/tokens/{}", token["id"].as_str().unwrap()), None),
        ("GET", "/admin/audit", None),
        ("GET", "/admin/dead-letters", None),
        ("POST", "/admin/dead-letters/replay", Some(&json!({}))),
    ] {
        let (status, text) = http(method, &format!("{}{path}", nginx.url()), &[], body);
        assert!(status == 401 && text.contains(NEEDS_SECRET), "{method} {path}: {status} {text}");
    }
    let got = rpc(&nginx.url(), "GetTask", &json!({ "id": task }));
    assert!(got["error"]["message"].as_str().is_some_and(|why| why.contains("no task")), "{got}");
    let listed = rpc(&nginx.url(), "ListTasks", &json!({}));
    assert!(!listed.to_string().contains("acme"), "{listed}");

    // The commands of the folder's own user show its secret by themselves.
    let tokens = place.nuncio(&["token", "list", "-o", "json"]).exits(0).json();
    assert_eq!(tokens["tokens"].as_array().unwrap().len(), 1);
    assert!(
        place.audit(&[]).iter().any(|line| line["operation"] == "audit.read" && line["allowed"] == false)
    );
    let secret = format!("Bearer {}", Published::read(server.data()).unwrap().admin_token);
    let (status, text) = read_audit(server.url(), &[("authorization", &secret)]);
    assert!(status == 200 && text.contains("task.send"), "{status} {text}");
}
