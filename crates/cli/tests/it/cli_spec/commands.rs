//! The commands of the higher tiers against real servers and fake agents.

use std::{fs, path::Path};

use serde_json::{Value, json};

use super::nuncio;
use crate::{
    command::{Live, nuncio_in, run, run_with_input},
    fake_agent::{FakeAgent, Reply, task},
    server_process::ServerProcess,
};

/// `A2ACLI_OUT_004`, the first row that differs: the request was never made, so the protocol has no name for it.
#[test]
fn no_common_binding_is_the_clients_own_error() {
    let interface = json!({ "url": "x:1", "protocolBinding": "PIGEON", "protocolVersion": "1.0" });
    let agent = FakeAgent::start(json!({ "supportedInterfaces": [interface] }), |_| Reply::Status(500));
    let error = &nuncio(&["send", "x", "-a", &agent.url, "-o", "json"]).exits(1).json()["error"];
    assert_eq!(error["code"], "A2ACLI_ERR_INTERNAL", "{error}");
    assert!(error["message"].as_str().unwrap().contains("the agent offers PIGEON"), "{error}");
}

/// `A2ACLI_CLI_002`
#[test]
fn every_shell_gets_a_completion_script() {
    for (shell, word) in [
        ("bash", "complete -F"),
        ("zsh", "#compdef nuncio"),
        ("fish", "complete -c nuncio"),
        ("powershell", "Register-ArgumentCompleter"),
    ] {
        let script = nuncio(&["completion", shell]).exits(0).stdout;
        assert!(script.contains(word) && script.contains("push-config"), "{shell}: {}", &script[..200]);
    }
    nuncio(&["completion", "tcsh"]).exits(2);
    // Bash takes it, and completes a subcommand.
    let script = nuncio(&["completion", "bash"]).exits(0).stdout;
    let asked =
        "COMP_WORDS=(nuncio task can); COMP_CWORD=2; _nuncio nuncio can task; echo \"${COMPREPLY[@]}\"";
    let ran =
        run_with_input(&mut std::process::Command::new("bash"), &format!("{script}\n{asked}\n")).exits(0);
    assert_eq!(ran.stdout.trim(), "cancel", "{}", ran.stderr);
}

/// The man pages are those of the commands.
#[test]
fn every_command_gets_a_man_page() {
    let dir = tempfile::tempdir().unwrap();
    run(nuncio_in(dir.path()).args(["man", "pages"])).exits(0);
    for page in ["nuncio.1", "nuncio-send.1", "nuncio-task-push-config-set.1"] {
        let text = fs::read_to_string(dir.path().join("pages").join(page)).unwrap();
        assert!(text.contains(".SH NAME"), "{page}");
    }
}

/// `A2ACLI_CARD_GET_002`
#[test]
fn a_card_with_a_member_of_another_type_is_not_valid() {
    let card = json!({ "capabilities": { "streaming": "yes" }, "skills": [{ "id": "s", "name": "s", "description": "d", "tags": "x" }] });
    let agent = FakeAgent::start(card, |_| Reply::Status(500));
    let error =
        &nuncio(&["card", "get", "--validate", "-a", &agent.url, "-o", "json"]).exits(1).json()["error"];
    assert_eq!(error["code"], "A2ACLI_ERR_CARD_INVALID");
    let message = error["message"].as_str().unwrap();
    for problem in
        ["capabilities.streaming: expected true or false", "skills[0].tags: expected a list of strings"]
    {
        assert!(message.contains(problem), "{message}");
    }
    let fine = FakeAgent::start(json!({}), |_| Reply::Status(500));
    nuncio(&["card", "get", "--validate", "-a", &fine.url]).exits(0);
}

/// `A2ACLI_CARD_GET_003`: the extended card, by a scheme that the public card declares.
#[test]
fn the_extended_card_is_fetched_with_a_credential_that_the_card_asks_for() {
    let extended = json!({ "name": "more", "description": "d", "version": "2", "skills": [], "defaultInputModes": [],
        "defaultOutputModes": [], "capabilities": {}, "supportedInterfaces": [] });
    let card =
        |schemes: Value| json!({ "capabilities": { "extendedAgentCard": true }, "securitySchemes": schemes });
    let bearer = json!({ "b": { "httpAuthSecurityScheme": { "scheme": "Bearer" } } });
    let answer = extended.clone();
    let agent = FakeAgent::start(card(bearer), move |asked| match &*asked.method {
        "GetExtendedAgentCard" => Reply::Result(answer.clone()),
        other => panic!("{other}"),
    });
    let args = ["card", "get", "--extended", "-o", "json", "-a", &agent.url];
    assert_eq!(nuncio(&[&args[..], &["--bearer", "t"]].concat()).exits(0).json(), extended);
    assert_eq!(agent.asked()[0].header("authorization"), Some("Bearer t"));

    let key = json!({ "k": { "apiKeySecurityScheme": { "location": "header", "name": "X-Key" } } });
    let other = FakeAgent::start(card(key), |_| panic!("nothing is sent"));
    let args = ["card", "get", "--extended", "--bearer", "t", "-o", "json", "-a", &other.url];
    let error = &nuncio(&args).exits(1).json()["error"];
    assert!(error["message"].as_str().unwrap().contains("no scheme that takes a bearer token"), "{error}");
    let none = FakeAgent::start(json!({}), |_| panic!("nothing is sent"));
    let error =
        &nuncio(&["card", "get", "--extended", "-o", "json", "-a", &none.url]).exits(1).json()["error"];
    assert_eq!(error["code"], "UnsupportedOperationError", "{error}");
}

