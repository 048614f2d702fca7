//! The table of metric families: each name that `/metrics` has, with its type, labels and meaning.
//!
//! Code records through a family and never by a bare name. So each family has a `# HELP` line, each histogram its buckets, and
//! docs/metrics.md, the dashboard and the alerts are checked against this table. A handle is cheap to use and dear to make: hot
//! paths make theirs once. Label values are names that the operator configured, or words of this program; never what a caller
//! chose.

use std::collections::BTreeSet;

pub use metrics::{Counter, Gauge, Histogram};
use metrics::{Key, Label, Level, Metadata, with_recorder};
use parking_lot::Mutex;

/// The most agents that have a label of their own (`metrics.agents`); further ones are counted together.
pub const MAX_METRIC_AGENTS: usize = 256;
/// The label of what has none of its own.
pub const OTHER: &str = "other";

/// Buckets of durations within this process, in seconds.
const SHORT: &[f64] =
    &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];
/// Buckets of durations of work, in seconds.
const LONG: &[f64] = &[0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 86_400.0];
/// Not a histogram.
const NONE: &[f64] = &[];

/// The type of a family, as in the exposition format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// A number that only grows while the process runs.
    Counter,
    /// A number that goes up and down.
    Gauge,
    /// Counts of observations in buckets.
    Histogram,
    /// Quantiles of the observations of about the last minute, kept for those who scrape them.
    Summary,
}

impl MetricKind {
    /// Its name in the exposition format.
    pub fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Summary => "summary",
        }
    }
}

/// A family of metrics: one name with all values of its labels.
#[derive(Debug, Clone, Copy)]
pub struct MetricFamily {
    /// The name in `/metrics`.
    pub name: &'static str,
    /// The type.
    pub kind: MetricKind,
    /// The names of its labels.
    pub labels: &'static [&'static str],
    /// What it counts or measures, as a sentence.
    pub help: &'static str,
    /// The upper bounds of a histogram's buckets.
    pub buckets: &'static [f64],
}

impl MetricFamily {
    /// A handle of the counter with these values of its labels.
    pub fn counter(&self, values: &[&str]) -> Counter {
        with_recorder(|recorder| recorder.register_counter(&self.key(values), &METADATA))
    }

    /// A handle of the gauge with these values of its labels.
    pub fn gauge(&self, values: &[&str]) -> Gauge {
        with_recorder(|recorder| recorder.register_gauge(&self.key(values), &METADATA))
    }

    /// A handle of the histogram or summary with these values of its labels.
    pub fn histogram(&self, values: &[&str]) -> Histogram {
        with_recorder(|recorder| recorder.register_histogram(&self.key(values), &METADATA))
    }

    /// Sends the sentence to the recorder, for `# HELP`.
    pub fn describe(&self) {
        let (name, help) = (self.name.into(), self.help.into());
        with_recorder(|recorder| match self.kind {
            MetricKind::Counter => recorder.describe_counter(name, None, help),
            MetricKind::Gauge => recorder.describe_gauge(name, None, help),
            MetricKind::Histogram | MetricKind::Summary => recorder.describe_histogram(name, None, help),
        });
    }

    fn key(&self, values: &[&str]) -> Key {
        debug_assert_eq!(self.labels.len(), values.len(), "{}", self.name);
        let pairs = self.labels.iter().zip(values);
        let labels: Vec<Label> = pairs.map(|(name, value)| Label::new(*name, (*value).to_owned())).collect();
        Key::from_parts(self.name, labels)
    }
}

/// Recorders may filter by it; those in use do not.
static METADATA: Metadata<'static> = Metadata::new("nuncio", Level::INFO, None);

/// The label of an agent: its name, or [`OTHER`] beyond [`MAX_METRIC_AGENTS`]. A name keeps its label for as long as the process
/// lives, so that no series ends while another takes over its count.
#[derive(Default)]
pub(crate) struct AgentLabels(Mutex<BTreeSet<String>>);

impl AgentLabels {
    pub(crate) fn label(&self, agent: &str) -> String {
        let mut known = self.0.lock();
        if !known.contains(agent) {
            if known.len() >= MAX_METRIC_AGENTS {
                return OTHER.to_owned();
            }
            known.insert(agent.to_owned());
        }
        agent.to_owned()
    }
}

/// A constant for each family, and all of them in [`FAMILIES`], so that none is missing there.
macro_rules! families {
    ($($id:ident = $kind:ident $name:literal [$($label:literal),*] $buckets:ident $help:literal)*) => {
        $(
            #[doc = $help]
            pub const $id: MetricFamily = MetricFamily {
                name: $name,
                kind: MetricKind::$kind,
                labels: &[$($label),*],
                help: $help,
                buckets: $buckets,
            };
        )*
        /// All families.
        pub const FAMILIES: &[MetricFamily] = &[$($id),*];
    };
}

