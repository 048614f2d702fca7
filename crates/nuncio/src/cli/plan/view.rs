//! A plan while it is worked on: on a terminal its graph, redrawn as it changes; elsewhere a line for every change;
//! nothing for programs.

use std::{
    collections::HashMap,
    io::{IsTerminal as _, stderr},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::Value;

use crate::cli::{output::note, table::millis, text::plain};

/// Lines beside the tasks.
const FRAME: usize = 4;
/// Characters that are shown of what one task came to.
const PARTIAL: usize = 2_000;
/// The fewest tasks that are shown, however low the terminal is.
const FEWEST: usize = 5;

/// What is shown of a plan.
pub(super) enum PlanDisplay {
    /// Nobody looks.
    Silent,
    /// On a terminal.
    Graph(ProgressBar),
    /// In a file or a pipe: what was said of each task.
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
        // The template is ours; one that is wrong falls back to a plain spinner.
        let style = ProgressStyle::with_template("{spinner} {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        bar.enable_steady_tick(Duration::from_millis(200));
        Self::Graph(bar)
    }

    /// The plan stands like this.
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

    /// Whether somebody looks who wants to see what the tasks come to.
    pub(super) fn is_seen(&self) -> bool {
        !matches!(self, Self::Silent)
    }

    /// What a task came to, while others go on.
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

    /// Takes it off the terminal while somebody is asked something.
    pub(super) fn hide(&self) {
        if let Self::Graph(bar) = self {
            bar.disable_steady_tick();
            bar.finish_and_clear();
        }
    }

    /// Shows it again.
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

/// The graph as it stands. Where it does not fit, what is over gives way first.
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

/// How many stand before each task, one after another. Those that are not in order yet stand at the left.
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

/// A task that has changed.
fn line(part: &Value, status: &Value) -> String {
    let id = plain(part["task"].as_str().unwrap_or_default());
    format!("{id} {} ({}/{})", render_part_state(part), status["over"], status["total"])
}

/// Where a task stands.
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
