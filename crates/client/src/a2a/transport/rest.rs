//! The HTTP+JSON binding of A2A (1.0, section 11): the requests of calls, and the errors of responses.
//!
//! In 1.0 a call's params are those of JSON-RPC: in the body where the method is POST, in the path and the query otherwise.
//! In 0.3 the paths are under `/v1`, and the JSON is that of gRPC; results are translated to that of JSON-RPC.

use ::http::Method;
use nuncio_wire::{
    a2a::{A2aCall, Dialect},
    jsonrpc::{INVALID_REQUEST, RpcErrorObject},
};
use serde::Deserialize;
use serde_json::{Map, Value, value::RawValue};
use url::Url;

use super::{A2aEventSource, A2aRoute, SseEventSource, as_json, code_of, code_of_status, malformed};
use crate::a2a::{
    A2aClientError,
    http::{Exchange, JSON_ONLY, ReadResponse, STREAM_ONLY},
};

/// Sends a call and returns its result.
pub(super) async fn call(route: &A2aRoute, call: &A2aCall) -> Result<Box<RawValue>, A2aClientError> {
    let answer = route.http.exchange(request_of(route, call, JSON_ONLY)?, None).await?;
    if !answer.is_success() {
        return Err(refusal(route, call, &answer));
    }
    // A deleted configuration may be answered without a body.
    let json = if answer.body.is_empty() { as_json(b"{}") } else { as_json(&answer.body) };
    route.interface.dialect.read_rest_result(call, json?).map_err(|error| malformed(&error))
}

/// Sends a call whose response is a stream.
pub(super) async fn open(
    route: &A2aRoute,
    call: &A2aCall,
    after: Option<&str>,
) -> Result<A2aEventSource, A2aClientError> {
    let read = match route.interface.dialect {
        Dialect::V0_1 | Dialect::V0_3 => read_event_0_3,
        Dialect::V1 => read_event,
    };
    match route.http.open(request_of(route, call, STREAM_ONLY)?, after).await? {
        Ok(response) => Ok(SseEventSource::new(response, route.http.max_event(), read).into()),
        Err(answer) if answer.is_success() => Err(A2aClientError::NotAStream),
        Err(answer) => Err(refusal(route, call, &answer)),
    }
}

fn request_of(route: &A2aRoute, call: &A2aCall, accept: &'static str) -> Result<Exchange, A2aClientError> {
    let interface = &route.interface;
    let params = route.request(call)?;
    let RestClientRequest { method, url, body } = match interface.dialect {
        Dialect::V0_1 | Dialect::V0_3 => request_0_3(&interface.url, call, params),
        Dialect::V1 => request(&interface.url, interface.tenant.as_deref(), call, &params)?,
    };
    Ok(Exchange { method, url, body, dialect: interface.dialect, accept })
}

fn read_event(data: &str) -> Result<Box<RawValue>, A2aClientError> {
    match error_of(data.as_bytes()) {
        Some(error) => Err(error),
        None => as_json(data.as_bytes()),
    }
}

fn read_event_0_3(data: &str) -> Result<Box<RawValue>, A2aClientError> {
    if let Some(error @ OlderRestError { code: Some(code), .. }) = read_error_0_3(data.as_bytes()) {
        return Err(error.into_error(code));
    }
    Dialect::V0_3.read_rest_event(as_json(data.as_bytes())?).map_err(|error| malformed(&error))
}

/// The protocol's error, if the response has one; access is a matter of HTTP in every binding.
fn refusal(route: &A2aRoute, call: &A2aCall, answer: &ReadResponse) -> A2aClientError {
    let named = match (answer.is_about_access(), route.interface.dialect) {
        (true, _) => None,
        (false, Dialect::V1) => error_of(&answer.body),
        (false, Dialect::V0_1 | Dialect::V0_3) => error_0_3(answer.status(), call, &answer.body),
    };
    named.unwrap_or_else(|| answer.refused())
}

/// A request of this binding.
struct RestClientRequest {
    method: Method,
    url: Url,
    body: Option<Vec<u8>>,
}

const CONFIGS: &str = "pushNotificationConfigs";

/// The method and the path of a call, which is under `/v1` in 0.3.
fn path_of(dialect: Dialect, call: &A2aCall) -> (Method, Vec<String>) {
    let is_newer = dialect >= Dialect::V1;
    let verb = |task: &str, verb: &str| vec!["tasks".to_owned(), format!("{task}:{verb}")];
    let configs = |task: &String| vec!["tasks".to_owned(), task.clone(), CONFIGS.to_owned()];
    let one = |task: &String, id: &str| [configs(task), vec![id.to_owned()]].concat();
    let subscribe = if is_newer { Method::POST } else { Method::GET };
    let card = if is_newer { "extendedAgentCard" } else { "card" };
    let (method, path) = match call {
        A2aCall::Send(_) => (Method::POST, vec!["message:send".to_owned()]),
        A2aCall::Stream(_) => (Method::POST, vec!["message:stream".to_owned()]),
        A2aCall::Get { task, .. } => (Method::GET, vec!["tasks".to_owned(), task.clone()]),
        A2aCall::List(_) => (Method::GET, vec!["tasks".to_owned()]),
        A2aCall::Cancel { task, .. } => (Method::POST, verb(task, "cancel")),
        A2aCall::Subscribe { task } => (subscribe, verb(task, "subscribe")),
        A2aCall::SetWebhook { task, .. } => (Method::POST, configs(task)),
        A2aCall::GetWebhook { task, id } => (Method::GET, one(task, id.as_deref().unwrap_or_default())),
        A2aCall::ListWebhooks { task, .. } => (Method::GET, configs(task)),
        A2aCall::DeleteWebhook { task, id } => (Method::DELETE, one(task, id)),
        A2aCall::ExtendedCard => (Method::GET, vec![card.to_owned()]),
    };
    let prefix = if is_newer { vec![] } else { vec!["v1".to_owned()] };
    (method, [prefix, path].concat())
}

