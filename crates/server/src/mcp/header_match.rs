//! The check that headers match the body (2026-07-28). Headers repeat parts of the body for proxies, which read only
//! headers.

use axum::http::{HeaderMap, HeaderValue};
use nuncio_engine::Catalog;
use nuncio_wire::{
    jsonrpc,
    mcp::{McpFault, RequestMeta, decode_value, mirrored_arguments, read_params, same_value, value_at},
};
use serde::Deserialize;
use serde_json::{Value, value::RawValue};

/// Checks that the standard headers match the body. Returns the subject of the request, such as the name of a tool.
pub(super) fn check_headers(
    headers: &HeaderMap,
    request: &jsonrpc::RpcRequest<'_>,
    meta: &RequestMeta,
) -> Result<Option<String>, McpFault> {
    let header = |name: &'static str| text(headers, name);
    let said = meta.version.as_deref().unwrap_or_default();
    match header("mcp-protocol-version")? {
        None => return Err(McpFault::header_mismatch("the MCP-Protocol-Version header is missing")),
        Some(version) if version != said => {
            return Err(McpFault::header_mismatch(format!(
                "MCP-Protocol-Version says {version:?}, and _meta says {said:?}"
            )));
        }
        Some(_) => {}
    }
    if request.id.is_none() {
        return Ok(None);
    }
    match header("mcp-method")? {
        None => return Err(McpFault::header_mismatch("the Mcp-Method header is missing")),
        Some(method) if method != request.method => {
            return Err(McpFault::header_mismatch(format!(
                "Mcp-Method says {method:?}, and the body says {:?}",
                request.method
            )));
        }
        Some(_) => {}
    }
    let (member, named) = match &*request.method {
        "tools/call" | "prompts/get" => ("name", read_params::<Name>(request.params)?.name),
        "resources/read" => ("uri", read_params::<Uri>(request.params)?.uri),
        "tasks/get" | "tasks/update" | "tasks/cancel" => {
            ("taskId", read_params::<TaskName>(request.params)?.task)
        }
        _ => return Ok(None),
    };
    let Some(named) = named else { return Ok(None) };
    let Some(header) = one(headers, "mcp-name")? else {
        return Err(McpFault::header_mismatch("the Mcp-Name header is missing"));
    };
    match decode_value(header.as_bytes()) {
        Some(name) if name == named => Ok(Some(named)),
        Some(name) => Err(McpFault::header_mismatch(format!(
            "Mcp-Name says {name:?}, and params.{member} says {named:?}"
        ))),
        None => Err(McpFault::header_mismatch(
            "Mcp-Name: it has characters that no header may have, or is damaged",
        )),
    }
}

/// Checks the arguments that a tool wants repeated in headers.
pub(super) fn check_arguments(
    catalog: &Catalog,
    headers: &HeaderMap,
    tool: &str,
    params: Option<&RawValue>,
) -> Result<(), McpFault> {
    let mirrors = match (catalog.surface().tool(tool), catalog.get(tool)) {
        (Some(tool), _) if tool.input.mirrors() => mirrored_arguments(&tool.profile.input_schema),
        (None, Ok(agent)) if agent.input.as_ref().is_some_and(|input| input.mirrors()) => {
            agent.profile.input_schema.as_ref().map(mirrored_arguments).unwrap_or_default()
        }
        _ => return Ok(()),
    };
    if mirrors.is_empty() {
        return Ok(());
    }
    let params: Value = params.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
    for (name, path) in mirrors {
        let argument = value_at(&params["arguments"], &path);
        let header = one(headers, &format!("mcp-param-{name}").to_ascii_lowercase())?;
        let agree = match (header.map(|header| decode_value(header.as_bytes())), argument) {
            (None, None) => true,
            (Some(Some(said)), Some(meant)) => same_value(&said, meant),
            _ => false,
        };
        if !agree {
            return Err(McpFault::header_mismatch(format!(
                "Mcp-Param-{name} does not say what the argument {} says",
                path.join(".")
            )));
        }
    }
    Ok(())
}

/// The single header of that name. If there were several, each proxy might read a different one.
fn one<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a HeaderValue>, McpFault> {
    let mut all = headers.get_all(name).iter();
    match (all.next(), all.next()) {
        (found, None) => Ok(found),
        _ => Err(McpFault::header_mismatch(format!("there is more than one {name} header"))),
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, McpFault> {
    let Some(value) = one(headers, name)? else { return Ok(None) };
    value.to_str().map(Some).map_err(|_| McpFault::header_mismatch(format!("the {name} header is not text")))
}

/// The subject of a request, read without parsing the rest of its params. One member at a time: an error
/// elsewhere must not hide it.
#[derive(Default, Deserialize)]
struct Name {
    #[serde(default)]
    name: Option<String>,
}

#[derive(Default, Deserialize)]
struct Uri {
    #[serde(default)]
    uri: Option<String>,
}

#[derive(Default, Deserialize)]
struct TaskName {
    #[serde(rename = "taskId", default)]
    task: Option<String>,
}
