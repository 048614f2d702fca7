//! Callers that have to say who they are: what they are told, what they may do, and how often.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use nuncio_engine::AccessKind;
use nuncio_wire::grpc::GrpcCode;
use serde_json::{Value, json};

use crate::{
    grpc_client::GrpcClient,
    guests::{As, Guests, STATELESS, audit, site, site_with},
    site::{Site, message, request, version_header},
    socket::{Events, Socket, bare, get, post, within},
};

const ALL_DIALECTS: [(&str, &str); 3] = [("1.0", "GetTask"), ("0.3", "tasks/get"), ("0.1", "tasks/get")];

#[tokio::test]
async fn nobody_gets_in_without_a_token_and_everybody_is_told_how_to() {
    let site = site_with(|setup| setup.server.metrics = Some(Arc::new(String::new))).await;
    let call = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/list", "params": {} }).to_string();
    let send = request("SendMessage", &json!({ "message": message("x") }));
    for (token, error) in [(None, ""), (Some("Bearer bad"), "invalid_token"), (Some("Basic bad"), "")] {
        let header: Vec<(&str, &str)> = token.iter().map(|token| ("authorization", *token)).collect();
        let with = |more: &[(&'static str, &'static str)]| [&header[..], more].concat();
        let requests = [
            ("", post("/", &with(&[("a2a-version", "1.0")]), &send)),
            ("", post("/agents/actor", &with(&[("a2a-version", "1.0")]), &send)),
            ("/mcp", post("/mcp", &header, &call)),
            ("/mcp", bare("GET", "/mcp", &with(&[("mcp-session-id", "x"), ("accept", "text/event-stream")]))),
            ("/mcp", bare("DELETE", "/mcp", &with(&[("mcp-session-id", "x")]))),
            ("/agents/actor/mcp", post("/agents/actor/mcp", &header, &call)),
            // Which agents there are is not told.
            ("/agents/nobody/mcp", post("/agents/nobody/mcp", &header, &call)),
            ("/mcp", post("/agents/%22/mcp", &header, &call)),
            ("/mcp", get("/sse", &header)),
            ("/mcp", post("/messages?sessionId=x", &header, &call)),
            ("", get("/metrics", &header)),
            ("", get("/admin/audit", &header)),
        ];
        for (path, request) in requests {
            let answer = site.send(&request).await;
            let what = String::from_utf8_lossy(&request).lines().next().unwrap_or_default().to_owned();
            assert_eq!(answer.status, 401, "{what} {token:?}: {}", answer.text());
            let challenge = answer.header("www-authenticate");
            let metadata = format!(
                "resource_metadata=\"http://{}/.well-known/oauth-protected-resource{path}\"",
                site.address
            );
            assert!(challenge.starts_with("Bearer realm=\"nuncio\", "), "{what}: {challenge}");
            assert!(challenge.contains(&metadata), "{what}: {challenge}");
            assert_eq!(challenge.contains("error="), !error.is_empty(), "{what}: {challenge}");
            assert!(challenge.contains(error));
            assert!(answer.json()["error"]["code"].is_i64(), "{}", answer.text());
            assert!(!answer.text().contains("it is bad"), "why it is refused is not told");
        }
    }
    assert_eq!(
        As { site: &site, token: "ada" }.a2a("1.0", "ListTasks", &json!({})).await.json()["result"]["totalSize"],
        0
    );

    for path in [
        "/",
        "/.well-known/agent-card.json",
        "/.well-known/agent.json",
        "/agents/actor",
        "/healthz",
        "/readyz",
    ] {
        assert_eq!(site.send(get(path, &[])).await.status, 200, "{path} is for everybody");
    }
    let away = As { site: &site, token: "away" }.a2a("1.0", "ListTasks", &json!({})).await;
    assert_eq!((away.status, away.header("retry-after")), (503, "2"));
}

/// A server that requires no token, and verifies those that it is shown.
async fn open_site(guests: Guests) -> Site {
    Site::with(|setup| {
        setup.server.optional_authenticator = Some(Arc::new(guests));
        setup.server.admin_token = Some("operator".into());
        setup.server.metrics = Some(Arc::new(String::new));
    })
    .await
}

