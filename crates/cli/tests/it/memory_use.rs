//! How much memory the server takes, as the kernel tells it (`VmHWM` of the real process), while callers ask for much.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    path::Path,
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{http::rpc, server_process::ServerProcess};

/// Bytes of the text of a large task; the agent `echo` makes an artifact of the same size of it.
const LARGE: usize = 4 * 1024 * 1024;
const MIB: u64 = 1024 * 1024;

/// A server that holds so many large tasks.
fn with_large_tasks(data: &Path, flags: &[&str], count: usize) -> ServerProcess {
    let server = ServerProcess::start(data, flags);
    for n in 0..count {
        let text = "x".repeat(LARGE);
        let message =
            json!({ "messageId": format!("m{n}"), "role": "ROLE_USER", "parts": [{ "text": text }] });
        let sent =
            rpc(&format!("{}/agents/echo", server.url()), "SendMessage", &json!({ "message": message }));
        assert_eq!(sent["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED", "{}", sent["error"]);
    }
    server
}

fn memory(server: &ServerProcess, field: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

/// Begins to measure the peak anew.
fn forget_peak(server: &ServerProcess) {
    std::fs::write(format!("/proc/{}/clear_refs", server.pid()), "5").unwrap();
}

/// A page; where the server holds as many bytes as it may, it is asked for again, as a client would.
fn list(url: &str, params: &Value) -> Value {
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        let answer = rpc(&format!("{url}/agents/echo"), "ListTasks", params);
        if let Some(page) = answer.get("result") {
            return page.clone();
        }
        assert!(answer.to_string().contains("bytes-in-flight"), "{answer}");
        assert!(Instant::now() < deadline, "{answer}");
        thread::sleep(Duration::from_millis(100));
    }
}

#[test]
#[cfg(target_os = "linux")]
fn lists_of_large_tasks_take_no_memory_for_what_they_do_not_show() {
    let folder = tempfile::tempdir().unwrap();
    let server = with_large_tasks(&folder.path().join("data"), &[], 12);
    forget_peak(&server);
    let before = memory(&server, "VmHWM");
    let url = server.url();
    thread::scope(|scope| {
        for _ in 0..24 {
            scope.spawn(|| {
                // A page ends early where much had to be read for it, so that no page is slow.
                let mut params = json!({ "pageSize": 100, "historyLength": 0 });
                let mut seen = 0;
                loop {
                    let listed = list(url, &params);
                    seen += listed["tasks"].as_array().unwrap().len();
                    match listed["nextPageToken"].as_str() {
                        Some("") | None => break,
                        Some(token) => params["pageToken"] = json!(token),
                    }
                }
                assert_eq!(seen, 12);
            });
        }
    });
    let grown = (memory(&server, "VmHWM").saturating_sub(before)) / MIB;
    println!("24 lists of 12 tasks of 8 MiB took {grown} MiB more");
    assert!(grown < 300, "24 small lists took {grown} MiB");
}

#[test]
#[cfg(target_os = "linux")]
fn pages_with_artifacts_end_early_and_together_take_a_bounded_amount() {
    let folder = tempfile::tempdir().unwrap();
    let server = with_large_tasks(&folder.path().join("data"), &[], 6);
    forget_peak(&server);
    let before = memory(&server, "VmHWM");
    let url = server.url();
    thread::scope(|scope| {
        for _ in 0..24 {
            scope.spawn(|| {
                let mut params = json!({ "pageSize": 100, "includeArtifacts": true });
                let (mut seen, mut pages) = (0, 0);
                loop {
                    let listed = list(url, &params);
                    seen += listed["tasks"].as_array().unwrap().len();
                    pages += 1;
                    match listed["nextPageToken"].as_str() {
                        Some("") | None => break,
                        Some(token) => params["pageToken"] = json!(token),
                    }
                }
                assert_eq!((seen, pages), (6, 6), "each task is larger than a page");
            });
        }
    });
    let grown = (memory(&server, "VmHWM").saturating_sub(before)) / MIB;
    println!("24 walks through 6 tasks of 8 MiB took {grown} MiB more");
    assert!(grown < 900, "24 lists took {grown} MiB");
}

/// Sockets that the server has open.
fn server_sockets(server: &ServerProcess) -> usize {
    let files = std::fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap();
    let links = files.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
    links.filter(|link| link.to_string_lossy().starts_with("socket:")).count()
}

/// Sends a request and does not read the answer.
fn ask_and_stall(addr: SocketAddr, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(addr).unwrap();
    write!(
        stream,
        "POST /agents/echo HTTP/1.1\r\nHost: localhost\r\nA2A-Version: 1.0\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    stream
}

#[test]
#[cfg(target_os = "linux")]
fn clients_that_do_not_read_their_answers_are_closed_and_take_a_bounded_amount() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("nuncio.toml"), "[http]\nwrite-timeout = \"3s\"\n").unwrap();
    let config = folder.path().join("nuncio.toml");
    let flags = ["--config", config.to_str().unwrap()];
    let server = with_large_tasks(&folder.path().join("data"), &flags, 4);
    let tasks = list(server.url(), &json!({ "historyLength": 0 }));
    let id = tasks["tasks"][0]["id"].as_str().unwrap();
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": { "id": id } }).to_string();
    forget_peak(&server);
    let before = memory(&server, "VmHWM");
    let quiet = server_sockets(&server);
    let stalled: Vec<TcpStream> = (0..60).map(|_| ask_and_stall(server.addr(), &body)).collect();
    let deadline = Instant::now() + Duration::from_secs(240);
    while server_sockets(&server) < quiet + 20 {
        assert!(Instant::now() < deadline, "nobody was let in");
        thread::sleep(Duration::from_millis(5));
    }
    while server_sockets(&server) > quiet {
        assert!(
            Instant::now() < deadline,
            "{} clients that do not read are still connected",
            server_sockets(&server)
        );
        thread::sleep(Duration::from_millis(20));
    }
    drop(stalled);
    let grown = (memory(&server, "VmHWM").saturating_sub(before)) / MIB;
    println!("60 clients that did not read 8 MiB each took {grown} MiB");
    assert!(grown < 450, "clients that did not read took {grown} MiB");
    // The server answers as before.
    let mut last = ask_and_stall(server.addr(), &body);
    let mut answer = vec![0; 12];
    last.read_exact(&mut answer).unwrap();
    assert_eq!(answer, b"HTTP/1.1 200");
}

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), content].concat()
}

