//! Servers that misbehave in exact ways, and what becomes of calls there.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;
use axum::{
    Router,
    body::{Body, Bytes},
    http::{HeaderMap, Method, Response},
};
use futures_util::{StreamExt, stream};
use nuncio_client::{
    auth::Authorizer,
    mcp::{McpPeer, McpPeerOptions, SESSION_STREAM_WAIT},
    peer::{Peer as _, PeerError, PeerLocation},
};
use nuncio_engine::{Answer, State, question::Ask};
use nuncio_wire::mcp::McpVersion;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::stage::{Seen, follow, options, until, with, within};

/// A request, as far as these tests look at it.
struct Asked {
    verb: Method,
    headers: HeaderMap,
    body: Value,
}

impl Asked {
    fn method(&self) -> &str {
        self.body["method"].as_str().unwrap_or_default()
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// The result of the request.
    fn result(&self, result: impl Into<Value>) -> String {
        let result: Value = result.into();
        json!({ "jsonrpc": "2.0", "id": self.body["id"], "result": result }).to_string()
    }

    fn error(&self, code: i64, data: impl Into<Value>) -> String {
        let data: Value = data.into();
        let error = json!({ "code": code, "message": "words", "data": data });
        json!({ "jsonrpc": "2.0", "id": self.body["id"], "error": error }).to_string()
    }
}

/// What is answered.
enum Reply {
    Json(u16, String),
    /// These bytes as a stream, which then ends, or stays open.
    Events(String, Ends),
    /// A stream that opens after this time, with a mark that it has, and stays open.
    Late(Duration, Arc<AtomicBool>),
    /// Whatever the ordinary server of `serve` does.
    Ordinary,
}

#[derive(PartialEq)]
enum Ends {
    Now,
    Never,
}

/// A server of 2025-11-25 with a session and a tool `t`, but for what `odd` answers.
async fn serve(odd: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> url::Url {
    let odd = Arc::new(odd);
    let answer = move |verb: Method, headers: HeaderMap, body: Bytes| {
        let odd = Arc::clone(&odd);
        async move {
            let body = serde_json::from_slice(&body).unwrap_or_default();
            let asked = Asked { verb, headers, body };
            match odd(&asked) {
                Reply::Ordinary => ordinary(&asked),
                Reply::Late(wait, is_open) => {
                    tokio::time::sleep(wait).await;
                    is_open.store(true, Ordering::SeqCst);
                    write(Reply::Events(": open\n\n".into(), Ends::Never))
                }
                reply => write(reply),
            }
        }
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap()).parse().unwrap();
    let app = Router::new().fallback(answer);
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    url
}

fn write(reply: Reply) -> Response<Body> {
    let builder = Response::builder();
    match reply {
        Reply::Json(status, body) => {
            builder.status(status).header("content-type", "application/json").body(body.into()).unwrap()
        }
        Reply::Events(events, ends) => {
            let begun = stream::iter([Ok::<_, std::io::Error>(Bytes::from(events))]);
            let rest = if ends == Ends::Never {
                stream::pending().left_stream()
            } else {
                stream::empty().right_stream()
            };
            let body = Body::from_stream(begun.chain(rest));
            builder.header("content-type", "text/event-stream").body(body).unwrap()
        }
        Reply::Late(..) | Reply::Ordinary => unreachable!("it is answered elsewhere"),
    }
}

fn ordinary(asked: &Asked) -> Response<Body> {
    let tools = json!({ "tools": [{ "name": "t", "inputSchema": { "type": "object" } }] });
    match (asked.verb.as_str(), asked.method()) {
        ("POST", "initialize") => {
            let result = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {} });
            let mut response = write(Reply::Json(200, asked.result(result)));
            response.headers_mut().insert("mcp-session-id", "s-1".parse().unwrap());
            response
        }
        ("POST", "tools/list") => write(Reply::Json(200, asked.result(tools))),
        ("POST", "tools/call") => write(Reply::Json(200, asked.result(said("done")))),
        ("POST", "ping") => write(Reply::Json(200, asked.result(json!({})))),
        ("POST", "server/discover") => write(Reply::Json(400, "no session".into())),
        ("POST", _) => write(Reply::Json(202, String::new())),
        _ => write(Reply::Json(405, String::new())),
    }
}

fn said(text: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": text }] })
}

/// An event, with its id where it has one.
fn event(id: &str, data: impl AsRef<str>) -> String {
    let id = if id.is_empty() { String::new() } else { format!("id: {id}\n") };
    format!("{id}data: {}\n\n", data.as_ref())
}

fn log(text: &str) -> String {
    json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": { "level": "info", "data": text } })
        .to_string()
}

fn peer(url: &url::Url) -> McpPeer {
    McpPeer::new(PeerLocation::Url(url.clone()), McpPeerOptions { away: Duration::from_secs(1), ..options() })
}

/// Calls the tool and follows it to its end.
async fn call(peer: &McpPeer) -> Result<Seen, PeerError> {
    let mut call = peer.begin(with("t", json!({}))).await?;
    follow(&mut call).await
}

/// Counts.
#[derive(Clone, Default)]
struct Count(Arc<AtomicUsize>);

