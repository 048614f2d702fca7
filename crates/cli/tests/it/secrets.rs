//! Secrets that one tenant plants wherever it can are found nowhere else: not in the log, the audit, the metrics or the
//! previews, and in nothing that another tenant, or nobody at all, is shown.

use std::{collections::BTreeMap, fs};

use futures_util::StreamExt as _;
use serde_json::{Map, Value, json};

use crate::{
    caller::{Answer, Caller, until},
    command::{Ran, nuncio_in, run},
    http,
    server_process::ServerProcess,
};

/// Secrets that can be told by their looks: a text with it, and what of it must not be seen.
const SHAPED: [(&str, &str); 6] = [
    ("the key is sk-live-9f8e7d6c5b4a3210", "sk-live-9f8e7d6c5b4a3210"),
    ("password=correct-horse-battery", "correct-horse-battery"),
    ("card 4111 1111 1111 1111", "4111 1111 1111 1111"),
    ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhZGEifQ.c2lnbmF0dXJl", "eyJzdWIiOiJhZGEifQ"),
    ("ticket ACME-4711-XYZ", "ACME-4711-XYZ"),
    ("db at postgres://ada:geheimnis@db.example/x", "geheimnis"),
];
/// One that cannot.
const OPAQUE: &str = "qZ7wLk2vTn9xRb4mHc";

/// What was gathered, and where.
#[derive(Default)]
struct Seen(Vec<(String, String)>);

impl Seen {
    fn add(&mut self, place: impl Into<String>, text: &impl ToString) {
        self.0.push((place.into(), text.to_string()));
    }

    fn answer(&mut self, place: impl Into<String>, answer: &Answer) {
        self.add(place, &format!("{} {} {}", answer.status, answer.headers, answer.body));
    }

    /// The places in which a secret is, in any of the ways to write it.
    fn places_of(&self, secret: &str) -> Vec<String> {
        let encoded = secret.replace(' ', "%20");
        let plus = secret.replace(' ', "+");
        let bare = secret.replace(' ', "");
        let found = |text: &str| [secret, &encoded, &plus, &bare].iter().any(|one| text.contains(*one));
        let shown = |place: &str, text: &str| {
            let at = [secret, &encoded, &plus, &bare].iter().find_map(|one| text.find(*one)).unwrap_or(0);
            let around: String = text[..at].chars().rev().take(120).collect();
            format!("{place}: …{}[{secret}]", around.chars().rev().collect::<String>())
        };
        self.0.iter().filter(|(_, text)| found(text)).map(|(place, text)| shown(place, text)).collect()
    }
}

/// A server that asks for tokens and logs all that it can.
struct Place {
    dir: tempfile::TempDir,
    server: ServerProcess,
}

/// What the first tenant has, by names that hold no secret.
struct Planted {
    tasks: Vec<String>,
    contexts: Vec<String>,
    streams: Vec<String>,
    batch: String,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(
            dir.path().join("nuncio.toml"),
            "redact = [\"ACME-[0-9]+-[A-Z]+\"]\naudit = \"all\"\nmcp.tools = \"all\"\n",
        )
        .unwrap();
        let server =
            ServerProcess::start(&dir.path().join("nuncio-data"), &["--auth", "on", "--log", "trace"]);
        let place = Self { dir, server };
        place.nuncio(&["batch", "config", "--set", "resourceMonitoring=false"]).exits(0);
        place
    }

    fn nuncio(&self, args: &[&str]) -> Ran {
        run(nuncio_in(self.dir.path()).args(args))
    }

    fn caller(&self, args: &[&str]) -> Caller {
        let made = self.nuncio(&[&["token", "create", "-o", "json"], args].concat()).exits(0).json();
        Caller::with_token(self.server.url(), made["token"].as_str().unwrap())
    }
}

/// All texts to plant.
fn texts() -> impl Iterator<Item = &'static str> {
    SHAPED.iter().map(|(text, _)| *text).chain([OPAQUE])
}

