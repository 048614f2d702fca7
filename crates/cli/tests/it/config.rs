//! Where a setting comes from, and what is said of one that is wrong. Seen through `--print-config`, which
//! is how a user would look.

use std::{fs, path::Path};

use crate::command::{Ran, nuncio_in, run};

/// A folder with a configuration file, an environment and flags.
fn print_config(dir: &Path, file: &str, environment: &[(&str, &str)], flags: &[&str]) -> Ran {
    if !file.is_empty() {
        fs::write(dir.join("nuncio.toml"), file).unwrap();
    }
    let mut command = nuncio_in(dir);
    command.args(["serve", "--print-config"]).args(flags).envs(environment.iter().copied());
    run(&mut command)
}

/// The line of a setting, with single spaces.
fn line(printed: &str, name: &str) -> String {
    let found = printed.lines().find(|line| line.trim_start_matches("# ").starts_with(&format!("{name} =")));
    let line = found.unwrap_or_else(|| panic!("no {name} in:\n{printed}"));
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_flag_stands_before_the_environment_before_the_file_before_the_default() {
    #[track_caller]
    fn check(file: &str, environment: &[(&str, &str)], flags: &[&str], expected: &str) {
        let dir = tempfile::tempdir().unwrap();
        let ran = print_config(dir.path(), file, environment, flags).exits(0);
        let name = expected.trim_start_matches("# ").split(' ').next().unwrap();
        assert_eq!(line(&ran.stdout, name), expected);
    }
    let file = "max-running = 7\nretention = \"2d\"\nstrict-cards = true\n[limits]\ncall-depth = 3\n";
    let environment = [("NUNCIO_MAX_RUNNING", "8"), ("NUNCIO_LIMITS_CALL_DEPTH", "4")];

    check("", &[], &[], "max-running = 10000 # default");
    check(file, &[], &[], "max-running = 7 # file nuncio.toml");
    check(file, &environment, &[], "max-running = 8 # environment NUNCIO_MAX_RUNNING");
    check(file, &environment, &["--max-running", "9"], "max-running = 9 # flag --max-running");

    check("", &[], &[], "retention = \"30d\" # default");
    check(file, &[], &[], "retention = \"2d\" # file nuncio.toml");
    check(file, &[], &["--retention", "90m"], "retention = \"90m\" # flag --retention");

    check("", &[], &[], "question-limit = \"90d\" # default");
    check("question-limit = \"never\"\n", &[], &[], "question-limit = \"never\" # file nuncio.toml");
    check(
        "",
        &[("NUNCIO_QUESTION_LIMIT", "30d")],
        &[],
        "question-limit = \"30d\" # environment NUNCIO_QUESTION_LIMIT",
    );
    check("", &[], &[], "# retention-failed = # default");
    check(file, &[], &["--retention-failed", "90d"], "retention-failed = \"90d\" # flag --retention-failed");

    check("", &[], &[], "strict-cards = false # default");
    check(file, &[], &[], "strict-cards = true # file nuncio.toml");
    check(file, &[], &["--strict-cards=false"], "strict-cards = false # flag --strict-cards");
    check("", &[], &["--strict-cards"], "strict-cards = true # flag --strict-cards");

    check("", &[], &[], "call-depth = 16 # default");
    check(file, &[], &[], "call-depth = 3 # file nuncio.toml");
    check(file, &environment, &[], "call-depth = 4 # environment NUNCIO_LIMITS_CALL_DEPTH");

    check("", &[], &[], "# public-url = # default");
    check(
        "",
        &[],
        &["--public-url", "https://a.example/"],
        "public-url = \"https://a.example\" # flag --public-url",
    );
    check("allowed_hosts = [\"a\", \"b\"]", &[], &[], "allowed-hosts = [\"a\", \"b\"] # file nuncio.toml");
    check("", &[("NUNCIO_LOG", "debug")], &[], "log = \"debug\" # environment NUNCIO_LOG");
}

#[test]
fn another_file_can_be_named() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("other.toml"), "max-queued = 5").unwrap();
    let ran = print_config(dir.path(), "max-queued = 4", &[], &["--config", "other.toml"]).exits(0);
    assert_eq!(line(&ran.stdout, "max-queued"), "max-queued = 5 # file other.toml");
    let ran = print_config(dir.path(), "", &[("NUNCIO_CONFIG", "other.toml")], &[]).exits(0);
    assert_eq!(line(&ran.stdout, "max-queued"), "max-queued = 5 # file other.toml");
    let ran = print_config(dir.path(), "", &[], &["--config", "missing.toml"]).exits(1);
    assert!(ran.stderr.contains("cannot read missing.toml"), "{}", ran.stderr);
}