/// One request of each binding that shows this, and how each is answered. gRPC has a status of its own.
async fn statuses(site: &Site, authorization: Option<&str>) -> Vec<(&'static str, u16)> {
    let mut header = Vec::from_iter(authorization.map(|shown| ("authorization", shown)));
    header.push(("accept", "application/json, text/event-stream"));
    let a2a = [&header[..], &[("a2a-version", "1.0")]].concat();
    let initialize = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } } })
    .to_string();
    let stateless = [("mcp-protocol-version", STATELESS), ("mcp-method", "tools/list")];
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": { "_meta": {
        "io.modelcontextprotocol/protocolVersion": STATELESS,
        "io.modelcontextprotocol/clientCapabilities": {} } } })
    .to_string();
    let console = [&header[..], &[("sec-fetch-site", "same-origin")]].concat();
    let requests = [
        ("JSON-RPC", post("/", &a2a, request("ListTasks", &json!({})))),
        ("JSON-RPC of an agent", post("/agents/actor", &a2a, request("ListTasks", &json!({})))),
        ("REST", get("/tasks", &a2a)),
        ("MCP with a session", post("/mcp", &header, &initialize)),
        ("MCP of an agent", post("/agents/actor/mcp", &header, &initialize)),
        ("MCP without a session", post("/mcp", &[&header[..], &stateless].concat(), &list)),
        ("console", get("/console/api/tasks", &console)),
        ("metrics", get("/metrics", &header)),
    ];
    let mut statuses = vec![];
    for (binding, request) in requests {
        statuses.push((binding, site.send(&request).await.status));
    }
    let grpc = GrpcClient::connect(site.address).await;
    let metadata = Vec::from_iter(authorization.map(|shown| ("authorization", shown)));
    let listed = grpc.call("/lf.a2a.v1.A2AService/ListTasks", &metadata, &json!({})).await;
    let status = match listed.status.code {
        GrpcCode::Ok => 200,
        GrpcCode::Unauthenticated => 401,
        GrpcCode::PermissionDenied => 403,
        _ => panic!("{listed:?}"),
    };
    statuses.push(("gRPC", status));
    statuses
}

#[tokio::test]
async fn credentials_that_are_shown_count_where_none_are_required() {
    let guests = Guests::default();
    let revoked = Arc::clone(&guests.revoked);
    let site = open_site(guests).await;
    let sent = site.send(post(
        "/",
        &version_header("1.0"),
        request("SendMessage", &json!({ "message": message("x") })),
    ));
    assert_eq!(sent.await.status, 200);
    let all = |statuses: Vec<(&'static str, u16)>, expected: u16| {
        for (binding, status) in statuses {
            assert_eq!(status, expected, "{binding}");
        }
    };
    all(statuses(&site, None).await, 200);
    all(statuses(&site, Some("Bearer operator")).await, 200);
    all(statuses(&site, Some("Bearer passing")).await, 200);
    revoked.store(true, Ordering::SeqCst);
    for bad in ["Bearer passing", "Bearer bad", "Basic bad", "Bearer "] {
        all(statuses(&site, Some(bad)).await, 401);
    }
    let lines = audit(&site).await;
    let refused =
        lines.iter().filter(|line| line.operation == "authenticate" && line.refused.is_some()).count();
    assert!(refused > 9, "{refused} lines of refusals");

    // A good token is nothing but what it says, also for the tasks of the operator.
    let ada = As { site: &site, token: "acme/ada;execute:a2a:lines" };
    assert_eq!(ada.a2a("1.0", "ListTasks", &json!({})).await.json()["result"]["totalSize"], 0);
    let sent = ada.a2a("1.0", "SendMessage", &json!({ "message": message("x") })).await;
    assert_eq!((sent.status, sent.header("www-authenticate").contains("execute:a2a:actor")), (403, true));
    assert_eq!(ada.get("/metrics").await.status, 403);
    let me = ada.get("/console/api/me").await.json();
    assert_eq!((&me["caller"]["tenant"], &me["by"]), (&json!("acme"), &json!("token")));
    assert_eq!(ada.get("/admin/tasks").await.status, 403);
    assert_eq!(As { site: &site, token: "root;read:admin:tasks" }.get("/admin/tasks").await.status, 200);
    assert_eq!(As { site: &site, token: "bad" }.get("/admin/tasks").await.status, 401);
    assert_eq!(site.get("/admin/tasks", &[]).await.status, 401);
    // The challenge names no metadata that is not served.
    let refused = As { site: &site, token: "bad" }.get("/metrics").await;
    assert_eq!(refused.header("www-authenticate"), "Bearer realm=\"nuncio\", error=\"invalid_token\"");
    assert_eq!(site.get("/.well-known/oauth-protected-resource", &[]).await.status, 404);
}