impl Count {
    fn next(&self) -> usize {
        self.0.fetch_add(1, Ordering::SeqCst)
    }

    fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

#[tokio::test]
async fn a_cut_stream_is_asked_for_after_its_last_event() {
    let url = serve(|asked| match (asked.verb.as_str(), asked.header("last-event-id")) {
        ("POST", _) if asked.method() == "tools/call" => {
            assert_eq!(asked.header("mcp-session-id"), Some("s-1"));
            assert_eq!(asked.header("mcp-protocol-version"), Some("2025-11-25"));
            let id = &asked.body["id"];
            Reply::Events(event(&format!("{id}-1"), log("one")) + "id: half\ndata: {", Ends::Now)
        }
        ("GET", Some(cursor)) => {
            let id: Value = cursor.split_once('-').unwrap().0.parse::<u64>().unwrap().into();
            assert!(cursor.ends_with("-1"), "{cursor}: an event that was cut has not been seen");
            let answer = json!({ "jsonrpc": "2.0", "id": id, "result": said("done") }).to_string();
            Reply::Events(event("2", log("two")) + &event("3", answer), Ends::Now)
        }
        _ => Reply::Ordinary,
    })
    .await;
    let seen = call(&peer(&url)).await.unwrap();
    assert_eq!((seen.told.join(", "), seen.text()), ("one, two".into(), "done".into()));
}

/// There are servers that replay what was missed on the new stream, and send what follows to the old one.
#[tokio::test]
async fn a_stream_that_was_taken_up_and_stays_quiet_is_asked_for_again() {
    let (gets, conflicts) = (Count::default(), Count::default());
    let (counted, refused) = (gets.clone(), conflicts.clone());
    let url = serve(move |asked| match (asked.verb.as_str(), asked.header("last-event-id")) {
        ("POST", _) if asked.method() == "tools/call" => {
            Reply::Events(event(&format!("{}-1", asked.body["id"]), log("one")), Ends::Now)
        }
        ("GET", Some(cursor)) => {
            let id: u64 = cursor.split_once('-').unwrap().0.parse().unwrap();
            let two = event(&format!("{id}-2"), log("two"));
            match counted.next() {
                // Longer than the limit of attempts, because each of them is one that went well.
                0 => Reply::Events(two, Ends::Never),
                1..=7 => Reply::Events(": still here\n\n".into(), Ends::Never),
                // It has not noticed that nobody reads the stream before.
                8 => {
                    refused.next();
                    let error = json!({ "code": -32000, "message": "Conflict" });
                    Reply::Json(409, json!({ "jsonrpc": "2.0", "id": null, "error": error }).to_string())
                }
                _ => {
                    assert_eq!(cursor, format!("{id}-2"), "after what was replayed");
                    let answer = json!({ "jsonrpc": "2.0", "id": id, "result": said("done") }).to_string();
                    Reply::Events(event(&format!("{id}-3"), answer), Ends::Never)
                }
            }
        }
        _ => Reply::Ordinary,
    })
    .await;
    let options =
        McpPeerOptions { away: Duration::from_secs(1), quiet: Duration::from_millis(20), ..options() };
    let seen = within(call(&McpPeer::new(PeerLocation::Url(url), options))).await.unwrap();
    assert_eq!((seen.told.join(", "), seen.text()), ("one, two".into(), "done".into()));
    assert_eq!((gets.get(), conflicts.get()), (10, 1));
}

/// A server stores a message between its replay and the empty event that follows the replay (the official Python
/// SDK can): after that event's id the message would never be sent.
#[tokio::test]
async fn an_empty_event_does_not_move_the_position_past_what_was_missed() {
    let gets = Arc::new(Mutex::new(vec![]));
    let noted = Arc::clone(&gets);
    let url = serve(move |asked| match (asked.verb.as_str(), asked.header("last-event-id")) {
        ("POST", _) if asked.method() == "tools/call" => {
            Reply::Events(event(&format!("{}-1", asked.body["id"]), ""), Ends::Now)
        }
        ("GET", Some(cursor)) => {
            noted.lock().unwrap().push(cursor.split_once('-').unwrap().1.to_owned());
            let (id, after) = cursor.split_once('-').unwrap();
            let id: u64 = id.parse().unwrap();
            let events = match after {
                "1" => event(&format!("{id}-2"), log("one")) + &event(&format!("{id}-4"), ""),
                "2" => {
                    let answer = json!({ "jsonrpc": "2.0", "id": id, "result": said("done") }).to_string();
                    event(&format!("{id}-3"), answer)
                }
                _ => ": nothing after that\n\n".into(),
            };
            Reply::Events(events, Ends::Never)
        }
        _ => Reply::Ordinary,
    })
    .await;
    let options =
        McpPeerOptions { away: Duration::from_secs(1), quiet: Duration::from_millis(20), ..options() };
    let seen = within(call(&McpPeer::new(PeerLocation::Url(url), options))).await.unwrap();
    assert_eq!((seen.told.join(", "), seen.text()), ("one".into(), "done".into()));
    assert_eq!(*gets.lock().unwrap(), ["1", "2"]);
}

/// The event without a message that opens a stream is stored by the official TypeScript SDK as `{}`, and replayed as that.
#[tokio::test]
async fn a_replayed_event_without_a_message_is_none() {
    let url = serve(move |asked| match (asked.verb.as_str(), asked.header("last-event-id")) {
        ("POST", _) if asked.method() == "tools/call" => {
            Reply::Events(event(&format!("{}-1", asked.body["id"]), ""), Ends::Now)
        }
        ("GET", Some(cursor)) => {
            let id: u64 = cursor.split_once('-').unwrap().0.parse().unwrap();
            let answer = json!({ "jsonrpc": "2.0", "id": id, "result": said("done") }).to_string();
            let events = [log("one"), "{}".to_owned(), answer];
            let replayed =
                events.iter().zip(2..).map(|(data, seq)| event(&format!("{id}-{seq}"), data)).collect();
            Reply::Events(replayed, Ends::Never)
        }
        _ => Reply::Ordinary,
    })
    .await;
    let seen = within(call(&McpPeer::new(PeerLocation::Url(url), options()))).await.unwrap();
    assert_eq!((seen.told.join(", "), seen.text()), ("one".into(), "done".into()));
}

/// What a server asks or announces outside of a call, it sends on the session's own stream: it has to be open before
/// a call can lead to it. A server that never opens one delays the first call, and no more.
#[tokio::test]
async fn the_first_call_waits_until_the_sessions_own_stream_is_open() {
    let serve_late = async |late: Duration| {
        let is_open = Arc::new(AtomicBool::new(false));
        let (opens, seen) = (Arc::clone(&is_open), Arc::new(Mutex::new(vec![])));
        let noted = Arc::clone(&seen);
        let url = serve(move |asked| {
            if asked.method() == "tools/call" {
                noted.lock().unwrap().push(is_open.load(Ordering::SeqCst));
            }
            match asked.verb {
                Method::GET => Reply::Late(late, Arc::clone(&opens)),
                _ => Reply::Ordinary,
            }
        });
        (url.await, seen)
    };
    let (url, seen) = serve_late(Duration::from_millis(100)).await;
    assert_eq!(within(call(&peer(&url))).await.unwrap().text(), "done");
    assert_eq!(*seen.lock().unwrap(), [true]);
    let (url, seen) = serve_late(Duration::from_secs(3600)).await;
    let (peer, began) = (peer(&url), Instant::now());
    assert_eq!(within(call(&peer)).await.unwrap().text(), "done");
    assert!(began.elapsed() >= SESSION_STREAM_WAIT, "{:?}", began.elapsed());
    assert_eq!(within(call(&peer)).await.unwrap().text(), "done");
    assert_eq!(*seen.lock().unwrap(), [false, false]);
}

#[tokio::test]
async fn a_server_that_lets_go_says_when_to_come_again() {
    let (gets, when) = (Count::default(), Arc::new(Mutex::new(vec![Instant::now()])));
    let (counted, noted) = (gets.clone(), Arc::clone(&when));
    let url = serve(move |asked| match asked.header("last-event-id") {
        None if asked.method() == "tools/call" => {
            noted.lock().unwrap().push(Instant::now());
            Reply::Events(format!("retry: 150\n{}", event(&asked.body["id"].to_string(), "")), Ends::Now)
        }
        Some(cursor) => {
            noted.lock().unwrap().push(Instant::now());
            // As often as it likes, as long as it says so: more often than attempts without news are allowed.
            if counted.next() < 7 {
                return Reply::Events("retry: 30\n\n".into(), Ends::Now);
            }
            let id: u64 = cursor.parse().unwrap();
            let answer = json!({ "jsonrpc": "2.0", "id": id, "result": said("done") }).to_string();
            Reply::Events(event("9", answer), Ends::Now)
        }
        _ => Reply::Ordinary,
    })
    .await;
    assert_eq!(call(&peer(&url)).await.unwrap().text(), "done");
    let when = when.lock().unwrap();
    let waits: Vec<Duration> = when.windows(2).skip(1).map(|pair| pair[1] - pair[0]).collect();
    assert!(waits[0] >= Duration::from_millis(150), "{waits:?}");
    assert!(waits[1..].iter().all(|wait| *wait >= Duration::from_millis(30)), "{waits:?}");
}

#[tokio::test]
async fn an_answer_counts_on_whatever_stream_it_comes() {
    let (asked_for, gets) = (Arc::new(Mutex::new(None)), Count::default());
    let (noted, counted) = (Arc::clone(&asked_for), gets.clone());
    let url = serve(move |asked| match (asked.verb.as_str(), asked.method()) {
        ("POST", "tools/call") => {
            *noted.lock().unwrap() = Some(asked.body["id"].clone());
            Reply::Events(event("", log("one")), Ends::Never)
        }
        // The session's own stream says it, once there is something to say.
        ("GET", _) => match noted.lock().unwrap().clone() {
            Some(id) => {
                let answer = json!({ "jsonrpc": "2.0", "id": id, "result": said("done") }).to_string();
                Reply::Events(event("", answer), Ends::Never)
            }
            None => {
                counted.next();
                Reply::Events(": wait\n\n".into(), Ends::Now)
            }
        },
        _ => Reply::Ordinary,
    })
    .await;
    let seen = call(&peer(&url)).await.unwrap();
    assert_eq!((seen.told.join(", "), seen.text()), ("one".into(), "done".into()));
}

#[tokio::test]
async fn what_has_no_way_back_is_cut_and_never_done() {
    // Without ids, without resume, without end.
    let check = async |first: &'static str, status: u16, expected: &str| {
        let gets = Count::default();
        let counted = gets.clone();
        let url = serve(move |asked| match asked.header("last-event-id") {
            None if asked.method() == "tools/call" => Reply::Events(event(first, log("one")), Ends::Now),
            Some(_) => {
                counted.next();
                match status {
                    200 => Reply::Events(String::new(), Ends::Now),
                    status => Reply::Json(status, "words".into()),
                }
            }
            _ => Reply::Ordinary,
        })
        .await;
        let error = call(&peer(&url)).await.unwrap_err();
        assert!(format!("{error:?}").starts_with(expected), "{first:?} {status}: {error:?}");
        gets.get()
    };
    assert_eq!(check("", 200, "Cut").await, 0);
    assert_eq!(check("1", 405, "Cut").await, 1);
    assert_eq!(check("1", 404, "Gone").await, 1);
    assert_eq!(check("1", 400, "Gone").await, 1);
    assert!(check("1", 200, "Outage").await > 3, "a stream without news is an attempt that failed");
    assert!(check("1", 500, "Outage").await > 3);
}

