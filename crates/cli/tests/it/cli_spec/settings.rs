//! The client's settings: their order, their sources, and what a found file cannot do.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, process::Command};

use serde_json::{Value, json};

use crate::{
    command::{Ran, nuncio_in, run},
    fake_agent::{FakeAgent, Reply, task},
};

/// A working folder below a home folder.
struct Folders {
    dir: tempfile::TempDir,
}

impl Folders {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("project/deep")).unwrap();
        fs::create_dir_all(dir.path().join("home/.config/a2a-cli")).unwrap();
        Self { dir }
    }

    fn write(&self, path: &str, text: &str, mode: u32) {
        let path = self.dir.path().join(path);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn path(&self, path: &str) -> String {
        fs::canonicalize(self.dir.path().join(path)).unwrap().to_str().unwrap().to_owned()
    }

    /// A command in the folder below the one with the local file.
    fn command(&self, args: &[&str]) -> Command {
        let mut command = nuncio_in(&self.dir.path().join("project/deep"));
        command.env("HOME", self.dir.path().join("home")).env_remove("XDG_CONFIG_HOME");
        command.env_remove("XDG_STATE_HOME").env_remove("XDG_CACHE_HOME").args(args);
        command
    }

    fn run(&self, args: &[&str]) -> Ran {
        run(&mut self.command(args))
    }
}

const LOCAL: &str = "project/.env";
const USER: &str = "home/.config/a2a-cli/.env";

fn setting<'a>(shown: &'a Value, name: &str) -> &'a Value {
    let settings = shown["settings"].as_array().unwrap();
    settings.iter().find(|setting| setting["name"] == name).unwrap_or_else(|| panic!("no {name}: {shown}"))
}

/// `A2ACLI_CONFIG_001`, `A2ACLI_CONFIG_002`
#[test]
fn every_value_is_shown_with_its_source_and_the_nearest_source_wins() {
    let folders = Folders::new();
    folders.write(
        USER,
        "A2ACLI_TIMEOUT=1s\nA2ACLI_POLL_INTERVAL=1s\nA2ACLI_HISTORY=1\nA2ACLI_VERBOSE=true\n",
        0o600,
    );
    folders.write(LOCAL, "OTHER=x\nA2ACLI_TIMEOUT=2s\nA2ACLI_POLL_INTERVAL=2s\nA2ACLI_HISTORY=2\n", 0o600);
    let mut command = folders.command(&["config", "show", "-o", "json", "--timeout", "4s"]);
    command.env("A2ACLI_TIMEOUT", "3s").env("A2ACLI_POLL_INTERVAL", "3s").env("A2ACLI_BEARER", "s3cret");
    let ran = run(&mut command).exits(0);
    assert!(!ran.stdout.contains("s3cret") && !ran.stderr.contains("s3cret"), "{}", ran.stdout);
    let shown = ran.json();
    let check = |name: &str, value: &str, source: &str, file: Option<&str>| {
        let got = setting(&shown, name);
        assert_eq!((&got["value"], &got["source"]), (&json!(value), &json!(source)), "{got}");
        assert_eq!(got["file"].as_str(), file.map(|file| folders.path(file)).as_deref(), "{got}");
    };
    check("timeout", "4s", "flag", None);
    check("poll-interval", "3s", "environment", None);
    check("history", "2", "file", Some(LOCAL));
    check("verbose", "true", "file", Some(USER));
    check("output", "json", "flag", None);
    check("a2a-version", "1.0", "default", None);
    check("bearer", "(hidden)", "environment", None);
    assert!(setting(&shown, "api-key")["value"].is_null(), "{shown}");

    let text = folders.run(&["config", "show"]).exits(0);
    assert_eq!(text.field("history"), format!("2 (file {})", folders.path(LOCAL)));
    assert_eq!(text.field("timeout"), format!("2s (file {})", folders.path(LOCAL)));
    assert_eq!(text.field("insecure"), "false (default)");
    // What the program itself stores can be looked at, and removed.
    assert!(text.field("chat-state").ends_with("home/.local/state/nuncio/chat"), "{}", text.stdout);
    assert!(text.field("tokens").ends_with("home/.local/state/nuncio/tokens"), "{}", text.stdout);
    assert!(text.field("cards").ends_with("home/.cache/nuncio/cards"), "{}", text.stdout);
}

/// `A2ACLI_CONFIG_002`: a named file takes the place of the local one.
#[test]
fn a_named_file_is_read_in_place_of_the_local_one() {
    let folders = Folders::new();
    folders.write(LOCAL, "A2ACLI_HISTORY=1\nA2ACLI_TIMEOUT=1s\n", 0o600);
    folders.write("agent.env", "A2ACLI_HISTORY=7\nA2ACLI_INSECURE=true\n", 0o600);
    let named = folders.path("agent.env");
    let shown = folders.run(&["config", "show", "-o", "json", "--config", &named]).exits(0).json();
    assert_eq!(setting(&shown, "history")["value"], "7");
    assert_eq!(setting(&shown, "timeout")["source"], "default");
    assert_eq!(setting(&shown, "insecure")["value"], "true", "a named file may");
    let missing = folders.run(&["config", "show", "-o", "json", "--config=none.env"]).exits(2).json();
    assert_eq!(missing["error"]["code"], "A2ACLI_ERR_USAGE");
}

