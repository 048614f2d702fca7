//! An MCP server whose tool has a small schema that nobody can apply: references within references.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{ending, send};
use crate::{
    command::{self},
    http::rpc,
    server_process::ServerProcess,
};

/// A server on pipes. `dear` has thirty definitions that each refer twice to the next: a billion schemas in 3 KB.
const HOSTILE: &str = r##"
import json, sys
defs = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(30)}
defs["d30"] = {"type": "string"}
dear = {"type": "object", "$defs": defs, "properties": {"text": {"$ref": "#/$defs/d0"}}}
fair = {"type": "object", "properties": {"text": {"type": "string"}, "n": {"type": "integer"}}}
assert len(json.dumps(dear)) < 3_500
tools = [{"name": "dear", "inputSchema": dear}, {"name": "fair", "inputSchema": fair}]
tools = [tool for tool in tools if len(sys.argv) == 1 or tool["name"] in sys.argv]
for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    method, params = request["method"], request.get("params", {})
    if method == "initialize":
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                  "serverInfo": {"name": "hostile", "version": "1"}}
    elif method == "tools/list":
        result = {"tools": tools}
    elif method == "tools/call":
        result = {"content": [{"type": "text", "text": "called " + params["name"]}]}
    elif method == "ping":
        result = {}
    else:
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"],
                          "error": {"code": -32601, "message": "no such method"}}), flush=True)
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
"##;

const SOON: Duration = Duration::from_secs(20);

fn write(dir: &Path, more: &str) {
    fs::write(dir.join("hostile.py"), HOSTILE).unwrap();
    let table = |name: &str, tool: &str| {
        format!(
            "[[agent]]\nname = \"{name}\"\nkind = \"mcp\"\ncommand = [\"python3\", \"hostile.py\"{tool}]\n\n"
        )
    };
    let tables = format!("{more}{}{}", table("both", ""), table("alone", ", \"dear\""));
    fs::write(dir.join("nuncio.toml"), tables).unwrap();
}

/// Calls a tool with arguments, and has an answer soon.
fn call(server: &ServerProcess, agent: &str, tool: &str) -> Value {
    let message = json!({
        "messageId": uuid::Uuid::now_v7().to_string(), "role": "ROLE_USER",
        "parts": [{ "data": { "tool": tool, "arguments": { "text": "x" } } }],
    });
    let begun = Instant::now();
    let url = format!("{}/agents/{agent}", server.url());
    let answer = rpc(&url, "SendMessage", &json!({ "message": message }));
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    answer["result"]["task"].clone()
}

#[test]
fn a_tool_whose_schema_nobody_can_apply_is_refused_with_words_and_the_server_stays_responsive() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "");
    let server = ServerProcess::start(&dir.path().join("data"), &["--demo"]);
    for agent in ["both", "alone"] {
        let task = call(&server, agent, "dear");
        let (state, words) = ending(&task);
        assert_eq!(state, "TASK_STATE_REJECTED", "{task}");
        assert!(words.contains("\"dear\"") && words.contains("limits.schema-cost"), "{words}");
        let echoed = send(&server, "echo", "still here", None);
        assert_eq!(ending(&echoed).0, "TASK_STATE_COMPLETED");
    }
    let task = call(&server, "both", "fair");
    assert_eq!(ending(&task).0, "TASK_STATE_COMPLETED", "{task}");
}

#[test]
fn what_a_schema_may_cost_is_the_operators() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "[limits]\nschema-cost = 2\n\n");
    let server = ServerProcess::start(&dir.path().join("data"), &["--demo"]);
    let task = call(&server, "both", "fair");
    let (state, words) = ending(&task);
    assert_eq!(state, "TASK_STATE_REJECTED", "{task}");
    assert!(words.contains("more than 2 schemas (limits.schema-cost)"), "{words}");
    assert_eq!(ending(&send(&server, "echo", "still here", None)).0, "TASK_STATE_COMPLETED");
}

#[test]
fn chat_does_not_call_it_either() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "");
    let begun = Instant::now();
    let ran = command::run(command::nuncio_in(dir.path()).args([
        "chat",
        "--server",
        "python3 hostile.py",
        "-c",
        "dear text=x",
    ]));
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    let shown = format!("{}{}", ran.stdout, ran.stderr);
    assert!(shown.contains("dear is not called") && shown.contains("limits.schema-cost"), "{shown}");
    let ran = command::run(command::nuncio_in(dir.path()).args([
        "chat",
        "--server",
        "python3 hostile.py",
        "-c",
        "fair text=x n=1",
    ]));
    assert!(ran.stdout.contains("called fair"), "{}{}", ran.stdout, ran.stderr);
}