#[tokio::test]
async fn a_stream_ends_with_its_token_where_none_is_required() {
    let guests = Guests::default();
    let revoked = Arc::clone(&guests.revoked);
    let site = open_site(guests).await;
    let shown = [("A2A-Version", "1.0"), ("Authorization", "Bearer passing")];
    let mut stream =
        site.stream_with(&shown, "SendStreamingMessage", json!({ "message": message("wait") })).await;
    stream.next().await.unwrap();
    revoked.store(true, Ordering::SeqCst);
    within("the end of the stream", async { while stream.piece().await.is_some() {} }).await;
}

#[tokio::test]
async fn private_cards_are_shown_to_a_token_where_none_is_required() {
    let site = Site::with(|setup| {
        setup.server.optional_authenticator = Some(Arc::new(Guests::default()));
        setup.server.private_cards = true;
    })
    .await;
    let card = async |shown: &[(&str, &str)]| site.get("/.well-known/agent-card.json", shown).await.status;
    assert_eq!(card(&[]).await, 401);
    assert_eq!(card(&[("authorization", "Bearer bad")]).await, 401);
    assert_eq!(card(&[("authorization", "Bearer ada")]).await, 200);
}

#[tokio::test]
async fn a_refusal_speaks_the_dialect_and_answers_the_request() {
    let site = site().await;
    for ((version, method), code) in ALL_DIALECTS.into_iter().zip([-32603, -32603, -32007]) {
        let answer = As { site: &site, token: "bad" }.a2a(version, method, &json!({ "id": "x" })).await;
        let said = answer.json();
        assert_eq!(
            (answer.status, &said["error"]["code"], &said["id"]),
            (401, &json!(code), &json!(1)),
            "{said}"
        );
        if version == "1.0" {
            assert_eq!(said["error"]["data"][0]["reason"], "UNAUTHENTICATED");
        }
    }
    // Without a header the method says which dialect it is; what is too large to look into is refused unread.
    let answer = site.send(post("/", &[], request("tasks/send", &json!({ "id": "x" })))).await;
    assert_eq!(answer.json()["error"]["code"], -32007);
    let answer = site
        .send(post("/", &[("a2a-version", "1.0")], request("SendMessage", &json!("x".repeat(100_000)))))
        .await;
    assert_eq!((answer.status, &answer.json()["id"]), (401, &Value::Null));
    let mcp = As { site: &site, token: "bad" }.mcp("", "tools/list", json!({})).await;
    assert_eq!((mcp.status, &mcp.json()["error"]["code"]), (401, &json!(-32004)));
}

#[tokio::test]
async fn metadata_and_cards_announce_the_scheme() {
    let site = site().await;
    let base = format!("http://{}", site.address);
    for path in ["", "/mcp", "/agents/actor/mcp", "/agents/nobody/mcp"] {
        let answer = site.get(&format!("/.well-known/oauth-protected-resource{path}"), &[]).await;
        let said = answer.json();
        assert_eq!(said["resource"], format!("{base}{path}"));
        assert_eq!(said["authorization_servers"], json!(["https://issuer.example"]));
        assert_eq!(said["bearer_methods_supported"], json!(["header"]));
        assert!(said["scopes_supported"].as_array().unwrap().contains(&json!("execute:a2a")), "{said}");
    }
    let unnameable = site.get("/.well-known/oauth-protected-resource/agents/%22/mcp", &[]).await;
    assert_eq!(unnameable.status, 404);
    let card = async |version: &str| {
        site.get("/.well-known/agent-card.json", &[("a2a-version", version)]).await.json()
    };
    let (v1, v0_3, v0_1) = (card("1.0").await, card("0.3").await, card("0.1").await);
    assert_eq!(v1["securitySchemes"]["bearer"]["httpAuthSecurityScheme"]["scheme"], "Bearer");
    assert_eq!(v1["securityRequirements"], json!([{ "schemes": { "bearer": { "list": [] } } }]));
    assert_eq!(v0_3["securitySchemes"]["bearer"], json!({ "type": "http", "scheme": "Bearer" }));
    assert_eq!(v0_3["security"], json!([{ "bearer": [] }]));
    assert_eq!(v0_1["authentication"], json!({ "schemes": ["bearer"] }));

    let open = Site::new().await;
    assert_eq!(open.get("/.well-known/oauth-protected-resource", &[]).await.status, 404);
    let card = open.get("/.well-known/agent-card.json", &[]).await.json();
    assert!(card.get("securitySchemes").is_none() && card.get("security").is_none(), "{card}");
}

