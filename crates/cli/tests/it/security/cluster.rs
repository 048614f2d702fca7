//! Two servers on one PostgreSQL are one server for what is shared, for tokens, and closely for rates.
//!
//! Needs a PostgreSQL: `scripts/postgres run cargo test -p nuncio-cli cluster`.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use futures_util::StreamExt as _;
use serde_json::{Value, json};

use super::{Place, shared::Guest};
use crate::{http::client, server_process::ServerProcess};

const DEADLINE: Duration = Duration::from_secs(30);

/// Two servers, and a caller at each with the same token, whose id comes last.
fn nodes(file: &str) -> Option<(Place, Place, String, String)> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let url = std::env::var("NUNCIO_TEST_POSTGRES").ok();
    assert!(
        url.is_some() || std::env::var_os("NUNCIO_TEST_ALL").is_none(),
        "NUNCIO_TEST_POSTGRES is not set"
    );
    let Some(url) = url else {
        println!("skipped: NUNCIO_TEST_POSTGRES names no server");
        return None;
    };
    let schema = format!("k_{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let flags = ["--store", &url, "--store-schema", &schema];
    let start = || {
        let dir = tempfile::tempdir().unwrap();
        let config = dir.path().join("nuncio.toml");
        std::fs::write(&config, file).unwrap();
        let flags = [&flags[..], &["--auth", "on", "--config", config.to_str().unwrap()]].concat();
        let server = ServerProcess::start(&dir.path().join("nuncio-data"), &flags);
        Place { dir, server }
    };
    let (first, second) = (start(), start());
    let made = first.token(&["--name", "ada", "--tenant", "acme", "--scope", "*:*"]);
    let text = |field: &str| made[field].as_str().unwrap().to_owned();
    Some((first, second, text("token"), text("id")))
}

fn at(place: &Place, token: &str) -> Guest {
    let url = format!("http://{}/mcp", place.server.addr());
    Guest { http: client(), url, token: token.to_owned(), session: None }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_stored_at_one_node_is_read_at_the_other_and_told_there() {
    let Some((first, second, token, _)) = nodes("") else { return };
    let (one, two) = (at(&first, &token), at(&second, &token));
    let uri = "memory://data/notes/today";
    one.done("memory_store", &json!({ "namespace": "notes", "key": "today", "value": 0 })).await;

    let listen = json!({ "notifications": { "resourceSubscriptions": [uri] }, "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": { "name": "t", "version": "1" },
    } });
    let body = json!({ "jsonrpc": "2.0", "id": 9, "method": "subscriptions/listen", "params": listen });
    let headers = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "subscriptions/listen")];
    let mut told = two.post(&headers, &body).send().await.unwrap().bytes_stream();
    let mut heard = String::new();
    let mut until = async |heard: &mut String, wanted: &str| {
        let started = Instant::now();
        while !heard.contains(wanted) {
            assert!(started.elapsed() < DEADLINE, "never told: {wanted}\n{heard}");
            let next = tokio::time::timeout(DEADLINE, told.next()).await.expect("it tells something");
            heard.push_str(&String::from_utf8_lossy(&next.unwrap().unwrap()));
        }
        heard.clear();
    };
    until(&mut heard, "subscriptions/acknowledged").await;

    for n in 1..=50 {
        let (writer, reader) = if n % 2 == 0 { (&one, &two) } else { (&two, &one) };
        let stored = json!({ "namespace": "notes", "key": "today", "value": n, "expectedVersion": n });
        writer.done("memory_store", &stored).await;
        let got = reader.done("memory_get", &json!({ "namespace": "notes", "key": "today" })).await;
        assert_eq!(got["value"], n, "what was acknowledged is there, on every node: {got}");
    }
    one.done("memory_store", &json!({ "namespace": "notes", "key": "today", "value": "last" })).await;
    until(&mut heard, "notifications/resources/updated").await;
    let (_, read) = two.read(uri).await;
    assert!(read.contains("last"), "{read}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_is_taken_back_at_one_node_is_refused_at_the_other_within_seconds() {
    let Some((first, second, token, id)) = nodes("") else { return };
    let two = at(&second, &token);
    two.done("memory_list", &json!({})).await;
    first.nuncio(&["token", "revoke", &id]).exits(0);
    let started = Instant::now();
    while two.tool("memory_list", &json!({})).await.0 != 401 {
        assert!(started.elapsed() < DEADLINE, "it is still good");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let took = started.elapsed();
    assert!(took < Duration::from_secs(8), "five seconds are promised, and it took {took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rate_holds_over_all_nodes_as_closely_as_an_exchange() {
    let Some((first, second, token, _)) = nodes("[rate]\nmemory = \"20/s\"\n") else { return };
    let (one, two) = (at(&first, &token), at(&second, &token));
    let started = Instant::now();
    let (mut let_through, mut refused) = (0_u32, 0_u32);
    while started.elapsed() < Duration::from_secs(10) {
        for guest in [&one, &two] {
            let (status, text) = guest.tool("memory_list", &json!({})).await;
            match status {
                200 => let_through += 1,
                429 => refused += 1,
                other => panic!("{other}: {text}"),
            }
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    println!("{let_through} let through and {refused} refused in {seconds:.1} s at 20/s over two nodes");
    assert!(refused > 0, "nobody was refused");
    // What two buckets hold at once, the rate, and what one exchange may miss of it on either node.
    let most = 2.0 * 20.0 + 20.0 * seconds + 2.0 * 2.0 * 20.0;
    assert!(f64::from(let_through) <= most, "{let_through} of at most {most}");
    let answer: Value = serde_json::from_str(&one.tool("memory_list", &json!({})).await.1).unwrap();
    assert!(answer.is_object());
}
