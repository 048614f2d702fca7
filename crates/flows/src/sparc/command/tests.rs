use super::*;

const DEADLINE: Duration = Duration::from_secs(20);

fn shell(script: &str) -> TestCommand {
    TestCommand {
        words: ["sh", "-c", script].map(str::to_owned).to_vec(),
        folder: None,
        timeout: DEADLINE,
        max_output: 1024,
        env: vec![],
        hidden: vec![],
    }
}

async fn run(command: &TestCommand) -> CommandReport {
    let redactor = Redactor::default();
    tokio::time::timeout(DEADLINE * 2, command.run("ctx", &redactor)).await.expect("it ends by itself")
}

/// Whether a process is alive, according to `/proc`.
fn lives(pid: &str) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    // A zombie counts as dead.
    !stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with(['Z', 'X']))
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let waited = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(DEADLINE, waited).await.unwrap_or_else(|_| panic!("{what}"));
}

#[tokio::test]
async fn the_exit_code_decides() {
    let passed = run(&shell("echo fine; echo $SPARC_CONTEXT_ID; exit 0")).await;
    assert_eq!((passed.exit_code, passed.output.as_str()), (Some(0), "fine\nctx\n"));
    assert_eq!(passed.violation(), None);
    let failed = run(&shell("echo broken >&2; exit 3")).await;
    assert_eq!(failed.exit_code, Some(3));
    assert!(
        failed
            .violation()
            .is_some_and(|found| found.message.contains("code 3") && found.message.contains("broken"))
    );
    let killed = run(&shell("kill -9 $$")).await;
    assert_eq!(killed.exit_code, None);
    assert!(killed.violation().is_some_and(|found| found.message.contains("by a signal")));
}

#[tokio::test]
async fn the_tests_have_what_is_listed_and_nothing_else_of_the_servers_environment() {
    // Cargo always sets these variables in tests; they stand for an operator's variables.
    let script = "echo [$CARGO_MANIFEST_DIR][$CARGO_PKG_NAME]; test -n \"$PATH\"";
    let report = run(&shell(script)).await;
    assert_eq!((report.exit_code, report.output.as_str()), (Some(0), "[][]\n"));
    let listed = TestCommand { env: vec!["CARGO_PKG_NAME".into()], ..shell(script) };
    assert_eq!(run(&listed).await.output, "[][nuncio-flows]\n");
    let listed = TestCommand { env: vec!["CARGO_*".into()], ..shell("echo $CARGO_PKG_NAME") };
    assert_eq!(run(&listed).await.output, "nuncio-flows\n");
    // The model's API key is never passed to the tests, whatever the list contains.
    let hidden =
        TestCommand { hidden: vec!["CARGO_PKG_NAME".into()], env: vec!["*".into()], ..shell(script) };
    assert!(run(&hidden).await.output.ends_with("[]\n"));
    let all = run(&shell("env | cut -d= -f1")).await.output;
    for name in all.lines().filter(|name| !["SPARC_CONTEXT_ID", "PWD", "OLDPWD", "_", "SHLVL"].contains(name))
    {
        assert!(is_listed(name, &[]), "{name}");
    }
}

#[tokio::test]
async fn a_context_id_that_a_script_could_stumble_over_reaches_no_command() {
    let folder = tempfile::tempdir().unwrap();
    for id in [
        "",
        "..",
        "a/../b",
        "/etc",
        "-rf",
        ".git",
        "a b",
        "a;b",
        "$(id)",
        "a\nb",
        "é",
        "a..b",
        &"x".repeat(129),
    ] {
        let command = TestCommand { folder: Some(folder.path().into()), ..shell("touch ran") };
        let report = command.run(id, &Redactor::default()).await;
        assert!(report.failure.is_some_and(|why| why.contains("contextId")), "{id:?}");
        assert!(!folder.path().join("ran").exists(), "{id:?}");
    }
    for id in ["ctx", "0190a1b2-c3d4-7e5f-8a6b-7c8d9e0f1a2b", "sparc-1", "a.b_c-D", &"x".repeat(128)] {
        assert!(is_safe_context(id), "{id}");
    }
}

#[tokio::test]
async fn what_cannot_be_run_says_so() {
    let command = TestCommand { words: vec!["/no/such/program".into()], ..shell("") };
    let report = run(&command).await;
    assert!(report.failure.is_some_and(|why| why.contains("sparc.test-command")));
    let command = TestCommand { folder: Some("/no/such/folder".into()), ..shell("true") };
    assert!(run(&command).await.failure.is_some_and(|why| why.contains("sparc.test-dir")));
}

#[tokio::test]
async fn the_end_of_the_output_is_kept_without_secrets() {
    let report =
        run(&shell("for i in $(seq 1 2000); do echo line $i; done; echo password=hunter2; exit 1")).await;
    assert!(report.truncated);
    assert!(report.output.len() <= 1024 + 16, "{}", report.output.len());
    assert!(report.output.contains("line 2000\n") && !report.output.contains("line 1\n"));
    assert!(!report.output.contains("hunter2"), "{}", report.output);
}

#[tokio::test]
async fn a_secret_that_the_cut_goes_through_is_not_shown() {
    // The cut falls everywhere from before the word to after the secret.
    for beyond in [1000, 1010, 1014, 1018, 1022, 1026] {
        let script = format!(
            "seq 1 2000; printf 'password=hunter2hunter2'; printf '%0{beyond}d' 0 | tr 0 ' '; exit 1"
        );
        let report = run(&shell(&script)).await;
        assert!(report.truncated && report.output.len() <= 1024, "{}", report.output.len());
        assert!(!report.output.contains("er2"), "{beyond}: {}", report.output);
    }
}

#[tokio::test]
async fn when_its_time_is_over_the_whole_tree_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let command = TestCommand {
        timeout: Duration::from_millis(500),
        folder: Some(folder.path().into()),
        ..shell("sh -c 'echo $$ > grandchild; sleep 600 & wait' & echo $$ > child; wait")
    };
    let report = run(&command).await;
    assert!(report.timed_out && report.exit_code.is_none());
    assert!(report.violation().is_some_and(|found| found.message.contains("sparc.test-timeout")));
    for name in ["child", "grandchild"] {
        let pid = std::fs::read_to_string(folder.path().join(name)).unwrap();
        until("the tree is gone", || !lives(pid.trim())).await;
    }
}

#[tokio::test]
async fn when_nobody_waits_any_more_the_whole_tree_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("grandchild");
    let command = TestCommand {
        folder: Some(folder.path().into()),
        ..shell("sh -c 'echo $$ > grandchild.new; mv grandchild.new grandchild; sleep 600 & wait' & wait")
    };
    let running = tokio::spawn(async move { run(&command).await });
    until("it runs", || file.exists()).await;
    let pid = std::fs::read_to_string(&file).unwrap();
    assert!(lives(pid.trim()));
    running.abort();
    until("the tree is gone", || !lives(pid.trim())).await;
}

#[tokio::test]
async fn what_it_leaves_running_neither_holds_the_gate_nor_stays() {
    let folder = tempfile::tempdir().unwrap();
    let command = TestCommand {
        folder: Some(folder.path().into()),
        ..shell("sleep 600 & echo $! > left; echo done; exit 0")
    };
    let report = run(&command).await;
    assert_eq!((report.exit_code, report.output.as_str()), (Some(0), "done\n"));
    assert!(report.duration_ms < 10_000, "{}", report.duration_ms);
    let pid = std::fs::read_to_string(folder.path().join("left")).unwrap();
    until("it is gone", || !lives(pid.trim())).await;
}