/// Plants them, and sees that their owner has them back as they were.
fn plant(ada: &Caller, url: &str) -> Planted {
    let mut planted = Planted { tasks: vec![], contexts: vec![], streams: vec![], batch: String::new() };
    for (n, text) in texts().enumerate() {
        // As a value, under a key that is told to others, and as a key.
        let value = json!({ "note": text, "password": text, "list": [text] });
        ada.call("memory_store", json!({ "namespace": "vault", "key": format!("k{n}"), "value": value }));
        let kept = ada.call("memory_get", json!({ "namespace": "vault", "key": format!("k{n}") }));
        assert_eq!(kept["value"], value, "the owner's own values are not filtered");
        ada.call("memory_store", json!({ "namespace": "vault", "key": text, "value": 1 }));
        let kept = ada.call("memory_get", json!({ "namespace": "vault", "key": text }));
        assert_eq!(kept["key"], text);
        // As a message.
        let part = json!({ "text": text });
        let task = ada.tell("echo", &format!("m{n}"), None, &part);
        let (id, context) = (task["id"].as_str().unwrap(), task["contextId"].as_str().unwrap());
        until("the echo", || {
            let task = ada.a2a("echo", "GetTask", &json!({ "id": id, "historyLength": 10 }));
            let done = task["result"]["status"]["state"] == "TASK_STATE_COMPLETED";
            done.then(|| assert!(task.to_string().contains(text), "{task}"))
        });
        planted.tasks.push(id.to_owned());
        planted.contexts.push(context.to_owned());
        // And once more, as a stream that its server remembers.
        let message = json!({ "messageId": format!("s{n}"), "role": "ROLE_USER", "parts": [part] });
        let request = json!({ "jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": { "message": message } });
        let stream = ada.send("POST", "/agents/echo", &[("a2a-version", "1.0")], Some(&request));
        assert!(stream.body.contains("TASK_STATE_COMPLETED"), "{}", stream.body);
        planted.streams.push(stream.header("nuncio-stream-id"));
        // As the goal and the artifact of a workflow.
        let context = format!("plan{n}");
        ada.call("sparc_start", json!({ "contextId": context, "goal": text }));
        let artifact = json!({ "note": text, "password": text, text: text });
        let said = ada.call("sparc_submit", json!({ "contextId": context, "artifact": artifact }));
        assert_eq!(said["passed"], false, "{said}");
        let kept = ada.read(&format!("sparc://workflow/{context}/artifacts/specification/1"));
        assert_eq!(kept["content"], artifact);
        planted.contexts.push(context);
        // In calls that are refused, and addresses that are wrong.
        for (tool, arguments) in [
            ("memory_store", json!({ "namespace": text, "key": "", "value": text })),
            ("memory_store", json!({ "namespace": "vault", "key": "k", "value": 1, text: text })),
            ("memory_get", json!({ "namespace": "vault", "key": format!("no {text}") })),
            ("task_send", json!({ "agent": text, "text": text })),
            ("task_get", json!({ "taskId": text })),
            ("sparc_start", json!({ "contextId": "plan0", "goal": text })),
            ("sparc_back", json!({ "contextId": text, "to": "specification", "reason": text })),
            ("batch_status", json!({ "batchId": text })),
            (text, json!({ "text": text })),
        ] {
            let said = ada.mcp("tools/call", json!({ "name": tool, "arguments": arguments }));
            let refused = said.get("error").is_some() || said["result"]["isError"] == true;
            assert!(refused, "{tool}: {said}");
        }
        for uri in [
            format!("memory://data/vault/{text}"),
            format!("memory://data/vault?password={text}"),
            format!("nobody://{text}"),
            format!("sparc://workflow/{text}"),
        ] {
            ada.mcp("resources/read", json!({ "uri": uri }));
        }
        ada.a2a("echo", "GetTask", &json!({ "id": text }));
        ada.a2a("echo", text, &json!({ "id": text }));
        let path: String = text.bytes().map(|byte| format!("%{byte:02x}")).collect();
        for path in [format!("/agents/{path}"), format!("/{path}"), format!("/schemas/x?password={path}")] {
            ada.send("GET", &path, &[], None);
        }
        // As what is no token.
        let token: String = text.replace(' ', "-");
        for scheme in ["Bearer", "Basic", "Digest"] {
            let header = format!("{scheme} {token}");
            let nobody = Caller::new(url);
            let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {} });
            let headers = [("authorization", &*header), ("a2a-version", "1.0")];
            let refused = nobody.send("POST", "/agents/echo", &headers, Some(&list));
            assert_eq!(refused.status, 401, "{}", refused.body);
            assert!(!format!("{}{}", refused.headers, refused.body).contains(&token), "{}", refused.body);
        }
    }
    // In a batch, as what succeeds and as what fails.
    let operations: Vec<Value> = texts()
        .enumerate()
        .flat_map(|(n, text)| {
            let store = json!({ "namespace": "vault", "key": format!("b{n}"), "value": { "password": text, "n": text } });
            let get = json!({ "namespace": "vault", "key": format!("not {text}") });
            [
                json!({ "id": format!("s{n}"), "type": "memory.store", "args": store }),
                json!({ "id": format!("g{n}"), "type": "memory.get", "args": get }),
                json!({ "id": format!("c{n}"), "type": "agent.call", "args": { "agent": "echo", "input": text } }),
            ]
        })
        .collect();
    let made = ada.call("batch_submit", json!({ "operations": operations }));
    planted.batch = made["batchId"].as_str().unwrap().to_owned();
    until("the batch ends", || {
        let status = ada.call("batch_status", json!({ "batchId": planted.batch }));
        let over = !matches!(status["status"].as_str(), Some("submitted" | "working"));
        over.then(|| assert_eq!(status["counts"]["failed"], texts().count(), "{status}"))
    });
    planted.tasks.push(planted.batch.clone());
    planted
}

