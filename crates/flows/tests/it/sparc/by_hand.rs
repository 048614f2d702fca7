//! Workflows through the tools, without an agent but the one that runs tests.

use futures_util::future::join_all;
use nuncio_engine::{
    Caller, Grants,
    surface::{HandlerError, SurfaceChange},
};
use nuncio_flows::sparc::{SparcError, SparcOptions, SparcPhase, WorkflowActor};
use serde_json::{Value, json};

use super::stage::{example, me, stage, tests_that};

fn failed(result: Result<Value, HandlerError>) -> String {
    match result {
        Err(HandlerError::Failed(why) | HandlerError::Invalid(why)) => why,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workflow_goes_through_its_phases_in_their_order_and_back_with_a_reason() {
    let (stage, _folder) = stage(tests_that("echo all is well")).await;
    let me = &me();
    let started = stage.call(
        me,
        "sparc_start",
        json!({ "contextId": "w", "goal": "Links", "batchtoolsEnabled": true }),
    );
    let started = started.await.unwrap();
    assert_eq!(started["currentPhase"], "specification");
    assert_eq!(started["metadata"]["batchtoolsEnabled"], true);
    assert_eq!(started["metadata"]["agentType"], "researcher");
    let twice = stage.call(me, "sparc_start", json!({ "contextId": "w", "goal": "Other" })).await;
    assert!(failed(twice).contains("already"));

    // No phase is skipped, and a gate that refuses says what is wrong.
    let skipped =
        failed(stage.submit("w", SparcPhase::Architecture, example(SparcPhase::Architecture)).await);
    assert!(skipped.contains("architecture is not the current phase, specification is"), "{skipped}");
    let mut bad = example(SparcPhase::Specification);
    bad["requirements"][0]["priority"] = "urgent".into();
    bad["acceptanceCriteria"][0]["requirement"] = "R9".into();
    let blocked = stage.submit("w", SparcPhase::Specification, bad).await.unwrap();
    assert_eq!(
        (&blocked["passed"], &blocked["version"], &blocked["currentPhase"]),
        (&json!(false), &json!(1), &json!("specification"))
    );
    let said = blocked["gate"]["violations"].to_string();
    // What a schema cannot say comes after what it says.
    assert!(said.contains("/requirements/0/priority") && !said.contains("R9"), "{said}");
    assert_eq!(stage.status("w").await["phases"]["specification"]["status"], "blocked");

    for phase in SparcPhase::ALL {
        let passed = stage.submit("w", phase, example(phase)).await.unwrap();
        assert_eq!(passed["passed"], true, "{passed}");
        assert_eq!(passed["done"], phase == SparcPhase::Completion);
        let command = &passed["gate"]["command"];
        match phase {
            SparcPhase::Refinement => {
                assert_eq!((&command["exitCode"], &command["output"]), (&json!(0), &json!("all is well\n")));
            }
            _ => assert_eq!(*command, Value::Null),
        }
    }
    let more = failed(stage.submit("w", SparcPhase::Completion, example(SparcPhase::Completion)).await);
    assert!(more.contains("all five phases have passed"), "{more}");

    let back = |to: &str, reason: &str| {
        stage.call(me, "sparc_back", json!({ "contextId": "w", "to": to, "reason": reason }))
    };
    assert!(failed(back("completion", "again").await).contains("does not come before"));
    assert!(failed(back("pseudocode", " ").await).contains("needs a reason"));
    let gone_back = back("pseudocode", "a step is missing").await.unwrap();
    assert_eq!(gone_back["currentPhase"], "pseudocode");
    assert_eq!(gone_back["phases"]["architecture"]["status"], "pending");
    assert_eq!(gone_back["artifacts"].as_array().map(Vec::len), Some(6));
    let again = stage.submit("w", SparcPhase::Pseudocode, example(SparcPhase::Pseudocode)).await.unwrap();
    assert_eq!((&again["version"], &again["passed"]), (&json!(2), &json!(true)));

    // Who did what, in pages.
    let page = stage.call(me, "sparc_history", json!({ "contextId": "w", "limit": 7 })).await.unwrap();
    assert_eq!((&page["total"], &page["next"]), (&json!(9), &json!(7)));
    let rest = stage.call(me, "sparc_history", json!({ "contextId": "w", "after": 7 })).await.unwrap();
    let all: Vec<Value> =
        [&page, &rest].into_iter().flat_map(|page| page["entries"].as_array().unwrap().clone()).collect();
    let told: Vec<String> = all
        .iter()
        .map(|entry| {
            format!("{} {} {} {}", entry["n"], entry["what"], entry["phase"], entry["outcome"])
                .replace('"', "")
        })
        .collect();
    assert_eq!(
        told,
        [
            "1 started specification active",
            "2 submitted specification blocked",
            "3 submitted specification passed",
            "4 submitted pseudocode passed",
            "5 submitted architecture passed",
            "6 submitted refinement passed",
            "7 submitted completion passed",
            "8 went_back pseudocode active",
            "9 submitted pseudocode passed",
        ]
    );
    assert_eq!(all[0]["who"], json!({ "caller": "local", "agent": null, "task": null }));
    assert_eq!(all[5]["who"]["agent"], "sparc-gate");
    assert_eq!(all[7]["detail"], "a step is missing");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refinement_passes_only_when_its_tests_do() {
    for (options, words) in [
        (tests_that("echo two tests failed; exit 1"), "two tests failed"),
        (SparcOptions::default(), "sparc.test-command"),
        (
            SparcOptions { test_timeout: std::time::Duration::from_millis(300), ..tests_that("sleep 600") },
            "sparc.test-timeout",
        ),
    ] {
        let (stage, _folder) = stage(options).await;
        stage.workflow_at("w", SparcPhase::Refinement).await;
        let blocked =
            stage.submit("w", SparcPhase::Refinement, example(SparcPhase::Refinement)).await.unwrap();
        assert_eq!(blocked["passed"], false);
        assert!(blocked["gate"]["violations"].to_string().contains(words), "{blocked}");
        let status = stage.status("w").await;
        assert_eq!(status["phases"]["refinement"]["status"], "blocked");
        assert_eq!(status["currentPhase"], "refinement");
        // What breaks the schema needs no tests to be refused.
        let broken = stage.submit("w", SparcPhase::Refinement, json!({ "summary": "short" })).await.unwrap();
        assert_eq!((&broken["passed"], &broken["gate"]["command"]), (&json!(false), &Value::Null));
        stage.stop().await;
    }
}

/// The command runs with the rights of the server, whoever's workflow it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_test_command_runs_for_the_tenants_it_is_for_and_for_no_other() {
    assert_eq!(SparcOptions::default().test_tenants, ["home"], "unless the operator names others");
    let (home, ada, eve) = (me(), Caller::named("acme/ada"), Caller::named("other/eve"));
    for (tenants, runs) in [
        (&["home"][..], [true, false, false]),
        (&["acme"], [false, true, false]),
        (&["*"], [true, true, true]),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let options = SparcOptions {
            test_dir: Some(folder.path().into()),
            test_tenants: tenants.iter().map(|tenant| (*tenant).to_owned()).collect(),
            ..tests_that("echo ran >> ran")
        };
        let (stage, _store) = stage(options).await;
        let mut expected = 0;
        for (caller, runs) in [&home, &ada, &eve].into_iter().zip(runs) {
            let report = stage.workflows.test(caller, "w").await.unwrap();
            expected += usize::from(runs);
            let ran = std::fs::read_to_string(folder.path().join("ran")).unwrap_or_default();
            assert_eq!(ran.lines().count(), expected, "{tenants:?} {caller:?}");
            match (runs, report.failure) {
                (true, failure) => assert_eq!((failure, report.exit_code), (None, Some(0))),
                (false, failure) => {
                    let failure = failure.expect("it says why");
                    let names = failure.contains("sparc.test-tenants") && failure.contains(caller.tenant());
                    assert!(names && report.exit_code.is_none(), "{failure}");
                }
            }
        }
        stage.stop().await;
    }
}

/// A gate of another tenant does not pass, and says whom to ask.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refinement_of_a_tenant_without_the_test_command_does_not_pass() {
    let (stage, _folder) = stage(tests_that("true")).await;
    let ada = Caller::named("acme/ada");
    stage.call(&ada, "sparc_start", json!({ "contextId": "w", "goal": "Links" })).await.unwrap();
    let mut last = Value::Null;
    for phase in
        [SparcPhase::Specification, SparcPhase::Pseudocode, SparcPhase::Architecture, SparcPhase::Refinement]
    {
        let given = json!({ "contextId": "w", "phase": phase, "artifact": example(phase) });
        last = stage.call(&ada, "sparc_submit", given).await.unwrap();
    }
    assert_eq!(last["passed"], false, "{last}");
    assert!(last["gate"]["violations"].to_string().contains("sparc.test-tenants"), "{last}");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_so_many_test_commands_run_at_once() {
    assert_eq!(SparcOptions::default().test_commands, 1, "they share a folder");
    for cap in [1, 2] {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("running")).unwrap();
        // Waits until as many as may run do, and then for one too many.
        let script = format!(
            "touch running/$$; for n in $(seq 100); do [ $(ls running | wc -l) -ge {cap} ] && break; sleep 0.05; done; \
             sleep 0.3; ls running | wc -l >> seen; rm running/$$"
        );
        let test_dir = Some(folder.path().into());
        let options = SparcOptions { test_commands: cap, test_dir, ..tests_that(&script) };
        let (stage, _store) = stage(options).await;
        stage.workflow_at("w", SparcPhase::Refinement).await;
        let (me, workflows) = (me(), &stage.workflows);
        for report in join_all((0..4).map(|_| workflows.test(&me, "w"))).await {
            assert_eq!(report.unwrap().exit_code, Some(0));
        }
        let seen = std::fs::read_to_string(folder.path().join("seen")).unwrap();
        let seen: Vec<usize> = seen.lines().map(|count| count.trim().parse().unwrap()).collect();
        assert_eq!((seen.len(), seen.iter().max()), (4, Some(&cap)), "{seen:?}");
        stage.stop().await;
    }
}

/// A page ends after so many workflows; one that the caller may not read is no place to go on from.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_never_names_what_the_caller_may_not_read() {
    let (stage, _folder) = stage(SparcOptions::default()).await;
    let start = async |name: String| {
        let given = json!({ "contextId": name, "goal": "Links" });
        stage.call(&me(), "sparc_start", given).await.unwrap();
    };
    start("a-mine".into()).await;
    start("z-mine".into()).await;
    join_all((0..2_000).map(|n| start(format!("other-{n:04}")))).await;
    let list = async |scopes: &str, given: Value| {
        let caller = me().limited_to(Grants::parse(scopes).unwrap());
        stage.call(&caller, "sparc_list", given).await
    };
    let names = |listed: &Value| -> Vec<String> {
        let all = listed["workflows"].as_array().unwrap();
        all.iter().map(|workflow| workflow["contextId"].as_str().unwrap().to_owned()).collect()
    };
    let first = list("read:sparc:*-mine", json!({})).await.unwrap();
    assert_eq!((names(&first), &first["next"]), (vec!["a-mine".to_owned()], &json!("a-mine")));
    let why = failed(list("read:sparc:*-mine", json!({ "after": "a-mine" })).await);
    assert!(why.contains("prefix") && !why.contains("other"), "{why}");
    let there = list("read:sparc:*-mine", json!({ "prefix": "z" })).await.unwrap();
    assert_eq!((names(&there), &there["next"]), (vec!["z-mine".to_owned()], &Value::Null));
    // Whose scopes begin with a name is not in need of one.
    let narrow = list("read:sparc:z-*", json!({})).await.unwrap();
    assert_eq!(names(&narrow), ["z-mine"]);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_change_is_told_once() {
    let (stage, _folder) = stage(tests_that("true")).await;
    let mut changes = stage.engine.catalog().surface().changes();
    stage.workflow_at("w.x", SparcPhase::Completion).await;
    stage.submit("w.x", SparcPhase::Completion, example(SparcPhase::Completion)).await.unwrap();
    let refused = stage.submit("w.x", SparcPhase::Completion, example(SparcPhase::Completion)).await;
    assert!(refused.is_err());
    let mut told = 0;
    while let Ok(change) = changes.try_recv() {
        if let SurfaceChange::Updated(updated) = change
            && updated.uri.starts_with("sparc://")
        {
            assert!(updated.concerns("home", "sparc://workflow/w.x"), "{updated:?}");
            assert!(!updated.concerns("other", "sparc://workflow/w.x"));
            told += 1;
        }
    }
    // Its start, and one for each phase.
    assert_eq!(told, 6);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_belongs_to_another_tenant_does_not_exist_and_grants_say_the_rest() {
    let (stage, _folder) = stage(tests_that("true")).await;
    stage.workflow_at("team-a", SparcPhase::Refinement).await;
    stage.workflow_at("secret", SparcPhase::Specification).await;
    let stranger = Caller::named("acme/eve");
    let theirs = |name: &str| json!({ "contextId": name });
    let missing = failed(stage.call(&stranger, "sparc_status", theirs("team-a")).await);
    let never = failed(stage.call(&stranger, "sparc_status", theirs("nothing")).await);
    assert_eq!(missing.replace("team-a", "nothing"), never);
    let uri = "sparc://workflow/team-a";
    assert_eq!(stage.read(&stranger, uri).await, Err(HandlerError::NotFound(uri.into())));
    let listed = stage.call(&stranger, "sparc_list", json!({})).await.unwrap();
    assert_eq!(listed, json!({ "workflows": [], "next": null }));
    // The same name is another workflow there.
    stage.call(&stranger, "sparc_start", json!({ "contextId": "team-a", "goal": "Ours" })).await.unwrap();
    assert_eq!(stage.status("team-a").await["metadata"]["goal"], "Links that expire");

    let limited = |scopes: &str| Caller::local().limited_to(Grants::parse(scopes).unwrap());
    let reader = limited("read:sparc:team-*");
    let listed = stage.call(&reader, "sparc_list", json!({})).await.unwrap();
    assert_eq!(listed["workflows"].as_array().map(Vec::len), Some(1), "{listed}");
    let (_, meta) = stage.read(&reader, uri).await.unwrap();
    assert_eq!(meta["permissions"], json!(["read"]));
    let forbidden = |result: Result<Value, HandlerError>, scope: &str| match result {
        Err(HandlerError::Forbidden(needs)) => assert_eq!(needs, scope),
        other => panic!("{other:?}"),
    };
    forbidden(stage.call(&reader, "sparc_status", theirs("secret")).await, "read:sparc:secret");
    forbidden(stage.call(&reader, "sparc_status", theirs("nothing")).await, "read:sparc:nothing");
    let back = json!({ "contextId": "team-a", "to": "specification", "reason": "why not" });
    forbidden(stage.call(&reader, "sparc_back", back).await, "write:sparc:team-a");
    let run = json!({ "contextId": "team-a", "goal": "x" });
    forbidden(stage.call(&limited("read,write:sparc"), "sparc_run", run).await, "execute:sparc:team-a");
    forbidden(stage.call(&limited("read:memory"), "sparc_list", json!({})).await, "read:sparc");
    // Who may write and not execute does not get the tests run.
    let writer = limited("read,write:sparc *:a2a");
    let submit = json!({ "contextId": "team-a", "artifact": example(SparcPhase::Refinement) });
    assert!(failed(stage.call(&writer, "sparc_submit", submit).await).contains("execute:sparc:team-a"));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn submissions_at_the_same_time_are_versions_one_after_the_other() {
    let (stage, _folder) = stage(SparcOptions::default()).await;
    stage.workflow_at("w", SparcPhase::Specification).await;
    let wrong = json!({ "goals": [] });
    let all = join_all((0..12).map(|_| stage.submit("w", SparcPhase::Specification, wrong.clone()))).await;
    let mut versions: Vec<u64> =
        all.into_iter().map(|one| one.unwrap()["version"].as_u64().unwrap()).collect();
    versions.sort_unstable();
    assert_eq!(versions, (1..=12).collect::<Vec<_>>());
    assert_eq!(stage.status("w").await["metadata"]["historyEntries"], 13);

    // What is tried again under its key is not done again.
    let (who, artifact) = (WorkflowActor::caller(&me()), example(SparcPhase::Specification));
    for _ in 0..2 {
        let submitted =
            stage.workflows.submit(&who, "w", None, &artifact, None, Some("task/#1:submit")).await.unwrap();
        assert_eq!(
            (submitted.version, submitted.phase, submitted.verdict.passed),
            (13, SparcPhase::Specification, true)
        );
    }
    for _ in 0..2 {
        let back = stage
            .workflows
            .go_back(&who, "w", SparcPhase::Specification, "once", Some("task/#2:back"))
            .await
            .unwrap();
        assert_eq!(back.workflow.current, SparcPhase::Specification);
    }
    assert_eq!(stage.status("w").await["metadata"]["historyEntries"], 15);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_too_large_or_no_name_is_refused_by_the_name_of_the_limit() {
    let options =
        SparcOptions { max_artifact: 1000, max_goal: 100, max_history: 2, ..SparcOptions::default() };
    let (stage, _folder) = stage(options).await;
    let me = &me();
    let start =
        |name: &str, goal: &str| stage.call(me, "sparc_start", json!({ "contextId": name, "goal": goal }));
    assert!(failed(start("w", &"x".repeat(101)).await).contains("max_goal"));
    assert!(failed(start("two\nlines", "x").await).contains("control characters"));
    assert!(start(&"n".repeat(257), "x").await.is_err());
    start("w", "A goal").await.unwrap();
    assert!(
        failed(stage.submit("w", SparcPhase::Specification, example(SparcPhase::Specification)).await)
            .contains("max_artifact")
    );
    stage.submit("w", SparcPhase::Specification, json!({})).await.unwrap();
    assert!(failed(stage.submit("w", SparcPhase::Specification, json!({})).await).contains("max_history"));
    let unnamed = stage.call(me, "sparc_start", json!({ "goal": "Another" })).await.unwrap();
    assert!(unnamed["contextId"].as_str().unwrap().starts_with("ctx-"));
    let gone = stage.workflows.artifact(me, "w", SparcPhase::Completion, 1).await;
    assert!(matches!(gone, Err(SparcError::NoArtifact { .. })));
    stage.stop().await;
}
