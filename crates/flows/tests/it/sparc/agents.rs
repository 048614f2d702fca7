//! Role agents and the coordinator: by a model that is sampled, by a configured one, and by forms.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{Router, body::Bytes, http::StatusCode, routing::post};
use nuncio_client::model::{Model, ModelOptions};
use nuncio_engine::{Part, State, access::Grants, question::Question};
use nuncio_flows::{
    batch::{BatchEngine, BatchOptions},
    sparc::{SparcOptions, SparcPhase},
};
use serde_json::{Value, json};

use super::stage::{
    Stage, by_model, by_person, by_person_of, example, in_fence, is_decision, me, phase_of, result, stage,
    tests_that, words,
};

fn versions(workflow: &Value) -> Vec<String> {
    let artifacts = workflow["artifacts"].as_array().unwrap();
    artifacts.iter().map(|note| format!("{} {}", note["phase"], note["version"]).replace('"', "")).collect()
}

/// What a follower of the task is told of its phases.
async fn phase_events(stage: &Stage, task: &nuncio_engine::Task) -> Vec<String> {
    let id = task.origin.id.to_string();
    let mut follower = stage.engine.follow(&me(), &id, 0).await.unwrap();
    let mut told = vec![];
    while let nuncio_engine::Next::Batch(batch) = follower.next().await.unwrap() {
        for (_, entry) in batch.iter() {
            if let nuncio_engine::Event::Progress(progress) = entry.event()
                && let Some(data) = &progress.data
            {
                assert_eq!(data["contextId"], "w");
                told.push(format!("{} {}", data["type"].as_str().unwrap(), data["phase"].as_str().unwrap()));
            }
        }
    }
    told
}

const ONE_OF_EACH: [&str; 5] =
    ["specification 1", "pseudocode 1", "architecture 1", "refinement 1", "completion 1"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_coordinator_drives_a_workflow_to_its_completion_by_the_callers_model() {
    let (stage, _folder) = stage(tests_that("true")).await;
    let task =
        stage.begin("coordinator", json!({ "contextId": "w", "goal": "Links that expire" }), true).await;
    let mut asked = vec![];
    let task = stage
        .drive(&task, |question| {
            asked.push(phase_of(question));
            assert!(question.text.contains("Links that expire") && question.text.contains("Guidelines:"));
            // Later phases are told what the earlier ones came to.
            assert_eq!(question.text.contains("The specification, which has passed"), asked.len() > 1);
            Some(by_model(question))
        })
        .await;
    assert_eq!(
        (task.state, words(&task)),
        (State::Completed, "All five phases of \"w\" have passed.".into())
    );
    assert_eq!(asked, SparcPhase::ALL);
    assert_eq!(phase_events(&stage, &task).await, {
        let mut expected = vec![];
        for phase in SparcPhase::ALL {
            expected.push(format!("sparc_phase_started {phase}"));
            expected.push(format!("sparc_phase_completed {phase}"));
        }
        expected.push("sparc_workflow_completed completion".into());
        expected
    });
    let ran = result(&task);
    assert_eq!((&ran["done"], &ran["uri"]), (&json!(true), &json!("sparc://workflow/w")));
    // One artifact a phase, and what the whole came to.
    let artifacts: Vec<&str> = task.artifacts.iter().map(|artifact| artifact.id.as_str()).collect();
    assert_eq!(
        artifacts,
        ["specification-1", "pseudocode-1", "architecture-1", "refinement-1", "completion-1", "workflow"]
    );
    let shown: Value = serde_json::from_str(task.artifacts[1].parts[0].as_text().unwrap()).unwrap();
    assert_eq!(shown, example(SparcPhase::Pseudocode));
    let workflow = stage.status("w").await;
    assert_eq!(versions(&workflow), ONE_OF_EACH);
    let by = &workflow["artifacts"][2]["by"];
    assert_eq!((&by["caller"], &by["agent"]), (&json!("local"), &json!("analyst")));
    assert!(by["task"].is_string());
    stage.stop().await;
}

/// One that begins its batches also while the machine is busy with other tests.
fn batch_engine() -> Arc<BatchEngine> {
    Arc::new(BatchEngine::new(BatchOptions { load_wait: Duration::ZERO, ..BatchOptions::default() }))
}

/// `batchtoolsEnabled`: at the end one batch stores what passed in the memory bank.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workflow_with_batchtools_leaves_its_artifacts_in_the_memory_bank() {
    for enabled in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let batch = batch_engine();
        let stage = Stage::open_beside(folder.path(), tests_that("true"), Some(batch), None).await;
        let start = json!({ "contextId": "w", "goal": "Links that expire", "batchtoolsEnabled": enabled });
        stage.call(&me(), "sparc_start", start).await.unwrap();
        let task =
            stage.begin("coordinator", json!({ "contextId": "w", "goal": "Links that expire" }), true).await;
        let task = stage.drive(&task, |question| Some(by_model(question))).await;
        assert_eq!(task.state, State::Completed, "{}", words(&task));
        let ran = result(&task);
        let bank = stage.engine.memory();
        for phase in SparcPhase::ALL {
            let stored = bank.get(&me(), "sparc-workflow", &format!("w:{phase}")).await.unwrap();
            let stored = stored.map(|entry| entry.value);
            assert_eq!(stored, enabled.then(|| example(phase)), "{phase}");
        }
        match enabled {
            true => {
                let batch = ran["batch"].as_str().unwrap_or_else(|| panic!("{ran}"));
                let status = stage.call(&me(), "batch_status", json!({ "batchId": batch })).await.unwrap();
                assert_eq!(
                    (&status["status"], &status["counts"]["succeeded"]),
                    (&json!("completed"), &json!(5))
                );
            }
            false => assert_eq!(ran.get("batch"), None, "{ran}"),
        }
        stage.stop().await;
    }
}

