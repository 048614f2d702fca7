//! Headers repeat what the body says (2026-07-28), for whoever on the way only sees those. The two have to agree.

use std::borrow::Cow;

use axum::http::HeaderMap;
use nuncio_engine::Catalog;
use nuncio_wire::{
    jsonrpc,
    mcp::{Fault, Meta, decode_value, mirrored, same_value, value_at},
};
use serde::Deserialize;
use serde_json::{Value, value::RawValue};

/// Headers repeat what the body says, for whoever only sees those.
pub(super) fn check_headers(
    headers: &HeaderMap,
    request: &jsonrpc::Request<'_>,
    meta: &Meta,
) -> Result<(), Fault> {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let said = meta.version.as_deref().unwrap_or_default();
    match header("mcp-protocol-version") {
        None => return Err(Fault::header("the MCP-Protocol-Version header is missing")),
        Some(version) if version != said => {
            return Err(Fault::header(format!(
                "MCP-Protocol-Version says {version:?}, and _meta says {said:?}"
            )));
        }
        Some(_) => {}
    }
    if request.id.is_none() {
        return Ok(());
    }
    match header("mcp-method") {
        None => return Err(Fault::header("the Mcp-Method header is missing")),
        Some(method) if method != request.method => {
            return Err(Fault::header(format!(
                "Mcp-Method says {method:?}, and the body says {:?}",
                request.method
            )));
        }
        Some(_) => {}
    }
    let Named { name, uri, task } = Named::read(request.params);
    let (member, named) = match &*request.method {
        "tools/call" | "prompts/get" => ("name", name),
        "resources/read" => ("uri", uri),
        "tasks/get" | "tasks/update" | "tasks/cancel" => ("taskId", task),
        _ => return Ok(()),
    };
    let Some(named) = named else { return Ok(()) };
    let Some(header) = headers.get("mcp-name") else {
        return Err(Fault::header("the Mcp-Name header is missing"));
    };
    match decode_value(header.as_bytes()) {
        Some(name) if name == named => Ok(()),
        Some(name) => {
            Err(Fault::header(format!("Mcp-Name says {name:?}, and params.{member} says {named:?}")))
        }
        None => Err(Fault::header("Mcp-Name: it has characters that no header may have, or is damaged")),
    }
}

/// Arguments that a tool wants repeated in headers.
pub(super) fn check_arguments(
    catalog: &Catalog,
    headers: &HeaderMap,
    request: &jsonrpc::Request<'_>,
) -> Result<(), Fault> {
    if request.method != "tools/call" {
        return Ok(());
    }
    let Some(name) = Named::read(request.params).name else { return Ok(()) };
    let mirrors = match (catalog.surface().tool(&name), catalog.get(&name)) {
        (Some(tool), _) if tool.input.mirrors() => mirrored(&tool.profile.input_schema),
        (None, Ok(agent)) if agent.input.as_ref().is_some_and(|input| input.mirrors()) => {
            agent.profile.input_schema.as_ref().map(mirrored).unwrap_or_default()
        }
        _ => return Ok(()),
    };
    if mirrors.is_empty() {
        return Ok(());
    }
    let params: Value =
        request.params.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
    for (name, path) in mirrors {
        let argument = value_at(&params["arguments"], &path);
        let header = headers.get(format!("mcp-param-{name}").to_ascii_lowercase());
        let agree = match (header.map(|header| decode_value(header.as_bytes())), argument) {
            (None, None) => true,
            (Some(Some(said)), Some(meant)) => same_value(&said, meant),
            _ => false,
        };
        if !agree {
            return Err(Fault::header(format!(
                "Mcp-Param-{name} does not say what the argument {} says",
                path.join(".")
            )));
        }
    }
    Ok(())
}

/// What a request is about, where its params name it: read without building the rest of them.
#[derive(Default, Deserialize)]
struct Named<'a> {
    #[serde(borrow, default)]
    name: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    uri: Option<Cow<'a, str>>,
    #[serde(rename = "taskId", borrow, default)]
    task: Option<Cow<'a, str>>,
}

impl<'a> Named<'a> {
    fn read(params: Option<&'a RawValue>) -> Self {
        params.and_then(|params| serde_json::from_str(params.get()).ok()).unwrap_or_default()
    }
}
