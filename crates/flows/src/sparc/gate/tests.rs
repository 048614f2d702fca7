use serde_json::json;

use super::*;

/// The worked examples of the phases before one.
fn before(phase: SparcPhase) -> EarlierArtifacts {
    phase.earlier().iter().map(|phase| (*phase, PhaseTemplate::of(*phase).example().clone())).collect()
}

/// The gate's violations for the example of a phase after a change.
fn with(phase: SparcPhase, change: impl FnOnce(&mut Value)) -> Vec<String> {
    let mut artifact = PhaseTemplate::of(phase).example().clone();
    change(&mut artifact);
    inspect(phase, &artifact, &before(phase)).iter().map(ToString::to_string).collect()
}

fn check(phase: SparcPhase, change: impl FnOnce(&mut Value), expected: &[&str]) {
    let found = with(phase, change);
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for words in expected {
        assert!(found.iter().any(|found| found.contains(words)), "{words:?} in {found:#?}");
    }
}

#[test]
fn every_worked_example_passes_its_gate() {
    for phase in SparcPhase::ALL {
        let template = PhaseTemplate::of(phase);
        assert!(!template.examples.is_empty() && template.guidelines.lines().count() >= 5, "{phase}");
        for example in &template.examples {
            assert_eq!(inspect(phase, &example["artifact"], &before(phase)), [], "{phase}");
        }
        // A section for each property, and nothing else.
        let properties = template.validation["properties"].as_object().unwrap();
        assert_eq!(template.sections.keys().collect::<Vec<_>>(), properties.keys().collect::<Vec<_>>());
    }
    let keys = ["requirements", "goals", "constraints", "methodology", "acceptanceCriteria"];
    assert!(PhaseTemplate::of(SparcPhase::Specification).sections.keys().eq(keys));
}

#[test]
fn all_violations_are_named_with_their_places() {
    check(
        SparcPhase::Specification,
        |spec| {
            spec["requirements"][0]["priority"] = "urgent".into();
            spec["goals"] = json!([]);
            spec["unknown"] = true.into();
            drop(spec.as_object_mut().map(|spec| spec.shift_remove("methodology")));
        },
        &["/requirements/0/priority: ", "/goals: ", "unknown", "methodology"],
    );
    for nonsense in [json!(null), json!([]), json!("text"), json!({})] {
        for phase in SparcPhase::ALL {
            assert!(!inspect(phase, &nonsense, &before(phase)).is_empty(), "{phase} {nonsense}");
        }
    }
}

#[test]
fn a_specification_ties_every_criterion_to_a_requirement_and_every_requirement_to_a_criterion() {
    let phase = SparcPhase::Specification;
    check(
        phase,
        |spec| spec["acceptanceCriteria"][0]["requirement"] = "R9".into(),
        &["/acceptanceCriteria/0/requirement: there is no requirement \"R9\"", "about requirement \"R1\""],
    );
    check(
        phase,
        |spec| spec["requirements"][3]["id"] = "R2".into(),
        &["/requirements/3/id: \"R2\" is there twice", "there is no requirement \"R4\""],
    );
}

#[test]
fn pseudocode_covers_every_requirement_and_takes_nothing_from_nowhere() {
    let phase = SparcPhase::Pseudocode;
    check(
        phase,
        |code| code["steps"][0]["requirements"] = json!(["R1", "R3"]),
        &["covers requirement \"R4\""],
    );
    check(
        phase,
        |code| code["steps"][0]["requirements"] = json!(["R1", "R4", "R77"]),
        &["requirement \"R77\""],
    );
    check(
        phase,
        |code| code["steps"][1]["inputs"] = json!(["magic"]),
        &["/steps/1/inputs/0: \"magic\" comes from nowhere"],
    );
    check(
        phase,
        |code| code["steps"][0]["next"] = json!(["S9"]),
        &["/steps/0/next/0: there is no step \"S9\""],
    );
    check(phase, |code| code["outputs"] = json!(["gold"]), &["/outputs/0: no step has the output \"gold\""]);
}

#[test]
fn an_architecture_depends_on_what_exists_and_implements_every_step() {
    let phase = SparcPhase::Architecture;
    check(
        phase,
        |plan| plan["components"][0]["dependencies"] = json!(["cache"]),
        &["there is no component \"cache\""],
    );
    check(
        phase,
        |plan| plan["components"][0]["dependencies"] = json!(["front"]),
        &["does not depend on itself"],
    );
    check(phase, |plan| plan["components"][3]["implements"] = json!([]), &["implements step \"S4\""]);
    check(
        phase,
        |plan| plan["components"][3]["implements"] = json!(["S4", "S5"]),
        &["there is no step \"S5\""],
    );
}

