//! Drawings of a plan: text for terminals, Mermaid for documents, SVG for everything else. Drawing is deterministic.

use std::fmt::Write as _;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    file::Plan,
    graph::PlanGraph,
    status::{PlanStatus, SubtaskState},
};

/// The format of a drawing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PlanDrawing {
    /// Plain text, for a terminal.
    Text,
    /// A Mermaid flowchart.
    Mermaid,
    /// An SVG image.
    Svg,
}

/// Draws a plan, with the status of its subtasks where it is known.
pub fn draw(plan: &Plan, status: Option<&PlanStatus>, drawing: PlanDrawing) -> String {
    let graph = PlanGraph::of(plan);
    match drawing {
        PlanDrawing::Text => text(plan, &graph, status),
        PlanDrawing::Mermaid => mermaid(plan, &graph, status),
        PlanDrawing::Svg => svg(plan, &graph, status),
    }
}

fn state_of(status: Option<&PlanStatus>, id: &str) -> Option<SubtaskState> {
    status.and_then(|status| status.part(id)).map(|part| part.state)
}

/// One line per task, level by level: its mark, its id, its agent, its dependencies.
fn text(plan: &Plan, graph: &PlanGraph, status: Option<&PlanStatus>) -> String {
    let mut out = format!("{} ({} tasks)\n", plan.name, plan.tasks.len());
    let levels = graph.levels();
    let width = plan.tasks.iter().map(|task| task.id.chars().count()).max().unwrap_or(0);
    let whos: Vec<String> = plan.tasks.iter().map(|task| task.by.to_string()).collect();
    let who_width = whos.iter().map(|who| who.chars().count()).max().unwrap_or(0);
    for level in 0..=levels.iter().copied().max().unwrap_or(0) {
        for (n, task) in plan.tasks.iter().enumerate().filter(|(n, _)| levels[*n] == level) {
            let mark = state_of(status, &task.id).map_or("", SubtaskState::mark);
            let mark = if status.is_some() { format!("{mark} ") } else { String::new() };
            let branch = if level == 0 { "" } else { "└ " };
            let needs: Vec<&str> = graph.needs(n).iter().map(|need| plan.tasks[*need].id.as_str()).collect();
            let needs =
                if needs.is_empty() { String::new() } else { format!("  after {}", needs.join(", ")) };
            let optional = if task.optional { "  (optional)" } else { "" };
            let indent = "  ".repeat(level.min(8));
            let line = format!(
                "  {mark}{indent}{branch}{:width$}  {:who_width$}{needs}{optional}",
                task.id, whos[n]
            );
            out.push_str(line.trim_end());
            out.push('\n');
        }
    }
    let (path, _) = graph.critical_path(|_| 1.0);
    let path: Vec<&str> = path.iter().map(|n| plan.tasks[*n].id.as_str()).collect();
    let _ = writeln!(out, "longest way: {}", path.join(" -> "));
    out
}

fn mermaid(plan: &Plan, graph: &PlanGraph, status: Option<&PlanStatus>) -> String {
    let mut out = String::from("flowchart LR\n");
    for (n, task) in plan.tasks.iter().enumerate() {
        let label = format!("{}<br/>{}", task.id, quiet(&task.by.to_string()));
        let (open, close) = if task.optional { ("([", "])") } else { ("[", "]") };
        let _ = writeln!(out, "  t{n}{open}\"{label}\"{close}");
    }
    for n in 0..graph.len() {
        for need in graph.needs(n) {
            let _ = writeln!(out, "  t{need} --> t{n}");
        }
    }
    if status.is_some() {
        for state in SubtaskState::ALL {
            let of: Vec<String> = plan
                .tasks
                .iter()
                .enumerate()
                .filter(|(_, task)| state_of(status, &task.id) == Some(state))
                .map(|(n, _)| format!("t{n}"))
                .collect();
            if !of.is_empty() {
                let (fill, stroke) = state.colours();
                let _ = writeln!(out, "  classDef {} fill:{fill},stroke:{stroke}", state.name());
                let _ = writeln!(out, "  class {} {}", of.join(","), state.name());
            }
        }
    }
    out
}

/// Escapes characters that are syntax in Mermaid.
fn quiet(text: &str) -> String {
    text.replace('"', "'").replace(['<', '>', '`'], " ")
}

/// The size of a box, and the gap between boxes, in pixels.
const BOX: (usize, usize) = (180, 44);
const GAP: (usize, usize) = (60, 20);
const MARGIN: usize = 20;
/// Characters that fit into a box.
const FITS: usize = 24;

fn svg(plan: &Plan, graph: &PlanGraph, status: Option<&PlanStatus>) -> String {
    let levels = graph.levels();
    let columns = levels.iter().copied().max().unwrap_or(0) + 1;
    let mut rows = vec![0_usize; columns];
    let mut places = vec![(0, 0); graph.len()];
    for n in 0..graph.len() {
        let level = levels[n];
        places[n] = (MARGIN + level * (BOX.0 + GAP.0), MARGIN + rows[level] * (BOX.1 + GAP.1));
        rows[level] += 1;
    }
    let most = rows.iter().copied().max().unwrap_or(0);
    let (width, height) =
        (2 * MARGIN + columns * (BOX.0 + GAP.0) - GAP.0, 2 * MARGIN + most * (BOX.1 + GAP.1) - GAP.1);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<title>{}</title>\n",
        escaped(&plan.name)
    );
    out.push_str(
        "<defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"8\" markerHeight=\"8\" \
         orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" fill=\"#666\"/></marker></defs>\n",
    );
    for n in 0..graph.len() {
        for need in graph.needs(n) {
            let (x1, y1) = (places[*need].0 + BOX.0, places[*need].1 + BOX.1 / 2);
            let (x2, y2) = (places[n].0, places[n].1 + BOX.1 / 2);
            let half = (x1 + x2) / 2;
            let _ = writeln!(
                out,
                "<path d=\"M{x1} {y1}C{half} {y1} {half} {y2} {x2} {y2}\" fill=\"none\" stroke=\"#666\" marker-end=\"url(#tip)\"/>"
            );
        }
    }
    for (n, task) in plan.tasks.iter().enumerate() {
        let (x, y) = places[n];
        let (fill, stroke) = state_of(status, &task.id).unwrap_or(SubtaskState::Waiting).colours();
        let dashes = if task.optional { " stroke-dasharray=\"4 3\"" } else { "" };
        let _ = writeln!(
            out,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{}\" height=\"{}\" rx=\"6\" fill=\"{fill}\" stroke=\"{stroke}\"{dashes}/>",
            BOX.0, BOX.1
        );
        let (middle, first, second) = (x + BOX.0 / 2, y + 18, y + 34);
        let _ = writeln!(
            out,
            "<text x=\"{middle}\" y=\"{first}\" text-anchor=\"middle\" font-weight=\"bold\">{}</text>",
            escaped(&clipped(&task.id))
        );
        let _ = writeln!(
            out,
            "<text x=\"{middle}\" y=\"{second}\" text-anchor=\"middle\" fill=\"#444\">{}</text>",
            escaped(&clipped(&task.by.to_string()))
        );
    }
    out.push_str("</svg>\n");
    out
}

fn clipped(text: &str) -> String {
    if text.chars().count() <= FITS {
        return text.to_owned();
    }
    text.chars().take(FITS - 1).chain(['…']).collect()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