#[test]
fn the_configuration_on_the_page_on_hardening_is_taken_as_it_stands() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/hardening.md");
    let page = fs::read_to_string(page).unwrap();
    let begins = page.find("    # /etc/nuncio/nuncio.toml").expect("the page has a configuration");
    let file: String = page[begins..]
        .lines()
        .take_while(|line| line.starts_with("    "))
        .map(|line| format!("{}\n", line.trim_start()))
        .collect();
    let dir = tempfile::tempdir().unwrap();
    let ran = print_config(dir.path(), &file, &[], &[]).exits(0);
    for name in ["data", "socket", "public-url", "trusted-proxies"] {
        assert!(line(&ran.stdout, name).ends_with("# file nuncio.toml"), "{name}: {}", ran.stdout);
    }
}

#[test]
fn what_is_printed_is_a_configuration_file() {
    let dir = tempfile::tempdir().unwrap();
    let flags = ["--agent-step", "50ms", "--allowed-hosts", "a,b", "--bench-agent", "--store", "sqlite:x y"];
    let first = print_config(dir.path(), "", &[], &flags).exits(0).stdout;
    let again = print_config(dir.path(), &first, &[], &[]).exits(0).stdout;
    let values = |text: &str| {
        text.lines().map(|line| line.split(" #").next().unwrap().trim().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(values(&first), values(&again));
    assert!(first.contains("store = \"sqlite:x y\""), "{first}");
}

#[test]
fn what_is_wrong_is_named_with_its_place() {
    #[track_caller]
    fn check(file: &str, environment: &[(&str, &str)], flags: &[&str], code: i32, expected: &str) {
        let dir = tempfile::tempdir().unwrap();
        let ran = print_config(dir.path(), file, environment, flags).exits(code);
        assert!(ran.stderr.contains(expected), "{}", ran.stderr);
    }
    let unknown = "nuncio.toml: there is no setting \"max-runing\": did you mean \"max-running\"?";
    check("max-runing = 1", &[], &[], 1, unknown);
    let unknown = "there is no setting \"limits.event-per-task\": did you mean \"limits.events-per-task\"?";
    check("[limits]\nevent-per-task = 1", &[], &[], 1, unknown);
    check("[limit]\nx = 1", &[], &[], 1, "there is no setting \"limit\"");
    check("zzz = 1", &[], &[], 1, "there is no setting \"zzz\"\n");
    check(
        "max-running = \"many\"",
        &[],
        &[],
        1,
        "nuncio.toml: max-running: expected a whole number, not \"many\"",
    );
    check("retention = 5", &[], &[], 1, "nuncio.toml: retention: \"5\" is no length of time");
    check("question-limit = \"0s\"", &[], &[], 1, "question-limit: expected more than no time, or never");
    check("retention-failed = \"never\"", &[], &[], 1, "retention-failed: \"never\" is no length of time");
    check("max-running =", &[], &[], 1, "nuncio.toml is not TOML");
    check("", &[("NUNCIO_RETENTION", "0s")], &[], 1, "NUNCIO_RETENTION: expected more than no time");
    check("", &[], &["--agent-step", "2"], 2, "--agent-step: \"2\" is no length of time");
    check("", &[], &["--log", "a=b=c"], 2, "--log: ");
    check("", &[], &["--store", "x"], 2, "--store: expected sqlite:DIR or postgres://");
    check("", &[], &["--store", "postgres:d"], 2, "--store: expected sqlite:DIR or postgres://");
    check("", &[], &["--allow-unsafe-store", "fsync,all"], 2, "\"all\" is none of fsync, full_page_writes");
    check("", &[], &["--public-url", "example.org"], 2, "--public-url: expected a URL");
    check("", &[], &["--max-runing", "1"], 2, "--max-running");
}

#[test]
fn other_machines_are_let_in_only_when_asked() {
    let dir = tempfile::tempdir().unwrap();
    let serve = |flags: &[&str]| {
        let mut command = nuncio_in(dir.path());
        command.args(["serve", "--data", "d"]).args(flags);
        run(&mut command)
    };
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        let ran = serve(&["--listen", address]).exits(2);
        assert!(ran.stderr.contains("can be reached from other machines"), "{}", ran.stderr);
        assert!(ran.stderr.contains("--allow-remote"), "{}", ran.stderr);
    }
    let ran = serve(&["--listen", "0.0.0.0:0", "--allow-remote", "--auth", "off"]).exits(2);
    assert!(
        ran.stderr.contains("auth is off") && ran.stderr.contains("nuncio token create"),
        "{}",
        ran.stderr
    );
    assert!(!dir.path().join("d").exists(), "nothing is made before the address is known to be good");
    let ran = serve(&["--listen", "nowhere"]).exits(2);
    assert!(ran.stderr.contains("expected an address and a port"), "{}", ran.stderr);
}

#[test]
fn there_is_one_model_and_its_former_names_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let former =
        "[sparc]\nmodel-url = \"http://m.example/v1\"\nmodel_name = \"m\"\nmodel-key-variable = \"K\"\n";
    let printed = print_config(dir.path(), former, &[], &[]).exits(0).stdout;
    assert_eq!(line(&printed, "base-url"), "base-url = \"http://m.example/v1\" # file nuncio.toml");
    assert_eq!(line(&printed, "key-variable"), "key-variable = \"K\" # file nuncio.toml");
    assert!(!printed.contains("model-url"), "{printed}");
    let again = print_config(dir.path(), &printed, &[], &[]).exits(0).stdout;
    assert_eq!(line(&again, "base-url"), "base-url = \"http://m.example/v1\" # file nuncio.toml");
    // Both names are one setting.
    let both = |name: &str| format!("[model]\nname = \"m\"\n[sparc]\nmodel-name = \"{name}\"\n");
    print_config(dir.path(), &both("m"), &[], &[]).exits(0);
    let ran = print_config(dir.path(), &both("other"), &[], &[]).exits(1);
    let why = "nuncio.toml: sparc.model-name: model.name is the same setting and has another value: remove one of the two";
    assert!(ran.stderr.contains(why), "{}", ran.stderr);
    let variables = [("NUNCIO_SPARC_MODEL_NAME", "n")];
    let printed = print_config(dir.path(), &both("m"), &variables, &[]).exits(0).stdout;
    assert!(printed.contains("name = \"n\""), "{printed}");
    let variables = [("NUNCIO_SPARC_MODEL_NAME", "n"), ("NUNCIO_MODEL_NAME", "o")];
    let ran = print_config(dir.path(), "[model]\n", &variables, &[]).exits(1);
    let why = "NUNCIO_SPARC_MODEL_NAME: NUNCIO_MODEL_NAME is the same setting and has another value";
    assert!(ran.stderr.contains(why), "{}", ran.stderr);
}