fn extended(base: &Url, tenant: Option<&str>, path: Vec<String>) -> Url {
    let mut url = base.clone();
    if let Ok(mut segments) = url.path_segments_mut() {
        segments.pop_if_empty().extend(tenant).extend(path);
    }
    url
}

/// The request of a call at an interface of 1.0, with its params and the interface's routing identifier.
fn request(
    base: &Url,
    tenant: Option<&str>,
    call: &A2aCall,
    params: &[u8],
) -> Result<RestClientRequest, A2aClientError> {
    let (method, path) = path_of(Dialect::V1, call);
    let mut url = extended(base, tenant, path);
    if method == Method::POST {
        return Ok(RestClientRequest { method, url, body: Some(params.to_vec()) });
    }
    let params: Map<String, Value> =
        serde_json::from_slice(params).map_err(|error| A2aClientError::Malformed(error.to_string()))?;
    // The ids are in the path.
    for (name, value) in
        params.iter().filter(|(name, _)| !matches!(name.as_str(), "id" | "taskId" | "tenant"))
    {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        url.query_pairs_mut().append_pair(name, &text);
    }
    Ok(RestClientRequest { method, url, body: None })
}

/// The request of a call at an interface of 0.3, with its message.
fn request_0_3(base: &Url, call: &A2aCall, message: Vec<u8>) -> RestClientRequest {
    let (method, path) = path_of(Dialect::V0_3, call);
    let mut url = extended(base, None, path);
    let query = match call {
        A2aCall::Get { history_length, .. } => {
            [("historyLength", history_length.map(|length| length.to_string())), ("", None)]
        }
        A2aCall::ListWebhooks { page_size, page_token, .. } => {
            [("pageSize", page_size.map(|size| size.to_string())), ("pageToken", page_token.clone())]
        }
        _ => [("", None), ("", None)],
    };
    for (name, value) in query {
        if let Some(value) = value {
            url.query_pairs_mut().append_pair(name, &value);
        }
    }
    let body = (method == Method::POST).then_some(message);
    RestClientRequest { method, url, body }
}

/// The body of an error in 0.3: the JavaScript server writes the code of JSON-RPC, the Python server the message alone.
#[derive(Deserialize)]
struct OlderRestError {
    code: Option<i64>,
    message: String,
    data: Option<Value>,
}

impl OlderRestError {
    fn into_error(self, code: i64) -> A2aClientError {
        A2aClientError::Rpc(RpcErrorObject { code, message: self.message, data: self.data })
    }
}

fn read_error_0_3(body: &[u8]) -> Option<OlderRestError> {
    serde_json::from_slice(body).ok()
}

fn error_0_3(status: u16, call: &A2aCall, body: &[u8]) -> Option<A2aClientError> {
    // A server that is busy, or not there, says so in the same way in every binding.
    if matches!(status, 429 | 502..=504) {
        return None;
    }
    let body = read_error_0_3(body)?;
    let code = match (status, body.code) {
        // Our servers' answer to a path that does not exist: the binding may not be served there.
        (404 | 405, Some(code)) if code == i64::from(INVALID_REQUEST) => return None,
        (_, Some(code)) => code,
        (_, None) => code_of_status(status, call)?,
    };
    Some(body.into_error(code))
}

