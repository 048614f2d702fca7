//! TLS as users have it: a certificate made by the command, a server with it, and the commands and agents that call it.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use nuncio::data_dir::PublishedServer;
use nuncio_testkit::certificates::{PemPair, TestAuthority};
use serde_json::{Value, json};

use crate::{
    command::{Ran, nuncio_in, run, run_with_input},
    server_process::ServerProcess,
};

const PATIENCE: Duration = Duration::from_secs(60);
const RELOAD: &str = "20ms";

/// A folder for a server and its certificate.
struct Machine(tempfile::TempDir);

impl Machine {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, file: &str) -> PathBuf {
        self.0.path().join(file)
    }

    fn text(&self, file: &str) -> String {
        self.path(file).display().to_string()
    }

    fn write(&self, file: &str, text: &str) {
        fs::write(self.path(file), text).unwrap();
    }

    fn write_pair(&self, name: &str, pair: &PemPair) {
        self.write(&format!("{name}.pem"), &pair.certificate);
        self.write(&format!("{name}-key.pem"), &pair.key);
    }

    fn nuncio(&self, args: &[&str]) -> Ran {
        run(nuncio_in(self.0.path()).args(args))
    }

    /// Makes a pair with the command.
    fn make_pair(&self, flags: &[&str]) -> Ran {
        self.nuncio(&[&["cert", "self-signed"], flags].concat())
    }

    /// A server in the folder's own data folder, which commands in this folder find.
    fn serve(&self, flags: &[&str]) -> ServerProcess {
        self.try_serve(flags).unwrap_or_else(|log| panic!("the server did not start:\n{log}"))
    }

    fn try_serve(&self, flags: &[&str]) -> Result<ServerProcess, String> {
        let (certificate, key) = (self.text("cert.pem"), self.text("key.pem"));
        let tls = ["--tls-cert", &certificate, "--tls-key", &key, "--tls-reload-interval", RELOAD];
        ServerProcess::try_start(&self.path("nuncio-data"), &[&tls, flags].concat())
    }
}

