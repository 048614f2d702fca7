//! Which server a command means, and what a command that only reads leaves alone.

use std::path::Path;

use crate::{
    command::{Ran, nuncio_in, run},
    server_process::ServerProcess,
};

fn nuncio(dir: &Path, args: &[&str]) -> Ran {
    run(nuncio_in(dir).args(args))
}

fn is_empty(dir: &Path) -> bool {
    std::fs::read_dir(dir).unwrap().next().is_none()
}

#[test]
fn a_command_that_only_reads_creates_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let plan = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(plan.path(), "[[tasks]]\nid = \"a\"\nagent = \"echo\"\ninput = \"x\"\n").unwrap();
    let plan = plan.path().to_str().unwrap();
    for (args, code) in [
        (&["plan", "list"][..], 0),
        (&["plan", "check", plan], 0),
        (&["plan", "show", plan], 0),
        (&["plan", "cancel", "01a1f090-0000-7000-8000-000000000000"], 1),
        (&["memory", "list"], 0),
        (&["memory", "get", "notes", "today"], 1),
        (&["memory", "delete", "notes", "today"], 0),
        (&["sparc", "list"], 0),
        (&["sparc", "template", "specification"], 0),
        (&["batch", "list"], 0),
        (&["batch", "config"], 0),
        (&["batch", "metrics"], 0),
        (&["agents", "list"], 0),
        (&["token", "list"], 1),
        (&["audit"], 1),
        (&["push", "list"], 1),
        (&["store", "stats"], 1),
        (&["store", "check"], 1),
        (&["store", "compact"], 1),
        (&["task", "list"], 3),
    ] {
        let ran = nuncio(dir.path(), args);
        assert_eq!(ran.code, code, "{args:?}\n{}{}", ran.stdout, ran.stderr);
        assert!(is_empty(dir.path()), "{args:?} has created something");
        if code == 0 {
            assert!(ran.stderr.contains("there is no server and no store in"), "{args:?}: {}", ran.stderr);
        }
    }
    nuncio(dir.path(), &["memory", "set", "notes", "today", "1"]).exits(0);
    assert!(dir.path().join("nuncio-data/nuncio.db").is_file(), "a command that writes makes a store");
    let read = nuncio(dir.path(), &["memory", "get", "notes", "today"]).exits(0);
    assert!(
        read.stderr.contains("no server runs: this command works on ./nuncio-data itself"),
        "{}",
        read.stderr
    );
    let json = nuncio(dir.path(), &["memory", "get", "notes", "today", "-o", "json"]).exits(0);
    assert_eq!(json.stderr, "", "programs are told nothing");
    let listed = nuncio(dir.path(), &["token", "list"]).exits(0);
    assert!(listed.stderr.contains("no server runs"), "{}", listed.stderr);
}

#[test]
fn a_flag_comes_before_the_variable_and_that_before_the_folder() {
    let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let server = ServerProcess::start(&dir.path().join("nuncio-data"), &[]);
    nuncio(dir.path(), &["memory", "set", "notes", "here", "1"]).exits(0);
    let from_elsewhere = |args: &[&str], variable: &str| {
        let token = nuncio(dir.path(), &["token", "create", "--name", "x", "-o", "json"]).exits(0).json();
        let token = token["token"].as_str().unwrap().to_owned();
        run(nuncio_in(elsewhere.path()).args(args).env("NUNCIO_SERVER", variable).env("A2ACLI_BEARER", token))
    };
    let read = ["memory", "get", "notes", "here"];
    from_elsewhere(&read, server.url()).exits(0);
    from_elsewhere(&["send", "Hello"], server.url()).exits(0);
    let flag = [&read[..], &["--server", server.url()]].concat();
    from_elsewhere(&flag, "http://127.0.0.1:9").exits(0);
    from_elsewhere(&["send", "Hello", "--server", server.url()], "http://127.0.0.1:9").exits(0);
    from_elsewhere(&read, "http://127.0.0.1:9").exits(3);
    // A folder that is named comes before the variable as well.
    let data = dir.path().join("nuncio-data");
    let named = [&read[..], &["--data", data.to_str().unwrap()]].concat();
    run(nuncio_in(elsewhere.path()).args(&named).env("NUNCIO_SERVER", "http://127.0.0.1:9")).exits(0);
    assert!(is_empty(elsewhere.path()));
}

