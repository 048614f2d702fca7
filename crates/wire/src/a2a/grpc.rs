//! The gRPC binding as a format: methods, requests, results and errors, for 1.0 (`lf.a2a.v1`) and 0.3 (`a2a.v1`).
//!
//! Messages are translated to and from the JSON of the REST binding, so each has one reader and one writer. In 1.0 that
//! JSON is the params and the result of JSON-RPC. In 0.3 a task is named `tasks/{id}`.
//!
//! A number in `data` or `metadata` is a double: 2^53 + 1 does not survive this binding.

mod task_message;

use std::{borrow::Cow, io::Write as _};

use nuncio_engine::task::Task;
use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use super::{
    Dialect, TaskDetail,
    call::A2aCall,
    card::CURSOR_EXTENSION,
    fault::{A2aFault, A2aProblem},
    input::{self, JsonPath, MalformedInput, non_empty},
    method::A2aMethod,
    params,
    rest::{self, RestOperation, proto_0_3},
};
use crate::{
    grpc::{GrpcCode, GrpcStatus},
    json,
    protobuf::{DescriptorPool, ProtobufError, ProtobufLimits, ProtobufMethod},
};

const AT: JsonPath<'static> = JsonPath::Root(params::ROOT);

/// The services of A2A with their dialects.
const SERVICES: [(&str, Dialect); 2] =
    [("lf.a2a.v1.A2AService", Dialect::V1), ("a2a.v1.A2AService", Dialect::V0_3)];

/// The methods of 0.3 that have another name than in 1.0.
const RENAMED: [(&str, A2aMethod); 3] = [
    ("TaskSubscription", A2aMethod::Subscribe),
    ("ListTaskPushNotificationConfig", A2aMethod::ListWebhooks),
    ("GetAgentCard", A2aMethod::ExtendedCard),
];

/// A method of one of the services.
#[derive(Debug, Clone, Copy)]
pub struct GrpcMethod {
    /// The dialect of its service.
    pub dialect: Dialect,
    method: A2aMethod,
    descriptor: &'static ProtobufMethod,
}

impl GrpcMethod {
    /// The method of a path, such as `/lf.a2a.v1.A2AService/GetTask`.
    pub fn find(path: &str) -> Option<Self> {
        let (service, name) = path.strip_prefix('/')?.split_once('/')?;
        let (_, dialect) = SERVICES.into_iter().find(|(name, _)| *name == service)?;
        let methods = &DescriptorPool::get().service(service)?.methods;
        let descriptor = methods.iter().find(|method| method.name == name)?;
        let renamed = RENAMED.iter().find(|(other, _)| dialect < Dialect::V1 && *other == name);
        let method = renamed.map(|(_, method)| *method).or_else(|| A2aMethod::find(Dialect::V1, name))?;
        Some(Self { dialect, method, descriptor })
    }

    /// The method of a dialect that carries a call, with its path. 0.1 has no gRPC.
    pub fn of_call(dialect: Dialect, call: &A2aCall) -> Option<(Self, String)> {
        let (service, _) = SERVICES.into_iter().find(|(_, of)| *of == dialect)?;
        let method = A2aMethod::of(call);
        let renamed = RENAMED.iter().find(|(_, of)| dialect < Dialect::V1 && *of == method);
        let name = renamed.map(|(name, _)| *name).or_else(|| method.name(Dialect::V1))?;
        let path = format!("/{service}/{name}");
        Self::find(&path).map(|method| (method, path))
    }

    /// Whether the response is a stream.
    pub fn streams(&self) -> bool {
        self.descriptor.streams
    }

    /// Checks the version that the metadata names. Without one the service decides.
    pub fn check_version(&self, version: Option<&str>) -> Result<(), A2aFault> {
        let Some(version) = version.map(str::trim).filter(|version| !version.is_empty()) else {
            return Ok(());
        };
        if Dialect::from_version(version) == Some(self.dialect) {
            return Ok(());
        }
        let message = format!(
            "A2A version {version:?} is not supported by this service, which is that of A2A {}: 1.0 is \
             lf.a2a.v1.A2AService, 0.3 is a2a.v1.A2AService",
            self.dialect.version()
        );
        let fault = self.dialect.problem(A2aProblem::VersionNotSupported, message);
        Err(fault.with_detail("supportedVersions", self.dialect.version()))
    }

    /// The JSON of a request's message.
    pub fn read_request(&self, message: &[u8], limits: ProtobufLimits) -> Result<String, ProtobufError> {
        self.descriptor.input().read_text(message, limits)
    }

    /// The `tenant` that a request names. Only 1.0 has one.
    pub fn tenant(&self, request: &str) -> Result<Option<String>, A2aFault> {
        if self.dialect < Dialect::V1 {
            return Ok(None);
        }
        params::read_tenant(request).map_err(|malformed| self.dialect.malformed(&malformed))
    }