#[tokio::test]
async fn what_the_scopes_do_not_allow_is_forbidden_with_the_scope_that_would() {
    let site = site().await;
    let ada = As { site: &site, token: "acme/ada" };
    let task = ada.begin("wait").await;
    let reader = As { site: &site, token: "acme/ada;read:a2a" };
    let challenge = |answer: &crate::socket::Answer, scope: &str| {
        assert_eq!(answer.status, 403, "{}", answer.text());
        let said = answer.header("www-authenticate");
        assert!(said.contains("error=\"insufficient_scope\""), "{said}");
        assert!(said.contains(&format!("scope=\"{scope}\"")), "{said}");
    };
    for (version, send, cancel, codes) in [
        ("1.0", "SendMessage", "CancelTask", -32603),
        ("0.3", "message/send", "tasks/cancel", -32603),
        ("0.1", "tasks/send", "tasks/cancel", -32008),
    ] {
        let text = match version {
            "1.0" => json!({ "message": message("x") }),
            "0.3" => {
                json!({ "message": { "kind": "message", "messageId": "m", "role": "user", "parts": [{ "kind": "text", "text": "x" }] } })
            }
            _ => {
                json!({ "id": "t", "message": { "role": "user", "parts": [{ "type": "text", "text": "x" }] } })
            }
        };
        let sent = reader.a2a(version, send, &text).await;
        challenge(&sent, "execute:a2a:actor");
        assert_eq!(sent.json()["error"]["code"], codes, "{version}");
        challenge(&reader.a2a(version, cancel, &json!({ "id": task })).await, "write:a2a:tasks");
        let blind = As { site: &site, token: "acme/ada;read:memory" };
        let get = if version == "1.0" { "GetTask" } else { "tasks/get" };
        challenge(&blind.a2a(version, get, &json!({ "id": task })).await, "read:a2a:tasks");
        let follow = if version == "1.0" { "SubscribeToTask" } else { "tasks/resubscribe" };
        challenge(&blind.a2a(version, follow, &json!({ "id": task })).await, "read:a2a:tasks");
        // Whoever may send to an agent may see what becomes of it.
        for caller in [reader, As { site: &site, token: "acme/ada;execute:a2a:actor" }] {
            let got = caller.a2a(version, get, &json!({ "id": task })).await;
            assert!(got.json().get("error").is_none(), "{}", got.text());
        }
    }
    let call = json!({ "name": "actor", "arguments": { "text": "x" } });
    let session = reader.session().await;
    for session in ["", &*session] {
        let refused = reader.mcp(session, "tools/call", call.clone()).await;
        challenge(&refused, "execute:a2a:actor");
        assert_eq!(refused.json()["error"]["code"], -32003);
        assert!(refused.header("www-authenticate").contains("oauth-protected-resource/mcp\""));
    }
    let blind = As { site: &site, token: "acme/ada;read:memory" };
    challenge(
        &blind.mcp("", "resources/read", json!({ "uri": format!("a2a://tasks/{task}") })).await,
        "read:a2a:tasks",
    );
    let lines = audit(&site).await;
    let refused =
        lines.iter().find(|line| line.operation == "task.cancel" && line.refused.is_some()).unwrap();
    assert_eq!(
        (&*refused.tenant, &*refused.caller, refused.from.as_deref()),
        ("acme", "acme/ada", Some("127.0.0.1"))
    );
}

#[tokio::test]
async fn who_is_too_fast_is_told_when_to_come_again() {
    let site = site_with(|setup| {
        setup.options.access.rates = vec![(AccessKind::A2a, "2/h".parse().unwrap())];
    })
    .await;
    let mut n = 0;
    let mut fresh = || {
        n += 1;
        format!("acme/ada{n}")
    };
    let params = json!({ "id": "nobody" });
    for (version, method) in ALL_DIALECTS {
        let token = fresh();
        let ada = As { site: &site, token: &token };
        for _ in 0..2 {
            assert_eq!(ada.a2a(version, method, &params).await.status, 200, "{version}");
        }
        let answer = ada.a2a(version, method, &params).await;
        let wait: u64 = answer.header("retry-after").parse().unwrap();
        assert_eq!(answer.status, 429, "{version}: {}", answer.text());
        assert!((1..=1800).contains(&wait), "{wait}");
        let stream = if version == "1.0" { "SubscribeToTask" } else { "tasks/resubscribe" };
        assert_eq!(ada.a2a(version, stream, &params).await.status, 429, "{version}");
        let code = answer.json()["error"]["code"].clone();
        assert_eq!(code, if version == "0.1" { json!(-32010) } else { json!(-32603) });
    }
    for stateless in [true, false] {
        let token = fresh();
        let ada = As { site: &site, token: &token };
        let session = if stateless { String::new() } else { ada.session().await };
        let read = json!({ "uri": "a2a://tasks/nobody" });
        for _ in 0..2 {
            assert_ne!(ada.mcp(&session, "resources/read", read.clone()).await.status, 429);
        }
        let answer = ada.mcp(&session, "resources/read", read).await;
        assert_eq!((answer.status, &answer.json()["error"]["code"]), (429, &json!(-32029)));
        assert!(answer.header("retry-after").parse::<u64>().is_ok_and(|wait| wait > 0));
    }
    // One caller's haste is nobody else's.
    assert_eq!(As { site: &site, token: "globex/bob" }.a2a("1.0", "GetTask", &params).await.status, 200);
}