/// All items of a list of MCP.
fn list(caller: &Caller, method: &str, items: &str) -> Vec<Value> {
    let (mut all, mut params) = (vec![], json!({}));
    loop {
        let page = caller.ok(method, params);
        all.extend(page[items].as_array().unwrap().iter().cloned());
        match page["nextCursor"].as_str() {
            Some(cursor) => params = json!({ "cursor": cursor }),
            None => return all,
        }
    }
}

/// The names in a template's braces.
fn variables(template: &str) -> Vec<String> {
    let inside = template.split('{').skip(1).filter_map(|rest| rest.split_once('}'));
    let names = inside.flat_map(|(names, _)| names.trim_start_matches(['?', '+', '&']).split(','));
    names.map(str::to_owned).collect()
}

/// What somebody who has heard of the other's things would put for a name.
fn guesses(planted: &Planted) -> BTreeMap<&'static str, String> {
    let guesses = [
        ("namespace", "vault"),
        ("ns", "vault"),
        ("key", "k0"),
        ("pattern", "*"),
        ("contextId", "plan0"),
        ("phase", "specification"),
        ("to", "specification"),
        ("version", "1"),
        ("agentType", "coordinator"),
        ("agent", "echo"),
        ("name", "echo"),
        ("taskId", &planted.tasks[0]),
        ("batchId", &planted.batch),
        ("streamId", "1"),
        ("page", "1"),
        ("limit", "10"),
        ("after", "0"),
        ("tenant", "acme"),
        ("caller", "acme/ada"),
    ];
    guesses.into_iter().map(|(name, guess)| (name, guess.to_owned())).collect()
}