/// `A2ACLI_PUSH_001`, against a real server.
#[test]
fn push_configurations_are_set_read_listed_and_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let server =
        ServerProcess::start(&dir.path().join("data"), &["--bench-agent", "--allow-private-webhooks"]);
    let nuncio = |args: &[&str]| run(nuncio_in(dir.path()).args(args).args(["-a", server.url()]));
    let sent = nuncio(&["send", "wait", "--async", "-o", "json"]).exits(0).json();
    let task = sent["task"]["id"].as_str().unwrap();
    let hook = "http://127.0.0.1:9/hook";
    let push = ["task", "push-config"];
    let set = ["set", task, "--url", hook, "--id", "one", "--token", "s3cret", "-o", "json"];
    let set = nuncio(&[&push[..], &set].concat()).exits(0).json();
    assert_eq!(
        (&set["id"], &set["url"], &set["taskId"]),
        (&json!("one"), &json!(hook), &json!(task)),
        "{set}"
    );
    let set = ["create", task, "--url", hook, "--auth-scheme", "Bearer", "--auth-credentials", "s3cret"];
    let second = nuncio(&[&push[..], &set].concat()).exits(0);
    assert_eq!((second.field("URL"), second.field("Authentication")), (hook, "Bearer"));
    let got = nuncio(&[&push[..], &["get", task, "one", "-o", "json"]].concat()).exits(0);
    assert_eq!(got.json()["url"], hook);
    let listed = nuncio(&[&push[..], &["list", task, "-o", "json"]].concat()).exits(0).json();
    assert_eq!(listed["configs"].as_array().unwrap().len(), 2, "{listed}");
    let text = nuncio(&[&push[..], &["list", task]].concat()).exits(0);
    assert_eq!(text.field("Total"), "2");
    for shown in [&second.stdout, &got.stdout, &text.stdout] {
        assert!(!shown.contains("s3cret"), "{shown}");
    }
    let deleted = nuncio(&[&push[..], &["delete", task, "one"]].concat()).exits(0);
    assert_eq!(deleted.field("Deleted"), "one");
    assert_eq!(nuncio(&[&push[..], &["list", task]].concat()).exits(0).field("Total"), "1");
    let gone = nuncio(&[&push[..], &["get", task, "one", "-o", "json"]].concat()).exits(1).json();
    assert!(gone["error"]["a2aCode"].is_number(), "{gone}");
}

/// `A2ACLI_VER_003` for push notifications.
#[test]
fn an_agent_without_push_notifications_is_not_asked_for_them() {
    let agent = FakeAgent::start(json!({}), |_| panic!("nothing is sent"));
    let args =
        ["task", "push-config", "set", "t1", "--url", "http://127.0.0.1:9/", "-o", "json", "-a", &agent.url];
    let error = &nuncio(&args).exits(1).json()["error"];
    assert!(error["message"].as_str().unwrap().contains("declares no push notifications"), "{error}");
}

