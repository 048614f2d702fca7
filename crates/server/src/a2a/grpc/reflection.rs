//! `grpc.reflection`: the descriptors of the services, for tools such as grpcurl. In `v1` and in the older `v1alpha`.
//!
//! Each request on the stream has one response. What is sent is the same for every server of this version, so it needs no
//! caller.

use std::sync::Arc;

use axum::{
    BoxError,
    body::{Body, Bytes, HttpBody},
    http::Response,
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use futures_util::stream;
use http_body_util::BodyExt;
use nuncio_wire::{
    grpc::{self, GrpcCode, GrpcStatus, MessageReader},
    protobuf::{self, DescriptorPool, ProtobufLimits},
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::body;
use crate::app::App;

/// The longest request, which names a file or a symbol.
const MAX_REQUEST: usize = 4 * 1024;
/// Requests on one stream; a tool asks for a few files.
const MAX_REQUESTS: usize = 100;

/// The service in one of its versions.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reflection {
    package: &'static str,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReflectionIn {
    #[serde(default)]
    host: String,
    file_by_filename: Option<String>,
    file_containing_symbol: Option<String>,
    list_services: Option<String>,
    all_extension_numbers_of_type: Option<String>,
}

impl Reflection {
    pub(super) fn find(path: &str) -> Option<Self> {
        let packages = ["grpc.reflection.v1", "grpc.reflection.v1alpha"];
        let package = path.strip_prefix('/')?.strip_suffix(".ServerReflection/ServerReflectionInfo")?;
        packages.into_iter().find(|known| *known == package).map(|package| Self { package })
    }

    pub(super) fn serve<B>(self, app: &Arc<App>, requests: B) -> Response<Body>
    where
        B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<BoxError>,
    {
        let permit = match super::public_stream(app) {
            Ok(permit) => permit,
            Err(status) => return body::fail(&status),
        };
        let quiet = app.options.limits.body_timeout;
        let begin = (requests, MessageReader::new(MAX_REQUEST), MAX_REQUESTS, permit);
        body::stream(stream::unfold(Some(begin), move |state| async move {
            let (mut requests, mut reader, left, permit) = state?;
            loop {
                let answered = match reader.next_message() {
                    Ok(Some(_)) if left == 0 => {
                        let message = format!("a stream takes {MAX_REQUESTS} requests: open another");
                        Err(GrpcStatus::new(GrpcCode::ResourceExhausted, message))
                    }
                    Ok(Some(request)) => self.answer(&request),
                    Ok(None) => match tokio::time::timeout(quiet, requests.frame()).await {
                        Ok(Some(Ok(frame))) => {
                            if let Ok(data) = frame.into_data() {
                                reader.push(&data);
                            }
                            continue;
                        }
                        // The client has no more requests.
                        Ok(None) => return None,
                        Ok(Some(Err(_))) => return None,
                        Err(_) => {
                            let message = format!("no request arrived within {} s", quiet.as_secs());
                            Err(GrpcStatus::new(GrpcCode::DeadlineExceeded, message))
                        }
                    },
                    Err(status) => Err(status),
                };
                let next = answered.is_ok().then(|| (requests, reader, left.saturating_sub(1), permit));
                return Some((answered.map(Bytes::from), next));
            }
        }))
    }

    fn answer(self, request: &[u8]) -> Result<Vec<u8>, GrpcStatus> {
        let unreadable =
            |error: &dyn std::fmt::Display| GrpcStatus::new(GrpcCode::InvalidArgument, error.to_string());
        let limits = ProtobufLimits { max_depth: 8, max_json_bytes: 8 * MAX_REQUEST };
        let json = self.message("ServerReflectionRequest")?.read_json(request, limits)?;
        let original: Value = serde_json::from_str(json.get()).map_err(|error| unreadable(&error))?;
        let request: ReflectionIn = serde_json::from_str(json.get()).map_err(|error| unreadable(&error))?;
        let mut response = respond(&request);
        response["validHost"] = request.host.into();
        response["originalRequest"] = original;
        let (mut out, response) = (vec![], response.to_string());
        let message = self.message("ServerReflectionResponse")?;
        grpc::write_message(&mut out, |out| message.write_from_json(out, response.as_bytes()))?;
        Ok(out)
    }

    fn message(self, name: &str) -> Result<&'static protobuf::ProtobufMessage, GrpcStatus> {
        protobuf::message(&format!("{}.{name}", self.package))
            .ok_or_else(|| GrpcStatus::new(GrpcCode::Internal, "the reflection service is not defined"))
    }
}

fn respond(request: &ReflectionIn) -> Value {
    let pool = DescriptorPool::get();
    let not_found = |what: String| {
        let code = GrpcCode::NotFound as i32;
        json!({ "errorResponse": { "errorCode": code, "errorMessage": what } })
    };
    let file = |name: &str| match pool.file(name) {
        Some(files) => {
            let files: Vec<String> = files.into_iter().map(|file| BASE64_STANDARD.encode(file)).collect();
            json!({ "fileDescriptorResponse": { "fileDescriptorProto": files } })
        }
        None => not_found(format!("there is no file {name:?}")),
    };
    if request.list_services.is_some() {
        let names = pool.services().iter().map(|service| json!({ "name": service.name }));
        return json!({ "listServicesResponse": { "service": names.collect::<Value>() } });
    }
    if let Some(name) = &request.file_by_filename {
        return file(name);
    }
    if let Some(symbol) = &request.file_containing_symbol {
        return match pool.file_of_symbol(symbol) {
            Some(name) => file(name),
            None => not_found(format!("there is no symbol {symbol:?}")),
        };
    }
    if let Some(name) = &request.all_extension_numbers_of_type {
        return match pool.message(name) {
            Some(_) => json!({ "allExtensionNumbersResponse": { "baseTypeName": name } }),
            None => not_found(format!("there is no message {name:?}")),
        };
    }
    not_found("there are no extensions here".to_owned())
}