/// A connection of HTTP/2 with requests of gRPC whose bodies never come. Returns when the server has seen all of them.
fn half_open_requests(address: SocketAddr, count: u32) -> TcpStream {
    const END_HEADERS: u8 = 4;
    let text = |prefix: &[u8], value: &str| [prefix, &[value.len() as u8], value.as_bytes()].concat();
    // POST, http, and the names of the static table with values of our own: path, authority, content type.
    let mut head = vec![0x83, 0x86];
    head.extend(text(&[0x04], "/lf.a2a.v1.A2AService/SendMessage"));
    head.extend(text(&[0x01], "localhost"));
    head.extend(text(&[0x0f, 0x10], "application/grpc"));
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut sent = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    sent.extend(frame(4, 0, 0, &[]));
    for n in 0..count {
        sent.extend(frame(1, END_HEADERS, 2 * n + 1, &head));
    }
    // What comes before a ping is read before it is answered.
    sent.extend(frame(6, 0, 0, b"all seen"));
    stream.write_all(&sent).unwrap();
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).unwrap();
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut content = vec![0; length as usize];
        stream.read_exact(&mut content).unwrap();
        let (kind, id) = (head[3], u32::from_be_bytes([head[5], head[6], head[7], head[8]]));
        // No reset, no answer, no goodbye: the requests wait for their bodies.
        assert!(!matches!(kind, 0 | 1 | 3 | 7), "a frame of kind {kind} for {id}");
        if kind == 6 && head[4] == 1 {
            return stream;
        }
    }
}

#[test]
#[cfg(target_os = "linux")]
fn ten_thousand_half_open_requests_of_http_2_take_a_bounded_amount_and_others_are_served() {
    const CONNECTIONS: u64 = 40;
    const REQUESTS: u32 = 250;
    let folder = tempfile::tempdir().unwrap();
    let server = with_large_tasks(&folder.path().join("data"), &[], 1);
    let (before, sockets) = (memory(&server, "VmRSS"), server_sockets(&server));
    let open: Vec<_> = (0..CONNECTIONS).map(|_| half_open_requests(server.addr(), REQUESTS)).collect();
    let listed = list(server.url(), &json!({ "pageSize": 1, "historyLength": 0 }));
    assert_eq!(listed["totalSize"], 1);
    let each = memory(&server, "VmRSS").saturating_sub(before) / (CONNECTIONS * u64::from(REQUESTS));
    println!("10,000 half-open requests on 40 connections took {each} bytes each");
    assert!(each < 24 * 1024, "{each} bytes each");
    drop(open);
    let deadline = Instant::now() + Duration::from_secs(60);
    while server_sockets(&server) > sockets {
        assert!(Instant::now() < deadline, "{} sockets are open", server_sockets(&server));
        thread::sleep(Duration::from_millis(20));
    }
    let listed = list(server.url(), &json!({ "pageSize": 1, "historyLength": 0 }));
    assert_eq!(listed["totalSize"], 1);
}
