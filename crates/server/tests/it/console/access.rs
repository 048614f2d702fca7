//! Origins, credentials, sessions and the headers of pages and answers.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::json;

use super::{API, refused};
use crate::{
    guests::Guests,
    site::{Site, message},
    socket::{bare, get, post, within},
};

#[tokio::test]
async fn only_pages_of_this_very_origin_and_programs_are_answered() {
    let site = Site::new().await;
    let host = site.address.to_string();
    let own = format!("http://{host}");
    for headers in [
        vec![],
        vec![("Sec-Fetch-Site", "same-origin")],
        vec![("Sec-Fetch-Site", "none")],
        vec![("Origin", own.as_str())],
        vec![("Origin", own.as_str()), ("Sec-Fetch-Site", "same-origin")],
    ] {
        let headers = [&[("Host", host.as_str())], &headers[..]].concat();
        let answer = site.console("me", &headers).await;
        assert_eq!(answer.status, 200, "{headers:?}: {}", answer.text());
    }
    let other_port = format!("http://127.0.0.1:{}", site.address.port() ^ 1);
    let other_name = format!("http://localhost:{}", site.address.port());
    for headers in [
        vec![("Sec-Fetch-Site", "same-site")],
        vec![("Sec-Fetch-Site", "cross-site")],
        vec![("Origin", other_port.as_str())],
        vec![("Origin", "null")],
        vec![("Origin", "https://evil.example")],
        // The same machine by another name is another origin.
        vec![("Origin", other_name.as_str())],
        vec![("Origin", own.as_str()), ("Sec-Fetch-Site", "cross-site")],
    ] {
        let headers = [&[("Host", host.as_str())], &headers[..]].concat();
        for path in ["me", "tasks", "session"] {
            let answer = site.console(path, &headers).await;
            assert_eq!(answer.status, 403, "{headers:?}: {}", answer.text());
            assert!(answer.headers.get("access-control-allow-origin").is_none());
        }
    }
    let rebound = site.send(get(&format!("{API}/me"), &[("Host", "evil.example")])).await;
    assert_eq!(rebound.status, 403);
}

/// Not even an origin that may call the other endpoints.
#[tokio::test]
async fn an_origin_of_cors_is_none_of_the_consoles() {
    let site = Site::with(|setup| setup.server.cors_origins = vec!["https://app.example".into()]).await;
    let answer = site.console("me", &[("Origin", "https://app.example")]).await;
    assert_eq!(answer.status, 403);
    assert!(answer.headers.get("access-control-allow-origin").is_none(), "{:?}", answer.headers);
    let preflight = bare(
        "OPTIONS",
        &format!("{API}/tasks"),
        &[("Origin", "https://app.example"), ("Access-Control-Request-Method", "POST")],
    );
    let answer = site.send(preflight).await;
    assert!(answer.headers.get("access-control-allow-origin").is_none(), "{:?}", answer.headers);
}