#[tokio::test]
async fn a_session_that_was_lost_is_begun_anew() {
    let error = json!({ "code": -32000, "message": "Bad Request: No valid session ID provided" });
    let not_as_it_should_be = json!({ "jsonrpc": "2.0", "id": null, "error": error }).to_string();
    for (status, body) in [(404, "gone".to_owned()), (400, not_as_it_should_be)] {
        let sessions = Count::default();
        let counted = sessions.clone();
        let url = serve(move |asked| match asked.method() {
            "initialize" => {
                assert_eq!(asked.header("mcp-session-id"), None);
                counted.next();
                Reply::Ordinary
            }
            "tools/call" if counted.get() == 1 => Reply::Json(status, body.clone()),
            _ => Reply::Ordinary,
        })
        .await;
        assert_eq!(call(&peer(&url)).await.unwrap().text(), "done");
        assert_eq!(sessions.get(), 2);
    }
}

#[tokio::test]
async fn what_is_no_answer_is_said_to_be_none() {
    let check = async |reply: fn(&Asked) -> Reply, expected: &str| {
        let url = serve(move |asked| match asked.method() {
            "tools/call" => reply(asked),
            _ => Reply::Ordinary,
        })
        .await;
        let options =
            McpPeerOptions { max_message: 10_000, silence: Duration::from_millis(300), ..options() };
        let error = call(&McpPeer::new(PeerLocation::Url(url), options)).await.unwrap_err();
        assert!(format!("{error:?}").contains(expected), "{expected}: {error:?}");
    };
    check(|_| Reply::Json(200, json!({ "id": "other", "result": {} }).to_string()), "another request").await;
    check(|_| Reply::Events(event("", json!({ "id": "other", "result": {} }).to_string()), Ends::Now), "Cut")
        .await;
    check(|_| Reply::Json(200, "{".into()), "not JSON").await;
    check(|_| Reply::Json(200, "7".into()), "no object").await;
    check(|_| Reply::Json(202, String::new()), "not JSON").await;
    check(|_| Reply::Events(event("", "{"), Ends::Now), "not JSON").await;
    check(|_| Reply::Json(200, format!("[{}]", "1,".repeat(10_000))), "longer than 10000").await;
    check(|_| Reply::Events(format!("data: {}", "x".repeat(20_000)), Ends::Never), "longer than 10000").await;
    check(|_| Reply::Events(": nothing\n\n".into(), Ends::Never), "Cut").await;
    check(|_| Reply::Json(500, "oh".into()), "HTTP 500: oh").await;
    check(|_| Reply::Json(503, "later".into()), "Busy").await;
    check(|asked| Reply::Json(200, asked.error(-32602, Value::Null)), "Refused").await;
    check(|asked| Reply::Json(200, asked.result(json!({ "resultType": "surprise" }))), "surprise").await;
}

