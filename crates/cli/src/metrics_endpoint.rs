//! What `/metrics` shows: the metrics of the table of families, in the text format of Prometheus, and those of the process.
//!
//! A rendering copies all series, so renderings are at most a few a second, however many ask.

mod process;

use std::{
    fmt::Write as _,
    sync::Arc,
    time::{Duration, Instant},
};

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use nuncio_engine::metric::{self, FAMILIES, MetricKind};
use parking_lot::Mutex;

/// The commit that this program was built from, where the build knew it.
pub(crate) const COMMIT: &str = match option_env!("NUNCIO_COMMIT") {
    Some(commit) => commit,
    None => "unknown",
};
/// For how long a rendering is served (`metrics.render-interval`).
const RENDER_INTERVAL: Duration = Duration::from_millis(250);
/// How often the observations of histograms are added up. They take memory until then.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);

/// Renders the metrics of this process.
pub(crate) type RenderMetrics = Arc<dyn Fn() -> String + Send + Sync>;

/// Starts to record the metrics of this process. `None`: another recorder was installed before.
pub(crate) fn start() -> Option<RenderMetrics> {
    let handle = builder()
        .and_then(|builder| builder.install_recorder().map_err(|error| error.to_string()))
        .inspect_err(|error| tracing::warn!(%error, "there will be no figures at /metrics"))
        .ok()?;
    register();
    let upkeep = handle.clone();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(UPKEEP_INTERVAL).await;
            upkeep.run_upkeep();
        }
    });
    let last: Mutex<Option<(Instant, String)>> = Mutex::default();
    Some(Arc::new(move || {
        let mut last = last.lock();
        match &*last {
            Some((at, text)) if at.elapsed() < RENDER_INTERVAL => text.clone(),
            _ => {
                let text = render(&handle);
                *last = Some((Instant::now(), text.clone()));
                text
            }
        }
    }))
}

/// The recorder, with the buckets of each histogram.
fn builder() -> Result<PrometheusBuilder, String> {
    let histograms = FAMILIES.iter().filter(|family| family.kind == MetricKind::Histogram);
    histograms.into_iter().try_fold(PrometheusBuilder::new(), |builder, family| {
        let name = Matcher::Full(family.name.to_owned());
        builder.set_buckets_for_metric(name, family.buckets).map_err(|error| error.to_string())
    })
}

/// Describes all families, and makes the series that have no labels or fixed ones, so that they are there at 0 before anything
/// has happened: a rate needs a first value. Gauges appear once they were read.
fn register() {
    for family in FAMILIES.iter().filter(|family| !process::is_family(family)) {
        family.describe();
        match family.kind {
            MetricKind::Counter if family.labels.is_empty() => drop(family.counter(&[])),
            MetricKind::Histogram if family.labels.is_empty() => drop(family.histogram(&[])),
            _ => {}
        }
    }
    for outcome in ["delivered", "failed", "dead"] {
        drop(metric::WEBHOOK_DELIVERIES.counter(&[outcome]));
    }
    for outcome in ["sent", "dropped"] {
        drop(metric::TRACE_SPANS.counter(&[outcome]));
    }
    metric::WEBHOOK_DELIVERIES_IN_FLIGHT.gauge(&[]).set(0.0);
    metric::BUILD_INFO.gauge(&[env!("CARGO_PKG_VERSION"), COMMIT]).set(1.0);
}

fn render(handle: &PrometheusHandle) -> String {
    let mut text = handle.render();
    for (family, value) in process::read() {
        let metric::MetricFamily { name, kind, help, .. } = family;
        // Writing to a String cannot fail.
        let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {}\n{name} {value}\n\n", kind.name());
    }
    text
}