/// The server's address under the name in its certificate.
fn by_name(server: &ServerProcess) -> String {
    server.url().replace("127.0.0.1", "localhost")
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_certificate_of_the_command_is_served_and_its_file_is_what_clients_trust() {
    let machine = Machine::new();
    let made = machine.make_pair(&[]).exits(0);
    assert_eq!(mode(&machine.path("key.pem")), 0o600);
    for word in ["tls-cert = ", "tls-key = ", "curl --cacert", "send --ca-cert"] {
        assert!(made.stdout.contains(word), "{}", made.stdout);
    }
    let server = machine.serve(&[]);
    assert!(server.url().starts_with("https://127.0.0.1:"), "{}", server.greeting());
    assert!(server.greeting().contains("Card:     https://"), "{}", server.greeting());

    let (at, ca) = (by_name(&server), machine.text("cert.pem"));
    let sent = machine.nuncio(&["send", "-a", &at, "--ca-cert", &ca, "hello"]).exits(0);
    assert!(sent.stdout.contains("hello"), "{}", sent.stdout);
    let from_environment =
        run(nuncio_in(machine.0.path()).env("NUNCIO_CA_CERT", &ca).args(["send", "-a", &at, "hi"]));
    from_environment.exits(0);
    // Elsewhere: in this folder the data folder vouches for the certificate.
    let elsewhere = tempfile::tempdir().unwrap();
    let refused = run(nuncio_in(elsewhere.path()).args(["send", "-a", &at, "hello"])).exits(3);
    assert!(refused.stderr.contains("--ca-cert"), "{}", refused.stderr);
    let wrong = machine.nuncio(&["send", "-a", &at, "--ca-cert", "none.pem", "hello"]).exits(2);
    assert!(wrong.stderr.contains("cannot read none.pem"), "{}", wrong.stderr);
    let half = machine.nuncio(&["send", "-a", &at, "--client-cert", &ca, "hello"]).exits(2);
    assert!(half.stderr.contains("needs its key"), "{}", half.stderr);
    run(nuncio_in(elsewhere.path()).args(["send", "-a", &at, "--insecure", "hello"])).exits(0);

    if let Ok(got) = Command::new("curl").args(["-sS", "--cacert", &ca, &format!("{at}/healthz")]).output() {
        assert!(got.status.success(), "{}", String::from_utf8_lossy(&got.stderr));
    }
}

#[test]
fn commands_on_this_machine_find_a_server_with_tls_whatever_name_its_certificate_bears() {
    let machine = Machine::new();
    machine.make_pair(&["--host", "elsewhere.example"]).exits(0);
    let server = machine.serve(&[]);
    let every_command_works = || {
        machine.nuncio(&["send", "hello"]).exits(0);
        machine.nuncio(&["send", "-a", server.url(), "hello"]).exits(0);
        machine.nuncio(&["memory", "set", "ns", "k", "v"]).exits(0);
        let got = machine.nuncio(&["memory", "get", "ns", "k"]).exits(0);
        assert!(got.stdout.contains('v'), "{}", got.stdout);
        machine.nuncio(&["token", "list"]).exits(0);
        machine.nuncio(&["agents"]).exits(0);
        let lines =
            run_with_input(nuncio_in(machine.0.path()).args(["chat"]), "echo hello from chat\n").exits(0);
        assert!(lines.stdout.contains("hello from chat"), "{}\n{}", lines.stdout, lines.stderr);
    };
    every_command_works();
    let relayed = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {
        "_meta": { "io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {} } } });
    let relay = run_with_input(nuncio_in(machine.0.path()).args(["mcp"]), &format!("{relayed}\n")).exits(0);
    assert!(relay.stdout.contains("\"tools\""), "{}\n{}", relay.stdout, relay.stderr);

    // With another certificate they go on, as soon as the server has it.
    let known = PublishedServer::read(server.data()).unwrap().certificate.expect("a certificate");
    machine.make_pair(&["--host", "elsewhere.example", "--force"]).exits(0);
    let until = Instant::now() + PATIENCE;
    while PublishedServer::read(server.data()).unwrap().certificate.as_ref() == Some(&known) {
        assert!(Instant::now() < until, "the new certificate is not published:\n{}", server.log());
        thread::sleep(Duration::from_millis(5));
    }
    every_command_works();
}

#[test]
fn a_command_without_a_server_needs_no_certificate() {
    let machine = Machine::new();
    machine.write(
        "nuncio.toml",
        "tls-cert = \"none.pem\"\ntls-key = \"none.pem\"\ntls-client-ca = \"none.pem\"\n",
    );
    machine.nuncio(&["memory", "set", "ns", "k", "v"]).exits(0);
}

#[test]
fn files_that_cannot_be_used_stop_the_start_and_say_what_to_do() {
    let machine = Machine::new();
    let starts = |flags: &[&str], words: &[&str]| {
        let Err(log) = machine.try_serve(flags) else { panic!("it started: {words:?}") };
        assert!(words.iter().all(|word| log.contains(word)), "{log}: {words:?}");
    };
    starts(&[], &["tls-cert", "cert.pem", "nuncio cert self-signed"]);
    machine.make_pair(&[]).exits(0);
    let key = machine.text("key.pem");
    starts(&["--tls-client-ca", &key], &["tls-client-ca", "key.pem", "holds no certificate"]);
    let ca = machine.text("cert.pem");
    starts(&["--tls-client-ca", &ca, "--auth", "off"], &["tls-client-ca", "auth"]);
    starts(&["--tls-client-ca", &ca, "--tls-client-scopes", "fly:a2a"], &["--tls-client-scopes", "fly"]);
    starts(&["--tls-client-ca", &ca, "--tls-client-tenant", "a/b"], &["tls-client-tenant"]);
    for (flag, missing) in
        [("--tls-cert", "tls-key"), ("--tls-key", "tls-cert"), ("--tls-client-ca", "tls-cert")]
    {
        let half = machine.nuncio(&["serve", flag, &ca]);
        assert_ne!(half.code, 0);
        assert!(half.stderr.contains(&format!("needs {missing} as well")), "{}", half.stderr);
    }
    // A key that others can read is served, with a warning.
    fs::set_permissions(machine.path("key.pem"), Permissions::from_mode(0o644)).unwrap();
    machine.serve(&[]).logs("chmod 600");
}

#[test]
fn a_pair_is_not_replaced_unless_that_is_meant() {
    let machine = Machine::new();
    machine.make_pair(&["--out", "tls", "--days", "2", "--host", "a.example", "--host", "10.0.0.1"]).exits(0);
    let first = fs::read(machine.path("tls/cert.pem")).unwrap();
    let again = machine.make_pair(&["--out", "tls"]).exits(2);
    assert!(again.stderr.contains("--force"), "{}", again.stderr);
    assert_eq!(fs::read(machine.path("tls/cert.pem")).unwrap(), first);
    machine.make_pair(&["--out", "tls", "--force"]).exits(0);
    assert_ne!(fs::read(machine.path("tls/cert.pem")).unwrap(), first);
    assert_eq!(mode(&machine.path("tls/key.pem")), 0o600);
    machine.make_pair(&["--days", "0"]).exits(2);
    machine.make_pair(&["--host", "no name"]).exits(2);
    assert!(!machine.path("key.pem").exists());
}

/// A server that takes the certificates of `clients`, and the files of one of them.
fn mutual(machine: &Machine, scopes: &str) -> ServerProcess {
    machine.make_pair(&[]).exits(0);
    let clients = TestAuthority::new("clients");
    machine.write("clients.pem", &clients.pem());
    machine.write_pair("worker", &clients.issue(&["worker.example"]));
    machine.write_pair("stranger", &TestAuthority::new("clients").issue(&["worker.example"]));
    let ca = machine.text("clients.pem");
    machine.serve(&["--tls-client-ca", &ca, "--tls-client-scopes", scopes])
}

#[test]
fn a_client_certificate_is_a_caller_of_its_own() {
    let machine = Machine::new();
    let server = mutual(&machine, "execute:a2a");
    // The data folder of the server is elsewhere for the client: its secret is not at hand.
    let elsewhere = tempfile::tempdir().unwrap();
    let (at, ca) = (server.url().to_owned(), machine.text("cert.pem"));
    let call = |flags: &[&str], args: &[&str]| {
        let common = ["-a", &at, "--ca-cert", &ca, "-o", "json"];
        run(nuncio_in(elsewhere.path()).args(args).args(common).args(flags))
    };
    let (certificate, key) = (machine.text("worker.pem"), machine.text("worker-key.pem"));
    let worker = ["--client-cert", &*certificate, "--client-key", &key];
    let (other, other_key) = (machine.text("stranger.pem"), machine.text("stranger-key.pem"));
    let stranger = ["--client-cert", &*other, "--client-key", &other_key];

    let sent = call(&worker, &["send", "hello"]).exits(0);
    let sent: Value = serde_json::from_str(&sent.stdout).unwrap();
    let task = sent["task"]["id"].as_str().unwrap_or_else(|| panic!("{sent}"));
    let seen = machine.nuncio(&["task", "list", "--tenant", "cert", "-o", "json"]).exits(0);
    assert!(seen.stdout.contains("\"cert/cert:dns:worker.example\""), "{}", seen.stdout);

    call(&worker, &["task", "get", task]).exits(0);
    assert_ne!(call(&[], &["send", "hello"]).code, 0, "without a certificate");
    assert_ne!(call(&stranger, &["send", "hello"]).code, 0, "of another authority");
    // A file that was only found names an agent: it does not get the user's certificate.
    fs::write(elsewhere.path().join(".env"), format!("A2ACLI_AGENT_CARD={at}\n")).unwrap();
    let found =
        run(nuncio_in(elsewhere.path()).args(["send", "hello", "--ca-cert", &ca]).args(worker)).exits(2);
    assert!(found.stderr.contains("NUNCIO_CLIENT_CERT"), "{}", found.stderr);
    fs::remove_file(elsewhere.path().join(".env")).unwrap();
    // The card names another origin than the command: the certificate is a credential, and does not go there by itself.
    let named = run(nuncio_in(elsewhere.path())
        .args(["send", "-a", &by_name(&server), "--ca-cert", &ca, "hello"])
        .args(worker));
    assert!(named.exits(2).stderr.contains("--credentials-for"));
    // A token of the same name, in the same tenant, is another caller.
    let made = machine
        .nuncio(&["token", "create", "--name", "worker.example", "--tenant", "cert", "-o", "json"])
        .exits(0);
    let made: Value = serde_json::from_str(&made.stdout).unwrap();
    let bearer = ["--bearer", made["token"].as_str().unwrap_or_else(|| panic!("{made}"))];
    call(&bearer, &["send", "hello"]).exits(0);
    assert_ne!(call(&bearer, &["task", "get", task]).code, 0, "the task of the certificate");
    assert_ne!(call(&[&worker[..], &bearer].concat(), &["task", "get", task]).code, 0, "the token decides");
}

#[test]
fn a_client_certificate_allows_nothing_until_the_operator_says_what() {
    let machine = Machine::new();
    let server = mutual(&machine, "");
    server.logs("tls-client-scopes");
    let (at, ca) = (server.url().to_owned(), machine.text("cert.pem"));
    let (certificate, key) = (machine.text("worker.pem"), machine.text("worker-key.pem"));
    let elsewhere = tempfile::tempdir().unwrap();
    let flags = ["-a", &at, "--ca-cert", &ca, "--client-cert", &certificate, "--client-key", &key];
    let refused = run(nuncio_in(elsewhere.path()).args(["send", "hello"]).args(flags));
    assert_ne!(refused.code, 0);
    assert!(refused.stderr.contains("execute:a2a") || refused.stderr.contains("403"), "{}", refused.stderr);
}

#[test]
fn agents_elsewhere_are_reached_with_a_ca_and_a_certificate_of_their_table() {
    let there = Machine::new();
    let server = mutual(&there, "execute:a2a read:a2a");
    let at = server.url();
    let here = Machine::new();
    for file in ["cert.pem", "worker.pem", "worker-key.pem"] {
        fs::copy(there.path(file), here.path(file)).unwrap();
    }
    // Relative to the file that names them.
    let files = "ca-cert = \"cert.pem\"\nclient-cert = \"worker.pem\"\nclient-key = \"worker-key.pem\"\n";
    let table = |name: &str, kind: &str, path: &str, files: &str| {
        format!(
            "[[agent]]\nname = \"{name}\"\nkind = \"{kind}\"\nurl = \"{at}{path}\"\npatience = \"1s\"\n{files}\n"
        )
    };
    let tables = [
        table("agent", "a2a", "/agents/echo", files),
        table("tools", "mcp", "/mcp", &format!("tools = [\"echo\"]\n{files}")),
        table("unknown", "a2a", "/agents/echo", ""),
        table("nobody", "a2a", "/agents/echo", "ca-cert = \"cert.pem\"\n"),
    ];
    here.write("nuncio.toml", &tables.concat());
    let own = ServerProcess::start(&here.path("nuncio-data"), &[]);
    for (agent, works) in [("agent", true), ("tools", true), ("unknown", false), ("nobody", false)] {
        let sent = here.nuncio(&["send", "--agent", agent, "hello", "-o", "json"]);
        assert_eq!(
            sent.stdout.contains("TASK_STATE_COMPLETED"),
            works,
            "{agent}: {}\n{}",
            sent.stdout,
            own.log()
        );
    }
    here.write("nuncio.toml", &table("agent", "a2a", "", "ca-cert = \"none.pem\"\n"));
    let wrong = here.nuncio(&["serve", "--listen", "127.0.0.1:0", "--data", "other"]);
    assert_ne!(wrong.code, 0);
    assert!(wrong.stderr.contains("ca-cert") && wrong.stderr.contains("none.pem"), "{}", wrong.stderr);
}