    /// Reads the call of a request.
    pub fn read_call(&self, request: &str) -> Result<A2aCall, A2aFault> {
        let call = match self.dialect >= Dialect::V1 {
            true => params::read_method(self.dialect, self.method, request),
            false => self.read_named(request),
        };
        call.map_err(|malformed| rest::refuse(self.dialect, malformed))
    }

    /// Reads a request of 0.3, in which names stand for ids.
    fn read_named(&self, json: &str) -> Result<A2aCall, MalformedInput> {
        #[derive(Deserialize, Default)]
        #[serde(rename_all = "camelCase", default)]
        struct NamedIn {
            name: String,
            parent: String,
            history_length: i64,
            page_size: i64,
            page_token: Option<String>,
        }
        let rest = |operation| rest::read_operation(self.dialect, operation, "", json);
        if let A2aMethod::Send = self.method {
            return rest(RestOperation::Send);
        }
        if let A2aMethod::Stream = self.method {
            return rest(RestOperation::Stream);
        }
        let request: NamedIn = input::parse(params::ROOT, json)?;
        let task = || task_id("name", &request.name);
        // Proto has no absence for these numbers: 0 is none.
        let natural = |name, number: i64| match usize::try_from(number) {
            Ok(0) => Ok(None),
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(AT.member(name).malformed(format!("expected a number from 0, got {number}"))),
        };
        Ok(match self.method {
            A2aMethod::Get => A2aCall::Get {
                task: task()?,
                history_length: natural("historyLength", request.history_length)?,
            },
            A2aMethod::Cancel => A2aCall::Cancel { task: task()?, metadata: None },
            A2aMethod::Subscribe => A2aCall::Subscribe { task: task()? },
            A2aMethod::SetWebhook => {
                rest(RestOperation::SetWebhook { task: task_id("parent", &request.parent)? })?
            }
            A2aMethod::GetWebhook => {
                let (task, id) = webhook_ids(&request.name)?;
                A2aCall::GetWebhook { task, id: non_empty(Some(id)) }
            }
            A2aMethod::ListWebhooks => A2aCall::ListWebhooks {
                task: task_id("parent", &request.parent)?,
                page_size: natural("pageSize", request.page_size)?,
                page_token: non_empty(request.page_token),
            },
            A2aMethod::DeleteWebhook => {
                let (task, id) = webhook_ids(&request.name)?;
                A2aCall::DeleteWebhook { task, id: AT.required_text("name", Some(id))? }
            }
            A2aMethod::ExtendedCard | A2aMethod::Send | A2aMethod::Stream | A2aMethod::List => {
                A2aCall::ExtendedCard
            }
        })
    }

    /// Writes the message of a call; `json` is what [`Dialect::write_rest_request`] wrote.
    pub fn write_request(&self, out: &mut Vec<u8>, json: &[u8]) -> Result<(), ProtobufError> {
        self.descriptor.input().write_from_json(out, json)
    }

    /// Writes the message of a task: the result of get and cancel.
    pub fn write_task(&self, out: &mut Vec<u8>, task: &Task, view: TaskDetail) -> Result<(), ProtobufError> {
        if self.dialect >= Dialect::V1 {
            return task_message::write_task(out, task, view);
        }
        let mut json = Vec::with_capacity(1024);
        self.dialect.write_task(&mut json, task, view);
        self.write_result(out, json, None)
    }

    /// Writes the message of the result of a send: the task, or the message with which the agent answered.
    pub fn write_sent(&self, out: &mut Vec<u8>, task: &Task, view: TaskDetail) -> Result<(), ProtobufError> {
        if self.dialect >= Dialect::V1 {
            return task_message::write_sent(out, task, view);
        }
        let mut json = Vec::with_capacity(1024);
        self.dialect.write_sent(&mut json, task, view);
        self.write_result(out, json, None)
    }

    /// Writes the message of a result or of an event; `json` is what the dialect wrote. A cursor is added to the
    /// event's metadata, in place if `json` is owned.
    pub fn write_result<'j>(
        &self,
        out: &mut Vec<u8>,
        json: impl Into<Cow<'j, [u8]>>,
        cursor: Option<u64>,
    ) -> Result<(), ProtobufError> {
        let mut proto = json.into();
        if self.dialect < Dialect::V1 {
            let mut older = Vec::with_capacity(proto.len() * 2);
            let wrapped = matches!(self.method, A2aMethod::Send | A2aMethod::Stream | A2aMethod::Subscribe);
            match self.method {
                A2aMethod::ExtendedCard => json::value(&mut older, &proto_0_3::write_card(&proto)),
                _ => self.dialect.write_rest_result(&mut older, &proto, wrapped),
            }
            proto = Cow::Owned(older);
        }
        if let Some(cursor) = cursor {
            proto = Cow::Owned(with_cursor(proto, cursor));
        }
        self.descriptor.output().write_from_json(out, &proto)
    }

    /// The JSON of a response's message, which is that of REST: [`Dialect::read_rest_result`] reads it.
    pub fn read_response(
        &self,
        message: &[u8],
        limits: ProtobufLimits,
    ) -> Result<Box<RawValue>, ProtobufError> {
        self.descriptor.output().read_json(message, limits)
    }
}