/// The batch is part of the coordinator, as its phases are. What is in the batch is refused to a caller without scopes
/// for that, and the workflow is done without it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workflow_is_completed_where_its_caller_may_run_no_batch() {
    let folder = tempfile::tempdir().unwrap();
    let batch = batch_engine();
    let stage = Stage::open_beside(folder.path(), tests_that("true"), Some(batch), None).await;
    let caller =
        me().limited_to(Grants::parse("read:* write:* execute:sparc execute:a2a:coordinator").unwrap());
    let start = json!({ "contextId": "w", "goal": "Links that expire", "batchtoolsEnabled": true });
    stage.call(&caller, "sparc_start", start).await.unwrap();
    let given = json!({ "contextId": "w", "goal": "Links that expire" });
    let task = stage.begin_as(&caller, "coordinator", given, true).await;
    let task = stage.drive(&task, |question| Some(by_model(question))).await;
    assert_eq!(task.state, State::Completed, "{}", words(&task));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_there_is_no_model_a_person_fills_in_forms() {
    let (stage, _folder) = stage(tests_that("true")).await;
    let task =
        stage.begin("coordinator", json!({ "contextId": "w", "goal": "Links that expire" }), false).await;
    let task = stage.drive(&task, |question| Some(by_person(question))).await;
    assert_eq!(task.state, State::Completed, "{}", words(&task));
    let workflow = stage.status("w").await;
    assert_eq!(versions(&workflow), ONE_OF_EACH);
    for phase in SparcPhase::ALL {
        let (artifact, _) =
            stage.read(&me(), &format!("sparc://workflow/w/artifacts/{phase}/1")).await.unwrap();
        assert_eq!(artifact["content"], example(phase), "{phase}");
    }
    stage.stop().await;
}

