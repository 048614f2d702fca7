//! Streams that stay open on a task at work, and the memory that each takes of the server.

use std::{
    cell::RefCell,
    rc::Rc,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use memchr::memmem;
use serde::Serialize;

use crate::{Flags, connection::Connection, endpoint::Endpoint, process, request::Requests};

/// Streams that are being opened at one time.
const OPENERS: usize = 32;
/// How long a stream's first event may take.
const FIRST_EVENT: Duration = Duration::from_secs(20);

/// The printed line.
#[derive(Serialize)]
pub(crate) struct Idle {
    open: usize,
    bad: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    bad_sample: Option<String>,
    open_secs: f64,
    kib_per_stream: f64,
    rss_mib: f64,
    /// While the streams were opened, and while they were held.
    cpu_s: f64,
    hold_cpu_s: f64,
}

struct Opening {
    requests: Requests,
    endpoint: Endpoint,
    end: Instant,
    left: usize,
    held: Vec<(Connection, Incoming)>,
    errors: Vec<anyhow::Error>,
}

/// Opens `conns` streams; one counts from its first event on.
pub(crate) async fn run(flags: &Flags, endpoint: &Endpoint) -> anyhow::Result<Idle> {
    let before = process::usage(flags.pid);
    let start = Instant::now();
    let opening = Rc::new(RefCell::new(Opening {
        requests: Requests::new(endpoint, &flags.path),
        endpoint: endpoint.clone(),
        end: start + Duration::from_secs_f64(flags.secs),
        left: flags.conns,
        held: Vec::with_capacity(flags.conns),
        errors: Vec::new(),
    }));
    let openers: Vec<_> =
        (0..OPENERS).map(|_| tokio::task::spawn_local(open_many(Rc::clone(&opening)))).collect();
    for opener in openers {
        opener.await?;
    }
    let open_secs = start.elapsed().as_secs_f64();
    let opened = process::usage(flags.pid);
    tokio::time::sleep(Duration::from_secs_f64(flags.hold)).await;
    let after = process::usage(flags.pid);

    let opening = opening.borrow();
    let open = opening.held.len();
    let grown = after.rss_kib as f64 - before.rss_kib as f64;
    Ok(Idle {
        open,
        bad: opening.errors.len(),
        bad_sample: opening.errors.first().map(|error| format!("{error:#}")),
        open_secs,
        kib_per_stream: grown / open.max(1) as f64,
        rss_mib: after.rss_kib as f64 / 1024.0,
        cpu_s: opened.cpu_s - before.cpu_s,
        hold_cpu_s: after.cpu_s - opened.cpu_s,
    })
}

async fn open_many(opening: Rc<RefCell<Opening>>) {
    loop {
        let (request, endpoint) = {
            let mut opening = opening.borrow_mut();
            if opening.left == 0 || Instant::now() >= opening.end {
                return;
            }
            opening.left -= 1;
            (opening.requests.stream("wait"), opening.endpoint.clone())
        };
        let opened = async {
            let mut connection = Connection::open(&endpoint).await?;
            let response = connection.start(request).await?;
            let status = response.status();
            let mut body = response.into_body();
            let first = body.frame().await.context("ended before its first event")??;
            let data = first.into_data().unwrap_or_default();
            ensure!(status.is_success(), "{status}: {}", String::from_utf8_lossy(&data));
            if memmem::find(&data, b"\"error\"").is_some() {
                bail!("{}", String::from_utf8_lossy(&data));
            }
            Ok((connection, body))
        };
        let opened = tokio::time::timeout(FIRST_EVENT, opened).await.context("no event in time");
        match opened.and_then(|opened| opened) {
            Ok(stream) => opening.borrow_mut().held.push(stream),
            Err(error) => opening.borrow_mut().errors.push(error),
        }
    }
}
