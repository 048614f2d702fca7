//! A server behind a proxy, and another user of the same machine: who may call, and who administers.

use std::{
    fs::{self, Permissions},
    io::{Read as _, Write as _},
    net::TcpStream,
    os::unix::{fs::PermissionsExt as _, net::UnixStream},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use nuncio::data_dir::PublishedServer;
use serde_json::{Value, json};

use crate::{
    command::{Ran, nuncio_in, run},
    http::{client, rpc, rpc_with},
    nginx::Nginx,
    server_process::ServerProcess,
};

/// A server in a folder of its own, with the flags of the test alone.
struct Machine {
    dir: tempfile::TempDir,
    server: ServerProcess,
}

impl Machine {
    fn new(flags: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let server = ServerProcess::start(&dir.path().join("nuncio-data"), flags);
        Self { dir, server }
    }

    fn nuncio(&self, args: &[&str]) -> Ran {
        run(nuncio_in(self.dir.path()).args(args))
    }

    fn secret(&self) -> String {
        PublishedServer::read(self.server.data()).unwrap().admin_token
    }
}

fn hello() -> Value {
    json!({ "message": { "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": "hello" }] } })
}

/// The status and the text of an answer.
pub(super) fn http(method: &str, url: &str, headers: &[(&str, &str)], body: Option<&Value>) -> (u16, String) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut request = client().request(method.parse().unwrap(), url);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    })
}

/// What a server says to a read of the audit over MCP.
fn read_audit(url: &str, headers: &[(&str, &str)]) -> (u16, String) {
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {
        "uri": "audit://log",
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": { "name": "t", "version": "1" },
        },
    } });
    let own = [
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "resources/read"),
        ("mcp-name", "audit://log"),
    ];
    http("POST", &format!("{url}/mcp"), &[&own, headers].concat(), Some(&body))
}

const NEEDS_SECRET: &str = "administration needs the secret of the data folder";

#[test]
fn a_stranger_behind_a_bare_proxy_administers_nothing() {
    let mut place = super::Place::new(&[]);
    let token = place.token(&["--name", "ada", "--tenant", "acme"]);
    let sent = place.send_as(token["token"].as_str().unwrap(), "a secret of acme").exits(0);
    let task = sent.field("Task").to_owned();
    place.server.terminate();

    // The same folder, now open to whatever reaches the loopback address; nginx reaches it with a loopback Host and
    // without any header that names it.
    let server = ServerProcess::start(&place.dir.path().join("nuncio-data"), &["--auth", "off"]);
    let nginx = Nginx::start(server.url(), "");
    let sent = rpc(&nginx.url(), "SendMessage", &hello());
    assert_eq!(sent["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED", "{sent}");

    let (status, text) = read_audit(&nginx.url(), &[]);
    assert!(status == 403 && text.contains(NEEDS_SECRET), "{status} {text}");
    let wish = json!({ "name": "eve", "scopes": ["*:*", "*:admin"] });
    for (method, path, body) in [
        ("GET", "/admin/tokens", None),
        ("POST", "/admin/tokens", Some(&wish)),
        ("DELETE", &*format!("/admin/tokens/{}", token["id"].as_str().unwrap()), None),
        ("GET", "/admin/audit", None),
        ("GET", "/admin/dead-letters", None),
        ("POST", "/admin/dead-letters/replay", Some(&json!({}))),
    ] {
        let (status, text) = http(method, &format!("{}{path}", nginx.url()), &[], body);
        assert!(status == 401 && text.contains(NEEDS_SECRET), "{method} {path}: {status} {text}");
    }
    let got = rpc(&nginx.url(), "GetTask", &json!({ "id": task }));
    assert!(got["error"]["message"].as_str().is_some_and(|why| why.contains("Task not found")), "{got}");
    let listed = rpc(&nginx.url(), "ListTasks", &json!({}));
    assert!(!listed.to_string().contains("acme"), "{listed}");

    // The commands of the folder's own user show its secret by themselves.
    let tokens = place.nuncio(&["token", "list", "-o", "json"]).exits(0).json();
    assert_eq!(tokens["tokens"].as_array().unwrap().len(), 1);
    assert!(
        place.audit(&[]).iter().any(|line| line["operation"] == "audit.read" && line["allowed"] == false)
    );
    let secret = format!("Bearer {}", PublishedServer::read(server.data()).unwrap().admin_token);
    let (status, text) = read_audit(server.url(), &[("authorization", &secret)]);
    assert!(status == 200 && text.contains("task.send"), "{status} {text}");
}

#[test]
fn under_a_public_name_callers_are_asked_for_tokens() {
    let asks = |flags: &[&str], asked: bool| {
        let machine = Machine::new(flags);
        let nginx = Nginx::start(machine.server.url(), "proxy_set_header Host $host;");
        let sent = rpc(&nginx.url(), "SendMessage", &hello());
        assert_eq!(
            sent["error"]["message"].as_str().is_some_and(|why| why.contains("token")),
            asked,
            "{flags:?} {sent}"
        );
        // The operator's own commands show the folder's secret.
        machine.nuncio(&["token", "list"]).exits(0);
        assert_eq!(machine.server.greeting().contains("by token"), asked, "{}", machine.server.greeting());
    };
    asks(&["--public-url", "https://agents.example.com"], true);
    asks(&["--allowed-hosts", "localhost,agents.internal:8080"], true);
    asks(&["--trusted-proxies", "127.0.0.1"], true);
    asks(&["--auth", "file"], true);
    asks(
        &["--public-url", "http://localhost:9000", "--allowed-hosts", "127.0.0.1,[::1]:1,app.localhost"],
        false,
    );
}

#[test]
fn a_folder_that_others_write_asks_for_its_secret() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("nuncio-data");
    for (mode, asked) in [(0o700, false), (0o755, false), (0o777, true)] {
        let _ = fs::remove_dir_all(&data);
        fs::create_dir(&data).unwrap();
        fs::set_permissions(&data, Permissions::from_mode(mode)).unwrap();
        let server = ServerProcess::start(&data, &[]);
        let sent = rpc(server.url(), "SendMessage", &hello());
        assert_eq!(sent["error"].is_object(), asked, "{mode:o} {sent}");
        assert_eq!(server.log().contains("chmod 700"), mode != 0o700, "{mode:o} {}", server.log());
        run(nuncio_in(dir.path()).args(["send", "hello"])).exits(0);
    }
}

