//! The server dies in every phase, and the workflow goes on with nothing lost and nothing doubled.

use std::{collections::BTreeSet, path::Path};

use nuncio_engine::{State, Task, question::Question};
use nuncio_flows::sparc::{SparcOptions, SparcPhase};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::stage::{Stage, by_model, by_person, phase_of, tests_that, within, words};

/// One run of a server process.
struct Life {
    runtime: Runtime,
    stage: Stage,
}

impl Life {
    fn begin(folder: &Path, options: SparcOptions) -> Self {
        let runtime = Runtime::new().unwrap();
        let stage = runtime.block_on(Stage::open(folder, options));
        Self { runtime, stage }
    }

    fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(within(work))
    }

    /// The process dies here and now: every task of it stops at its next await and nothing is tidied up.
    fn cut(self) {
        let Self { runtime, stage } = self;
        runtime.shutdown_background();
        // What the system does for a process that is gone: its files are closed.
        Runtime::new().unwrap().block_on(within(stage.engine.store_for_tests().close())).unwrap();
    }
}

/// Drives a workflow through the coordinator, with a death before the first answer in every phase, and another after
/// it.
fn dies_in_every_phase(samples: bool, answer: fn(&Question) -> nuncio_engine::Part) {
    let folder = tempfile::tempdir().unwrap();
    let options = || tests_that("true");
    let mut life = Life::begin(folder.path(), options());
    let given = json!({ "contextId": "w", "goal": "Links that expire" });
    let task: Task = life.block_on(life.stage.begin("coordinator", given, samples));
    let (mut died_before, mut died_after) = (BTreeSet::new(), BTreeSet::new());
    let ended = loop {
        let mut last = None;
        let driven = life.stage.drive(&task, |question| {
            let phase = phase_of(question);
            last = Some(phase);
            // Before its question is answered.
            if died_before.insert(phase) {
                return None;
            }
            // With the answer given, and nothing known of what it did.
            if died_after.contains(&phase) { Some(answer(question)) } else { None }
        });
        let task = life.block_on(driven);
        if task.state.is_terminal() {
            break task;
        }
        let phase = last.unwrap();
        if died_before.contains(&phase) && !died_after.contains(&phase) {
            // Either it was just asked for the first time, or it is to be answered and cut right then.
            let (_, question) = task.questions.first().unwrap().clone();
            life.cut();
            life = Life::begin(folder.path(), options());
            died_after.insert(phase);
            let mut given = false;
            let answered = life.stage.drive(&task, |asked| {
                if given || asked.text != question.text {
                    return None;
                }
                given = true;
                Some(answer(asked))
            });
            // Ends at the next question at the latest; cut wherever the work is then.
            let _ = life.runtime.block_on(async {
                tokio::time::timeout(std::time::Duration::from_millis(3), answered).await
            });
            life.cut();
            life = Life::begin(folder.path(), options());
        }
    };
    assert_eq!(ended.state, State::Completed, "{}", words(&ended));
    assert_eq!((died_before.len(), died_after.len()), (5, 5));
    let workflow: Value = life.block_on(life.stage.status("w"));
    let versions: Vec<String> = workflow["artifacts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|note| format!("{} {}", note["phase"], note["version"]).replace('"', ""))
        .collect();
    let one_of_each: Vec<String> = SparcPhase::ALL.into_iter().map(|phase| format!("{phase} 1")).collect();
    assert_eq!(versions, one_of_each);
    assert_eq!(workflow["metadata"]["historyEntries"], 6);
    life.block_on(life.stage.engine.stop());
}

#[test]
fn with_a_model_the_server_dies_in_every_phase_and_the_workflow_goes_on() {
    dies_in_every_phase(true, by_model);
}

#[test]
fn with_forms_the_server_dies_in_every_phase_and_the_workflow_goes_on() {
    dies_in_every_phase(false, by_person);
}

/// The server is stopped while the tests of refinement run: they are killed with it, and run again after it.
#[test]
fn a_server_that_stops_while_tests_run_runs_them_again() {
    let folder = tempfile::tempdir().unwrap();
    // The first time it hangs, until it is killed; the second time it passes.
    let script = "test -e begun && exit 0; echo $$ > begun; exec sleep 600";
    let options = || SparcOptions { test_dir: Some(folder.path().into()), ..tests_that(script) };
    let life = Life::begin(folder.path(), options());
    let begun = folder.path().join("begun");
    let task = life.block_on(async {
        let given = json!({ "contextId": "w", "goal": "Links that expire" });
        let task = life.stage.begin("coordinator", given, true).await;
        let driving = life.stage.drive(&task, |question| Some(by_model(question)));
        let running = async {
            while !begun.exists() {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            ended = driving => panic!("it ended: {}", words(&ended)),
            () = running => {}
        }
        life.stage.engine.stop().await;
        task
    });
    let pid = std::fs::read_to_string(&begun).unwrap();
    drop(life);
    let life = Life::begin(folder.path(), options());
    let alive = std::fs::read_to_string(format!("/proc/{}/cmdline", pid.trim())).unwrap_or_default();
    assert!(!alive.contains("sleep"), "the tests outlived the server: {alive}");
    let ended = life.block_on(life.stage.drive(&task, |question| Some(by_model(question))));
    assert_eq!(ended.state, State::Completed, "{}", words(&ended));
    let workflow = life.block_on(life.stage.status("w"));
    assert_eq!(workflow["phases"]["refinement"]["attempts"], 1);
    life.block_on(life.stage.engine.stop());
}