/// `A2ACLI_DOWNLOAD_001`; the names are the agent's, and stay in the folder.
#[test]
fn artifacts_are_saved_where_the_user_says_and_nowhere_else() {
    let mut done = task("COMPLETED");
    done["artifacts"] = json!([
        { "artifactId": "a", "name": "report", "parts": [{ "text": "Hello" }, { "data": { "x": 1 } }] },
        { "artifactId": "b", "parts": [
            { "raw": "AAEC", "filename": "../../.bashrc", "mediaType": "x/y" },
            { "raw": "AAEC", "filename": "bashrc" },
            { "url": "https://files.example/big.iso" },
        ] },
    ]);
    let agent = FakeAgent::start(json!({}), move |_| Reply::Result(done.clone()));
    let dir = tempfile::tempdir().unwrap();
    let nuncio = |args: &[&str]| run(nuncio_in(dir.path()).args(args).args(["-a", &agent.url]));
    let download = ["task", "download", "t1", "-d", "out/deep"];
    let ran = nuncio(&download).exits(0);
    assert_eq!([ran.field("Task"), ran.field("Context"), ran.field("State")], ["t1", "c1", "completed"]);
    assert_eq!(ran.field("Files"), "4");
    assert!(ran.field("Not fetched").starts_with("https://files.example/big.iso"), "{}", ran.stdout);
    let read = |name: &str| fs::read(dir.path().join("out/deep").join(name)).unwrap();
    assert_eq!(read("report.txt"), b"Hello");
    assert_eq!(serde_json::from_slice::<Value>(&read("report-2.json")).unwrap(), json!({ "x": 1 }));
    assert_eq!((read("bashrc"), read("bashrc-2")), (vec![0, 1, 2], vec![0, 1, 2]));
    assert!(!Path::new(&dir.path().join(".bashrc")).exists());

    // What is there stays, unless the user says otherwise; a link is replaced, not followed.
    let refused = nuncio(&download).exits(2);
    assert!(refused.stderr.contains("exists: --force replaces it"), "{}", refused.stderr);
    let (precious, link) = (dir.path().join("precious"), dir.path().join("out/deep/report.txt"));
    fs::write(&precious, "mine").unwrap();
    fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink(&precious, &link).unwrap();
    let json =
        nuncio(&[&download[..], &["--force", "--artifact", "a", "-o", "json"]].concat()).exits(0).json();
    assert_eq!(json["files"].as_array().unwrap().len(), 2, "{json}");
    assert_eq!((fs::read(&precious).unwrap(), read("report.txt")), (b"mine".to_vec(), b"Hello".to_vec()));
    let missing = nuncio(&[&download[..], &["--artifact", "z"]].concat()).exits(2);
    assert!(missing.stderr.contains("the task has no artifact \"z\"; it has a, b"), "{}", missing.stderr);

    // The same beside a task that is printed.
    let shown = nuncio(&["task", "get", "t1", "--save", "shown"]).exits(0);
    assert_eq!(
        shown.stdout.lines().filter(|line| line.starts_with("Saved: ")).count(),
        4,
        "{}",
        shown.stdout
    );
    assert!(shown.field("Not fetched").starts_with("https://files.example/big.iso"), "{}", shown.stdout);
    let mut names: Vec<_> =
        fs::read_dir(dir.path().join("shown")).unwrap().map(|file| file.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["bashrc", "bashrc-2", "report-2.json", "report.txt"]);
    let refused = nuncio(&["task", "get", "t1", "--save", "shown"]).exits(2);
    assert!(refused.stderr.contains("exists: --force replaces it"), "{}", refused.stderr);
    let json = nuncio(&["task", "get", "t1", "--save", "shown", "--force", "-o", "json"]).exits(0);
    assert_eq!((json.json()["id"].as_str(), json.stderr.matches("Saved: ").count()), (Some("t1"), 4));
    nuncio(&["task", "get", "t1", "--force"]).exits(2);
}

/// `A2ACLI_CONFORM_001`: this server passes, and an agent that gets it wrong does not.
#[test]
fn a_live_agent_is_checked_and_a_wrong_one_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(&dir.path().join("data"), &[]);
    let passed = nuncio(&["conformance", "-a", server.url(), "-o", "json"]).exits(0).json();
    assert_eq!(passed["failed"], 0, "{passed}");
    assert!(passed["passed"].as_u64().unwrap() >= 8, "{passed}");

    let agent = FakeAgent::start(json!({ "version": 5 }), |asked| match &*asked.method {
        "SendMessage" => Reply::Result(json!({ "task": task("COMPLETED") })),
        "GetTask" => Reply::Result(task("COMPLETED")),
        "ListTasks" => Reply::Result(json!({ "tasks": [] })),
        "SendStreamingMessage" => {
            Reply::Stream(vec![(1, super::status("WORKING")), (2, super::status("COMPLETED"))])
        }
        _ => Reply::Error(-32603, "broken"),
    });
    let failed = nuncio(&["conformance", "-a", &agent.url]).exits(1);
    for found in [
        "Failed: the card is valid (section 4.4): version: expected a string",
        "Failed: the task is listed",
        "Failed: reading an unknown task is a TaskNotFoundError (section 3.1.3): it succeeded",
        "Failed: canceling an unknown task is a TaskNotFoundError (section 3.1.5): expected the code -32001, received -32603",
        "Failed: a stream begins with the task or the message, and ends (section 3.1.2): the first event is neither",
        "Passed: a message is answered with a task or a message",
    ] {
        assert!(failed.stdout.contains(found), "{found}:\n{}", failed.stdout);
    }
}

