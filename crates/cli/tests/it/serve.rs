//! The life of a server process: how it starts, what it leaves, how it ends.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    os::unix::fs::PermissionsExt as _,
    process::Command,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::Value;

use crate::{
    command::{nuncio_in, run},
    server_process::ServerProcess,
};

#[test]
fn what_it_prints_can_be_pasted() {
    let dir = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(&dir.path().join("data"), &[]);
    let greeting = server.greeting();
    for part in ["echo (default)", "/.well-known/agent-card.json", "/healthz", server.url()] {
        assert!(greeting.contains(part), "{greeting}");
    }
    let command = greeting.lines().last().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let ran = run(Command::new("sh").args(["-c", command]).current_dir(elsewhere.path())).exits(0);
    assert_eq!(ran.field("State"), "completed");
    assert!(ran.stdout.contains("Text:\nHello\n\n"), "{}", ran.stdout);
}

#[test]
fn it_leaves_its_address_while_it_runs() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = ServerProcess::start(&dir.path().join("data"), &[]);
    let mode = |name: &str| fs::metadata(server.data().join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!([mode("server.json"), mode("webhook-secret"), mode("")], [0o600, 0o600, 0o700]);
    let text = fs::read(server.data().join("server.json")).unwrap();
    let published: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(published["url"], server.url());
    assert_eq!(published["pid"], server.pid());
    let secret = fs::read_to_string(server.data().join("webhook-secret")).unwrap();
    assert!(secret.starts_with("whsec_"), "{secret}");

    // Commands in the same folder need no address.
    let found = run(nuncio_in(dir.path()).args(["send", "hi"]).env("NUNCIO_DATA", "data")).exits(0);
    assert_eq!(found.field("State"), "completed");

    assert_eq!(server.terminate().code(), Some(0), "{}", server.log());
    assert!(!server.data().join("server.json").exists());
    server.restart();
    assert_eq!(fs::read_to_string(server.data().join("webhook-secret")).unwrap(), secret, "kept for ever");
}

#[test]
fn a_folder_has_one_server() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = ServerProcess::start(&dir.path().join("data"), &[]);
    let refused = ServerProcess::try_start(server.data(), &[]).err().unwrap();
    assert!(refused.contains("is in use by process"), "{refused}");
    // The one that was refused has not taken back the address of the one that runs.
    assert!(server.data().join("server.json").exists());
    server.kill9();
    server.restart();
}

#[test]
fn a_port_has_one_server() {
    let dir = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(&dir.path().join("one"), &[]);
    let address = server.addr().to_string();
    let refused = ServerProcess::try_start(&dir.path().join("two"), &["--listen", &address]).err().unwrap();
    assert!(refused.contains(&format!("cannot listen on {address}")), "{refused}");
    assert!(refused.contains("--listen 127.0.0.1:0 takes a free one"), "{refused}");
    assert!(!dir.path().join("two/server.json").exists());
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = ServerProcess::start(&dir.path().join("data"), &[]);
    // A request that does not come to its end keeps a graceful stop waiting.
    let mut slow = TcpStream::connect(server.addr()).unwrap();
    write!(
        slow,
        "POST / HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{{",
        server.addr()
    )
    .unwrap();
    // The server has seen it when it answers what came after it.
    let alive = run(nuncio_in(dir.path()).args(["card", "get", "-a", server.url()])).exits(0);
    assert_eq!(alive.field("Name"), "echo");

    let started = Instant::now();
    server.signal(Signal::INT);
    server.logs("stopping");
    server.signal(Signal::INT);
    assert_eq!(server.wait().code(), Some(130), "{}", server.log());
    assert!(started.elapsed() < Duration::from_secs(8), "it waited: {:?}", started.elapsed());
    let _ = slow.read(&mut [0; 1]);
}

#[test]
fn the_agents_are_those_that_were_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let name = |flags: &[&str]| {
        let server = ServerProcess::start(&dir.path().join("data"), flags);
        let ran = run(nuncio_in(dir.path()).args(["card", "get", "-a", server.url()])).exits(0);
        ran.field("Name").to_owned()
    };
    assert_eq!(name(&["--bench-agent"]), "bench");
    assert_eq!(name(&["--bench-agent", "--default-agent", "travel_agent"]), "travel_agent");
    let refused = ServerProcess::try_start(&dir.path().join("data"), &["--default-agent", "nobody"]);
    let refused = refused.err().unwrap();
    assert!(
        refused.contains("the default agent \"nobody\" is not registered; there are: ")
            && refused.contains(" echo,"),
        "{refused}"
    );
}

#[test]
fn a_server_for_everyone_says_what_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(&dir.path().join("data"), &["--listen", "0.0.0.0:0", "--allow-remote"]);
    assert!(server.url().starts_with("http://127.0.0.1:"), "{}", server.url());
    server.logs("set --public-url to what clients use");
    server.logs("without TLS, where others can read them");
    assert!(server.greeting().contains("Access:   by token"), "{}", server.greeting());
    let send = || {
        let mut command = nuncio_in(dir.path());
        command.args(["send", "hi", "-a", server.url()]);
        command
    };
    run(&mut send()).exits(4);
    let made =
        run(nuncio_in(dir.path()).args(["token", "create", "--name", "ada", "--data", "data"])).exits(0);
    let sent = run(send().env("A2ACLI_BEARER", made.field("Token"))).exits(0);
    assert_eq!(sent.field("State"), "completed");
}

#[test]
fn it_has_figures_and_logs_json() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = ServerProcess::start(
        &dir.path().join("data"),
        &["--log-format", "json", "--public-url", "https://a.example", "--auth", "off"],
    );
    let greeting: Value = serde_json::from_str(server.greeting()).unwrap();
    assert_eq!(greeting["public_url"], "https://a.example");
    let metrics = http_get(server.url(), "/metrics");
    assert!(metrics.contains("nuncio_tasks_running 0"), "{metrics}");
    assert!(http_get(server.url(), "/.well-known/agent-card.json").contains("https://a.example"));
    server.terminate();
    server.logs("stopping");
    for line in server.log().lines() {
        let entry: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(entry["level"].is_string(), "{line}");
    }
}

fn http_get(url: &str, path: &str) -> String {
    let host = url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(host).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}
