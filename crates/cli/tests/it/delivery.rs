//! Webhooks of a real server that is killed while it delivers, to a receiver that fails, hangs and resets.
//!
//! What was acknowledged is delivered at least once, in order per task, under the same id on every repeat,
//! with a signature that verifies.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;

use crate::{http, server_process::ServerProcess};

/// Frames that a `stream` task of the bench agent has: working, its chunks, completed.
const EVENTS_PER_TASK: usize = 102;

#[test]
fn every_event_arrives_in_order_though_the_server_is_killed() {
    let full = std::env::var_os("NUNCIO_FULL").is_some();
    let (tasks, kills) = if full { (10, 20) } else { (3, 4) };
    let dir = tempfile::tempdir().unwrap();
    // A receiver that hangs is given up on quickly, and asked again at once.
    let config = "[webhooks]\ntimeout = \"300ms\"\nfirst-retry = \"20ms\"\nlongest-retry = \"50ms\"\n";
    std::fs::write(dir.path().join("nuncio.toml"), config).unwrap();
    let receiver = Receiver::start();
    let mut server =
        ServerProcess::start(&dir.path().join("data"), &["--allow-private-webhooks", "--bench-agent"]);

    // Nothing is taken before the first kill: it lies between the commit and the delivery.
    receiver.shared.closed.store(true, Ordering::SeqCst);
    let mut ids: Vec<String> = (0..tasks).map(|n| send(server.url(), &receiver.url, n)).collect();
    server.kill9();
    receiver.shared.closed.store(false, Ordering::SeqCst);
    server.restart();
    for _ in 1..kills {
        let before = receiver.shared.requests.load(Ordering::SeqCst);
        receiver.until(|shared| {
            shared.requests.load(Ordering::SeqCst) > before + 5 || shared.accepted() >= expected(&ids)
        });
        server.kill9();
        server.restart();
    }
    // One more while deliveries of the others are still under way.
    ids.push(send(server.url(), &receiver.url, tasks));
    receiver.until(|shared| shared.accepted() >= expected(&ids));
    receiver.check(&ids, server.data());
    println!(
        "{} events of {} tasks, {kills} kills: {} requests, each event at least once and in order",
        expected(&ids),
        ids.len(),
        receiver.shared.requests.load(Ordering::SeqCst),
    );
}

fn expected(ids: &[String]) -> usize {
    ids.len() * EVENTS_PER_TASK
}