/// `A2ACLI_DEMO_SERVER_001`
#[test]
fn a_demo_server_answers_and_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = nuncio_in(dir.path());
    command.args(["demo-server", "--listen", "127.0.0.1:0"]).env("TMPDIR", dir.path());
    let mut demo = Live::start(&mut command);
    let mut lines = std::iter::from_fn(|| demo.line());
    let url =
        lines.find_map(|line| line.strip_prefix("Endpoint: ").map(|url| url.trim().to_owned())).unwrap();
    let sent = nuncio(&["send", "hi", "-a", &url]).exits(0);
    assert_eq!(sent.field("State"), "completed");
    let asked =
        nuncio(&["send", "Rome", "-a", url.trim_end_matches('/'), "--agent", "travel_agent"]).exits(0);
    assert_eq!(asked.field("State"), "input-required");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "its folder, while it runs");
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&demo.child),
        rustix::process::Signal::TERM,
    )
    .unwrap();
    demo.finish().exits(0);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    assert!(nuncio(&["demo-server", "--listen", "0.0.0.0:0"]).exits(2).stderr.contains("loopback"));
}

/// `A2ACLI_CONFORM_001`: the kit itself, where it has been set up.
#[test]
fn the_compatibility_kit_is_run_for_the_agent_and_its_result_counts() {
    let dir = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(&dir.path().join("data"), &[]);
    let kit = dir.path().join("kit");
    fs::create_dir(&kit).unwrap();
    let told = |code: u8| {
        let script = format!(
            "import sys; open('asked', 'w').write(' '.join(sys.argv[1:])); print('kit'); sys.exit({code})"
        );
        fs::write(kit.join("run_tck.py"), script).unwrap();
    };
    let folder = kit.to_str().unwrap();
    let args = ["conformance", "-a", server.url(), "--transport", "HTTP+JSON", "--kit", folder, "-o", "json"];
    told(0);
    let passed = nuncio(&args).exits(0);
    assert_eq!(passed.json()["failed"], 0);
    assert!(passed.stderr.contains("kit"), "its output is a diagnostic: {}", passed.stderr);
    let asked = fs::read_to_string(kit.join("asked")).unwrap();
    assert_eq!(asked, format!("--sut-host {} --transport http_json --level must", server.url()));
    told(1);
    let failed = nuncio(&args).exits(1).json();
    assert_eq!(failed["failed"], 1, "{failed}");
    fs::remove_file(kit.join("run_tck.py")).unwrap();
    assert!(nuncio(&args).exits(2).json()["error"]["message"].as_str().unwrap().contains("no run_tck.py"));
}

/// `A2ACLI_CARD_GET_005`: an entry of a catalog, at a URL or in a file, wherever a reference is taken.
#[test]
fn an_entry_of_a_catalog_is_resolved_to_its_card() {
    let agent = FakeAgent::start(json!({}), |_| Reply::Result(json!({ "task": task("COMPLETED") })));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("catalog.json");
    let card = format!("{}/.well-known/agent-card.json", agent.url);
    let entries = json!({ "entries": [{ "identifier": "urn:fake", "displayName": "Fake", "url": card }] });
    fs::write(&file, entries.to_string()).unwrap();
    let entry = |name: &str| format!("{}#{name}", file.display());
    assert_eq!(nuncio(&["card", "get", "-a", &entry("urn:fake")]).exits(0).field("Name"), "fake");
    assert_eq!(nuncio(&["send", "x", "-a", &entry("Fake")]).exits(0).field("State"), "completed");
    let absent = nuncio(&["send", "x", "-a", &entry("absent"), "-o", "json"]).exits(3).json();
    assert_eq!(absent["error"]["code"], "A2ACLI_ERR_CARD_NOT_FOUND");
    assert!(absent["error"]["message"].as_str().unwrap().contains("there is urn:fake"), "{absent}");
    // The list of a server of ours is a catalog, too.
    let server = ServerProcess::start(&dir.path().join("data"), &[]);
    let travel = format!("{}#travel_agent", server.url());
    assert_eq!(nuncio(&["card", "get", "-a", &travel]).exits(0).field("Name"), "travel_agent");
    // A catalog is not asked where credentials go.
    let sent = agent.asked().len();
    let stolen = nuncio(&["send", "x", "-a", &entry("Fake"), "--bearer", "secret"]).exits(2);
    assert!(stolen.stderr.contains("--credentials-for"), "{}", stolen.stderr);
    assert_eq!(agent.asked().len(), sent, "and nothing was sent");
}
