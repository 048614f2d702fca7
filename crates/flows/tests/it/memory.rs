//! The memory bank as a client has it: resources, tools, who may use them, and how fast they are.
//!
//! What is read or called here goes the way that a server goes: by template, held against its schemas.

mod access;
mod answers;
mod odd_names;
mod privacy;
mod resources;
mod scale;
mod search;
mod tools;

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::{Duration, Instant},
};

use nuncio_engine::{
    Caller, Catalog, Engine, EngineParts, Options,
    clock::{Clock, Timestamp},
    surface::{
        CompiledSchema, HandlerError, HandlerReply, HandlerRequest, ResourceBody, ResourceContent,
        ToolOutput, matches,
    },
};
use nuncio_flows::memory::{MemoryBank, MemoryOptions, install};
use nuncio_store::SqliteOptions;
use nuncio_testkit::open_in;
use serde_json::{Map, Value};
use tempfile::TempDir;
use uuid::Uuid;

/// Far more than anything here takes, on a machine that does other things too.
const DEADLINE: Duration = Duration::from_secs(60);

/// When the clock of a bank begins.
const BEGIN: i64 = 1_700_000_000_000;

/// A memory bank in a folder of its own, with a clock that stands still until it is moved.
struct Bank {
    _folder: TempDir,
    engine: Engine,
    clock: Arc<HandClock>,
}

impl Bank {
    async fn new() -> Self {
        Self::with(|_| {}, MemoryOptions::default()).await
    }

    async fn with(set: impl FnOnce(&mut Options), options: MemoryOptions) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = open_in(folder.path(), SqliteOptions::default()).await;
        let clock = Arc::new(HandClock(AtomicI64::new(BEGIN)));
        let mut parts = EngineParts::new(store, Catalog::default());
        // Nothing is swept or written by itself unless the test wants it.
        parts.options.sweep_poll = Duration::from_secs(3600);
        parts.options.reads_flush = Duration::from_secs(3600);
        set(&mut parts.options);
        parts.clock = Arc::clone(&clock) as Arc<dyn Clock>;
        let engine = Engine::start(parts).await.unwrap();
        let bank = MemoryBank::new(engine.clone(), options);
        install(&bank, engine.catalog().surface()).unwrap();
        engine.catalog().surface().set_base_url("http://here");
        Self { _folder: folder, engine, clock }
    }

    /// Reads a resource.
    async fn content(&self, caller: &Caller, uri: &str) -> Result<ResourceContent, HandlerError> {
        let surface = self.engine.catalog().surface();
        let found = surface.templates().into_iter().find_map(|template| {
            let variables = matches(&template.profile.uri, uri)?;
            Some((template, variables))
        });
        let Some((template, variables)) = found else { return Err(HandlerError::NotFound(uri.into())) };
        let arguments = variables.into_iter().map(|(name, value)| (name, value.into())).collect();
        let said = template.handler.read(uri, HandlerRequest::new(caller.clone(), arguments)).await?;
        let HandlerReply::Done(mut contents) = said else { panic!("it asks something") };
        assert_eq!(contents.len(), 1);
        Ok(contents.remove(0))
    }

    /// Reads a resource, which must satisfy its schema; its JSON, and what is said about it.
    async fn read_as(&self, caller: &Caller, uri: &str) -> Result<(Value, Map<String, Value>), HandlerError> {
        let surface = self.engine.catalog().surface();
        let content = self.content(caller, uri).await?;
        assert_eq!((content.uri.as_str(), content.media_type.as_deref()), (uri, Some("application/json")));
        let ResourceBody::Text(text) = content.body else { panic!("it is no text") };
        let (value, meta): (Value, _) = (serde_json::from_str(&text).unwrap(), content.meta.unwrap());
        assert_eq!(meta["resourceId"], nuncio_engine::surface::normalized(uri));
        let url = meta["schema"].as_str().unwrap();
        let name = url.strip_prefix("http://here/schemas/").and_then(|name| name.strip_suffix(".json"));
        let schema = surface.schema(name.unwrap()).expect("the schema is published");
        assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
        let validator = jsonschema::validator_for(&schema).unwrap();
        let wrong: Vec<String> = validator.iter_errors(&value).map(|error| error.to_string()).collect();
        assert_eq!(wrong, [""; 0], "{uri}: {value}");
        Ok((value, meta))
    }

    async fn read(&self, uri: &str) -> Result<Value, HandlerError> {
        self.read_as(&me(), uri).await.map(|(value, _)| value)
    }

    /// Calls a tool; its arguments and its result are held against its schemas.
    async fn call_as(
        &self,
        caller: &Caller,
        tool: &str,
        arguments: Value,
    ) -> Result<ToolOutput, HandlerError> {
        let offered = self.engine.catalog().surface().tool(tool).expect("the tool is offered");
        if let Some(wrong) = offered.input.refuse(&arguments) {
            return Err(HandlerError::Invalid(wrong));
        }
        let Value::Object(arguments) = arguments else { panic!("arguments are an object") };
        let said = offered.handler.call(HandlerRequest::new(caller.clone(), arguments)).await?;
        let HandlerReply::Done(output) = said else { panic!("it asks something") };
        assert!(!output.content.is_empty(), "there is text, too");
        let structured = output.structured.as_ref().expect("it is structured");
        let shape: &CompiledSchema = offered.output.as_ref().expect("it has an output schema");
        assert_eq!(shape.refuse(structured), None, "{tool}: {structured}");
        Ok(output)
    }

    /// The structured result of a call that must go well.
    async fn call(&self, tool: &str, arguments: Value) -> Value {
        let output = self.call_as(&me(), tool, arguments).await.unwrap();
        assert!(!output.is_error, "{output:?}");
        output.structured.unwrap()
    }

    /// What a call that must not go well says.
    async fn refused(&self, tool: &str, arguments: Value) -> HandlerError {
        match self.call_as(&me(), tool, arguments).await {
            Ok(output) => panic!("{output:?}"),
            Err(error) => error,
        }
    }

    async fn store(&self, namespace: &str, key: &str, value: Value) -> Value {
        self.call("memory_store", serde_json::json!({ "namespace": namespace, "key": key, "value": value }))
            .await
    }
}

fn me() -> Caller {
    Caller::local()
}

/// A clock that stands still until it is moved.
struct HandClock(AtomicI64);

impl HandClock {
    fn advance(&self, by: Duration) {
        self.0.fetch_add(i64::try_from(by.as_millis()).unwrap(), Ordering::SeqCst);
    }
}

impl Clock for HandClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }

    fn new_id(&self) -> Uuid {
        Uuid::now_v7()
    }

    fn chance(&self) -> f64 {
        0.5
    }

    fn random_bytes(&self) -> [u8; 32] {
        [7; 32]
    }
}

/// Waits for a condition.
async fn until<T>(what: &str, mut condition: impl AsyncFnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(value) = condition().await {
            return value;
        }
        assert!(started.elapsed() < DEADLINE, "never came true: {what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// What a refusal for bad input says.
fn invalid<T: std::fmt::Debug>(result: Result<T, HandlerError>) -> String {
    match result {
        Err(HandlerError::Invalid(why)) => why,
        other => panic!("not refused as invalid: {other:?}"),
    }
}
