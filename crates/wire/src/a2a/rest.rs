//! The REST (HTTP+JSON) binding as a format: operations, query parameters, request bodies, and errors as HTTP
//! statuses with a body. Paths are up to the server and the client; results are written by the dialect, without an
//! envelope.
//!
//! 1.0 uses the JSON of its other bindings. 0.3 uses the ProtoJSON of its gRPC messages, see [`proto_0_3`].

mod error;
pub(super) mod proto_0_3;

use serde_json::{Map, Value, value::RawValue};

use super::{
    Dialect,
    call::A2aCall,
    fault::{A2aFault, A2aProblem},
    input::{self, JsonPath, MalformedInput, WholeNumber, non_empty},
    method::{A2aMethod, choose_dialect},
    params,
    webhook::WebhookIn,
};
use crate::jsonrpc::is_deeper;

const AT: JsonPath<'static> = JsonPath::Root(params::ROOT);

/// An operation, with the ids that its path names.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of `A2aCall`")]
pub enum RestOperation {
    Send,
    Stream,
    Get { task: String },
    List,
    Cancel { task: String },
    Subscribe { task: String },
    SetWebhook { task: String },
    GetWebhook { task: String, id: String },
    ListWebhooks { task: String },
    DeleteWebhook { task: String, id: String },
    ExtendedCard,
}

impl RestOperation {
    fn method(&self) -> A2aMethod {
        match self {
            Self::Send => A2aMethod::Send,
            Self::Stream => A2aMethod::Stream,
            Self::Get { .. } => A2aMethod::Get,
            Self::List => A2aMethod::List,
            Self::Cancel { .. } => A2aMethod::Cancel,
            Self::Subscribe { .. } => A2aMethod::Subscribe,
            Self::SetWebhook { .. } => A2aMethod::SetWebhook,
            Self::GetWebhook { .. } => A2aMethod::GetWebhook,
            Self::ListWebhooks { .. } => A2aMethod::ListWebhooks,
            Self::DeleteWebhook { .. } => A2aMethod::DeleteWebhook,
            Self::ExtendedCard => A2aMethod::ExtendedCard,
        }
    }
}

/// A request whose path and method are known.
#[derive(Debug, Clone)]
pub struct RestRequest<'a> {
    /// What is asked for.
    pub operation: RestOperation,
    /// The query of the URL, without its question mark; empty if there is none.
    pub query: &'a str,
    /// The body; empty if there is none, which means `{}`.
    pub body: &'a [u8],
}

impl RestRequest<'_> {
    /// Checks the version that a request names against the generation that its path belongs to.
    ///
    /// The paths of 1.0 require a version, as the methods of 1.0 do in JSON-RPC; those of 0.3 need none.
    pub fn check_version(&self, dialect: Dialect, version: Option<&str>) -> Result<(), A2aFault> {
        if dialect >= Dialect::V1 {
            let method = self.operation.method().name(dialect).unwrap_or_default();
            return choose_dialect(version, method).map(drop).map_err(|refusal| refusal.fault);
        }
        let Some(version) = version.map(str::trim).filter(|version| !version.is_empty()) else {
            return Ok(());
        };
        if Dialect::from_version(version) == Some(dialect) {
            return Ok(());
        }
        let message = format!(
            "the paths under /v1 are those of A2A 0.3, but the request says A2A-Version {version:?}: send 0.3, or \
             use the paths of 1.0, which have no /v1"
        );
        let fault = dialect.problem(A2aProblem::VersionNotSupported, message);
        Err(fault.with_detail("supportedVersions", "0.3, 0.2"))
    }

    /// The `tenant` that the query or the body names. Only 1.0 has one.
    pub fn tenant(&self, dialect: Dialect) -> Result<Option<String>, A2aFault> {
        if dialect < Dialect::V1 {
            return Ok(None);
        }
        self.read_tenant().map_err(|malformed| refuse(dialect, malformed))
    }

    fn read_tenant(&self) -> Result<Option<String>, MalformedInput> {
        let in_query = non_empty(Query(self.query).text("tenant")?);
        // A body that is no JSON is refused by `read_call`.
        let body = std::str::from_utf8(self.body).ok();
        let in_body = body.map_or(Ok(None), params::read_tenant)?;
        match (in_query, in_body) {
            (Some(one), Some(other)) if one != other => Err(AT.member("tenant").malformed(format!(
                "the query says {one:?}, the body {other:?}: a request is for one tenant"
            ))),
            (in_query, in_body) => Ok(in_query.or(in_body)),
        }
    }

    /// Reads the call. `max_depth` bounds the nesting of the body.
    pub fn read_call(self, dialect: Dialect, max_depth: usize) -> Result<A2aCall, A2aFault> {
        let body = read_body(self.body, dialect, max_depth)?;
        let proto = dialect < Dialect::V1 && body.contains("\"content\"");
        read_operation(dialect, self.operation, self.query, body).map_err(|mut malformed| {
            // The member has the name that the client wrote, not the one that it was translated to.
            if proto {
                malformed.path = malformed.path.replacen("message.parts", "message.content", 1);
            }
            refuse(dialect, malformed)
        })
    }
}

