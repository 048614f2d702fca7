//! The pulse of this node, in columns, and the topic `pulse` of a live stream.

use std::{collections::BTreeSet, sync::Arc};

use nuncio_engine::{
    clock::Timestamp,
    engine::{OTHER_AGENTS, PULSE_INTERVALS, PulseCounts, PulseInterval, PulseWatch},
};
use nuncio_wire::timestamp;
use serde_json::{Map, Value, json};

use super::{
    api::ConsoleRequest,
    live::{FrameSender, ReaderGone, TopicEnd},
    problem::ConsoleProblem,
};

/// `GET /pulse`
pub(super) fn show(request: &ConsoleRequest<'_>) -> Result<Value, ConsoleProblem> {
    request.check_parameters(&["agent"])?;
    let engine = request.engine();
    let history = engine.pulse(&request.caller)?;
    let length = engine.options().pulse_interval.as_millis().max(1) as i64;
    // Every interval of the window has a place, also those that were not measured.
    let last = engine.clock().now().0 / length * length - length;
    let first = last - (PULSE_INTERVALS as i64 - 1) * length;
    let mut window: Vec<Option<&PulseInterval>> = vec![None; PULSE_INTERVALS];
    for interval in &history {
        let at = (interval.began.0 - first) / length;
        if let Some(place) = usize::try_from(at).ok().and_then(|at| window.get_mut(at)) {
            *place = Some(interval);
        }
    }
    let wanted = request.parameters("agent");
    let names: BTreeSet<&Arc<str>> =
        history.iter().flat_map(|interval| interval.agents.iter().map(|(name, _)| name)).collect();
    let agents: Vec<Value> = names
        .into_iter()
        .filter(|name| wanted.is_empty() || wanted.contains(&&***name))
        .map(|name| {
            let counts = |interval: &PulseInterval| {
                let found = interval.agents.iter().find(|(agent, _)| agent == name);
                // Measured, and nothing happened.
                found.map(|(_, counts)| *counts).unwrap_or_default()
            };
            let mut columns = columns(&window, counts);
            columns.insert("agent".into(), agent_name(name));
            Value::Object(columns)
        })
        .collect();
    let mut total = columns(&window, |interval| interval.total);
    let column = |read: fn(&PulseInterval) -> u64| -> Value {
        window.iter().map(|interval| interval.map(read).map_or(Value::Null, Value::from)).collect()
    };
    total.insert("queued".into(), column(|interval| interval.queued));
    total.insert("running".into(), column(|interval| interval.running));
    Ok(json!({
        "node": engine.node().0.to_string(),
        "intervalMs": length,
        "from": timestamp::format(Timestamp(first)),
        "until": timestamp::format(Timestamp(last + length)),
        "total": total,
        "agents": agents,
        "liveCursor": history.last().map(|interval| live_cursor(interval.began)),
        "now": request.now(),
    }))
}

/// The agents beyond the limit have no name.
fn agent_name(name: &str) -> Value {
    if name == OTHER_AGENTS { Value::Null } else { name.into() }
}

/// One array for each figure, with null where nothing was measured; and the figures of all of it.
fn columns(
    window: &[Option<&PulseInterval>],
    counts: impl Fn(&PulseInterval) -> PulseCounts,
) -> Map<String, Value> {
    let counted: Vec<Option<PulseCounts>> = window.iter().map(|interval| interval.map(&counts)).collect();
    let mut all = PulseCounts::default();
    for counts in counted.iter().flatten() {
        all.add(counts);
    }
    let mut columns: Map<String, Value> = figures(&PulseCounts::default())
        .into_iter()
        .map(|(name, _)| (name, Value::Array(Vec::with_capacity(window.len()))))
        .collect();
    for counts in &counted {
        let mut row = counts.as_ref().map(figures).unwrap_or_default();
        for (name, column) in &mut columns {
            if let Value::Array(column) = column {
                column.push(row.remove(name).unwrap_or(Value::Null));
            }
        }
    }
    columns.insert("all".into(), figures(&all).into());
    columns
}

/// The figures of one interval, or of several; a duration is null where no task ended.
fn figures(counts: &PulseCounts) -> Map<String, Value> {
    Map::from_iter([
        ("sends".to_owned(), json!(counts.sends)),
        ("events".to_owned(), json!(counts.events)),
        ("commits".to_owned(), json!(counts.commits)),
        ("ended".to_owned(), json!(counts.ended)),
        ("failed".to_owned(), json!(counts.failed)),
        ("p50Ms".to_owned(), json!(counts.duration_ms(0.5))),
        ("p99Ms".to_owned(), json!(counts.duration_ms(0.99))),
    ])
}

fn live_cursor(began: Timestamp) -> String {
    format!("p-{:x}", began.0)
}

/// The intervals of this node, as they end.
pub(super) struct PulseTopic {
    key: String,
    watch: PulseWatch,
    after: Option<String>,
}

impl PulseTopic {
    pub(super) fn prepare(
        request: &ConsoleRequest<'_>,
        key: String,
        after: Option<String>,
    ) -> Result<Self, ConsoleProblem> {
        let watch = request.engine().watch_pulse(&request.caller)?;
        Ok(Self { key, watch, after })
    }

    pub(super) async fn run(mut self, frames: &FrameSender) -> TopicEnd {
        match self.follow(frames).await {
            Ok(()) | Err(ReaderGone) => TopicEnd::Done,
        }
    }

    async fn follow(&mut self, frames: &FrameSender) -> Result<(), ReaderGone> {
        let key = &self.key;
        let cursor = self.watch.newest().map(live_cursor);
        if self.after.is_some() && self.after != cursor {
            let why = "intervals have ended meanwhile, or another node answers";
            frames.send("gap", &json!({ "key": key, "cursor": cursor, "why": why })).await?;
        }
        frames.send("caught-up", &json!({ "key": key, "cursor": cursor })).await?;
        while let Some(interval) = self.watch.next().await {
            let mut total = figures(&interval.total);
            total.insert("queued".into(), interval.queued.into());
            total.insert("running".into(), interval.running.into());
            let agents = interval.agents.iter().map(|(name, counts)| {
                let mut figures = figures(counts);
                figures.insert("agent".into(), agent_name(name));
                figures
            });
            let frame = json!({
                "key": key,
                "cursor": live_cursor(interval.began),
                "at": timestamp::format(interval.began),
                "total": total,
                "agents": agents.collect::<Vec<_>>(),
            });
            frames.send("pulse", &frame).await?;
        }
        Ok(())
    }
}
