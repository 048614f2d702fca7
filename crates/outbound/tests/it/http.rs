//! The HTTP client against servers that answer late, too much, half, or with a redirect.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use http::{HeaderMap, HeaderValue, StatusCode, header};
use nuncio_outbound::{
    HttpClient, HttpClientOptions, HttpDestination, HttpRequest, OutboundError, ProxyRule, RedirectRule, Url,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

/// What a server does after it has answered.
#[derive(Clone, Copy, PartialEq)]
enum Then {
    Close,
    Wait,
}

struct Server {
    url: Url,
    requests: Arc<AtomicUsize>,
}

impl Server {
    /// A server that answers a request for a path with these bytes.
    async fn start(answer: impl Fn(&str) -> (String, Then) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = Url::parse(&format!("http://{}/", listener.local_addr().unwrap())).unwrap();
        let (requests, answer) = (Arc::new(AtomicUsize::new(0)), Arc::new(answer));
        let seen = Arc::clone(&requests);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (seen, answer) = (Arc::clone(&seen), Arc::clone(&answer));
                tokio::spawn(async move {
                    let mut request = Vec::new();
                    while stream.read_buf(&mut request).await.unwrap_or(0) > 0 {
                        if !request.ends_with(b"\r\n\r\n") {
                            continue;
                        }
                        seen.fetch_add(1, Ordering::SeqCst);
                        let text = String::from_utf8_lossy(&request).into_owned();
                        let path = text.split(' ').nth(1).unwrap_or_default();
                        let (bytes, then) = answer(path);
                        if stream.write_all(bytes.as_bytes()).await.is_err() || then == Then::Close {
                            return;
                        }
                        request.clear();
                    }
                });
            }
        });
        Self { url, requests }
    }

    async fn answering(answer: &'static str, then: Then) -> Self {
        Self::start(move |_| (answer.to_owned(), then)).await
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    fn get(&self, path: &str) -> HttpRequest {
        HttpRequest::get(self.url.join(path).unwrap())
    }
}

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

fn redirect(status: u16, location: &str) -> String {
    format!("HTTP/1.1 {status} Elsewhere\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n")
}

fn client(redirects: RedirectRule) -> HttpClient {
    let destination = HttpDestination::Chosen { redirects, proxy: ProxyRule::Never, any_certificate: false };
    HttpClient::new(HttpClientOptions::new(destination)).unwrap()
}

#[tokio::test]
async fn a_redirect_is_followed_within_its_origin_and_never_to_another() {
    let other = Server::answering(OK, Then::Wait).await;
    let elsewhere = other.url.to_string();
    let server = Server::start(move |path| {
        let bytes = match path {
            "/here" => redirect(307, "/end"),
            "/changes-method" => redirect(302, "/end"),
            "/away" => redirect(307, &elsewhere),
            "/round" => redirect(308, "/round"),
            _ => OK.to_owned(),
        };
        (bytes, Then::Wait)
    })
    .await;
    let secret = |request: HttpRequest| {
        request.header(header::AUTHORIZATION, HeaderValue::from_static("Bearer s3cret"))
    };

    let follows = client(RedirectRule::SameOrigin);
    for (path, status) in [("here", 200), ("changes-method", 302), ("away", 307), ("round", 308)] {
        let response = follows.send(secret(server.get(path))).await.unwrap();
        assert_eq!(response.status().as_u16(), status, "{path}");
    }
    // One request, and three redirects of it.
    assert_eq!(server.requests(), 2 + 1 + 1 + 4);

    let returns = client(RedirectRule::Return);
    for path in ["here", "away"] {
        let response = returns.send(secret(server.get(path))).await.unwrap();
        assert_eq!(response.status(), StatusCode::TEMPORARY_REDIRECT, "{path}");
    }
    assert_eq!(other.requests(), 0);
}

#[tokio::test]
async fn every_failure_is_its_own_case() {
    let client = client(RedirectRule::Return);
    let secret = "s3cret?s3cret";

    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let request = HttpRequest::get(Url::parse(&format!("http://{closed}/{secret}")).unwrap());
    let unreachable = client.send(request).await.unwrap_err();
    assert!(
        matches!(&unreachable, OutboundError::Unreachable { to, .. } if *to == format!("http://{closed}"))
    );
    assert!(unreachable.is_unsent());

    let hangs_up = Server::answering("", Then::Close).await;
    let cut = client.send(hangs_up.get(secret)).await.unwrap_err();
    assert!(matches!(cut, OutboundError::Cut { .. }), "{cut:?}");
    assert!(!cut.is_unsent());

    let silent = Server::answering("", Then::Wait).await;
    let limit = Duration::from_millis(50);
    for request in [silent.get(secret).response_timeout(limit), silent.get(secret).timeout(limit)] {
        let timeout = client.send(request).await.unwrap_err();
        assert!(matches!(timeout, OutboundError::Timeout { limit: passed, .. } if passed == limit));
        assert!(timeout.to_string().ends_with("did not answer within 0.05 s"), "{timeout}");
    }

    let busy = "HTTP/1.1 503 Busy\r\nretry-after: 7\r\ncontent-length: 6\r\n\r\nlater\n";
    let busy = Server::answering(busy, Then::Wait).await;
    let status = client.send(busy.get(secret)).await.unwrap().into_status_error(1024).await;
    let after = Some(Duration::from_secs(7));
    assert!(matches!(&status, OutboundError::Status { retry_after, .. } if *retry_after == after));
    assert!(status.to_string().ends_with("answered HTTP 503: later"), "{status}");

    for error in [unreachable, cut, status] {
        assert!(!format!("{error} {error:?}").contains("s3cret"), "{error:?}");
    }
}