/// Everything that MCP shows to another tenant.
fn look_by_mcp(bob: &Caller, planted: &Planted, seen: &mut Seen) {
    let guesses = guesses(planted);
    let resources = list(bob, "resources/list", "resources");
    let templates = list(bob, "resources/templates/list", "resourceTemplates");
    let (tools, prompts) = (list(bob, "tools/list", "tools"), list(bob, "prompts/list", "prompts"));
    assert!(resources.len() > 10 && templates.len() > 8 && tools.len() > 25 && prompts.len() > 4);
    seen.add("lists", &json!([resources, templates, tools, prompts]));
    let read = |uri: &str| bob.mcp("resources/read", json!({ "uri": uri }));
    for resource in &resources {
        let uri = resource["uri"].as_str().unwrap();
        seen.add(uri, &read(uri));
    }
    for template in &templates {
        let template = template["uriTemplate"].as_str().unwrap();
        let (path, query) = template.split_once("{?").map_or((template, ""), |(path, query)| (path, query));
        let mut uri = path.to_owned();
        for name in variables(path) {
            let guess = guesses.get(&*name).unwrap_or_else(|| panic!("no guess for {name} of {template}"));
            uri = uri.replace(&format!("{{{name}}}"), guess);
        }
        seen.add(&*uri, &read(&uri));
        let with_query =
            if query.contains("pattern") { format!("{uri}?pattern=*") } else { format!("{uri}?limit=10") };
        seen.add(&*with_query, &read(&with_query));
        for name in variables(template) {
            let known: Map<String, Value> =
                guesses.iter().map(|(name, guess)| ((*name).to_owned(), guess.clone().into())).collect();
            let params = json!({
                "ref": { "type": "ref/resource", "uri": template },
                "argument": { "name": name, "value": "" },
                "context": { "arguments": known },
            });
            seen.add(format!("completion of {name} in {template}"), &bob.mcp("completion/complete", params));
        }
    }
    for stream in &planted.streams {
        let uri = format!("a2a://streams/{stream}");
        seen.add(&*uri, &read(&uri));
    }
    for task in planted.tasks.iter().chain(&planted.contexts) {
        for uri in [format!("a2a://tasks/{task}"), format!("sparc://workflow/{task}")] {
            seen.add(&*uri, &read(&uri));
        }
        for method in ["tasks/get", "tasks/cancel", "tasks/update"] {
            seen.add(method, &bob.mcp(method, json!({ "taskId": task, "inputResponses": {} })));
        }
    }
    for prompt in &prompts {
        let name = &prompt["name"];
        let arguments: Map<String, Value> = prompt["arguments"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|argument| {
                let argument = argument["name"].as_str().unwrap();
                let params = json!({
                    "ref": { "type": "ref/prompt", "name": name }, "argument": { "name": argument, "value": "" },
                });
                seen.add(format!("completion for {name}"), &bob.mcp("completion/complete", params));
                (argument.to_owned(), guesses.get(argument).map_or("x", |guess| &**guess).into())
            })
            .collect();
        seen.add(
            format!("prompt {name}"),
            &bob.mcp("prompts/get", json!({ "name": name, "arguments": arguments })),
        );
    }
    for tool in &tools {
        let arguments: Map<String, Value> = tool["inputSchema"]["properties"]
            .as_object()
            .into_iter()
            .flatten()
            .filter_map(|(name, schema)| {
                let guess = guesses.get(&**name)?;
                let value = match schema["type"].as_str() {
                    Some("integer") => json!(guess.parse::<u64>().ok()?),
                    _ => json!(guess),
                };
                Some((name.clone(), value))
            })
            .collect();
        let said = bob.mcp("tools/call", json!({ "name": tool["name"], "arguments": arguments }));
        seen.add(format!("tool {}", tool["name"]), &said);
    }
    for task in &planted.tasks {
        for tool in ["task_get", "task_events", "task_cancel", "batch_status", "batch_cancel", "batch_retry"]
        {
            let name = if tool.starts_with("task") { "taskId" } else { "batchId" };
            let said = bob.mcp("tools/call", json!({ "name": tool, "arguments": { name: task } }));
            seen.add(format!("{tool} {task}"), &said);
        }
    }
}

/// The older era: a session with its own lists, and what it subscribes to.
fn look_by_session(bob: &Caller, planted: &Planted, seen: &mut Seen) {
    let accept = ("accept", "application/json, text/event-stream");
    let begin = json!({
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": { "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } },
    });
    let begun = bob.send("POST", "/mcp", &[accept], Some(&begin));
    let session = begun.header("mcp-session-id");
    seen.answer("initialize", &begun);
    let headers = [accept, ("mcp-session-id", &*session), ("mcp-protocol-version", "2025-11-25")];
    let mut ask = |method: &str, params: Value| {
        let request = json!({ "jsonrpc": "2.0", "id": 2, "method": method, "params": params });
        seen.answer(method, &bob.send("POST", "/mcp", &headers, Some(&request)));
    };
    bob.send(
        "POST",
        "/mcp",
        &headers,
        Some(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })),
    );
    ask("tasks/list", json!({}));
    ask("resources/list", json!({}));
    ask("tools/list", json!({}));
    for task in &planted.tasks {
        for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
            ask(method, json!({ "taskId": task }));
        }
        for uri in
            [format!("a2a://tasks/{task}"), "memory://data/vault/k0".into(), "sparc://workflow/plan0".into()]
        {
            ask("resources/subscribe", json!({ "uri": uri }));
            ask("resources/read", json!({ "uri": uri }));
        }
    }
}