/// Sends a task with a webhook; its id, once it is acknowledged.
fn send(url: &str, webhook: &str, n: usize) -> String {
    let params = json!({
        "message": { "messageId": format!("m{n}"), "role": "ROLE_USER", "parts": [{ "text": "stream" }] },
        "configuration": { "taskPushNotificationConfig": { "id": "hook", "url": webhook, "token": "t" } },
    });
    let answer = http::rpc(url, "SendMessage", &params);
    answer["result"]["task"]["id"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
}

/// A receiver of webhooks that is as bad as they come.
struct Receiver {
    url: String,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// Refuses everything.
    closed: AtomicBool,
    requests: AtomicU64,
    got: Mutex<Vec<Got>>,
}

/// One request, and whether it was answered with success.
struct Got {
    id: String,
    timestamp: String,
    signature: String,
    token: String,
    body: Vec<u8>,
    accepted: bool,
}

impl Receiver {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let shared = Arc::new(Shared::default());
        let for_thread = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let shared = Arc::clone(&for_thread);
                thread::spawn(move || shared.serve(&stream));
            }
        });
        Self { url, shared }
    }

    fn until(&self, ready: impl Fn(&Shared) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(120);
        while !ready(&self.shared) {
            assert!(Instant::now() < deadline, "{} events were accepted", self.shared.accepted());
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Every event of every task arrived; new ones only in their order; repeats under their own ids, with
    /// their own bytes; and all of it signed with the server's secret.
    fn check(&self, ids: &[String], data: &Path) {
        let secret = std::fs::read_to_string(data.join("webhook-secret")).unwrap();
        let secret = BASE64_STANDARD.decode(secret.trim().strip_prefix("whsec_").unwrap()).unwrap();
        let mut bodies: BTreeMap<&str, &[u8]> = BTreeMap::new();
        let mut last: BTreeMap<&str, u64> = BTreeMap::new();
        let got = self.shared.got.lock().unwrap();
        for got in got.iter() {
            got.verify(&secret);
            assert_eq!(got.token, "t");
            assert_eq!(*bodies.entry(&got.id).or_insert(&got.body), got.body, "{} has two bodies", got.id);
            let [task, hook, seq] = got.id.split('.').collect::<Vec<_>>()[..] else { panic!("{}", got.id) };
            assert_eq!(hook, "hook");
            let body: Value = serde_json::from_slice(&got.body).unwrap();
            let update = body.as_object().unwrap().values().next().unwrap();
            assert_eq!(update["taskId"], task);
            if got.accepted {
                let seq: u64 = seq.parse().unwrap();
                let last = last.entry(task).or_insert(1);
                assert!(seq <= *last + 1, "{task}: {seq} came after {last}");
                *last = seq.max(*last);
            }
        }
        for id in ids {
            assert_eq!(last.get(id.as_str()), Some(&(EVENTS_PER_TASK as u64 + 1)), "{id}");
        }
    }
}

impl Shared {
    /// How many different events were answered with success.
    fn accepted(&self) -> usize {
        let got = self.got.lock().unwrap();
        let ids: std::collections::BTreeSet<&str> =
            got.iter().filter(|got| got.accepted).map(|got| got.id.as_str()).collect();
        ids.len()
    }

    fn serve(&self, stream: &TcpStream) {
        let mut reader = BufReader::new(stream);
        while let Some(got) = read(&mut reader) {
            let n = self.requests.fetch_add(1, Ordering::SeqCst);
            let closed = self.closed.load(Ordering::SeqCst);
            let answer = match n % 11 {
                _ if closed => "503 Service Unavailable",
                3 => "500 Internal Server Error",
                // Cut without an answer.
                5 => return self.keep(got, false),
                7 => {
                    // Hangs for longer than the server waits.
                    self.keep(got, false);
                    thread::sleep(Duration::from_millis(400));
                    return;
                }
                _ => "204 No Content",
            };
            let accepted = answer.starts_with('2');
            let answer = format!("HTTP/1.1 {answer}\r\ncontent-length: 0\r\n\r\n");
            // Kept before the answer: once the server has that, the next event may come on another connection.
            self.keep(got, accepted);
            let mut out = stream;
            if out.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    }

    fn keep(&self, got: Got, accepted: bool) {
        self.got.lock().unwrap().push(Got { accepted, ..got });
    }
}

/// Reads one request.
fn read(reader: &mut BufReader<&TcpStream>) -> Option<Got> {
    let mut headers = BTreeMap::new();
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
    assert!(line.starts_with("POST /hook HTTP/1.1"), "{line}");
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let mut body = vec![0; headers["content-length"].parse().unwrap()];
    reader.read_exact(&mut body).ok()?;
    let mut header = |name: &str| headers.remove(name).unwrap_or_else(|| panic!("no {name}"));
    assert_eq!(header("content-type"), "application/a2a+json");
    Some(Got {
        id: header("webhook-id"),
        timestamp: header("webhook-timestamp"),
        signature: header("webhook-signature"),
        token: header("x-a2a-notification-token"),
        body,
        accepted: false,
    })
}

impl Got {
    /// Computes the signature again, as a receiver does.
    fn verify(&self, secret: &[u8]) {
        let mut mac = Hmac::<Sha256>::new_from_slice(secret).unwrap();
        mac.update(format!("{}.{}.", self.id, self.timestamp).as_bytes());
        mac.update(&self.body);
        let signature = BASE64_STANDARD.encode(mac.finalize().into_bytes());
        assert_eq!(self.signature, format!("v1,{signature}"));
    }
}
