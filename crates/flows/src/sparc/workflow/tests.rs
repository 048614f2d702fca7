use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::sparc::gate::Violation;

fn ada() -> By {
    By { caller: "ada".into(), agent: None, task: None }
}

fn begun() -> Workflow {
    Workflow::start("w", "a goal", true, ada(), None, Timestamp(1)).workflow
}

fn passing() -> Verdict {
    Verdict { passed: true, checked_at: Timestamp(2), violations: vec![], command: None }
}

fn failing() -> Verdict {
    let violations = vec![Violation { path: "/goals".into(), message: "is missing".into() }];
    Verdict { passed: false, checked_at: Timestamp(2), violations, command: None }
}

fn submit(phase: Phase, verdict: Verdict) -> Command {
    Command::Submit { phase, artifact: json!({}), size: 2, verdict }
}

fn decide(workflow: &Workflow, command: Command) -> Result<Change, Refusal> {
    workflow.decide(command, ada(), None, Timestamp(3), 10_000)
}

fn done() -> Workflow {
    Phase::ALL.into_iter().fold(begun(), |workflow, phase| {
        decide(&workflow, submit(phase, passing())).unwrap_or_else(|why| panic!("{why}")).workflow
    })
}

#[test]
fn no_phase_is_skipped() {
    let workflow = begun();
    for phase in &Phase::ALL[1..] {
        let refused = decide(&workflow, submit(*phase, passing()));
        assert_eq!(refused, Err(Refusal::NotCurrent { phase: *phase, current: Phase::Specification }));
    }
}

#[test]
fn a_phase_that_passes_hands_over_to_the_next_and_the_last_one_ends_the_workflow() {
    let workflow = done();
    assert!(workflow.is_done());
    assert_eq!(workflow.current, Phase::Completion);
    assert_eq!(workflow.entries, 6);
    assert_eq!(decide(&workflow, submit(Phase::Completion, passing())), Err(Refusal::Done));
}

#[test]
fn a_gate_that_refuses_blocks_the_phase_and_the_next_artifact_is_another_version() {
    let blocked = decide(&begun(), submit(Phase::Specification, failing())).unwrap();
    assert_eq!(blocked.workflow.phase(Phase::Specification).status, Status::Blocked);
    assert_eq!(blocked.workflow.current, Phase::Specification);
    assert_eq!(blocked.entry.outcome, Status::Blocked);
    let passed = decide(&blocked.workflow, submit(Phase::Specification, passing())).unwrap();
    assert_eq!(passed.artifact.map(|artifact| artifact.note.version), Some(2));
    assert_eq!(passed.workflow.phase(Phase::Specification).attempts, 2);
    assert_eq!(passed.workflow.current, Phase::Pseudocode);
}

#[test]
fn going_back_needs_an_earlier_phase_and_a_reason_and_keeps_the_artifacts() {
    let workflow = done();
    let back = |to, reason: &str| decide(&workflow, Command::Back { to, reason: reason.into() });
    assert_eq!(back(Phase::Pseudocode, "  "), Err(Refusal::NoReason));
    let not_earlier = Refusal::NotEarlier { to: Phase::Completion, current: Phase::Completion };
    assert_eq!(back(Phase::Completion, "why not"), Err(not_earlier));
    let back = back(Phase::Pseudocode, "a step is missing").unwrap().workflow;
    assert_eq!(back.current, Phase::Pseudocode);
    assert_eq!(back.phase(Phase::Specification).status, Status::Passed);
    assert_eq!(back.phase(Phase::Pseudocode).status, Status::Active);
    assert_eq!(back.phase(Phase::Architecture).status, Status::Pending);
    assert_eq!(back.phase(Phase::Architecture).passed_version, None);
    assert_eq!(back.artifacts.len(), 5);
    let again = decide(&back, submit(Phase::Pseudocode, passing())).unwrap();
    assert_eq!(again.artifact.map(|artifact| artifact.note.version), Some(2));
}

#[test]
fn what_a_workflow_may_hold_is_bounded() {
    let full = begun().decide(submit(Phase::Specification, passing()), ada(), None, Timestamp(3), 1);
    assert_eq!(full, Err(Refusal::HistoryFull(1)));
    let mut workflow = begun();
    for _ in 0..MAX_VERSIONS {
        workflow = decide(&workflow, submit(Phase::Specification, failing())).unwrap().workflow;
    }
    let refused = decide(&workflow, submit(Phase::Specification, failing()));
    assert_eq!(refused, Err(Refusal::TooManyVersions(Phase::Specification)));
}

#[test]
fn a_change_is_found_by_its_key() {
    let first = begun().decide(submit(Phase::Specification, failing()), ada(), Some("k1"), Timestamp(3), 100);
    let workflow = first.unwrap().workflow;
    assert_eq!((workflow.made_by("k1"), workflow.made_by("k2")), (Some(2), None));
}

fn command() -> impl Strategy<Value = Command> {
    let phase = || (0..5_usize).prop_map(|n| Phase::ALL[n]);
    prop_oneof![
        4 => (phase(), any::<bool>())
            .prop_map(|(phase, passes)| submit(phase, if passes { passing() } else { failing() })),
        1 => (phase(), "[ a-z]{0,3}").prop_map(|(to, reason)| Command::Back { to, reason }),
        1 => (phase(), "[ a-z]{0,3}").prop_map(|(phase, reason)| Command::Block { phase, reason }),
    ]
}

proptest! {
    #[test]
    fn whatever_is_asked_for_the_phases_stay_in_their_order(commands in prop::collection::vec(command(), 0..60)) {
        let mut workflow = begun();
        for command in commands {
            let Ok(change) = decide(&workflow, command) else { continue };
            let next = change.workflow;
            // One entry a change, numbered without a gap; at most one phase further.
            prop_assert_eq!(next.entries, workflow.entries + 1);
            prop_assert_eq!(change.entry.n, next.entries);
            prop_assert!(next.current.index() <= workflow.current.index() + 1);
            for phase in Phase::ALL {
                let state = next.phase(phase);
                let legal = match phase.cmp(&next.current) {
                    std::cmp::Ordering::Less => state.status == Status::Passed,
                    std::cmp::Ordering::Greater => state.status == Status::Pending,
                    std::cmp::Ordering::Equal => match state.status {
                        Status::Active | Status::Blocked => true,
                        Status::Passed => phase == Phase::Completion,
                        Status::Pending => false,
                    },
                };
                prop_assert!(legal, "{phase} is {:?} while {} is the current one", state.status, next.current);
                // What passed is there, and did pass.
                let passed = state.passed_version.map(|version| {
                    next.artifacts.iter().any(|note| note.phase == phase && note.version == version && note.passed)
                });
                prop_assert_eq!(passed, (state.status == Status::Passed).then_some(true));
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