/// Everything that A2A shows to another tenant, in each of its dialects.
fn look_by_a2a(bob: &Caller, planted: &Planted, seen: &mut Seen) {
    let mut ask = |version: &str, agent: &str, method: &str, params: Value| {
        let request = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let answer =
            bob.send("POST", &format!("/agents/{agent}"), &[("a2a-version", version)], Some(&request));
        seen.answer(format!("{version} {method} {agent}"), &answer);
    };
    for agent in ["echo", "coordinator", "batch"] {
        ask(
            "1.0",
            agent,
            "ListTasks",
            json!({ "pageSize": 100, "includeArtifacts": true, "historyLength": 10 }),
        );
        ask("1.0", agent, "GetExtendedAgentCard", json!({}));
        for context in &planted.contexts {
            ask("1.0", agent, "ListTasks", json!({ "contextId": context }));
        }
        for id in &planted.tasks {
            let config = json!({ "taskId": id, "url": "https://hook.example/x" });
            for (method, params) in [
                ("GetTask", json!({ "id": id, "historyLength": 10 })),
                ("CancelTask", json!({ "id": id })),
                ("SubscribeToTask", json!({ "id": id })),
                ("CreateTaskPushNotificationConfig", config),
                ("ListTaskPushNotificationConfigs", json!({ "taskId": id })),
            ] {
                ask("1.0", agent, method, params);
            }
            for method in
                ["tasks/get", "tasks/cancel", "tasks/resubscribe", "tasks/pushNotificationConfig/list"]
            {
                ask("0.3", agent, method, json!({ "id": id }));
            }
            let message = json!({ "messageId": format!("b{id}"), "role": "ROLE_USER", "taskId": id, "parts": [{ "text": "hi" }] });
            ask("1.0", agent, "SendMessage", json!({ "message": message }));
        }
    }
    for (n, context) in planted.contexts.iter().enumerate() {
        let message = json!({ "messageId": format!("c{n}"), "role": "ROLE_USER", "contextId": context, "parts": [{ "text": "hi" }] });
        ask("1.0", "echo", "SendMessage", json!({ "message": message }));
    }
}

/// What a subscription tells another tenant while the first one is at work, until it tells of that tenant's own.
fn look_by_subscription(place: &Place, ada: &Caller, bob: &Caller, planted: &Planted, seen: &mut Seen) {
    let token = place
        .nuncio(&["token", "create", "-o", "json", "--name", "bob2", "--tenant", "globex"])
        .exits(0)
        .json();
    let mut uris = vec!["memory://namespace/vault/keys", "memory://data/vault/k0", "memory://data/bobs/end"];
    uris.extend(["sparc://workflow/plan0", "batchtools://queue/status", "a2a://agents/registry"]);
    let request = json!({
        "jsonrpc": "2.0", "id": "s", "method": "subscriptions/listen",
        "params": {
            "notifications": { "resourceSubscriptions": uris, "taskIds": planted.tasks, "resourcesListChanged": true },
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": { "extensions": { "io.modelcontextprotocol/tasks": {} } },
                "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
            },
        },
    });
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let told = std::sync::Arc::new(std::sync::Mutex::new(String::new()));
    let request = http::client()
        .post(format!("{}/mcp", place.server.url()))
        .bearer_auth(token["token"].as_str().unwrap())
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", "subscriptions/listen")
        .header("content-type", "application/json")
        .body(request.to_string());
    let hears = std::sync::Arc::clone(&told);
    let listening = runtime.spawn(async move {
        let mut stream = request.send().await.unwrap().bytes_stream();
        while let Some(Ok(piece)) = stream.next().await {
            hears.lock().unwrap().push_str(&String::from_utf8_lossy(&piece));
        }
    });
    let heard = |word: &str| told.lock().unwrap().contains(word).then_some(());
    until("the subscription", || heard("notifications/subscriptions/acknowledged"));
    for (n, text) in texts().enumerate() {
        ada.call(
            "memory_store",
            json!({ "namespace": "vault", "key": "k0", "value": { "password": text, "n": text } }),
        );
        ada.call("memory_store", json!({ "namespace": "vault", "key": format!("late {text}"), "value": n }));
        ada.call("sparc_submit", json!({ "contextId": "plan0", "artifact": { "note": text } }));
    }
    until("what is one's own", || {
        bob.call("memory_store", json!({ "namespace": "bobs", "key": "end", "value": 1 }));
        heard("notifications/resources/updated")
    });
    listening.abort();
    let told = told.lock().unwrap().clone();
    assert!(!told.contains("vault\"") && told.contains("memory://data/bobs/end"), "{told}");
    seen.add("subscription", &told);
}

