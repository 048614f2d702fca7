//! What a server serves and what its lists show: built-in agents, the root, tools by group, the endpoint of one agent, and
//! what a token sees.

use std::fs;

use serde_json::{Map, Value, json};

use crate::{
    caller::{Caller, until},
    command::{nuncio_in, run},
    server_process::ServerProcess,
};

/// The most bytes of a list of tools with default settings and four agents.
const MAX_LIST: usize = 12_000;
/// The tools that a list has beside the agents by default.
const TASK_TOOLS: [&str; 6] =
    ["task_cancel", "task_events", "task_get", "task_list", "task_reply", "task_send"];

/// A table of an agent in shell that says its name.
fn table(name: &str) -> String {
    format!(
        "[[agent]]\nname = \"{name}\"\nkind = \"process\"\ndescription = \"Knows all about {name}, and asks nobody.\"\n\
         command = [\"sh\", \"-c\", '''read line; echo '{{\"type\":\"done\",\"text\":\"from {name}\"}}' ''']\n\n"
    )
}

/// A server with a configuration, in a folder of its own.
struct Served {
    dir: tempfile::TempDir,
    server: ServerProcess,
    caller: Caller,
}

impl Served {
    fn new(file: &str, flags: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("nuncio.toml"), file).unwrap();
        let server = ServerProcess::start(&dir.path().join("data"), flags);
        let caller = Caller::new(server.url());
        Self { dir, server, caller }
    }

    /// The name on the card at the root.
    fn root(&self) -> String {
        let card = self.caller.send("GET", "/.well-known/agent-card.json", &[], None).message();
        card["name"].as_str().unwrap_or_else(|| panic!("{card}")).to_owned()
    }

    fn serves(&self, agent: &str) -> bool {
        let path = format!("/agents/{agent}/.well-known/agent-card.json");
        self.caller.send("GET", &path, &[], None).status == 200
    }

    /// The result of an agent's task, called as a tool at that endpoint.
    fn called(&self, path: &str, agent: &str) -> String {
        let arguments = json!({ "name": agent, "arguments": { "text": "x" } });
        let answer = self.caller.mcp_at(path, "tools/call", arguments).message();
        let Some(task) = answer["result"]["taskId"].as_str() else { return answer.to_string() };
        until("the end of the task", || {
            let task = self.caller.mcp_at(path, "tasks/get", json!({ "taskId": task })).message();
            (task["result"]["status"] == "completed").then(|| task.to_string())
        })
    }
}

/// The tools of a list, and the bytes of its result.
fn listed(caller: &Caller, path: &str) -> (Vec<String>, usize) {
    let answer = caller.mcp_at(path, "tools/list", json!({})).message();
    let result = &answer["result"];
    let tools = result["tools"].as_array().unwrap_or_else(|| panic!("{answer}"));
    assert!(result["nextCursor"].is_null(), "all of it is on one page");
    let names = tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect();
    (names, result.to_string().len())
}

/// The bytes of the list as a client of 2025-11-25 has it.
fn bytes_in_session(caller: &Caller) -> usize {
    let accept = ("accept", "application/json, text/event-stream");
    let begin = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "test", "version": "1" } } });
    let session = caller.send("POST", "/mcp", &[accept], Some(&begin)).header("mcp-session-id");
    let list = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list" });
    let answer = caller.send("POST", "/mcp", &[accept, ("mcp-session-id", &session)], Some(&list)).message();
    assert!(answer["result"]["tools"].is_array(), "{answer}");
    answer["result"].to_string().len()
}

#[test]
fn built_in_agents_are_served_where_there_is_no_other_or_they_are_wanted() {
    let alone = Served::new("", &[]);
    assert_eq!(alone.root(), "echo");
    assert!(alone.serves("travel_agent"));

    // The first agent of the file is at the root, and the name of a built-in one is free.
    let own = Served::new(&(table("writer") + &table("echo")), &[]);
    assert_eq!(own.root(), "writer");
    assert!(own.serves("echo") && !own.serves("travel_agent"));
    assert!(own.called("/mcp", "echo").contains("from echo"));
    assert!(own.server.greeting().contains("writer (default)"), "{}", own.server.greeting());

    let with_setting = "builtin-agents = true\n";
    for (setting, flags) in [("", &["--demo"][..]), (with_setting, &[]), ("", &["--builtin-agents", "true"])]
    {
        let both = Served::new(&(setting.to_owned() + &table("writer")), flags);
        assert_eq!(both.root(), "echo");
        assert!(both.serves("writer") && both.serves("travel_agent"));
    }
    let dir = tempfile::tempdir().unwrap();
    let nothing = ServerProcess::try_start(&dir.path().join("data"), &["--builtin-agents", "false"]);
    let log = nothing.err().unwrap();
    assert!(log.contains("there is no agent to serve: configure one"), "{log}");
    let wrong = ServerProcess::try_start(&dir.path().join("data"), &["--builtin-agents", "maybe"]);
    let log = wrong.err().unwrap();
    assert!(log.contains("--builtin-agents: expected true, false or auto"), "{log}");
}

