//! The display of a running plan: on a terminal its graph, redrawn on every change; elsewhere a line for
//! every change; with `-o json` nothing.

use std::{
    collections::HashMap,
    io::{IsTerminal as _, stderr},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
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
    pub(super) fn update_status(&mut self, status: &Value) {
        match self {
            Self::Silent => {}
            Self::Graph(bar) => {
                let (width, height) = terminal_size::terminal_size()
                    .map_or((80, 24), |(width, height)| (usize::from(width.0), usize::from(height.0)));
                bar.set_message(render_graph(status, width, height));
            }
            Self::Lines(said) => {
                for part in parts(status) {
                    let line = line(part, status);
                    let id = part["task"].as_str().unwrap_or_default();
                    if part["state"] != "waiting" && said.get(id) != Some(&render_part_state(part)) {
                        said.insert(id.to_owned(), render_part_state(part));
                        note(&line);
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

fn parts(status: &Value) -> impl Iterator<Item = &Value> {
    status["parts"].as_array().into_iter().flatten()
}

/// The graph. Where it does not fit, finished tasks are left out first.
fn render_graph(status: &Value, width: usize, height: usize) -> String {
    let name = plain(status["name"].as_str().unwrap_or("plan"));
    let mut lines = vec![format!("{name} ({}/{})", status["over"], status["total"])];
    let room = height.saturating_sub(FRAME).max(FEWEST);
    let all: Vec<&Value> = parts(status).collect();
    let is_over = |part: &Value| matches!(part["state"].as_str(), Some("done" | "skipped"));
    let mut shown: Vec<bool> = all.iter().map(|_| true).collect();
    let mut too_many = all.len().saturating_sub(room);
    for pass in [true, false] {
        for (n, part) in all.iter().enumerate() {
            let gives_way = if pass { is_over(part) } else { part["state"] == "waiting" };
            if too_many > 0 && shown[n] && gives_way {
                shown[n] = false;
                too_many -= 1;
            }
        }
    }
    let depth = depths(status);
    let widest = all.iter().filter_map(|part| part["task"].as_str()).map(|id| id.chars().count()).max();
    for (n, part) in all.iter().enumerate().filter(|(n, _)| shown[*n]).take(room) {
        let indent = "  ".repeat(depth.get(n).copied().unwrap_or(0).min(8));
        let id = plain(part["task"].as_str().unwrap_or_default());
        let line = format!(
            "  {} {indent}{id:width$}  {}",
            mark(part),
            render_part_state(part),
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
fn depths(status: &Value) -> Vec<usize> {
    let tasks: Vec<&Value> = status["plan"]["tasks"].as_array().into_iter().flatten().collect();
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

fn mark(part: &Value) -> &'static str {
    match part["state"].as_str() {
        Some("working") => "▶",
        Some("retrying") => "↻",
        Some("done") => "✔",
        Some("failed") => "✘",
        Some("skipped") => "−",
        _ => "·",
    }
}

/// The line about a changed task.
fn line(part: &Value, status: &Value) -> String {
    let id = plain(part["task"].as_str().unwrap_or_default());
    format!("{id} {} ({}/{})", render_part_state(part), status["over"], status["total"])
}

/// The state of a task in words.
fn render_part_state(part: &Value) -> String {
    let mut out = part["state"].as_str().unwrap_or_default().to_owned();
    if let Some(agent) = part["agent"].as_str() {
        out.push_str(&format!(" by {}", plain(agent)));
    }
    if part["durationMs"].is_number() {
        out.push_str(&format!(" in {}", millis(&part["durationMs"])));
    }
    if let Some(why) = part["why"].as_str() {
        out.push_str(&format!(": {}", plain(why).replace('\n', " ")));
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_graph_fits_its_terminal() {
        let part = |id: &str, state: &str| json!({ "task": id, "state": state, "agent": "a", "why": null });
        let status = json!({
            "name": "trip", "over": 1, "total": 3,
            "plan": { "tasks": [{ "id": "one" }, { "id": "two", "needs": ["one"] }, { "id": "three", "needs": ["two"] }] },
            "parts": [part("one", "done"), part("two", "working"), part("three", "waiting")],
        });
        let lines = render_graph(&status, 80, 24);
        assert_eq!(
            lines.lines().collect::<Vec<_>>(),
            [
                "trip (1/3)",
                "  ✔ one    done by a",
                "  ▶   two    working by a",
                "  ·     three  waiting by a"
            ]
        );
        let many: Vec<Value> =
            (0..50).map(|n| part(&format!("t{n}"), if n < 48 { "done" } else { "working" })).collect();
        let status =
            json!({ "name": "big", "over": 48, "total": 50, "plan": { "tasks": [] }, "parts": many });
        let lines = render_graph(&status, 80, 10);
        assert!(lines.contains("t48") && lines.contains("t49"), "what goes on is shown:\n{lines}");
        assert_eq!(lines.lines().count(), 1 + 6 + 1, "{lines}");
        assert!(lines.ends_with("… and 44 more"));
    }
}
