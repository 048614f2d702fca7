//! What a run counted, and the line that it prints.

use std::time::Duration;

use serde::Serialize;

use crate::process::Usage;

/// Counted while a run goes on.
#[derive(Default)]
pub(crate) struct Tally {
    latencies: Vec<Duration>,
    events: usize,
    bad: usize,
    bad_sample: Option<String>,
}

/// The printed line. CPU is in seconds, of the server with its children.
#[derive(Serialize)]
pub(crate) struct Figures {
    ok: usize,
    bad: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    bad_sample: Option<String>,
    secs: f64,
    rps: f64,
    p50_ms: f64,
    p99_ms: f64,
    cpu_s: f64,
    cpu_s_per_1k: f64,
    events: usize,
    events_per_s: f64,
    cpu_s_per_1k_events: f64,
    client_cpu_s: f64,
    rss_mib: f64,
}

impl Tally {
    pub(crate) fn good(&mut self, latency: Duration, events: usize) {
        self.latencies.push(latency);
        self.events += events;
    }

    pub(crate) fn bad(&mut self, error: &anyhow::Error) {
        self.bad += 1;
        self.bad_sample.get_or_insert_with(|| format!("{error:#}"));
    }

    /// `server` and `client` are what both had used before and after.
    pub(crate) fn figures(
        mut self,
        took: Duration,
        server: (Usage, Usage),
        client: (Usage, Usage),
    ) -> Figures {
        self.latencies.sort_unstable();
        let ok = self.latencies.len();
        let secs = took.as_secs_f64();
        let cpu_s = server.1.cpu_s - server.0.cpu_s;
        Figures {
            ok,
            bad: self.bad,
            bad_sample: self.bad_sample,
            secs,
            rps: ok as f64 / secs,
            p50_ms: percentile(&self.latencies, 0.50),
            p99_ms: percentile(&self.latencies, 0.99),
            cpu_s,
            cpu_s_per_1k: per_thousand(cpu_s, ok),
            events: self.events,
            events_per_s: self.events as f64 / secs,
            cpu_s_per_1k_events: per_thousand(cpu_s, self.events),
            client_cpu_s: client.1.cpu_s - client.0.cpu_s,
            rss_mib: server.1.rss_kib as f64 / 1024.0,
        }
    }
}

/// Of sorted latencies, in milliseconds.
pub(crate) fn percentile(sorted: &[Duration], share: f64) -> f64 {
    let at = (sorted.len().saturating_sub(1)) as f64 * share;
    sorted.get(at as usize).map_or(0.0, |latency| latency.as_secs_f64() * 1e3)
}

fn per_thousand(cpu_s: f64, of: usize) -> f64 {
    if of == 0 { 0.0 } else { cpu_s / of as f64 * 1e3 }
}
