use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::sparc::api::Violation;

fn ada() -> RecordedActor {
    RecordedActor { caller: "ada".into(), agent: None, task: None }
}

fn begun() -> Workflow {
    Workflow::start("w", "a goal", true, ada(), None, Timestamp(1)).workflow
}

fn passing() -> GateVerdict {
    GateVerdict { passed: true, checked_at: Timestamp(2), violations: vec![], command: None }
}

fn failing() -> GateVerdict {
    let violations = vec![Violation { path: "/goals".into(), message: "is missing".into() }];
    GateVerdict { passed: false, checked_at: Timestamp(2), violations, command: None }
}

fn submit(phase: SparcPhase, verdict: GateVerdict) -> WorkflowCommand {
    WorkflowCommand::Submit { phase, artifact: json!({}), size: 2, verdict }
}

fn decide(workflow: &Workflow, command: WorkflowCommand) -> Result<WorkflowChange, WorkflowRefusal> {
    workflow.decide(command, ada(), None, Timestamp(3), 10_000)
}

fn done() -> Workflow {
    SparcPhase::ALL.into_iter().fold(begun(), |workflow, phase| {
        decide(&workflow, submit(phase, passing())).unwrap_or_else(|why| panic!("{why}")).workflow
    })
}

#[test]
fn no_phase_is_skipped() {
    let workflow = begun();
    for phase in &SparcPhase::ALL[1..] {
        let refused = decide(&workflow, submit(*phase, passing()));
        assert_eq!(
            refused,
            Err(WorkflowRefusal::NotCurrent { phase: *phase, current: SparcPhase::Specification })
        );
    }
}

#[test]
fn a_phase_that_passes_hands_over_to_the_next_and_the_last_one_ends_the_workflow() {
    let workflow = done();
    assert!(workflow.is_done());
    assert_eq!(workflow.current, SparcPhase::Completion);
    assert_eq!(workflow.entries, 6);
    assert_eq!(decide(&workflow, submit(SparcPhase::Completion, passing())), Err(WorkflowRefusal::Done));
}

#[test]
fn a_gate_that_refuses_blocks_the_phase_and_the_next_artifact_is_another_version() {
    let blocked = decide(&begun(), submit(SparcPhase::Specification, failing())).unwrap();
    assert_eq!(blocked.workflow.phase(SparcPhase::Specification).status, PhaseStatus::Blocked);
    assert_eq!(blocked.workflow.current, SparcPhase::Specification);
    assert_eq!(blocked.entry.outcome, PhaseStatus::Blocked);
    let passed = decide(&blocked.workflow, submit(SparcPhase::Specification, passing())).unwrap();
    assert_eq!(passed.artifact.map(|artifact| artifact.note.version), Some(2));
    assert_eq!(passed.workflow.phase(SparcPhase::Specification).attempts, 2);
    assert_eq!(passed.workflow.current, SparcPhase::Pseudocode);
}

#[test]
fn going_back_needs_an_earlier_phase_and_a_reason_and_keeps_the_artifacts() {
    let workflow = done();
    let back = |to, reason: &str| decide(&workflow, WorkflowCommand::Back { to, reason: reason.into() });
    assert_eq!(back(SparcPhase::Pseudocode, "  "), Err(WorkflowRefusal::NoReason));
    let not_earlier =
        WorkflowRefusal::NotEarlier { to: SparcPhase::Completion, current: SparcPhase::Completion };
    assert_eq!(back(SparcPhase::Completion, "why not"), Err(not_earlier));
    let back = back(SparcPhase::Pseudocode, "a step is missing").unwrap().workflow;
    assert_eq!(back.current, SparcPhase::Pseudocode);
    assert_eq!(back.phase(SparcPhase::Specification).status, PhaseStatus::Passed);
    assert_eq!(back.phase(SparcPhase::Pseudocode).status, PhaseStatus::Active);
    assert_eq!(back.phase(SparcPhase::Architecture).status, PhaseStatus::Pending);
    assert_eq!(back.phase(SparcPhase::Architecture).passed_version, None);
    assert_eq!(back.artifacts.len(), 5);
    let again = decide(&back, submit(SparcPhase::Pseudocode, passing())).unwrap();
    assert_eq!(again.artifact.map(|artifact| artifact.note.version), Some(2));
}