#[test]
fn refinement_changes_components_that_exist_and_passes_only_with_its_tests() {
    let phase = SparcPhase::Refinement;
    check(
        phase,
        |made| made["changes"][0]["component"] = "cache".into(),
        &["there is no component \"cache\""],
    );
    check(
        phase,
        |made| made["tests"][0]["covers"] = json!(["A9"]),
        &["there is no acceptance criterion \"A9\""],
    );
    let report = |exit_code| CommandReport {
        command: vec!["make".into(), "test".into()],
        exit_code,
        failure: None,
        output: "3 passed, 1 failed".into(),
        ..CommandReport::unconfigured()
    };
    let verdict = |report| GateVerdict::new(vec![], Some(report), Timestamp(1));
    assert!(verdict(report(Some(0))).passed);
    let failed = verdict(report(Some(2)));
    assert!(!failed.passed);
    let words = failed.in_words();
    assert!(words.contains("\"make test\" ended with code 2") && words.contains("1 failed"), "{words}");
    assert!(verdict(report(None)).in_words().contains("by a signal"));
    assert!(verdict(CommandReport::unconfigured()).in_words().contains("sparc.test-command"));
}

#[test]
fn completion_needs_every_criterion_validated_with_evidence_and_something_written() {
    let phase = SparcPhase::Completion;
    check(
        phase,
        |done| done["validation"][2]["validated"] = false.into(),
        &["criterion \"A3\" is not validated"],
    );
    check(
        phase,
        |done| drop(done["validation"].as_array_mut().map(|all| all.remove(0))),
        &["\"A1\" is not there"],
    );
    check(phase, |done| done["validation"][0]["evidence"] = "".into(), &["/validation/0/evidence: "]);
    check(phase, |done| done["documentation"] = json!([]), &["/documentation: "]);
    check(
        phase,
        |done| done["validation"][0]["criterion"] = "A9".into(),
        &["criterion \"A9\"", "\"A1\" is not there"],
    );
}

#[test]
fn a_verdict_names_so_many_violations_and_says_how_many_more_there_are() {
    let many: Vec<String> = (0..MAX_VIOLATIONS + 7).map(|n| format!("N{n}")).collect();
    let mut code = PhaseTemplate::of(SparcPhase::Pseudocode).example().clone();
    code["steps"][0]["next"] = json!(many);
    let found = inspect(SparcPhase::Pseudocode, &code, &before(SparcPhase::Pseudocode));
    let verdict = GateVerdict::new(found, None, Timestamp(1));
    assert_eq!(verdict.violations.len(), MAX_VIOLATIONS + 1);
    assert!(verdict.in_words().ends_with("and 7 more violations\n"));
    assert!(verdict.in_short().ends_with(&format!(" (and {MAX_VIOLATIONS} more)")));
}

#[test]
fn a_violation_lists_some_of_the_names_that_there_are() {
    let mut spec = PhaseTemplate::of(SparcPhase::Specification).example().clone();
    let one = spec["requirements"][0].clone();
    let named = |n: usize| {
        let mut one = one.clone();
        one["id"] = format!("{n:0>30}").into();
        one
    };
    spec["requirements"] = (0..200).map(named).collect();
    let found = inspect(SparcPhase::Specification, &spec, &EarlierArtifacts::new());
    assert!(found.iter().all(|found| found.message.chars().count() <= MAX_EXPLANATION + 1), "{found:?}");
    let names: Vec<String> = (0..MAX_KNOWN + 3).map(|n| format!("R{n:0>2}")).collect();
    let known: BTreeSet<&str> = names.iter().map(String::as_str).collect();
    assert!(KnownNames(&known).to_string().ends_with("R08, R09 and 3 more"), "{}", KnownNames(&known));
}

/// Artifacts of nearly a megabyte in which everything is wrong: each check ends soon, with a short answer.
#[test]
fn however_large_and_wrong_an_artifact_is_the_answer_is_short() {
    let dangling = |n: usize| json!({ "id": format!("A{n}"), "requirement": format!("X{n}") });
    let mut many = PhaseTemplate::of(SparcPhase::Specification).example().clone();
    many["acceptanceCriteria"] = (0..25_000).map(dangling).collect();
    let empty = json!({ "requirements": vec![json!({}); 300_000], "goals": vec![0; 10_000] });
    let named: serde_json::Map<String, Value> = (0..60_000).map(|n| (format!("p{n}"), json!(n))).collect();
    let mut long = PhaseTemplate::of(SparcPhase::Specification).example().clone();
    long["methodology"] = "x".repeat(1 << 20).into();
    // As much as the schema permits, all of it about steps that do not exist.
    let mut plan = PhaseTemplate::of(SparcPhase::Architecture).example().clone();
    let mut component = plan["components"][0].clone();
    component["implements"] = (0..400).map(|n| format!("X{n}")).collect();
    let copy = |n: usize| {
        let mut copy = component.clone();
        copy["name"] = format!("component {n}").into();
        copy
    };
    plan["components"] = (0..200).map(copy).collect();
    let began = std::time::Instant::now();
    for (phase, artifact) in [
        (SparcPhase::Specification, many),
        (SparcPhase::Specification, empty),
        (SparcPhase::Specification, named.into()),
        (SparcPhase::Specification, long),
        (SparcPhase::Architecture, plan),
    ] {
        let found = inspect(phase, &artifact, &before(phase));
        assert!(!found.is_empty() && found.len() <= MAX_VIOLATIONS + 1, "{}", found.len());
        let size: usize = found.iter().map(|found| found.path.len() + found.message.len()).sum();
        assert!(size < 32 * 1024, "{size}");
    }
    assert!(began.elapsed() < std::time::Duration::from_secs(20), "{:?}", began.elapsed());
}