/// An artifact that passes the schema and not the gate.
fn lacking() -> Value {
    let mut artifact = example(SparcPhase::Specification);
    artifact["acceptanceCriteria"][0]["requirement"] = "R9".into();
    artifact
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gate_that_refuses_gets_one_more_try_and_then_a_person_is_asked() {
    let (stage, _folder) = stage(SparcOptions::default()).await;
    // One try is wrong: the model gets what was wrong with it, and the second passes.
    let task = stage.begin("researcher", json!({ "contextId": "once", "goal": "Links" }), true).await;
    let mut asked = vec![];
    let task = stage
        .drive(&task, |question| {
            asked.push(question.text.clone());
            Some(in_fence(&if asked.len() == 1 { lacking() } else { example(SparcPhase::Specification) }))
        })
        .await;
    assert_eq!(task.state, State::Completed);
    assert_eq!(asked.len(), 2);
    assert!(
        asked[1].contains("there is no requirement \\\"R9\\\"")
            || asked[1].contains("there is no requirement \"R9\"")
    );
    assert_eq!(result(&task)["version"], 2);

    // Two are wrong: a person says what to do. Again; again wrong; stop.
    let task = stage.begin("researcher", json!({ "contextId": "twice", "goal": "Links" }), true).await;
    let (mut sampled, mut decisions) = (0, 0);
    let task = stage
        .drive(&task, |question| {
            if !is_decision(question) {
                sampled += 1;
                return Some(if sampled == 2 {
                    Part::text("I would rather not.")
                } else {
                    in_fence(&lacking())
                });
            }
            decisions += 1;
            let words = if decisions == 1 { "no JSON object" } else { "R9" };
            assert!(question.text.contains(words), "{}", question.text);
            assert!(!question.text.contains("go back"), "there is nothing before a specification");
            Some(Part::data(json!({ "action": if decisions == 1 { "retry" } else { "stop" } })))
        })
        .await;
    assert_eq!((task.state, sampled, decisions), (State::Failed, 3, 2));
    let workflow = stage.status("twice").await;
    assert_eq!(workflow["phases"]["specification"]["status"], "blocked");
    let reason = workflow["phases"]["specification"]["reason"].as_str().unwrap();
    assert!(reason.contains("a person said stop") && reason.contains("R9"), "{reason}");
    assert_eq!(versions(&workflow), ["specification 1", "specification 2"]);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn going_back_is_followed() {
    let (stage, folder) = stage(tests_that("test -e fixed")).await;
    stage.stop().await;
    let options = SparcOptions { test_dir: Some(folder.path().into()), ..tests_that("test -e fixed") };
    let stage = Stage::open(folder.path(), options).await;
    let task = stage.begin("coordinator", json!({ "contextId": "w", "goal": "Links" }), true).await;
    let (fixed, mut decisions) = (folder.path().join("fixed"), 0);
    let task = stage
        .drive(&task, |question: &Question| {
            if !is_decision(question) {
                return Some(by_model(question));
            }
            decisions += 1;
            assert!(question.text.contains("ended with code 1"), "{}", question.text);
            if decisions == 1 {
                // Without a phase and a reason it is asked again.
                return Some(Part::data(json!({ "action": "back" })));
            }
            assert!(question.text.contains("needs a phase to go to, and a reason"), "{}", question.text);
            std::fs::write(&fixed, "").unwrap();
            Some(Part::data(json!({ "action": "back", "to": "pseudocode", "reason": "a step is missing" })))
        })
        .await;
    assert_eq!((task.state, decisions), (State::Completed, 2), "{}", words(&task));
    let workflow = stage.status("w").await;
    assert_eq!(
        versions(&workflow),
        [
            "specification 1",
            "pseudocode 1",
            "architecture 1",
            "refinement 1",
            "refinement 2",
            "pseudocode 2",
            "architecture 2",
            "refinement 3",
            "completion 1",
        ]
    );
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_forms_only_what_was_wrong_is_asked_for_again_and_a_no_blocks_the_phase() {
    let (stage, _folder) = stage(SparcOptions::default()).await;
    let task = stage.begin("researcher", json!({ "contextId": "w", "goal": "Links" }), false).await;
    let (mut again, mut complained) = (vec![], false);
    let task = stage
        .drive(&task, |question| {
            complained |= question.text.contains("The gate did not let it through");
            if !complained {
                return Some(by_person_of(question, &lacking()));
            }
            again.push(question.text.lines().find(|line| line.contains(", section")).unwrap().to_owned());
            Some(by_person(question))
        })
        .await;
    assert_eq!(task.state, State::Completed, "{}", words(&task));
    assert_eq!(again.len(), 5);
    assert!(again.iter().all(|place| place.ends_with("section 1 of 1: acceptanceCriteria")), "{again:?}");

    for (action, word) in [("decline", "declined"), ("cancel", "dismissed")] {
        let task = stage.begin("researcher", json!({ "contextId": action, "goal": "Links" }), false).await;
        let task = stage.drive(&task, |_| Some(Part::data(json!({ "action": action })))).await;
        assert_eq!(task.state, State::Failed);
        let workflow = stage.status(action).await;
        let state = &workflow["phases"]["specification"];
        assert_eq!(state["status"], "blocked");
        assert!(state["reason"].as_str().unwrap().contains(word), "{state}");
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_servers_own_model_is_asked_where_the_caller_has_none() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let answer = move |asked: Bytes| {
        let n = counted.fetch_add(1, Ordering::SeqCst);
        async move {
            let asked: Value = serde_json::from_slice(&asked).unwrap();
            assert_eq!(asked["model"], "small");
            assert!(asked["messages"][1]["content"].as_str().unwrap().contains("Links that expire"));
            // The first time it has a bad day.
            if n == 0 {
                return Err(StatusCode::SERVICE_UNAVAILABLE);
            }
            let text = format!("```json\n{}\n```", example(SparcPhase::Specification));
            Ok(json!({ "choices": [{ "message": { "role": "assistant", "content": text } }] }).to_string())
        }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let app = Router::new().route("/v1/chat/completions", post(answer));
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    let model = Arc::new(Model::new(&ModelOptions::new(url, "small")).unwrap());
    let folder = tempfile::tempdir().unwrap();
    let stage = Stage::open_beside(folder.path(), SparcOptions::default(), None, Some(model)).await;
    let task =
        stage.begin("researcher", json!({ "contextId": "w", "goal": "Links that expire" }), false).await;
    let task = stage.drive(&task, |question| panic!("{question:?}")).await;
    assert_eq!(task.state, State::Completed, "{}", words(&task));
    assert_eq!(calls.load(Ordering::SeqCst), 2);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_takes_only_the_work_of_its_role_and_of_the_current_phase() {
    let (stage, _folder) = stage(SparcOptions::default()).await;
    stage.workflow_at("w", SparcPhase::Specification).await;
    let refused = async |agent: &str, given: Value| {
        let task = stage.begin(agent, given, true).await;
        let task = stage.drive(&task, |question| panic!("{question:?}")).await;
        assert_eq!(task.state, State::Rejected);
        words(&task)
    };
    assert!(refused("coder", json!({ "contextId": "w" })).await.contains("the work of the researcher"));
    let skipped = refused("coder", json!({ "contextId": "w", "phase": "pseudocode" })).await;
    assert!(skipped.contains("none is skipped"), "{skipped}");
    assert!(refused("analyst", json!({ "contextId": "none", "goal": "x" })).await.contains("no workflow"));
    assert!(refused("coordinator", json!({ "contextId": "none" })).await.contains("no workflow"));
    stage.stop().await;
}
