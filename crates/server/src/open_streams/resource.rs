//! The open streams as MCP resources: `a2a://streams/{streamId}`, and the tool `a2a_streams` that lists the
//! caller's own.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
};

use async_trait::async_trait;
use nuncio_engine::{
    AccessKind, Action, Caller, Engine, Error,
    access_control::AccessRequest,
    clock::Timestamp,
    surface::{
        CachePolicy, HandlerError, HandlerReply, HandlerRequest, ResourceContent, ResourceDescription,
        ResourceProfile, SchemaError, Template, ToolGroup, ToolOutput, ToolProfile, tool,
    },
};
use nuncio_wire::timestamp::format as iso;
use serde_json::{Value, json};

use super::{MAX_REMEMBERED, OpenStreamRecord, OpenStreams};

/// The resource kind in grants.
const STREAMS: &str = "streams";
const SCHEMA: &str = "a2a-stream";
const TEMPLATE: &str = "a2a://streams/{streamId}";

/// Registers the open streams on the surface of their engine.
pub(crate) fn register_stream_resources(streams: &Arc<OpenStreams>) -> Result<(), SchemaError> {
    let surface = streams.engine.catalog().surface();
    surface.add_schema(SCHEMA, schema());
    surface.add_template(OpenStreamTemplate(Arc::clone(streams)));
    let streams = Arc::clone(streams);
    let profile = ToolProfile::new(
        "a2a_streams",
        "Lists the caller's open streams on this server: A2A streams, MCP call streams and subscriptions.",
    )
    .input(json!({ "type": "object", "properties": {}, "additionalProperties": false }))
    .output(json!({
        "type": "object",
        "properties": { "streams": { "type": "array", "items": schema() } },
        "required": ["streams"],
        "additionalProperties": false,
    }))
    .group(ToolGroup::Registry);
    surface.add_tool(tool(profile, move |request: HandlerRequest| {
        let streams = Arc::clone(&streams);
        async move {
            allow(&streams.engine, &request.caller, "stream.list", "")?;
            let open: Vec<Value> =
                streams.list_of_caller(&request.caller).iter().map(|entry| entry.json()).collect();
            let mut output = ToolOutput::text(match open.len() {
                0 => "no stream is open".to_owned(),
                1 => "1 stream is open".to_owned(),
                many => format!("{many} streams are open"),
            });
            output.structured = Some(json!({ "streams": open }));
            Ok(HandlerReply::Done(output))
        }
    }))
}

fn allow(engine: &Engine, caller: &Caller, operation: &'static str, id: &str) -> Result<(), Error> {
    let resource = format_args!("a2a://streams/{id}");
    let (action, kind, name) = (Action::Read, AccessKind::A2a, STREAMS);
    engine.allow(caller, &AccessRequest { action, kind, name, operation, resource: &resource })
}

struct OpenStreamTemplate(Arc<OpenStreams>);

#[async_trait]
impl Template for OpenStreamTemplate {
    fn profile(&self) -> ResourceProfile {
        ResourceProfile::new(TEMPLATE, "stream")
            .described(
                "An open stream of the caller: how many events it was sent, and what the last were. Its id \
                 stands in the header Nuncio-Stream-Id of the answer that opened it.",
            )
            .media_type("application/json")
    }

    async fn read(
        &self,
        uri: &str,
        request: HandlerRequest,
    ) -> Result<HandlerReply<Vec<ResourceContent>>, HandlerError> {
        let (engine, caller) = (&self.0.engine, &request.caller);
        let id = request.text("streamId").unwrap_or_default();
        allow(engine, caller, "stream.read", id)?;
        let entry = self.0.find(caller, id).ok_or_else(|| HandlerError::NotFound(uri.to_owned()))?;
        let modified = iso(entry.modified());
        let described = ResourceDescription {
            kind: AccessKind::A2a,
            name: STREAMS,
            schema: SCHEMA,
            modified: &modified,
            policy: CachePolicy::Realtime,
        };
        let meta = Some(engine.catalog().surface().metadata(caller, uri, &described));
        Ok(HandlerReply::Done(vec![ResourceContent { meta, ..ResourceContent::json(uri, &entry.json()) }]))
    }

    async fn complete(
        &self,
        caller: &Caller,
        _variable: &str,
        typed: &str,
        _known: &BTreeMap<String, String>,
    ) -> Vec<String> {
        if allow(&self.0.engine, caller, "stream.list", "").is_err() {
            return vec![];
        }
        let ids = self.0.list_of_caller(caller).into_iter().map(|entry| entry.id.clone());
        ids.filter(|id| id.starts_with(typed)).collect()
    }
}

impl OpenStreamRecord {
    fn json(&self) -> Value {
        let log = self.log.lock();
        let events: Vec<Value> = log
            .last
            .iter()
            .map(|told| {
                json!({
                    "type": told.kind,
                    "timestamp": iso(told.at),
                    "data": {
                        "taskId": told.task, "seq": told.seq, "kind": self.kind, "event": told.data,
                    },
                })
            })
            .collect();
        json!({
            "streamId": self.id,
            "connectionId": self.connection,
            "status": "active",
            "events": events,
            "metadata": {
                "startTime": iso(self.started),
                "totalEvents": self.total.load(Ordering::Relaxed),
                "clientInfo": self.client,
            },
        })
    }

    fn modified(&self) -> Timestamp {
        let log = self.log.lock();
        log.last.back().map_or(self.started, |told| told.at)
    }
}

fn schema() -> Value {
    json!({
        "title": "An open stream",
        "type": "object",
        "properties": {
            "streamId": { "type": "string" },
            "connectionId": { "type": "string" },
            "status": { "const": "active" },
            "events": {
                "description": "The last events, oldest first.",
                "type": "array",
                "maxItems": MAX_REMEMBERED,
                "items": {
                    "type": "object",
                    "properties": {
                        "type": { "type": "string" },
                        "timestamp": { "type": "string", "format": "date-time" },
                        "data": {
                            "type": "object",
                            "properties": {
                                "taskId": { "type": ["string", "null"] },
                                "seq": { "type": ["integer", "null"] },
                                "kind": { "enum": ["a2a", "mcp-call", "mcp-listen", "mcp-batch", "mcp-sse", "console"] },
                                "event": {
                                    "type": ["object", "null"],
                                    "description": "What it says, in short; null where that is long.",
                                },
                            },
                            "required": ["taskId", "seq", "kind", "event"],
                            "additionalProperties": false,
                        },
                    },
                    "required": ["type", "timestamp", "data"],
                    "additionalProperties": false,
                },
            },
            "metadata": {
                "type": "object",
                "properties": {
                    "startTime": { "type": "string", "format": "date-time" },
                    "totalEvents": { "type": "integer", "minimum": 0 },
                    "clientInfo": { "type": ["string", "null"] },
                },
                "required": ["startTime", "totalEvents", "clientInfo"],
                "additionalProperties": false,
            },
        },
        "required": ["streamId", "connectionId", "status", "events", "metadata"],
        "additionalProperties": false,
    })
}