#[test]
fn a_task_of_a_built_in_agent_that_is_not_served_any_more_fails_as_any_whose_agent_has_gone() {
    let dir = tempfile::tempdir().unwrap();
    let flags = ["--agent-step", "20ms", "--missing-agent", "300ms"];
    let mut server = ServerProcess::start(&dir.path().join("data"), &flags);
    let part = json!({ "data": { "steps": 1000 } });
    let task = Caller::new(server.url()).tell("long_running_agent", "m-1", None, &part);
    server.terminate();
    fs::write(dir.path().join("nuncio.toml"), table("writer")).unwrap();
    server.restart();
    let caller = Caller::new(server.url());
    let failed = until("the end of the task", || {
        let get = json!({ "jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": { "id": task["id"] } });
        let found = caller.send("POST", "/", &[("a2a-version", "1.0")], Some(&get)).message();
        let status = found["result"]["status"].clone();
        (status["state"] == "TASK_STATE_FAILED").then_some(status)
    });
    let words = failed["message"]["parts"][0]["text"].as_str().unwrap();
    assert!(words.contains("long_running_agent") && words.contains("300ms"), "{words}");
}

#[test]
fn a_list_with_default_settings_is_small() {
    let own: String = ["writer", "billing", "search", "travel"].map(table).concat();
    for (file, agents) in [
        (own.as_str(), ["billing", "search", "travel", "writer"]),
        ("", ["echo", "long_running_agent", "research_agent", "travel_agent"]),
    ] {
        let served = Served::new(file, &[]);
        let (tools, bytes) = listed(&served.caller, "/mcp");
        let mut expected: Vec<&str> = agents.into_iter().chain(TASK_TOOLS).collect();
        expected.sort_unstable();
        assert_eq!(tools, expected);
        let in_session = bytes_in_session(&served.caller);
        println!("tools/list: {} tools, {bytes} bytes, {in_session} in a session", tools.len());
        assert!(bytes.max(in_session) <= MAX_LIST, "{bytes} bytes, {in_session} in a session");
        let (all, bytes) = listed(&served.caller, "/mcp?tools=all");
        println!("with all groups: {} tools, {bytes} bytes", all.len());
        assert!(all.len() > 45 && all.contains(&"memory_store".to_owned()), "{all:?}");
    }
}

#[test]
fn what_a_group_hides_can_be_called_and_an_agent_has_an_endpoint_of_its_own() {
    let filter = "[mcp]\ntools = [\"agent:writer\", \"sparc\"]\n\n";
    let served = Served::new(&(filter.to_owned() + &table("writer") + &table("billing")), &[]);
    let caller = &served.caller;
    let (tools, _) = listed(caller, "/mcp");
    let has = |name: &str| tools.iter().any(|tool| tool == name);
    assert!(has("writer") && has("sparc_start") && has("coder"), "{tools:?}");
    assert!(
        ["billing", "task_send", "memory_store", "batch"].into_iter().all(|name| !has(name)),
        "{tools:?}"
    );
    caller.call("memory_store", json!({ "namespace": "n", "key": "k", "value": 1 }));
    // The commands use what is hidden, at this server and without one.
    let nuncio =
        |args: &[&str]| run(nuncio_in(served.dir.path()).args(args).args(["--data", "data"])).exits(0);
    assert!(nuncio(&["memory", "get", "n", "k"]).stdout.contains('1'));
    nuncio(&["plan", "list"]);
    assert!(nuncio(&["agents"]).stdout.contains("billing"));
    run(nuncio_in(served.dir.path()).args(["memory", "list", "--data", "another"])).exits(0);

    let at = "/agents/billing/mcp";
    assert_eq!(listed(caller, at).0, ["billing"]);
    assert!(served.called(at, "billing").contains("from billing"));
    assert!(served.called(at, "writer").contains("the endpoint of billing alone"));
    let unknown = caller.mcp_at("/agents/biling/mcp", "tools/list", json!({}));
    assert_eq!(unknown.status, 404, "{}", unknown.body);
    assert!(unknown.body.contains("/agents/billing/mcp"), "{}", unknown.body);
}

