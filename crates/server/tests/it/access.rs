//! Who may ask: names that belong here, and the operator.

use serde_json::json;

use crate::{
    site::{Site, message, request},
    socket::{get, post},
};

const V1: (&str, &str) = ("A2A-Version", "1.0");

#[tokio::test]
async fn only_names_that_belong_here_are_answered() {
    let site = Site::with(|setup| {
        setup.server.public_url = Some("https://agents.example.org:8443/base/".into());
        setup.server.allowed_hosts = vec!["other.example".into(), "[fd00::1]".into()];
        setup.server.admin_token = Some("secret".into());
        setup.server.metrics = Some(std::sync::Arc::new(String::new));
    })
    .await;
    let send = request("SendMessage", &json!({ "message": message("x") }));
    let check = async |headers: &[(&str, &str)], allowed: bool, word: &str| {
        let paths = ["/", "/healthz", "/readyz", "/metrics", "/.well-known/agent-card.json", "/agents/actor"];
        let mut requests: Vec<_> = paths.iter().map(|path| get(path, headers)).collect();
        let before = site.total().await;
        let with_version: Vec<_> = headers.iter().copied().chain([V1]).collect();
        requests.extend(["/", "/agents/actor"].map(|path| post(path, &with_version, &send)));
        let count = requests.len();
        for (n, request) in requests.into_iter().enumerate() {
            let answer = site.send(request).await;
            // A probe names any host; a page, which names its origin, is no probe.
            let is_probe = [1, 2].contains(&n) && !headers.iter().any(|(name, _)| *name == "origin");
            let allowed = allowed || is_probe;
            assert_eq!(answer.status, if allowed { 200 } else { 403 }, "{headers:?} {n}");
            if !allowed {
                let said = answer.json()["error"]["message"].as_str().unwrap().to_owned();
                assert!(said.contains(word), "{said}");
            }
        }
        assert_eq!(count, 8);
        assert_eq!(site.total().await - before, if allowed { 2 } else { 0 }, "{headers:?}");
    };
    for host in [
        "localhost",
        "LocalHost:1234",
        "127.0.0.1",
        "127.0.0.1:80",
        "[::1]:9",
        "agents.example.org",
        "Agents.Example.org:8443",
        "other.example:1",
        "[fd00::1]:1",
    ] {
        check(&[("host", host)], true, "").await;
    }
    // Names by which a page that a browser shows can reach a local server.
    for host in [
        "evil.example",
        "evil.example:80",
        "localhost.evil.example",
        "127.0.0.1.nip.io",
        "127.0.0.1.evil.example:80",
        "evil.example#localhost",
        "user@localhost",
        "localhost@evil.example",
        "localhost:80:80",
        "localhost.",
        "0.0.0.0",
        "127.1",
        "2130706433",
        "[::ffff:127.0.0.1]",
        "",
    ] {
        check(&[("host", host)], false, "Host").await;
    }
    for (host, origin) in [
        ("localhost", "http://localhost"),
        ("127.0.0.1:3000", "http://127.0.0.1:3000"),
        ("localhost:1", "http://[::1]:1"),
        ("localhost", "https://agents.example.org:8443"),
    ] {
        check(&[("host", host), ("origin", origin)], true, "").await;
    }
    // Another port of this machine is another program, and may show anybody's pages.
    for origin in ["http://localhost:3000", "https://agents.example.org", "http://agents.example.org:8443"] {
        check(&[("host", "localhost:8080"), ("origin", origin)], false, "Origin").await;
    }
    for origin in [
        "http://evil.example",
        "https://localhost.evil.example",
        "null",
        "file://",
        "localhost",
        "http://user@localhost",
        "http://localhost@evil.example",
        "",
        "é",
    ] {
        check(&[("origin", origin)], false, "Origin").await;
    }
    assert_eq!(site.send(b"GET /metrics HTTP/1.0\r\n\r\n").await.status, 403, "no Host at all");
    assert_eq!(site.send(b"GET /healthz HTTP/1.0\r\n\r\n").await.status, 200, "a probe");
}

#[tokio::test]
async fn a_server_for_any_host_asks_for_none() {
    let site = Site::with(|setup| setup.server.any_host = true).await;
    assert_eq!(site.get("/healthz", &[("host", "whatever.example")]).await.status, 200);
    assert_eq!(site.get("/healthz", &[("origin", "https://whatever.example")]).await.status, 200);
    // A page of another site still cannot send: JSON it may only send after asking, and there is no yes.
    let ask = String::from_utf8(get("/", &[("origin", "https://evil.example")])).unwrap();
    let answer = site.send(ask.replacen("GET", "OPTIONS", 1)).await;
    assert_eq!(answer.status, 405);
    assert!(answer.headers.keys().all(|name| !name.as_str().starts_with("access-control")));
}

#[tokio::test]
async fn the_operator_shows_the_token() {
    let without = Site::new().await;
    let site = Site::with(|setup| setup.server.admin_token = Some("s3cret".into())).await;
    let list = |headers: &[(&str, &str)]| get("/admin/dead-letters", headers);
    let replay = |headers: &[(&str, &str)], body: &str| post("/admin/dead-letters/replay", headers, body);

    for authorization in
        ["", "Bearer", "Bearer ", "Bearer wrong", "Bearer s3cret ", "Bearer s3cretx", "Basic s3cret"]
    {
        // Trailing spaces are no part of a header.
        let right = authorization == "Bearer s3cret ";
        let headers = [("authorization", authorization)];
        for request in [list(&headers), replay(&headers, "{}")] {
            assert_eq!(without.send(&request).await.status, 404, "there is no operator");
            let answer = site.send(&request).await;
            assert_eq!(answer.status, if right { 200 } else { 401 }, "{authorization:?}");
            if !right {
                assert_eq!(answer.header("www-authenticate"), "Bearer");
                assert!(answer.text().contains("secret of the data folder"), "{}", answer.text());
                assert!(!answer.text().contains("s3cret"));
            }
        }
    }
    assert_eq!(site.send(list(&[])).await.status, 401);

    let right = [("authorization", "bearer s3cret")];
    assert_eq!(site.send(list(&right)).await.json(), json!({ "deadLetters": [] }));
    for all in ["{}", r#"{"delivery":null}"#, r#"{"delivery":"unknown"}"#] {
        assert_eq!(site.send(replay(&right, all)).await.json(), json!({ "replayed": 0 }));
    }
    // What is not understood is not a wish for all of them.
    for (body, status) in [
        ("", 400),
        ("all", 400),
        ("[]", 400),
        ("\"x\"", 400),
        (r#"{"delivery":5}"#, 400),
        (r#"{"delivry":"x"}"#, 400),
        (&" ".repeat(9 << 20), 413),
    ] {
        let answer = site.send(replay(&right, body)).await;
        assert_eq!(answer.status, status, "{}", answer.text());
    }
    assert_eq!(site.send(get("/admin/dead-letters/replay", &right)).await.status, 405);
    assert_eq!(site.send(get("/admin", &right)).await.status, 404);
    let stranger = [("authorization", "Bearer s3cret"), ("host", "evil.example")];
    assert_eq!(site.send(list(&stranger)).await.status, 403);
}