/// The body as the text of a JSON value.
fn read_body(body: &[u8], dialect: Dialect, max_depth: usize) -> Result<&str, A2aFault> {
    let no_json = |why: String| dialect.problem(A2aProblem::ParseError, why);
    let text = std::str::from_utf8(body)
        .map_err(|error| no_json(format!("the body is not UTF-8: {error}")))?
        .trim_ascii();
    // In ProtoJSON null is an absent message, and clients write it where they have none.
    if matches!(text, "" | "null") {
        return Ok("{}");
    }
    serde_json::from_str::<&RawValue>(text)
        .map_err(|error| no_json(format!("the body is not JSON: {error}")))?;
    // JSON-RPC's envelope is one level: what fits there fits here.
    let max_depth = max_depth.saturating_sub(1);
    if is_deeper(text.as_bytes(), max_depth) {
        let message = format!("the body is nested deeper than {max_depth} levels");
        return Err(dialect.problem(A2aProblem::InvalidRequest, message));
    }
    Ok(text)
}

/// The fault for malformed input. Paths begin at the body or the query, not at params.
pub(super) fn refuse(dialect: Dialect, malformed: MalformedInput) -> A2aFault {
    let MalformedInput { path, problem } = malformed;
    let path = match path.strip_prefix("params") {
        Some("") => "body".to_owned(),
        Some(member) => member.trim_start_matches('.').to_owned(),
        None => path,
    };
    dialect.malformed(&MalformedInput { path, problem })
}

/// Reads the call of an operation; the body is the text of a JSON value.
pub(super) fn read_operation(
    dialect: Dialect,
    operation: RestOperation,
    query: &str,
    body: &str,
) -> Result<A2aCall, MalformedInput> {
    // Serde would accept an array for a struct, element by element.
    if !body.starts_with('{') {
        return Err(AT.malformed("expected an object"));
    }
    let query = &Query(query);
    // 0.3 wrote query names in both ways.
    let number = |name: &'static str, older: &'static str| {
        let mut text = query.text(name)?;
        if text.is_none() && dialect < Dialect::V1 {
            text = query.text(older)?;
        }
        let read = |text: String| match text.parse() {
            Ok(number) => Ok(WholeNumber(number)),
            Err(_) => Err(AT.member(name).malformed(format!("expected a whole number, not {text:?}"))),
        };
        params::natural(text.map(read).transpose()?, name, &AT)
    };
    Ok(match operation {
        RestOperation::Send | RestOperation::Stream => {
            let method = operation.method();
            match dialect {
                Dialect::V1 => params::read_method(dialect, method, body)?,
                Dialect::V0_1 | Dialect::V0_3 => {
                    params::read_method(dialect, method, &proto_0_3::read_send(body)?)?
                }
            }
        }
        RestOperation::Get { task } => {
            A2aCall::Get { task, history_length: number("historyLength", "history_length")? }
        }
        RestOperation::List => params::read_method(dialect, A2aMethod::List, &list_params(query)?)?,
        RestOperation::Cancel { task } => {
            params::read_method(dialect, A2aMethod::Cancel, &with_member(body, "id", task)?)?
        }
        RestOperation::Subscribe { task } => A2aCall::Subscribe { task },
        RestOperation::SetWebhook { task } => {
            let config = match dialect {
                Dialect::V1 => input::parse::<WebhookIn>(params::ROOT, body)?.read_inline(dialect, AT)?,
                Dialect::V0_1 | Dialect::V0_3 => {
                    let json = proto_0_3::read_webhook_request(body)?;
                    input::parse::<WebhookIn>(params::ROOT, &json)?
                        .read_inline(dialect, AT.member("pushNotificationConfig"))?
                }
            };
            A2aCall::SetWebhook { task, config }
        }
        RestOperation::GetWebhook { task, id } => A2aCall::GetWebhook { task, id: Some(id) },
        RestOperation::ListWebhooks { task } => {
            let page_size = number("pageSize", "page_size")?.filter(|size| *size > 0);
            A2aCall::ListWebhooks { task, page_size, page_token: non_empty(query.text("pageToken")?) }
        }
        RestOperation::DeleteWebhook { task, id } => A2aCall::DeleteWebhook { task, id },
        RestOperation::ExtendedCard => A2aCall::ExtendedCard,
    })
}

/// The params of `ListTasks` from a query. Numbers may be texts in ProtoJSON; a boolean may not.
fn list_params(query: &Query<'_>) -> Result<String, MalformedInput> {
    let mut params = Map::new();
    for name in ["contextId", "status", "pageSize", "pageToken", "historyLength", "statusTimestampAfter"] {
        if let Some(text) = query.text(name)? {
            params.insert(name.to_owned(), text.into());
        }
    }
    let name = "includeArtifacts";
    let include = match query.text(name)?.as_deref() {
        None => None,
        Some("true") => Some(true),
        Some("false") => Some(false),
        Some(other) => {
            return Err(AT.member(name).malformed(format!("expected true or false, not {other:?}")));
        }
    };
    if let Some(include) = include {
        params.insert(name.to_owned(), include.into());
    }
    Ok(Value::Object(params).to_string())
}

/// The body with a member set; the path names the id, whatever the body says.
fn with_member(body: &str, name: &str, value: String) -> Result<String, MalformedInput> {
    let mut members: Map<String, Value> = input::parse(params::ROOT, body)?;
    members.insert(name.to_owned(), value.into());
    Ok(Value::Object(members).to_string())
}

/// The parameters of a query.
struct Query<'a>(&'a str);

impl Query<'_> {
    /// The value of a parameter. Unknown parameters are ignored; one that is given twice is refused, because proxies
    /// and servers differ in which one counts.
    fn text(&self, name: &'static str) -> Result<Option<String>, MalformedInput> {
        let mut values = form_urlencoded::parse(self.0.as_bytes()).filter(|(key, _)| key == name);
        let value = values.next().map(|(_, value)| value.into_owned());
        match values.next() {
            Some(_) => Err(AT.member(name).malformed("is given more than once")),
            None => Ok(value),
        }
    }
}