#[tokio::test]
async fn failed_authentications_are_audited_and_a_flood_of_them_is_counted() {
    let site = site().await;
    let mut socket = site.socket().await;
    for _ in 0..200 {
        socket.send(post("/mcp", &[("authorization", "Bearer bad-sk-live-0123456789abcdef")], "{}")).await;
        assert_eq!(socket.answer().await.status, 401);
    }
    let counted = within("the flood is summed up", async {
        loop {
            let lines = audit(&site).await;
            let more: u64 = lines
                .iter()
                .filter_map(|line| line.refused.as_ref()?.split_once(" more failed")?.0.parse::<u64>().ok())
                .sum();
            let single =
                lines.iter().filter(|line| line.refused.as_deref() == Some("it is bad")).count() as u64;
            if single + more == 200 {
                return (single, lines);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    assert!((10..200).contains(&counted.0), "{} have lines of their own", counted.0);
    let line = counted.1.iter().find(|line| line.refused.as_deref() == Some("it is bad")).unwrap();
    assert_eq!(
        (&*line.caller, &*line.tenant, line.from.as_deref()),
        ("anonymous", "home", Some("127.0.0.1"))
    );
    assert_eq!((&*line.operation, &*line.resource), ("authenticate", "/mcp"));
    assert!(!format!("{:?}", counted.1).contains("0123456789abcdef"), "what was shown is not kept");
}

#[tokio::test]
async fn a_session_is_its_callers_alone() {
    let site = site().await;
    let (ada, bob) = (As { site: &site, token: "acme/ada" }, As { site: &site, token: "globex/bob" });
    let session = ada.session().await;
    let theirs = [("mcp-session-id", &*session), ("accept", "text/event-stream")];
    let unknown = [("mcp-session-id", "00000000000000000000000000000000"), ("accept", "text/event-stream")];
    let same = |a: crate::socket::Answer, b: crate::socket::Answer| {
        assert_eq!((a.status, a.text()), (404, b.text()));
        assert_eq!(b.status, 404);
    };
    same(bob.mcp(&session, "ping", json!({})).await, bob.mcp(unknown[0].1, "ping", json!({})).await);
    for method in ["GET", "DELETE"] {
        same(bob.bare(method, "/mcp", &theirs).await, bob.bare(method, "/mcp", &unknown).await);
    }
    assert_eq!(ada.mcp(&session, "ping", json!({})).await.status, 200, "nobody else has ended it");

    // The connection of 2024-11-05 is its caller's, with its rights.
    let open = get("/sse", &[("authorization", "Bearer acme/ada"), ("accept", "text/event-stream")]);
    let mut socket = site.socket().await;
    socket.send(&open).await;
    let (status, _) = socket.head().await.unwrap();
    assert_eq!(status, 200);
    let first = String::from_utf8(socket.chunk().await.unwrap()).unwrap();
    let address = first.split("data: ").nth(1).unwrap().trim().to_owned();
    let ping = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" }).to_string();
    for (token, status) in [("globex/bob", 404), ("acme/ada;read:a2a", 404), ("bad", 401), ("acme/ada", 202)]
    {
        let authorization = format!("Bearer {token}");
        let answer = site.send(post(&address, &[("authorization", &authorization)], &ping)).await;
        assert_eq!(answer.status, status, "{token}: {}", answer.text());
    }
}

#[tokio::test]
async fn one_caller_cannot_take_all_streams() {
    let site = site_with(|setup| setup.server.limits.max_streams_per_caller = 2).await;
    let (ada, bob) = (As { site: &site, token: "acme/ada" }, As { site: &site, token: "globex/bob" });
    let task = ada.begin("wait").await;
    let follow = |task: &str, token: &str| {
        let authorization = format!("Bearer {token}");
        let headers = [("a2a-version", "1.0"), ("authorization", &*authorization)];
        post("/", &headers, request("SubscribeToTask", &json!({ "id": task })))
    };
    let first = Events::open(site.socket().await, &follow(&task, "acme/ada")).await;
    let _second = Events::open(site.socket().await, &follow(&task, "acme/ada")).await;
    let answer = site.send(follow(&task, "acme/ada")).await;
    assert_eq!(answer.status, 503);
    assert!(answer.text().contains("max_streams_per_caller"), "{}", answer.text());
    let theirs = bob.begin("wait").await;
    drop(Events::open(site.socket().await, &follow(&theirs, "globex/bob")).await);
    drop(first);
    within("a place is free again", async {
        while site.send(follow("nobody", "acme/ada")).await.status == 503 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn the_operator_shows_its_own_token_and_administrators_their_scopes() {
    let site = site_with(|setup| setup.server.metrics = Some(Arc::new(|| "figures".into()))).await;
    let as_ = |token| As { site: &site, token };
    assert_eq!(as_("operator").a2a("1.0", "ListTasks", &json!({})).await.status, 200);
    as_("acme/ada").begin("x").await;
    as_("globex/bob").begin("x").await;
    for (token, status) in [("operator", 200), ("home-admin;read:admin:metrics", 200), ("acme/ada;*:*", 403)]
    {
        assert_eq!(as_(token).get("/metrics").await.status, status, "{token}");
    }
    for (token, status) in
        [("operator", 200), ("root;read:admin:audit", 200), ("acme/ada;*:*", 403), ("bad", 401)]
    {
        assert_eq!(as_(token).get("/admin/audit?limit=3").await.status, status, "{token}");
    }
    assert_eq!(as_("acme/ada;*:*").get("/admin/dead-letters").await.status, 401, "for the operator alone");
    let callers = async |token: &'static str, query: &str| -> Vec<String> {
        let page = as_(token).get(&format!("/admin/audit{query}")).await;
        let page = page.json();
        let entries = page["entries"].as_array().unwrap_or_else(|| panic!("{page}")).clone();
        entries.iter().map(|line| line["caller"].as_str().unwrap().to_owned()).collect()
    };
    assert!(callers("operator", "").await.contains(&"globex/bob".to_owned()));
    let acme = callers("acme/root;read:admin", "").await;
    assert!(acme.iter().all(|caller| caller.starts_with("acme/")), "{acme:?}");
    assert!(acme.contains(&"acme/ada".to_owned()));
    assert_eq!(callers("acme/root;read:admin", "?tenant=globex").await, [""; 0]);
    assert_eq!(callers("operator", "?tenant=globex&type=a2a").await, ["globex/bob"]);
    for wrong in ["?limit=0", "?limit=x", "?type=y", "?since=yesterday", "?refused=2", "?colour=1"] {
        assert_eq!(as_("operator").get(&format!("/admin/audit{wrong}")).await.status, 400, "{wrong}");
    }
    // Pages go on where the last one ended.
    let first = as_("operator").get("/admin/audit?limit=2").await.json();
    let next = first["next"].as_u64().unwrap();
    assert_eq!(first["entries"][1]["number"], next);
    let second = as_("operator").get(&format!("/admin/audit?limit=2&before={next}")).await.json();
    assert!(second["entries"][0]["number"].as_u64().unwrap() < next);
}

#[tokio::test]
async fn pages_of_named_origins_may_call_and_no_others() {
    const APP: &str = "https://app.example.org";
    let site = site_with(|setup| setup.server.cors_origins = vec![APP.into()]).await;
    let ask = |origin: &'static str| {
        let headers = [
            ("origin", origin),
            ("access-control-request-method", "POST"),
            ("access-control-request-headers", "authorization, mcp-param-city, x-evil"),
        ];
        bare("OPTIONS", "/mcp", &headers)
    };
    let answer = site.send(ask(APP)).await;
    assert_eq!((answer.status, answer.header("access-control-allow-origin")), (204, APP));
    let allowed = answer.header("access-control-allow-headers").to_ascii_lowercase();
    for name in
        ["authorization", "content-type", "a2a-version", "mcp-session-id", "last-event-id", "mcp-param-city"]
    {
        assert!(allowed.split(", ").any(|known| known == name), "{name}: {allowed}");
    }
    assert!(!allowed.contains("x-evil"));
    assert!(answer.header("access-control-allow-methods").contains("DELETE"));
    assert!(answer.headers.get("access-control-allow-credentials").is_none());

    let list = request("ListTasks", &json!({}));
    let call = |origin: &'static str, token: &'static str| {
        post("/", &[("origin", origin), ("authorization", token), ("a2a-version", "1.0")], &list)
    };
    let answer = site.send(call(APP, "Bearer ada")).await;
    assert_eq!((answer.status, answer.header("access-control-allow-origin")), (200, APP));
    assert_eq!(answer.header("vary"), "Origin");
    assert!(answer.header("access-control-expose-headers").contains("WWW-Authenticate"));
    let refused = site.send(call(APP, "Bearer bad")).await;
    assert_eq!(
        (refused.status, refused.header("access-control-allow-origin")),
        (401, APP),
        "a page may read why"
    );
    for origin in
        ["https://evil.example", "https://app.example.org.evil.example", "null", "http://app.example.org"]
    {
        let answer = site.send(call(origin, "Bearer ada")).await;
        assert_eq!(answer.status, 403, "{origin}");
        assert!(answer.headers.keys().all(|name| !name.as_str().starts_with("access-control")), "{origin}");
    }
    assert_eq!(site.send(ask("https://evil.example")).await.status, 403);

    let any = site_with(|setup| setup.server.cors_origins = vec!["*".into()]).await;
    let answer = any.send(call("https://anybody.example", "Bearer ada")).await;
    assert_eq!((answer.status, answer.header("access-control-allow-origin")), (200, "*"));
    assert!(answer.headers.get("access-control-allow-credentials").is_none());
    let mut stranger = call("https://anybody.example", "Bearer ada");
    stranger =
        String::from_utf8(stranger).unwrap().replace("host: localhost", "host: evil.example").into_bytes();
    assert_eq!(any.send(stranger).await.status, 403, "the Host is checked all the same");
}

#[tokio::test]
async fn whoever_may_not_read_a_resource_may_not_follow_it() {
    let site = site().await;
    let limited = As { site: &site, token: "acme/ada;read:memory:team-*+read:a2a" };
    let session = limited.session().await;
    let follow = async |uri: &str| limited.mcp(&session, "resources/subscribe", json!({ "uri": uri })).await;
    for uri in ["memory://data/secret/k", "batchtools://queue/status", "audit://log"] {
        let refused = follow(uri).await;
        assert_eq!(refused.status, 403, "{uri}: {}", refused.text());
        let alias = follow(&format!("mcp://claude-20x/{}", uri.replacen("://", "/", 1))).await;
        assert_ne!(alias.json()["error"], Value::Null, "{uri} by its alias: {}", alias.text());
    }
    let lines = audit(&site).await;
    let followed = |line: &&nuncio_engine::knowledge::AuditEntry| line.operation == "resource.follow";
    assert_eq!(lines.iter().filter(followed).filter(|line| line.refused.is_some()).count(), 3, "{lines:?}");
    let long = follow(&format!("memory://data/{}", "a".repeat(100_000))).await;
    assert!(long.text().contains("4096 bytes"), "{}", long.text());
}

#[tokio::test]
async fn a_line_of_the_audit_is_short_whatever_was_asked_for() {
    let site = site().await;
    let ada = As { site: &site, token: "acme/ada" };
    let id = format!("{}\u{0}sk-live-0123456789abcdef", "x".repeat(1_000_000));
    let answer = ada.a2a("1.0", "GetTask", &json!({ "id": id })).await;
    assert!(answer.text().contains("-32001") && answer.text().len() < 4_096, "{}", answer.text().len());
    let lines = audit(&site).await;
    let line = lines.iter().find(|line| line.operation == "task.get").unwrap();
    assert!(line.resource.len() < 600 && line.resource.ends_with('…'), "{}", line.resource.len());
}

/// Of every kind: those that only tell what changes, those of tasks, and those of calls.
#[tokio::test]
async fn streams_end_soon_after_the_token_does() {
    let revoked = Arc::new(AtomicBool::new(false));
    let guests = Guests { revoked: Arc::clone(&revoked) };
    let site = site_with(|setup| setup.server.authenticator = Some(Arc::new(guests))).await;
    let (passing, steady) = (As { site: &site, token: "passing" }, As { site: &site, token: "ada" });
    let listen = |token: &str| {
        let authorization = format!("Bearer {token}");
        let headers = [
            ("authorization", &*authorization),
            ("accept", "application/json, text/event-stream"),
            ("mcp-protocol-version", STATELESS),
            ("mcp-method", "subscriptions/listen"),
        ];
        let params = json!({ "notifications": { "toolsListChanged": true }, "_meta": {
            "io.modelcontextprotocol/protocolVersion": STATELESS,
            "io.modelcontextprotocol/clientCapabilities": {},
        } });
        post("/mcp", &headers, request("subscriptions/listen", &params))
    };
    let of_session = |token: &str, session: &str| {
        let authorization = format!("Bearer {token}");
        let headers = [
            ("authorization", &*authorization),
            ("mcp-session-id", session),
            ("accept", "text/event-stream"),
        ];
        bare("GET", "/mcp", &headers)
    };
    let open = async |request: Vec<u8>| {
        let mut socket = site.socket().await;
        socket.send(request).await;
        let (status, _) = socket.head().await.expect("an answer");
        assert_eq!(status, 200);
        socket
    };
    let call = |token: &str, session: &str| {
        let authorization = format!("Bearer {token}");
        let headers = [
            ("authorization", &*authorization),
            ("mcp-session-id", session),
            ("accept", "application/json, text/event-stream"),
        ];
        let params = json!({ "name": "actor", "arguments": { "text": "wait" } });
        post("/mcp", &headers, request("tools/call", &params))
    };
    let follow = async |who: &As<'_>, token: &str| {
        let task = who.begin("wait").await;
        let authorization = format!("Bearer {token}");
        let headers = [("authorization", &*authorization), ("a2a-version", "1.0")];
        post("/", &headers, request("SubscribeToTask", &json!({ "id": task })))
    };
    let send = |token: &str| {
        let authorization = format!("Bearer {token}");
        let headers = [("authorization", &*authorization), ("a2a-version", "1.0")];
        let params = json!({ "message": message("wait") });
        post("/", &headers, request("SendStreamingMessage", &params))
    };
    let mut closed = vec![
        open(call("passing", &passing.session().await)).await,
        open(follow(&passing, "passing").await).await,
        open(send("passing")).await,
        open(listen("passing")).await,
        open(of_session("passing", &passing.session().await)).await,
        open(get("/sse", &[("authorization", "Bearer passing")])).await,
    ];
    let mut others = [
        open(call("ada", &steady.session().await)).await,
        open(follow(&steady, "ada").await).await,
        open(send("ada")).await,
        open(listen("ada")).await,
        open(of_session("ada", &steady.session().await)).await,
        open(get("/sse", &[("authorization", "Bearer ada")])).await,
    ];
    revoked.store(true, Ordering::SeqCst);
    for stream in &mut closed {
        within("it is closed", async {
            while stream.chunk().await.is_some_and(|chunk| !chunk.is_empty()) {}
        })
        .await;
    }
    let ends = async |stream: &mut Socket| {
        let read = async { while stream.chunk().await.is_some_and(|chunk| !chunk.is_empty()) {} };
        tokio::time::timeout(Duration::from_millis(300), read).await.is_ok()
    };
    for stream in &mut others {
        assert!(!ends(stream).await, "nothing was wrong with it");
    }
}

#[tokio::test]
async fn a_refusal_waits_for_no_body() {
    let site = site().await;
    for path in ["/", "/agents/actor", "/mcp", "/messages?sessionId=x", "/admin/tokens"] {
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             Content-Length: 1000\r\n\r\n{{"
        );
        let mut socket = site.socket().await;
        socket.send(head).await;
        // Far less than the time that a body may take.
        let answer = tokio::time::timeout(Duration::from_secs(10), socket.answer()).await;
        let answer = answer.unwrap_or_else(|_| panic!("{path}: no answer before the body"));
        assert_eq!(answer.status, 401, "{path}: {}", answer.text());
    }
}

#[tokio::test]
async fn answers_are_for_no_cache_and_no_frame() {
    let site = Site::new().await;
    let sent = site
        .send(post(
            "/",
            &[("a2a-version", "1.0")],
            request("SendMessage", &json!({ "message": message("x") })),
        ))
        .await;
    assert_eq!(sent.header("x-content-type-options"), "nosniff");
    assert_eq!(sent.header("cache-control"), "no-store");
    let shown = site.get("/healthz", &[]).await;
    assert_eq!(shown.header("content-security-policy"), "default-src 'none'; frame-ancestors 'none'");
    assert_eq!(shown.header("referrer-policy"), "no-referrer");
    assert_eq!(
        (shown.header("x-content-type-options"), shown.header("cache-control")),
        ("nosniff", "no-store")
    );
    // A card may be kept for a while, as it says.
    let card = site.get("/.well-known/agent-card.json", &[]).await;
    assert!(card.header("cache-control").contains("max-age"), "{}", card.header("cache-control"));
    let refused = site.get("/nowhere", &[("host", "evil.example")]).await;
    assert_eq!((refused.status, refused.header("x-content-type-options")), (403, "nosniff"));
}