/// An event with its cursor in its metadata: `{"statusUpdate": {…, "metadata": {"…/cursor/v1": "7"}}}`.
///
/// Not as a second occurrence of the field, which would mean the same: not every decoder merges those.
fn with_cursor(event: Cow<'_, [u8]>, cursor: u64) -> Vec<u8> {
    let is_plain = |event: &str| !event.contains("\"metadata\"");
    if let Some(open) = event.strip_suffix(b"}}").filter(|open| !open.ends_with(b"{"))
        && std::str::from_utf8(open).is_ok_and(is_plain)
    {
        let length = open.len();
        let mut out = event.into_owned();
        out.truncate(length);
        // Writing to a `Vec` cannot fail.
        let _ = write!(out, ",\"metadata\":{{\"{CURSOR_EXTENSION}\":\"{cursor}\"}}}}}}");
        return out;
    }
    let mut deserializer = serde_json::Deserializer::from_slice(&event);
    // As in the encoder: the event is our own, and deeper than the data in it.
    deserializer.disable_recursion_limit();
    let Ok(mut value) = Value::deserialize(&mut deserializer) else { return event.into_owned() };
    if let Some(payload) = value.as_object_mut().and_then(|members| members.values_mut().next()) {
        payload["metadata"][CURSOR_EXTENSION] = cursor.to_string().into();
    }
    value.to_string().into_bytes()
}

fn task_id(member: &'static str, name: &str) -> Result<String, MalformedInput> {
    proto_0_3::read_task_name(name)
        .ok_or_else(|| AT.member(member).malformed(format!("expected tasks/{{id}}, got {name:?}")))
}

fn webhook_ids(name: &str) -> Result<(String, String), MalformedInput> {
    proto_0_3::read_webhook_name(name)
        .ok_or_else(|| AT.member("name").malformed(format!("expected tasks/{{id}}, got {name:?}")))
}

impl Dialect {
    /// The status with which a call ends that failed.
    pub fn grpc_status(self, fault: &A2aFault) -> GrpcStatus {
        let details = fault.details().as_array().cloned().unwrap_or_default();
        GrpcStatus { code: self.grpc_code(fault.problem), message: fault.message.clone(), details }
    }

    /// The code of a problem: section 5.4 of 1.0.1, and what the official server of 0.3 sends.
    pub fn grpc_code(self, problem: A2aProblem) -> GrpcCode {
        match problem {
            A2aProblem::MethodNotFound => GrpcCode::Unimplemented,
            A2aProblem::PushUnsupported
            | A2aProblem::UnsupportedOperation
            | A2aProblem::StreamingUnsupported
            | A2aProblem::ExtendedCardUnsupported
            | A2aProblem::ExtendedCardNotConfigured
                if self < Self::V1 =>
            {
                GrpcCode::Unimplemented
            }
            A2aProblem::TaskEnded if self < Self::V1 => GrpcCode::InvalidArgument,
            A2aProblem::ParseError
            | A2aProblem::InvalidRequest
            | A2aProblem::InvalidParams
            | A2aProblem::LimitReached
            | A2aProblem::ContentTypeNotSupported => GrpcCode::InvalidArgument,
            A2aProblem::TaskNotFound => GrpcCode::NotFound,
            A2aProblem::TaskNotCancelable
            | A2aProblem::PushUnsupported
            | A2aProblem::UnsupportedOperation
            | A2aProblem::StreamingUnsupported
            | A2aProblem::TaskEnded
            | A2aProblem::ExtendedCardUnsupported
            | A2aProblem::ExtendedCardNotConfigured
            | A2aProblem::ExtensionRequired
            | A2aProblem::VersionNotSupported => GrpcCode::FailedPrecondition,
            A2aProblem::Internal => GrpcCode::Internal,
            A2aProblem::Unauthenticated => GrpcCode::Unauthenticated,
            A2aProblem::Forbidden => GrpcCode::PermissionDenied,
            A2aProblem::TooFast => GrpcCode::ResourceExhausted,
            A2aProblem::Unavailable => GrpcCode::Unavailable,
        }
    }
}
