//! The HTTP+JSON binding of A2A 1.0 (section 11): the requests of calls, and the errors of responses.
//!
//! A call's params are those of JSON-RPC: in the body where the method is POST, in the path and the query otherwise.

use ::http::Method;
use nuncio_wire::{a2a::A2aCall, jsonrpc::RpcErrorObject};
use serde::Deserialize;
use serde_json::{Map, Value, value::RawValue};
use url::Url;

use super::{A2aEventSource, A2aRoute, SseEventSource, as_json, code_of};
use crate::a2a::{
    A2aClientError,
    http::{Exchange, JSON_ONLY, ReadResponse, STREAM_ONLY},
};

/// Sends a call and returns its result.
pub(super) async fn call(route: &A2aRoute, call: &A2aCall) -> Result<Box<RawValue>, A2aClientError> {
    let answer = route.http.exchange(request_of(route, call, JSON_ONLY)?, None).await?;
    if !answer.is_success() {
        return Err(refusal(&answer));
    }
    // A deleted configuration may be answered without a body.
    if answer.body.is_empty() { as_json(b"{}") } else { as_json(&answer.body) }
}

/// Sends a call whose response is a stream.
pub(super) async fn open(
    route: &A2aRoute,
    call: &A2aCall,
    after: Option<&str>,
) -> Result<A2aEventSource, A2aClientError> {
    match route.http.open(request_of(route, call, STREAM_ONLY)?, after).await? {
        Ok(response) => Ok(SseEventSource::new(response, route.http.max_event(), read_event).into()),
        Err(answer) if answer.is_success() => Err(A2aClientError::NotAStream),
        Err(answer) => Err(refusal(&answer)),
    }
}

fn request_of(route: &A2aRoute, call: &A2aCall, accept: &'static str) -> Result<Exchange, A2aClientError> {
    let interface = &route.interface;
    let (_, params) = route.params(call)?;
    let RestClientRequest { method, url, body } =
        request(&interface.url, interface.tenant.as_deref(), call, &params)?;
    Ok(Exchange { method, url, body, dialect: interface.dialect, accept })
}

fn read_event(data: &str) -> Result<Box<RawValue>, A2aClientError> {
    match error_of(data.as_bytes()) {
        Some(error) => Err(error),
        None => as_json(data.as_bytes()),
    }
}

/// The protocol's error, if the response has one; access is a matter of HTTP in every binding.
fn refusal(answer: &ReadResponse) -> A2aClientError {
    let named = (!answer.is_about_access()).then(|| error_of(&answer.body)).flatten();
    named.unwrap_or_else(|| answer.refused())
}

/// A request of this binding.
struct RestClientRequest {
    method: Method,
    url: Url,
    body: Option<Vec<u8>>,
}

/// The request of a call at an interface, with its params and the interface's routing identifier.
fn request(
    base: &Url,
    tenant: Option<&str>,
    call: &A2aCall,
    params: &[u8],
) -> Result<RestClientRequest, A2aClientError> {
    const CONFIGS: &str = "pushNotificationConfigs";
    let verb = |task: &str, verb: &str| vec!["tasks".to_owned(), format!("{task}:{verb}")];
    let configs = |task: &String| vec!["tasks".to_owned(), task.clone(), CONFIGS.to_owned()];
    let one = |task: &String, id: &str| [configs(task), vec![id.to_owned()]].concat();
    let (method, path) = match call {
        A2aCall::Send(_) => (Method::POST, vec!["message:send".to_owned()]),
        A2aCall::Stream(_) => (Method::POST, vec!["message:stream".to_owned()]),
        A2aCall::Get { task, .. } => (Method::GET, vec!["tasks".to_owned(), task.clone()]),
        A2aCall::List(_) => (Method::GET, vec!["tasks".to_owned()]),
        A2aCall::Cancel { task, .. } => (Method::POST, verb(task, "cancel")),
        A2aCall::Subscribe { task } => (Method::POST, verb(task, "subscribe")),
        A2aCall::SetWebhook { task, .. } => (Method::POST, configs(task)),
        A2aCall::GetWebhook { task, id } => (Method::GET, one(task, id.as_deref().unwrap_or_default())),
        A2aCall::ListWebhooks { task, .. } => (Method::GET, configs(task)),
        A2aCall::DeleteWebhook { task, id } => (Method::DELETE, one(task, id)),
        A2aCall::ExtendedCard => (Method::GET, vec!["extendedAgentCard".to_owned()]),
    };
    let mut url = base.clone();
    if let Ok(mut segments) = url.path_segments_mut() {
        segments.pop_if_empty().extend(tenant).extend(path);
    }
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

/// The error in a response, or in an event of a stream.
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
    use nuncio_wire::a2a::Dialect;

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
    fn an_error_has_the_code_that_it_has_in_json_rpc() {
        let body = br#"{"error":{"code":404,"status":"NOT_FOUND","message":"no task","details":[{"reason":"TASK_NOT_FOUND"}]}}"#;
        let error = error_of(body).unwrap();
        assert_eq!((error.rpc_code(), error.to_string()), (Some(-32001), "no task".to_owned()));
        assert!(error_of(br#"{"task":{}}"#).is_none());
        assert!(error_of(br#"{"error":{"code":404,"message":"no such path","details":[]}}"#).is_none());
    }
}