#[tokio::test]
async fn an_error_of_the_tool_is_an_end() {
    let url = serve(|asked| match asked.method() {
        "tools/call" => Reply::Json(200, asked.error(-32603, Value::Null)),
        _ => Reply::Ordinary,
    })
    .await;
    let ended = call(&peer(&url)).await.unwrap().ended.unwrap();
    assert_eq!((ended.state, ended.message.unwrap().joined_text()), (State::Failed, "words".into()));
}

#[tokio::test]
async fn lists_are_read_to_their_end_if_they_have_one() {
    let check = async |next: fn(usize) -> Option<String>| {
        let pages = Count::default();
        let url = serve(move |asked| match asked.method() {
            "tools/list" => {
                let page = pages.next();
                let tool = json!({ "name": format!("t{page}"), "inputSchema": {} });
                let result = json!({ "tools": [tool, { "name": 7 }], "nextCursor": next(page) });
                Reply::Json(200, asked.result(result))
            }
            _ => Reply::Ordinary,
        })
        .await;
        let options = McpPeerOptions { max_tools: 20, ..options() };
        within(McpPeer::new(PeerLocation::Url(url), options).list_capabilities())
            .await
            .map(|offers| offers.len())
    };
    assert_eq!(check(|page| (page < 2).then(|| page.to_string())).await, Ok(3));
    let endless = check(|page| Some(page.to_string())).await.unwrap_err();
    assert!(endless.to_string().contains("more than 20 tools"), "{endless}");
    let circular = check(|_| Some("again".into())).await.unwrap_err();
    assert!(circular.to_string().contains("do not end"), "{circular}");
}