#[test]
fn a_model_of_the_servers_own_is_known_and_whole() {
    let dir = tempfile::tempdir().unwrap();
    let check = |file: &str, expected: &str| {
        let ran = print_config(dir.path(), file, &[], &[]).exits(1);
        assert!(ran.stderr.contains(expected), "{}", ran.stderr);
    };
    let four = "model.provider: expected openai, anthropic, gemini or ollama, not \"mistral\"";
    check("[model]\nprovider = \"mistral\"\n", four);
    check("[model]\nprovider = \"ollama\"\n", "model.provider: a model also needs model.name");
    check("[model]\nname = \"m\"\nbase-url = \"nowhere\"\n", "model.base-url: expected a URL");
    check("[model]\nname = \"m\"\ntimeout = \"0s\"\n", "model.timeout: expected more than no time");
    let whole = "[model]\nprovider = \"ollama\"\nname = \"m\"\ntimeout = \"30s\"\nretries = 0\n";
    let printed = print_config(dir.path(), whole, &[], &[]).exits(0).stdout;
    assert_eq!(line(&printed, "provider"), "provider = \"ollama\" # file nuncio.toml");

    fs::write(dir.path().join("nuncio.toml"), "[model]\nname = \"m\"\n").unwrap();
    let ran = run(nuncio_in(dir.path()).args(["serve", "--listen", "127.0.0.1:0"])).exits(1);
    assert!(
        ran.stderr.contains("openai answers nobody without a key: set model.key-variable"),
        "{}",
        ran.stderr
    );
}