#[tokio::test]
async fn a_body_is_read_within_its_limits_of_size_and_time() {
    let client = client(RedirectRule::Return);
    let whole = Server::answering(OK, Then::Wait).await;
    let mut response = client.send(whole.get("")).await.unwrap();
    assert_eq!(response.read_to_end(2).await.unwrap(), b"ok");
    let mut response = client.send(whole.get("")).await.unwrap();
    let error = response.read_to_end(1).await.unwrap_err();
    assert!(matches!(error, OutboundError::TooLarge { max: 1, .. }), "{error:?}");
    let mut response = client.send(whole.get("")).await.unwrap();
    assert_eq!(response.read_beginning(1).await, (b"o".to_vec(), false));

    let half = "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf";
    let cut = Server::answering(half, Then::Close).await;
    let error = client.send(cut.get("")).await.unwrap().read_to_end(10).await.unwrap_err();
    assert!(matches!(error, OutboundError::Cut { .. }), "{error:?}");
    let beginning = client.send(cut.get("")).await.unwrap().read_beginning(10).await;
    assert_eq!(beginning, (b"half".to_vec(), false));

    let stalls = Server::answering(half, Then::Wait).await;
    let limit = Duration::from_millis(50);
    let silence = client.send(stalls.get("")).await.unwrap().silence_limit(limit).read_to_end(10).await;
    let late = client.send(stalls.get("")).await.unwrap().body_limit(limit).read_to_end(10).await;
    let whole = client.send(stalls.get("").timeout(limit)).await.unwrap().read_to_end(10).await;
    for read in [silence, late, whole] {
        let error = read.unwrap_err();
        assert!(
            matches!(error, OutboundError::Timeout { limit: passed, .. } if passed == limit),
            "{error:?}"
        );
    }
    let mut endless = client.send(stalls.get("")).await.unwrap().body_limit(limit);
    assert_eq!(endless.read_beginning(10).await, (b"half".to_vec(), false));
}

#[test]
fn a_proxy_of_the_environment_is_not_used_for_this_machine() {
    let check = |url: &str, expected: ProxyRule| {
        assert_eq!(ProxyRule::unless_loopback(&Url::parse(url).unwrap()), expected, "{url}");
    };
    for here in ["http://127.0.0.1:1/", "http://[::1]/", "http://localhost/", "https://x.localhost/"] {
        check(here, ProxyRule::Never);
    }
    for there in ["http://10.0.0.1/", "https://agent.example/", "http://localhost.example/"] {
        check(there, ProxyRule::Environment);
    }
}

#[tokio::test]
async fn a_header_that_is_set_twice_is_sent_once() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = Url::parse(&format!("http://{}/", listener.local_addr().unwrap())).unwrap();
    let heard = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"{}") {
            stream.read_buf(&mut request).await.unwrap();
        }
        stream.write_all(OK.as_bytes()).await.unwrap();
        String::from_utf8(request).unwrap().to_lowercase()
    });
    let several = HeaderMap::from_iter([
        (header::CONTENT_TYPE, HeaderValue::from_static("text/plain")),
        (header::ACCEPT, HeaderValue::from_static("a/b")),
    ]);
    let request = HttpRequest::post(url).headers(several).json("{}");
    let request = request.header(header::ACCEPT, HeaderValue::from_static("c/d"));
    client(RedirectRule::Return).send(request).await.unwrap();
    let heard = heard.await.unwrap();
    assert_eq!(heard.matches("content-type:").count(), 1, "{heard}");
    assert!(heard.contains("content-type: application/json") && heard.contains("accept: c/d"), "{heard}");
    assert!(!heard.contains("a/b") && heard.contains("user-agent: nuncio/"), "{heard}");
}

/// Runs [`requests_under_a_proxy`] in a process whose environment names a proxy.
#[tokio::test]
async fn a_proxy_of_the_environment_is_used_where_the_rule_says_so() {
    let proxy = Server::answering(OK, Then::Wait).await;
    let mut child = tokio::process::Command::new(std::env::current_exe().unwrap());
    child.args(["--ignored", "--exact", "http::requests_under_a_proxy"]);
    for name in ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"] {
        child.env(name, proxy.url.as_str());
    }
    let output = child.env_remove("NO_PROXY").env_remove("no_proxy").output().await.unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    assert_eq!(proxy.requests(), 1);
}

#[tokio::test]
#[ignore = "needs a proxy: a_proxy_of_the_environment_is_used_where_the_rule_says_so runs it"]
async fn requests_under_a_proxy() {
    let send = async |proxy| {
        let client = HttpClient::new(HttpClientOptions::new(HttpDestination::chosen(proxy))).unwrap();
        client.send(HttpRequest::get(Url::parse("http://agent.invalid/").unwrap())).await
    };
    assert_eq!(send(ProxyRule::Environment).await.unwrap().status(), StatusCode::OK);
    let error = send(ProxyRule::Never).await.unwrap_err();
    assert!(matches!(error, OutboundError::Unreachable { .. }), "{error:?}");
}

#[tokio::test]
async fn trailers_are_there_when_the_body_has_ended() {
    let server = Server::start(|_| {
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x-end\r\n\r\n";
        (format!("{head}2\r\nab\r\n0\r\nx-end: yes\r\n\r\n"), Then::Wait)
    })
    .await;
    let client = HttpClient::new(HttpClientOptions::new(HttpDestination::chosen(ProxyRule::Never))).unwrap();
    let mut response = client.send(HttpRequest::get(server.url.clone())).await.unwrap();
    assert_eq!(response.chunk().await.unwrap().as_deref(), Some(&b"ab"[..]));
    assert!(response.trailers().is_none(), "not before the end");
    assert!(response.chunk().await.unwrap().is_none());
    assert_eq!(response.trailers().unwrap()["x-end"], "yes");
}