/// The author of a repository puts a file into it, and hopes for the tokens of those who work there.
#[test]
fn a_found_file_gets_no_credentials_that_it_does_not_bring() {
    let agent = FakeAgent::start(json!({}), |_| Reply::Result(json!({ "task": task("COMPLETED") })));
    let folders = Folders::new();
    folders.write(LOCAL, &format!("A2ACLI_AGENT_CARD={}\n", agent.url), 0o600);
    for (name, value) in [("A2ACLI_BEARER", "s3cret"), ("A2ACLI_API_KEY", "s3cret")] {
        let refused = run(folders.command(&["send", "x"]).env(name, value)).exits(2);
        assert!(refused.stderr.contains(&format!("{name} is not its own")), "{}", refused.stderr);
    }
    let refused = folders.run(&["send", "x", "--svc-param", "authorization: s3cret"]).exits(2);
    assert!(refused.stderr.contains("--svc-param is not its own"), "{}", refused.stderr);
    assert!(agent.asked().is_empty(), "{:?}", agent.asked());

    // Without credentials it is used, and said.
    let ran = folders.run(&["send", "x"]).exits(0);
    let said = format!("the agent is {}, as {} says", agent.url, folders.path(LOCAL));
    assert!(ran.stderr.contains(&said), "{}", ran.stderr);
    // Its own are sent; and a user who names the agent sends what they want.
    folders.write(LOCAL, &format!("A2ACLI_AGENT_CARD={}\nA2ACLI_BEARER=its-own\n", agent.url), 0o600);
    folders.run(&["send", "x"]).exits(0);
    run(folders.command(&["send", "x", "-a", &agent.url]).env("A2ACLI_BEARER", "mine")).exits(0);
    let sent: Vec<_> =
        agent.asked().iter().map(|asked| asked.header("authorization").map(str::to_owned)).collect();
    assert_eq!(sent, [None, Some("Bearer its-own".to_owned()), Some("Bearer mine".to_owned())]);
}

/// And the other way round: nobody works in the name of the file's author without knowing.
#[test]
fn the_credentials_of_a_found_file_go_to_no_other_agent() {
    let agent = FakeAgent::start(json!({}), |_| Reply::Result(json!({ "task": task("COMPLETED") })));
    let folders = Folders::new();
    folders.write(LOCAL, "A2ACLI_BEARER=its-own\nA2ACLI_INSECURE=true\n", 0o600);
    let refused = folders.run(&["send", "x", "-a", &agent.url]).exits(2);
    assert!(
        refused.stderr.contains("is not sent to an agent that the file does not name"),
        "{}",
        refused.stderr
    );
    assert!(refused.stderr.contains("A2ACLI_INSECURE is not used"), "{}", refused.stderr);
    assert!(!refused.stderr.contains("--insecure accepts"), "{}", refused.stderr);
    assert!(agent.asked().is_empty());
}

/// `A2ACLI_CONFIG_001`: secrets are not read from a file that others can read, nor anything from one that others write.
#[test]
fn a_secret_in_a_file_that_others_can_read_is_not_used() {
    let folders = Folders::new();
    folders.write(USER, "A2ACLI_BEARER=s3cret\nA2ACLI_HISTORY=3\n", 0o644);
    let shown = folders.run(&["config", "show", "-o", "json"]).exits(0).json();
    assert!(setting(&shown, "bearer")["value"].is_null(), "{shown}");
    assert_eq!(setting(&shown, "history")["value"], "3");
    assert!(shown["notes"][0].as_str().unwrap().contains("chmod 600"), "{shown}");
    folders.write(LOCAL, "A2ACLI_HISTORY=9\n", 0o666);
    let shown = folders.run(&["config", "show", "-o", "json"]).exits(0).json();
    assert_eq!(setting(&shown, "history")["value"], "3", "others can write the local file: {shown}");
}

/// `A2ACLI_INTERACT_005`: a file configures, it holds no task and no conversation.
#[test]
fn a_file_holds_no_task_and_no_conversation() {
    let agent = FakeAgent::start(json!({}), |_| Reply::Result(json!({ "task": task("COMPLETED") })));
    let folders = Folders::new();
    folders.write(USER, "A2ACLI_TASK_ID=t0\nA2ACLI_CONTEXT_ID=c0\n", 0o600);
    let ran = folders.run(&["send", "x", "-a", &agent.url]).exits(0);
    assert!(ran.stderr.contains("A2ACLI_TASK_ID is no setting of a file"), "{}", ran.stderr);
    let message = &agent.asked()[0].params["message"];
    assert!(message.get("taskId").is_none() && message.get("contextId").is_none(), "{message}");
    assert!(folders.run(&["task", "get", "-a", &agent.url]).exits(2).stderr.contains("<TASK>"));
    // And the commands leave nothing behind.
    let state = folders.dir.path().join("home/.local");
    assert!(!Path::new(&state).exists(), "{}", state.display());
}