#[tokio::test]
async fn servers_of_old_are_known_by_not_being_new() {
    let check = async |discover: fn(&Asked) -> Reply| {
        let url = serve(move |asked| match asked.method() {
            "server/discover" => discover(asked),
            _ => Reply::Ordinary,
        })
        .await;
        within(peer(&url).version()).await
    };
    let old = Ok(McpVersion::V2025_11_25);
    assert_eq!(check(|_| Reply::Json(400, "Missing session ID".into())).await, old);
    assert_eq!(check(|asked| Reply::Json(200, asked.error(-32601, Value::Null))).await, old);
    assert_eq!(check(|asked| Reply::Json(400, asked.error(-32600, Value::Null))).await, old);
    assert_eq!(check(|_| Reply::Json(500, "what?".into())).await, old);
    assert_eq!(
        check(|asked| Reply::Json(400, asked.error(-32022, json!({ "supported": ["2025-11-25"] })))).await,
        old
    );
    let strange =
        check(|asked| Reply::Json(400, asked.error(-32022, json!({ "supported": ["2999-01-01"] })))).await;
    assert!(matches!(strange, Err(PeerError::Unsupported(_))), "{strange:?}");
}

#[tokio::test]
async fn a_revision_that_is_insisted_on_is_spoken_or_refused() {
    let url = serve(|_| Reply::Ordinary).await;
    for wanted in [McpVersion::V2026_07_28, McpVersion::V2025_03_26] {
        let options = McpPeerOptions { version: Some(wanted), ..options() };
        let refused = within(McpPeer::new(PeerLocation::Url(url.clone()), options).version()).await;
        assert!(
            matches!(&refused, Err(PeerError::Unsupported(why)) if why.contains(wanted.name())),
            "{refused:?}"
        );
    }
}

/// Has a token, and a better one once it was challenged.
struct Tokens {
    tokens: Vec<&'static str>,
    challenged: Count,
}

#[async_trait]
impl Authorizer for Tokens {
    async fn token(&self, _: &url::Url) -> Option<String> {
        Some(self.tokens[self.challenged.get().min(self.tokens.len() - 1)].into())
    }

    async fn challenged(&self, _: &url::Url, status: u16, challenge: Option<&str>) -> Result<bool, String> {
        assert_eq!((status, challenge), (401, Some("Bearer realm=x")));
        self.challenged.next();
        match self.tokens.len() {
            1 => Err("log in again".into()),
            _ => Ok(true),
        }
    }
}

#[tokio::test]
async fn a_challenge_is_met_once() {
    let check = async |tokens: Vec<&'static str>| {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let guarded = format!("http://{}/mcp", listener.local_addr().unwrap()).parse().unwrap();
        let guard = async |verb: Method, headers: HeaderMap, body: Bytes| {
            if headers.get("authorization").is_some_and(|token| token == "Bearer right") {
                let body = serde_json::from_slice(&body).unwrap_or_default();
                return ordinary(&Asked { verb, headers, body });
            }
            let refused = Response::builder().status(401).header("www-authenticate", "Bearer realm=x");
            refused.body(Body::from("who are you?")).unwrap()
        };
        tokio::spawn(async move { axum::serve(listener, Router::new().fallback(guard)).await.unwrap() });
        let challenged = Count::default();
        let authorizer: Option<Arc<dyn Authorizer>> = match tokens.is_empty() {
            true => None,
            false => Some(Arc::new(Tokens { tokens, challenged: challenged.clone() })),
        };
        let peer = McpPeer::new(PeerLocation::Url(guarded), McpPeerOptions { authorizer, ..options() });
        (within(peer.check_reachable()).await, challenged.get())
    };
    assert_eq!(check(vec!["wrong", "right"]).await, (Ok(()), 1));
    let refused = |why: &str, (looked, _): (Result<(), PeerError>, usize)| match looked {
        Err(PeerError::Unauthorized { why: said, .. }) => assert!(said.contains(why), "{said}"),
        other => panic!("{other:?}"),
    };
    let twice = check(vec!["wrong", "wrong as well"]).await;
    assert_eq!(twice.1, 1, "it is tried once more, not for ever");
    refused("who are you?", twice);
    refused("log in again", check(vec!["wrong"]).await);
    refused("who are you?", check(vec![]).await);
}

