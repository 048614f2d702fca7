//! `grpc.health.v1.Health`: whether the services take calls, as `/readyz` says it.

use std::{sync::Arc, time::Duration};

use axum::{
    BoxError,
    body::{Body, Bytes, HttpBody},
    http::{HeaderMap, Response},
};
use futures_util::stream;
use nuncio_wire::{
    grpc::{self, GrpcCode, GrpcStatus},
    protobuf::{self, DescriptorPool, ProtobufLimits},
};
use serde::Deserialize;
use serde_json::json;

use super::body;
use crate::{app::App, health::not_ready_reason, request_checks};

/// The longest request, which names a service.
const MAX_REQUEST: usize = 1024;
/// How often a watched status is read.
const WATCH_INTERVAL: Duration = Duration::from_secs(5);

/// The methods of the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HealthMethod {
    Check,
    Watch,
}

impl HealthMethod {
    pub(super) fn find(path: &str) -> Option<Self> {
        match path {
            "/grpc.health.v1.Health/Check" => Some(Self::Check),
            "/grpc.health.v1.Health/Watch" => Some(Self::Watch),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ServingStatus {
    Serving,
    NotServing,
    /// Of a service that is not here.
    Unknown,
}

pub(super) async fn serve<B>(app: &Arc<App>, method: HealthMethod, body: B) -> Response<Body>
where
    B: HttpBody<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let limits = &app.options.limits;
    let read = request_checks::read_body(&HeaderMap::new(), body, MAX_REQUEST, limits.body_timeout).await;
    let body = match read {
        Ok(body) => body,
        Err(refusal) => return crate::responses::refuse(&refusal),
    };
    let known = match read_service(&body) {
        Ok(service) => service.is_empty() || DescriptorPool::get().service(&service).is_some(),
        Err(status) => return body::fail(&status),
    };
    match (method, known) {
        (HealthMethod::Check, false) => {
            body::fail(&GrpcStatus::new(GrpcCode::NotFound, "there is no such service here"))
        }
        (HealthMethod::Check, true) => match write_status(status_of(app).await) {
            Ok(message) => body::message(message),
            Err(status) => body::fail(&status),
        },
        (HealthMethod::Watch, known) => watch(app, known),
    }
}

fn read_service(body: &[u8]) -> Result<String, GrpcStatus> {
    #[derive(Deserialize)]
    struct HealthCheckIn {
        #[serde(default)]
        service: String,
    }
    let limits = ProtobufLimits { max_depth: 4, max_json_bytes: 8 * MAX_REQUEST };
    let message = protobuf::message("grpc.health.v1.HealthCheckRequest").ok_or_else(undefined)?;
    let json = message.read_json(grpc::read_message(body)?, limits)?;
    let request: Result<HealthCheckIn, _> = serde_json::from_str(json.get());
    request.map(|request| request.service).map_err(|error| {
        GrpcStatus::new(GrpcCode::InvalidArgument, format!("the request cannot be read: {error}"))
    })
}

async fn status_of(app: &App) -> ServingStatus {
    match not_ready_reason(app).await {
        None => ServingStatus::Serving,
        Some(_) => ServingStatus::NotServing,
    }
}

fn write_status(status: ServingStatus) -> Result<Vec<u8>, GrpcStatus> {
    let name = match status {
        ServingStatus::Serving => "SERVING",
        ServingStatus::NotServing => "NOT_SERVING",
        ServingStatus::Unknown => "SERVICE_UNKNOWN",
    };
    let json = json!({ "status": name }).to_string();
    let message = protobuf::message("grpc.health.v1.HealthCheckResponse").ok_or_else(undefined)?;
    let mut out = vec![];
    grpc::write_message(&mut out, |out| message.write_from_json(out, json.as_bytes()))?;
    Ok(out)
}

fn undefined() -> GrpcStatus {
    GrpcStatus::new(GrpcCode::Internal, "the health service is not defined")
}

/// The status now, and whenever it changes, until the server stops.
fn watch(app: &Arc<App>, known: bool) -> Response<Body> {
    let permit = match super::public_stream(app) {
        Ok(permit) => permit,
        Err(status) => return body::fail(&status),
    };
    let begin = (Arc::clone(app), app.engine.closing(), None, permit);
    body::stream(stream::unfold(begin, move |(app, mut closing, last, permit)| async move {
        loop {
            // Whatever was sent last, unless it was that the server serves: a service that is unknown remains so.
            if *closing.borrow() && last.is_some_and(|last| last != ServingStatus::Serving) {
                return None;
            }
            let status = if known { status_of(&app).await } else { ServingStatus::Unknown };
            if last != Some(status) {
                return Some((write_status(status).map(Bytes::from), (app, closing, Some(status), permit)));
            }
            // At the interval, or as soon as the server begins to stop.
            let _ = tokio::time::timeout(WATCH_INTERVAL, closing.wait_for(|closing| *closing)).await;
        }
    }))
}
