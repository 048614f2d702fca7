//! What one tenant takes of the server is its share, and the others have theirs.

use serde_json::{Value, json};

use crate::{
    guests::{As, site, site_with},
    site::{Site, request},
    socket::{Answer, Socket, post, within},
};

/// A request of any method, and whether it is one of MCP.
async fn ask(caller: As<'_>, session: &str, method: &str) -> Answer {
    match method {
        "ListTasks" | "NoSuchMethod" => caller.a2a("1.0", method, &json!({})).await,
        "broken" => {
            let authorization = format!("Bearer {}", caller.token);
            caller.site.send(post("/", &[("authorization", &authorization)], "{")).await
        }
        method => caller.mcp(session, method, json!({})).await,
    }
}

#[tokio::test]
async fn every_method_costs_a_request_and_the_haste_of_one_tenant_is_nobody_elses() {
    let site = site_with(|setup| setup.server.limits.requests_per_second = 1).await;
    for (n, method) in
        ["initialize", "ping", "tools/list", "ListTasks", "NoSuchMethod", "broken"].into_iter().enumerate()
    {
        let token = format!("acme{n}/ada");
        let ada = As { site: &site, token: &token };
        let session = if method == "ping" { ada.session().await } else { String::new() };
        let refused = within("a refusal", async {
            loop {
                let answer = ask(ada, &session, method).await;
                if answer.status == 429 {
                    return answer;
                }
            }
        })
        .await;
        assert_eq!(refused.header("retry-after"), "1", "{method}");
        let said = refused.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(said.contains("http.requests-per-second"), "{method}: {said}");
    }
    // Whoever is not in a hurry, and the operator, whose requests are not counted.
    assert_eq!(ask(As { site: &site, token: "globex/bob" }, "", "ListTasks").await.status, 200);
    for _ in 0..20 {
        assert_eq!(ask(As { site: &site, token: "operator" }, "", "ListTasks").await.status, 200);
    }
}

#[tokio::test]
async fn the_callers_of_a_tenant_have_a_rate_together() {
    let site = site_with(|setup| {
        setup.server.limits.requests_per_second = 1_000;
        setup.server.limits.requests_per_second_per_tenant = 1;
    })
    .await;
    let refused = within("a refusal", async {
        for n in 0.. {
            let token = format!("acme/{n}");
            let answer = ask(As { site: &site, token: &token }, "", "ListTasks").await;
            if answer.status == 429 {
                return answer;
            }
        }
        unreachable!("it is asked until it refuses")
    })
    .await;
    assert!(refused.text().contains("http.requests-per-second-per-tenant"), "{}", refused.text());
    assert_eq!(ask(As { site: &site, token: "globex/bob" }, "", "ListTasks").await.status, 200);
}

#[tokio::test]
async fn a_token_that_may_do_nothing_holds_no_session_and_no_stream() {
    let site = site().await;
    let useless = As { site: &site, token: "acme/eve;nothing" };
    let authorization = format!("Bearer {}", useless.token);
    let accept = ("accept", "application/json, text/event-stream");
    let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": { "name": "test", "version": "1" } });
    let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params }).to_string();
    let answer = site.send(post("/mcp", &[("authorization", &authorization), accept], hello)).await;
    assert_eq!((answer.status, answer.header("mcp-session-id")), (403, ""), "{}", answer.text());
    let opened = useless.bare("GET", "/sse", &[("accept", "text/event-stream")]).await;
    assert_eq!(opened.status, 403, "{}", opened.text());
    let listening = json!({ "notifications": { "toolsListChanged": true } });
    let answer = useless.mcp("", "subscriptions/listen", listening).await;
    assert_eq!(answer.status, 403, "{}", answer.text());
}

/// A connection with a stream of a task on it, or why there is none.
async fn follow(site: &Site, task: &str, token: &str) -> Result<Socket, Value> {
    let authorization = format!("Bearer {token}");
    let headers = [("a2a-version", "1.0"), ("authorization", &*authorization)];
    let subscribe = post("/", &headers, request("SubscribeToTask", &json!({ "id": task })));
    let mut socket = site.socket().await;
    socket.send(&subscribe).await;
    match socket.head().await.unwrap() {
        (200, _) => Ok(socket),
        _ => Err(site.send(&subscribe).await.json()),
    }
}

#[tokio::test]
async fn what_is_answered_at_once_needs_no_stream() {
    let site = site_with(|setup| setup.server.limits.max_streams_per_caller = 1).await;
    let ada = As { site: &site, token: "acme/ada" };
    let session = ada.session().await;
    let task = ada.begin("wait").await;
    let _stream = follow(&site, &task, "acme/ada").await.unwrap();
    for method in ["ping", "tools/list", "resources/list"] {
        for session in [&*session, ""] {
            if method == "ping" && session.is_empty() {
                continue;
            }
            let answer = ada.mcp(session, method, json!({})).await;
            assert_eq!(answer.status, 200, "{method}: {}", answer.text());
        }
    }
    ada.session().await;
}

#[tokio::test]
async fn a_tenant_that_hoards_streams_leaves_as_many_as_it_has() {
    let site = site_with(|setup| {
        setup.server.limits.max_streams = 32;
        setup.server.limits.max_streams_per_caller = 32;
    })
    .await;
    let mut held = vec![];
    let mut refused = None;
    for n in 0..32 {
        let token = format!("acme/ada{}", n % 4);
        let task = As { site: &site, token: &token }.begin("wait").await;
        match follow(&site, &task, &token).await {
            Ok(stream) => held.push(stream),
            Err(answer) => {
                refused = Some(answer);
                break;
            }
        }
    }
    let said = refused.unwrap()["error"]["message"].as_str().unwrap().to_owned();
    assert!(said.contains("the tenant has 16 of 32 streams open"), "{said}");
    let task = As { site: &site, token: "globex/bob" }.begin("wait").await;
    follow(&site, &task, "globex/bob").await.unwrap();
}