#[test]
fn a_refused_caller_reads_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(&dir.path().join("data"), &["--auth", "on"]);
    let elsewhere = tempfile::tempdir().unwrap();
    for args in [&["send", "Hello"][..], &["memory", "list"], &["task", "show", "x"]] {
        let args = [args, &["-a", server.url()]].concat();
        let missing = nuncio(elsewhere.path(), &args).exits(4);
        assert!(missing.stderr.contains("A2ACLI_BEARER"), "{args:?}: {}", missing.stderr);
        assert!(missing.stderr.contains("token create"), "{args:?}: {}", missing.stderr);
        let wrong = run(nuncio_in(elsewhere.path()).args(&args).env("A2ACLI_BEARER", "wrong")).exits(4);
        assert!(wrong.stderr.contains("expired or been revoked"), "{args:?}: {}", wrong.stderr);
    }
}

#[test]
fn errors_name_commands_and_no_tools() {
    let dir = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(&dir.path().join("nuncio-data"), &[]);
    for (args, command) in [
        (&["memory", "get", "notes", "nothing"][..], "nuncio memory list"),
        (&["agents", "probe", "nobody"], "nuncio agents list"),
        (&["plan", "make", "qwertyuiop zxcvbnm"], "nuncio agents list"),
        (&["sparc", "show", "nothing"], "nuncio sparc start"),
    ] {
        let refused = nuncio(dir.path(), args);
        assert_ne!(refused.code, 0, "{args:?}: {}", refused.stdout);
        assert!(refused.stderr.contains(command), "{args:?}: {}", refused.stderr);
        for tool in ["memory_", "agents_", "plan_", "sparc_"] {
            assert!(!refused.stderr.contains(tool), "{args:?}: {}", refused.stderr);
        }
    }
    drop(server);
}

#[test]
fn a_folder_is_no_plan_and_no_request() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("plans")).unwrap();
    for name in ["plans", "./plans", "missing/plan"] {
        let refused = nuncio(dir.path(), &["plan", "run", name]).exits(2);
        assert!(refused.stderr.contains(name), "{}", refused.stderr);
    }
    std::fs::write(dir.path().join("request.txt"), "compare Lisbon and Porto").unwrap();
    let refused = nuncio(dir.path(), &["plan", "make", "request.txt"]).exits(2);
    assert!(refused.stderr.contains("plan make -"), "{}", refused.stderr);
}

#[test]
fn init_writes_a_file_once_and_serve_takes_it() {
    let dir = tempfile::tempdir().unwrap();
    nuncio(dir.path(), &["init"]).exits(0);
    let file = dir.path().join("nuncio.toml");
    let written = std::fs::read_to_string(&file).unwrap();
    assert!(written.contains("\n#max-running = 10000\n"), "{written}");
    let printed = nuncio(dir.path(), &["serve", "--print-config"]).exits(0);
    let bare = nuncio(tempfile::tempdir().unwrap().path(), &["serve", "--print-config"]).exits(0);
    assert_eq!(printed.stdout, bare.stdout, "it changes nothing");
    std::fs::write(&file, "max-running = 5\n").unwrap();
    let again = nuncio(dir.path(), &["init"]).exits(1);
    assert!(again.stderr.contains("exists already") && again.stderr.contains("Hint: `"), "{}", again.stderr);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "max-running = 5\n");
    assert_eq!(nuncio(dir.path(), &["init", "-"]).exits(0).stdout, written);

    assert_eq!(nuncio(dir.path(), &["config", "check"]).exits(0).stdout, "nuncio.toml is valid.\n");
    std::fs::write(&file, "max-runing = 5\n").unwrap();
    let wrong = nuncio(dir.path(), &["config", "check"]).exits(1);
    assert!(wrong.stderr.contains("did you mean \"max-running\"?"), "{}", wrong.stderr);
}

#[test]
fn a_variable_that_means_nothing_is_reported_wherever_the_configuration_is_read() {
    let dir = tempfile::tempdir().unwrap();
    for args in [&["serve", "--print-config"][..], &["config", "check"]] {
        let mut command = nuncio_in(dir.path());
        command.args(args).env("NUNCIO_MAX_RUNING", "3").env("NUNCIO_CHAT_STATE", "state");
        let ran = run(&mut command).exits(0);
        assert!(ran.stderr.contains("did you mean NUNCIO_MAX_RUNNING?"), "{}", ran.stderr);
        assert!(!ran.stderr.contains("NUNCIO_CHAT_STATE"), "{}", ran.stderr);
    }
    // The port is the default one only where no server has run on the folder.
    let asked = nuncio(dir.path(), &["health", "--timeout", "1s"]);
    if asked.code != 0 {
        assert!(asked.stderr.contains("the default address was asked"), "{}", asked.stderr);
    }
}
