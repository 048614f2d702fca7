//! What the log and the metrics say about tasks: a line when one is created and when it ends, and counts by agent.
//!
//! The lines have ids, names of agents and words of this program. What an agent or a caller said is not in them: the reason of a
//! failure is that of the server or of the connection to the agent, and an agent's own words are in the task.

use metrics::{Counter, Histogram};

use super::EngineCore;
use crate::{
    clock::Timestamp,
    commit::Writer,
    event::{Entry, Event},
    metric,
    task::{State, TaskId},
};

/// The target of these lines, for filters such as `info,nuncio::task=warn`.
pub const TASK_LOG_TARGET: &str = "nuncio::task";
/// The longest reason of a failure, in bytes.
const MAX_REASON: usize = 300;
/// The reason of a failure that the agent itself declared.
const AGENTS_OWN: &str = "the agent says so: see the task's last message";

/// The final states, in the order of [`AgentMetrics::ended`].
const FINAL: [State; 5] = [State::Completed, State::Failed, State::Canceled, State::Rejected, State::Replied];

/// The metrics of one agent's tasks.
pub(crate) struct AgentMetrics {
    created: Counter,
    ended: [Counter; FINAL.len()],
    duration: Histogram,
}

impl AgentMetrics {
    /// Registers all of them, so that each is there from the first scrape on.
    pub(super) fn new(label: &str) -> Self {
        Self {
            created: metric::TASKS_CREATED.counter(&[label]),
            ended: FINAL.map(|state| metric::TASKS_ENDED.counter(&[label, state.name()])),
            duration: metric::TASK_DURATION.histogram(&[label]),
        }
    }

    pub(super) fn count_created(&self) {
        self.created.increment(1);
    }

    /// Counts an end, that many milliseconds after the creation.
    pub(super) fn count_end(&self, state: State, lasted_ms: Option<u64>) {
        if let Some(at) = FINAL.iter().position(|known| *known == state) {
            self.ended[at].increment(1);
        }
        if let Some(lasted_ms) = lasted_ms {
            self.duration.record(lasted_ms as f64 / 1000.0);
        }
    }
}

impl EngineCore {
    /// Logs a durable change that creates or ends a task. A task that is created ended has one line.
    pub(crate) fn log_task_change(&self, writer: &Writer<'_>, creates: bool, entries: &[Entry]) {
        let end = entries.iter().rev().find_map(|entry| match entry.event() {
            Event::Status(status) if status.state.is_terminal() => Some((entry.at(), status.state)),
            _ => None,
        });
        let (task, agent) = (writer.task(), writer.agent());
        match end {
            Some((at, state)) => log_end(writer, at, state),
            None if creates => tracing::info!(target: TASK_LOG_TARGET, %task, agent, "task created"),
            None => {}
        }
    }
}

fn log_end(writer: &Writer<'_>, at: Timestamp, state: State) {
    let (task, agent, state_name) = (writer.task(), writer.agent(), state.name());
    let seconds = lasted_ms(task, at).unwrap_or_default() as f64 / 1000.0;
    if state != State::Failed {
        tracing::info!(target: TASK_LOG_TARGET, %task, agent, state = state_name, seconds, "task ended");
        return;
    }
    let reason = match writer {
        Writer::Run(run, _) => run.failure.get().map_or(AGENTS_OWN, String::as_str),
        Writer::Command(_) | Writer::Node(_) => AGENTS_OWN,
    };
    let reason = &reason[..reason.floor_char_boundary(MAX_REASON)];
    tracing::warn!(target: TASK_LOG_TARGET, %task, agent, state = state_name, seconds, reason, "task failed");
}

/// Time from a task's creation, which its id begins with.
pub(super) fn lasted_ms(task: TaskId, at: Timestamp) -> Option<u64> {
    let (seconds, nanos) = task.0.get_timestamp()?.to_unix();
    let created = i64::try_from(seconds).ok()? * 1000 + i64::from(nanos / 1_000_000);
    u64::try_from(at.0.saturating_sub(created)).ok()
}