/// The error in a response of 1.0, or in an event of a stream.
fn error_of(body: &[u8]) -> Option<A2aClientError> {
    #[derive(Deserialize)]
    struct RestErrorBody {
        error: RestError,
    }
    #[derive(Deserialize)]
    struct RestError {
        #[serde(default)]
        code: u16,
        #[serde(default)]
        message: String,
        #[serde(default)]
        details: Vec<Value>,
    }
    let RestErrorBody { error } = serde_json::from_slice(body).ok()?;
    let reason = error.details.iter().find_map(|detail| detail["reason"].as_str());
    let (known, is_named) = (reason.and_then(code_of), reason.is_some());
    // A path that does not exist is not an error of the protocol: the binding may not be served there. A server that
    // is busy, or not there, says so in the same way in every binding.
    if !is_named && matches!(error.code, 404 | 405 | 429 | 501..=504) {
        return None;
    }
    let data = (!error.details.is_empty()).then_some(Value::Array(error.details));
    let code = known.unwrap_or(match error.code {
        400..=499 => -32602,
        _ => -32603,
    });
    Some(A2aClientError::Rpc(RpcErrorObject { code, message: error.message, data }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_have_the_paths_of_the_specification() {
        let base = Url::parse("http://a.example/agents/x/").unwrap();
        let check = |call: A2aCall, expected: &str| {
            let mut params = vec![];
            Dialect::V1.write_call(&mut params, &call).unwrap();
            let request = request(&base, Some("t/1"), &call, &params).unwrap();
            let got = format!("{} {}", request.method, request.url);
            assert_eq!(got, format!("{expected}"));
        };
        let at = "http://a.example/agents/x/t%2F1";
        let task = || "7".to_owned();
        check(
            A2aCall::Get { task: task(), history_length: Some(3) },
            &format!("GET {at}/tasks/7?historyLength=3"),
        );
        check(
            A2aCall::Cancel { task: "a/b".to_owned(), metadata: None },
            &format!("POST {at}/tasks/a%2Fb:cancel"),
        );
        check(A2aCall::Subscribe { task: task() }, &format!("POST {at}/tasks/7:subscribe"));
        check(
            A2aCall::DeleteWebhook { task: task(), id: "c".to_owned() },
            &format!("DELETE {at}/tasks/7/pushNotificationConfigs/c"),
        );
        check(A2aCall::ExtendedCard, &format!("GET {at}/extendedAgentCard"));
    }

    #[test]
    fn calls_of_0_3_have_the_paths_that_the_official_servers_have() {
        let base = Url::parse("http://a.example/rest").unwrap();
        let check = |call: A2aCall, expected: &str, has_body: bool| {
            let mut message = vec![];
            assert!(Dialect::V0_3.write_rest_request(&mut message, &call));
            let request = request_0_3(&base, &call, message);
            assert_eq!(format!("{} {}", request.method, request.url), expected);
            assert_eq!(request.body.is_some(), has_body, "{expected}");
        };
        let (at, task) = ("http://a.example/rest/v1", || "7".to_owned());
        let get = |history_length| A2aCall::Get { task: task(), history_length };
        check(get(None), &format!("GET {at}/tasks/7"), false);
        check(get(Some(0)), &format!("GET {at}/tasks/7?historyLength=0"), false);
        check(
            A2aCall::Cancel { task: "a/b".to_owned(), metadata: None },
            &format!("POST {at}/tasks/a%2Fb:cancel"),
            true,
        );
        check(A2aCall::Subscribe { task: task() }, &format!("GET {at}/tasks/7:subscribe"), false);
        check(
            A2aCall::ListWebhooks { task: task(), page_size: Some(2), page_token: Some("p".to_owned()) },
            &format!("GET {at}/tasks/7/pushNotificationConfigs?pageSize=2&pageToken=p"),
            false,
        );
        check(
            A2aCall::DeleteWebhook { task: task(), id: "c".to_owned() },
            &format!("DELETE {at}/tasks/7/pushNotificationConfigs/c"),
            false,
        );
        check(A2aCall::ExtendedCard, &format!("GET {at}/card"), false);
    }

    #[test]
    fn an_error_of_0_3_has_the_code_that_it_has_in_json_rpc() {
        let call = A2aCall::Cancel { task: "t".to_owned(), metadata: None };
        let code =
            |status, body: &str| error_0_3(status, &call, body.as_bytes()).map(|error| error.rpc_code());
        // Ours and JavaScript's, then Python's.
        assert_eq!(code(409, r#"{"code":-32002,"message":"no"}"#), Some(Some(-32002)));
        assert_eq!(code(409, r#"{"message":"no"}"#), Some(Some(-32002)));
        assert_eq!(code(404, r#"{"message":"no"}"#), Some(Some(-32001)));
        // No path, or not for A2A at all.
        assert_eq!(code(404, r#"{"code":-32600,"message":"no","error":{}}"#), None);
        assert_eq!(code(404, r#"{"detail":"Not Found"}"#), None);
        assert_eq!(code(503, r#"{"message":"no"}"#), None);
        assert_eq!(code(404, "<html>"), None);
        let event = read_event_0_3(r#"{"code":-32603,"message":"no"}"#).unwrap_err();
        assert_eq!(event.rpc_code(), Some(-32603));
        assert!(read_event_0_3(r#"{"message":{"messageId":"m","content":[]}}"#).is_ok());
    }

    #[test]
    fn an_error_has_the_code_that_it_has_in_json_rpc() {
        let body = br#"{"error":{"code":404,"status":"NOT_FOUND","message":"no task","details":[{"reason":"TASK_NOT_FOUND"}]}}"#;
        let error = error_of(body).unwrap();
        assert_eq!((error.rpc_code(), error.to_string()), (Some(-32001), "no task".to_owned()));
        assert!(error_of(br#"{"task":{}}"#).is_none());
        assert!(error_of(br#"{"error":{"code":404,"message":"no such path","details":[]}}"#).is_none());
    }
}
