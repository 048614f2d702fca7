//! Workflows as text: one workflow, its history, and the list.

use nuncio_flows::sparc::{
    PhaseStatus, SparcPhase,
    api::{
        ArtifactSummary, GateAnswer, PhaseAnswer, SparcHistoryRequest, SparcListRequest, SparcStartRequest,
        SparcStatusRequest, WorkflowAnswer, WorkflowHistoryAnswer, WorkflowListAnswer,
    },
};
use serde_json::Value;

use crate::{
    error::CliError,
    program,
    server_connection::{ServerConnection, quoted},
    table::{Table, age, bytes, cell},
    text::TextOutput,
    typed_answer::TypedAnswer,
};

pub(super) async fn start(
    shared: &ServerConnection,
    goal: &str,
    context: Option<&str>,
) -> Result<(), CliError> {
    let request = SparcStartRequest {
        context_id: context.map(str::to_owned),
        goal: goal.to_owned(),
        batchtools_enabled: None,
    };
    let started = shared.call_typed::<WorkflowAnswer>("sparc_start", &request).await?;
    shared.print_typed(&started, |started| {
        let (id, phase, flags) = (&started.context_id, started.current_phase, shared.flags());
        let mut text = TextOutput::default();
        text.field("Workflow", id);
        text.field("Phase", phase.name());
        text.field("Brief", &format!("{} sparc template {phase}{flags}", program()));
        text.field("Next", &format!("{} sparc submit {id}{flags} FILE", program()));
        text.0
    })
}

pub(super) async fn list(
    shared: &ServerConnection,
    limit: usize,
    after: Option<&str>,
) -> Result<(), CliError> {
    let request = SparcListRequest { prefix: None, after: after.map(str::to_owned), limit: Some(limit) };
    let found = shared.call_typed::<WorkflowListAnswer>("sparc_list", &request).await?;
    shared.print_typed(&found, |found| {
        let mut table = Table::new(&["WORKFLOW", "PHASE", "STATUS", "STARTED", "GOAL"]).whole(&["WORKFLOW"]);
        for workflow in &found.workflows {
            table.row([
                workflow.context_id.clone(),
                workflow.current_phase.to_string(),
                if workflow.done { "done".to_owned() } else { cell(&workflow.status) },
                age(&workflow.start_time),
                workflow.goal.clone(),
            ]);
        }
        if table.is_empty() {
            return "There are no workflows.\n".to_owned();
        }
        let mut text = TextOutput(table.show());
        if let Some(next) = &found.next {
            text.gap();
            text.field(
                "Next",
                &format!("{} sparc list{} --after {}", program(), shared.flags(), quoted(next)),
            );
        }
        text.0
    })
}

pub(super) async fn workflow(shared: &ServerConnection, context: &str) -> Result<(), CliError> {
    let request = SparcStatusRequest { context_id: context.to_owned() };
    print(shared, &shared.call_typed("sparc_status", &request).await?)
}

/// Prints a whole workflow.
pub(super) fn print(
    shared: &ServerConnection,
    workflow: &TypedAnswer<WorkflowAnswer>,
) -> Result<(), CliError> {
    shared.print_typed(workflow, |workflow| {
        let mut text = TextOutput::default();
        text.field("Workflow", &workflow.context_id);
        text.field("Goal", &workflow.metadata.goal);
        let done = if workflow.done { " (all phases have passed)" } else { "" };
        text.field("Phase", &format!("{}{done}", workflow.current_phase));
        text.field("Started", &age(&workflow.metadata.start_time));
        text.gap();
        text.0.push_str(&phase_table(workflow));
        if !workflow.artifacts.is_empty() {
            text.gap();
            text.0.push_str(&artifact_table(&workflow.artifacts));
        }
        text.0
    })
}

fn phase_table(workflow: &WorkflowAnswer) -> String {
    let mut table = Table::new(&["PHASE", "STATUS", "ATTEMPTS ", "PASSED", "GATE"]);
    for (name, phase) in phases(workflow) {
        table.row([
            name.to_string(),
            cell(&phase.status),
            cell(&phase.attempts),
            age(&phase.passed_at),
            gate_words(phase),
        ]);
    }
    table.show()
}

/// The phases, in order.
fn phases(workflow: &WorkflowAnswer) -> [(SparcPhase, &PhaseAnswer); 5] {
    let phases = &workflow.phases;
    SparcPhase::ALL.map(|phase| match phase {
        SparcPhase::Specification => (phase, &phases.specification),
        SparcPhase::Pseudocode => (phase, &phases.pseudocode),
        SparcPhase::Architecture => (phase, &phases.architecture),
        SparcPhase::Refinement => (phase, &phases.refinement),
        SparcPhase::Completion => (phase, &phases.completion),
    })
}

/// What blocks a phase, if anything does.
fn gate_words(phase: &PhaseAnswer) -> String {
    let problems = phase.gate.as_ref().map(problems).unwrap_or_default();
    let mut words: Vec<String> = phase.reason.clone().into_iter().collect();
    match problems.as_slice() {
        [] => {}
        [one] => words.push(one.clone()),
        [first, more @ ..] => words.push(format!("{first} (and {} more)", more.len())),
    }
    words.join("; ")
}

fn artifact_table(artifacts: &[ArtifactSummary]) -> String {
    let mut table = Table::new(&["ARTIFACT", "VERSION ", "SIZE ", "PASSED", "CREATED"]);
    for artifact in artifacts {
        table.row([
            artifact.uri.clone(),
            cell(&artifact.version),
            bytes(&artifact.size),
            cell(&artifact.passed),
            age(&artifact.created),
        ]);
    }
    table.show()
}

/// The violations that a gate found.
pub(super) fn problems(gate: &GateAnswer) -> Vec<String> {
    gate.violations.iter().map(ToString::to_string).collect()
}

/// The number of passed phases.
pub(super) fn passed(workflow: &WorkflowAnswer) -> u64 {
    phases(workflow).iter().filter(|(_, phase)| phase.status == PhaseStatus::Passed).count() as u64
}

pub(super) async fn history(shared: &ServerConnection, context: &str) -> Result<(), CliError> {
    let mut request = SparcHistoryRequest { context_id: context.to_owned(), after: None, limit: None };
    let mut whole: TypedAnswer<WorkflowHistoryAnswer> =
        shared.call_typed_with_retry("sparc_history", &request).await?;
    // All pages; the server bounds how much that can be.
    while let Some(next) = whole.value.next {
        request.after = Some(next);
        let mut page: TypedAnswer<WorkflowHistoryAnswer> =
            shared.call_typed_with_retry("sparc_history", &request).await?;
        whole.value.next = page.value.next;
        whole.value.entries.extend(page.value.entries);
        whole.json["next"] = page.json["next"].take();
        if let (Some(entries), Value::Array(more)) =
            (whole.json["entries"].as_array_mut(), page.json["entries"].take())
        {
            entries.extend(more);
        }
    }
    shared.print_typed(&whole, |whole| {
        let mut table = Table::new(&["N ", "WHEN", "WHO", "WHAT", "PHASE", "VERSION ", "OUTCOME", "DETAIL"]);
        for entry in &whole.entries {
            table.row([
                cell(&entry.n),
                age(&entry.when),
                entry.who.agent.clone().unwrap_or_else(|| entry.who.caller.clone()),
                cell(&entry.what),
                entry.phase.to_string(),
                cell(&entry.version),
                cell(&entry.outcome),
                cell(&entry.detail),
            ]);
        }
        table.show()
    })
}