#[tokio::test]
async fn a_server_may_ask_on_the_stream_of_a_call() {
    let told = Arc::new(Mutex::new(vec![]));
    let noted = Arc::clone(&told);
    let url = serve(move |asked| match asked.method() {
        "tools/call" => {
            let ask = |id: &str, method: &str, params: Value| {
                event(
                    "",
                    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string(),
                )
            };
            let form = json!({ "message": "Who?", "requestedSchema": { "type": "object" } });
            let link =
                json!({ "mode": "url", "message": "Go", "url": "https://a.example", "elicitationId": "e" });
            let notice = |method: &str, params: Value| {
                event("", json!({ "jsonrpc": "2.0", "method": method, "params": params }).to_string())
            };
            let events = [
                ask("1", "ping", json!({})),
                ask("2", "roots/list", json!({})),
                ask("3", "tasks/list", json!({})),
                ask("4", "elicitation/create", json!({ "message": "no schema" })),
                ask("5", "elicitation/create", form.clone()),
                ask("6", "elicitation/create", link),
                ask("7", "elicitation/create", form),
                notice("notifications/elicitation/complete", json!({ "elicitationId": "e" })),
                notice("notifications/elicitation/complete", json!({ "elicitationId": "unknown" })),
                notice("notifications/cancelled", json!({ "requestId": "7" })),
                notice("notifications/nobody/knows", json!({})),
                event("", asked.result(said("done"))),
            ];
            Reply::Events(events.concat(), Ends::Now)
        }
        "" if asked.body.get("id").is_some() => {
            noted.lock().unwrap().push(asked.body.clone());
            Reply::Ordinary
        }
        _ => Reply::Ordinary,
    })
    .await;
    let mut call = peer(&url).begin(with("t", json!({}))).await.unwrap();
    let mut seen = Seen::default();
    until(&mut call, &mut seen, |_| false).await.unwrap();
    let asked: Vec<&str> = seen.questions.iter().map(|question| question.id.as_str()).collect();
    assert_eq!(asked, ["5", "6", "7"]);
    assert_eq!(seen.questions[1].ask, Ask::Authorization { url: "https://a.example".into() });
    assert_eq!(seen.settled, ["6", "7"]);
    let told = told.lock().unwrap();
    let answer = |id: &str| told.iter().find(|answer| answer["id"] == id).unwrap_or(&Value::Null).clone();
    assert_eq!(answer("1")["result"], json!({}));
    assert_eq!(answer("2")["result"], json!({ "roots": [] }));
    assert_eq!(answer("3")["error"]["code"], -32601);
    assert_eq!(answer("4")["error"]["code"], -32602);
    assert_eq!(answer("6")["result"], json!({ "action": "accept" }));
    assert_eq!(answer("7"), Value::Null);
}

#[tokio::test]
async fn links_are_visited_before_the_call_is_made_again() {
    let calls = Count::default();
    let counted = calls.clone();
    let url = serve(move |asked| match asked.method() {
        "tools/call" if counted.next() == 0 => {
            let link =
                json!({ "mode": "url", "message": "Go", "url": "https://a.example", "elicitationId": "e" });
            Reply::Json(200, asked.error(-32042, json!({ "elicitations": [link] })))
        }
        _ => Reply::Ordinary,
    })
    .await;
    let mut call = peer(&url).begin(with("t", json!({}))).await.unwrap();
    let mut seen = Seen::default();
    until(&mut call, &mut seen, |seen| !seen.questions.is_empty()).await.unwrap();
    let wrong = within(call.answer("nobody", Answer::Decline(None))).await;
    assert!(matches!(wrong, Err(PeerError::Gone(_))), "{wrong:?}");
    within(call.answer("e", Answer::Accept(json!({})))).await.unwrap();
    until(&mut call, &mut seen, |_| false).await.unwrap();
    assert_eq!((seen.text().as_str(), calls.get()), ("done", 2));
}

#[tokio::test]
async fn headers_that_changed_are_learnt() {
    let lists = Count::default();
    let url = serve(move |asked| {
        let schema = |header: &str| {
            json!({ "type": "object", "properties": { "a": { "type": "string", "x-mcp-header": header } } })
        };
        match asked.method() {
            "server/discover" => {
                Reply::Json(200, asked.result(json!({ "supportedVersions": ["2026-07-28"], "capabilities": {} })))
            }
            "tools/list" => {
                let header = if lists.next() == 0 { "Old" } else { "New" };
                let bad = json!({ "name": "bad", "inputSchema": { "items": schema("X")["properties"]["a"] } });
                let tools = json!([{ "name": "t", "inputSchema": schema(header) }, bad]);
                Reply::Json(200, asked.result(json!({ "tools": tools })))
            }
            "tools/call" if asked.header("mcp-param-new").is_none() => {
                Reply::Json(400, asked.error(-32020, Value::Null))
            }
            "tools/call" => {
                assert_eq!(asked.header("mcp-param-new"), Some("=?base64?w7w=?="));
                assert_eq!((asked.header("mcp-method"), asked.header("mcp-name")), (Some("tools/call"), Some("t")));
                Reply::Ordinary
            }
            _ => Reply::Ordinary,
        }
    })
    .await;
    let peer = peer(&url);
    let names: Vec<String> =
        peer.list_capabilities().await.unwrap().into_iter().map(|offer| offer.name).collect();
    assert_eq!(names, ["t"], "a tool that says its headers wrongly is left out");
    let mut call = peer.begin(with("t", json!({ "a": "ü" }))).await.unwrap();
    assert_eq!(follow(&mut call).await.unwrap().text(), "done");
}