families! {
    BUILD_INFO = Gauge "nuncio_build_info" ["version", "commit"] NONE
        "Always 1; the labels are the version and the commit of this program."
    READY = Gauge "nuncio_ready" [] NONE
        "1 if /readyz answers 200 now, else 0."

    TASKS_CREATED = Counter "nuncio_tasks_created_total" ["agent"] NONE
        "Tasks that this node has stored as new, those that other tasks called included."
    TASKS_ENDED = Counter "nuncio_tasks_ended_total" ["agent", "state"] NONE
        "Tasks whose end this node has stored, by their final state: completed, failed, canceled, rejected, or replied (answered by a message)."
    TASK_DURATION = Histogram "nuncio_task_duration_seconds" ["agent"] LONG
        "Time from a task's creation to its end, with all its waits: for a slot, for answers, for other tasks."
    TASK_QUEUE_WAIT = Histogram "nuncio_task_queue_wait_seconds" [] LONG
        "Time from a task's creation to the start of its first run; near 0 where a slot was free. For a called task, from the moment it asked for a slot."
    TASKS_RUNNING = Gauge "nuncio_tasks_running" [] NONE
        "Tasks that run on this node now, without those that wait for a task that they called."
    TASKS_QUEUED = Gauge "nuncio_tasks_queued" [] NONE
        "Tasks of the whole store that are due and wait for a slot, as far as this node knows. Take the maximum over nodes, not the sum."
    TASKS_WAITING_FOR_ANSWER = Gauge "nuncio_tasks_waiting_for_answer" [] NONE
        "Tasks of the whole store that wait for an answer or an authorization from their caller, without called tasks, whose questions are those of their caller. Read every 15 s. Take the maximum over nodes."
    OLDEST_QUESTION_AGE = Gauge "nuncio_oldest_question_age_seconds" [] NONE
        "How long the oldest of nuncio_tasks_waiting_for_answer has waited; 0 if there is none."
    LEASES_HELD = Gauge "nuncio_leases_held" [] NONE
        "Tasks that this node holds a lease of now: those that it runs."
    TASK_TAKEOVERS = Counter "nuncio_task_takeovers_total" [] NONE
        "Claims by this node of a task whose earlier run ended with its process or node, without progress since."
    STREAMS_OPEN = Gauge "nuncio_streams_open" [] NONE
        "Streams of events that are open on this node."

    HTTP_REQUESTS = Counter "nuncio_http_requests_total" ["route", "code"] NONE
        "Requests over HTTP whose response has begun, by route and status code, those of gRPC included."
    HTTP_DURATION = Histogram "nuncio_http_request_duration_seconds" ["route"] SHORT
        "Time from a request's head to the head of its response. A stream counts until it begins, a blocking send until the task has ended or asks."
    GRPC_CALLS = Counter "nuncio_grpc_calls_total" ["method", "code"] NONE
        "Calls of gRPC that have ended, by method and status code; CANCELLED also where the client went away before the end."
    REFUSALS = Counter "nuncio_refusals_total" ["rule"] NONE
        "Times that a limit or a rule refused a request, a call or a connection, by its name. A call that waits and is tried again counts each time."
    AUTHENTICATION_FAILURES = Counter "nuncio_authentication_failures_total" [] NONE
        "Requests whose credentials were missing where they are needed, or invalid."
    TLS_HANDSHAKE_FAILURES = Counter "nuncio_tls_handshake_failures_total" [] NONE
        "TLS handshakes that failed or took too long."
    TLS_CERTIFICATE_EXPIRY = Gauge "nuncio_tls_certificate_expiry_timestamp_seconds" [] NONE
        "When the certificate that new connections get expires, in seconds since 1970."

    REMOTE_UP = Gauge "nuncio_remote_up" ["name"] NONE
        "1 if the last probe or call of a remote agent or server succeeded, 0 if it failed; NaN before the first, and after it was removed from the configuration."
    MODEL_CALLS = Counter "nuncio_model_calls_total" ["model", "outcome"] NONE
        "Calls of language models that have ended, retries within a call not counted: ok, error, or abandoned (its task was canceled, timed out or handed back)."
    MODEL_RETRIES = Counter "nuncio_model_retries_total" ["model"] NONE
        "Attempts of model calls that failed and were repeated."
    MODEL_TOKENS = Counter "nuncio_model_tokens_total" ["model", "direction"] NONE
        "Tokens of answered calls as the provider reported them: input or output. Nothing where it reports none."
    MODEL_DURATION = Histogram "nuncio_model_call_duration_seconds" ["model"] LONG
        "Time from the first attempt of a model call to its reply or its final error."

    STORE_COMMITS = Counter "nuncio_store_commits_total" [] NONE
        "Transactions of the store's writer, one for a batch of changes, failed ones included."
    STORE_COMMIT_FAILURES = Counter "nuncio_store_commit_failures_total" [] NONE
        "Those of nuncio_store_commits_total that failed."
    STORE_COMMIT_DURATION = Histogram "nuncio_store_commit_duration_seconds" [] SHORT
        "Time of one of nuncio_store_commits_total: with SQLite of the transaction and its fsync, with PostgreSQL of the round trip."
    STORE_COMMIT_SECONDS = Summary "nuncio_store_commit_seconds" [] NONE
        "The same as nuncio_store_commit_duration_seconds, as quantiles, which cannot be added up over nodes. Kept for those who scrape it."
    STORE_BATCH_SIZE = Summary "nuncio_store_batch_size" [] NONE
        "Changes in one of nuncio_store_commits_total."
    STORE_BYTES = Gauge "nuncio_store_bytes" [] NONE
        "Size of the store: with SQLite of its files, with PostgreSQL of its tables and indexes. Read every 15 s."
    STORE_FREE_BYTES = Gauge "nuncio_store_free_bytes" [] NONE
        "Bytes that the disk of the data folder has left for this server (SQLite only). Read every 15 s."

    WEBHOOK_DELIVERIES = Counter "nuncio_webhook_deliveries_total" ["outcome"] NONE
        "Attempts of webhook deliveries: delivered or failed. Beside them dead: deliveries that were given up after such attempts."
    WEBHOOK_DELIVERIES_IN_FLIGHT = Gauge "nuncio_webhook_deliveries_in_flight" [] NONE
        "Attempts of webhook deliveries that this node has under way."
    WEBHOOKS_DUE = Gauge "nuncio_webhooks_due" [] NONE
        "Webhooks of the whole store with an event that is due and that no node delivers yet. Read every 15 s."
    WEBHOOKS_FAILING = Gauge "nuncio_webhooks_failing" [] NONE
        "Webhooks of the whole store whose last attempt failed and that wait for another one. Read every 15 s."
    WEBHOOK_OLDEST_FAILURE_AGE = Gauge "nuncio_webhook_oldest_failure_age_seconds" [] NONE
        "How long the oldest of nuncio_webhooks_failing has failed; 0 if there is none."
    WEBHOOK_DEAD_LETTERS = Gauge "nuncio_webhook_dead_letters" [] NONE
        "Deliveries of the whole store that were given up and neither repeated nor discarded since. Read every 15 s."

    USAGE = Gauge "nuncio_usage" ["resource"] NONE
        "What all tenants use on this node, by resource."
    USAGE_LARGEST_TENANT = Gauge "nuncio_usage_largest_tenant" ["resource"] NONE
        "What the tenant that uses most of a resource uses of it on this node."
    TRACE_SPANS = Counter "nuncio_trace_spans_total" ["outcome"] NONE
        "Spans for the OpenTelemetry collector, by what became of them."

    PROCESS_CPU = Counter "process_cpu_seconds_total" [] NONE
        "Processor time of this process, of user and system together (Linux)."
    PROCESS_RESIDENT_MEMORY = Gauge "process_resident_memory_bytes" [] NONE
        "Memory of this process that is in RAM (Linux)."
    PROCESS_VIRTUAL_MEMORY = Gauge "process_virtual_memory_bytes" [] NONE
        "Address space of this process (Linux)."
    PROCESS_OPEN_FDS = Gauge "process_open_fds" [] NONE
        "File descriptors that this process has open (Linux)."
    PROCESS_MAX_FDS = Gauge "process_max_fds" [] NONE
        "File descriptors that this process may have open."
    PROCESS_START_TIME = Gauge "process_start_time_seconds" [] NONE
        "When this process started, in seconds since 1970 (Linux)."
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_follow_the_conventions() {
        let mut names = BTreeSet::new();
        for family in FAMILIES {
            let MetricFamily { name, kind, help, buckets, .. } = *family;
            assert!(names.insert(name), "{name} is there twice");
            assert!(name.starts_with("nuncio_") || name.starts_with("process_"), "{name}");
            assert_eq!(name.ends_with("_total"), kind == MetricKind::Counter, "{name}");
            assert_eq!(!buckets.is_empty(), kind == MetricKind::Histogram, "{name}");
            assert!(buckets.is_sorted(), "{name}");
            assert!(help.ends_with('.') && !help.contains('\n'), "{name}: {help}");
        }
    }

    #[test]
    fn agents_beyond_the_limit_share_a_label() {
        let labels = AgentLabels::default();
        for n in 0..MAX_METRIC_AGENTS {
            assert_eq!(labels.label(&format!("agent-{n}")), format!("agent-{n}"));
        }
        assert_eq!(labels.label("one-more"), OTHER);
        assert_eq!(labels.label("agent-0"), "agent-0", "a name keeps its label");
    }

    /// A name outside of the table would have no `# HELP`, and no check of its labels.
    #[test]
    fn every_metric_is_recorded_through_the_table() {
        let mut pending = vec![std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")];
        let mut found = vec![];
        while let Some(folder) = pending.pop() {
            for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
                let path = entry.path();
                let name = entry.file_name().into_string().unwrap();
                if entry.file_type().unwrap().is_dir() {
                    if name != "tests" && name != "examples" {
                        pending.push(path);
                    }
                } else if name.ends_with(".rs") && !path.ends_with("engine/src/metric.rs") {
                    let text = std::fs::read_to_string(&path).unwrap();
                    let bare = ["counter!(", "gauge!(", "histogram!("].map(|end| format!("metrics::{end}"));
                    if bare.iter().any(|bare| text.contains(bare)) {
                        found.push(path);
                    }
                }
            }
        }
        assert!(found.is_empty(), "record through nuncio_engine::metric: {found:?}");
    }
}
