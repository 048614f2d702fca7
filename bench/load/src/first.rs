//! How long a caller waits for the first event of a stream, one call after the other on one connection.

use std::time::{Duration, Instant};

use anyhow::Context;
use bytes::Bytes;
use http_body_util::BodyExt;
use memchr::memmem;
use serde::Serialize;

use crate::{
    Flags,
    connection::{Answer, Connection},
    endpoint::Endpoint,
    figures::percentile,
    plan::Plan,
};

/// The printed line. An event may be empty but for its id; a message is one that says something.
#[derive(Serialize)]
pub(crate) struct First {
    ok: usize,
    bad: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    bad_sample: Option<String>,
    event_p50_ms: f64,
    event_p99_ms: f64,
    message_p50_ms: f64,
    message_p99_ms: f64,
}

pub(crate) async fn run(flags: &Flags, endpoint: &Endpoint) -> anyhow::Result<First> {
    let plan = Plan::prepare(flags, endpoint).await?;
    let mut connection = Connection::open(endpoint).await?;
    plan.begin_session(&mut connection).await?;
    let end = Instant::now() + Duration::from_secs_f64(flags.secs);
    let (mut events, mut messages, mut errors) = (vec![], vec![], vec![]);
    for _ in 0..flags.count {
        if Instant::now() >= end {
            break;
        }
        match once(&plan, &mut connection).await {
            Ok((event, message)) => {
                events.push(event);
                messages.push(message);
            }
            Err(error) => {
                errors.push(error);
                connection.reopen().await?;
            }
        }
    }
    events.sort_unstable();
    messages.sort_unstable();
    Ok(First {
        ok: events.len(),
        bad: errors.len(),
        bad_sample: errors.first().map(|error| format!("{error:#}")),
        event_p50_ms: percentile(&events, 0.50),
        event_p99_ms: percentile(&events, 0.99),
        message_p50_ms: percentile(&messages, 0.50),
        message_p99_ms: percentile(&messages, 0.99),
    })
}

/// The time to the first event, and to the first message.
async fn once(plan: &Plan, connection: &mut Connection) -> anyhow::Result<(Duration, Duration)> {
    let request = plan.next();
    let sent = Instant::now();
    let (head, mut body) = connection.start(request).await?.into_parts();
    let (mut read, mut event, mut message) = (Vec::new(), None, None);
    while let Some(frame) = body.frame().await {
        read.extend_from_slice(&frame?.into_data().unwrap_or_default());
        if event.is_none() && memmem::find(&read, b"\n\n").is_some() {
            event = Some(sent.elapsed());
        }
        if message.is_none()
            && let Some(at) = memmem::find(&read, b"data: {")
            && memmem::find(&read[at..], b"\n\n").is_some()
        {
            message = Some(sent.elapsed());
        }
    }
    plan.check(&Answer { status: head.status, headers: head.headers, body: Bytes::from(read) })?;
    let none = "the answer is no stream";
    Ok((event.context(none)?, message.context(none)?))
}