#[tokio::test]
async fn a_call_that_asks_for_ever_comes_to_an_end() {
    let url = serve(|asked| match asked.method() {
        "server/discover" => Reply::Json(200, asked.result(json!({ "supportedVersions": ["2026-07-28"] }))),
        "tools/call" => {
            let more = json!({ "resultType": "input_required", "requestState": "more" });
            Reply::Json(200, asked.result(more))
        }
        _ => Reply::Ordinary,
    })
    .await;
    let options = McpPeerOptions { max_rounds: 3, ..options() };
    let error = call(&McpPeer::new(PeerLocation::Url(url), options)).await.unwrap_err();
    assert!(error.to_string().contains("asked for input 3 times"), "{error}");
}

#[tokio::test]
async fn a_call_that_went_out_with_its_answers_is_not_made_once_more() {
    let check = async |hint: bool, reply: fn(&Asked) -> Reply, expected: &str| {
        let calls = Count::default();
        let counted = calls.clone();
        let url = serve(move |asked| match asked.method() {
            "server/discover" => Reply::Json(
                200,
                asked.result(json!({ "supportedVersions": ["2026-07-28"], "capabilities": {} })),
            ),
            "tools/list" => {
                let tool = json!({
                    "name": "t", "inputSchema": { "type": "object" },
                    "annotations": { "idempotentHint": hint, "destructiveHint": false },
                });
                Reply::Json(200, asked.result(json!({ "resultType": "complete", "tools": [tool] })))
            }
            "tools/call" => match (counted.next(), asked.body["params"]["inputResponses"].is_object()) {
                (_, false) => {
                    let ask = json!({ "method": "elicitation/create", "params": { "message": "Sure?", "requestedSchema": { "type": "object" } } });
                    Reply::Json(200, asked.result(json!({ "resultType": "input_required", "inputRequests": { "q": ask } })))
                }
                (1, true) => reply(asked),
                _ => Reply::Json(200, asked.result(said("done"))),
            },
            _ => Reply::Ordinary,
        })
        .await;
        let peer = peer(&url);
        let mut call = peer.begin(with("t", json!({}))).await.unwrap();
        let mut seen = Seen::default();
        until(&mut call, &mut seen, |seen| !seen.questions.is_empty()).await.unwrap();
        let asked = seen.handles.last().unwrap().clone();
        within(call.answer("q", Answer::Accept(json!({})))).await.unwrap();
        until(&mut call, &mut seen, |_| false).await.unwrap_err();
        let came_to = match peer.resume(seen.handles.last().unwrap()).await {
            Ok(mut call) => follow(&mut call).await.unwrap().text(),
            Err(error) => format!("{error:?}"),
        };
        assert!(came_to.starts_with(expected), "{came_to}");
        assert!(peer.answer_repeats_call(&asked), "whoever comes back with an answer makes the call again");
        calls.get()
    };
    // It broke after it was heard.
    let cut: fn(&Asked) -> Reply = |_| Reply::Events(": here\n\n".into(), Ends::Now);
    assert_eq!(check(false, cut, "Gone").await, 2);
    assert_eq!(check(true, cut, "done").await, 3);
    // It was not taken.
    assert_eq!(check(false, |_| Reply::Json(429, "later".into()), "done").await, 3);
}

#[tokio::test]
async fn where_nobody_can_answer_nothing_is_answered() {
    for as_task in [false, true] {
        let (answers, stops) = (Count::default(), Count::default());
        let (answered, stopped) = (answers.clone(), stops.clone());
        let url = serve(move |asked| {
            let ask = json!({ "method": "elicitation/create", "params": { "message": "Sure?", "requestedSchema": { "type": "object" } } });
            if asked.body["params"]["inputResponses"].is_object() {
                answered.next();
            }
            let task = |status: &str| json!({ "taskId": "t1", "status": status, "createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:00Z", "ttlMs": null, "pollIntervalMs": 20 });
            match asked.method() {
                "server/discover" => Reply::Json(
                    200,
                    asked.result(json!({
                        "supportedVersions": ["2026-07-28"],
                        "capabilities": { "extensions": { "io.modelcontextprotocol/tasks": {} } },
                    })),
                ),
                "tools/call" if as_task => {
                    let mut made = task("working");
                    made["resultType"] = "task".into();
                    Reply::Json(200, asked.result(made))
                }
                "tools/call" => Reply::Json(
                    200,
                    asked.result(json!({ "resultType": "input_required", "inputRequests": { "q": ask } })),
                ),
                "tasks/get" => {
                    let mut waits = task("input_required");
                    waits["inputRequests"] = json!({ "q": ask });
                    waits["resultType"] = "complete".into();
                    Reply::Json(200, asked.result(waits))
                }
                "tasks/cancel" => {
                    stopped.next();
                    Reply::Json(200, asked.result(json!({ "resultType": "complete" })))
                }
                "tasks/update" => Reply::Json(200, asked.result(json!({ "resultType": "complete" }))),
                _ => Reply::Ordinary,
            }
        })
        .await;
        let mut call = peer(&url).begin(with("t", json!({}))).await.unwrap();
        let mut seen = Seen::default();
        until(&mut call, &mut seen, |seen| !seen.questions.is_empty()).await.unwrap();
        let error = within(call.answer("q", Answer::Unavailable)).await.unwrap_err();
        assert!(error.to_string().contains("the answer to \"Sure?\", and nobody is here"), "{error}");
        assert_eq!((answers.get(), stops.get()), (0, usize::from(as_task)), "as a task: {as_task}");
    }
}