#[tokio::test]
async fn pages_files_and_answers_have_the_policy() {
    let site = Site::new().await;
    let page = site.get("/console/tasks/some-id?at=3", &[]).await;
    assert_eq!((page.status, page.header("content-type")), (200, "text/html; charset=utf-8"));
    assert_eq!(page.header("cache-control"), "no-cache");
    let script = page.text().split('"').find(|part| part.ends_with("/app.js")).unwrap().to_owned();
    assert!(script.starts_with("/console/a/") && !script.contains("/dev/"), "{script}");
    let file = site.get(&script, &[]).await;
    assert_eq!((file.status, file.header("content-type")), (200, "text/javascript; charset=utf-8"));
    assert_eq!(file.header("cache-control"), "public, max-age=31536000, immutable");
    let zipped = site.get(&script, &[("Accept-Encoding", "gzip")]).await;
    assert_eq!(zipped.header("content-encoding"), "gzip");
    assert!(zipped.body.len() < file.body.len() && zipped.body.starts_with(&[0x1f, 0x8b]));
    for answer in [&page, &file, &site.console("me", &[]).await, &site.console("none", &[]).await] {
        let policy = answer.header("content-security-policy");
        assert!(policy.contains("default-src 'none'") && policy.contains("trusted-types 'none'"), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(answer.header("x-content-type-options"), "nosniff");
        assert_eq!(answer.header("referrer-policy"), "no-referrer");
        assert_eq!(answer.header("cross-origin-opener-policy"), "same-origin");
        assert_eq!(answer.header("cross-origin-resource-policy"), "same-origin");
    }
    // Another version's files, and what is no part of the pages.
    for path in ["/console/a/old/app.js", "/console/a/../app.js", &script.replace("app.js", "package.json")] {
        assert_eq!(site.get(path, &[]).await.status, 404, "{path}");
    }
    assert_eq!(site.send(post("/console/", &[], "{}")).await.status, 405);
    let moved = site.get("/console", &[]).await;
    assert_eq!((moved.status, moved.header("location")), (308, "/console/"));
    // A browser at the root is led here; a program gets the list of agents.
    let browser = [("Accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8")];
    let led = site.get("/", &browser).await;
    assert_eq!((led.status, led.header("location")), (303, "/console/"));
    for program in [vec![], vec![("Accept", "application/json")], vec![("Accept", "*/*")]] {
        let listed = site.get("/", &program).await;
        assert_eq!((listed.status, listed.header("content-type")), (200, "application/json"));
    }
}

#[tokio::test]
async fn under_a_public_path_the_page_names_its_files_there() {
    let url = "http://127.0.0.1/base/";
    let site = Site::with(|setup| setup.server.public_url = Some(url.into())).await;
    let page = site.get("/console/", &[]).await;
    assert!(
        page.text().contains("\"/base/console/a/") && !page.text().contains("\"/console/a/"),
        "{}",
        page.text()
    );
}

#[tokio::test]
async fn a_console_that_is_off_is_not_there() {
    let site = Site::with(|setup| setup.server.console = false).await;
    for path in ["/console/", "/console/api/me"] {
        assert_eq!(site.get(path, &[]).await.status, 404, "{path}");
    }
}

#[tokio::test]
async fn an_unknown_operation_is_answered_with_the_document_of_all() {
    let site = Site::new().await;
    let error = site.console_refuses("nothing", &[], 404, "not_found").await;
    assert!(error["message"].as_str().unwrap().contains("/console/api/openapi.json"), "{error}");
    assert_eq!(site.console("openapi.json", &[]).await.status, 200);
}

#[tokio::test]
async fn callers_show_tokens_in_the_header_and_nowhere_else() {
    let site = Site::with(|setup| {
        setup.server.authenticator = Some(Arc::new(Guests::default()));
        setup.server.admin_token = Some("secret".into());
    })
    .await;
    let error = site.console_refuses("me", &[], 401, "unauthorized").await;
    assert!(error.get("scope").is_none());
    site.console_refuses("me", &[("Authorization", "Bearer bad")], 401, "unauthorized").await;
    site.console_refuses("tasks?token=ada", &[("Authorization", "Bearer ada")], 400, "bad_request").await;
    let ada = [("Authorization", "Bearer acme/ada;read:a2a")];
    let me = site.console("me", &ada).await.json();
    assert_eq!(
        (&me["caller"]["name"], &me["caller"]["tenant"], &me["by"]),
        (&json!("ada"), &json!("acme"), &json!("token"))
    );
    assert_eq!((&me["may"]["read:a2a:tasks"], &me["may"]["write:a2a:tasks"]), (&json!(true), &json!(false)));
    // The agents that a caller may send to are named to it, and no others.
    let agents = async |token: &str| {
        let bearer = format!("Bearer {token}");
        let headers = [("Authorization", bearer.as_str())];
        let may = site.console("me", &headers).await.json()["may"].take();
        let named = may.as_object().unwrap().keys().filter_map(|scope| scope.strip_prefix("execute:a2a:"));
        (named.map(str::to_owned).collect::<Vec<_>>(), may["execute:a2a"].clone())
    };
    for token in ["acme/ada;nothing", "acme/ada;read:a2a"] {
        assert_eq!(agents(token).await, (vec![], json!(false)), "{token}");
    }
    assert_eq!(agents("acme/ada;execute:a2a:actor").await, (vec!["actor".to_owned()], json!(false)));
    let (all, any) = agents("acme/ada").await;
    assert!(all.len() > 1 && any == true, "{all:?}");
    let error = site.console_refuses("tasks?owner=all", &ada, 403, "scope_missing").await;
    assert_eq!(error["scope"], "read:admin:tasks");
    let cancel = site.console_post("tasks/x/cancel", &ada, &json!({})).await;
    assert_eq!(refused(&cancel, 403, "scope_missing")["scope"], "write:a2a:tasks");
    // A change is JSON: a form of another site can send everything else without being asked.
    let form = [("Authorization", "Bearer acme/ada"), ("Content-Type", "text/plain")];
    refused(&site.console_post("tasks/x/cancel", &form, &json!({})).await, 415, "unsupported_media_type");
    let large = json!({ "filler": "x".repeat(70_000) });
    refused(&site.console_post("tasks/x/cancel", &ada[..1], &large).await, 413, "too_large");
}

/// A code is good once and for a minute, a session for hours and until it is ended; neither is good as the other.
#[tokio::test]
async fn the_operator_signs_in_by_a_code() {
    let site = Site::with(|setup| {
        setup.server.authenticator = Some(Arc::new(Guests::default()));
        setup.server.admin_token = Some("secret".into());
    })
    .await;
    let nobody = site.console_post("codes", &[("Authorization", "Bearer acme/ada")], &json!({})).await;
    refused(&nobody, 401, "unauthorized");
    let operator = [("Authorization", "Bearer secret")];
    let code = site.console_post("codes", &operator, &json!({})).await.json()["code"].clone();
    let exchange = async |code: &str| site.console_post("session", &[], &json!({ "code": code })).await;
    refused(&exchange("nuncc_e30.AAAA").await, 401, "bad_code");
    let session = exchange(code.as_str().unwrap()).await.json();
    refused(&exchange(code.as_str().unwrap()).await, 401, "bad_code");
    let token = session["token"].as_str().unwrap();
    refused(&exchange(token).await, 401, "bad_code");
    let bearer = format!("Bearer {token}");
    let signed_in = [("Authorization", bearer.as_str())];
    let me = site.console("me", &signed_in).await.json();
    assert_eq!((&me["by"], &me["may"]["read:admin:tasks"]), (&json!("session"), &json!(true)));
    assert_eq!(me["expires"], session["expires"]);
    // It is a token as any other: the rest of the server knows it, too.
    assert_eq!(site.get("/admin/tasks", &signed_in).await.status, 200);
    let as_session = code.as_str().unwrap().replace("nuncc_", "nuncs_");
    site.console_refuses("me", &[("Authorization", &format!("Bearer {as_session}"))], 401, "unauthorized")
        .await;
    let forged = bearer.replace(&token[10..14], "AAAA");
    site.console_refuses("me", &[("Authorization", &forged)], 401, "unauthorized").await;
    // A stream that it opened, over any protocol, lasts as long as the session.
    let headers = [("A2A-Version", "1.0"), signed_in[0]];
    let mut stream =
        site.stream_with(&headers, "SendStreamingMessage", json!({ "message": message("wait") })).await;
    stream.next().await.unwrap();
    let began = Instant::now();
    let ended = async {
        while stream.piece().await.is_some() {}
        began.elapsed()
    };
    let sign_out = async {
        // Longer than two rechecks of its credentials.
        tokio::time::sleep(Duration::from_secs(7)).await;
        site.send(bare("DELETE", &format!("{API}/session"), &signed_in)).await.status
    };
    let (lasted, status) = within("the end of the stream", async { tokio::join!(ended, sign_out) }).await;
    assert_eq!(status, 204);
    assert!(lasted >= Duration::from_secs(7), "{lasted:?}");
    site.console_refuses("me", &signed_in, 401, "unauthorized").await;
    // A token of somebody's own outlives a sign-out.
    let ada = [("Authorization", "Bearer acme/ada")];
    assert_eq!(site.send(bare("DELETE", &format!("{API}/session"), &ada)).await.status, 204);
    assert_eq!(site.console("me", &ada).await.status, 200);
}