#[test]
fn what_a_workflow_may_hold_is_bounded() {
    let full = begun().decide(submit(SparcPhase::Specification, passing()), ada(), None, Timestamp(3), 1);
    assert_eq!(full, Err(WorkflowRefusal::HistoryFull(1)));
    let mut workflow = begun();
    for _ in 0..MAX_VERSIONS {
        workflow = decide(&workflow, submit(SparcPhase::Specification, failing())).unwrap().workflow;
    }
    let refused = decide(&workflow, submit(SparcPhase::Specification, failing()));
    assert_eq!(refused, Err(WorkflowRefusal::TooManyVersions(SparcPhase::Specification)));
}

#[test]
fn a_change_is_found_by_its_key() {
    let first =
        begun().decide(submit(SparcPhase::Specification, failing()), ada(), Some("k1"), Timestamp(3), 100);
    let workflow = first.unwrap().workflow;
    assert_eq!((workflow.made_by("k1"), workflow.made_by("k2")), (Some(2), None));
}

fn command() -> impl Strategy<Value = WorkflowCommand> {
    let phase = || (0..5_usize).prop_map(|n| SparcPhase::ALL[n]);
    prop_oneof![
        4 => (phase(), any::<bool>())
            .prop_map(|(phase, passes)| submit(phase, if passes { passing() } else { failing() })),
        1 => (phase(), "[ a-z]{0,3}").prop_map(|(to, reason)| WorkflowCommand::Back { to, reason }),
        1 => (phase(), "[ a-z]{0,3}").prop_map(|(phase, reason)| WorkflowCommand::Block { phase, reason }),
    ]
}

proptest! {
    #[test]
    fn whatever_is_asked_for_the_phases_stay_in_their_order(commands in prop::collection::vec(command(), 0..60)) {
        let mut workflow = begun();
        for command in commands {
            let Ok(change) = decide(&workflow, command) else { continue };
            let next = change.workflow;
            // One entry per change, numbered without a gap; at most one phase further.
            prop_assert_eq!(next.entries, workflow.entries + 1);
            prop_assert_eq!(change.entry.n, next.entries);
            prop_assert!(next.current.index() <= workflow.current.index() + 1);
            for phase in SparcPhase::ALL {
                let state = next.phase(phase);
                let legal = match phase.cmp(&next.current) {
                    std::cmp::Ordering::Less => state.status == PhaseStatus::Passed,
                    std::cmp::Ordering::Greater => state.status == PhaseStatus::Pending,
                    std::cmp::Ordering::Equal => match state.status {
                        PhaseStatus::Active | PhaseStatus::Blocked => true,
                        PhaseStatus::Passed => phase == SparcPhase::Completion,
                        PhaseStatus::Pending => false,
                    },
                };
                prop_assert!(legal, "{phase} is {:?} while {} is the current one", state.status, next.current);
                // The version that passed exists, and is marked as passed.
                let passed = state.passed_version.map(|version| {
                    next.artifacts.iter().any(|note| note.phase == phase && note.version == version && note.passed)
                });
                prop_assert_eq!(passed, (state.status == PhaseStatus::Passed).then_some(true));
                // Versions are numbered from 1 without a gap.
                let versions: Vec<u32> =
                    next.artifacts.iter().filter(|note| note.phase == phase).map(|note| note.version).collect();
                prop_assert_eq!(&versions, &(1..=versions.len() as u32).collect::<Vec<_>>());
                prop_assert_eq!(versions.len() as u32, state.attempts);
            }
            workflow = next;
        }
    }
}