#[test]
fn what_a_proxy_adds_is_refused_where_nobody_is_asked_for_tokens() {
    let machine = Machine::new(&[]);
    for (line, name) in [
        ("proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;", "x-forwarded-for"),
        ("proxy_set_header X-Forwarded-Proto $scheme;", "x-forwarded-proto"),
        ("proxy_set_header X-Real-IP $remote_addr;", "x-real-ip"),
        ("proxy_set_header Forwarded for=192.0.2.1;", "forwarded"),
        ("proxy_set_header Via \"1.1 nginx\";", "via"),
    ] {
        let nginx = Nginx::start(machine.server.url(), line);
        for path in ["/", "/mcp", "/.well-known/agent-card.json", "/metrics"] {
            let method = if path.len() > 4 { "GET" } else { "POST" };
            let (status, text) = http(method, &format!("{}{path}", nginx.url()), &[], Some(&json!({})));
            assert_eq!(status, 403, "{name} {path}: {text}");
            for word in [name, "auth = \\\"on\\\"", "trusted-proxies"] {
                assert!(text.contains(word), "{word}: {text}");
            }
        }
        // The operator's own secret is as good through a proxy as without.
        let secret = format!("Bearer {}", machine.secret());
        let sent = rpc_with(&nginx.url(), "SendMessage", &hello(), &[("authorization", &secret)]);
        assert_eq!(sent["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED", "{sent}");
    }
    let sent = rpc(machine.server.url(), "SendMessage", &hello());
    assert_eq!(sent["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED", "{sent}");
}

#[test]
fn the_audit_names_the_client_behind_a_trusted_proxy_and_believes_nobody_else() {
    let machine = Machine::new(&["--auth", "on", "--trusted-proxies", "127.0.0.1"]);
    let made = machine.nuncio(&["token", "create", "--name", "ada", "-o", "json"]).exits(0).json();
    let token = format!("Bearer {}", made["token"].as_str().unwrap());
    // As if it stood before another one: what the client writes itself comes before what this one adds.
    let line = "proxy_set_header X-Forwarded-For \"$http_x_forwarded_for, 203.0.113.9\";";
    let nginx = Nginx::start(machine.server.url(), line);
    let headers = [("authorization", &*token), ("x-forwarded-for", "198.51.100.1")];
    rpc_with(&nginx.url(), "SendMessage", &hello(), &headers);
    let from = |caller: &str| -> Vec<Value> {
        let page = machine.nuncio(&["audit", "-o", "json", "--caller", caller]).exits(0).json();
        page["entries"].as_array().unwrap().iter().map(|line| line["from"].clone()).collect()
    };
    assert_eq!(from("ada"), ["203.0.113.9"]);

    let other = Machine::new(&["--auth", "on", "--trusted-proxies", "10.0.0.0/8"]);
    rpc_with(other.server.url(), "SendMessage", &hello(), &[("x-forwarded-for", "203.0.113.9")]);
    let page = other.nuncio(&["audit", "-o", "json", "--caller", "anonymous"]).exits(0).json();
    assert_eq!(page["entries"][0]["from"], "127.0.0.1", "{page}");
}

/// A request over a Unix socket, and the whole answer.
fn over_socket(path: &Path, headers: &str) -> String {
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": hello() }).to_string();
    let mut stream = UnixStream::connect(path).unwrap();
    let request = format!(
        "POST / HTTP/1.1\r\nHost: localhost\r\nA2A-Version: 1.0\r\nContent-Type: application/json\r\n{headers}\
         Connection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn on_a_socket_the_system_says_whose_process_calls() {
    let dir = tempfile::tempdir().unwrap();
    // Others may come in here, so that only the socket's own mode and what the server asks for keep them out.
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    let path = dir.path().join("nuncio.sock");
    let data = dir.path().join("nuncio-data");
    let mut server = ServerProcess::start(&data, &["--socket", path.to_str().unwrap()]);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);

    let answer = over_socket(&path, "");
    assert!(answer.contains("TASK_STATE_COMPLETED"), "{answer}");
    let answer = over_socket(&path, "X-Forwarded-For: 203.0.113.9\r\n");
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    // Over TCP the system does not know.
    let sent = rpc(server.url(), "SendMessage", &hello());
    assert!(sent["error"].is_object(), "{sent}");

    // nginx is another user where it can be; where the test may not change users it is this one, and may call.
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
    }
    let nginx =
        Nginx::start_as(is_root.then_some("www-data"), &format!("http://unix:{}", path.display()), "");
    let sent = rpc(&nginx.url(), "SendMessage", &hello());
    assert_eq!(sent["error"].is_object(), is_root, "{sent}");
    let (status, text) = read_audit(&nginx.url(), &[]);
    assert!([401, 403].contains(&status), "{status} {text}");

    run(nuncio_in(dir.path()).args(["send", "hello"])).exits(0);
    let page = run(nuncio_in(dir.path()).args(["audit", "-o", "json"])).exits(0).stdout;
    let own = format!("unix:uid={}", rustix::process::geteuid().as_raw());
    assert!(page.contains(&own), "{page}");

    // What a crash leaves behind is no obstacle; another server is.
    server.kill9();
    server.restart();
    let answer = over_socket(&path, "");
    assert!(answer.contains("TASK_STATE_COMPLETED"), "{answer}");
    let taken = ServerProcess::try_start(&dir.path().join("other"), &["--socket", path.to_str().unwrap()]);
    assert!(taken.err().unwrap().contains("cannot listen on the socket"));
    server.terminate();
    assert!(!path.exists());
}

#[test]
fn descriptors_are_raised_and_connections_follow_from_them() {
    let dir = tempfile::tempdir().unwrap();
    let limited = "ulimit -Sn 64 && ulimit -Hn 256 && exec \"$0\" \"$@\"";
    let mut child = Command::new("sh")
        .args([
            "-c",
            limited,
            env!("CARGO_BIN_EXE_nuncio"),
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--data",
            "d",
        ])
        .current_dir(dir.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    let published = loop {
        assert!(Instant::now() < until, "the server did not start");
        match PublishedServer::read(&dir.path().join("d")) {
            Some(published) => break published,
            None => thread::sleep(Duration::from_millis(20)),
        }
    };
    let limits = fs::read_to_string(format!("/proc/{}/limits", published.pid)).unwrap();
    let files = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    assert_eq!(files.split_whitespace().nth(3), Some("256"), "{files}");

    // More than it may have: the rest is refused with words, and those that are in are served.
    let address = published.url.trim_start_matches("http://").to_owned();
    let ask = |stream: &mut TcpStream| -> String {
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let _ = stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let mut bytes = [0; 1024];
        let read = stream.read(&mut bytes).unwrap_or(0);
        String::from_utf8_lossy(&bytes[..read]).into_owned()
    };
    let mut answers = vec![];
    let mut streams = vec![];
    for _ in 0..220 {
        let mut stream = TcpStream::connect(&address).unwrap();
        answers.push(ask(&mut stream));
        streams.push(stream);
    }
    let served = answers.iter().filter(|answer| answer.starts_with("HTTP/1.1 200")).count();
    assert_eq!(served, 192, "three quarters of 256");
    assert!(answers[192..].iter().all(|answer| answer.contains("max_connections")), "{}", answers[200]);
    assert!(ask(&mut streams[0]).starts_with("HTTP/1.1 200"));
    child.kill().unwrap();
    child.wait().unwrap();
}