#[tokio::test]
async fn words_where_objects_belong_end_a_call_and_nothing_else() {
    let check = async |newest: bool, reply: fn(&Asked) -> Reply, expected: &str| {
        let url = serve(move |asked| match asked.method() {
            "server/discover" if newest => {
                Reply::Json(200, asked.result(json!({ "supportedVersions": ["2026-07-28"] })))
            }
            "tools/call" => reply(asked),
            _ => Reply::Ordinary,
        })
        .await;
        let came_to = match call(&peer(&url)).await {
            Ok(seen) => format!("{:?}", seen.ended.unwrap().state),
            Err(error) => format!("{error:?}"),
        };
        assert!(came_to.starts_with(expected), "{expected}: {came_to}");
    };
    let requests = |asked: &Asked| {
        let result = json!({ "resultType": "input_required", "inputRequests": { "q": "words" } });
        Reply::Json(200, asked.result(result))
    };
    check(true, requests, "Malformed").await;
    check(false, |asked| Reply::Json(200, asked.error(-32042, "words")), "Failed").await;
    check(false, |asked| Reply::Json(200, asked.error(-32042, json!(["words"]))), "Failed").await;
    let links = |asked: &Asked| Reply::Json(200, asked.error(-32042, json!({ "elicitations": ["words"] })));
    check(false, links, "Malformed").await;
}

#[tokio::test]
async fn a_server_does_not_say_how_long_we_wait_for_ever() {
    let url = serve(|asked| match asked.header("last-event-id") {
        None if asked.method() == "tools/call" => {
            let id = asked.body["id"].to_string();
            Reply::Events(format!("retry: 99999999999\n{}", event(&id, log("one"))), Ends::Now)
        }
        Some(cursor) => {
            let id: u64 = cursor.parse().unwrap();
            let answer = json!({ "jsonrpc": "2.0", "id": id, "result": said("done") }).to_string();
            Reply::Events(event("9", answer), Ends::Now)
        }
        _ => Reply::Ordinary,
    })
    .await;
    let options = McpPeerOptions { max_retry: Duration::from_millis(20), ..options() };
    assert_eq!(call(&McpPeer::new(PeerLocation::Url(url), options)).await.unwrap().text(), "done");
}

#[tokio::test]
async fn calls_that_are_taken_up_in_one_session_share_its_stream() {
    let (both, refused, stood) = (Count::default(), Count::default(), Count::default());
    let (ready, heard, counted) = (both.clone(), refused.clone(), stood.clone());
    let url = serve(move |asked| match (asked.verb.as_str(), asked.header("last-event-id")) {
        ("POST", _) if asked.method() == "tools/call" => {
            Reply::Events(event(&asked.body["id"].to_string(), log("one")), Ends::Never)
        }
        ("POST", _) if asked.body["id"] == "q" => {
            assert_eq!(asked.body["error"]["code"], -32601, "{}", asked.body);
            heard.next();
            Reply::Json(202, String::new())
        }
        // A stream of a call goes on; the session's own asks once both calls are there.
        ("GET", Some(_)) => Reply::Events(": here\n\n".into(), Ends::Never),
        ("GET", None) if ready.get() == 0 => Reply::Events(": wait\n\n".into(), Ends::Now),
        ("GET", None) => {
            counted.next();
            let params = json!({ "message": "Sure?", "requestedSchema": { "type": "object" } });
            let ask =
                json!({ "jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": params });
            Reply::Events(event("", ask.to_string()), Ends::Never)
        }
        _ => Reply::Ordinary,
    })
    .await;
    let before = peer(&url);
    let mut handles = vec![];
    for _ in 0..2 {
        let mut call = before.begin(with("t", json!({}))).await.unwrap();
        let mut seen = Seen::default();
        until(&mut call, &mut seen, |seen| !seen.handles.is_empty()).await.unwrap();
        handles.extend(seen.handles.pop());
    }
    drop(before);
    let after = peer(&url);
    let mut calls = vec![];
    for handle in &handles {
        calls.push(within(after.resume(handle)).await.unwrap());
    }
    both.next();
    within(async {
        while refused.get() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    after.close().await;
    for call in &mut calls {
        let mut seen = Seen::default();
        let _ = until(call, &mut seen, |_| false).await;
        assert!(seen.questions.is_empty(), "{seen:?}");
    }
    assert_eq!(stood.get(), 1, "they share one stream");
}
