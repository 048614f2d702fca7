//! The display of a running plan: on a terminal its graph, redrawn on every change; elsewhere a line for
//! every change; with `-o json` nothing.

use std::{
    collections::HashMap,
    io::{IsTerminal as _, stderr},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use nuncio_flows::plan::{SubtaskState, SubtaskStatus, api::PlanStatusAnswer};
use serde_json::Value;

use crate::{output::note, table::millis, text::plain};

/// Lines of the display beside the tasks.
const FRAME: usize = 4;
/// The most characters shown of one task's result.
const PARTIAL: usize = 2_000;
/// The fewest tasks shown, on however small a terminal.
const FEWEST: usize = 5;

pub(super) enum PlanDisplay {
    /// Shows nothing: the output is for programs.
    Silent,
    /// On a terminal.
    Graph(ProgressBar),
    /// In a file or a pipe: the last line about each task.
    Lines(HashMap<String, String>),
}

impl PlanDisplay {
    pub(super) fn new(for_programs: bool) -> Self {
        if for_programs {
            return Self::Silent;
        }
        if !stderr().is_terminal() {
            return Self::Lines(HashMap::new());
        }
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        // The template is a constant; an invalid one falls back to the default spinner.
        let style = ProgressStyle::with_template("{spinner} {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        bar.enable_steady_tick(Duration::from_millis(200));
        Self::Graph(bar)
    }

    /// Shows the plan's current status.
    pub(super) fn update_status(&mut self, status: &PlanStatusAnswer) {
        match self {
            Self::Silent => {}
            Self::Graph(bar) => {
                let (width, height) = terminal_size::terminal_size()
                    .map_or((80, 24), |(width, height)| (usize::from(width.0), usize::from(height.0)));
                bar.set_message(render_graph(status, width, height));
            }
            Self::Lines(said) => {
                for part in status.parts.iter().filter(|part| part.state != SubtaskState::Waiting) {
                    let state = render_part_state(part);
                    if said.get(&part.id) != Some(&state) {
                        note(&format!("{} {state} ({}/{})", plain(&part.id), status.over, status.total));
                        said.insert(part.id.clone(), state);
                    }
                }
            }
        }
    }

    /// Whether results of single tasks are shown.
    pub(super) fn is_seen(&self) -> bool {
        !matches!(self, Self::Silent)
    }

    /// Prints the result of a task while others run.
    pub(super) fn print_task_result(&self, task: &str, agent: &str, text: &str) {
        let text = text.trim();
        let shown: String = plain(text).chars().take(PARTIAL).collect();
        let more =
            if shown.chars().count() < text.chars().count() { " … (the result has all of it)" } else { "" };
        let said = format!("-- {task}, from {}:\n{shown}{more}", plain(agent));
        match self {
            Self::Silent => {}
            Self::Graph(bar) => bar.println(said),
            Self::Lines(_) => note(&said),
        }
    }

    /// Clears the display while the user is asked something.
    pub(super) fn hide(&self) {
        if let Self::Graph(bar) = self {
            bar.disable_steady_tick();
            bar.finish_and_clear();
        }
    }

    /// Draws it again.
    pub(super) fn show(&mut self) {
        if let Self::Graph(bar) = self {
            bar.reset();
            bar.enable_steady_tick(Duration::from_millis(200));
        }
    }
}

impl Drop for PlanDisplay {
    fn drop(&mut self) {
        self.hide();
    }
}

/// The graph. Where it does not fit, finished tasks are left out first.
fn render_graph(status: &PlanStatusAnswer, width: usize, height: usize) -> String {
    let name = plain(status.name.as_deref().unwrap_or("plan"));
    let mut lines = vec![format!("{name} ({}/{})", status.over, status.total)];
    let room = height.saturating_sub(FRAME).max(FEWEST);
    let all = &status.parts;
    let mut shown: Vec<bool> = all.iter().map(|_| true).collect();
    let mut too_many = all.len().saturating_sub(room);
    for give_way in [&[SubtaskState::Done, SubtaskState::Skipped][..], &[SubtaskState::Waiting]] {
        for (n, part) in all.iter().enumerate() {
            if too_many > 0 && shown[n] && give_way.contains(&part.state) {
                shown[n] = false;
                too_many -= 1;
            }
        }
    }
    let depth = depths(status);
    let widest = all.iter().map(|part| part.id.chars().count()).max();
    for (n, part) in all.iter().enumerate().filter(|(n, _)| shown[*n]).take(room) {
        let indent = "  ".repeat(depth.get(n).copied().unwrap_or(0).min(8));
        let line = format!(
            "  {} {indent}{id:width$}  {}",
            part.state.mark(),
            render_part_state(part),
            id = plain(&part.id),
            width = widest.unwrap_or(0)
        );
        lines.push(line.trim_end().chars().take(width.saturating_sub(1)).collect());
    }
    let hidden = shown.iter().filter(|shown| !**shown).count();
    if hidden > 0 {
        lines.push(format!("  … and {hidden} more"));
    }
    lines.join("\n")
}

/// The depth of each task: the longest chain of tasks before it. A need that is not in the plan does not
/// count.
fn depths(status: &PlanStatusAnswer) -> Vec<usize> {
    // The plan is that of the server, which may know keys that this program does not.
    let tasks = status.plan.as_ref().and_then(|plan| plan.get("tasks")).and_then(Value::as_array);
    let tasks: Vec<&Value> = tasks.into_iter().flatten().collect();
    let positions: HashMap<&str, usize> =
        tasks.iter().enumerate().filter_map(|(n, task)| Some((task["id"].as_str()?, n))).collect();
    let mut depths = vec![0; tasks.len()];
    for _ in 0..tasks.len() {
        let mut changed = false;
        for (n, task) in tasks.iter().enumerate() {
            let needs = task["needs"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let depth =
                needs.filter_map(|need| positions.get(need)).map(|need| depths[*need] + 1).max().unwrap_or(0);
            if depth > depths[n] {
                depths[n] = depth;
                changed = true;
            }
        }
        if !changed {
            break;
        }
    }
    depths
}

/// The state of a task in words.
fn render_part_state(part: &SubtaskStatus) -> String {
    let mut out = part.state.name().to_owned();
    if let Some(agent) = &part.agent {
        out.push_str(&format!(" by {}", plain(agent)));
    }
    if let Some(duration) = part.duration_ms {
        out.push_str(&format!(" in {}", millis(&duration)));
    }
    if let Some(why) = &part.why {
        out.push_str(&format!(": {}", plain(why).replace('\n', " ")));
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn status(name: &str, over: u64, tasks: &Value, parts: Vec<SubtaskStatus>) -> PlanStatusAnswer {
        PlanStatusAnswer {
            plan_id: "p".into(),
            state: "working".into(),
            name: Some(name.into()),
            message: None,
            plan: json!({ "tasks": tasks }).as_object().cloned(),
            over,
            total: parts.len() as u64,
            parts,
            result: None,
            provenance: None,
            results: None,
        }
    }

    #[test]
    fn a_graph_fits_its_terminal() {
        let part = |id: &str, state| SubtaskStatus {
            id: id.into(),
            state,
            agent: Some("a".into()),
            ..SubtaskStatus::default()
        };
        let tasks =
            json!([{ "id": "one" }, { "id": "two", "needs": ["one"] }, { "id": "three", "needs": ["two"] }]);
        let parts = vec![
            part("one", SubtaskState::Done),
            part("two", SubtaskState::Working),
            part("three", SubtaskState::Waiting),
        ];
        let trip = status("trip", 1, &tasks, parts);
        let lines = render_graph(&trip, 80, 24);
        assert_eq!(
            lines.lines().collect::<Vec<_>>(),
            [
                "trip (1/3)",
                "  ✔ one    done by a",
                "  ▶   two    working by a",
                "  ·     three  waiting by a"
            ]
        );
        let state = |n| if n < 48 { SubtaskState::Done } else { SubtaskState::Working };
        let many = (0..50).map(|n| part(&format!("t{n}"), state(n))).collect();
        let lines = render_graph(&status("big", 48, &json!([]), many), 80, 10);
        assert!(lines.contains("t48") && lines.contains("t49"), "what goes on is shown:\n{lines}");
        assert_eq!(lines.lines().count(), 1 + 6 + 1, "{lines}");
        assert!(lines.ends_with("… and 44 more"));
    }
}