#[test]
fn a_filter_that_means_nothing_stops_the_start() {
    let check = |tools: &str, words: &str| {
        let dir = tempfile::tempdir().unwrap();
        let file = format!("[mcp]\ntools = {tools}\n\n{}", table("writer"));
        fs::write(dir.path().join("nuncio.toml"), file).unwrap();
        let log = ServerProcess::try_start(&dir.path().join("data"), &[]).err().unwrap();
        assert!(log.contains(words), "{log}");
    };
    check(
        r#"["tasks", "memroy"]"#,
        "mcp.tools: there is no group of tools \"memroy\" (is \"memory\" meant?); there are: agents, tasks,",
    );
    check(r#""agent:wrtier""#, "mcp.tools: there is no agent \"wrtier\" (is \"writer\" meant?)");
    check("[]", "mcp.tools: expected at least one of: agents, tasks");
}

/// Arguments with which a tool comes as far as its check of what the caller may do.
fn arguments(tool: &str) -> Value {
    let id = "00000000-0000-7000-8000-000000000000";
    let named = |members: &[(&str, &str)]| {
        let members = members.iter().map(|(name, value)| ((*name).to_owned(), json!(value)));
        Value::Object(members.collect::<Map<_, _>>())
    };
    let plan = json!({ "tasks": [{ "id": "a", "agent": "writer", "input": "x" }] });
    match tool {
        "agents_probe" => named(&[("name", "writer")]),
        "batch_submit" => json!({ "operations": [{ "id": "a", "type": "wait", "args": { "ms": 1 } }] }),
        name if name.starts_with("batch_") && !["batch_list", "batch_configure"].contains(&name) => {
            named(&[("batchId", id)])
        }
        "memory_clear" => json!({ "namespace": "n", "confirm": true }),
        "memory_delete" | "memory_get" => named(&[("namespace", "n"), ("key", "k")]),
        "memory_export" => named(&[("namespace", "n")]),
        "memory_import" => {
            named(&[("namespace", "n"), ("lines", "{\"key\":\"k\",\"value\":1}"), ("mode", "overwrite")])
        }
        "memory_search" => named(&[("namespace", "n"), ("pattern", "*")]),
        "memory_store" => json!({ "namespace": "n", "key": "k", "value": 1 }),
        "plan_cancel" | "plan_status" => named(&[("planId", id)]),
        "plan_check" | "plan_show" => json!({ "plan": plan }),
        "plan_make" | "plan_run" => named(&[("request", "paint the fence")]),
        "sparc_back" => named(&[("contextId", "c"), ("to", "specification"), ("reason", "because")]),
        "sparc_history" | "sparc_status" => named(&[("contextId", "c")]),
        "sparc_run" => named(&[("goal", "a goal"), ("contextId", "c")]),
        "sparc_start" => named(&[("goal", "a goal")]),
        "sparc_submit" => json!({ "contextId": "c", "artifact": {} }),
        "task_cancel" | "task_events" | "task_get" => named(&[("taskId", id)]),
        "task_reply" => named(&[("taskId", id), ("text", "x")]),
        "task_send" => named(&[("agent", "writer"), ("text", "x")]),
        "writer" => named(&[("text", "x")]),
        _ => json!({}),
    }
}

const SCOPES: [&str; 17] = [
    "read:a2a",
    "write:a2a",
    "execute:a2a",
    "read:memory",
    "write:memory",
    "execute:memory",
    "read:sparc",
    "write:sparc",
    "execute:sparc",
    "read:batchtools",
    "write:batchtools",
    "execute:batchtools",
    "execute:a2a:writer",
    "execute:a2a:orchestrator",
    "read:a2a:registry",
    "read:a2a:streams",
    "read:memory:team-*",
];

#[test]
fn a_token_with_one_scope_sees_what_it_may_use_and_nothing_else() {
    let served = Served::new(&(table("writer") + &table("billing")), &["--auth", "on"]);
    let token = |scope: &str| {
        let mut command = nuncio_in(served.dir.path());
        let args = ["token", "create", "--data", "data", "-o", "json", "--name", "ada", "--scope", scope];
        let made = run(command.args(args)).exits(0).json();
        Caller::with_token(served.server.url(), made["token"].as_str().unwrap())
    };
    let registry = token("*:*").call("agents_list", json!({}));
    let agents: Vec<&str> =
        registry["agents"].as_array().unwrap().iter().map(|one| one["agentType"].as_str().unwrap()).collect();
    let (all, _) = listed(&token("*:*"), "/mcp?tools=all");
    assert!(agents.iter().all(|agent| all.iter().any(|name| name == agent)), "{agents:?} {all:?}");
    for scope in SCOPES {
        let caller = token(scope);
        let (seen, _) = listed(&caller, "/mcp?tools=all");
        let may_call =
            |agent: &str| scope == "execute:a2a" || scope.strip_prefix("execute:a2a:") == Some(agent);
        for name in &all {
            let is_seen = seen.contains(name);
            if agents.contains(&name.as_str()) && name != "writer" {
                assert_eq!(is_seen, may_call(name), "{scope}: {name}");
                continue;
            }
            let mut given = arguments(name);
            if scope.ends_with(":team-*") && given["namespace"].is_string() {
                given["namespace"] = "team-a".into();
            }
            if let ("task_send", Some(agent)) = (name.as_str(), scope.strip_prefix("execute:a2a:")) {
                given["agent"] = agent.into();
            }
            let answer = caller.mcp_at("/mcp", "tools/call", json!({ "name": name, "arguments": given }));
            assert_eq!(is_seen, answer.status != 403, "{scope}: {name}: {} {}", answer.status, answer.body);
        }
    }
}

#[test]
fn agents_without_a_description_are_named_at_the_start() {
    let undescribed = "[[agent]]\nname = \"lines\"\nkind = \"process\"\ncommand = [\"cat\"]\n";
    let served = Served::new(&format!("{}{undescribed}", table("writer")), &[]);
    served.server.logs("agents without a description");
    let log = served.server.log();
    let line = log.lines().find(|line| line.contains("agents without a description")).unwrap();
    assert!(line.contains("lines") && !line.contains("writer"), "{line}");
}