#[test]
fn secrets_are_seen_by_their_owner_alone() {
    let place = Place::new();
    let ada = place.caller(&["--name", "ada", "--tenant", "acme"]);
    let bob = place.caller(&["--name", "bob", "--tenant", "globex"]);
    let eve = place.caller(&["--name", "eve", "--scope", "read:admin", "--scope", "read:a2a"]);
    let planted = plant(&ada, place.server.url());

    // What somebody else of the same server is shown, and nobody at all.
    let mut others = Seen::default();
    look_by_subscription(&place, &ada, &bob, &planted, &mut others);
    look_by_session(&bob, &planted, &mut others);
    look_by_a2a(&bob, &planted, &mut others);
    look_by_mcp(&bob, &planted, &mut others);
    let nobody = Caller::new(place.server.url());
    for path in [
        "/",
        "/agents/echo",
        "/.well-known/agent-card.json",
        "/.well-known/agent.json",
        "/healthz",
        "/readyz",
        "/metrics",
        "/.well-known/oauth-protected-resource",
        "/admin/audit",
        "/admin/tokens",
        "/admin/dead-letters",
        "/sse",
    ] {
        if path != "/sse" {
            others.answer(path, &bob.send("GET", path, &[], None));
        }
        others.answer(path, &nobody.send("GET", path, &[], None));
    }
    assert!(others.0.len() > 300, "{}", others.0.len());

    // What its operator reads.
    let log = place.server.log();
    let metrics = eve.send("GET", "/metrics", &[], None);
    assert!(log.contains(" DEBUG "), "it says all that it can: {log}");
    assert!(metrics.status == 200 && metrics.body.contains("nuncio_"), "{}", metrics.body);
    let audit = whole_audit(&eve);
    let shown = place.nuncio(&["audit", "-o", "json", "--limit", "500"]).exits(0).stdout;
    let texted = place.nuncio(&["audit", "--limit", "500"]).exits(0).stdout;
    let operations: Vec<&str> = audit.iter().map(|line| line["operation"].as_str().unwrap()).collect();
    for operation in ["memory.store", "task.send", "authenticate"] {
        assert!(operations.contains(&operation), "{operation}: {operations:?}");
    }

    // What its owner sees without having asked for it.
    let mut previews = Seen::default();
    for arguments in [json!({ "pattern": "k*" }), json!({ "pattern": "b*" }), json!({ "text": "the" })] {
        let mut arguments = arguments;
        arguments["namespace"] = "vault".into();
        for found in ada.call("memory_search", arguments)["results"].as_array().unwrap() {
            previews.add("preview", &found["preview"]);
        }
    }
    assert!(previews.0.len() > 10);
    for workflow in ada.call("sparc_list", json!({}))["workflows"].as_array().unwrap() {
        previews.add("workflows", &workflow["goal"]);
    }

    let mut operator = Seen::default();
    operator.add("log", &log);
    operator.add("metrics", &metrics.body);
    let mut audited = Seen::default();
    for line in &audit {
        audited.add(format!("audit {}", line["operation"]), line);
    }
    audited.add("nuncio audit -o json", &shown);
    audited.add("nuncio audit", &texted);
    // All of them can be found, where they may be.
    let mut own = Seen::default();
    own.add("export", &ada.call("memory_export", json!({ "namespace": "vault" })));
    for secret in SHAPED.iter().map(|(_, secret)| *secret).chain([OPAQUE]) {
        assert!(!own.places_of(secret).is_empty(), "{secret}");
    }

    let mut found: Vec<String> = vec![];
    for (_, secret) in SHAPED {
        for place in [&others, &operator, &previews, &audited] {
            found.extend(place.places_of(secret));
        }
    }
    // What has no looks is kept from others, from the log and from the metrics.
    found.extend(others.places_of(OPAQUE));
    found.extend(operator.places_of(OPAQUE));
    assert!(found.is_empty(), "{} places:\n{}", found.len(), found.join("\n"));
    // An audit names what it is about; there is one in it where it is a name, and only there.
    let mut named = 0;
    for line in &audit {
        let mut rest = line.clone();
        named += usize::from(rest["resource"].take().to_string().contains(OPAQUE));
        assert!(!rest.to_string().contains(OPAQUE), "{line}");
    }
    assert!(named > 0, "it was a key of the memory bank");
}

/// Every line of the audit, by its resource.
fn whole_audit(eve: &Caller) -> Vec<Value> {
    let (mut lines, mut before): (Vec<Value>, Option<u64>) = (vec![], None);
    loop {
        let query = before.map(|number| format!("&before={number}")).unwrap_or_default();
        let page = eve.read(&format!("audit://log?limit=500{query}"));
        let entries = page["entries"].as_array().unwrap();
        let Some(last) = entries.last() else { return lines };
        before = last["number"].as_u64();
        lines.extend(entries.iter().cloned());
    }
}
