//! An engine over a real store whose time and chance the test owns, and calls of what it offers.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use nuncio_engine::{
    Agent, Caller, Catalog, Engine, EngineParts,
    clock::{Clock, Timestamp},
    surface::{
        CompiledSchema, HandlerError, HandlerReply, HandlerRequest, ResourceBody, ResourceContent, ToolOutput,
    },
};
use nuncio_store::SqliteOptions;
use nuncio_testkit::open_in;
use serde_json::{Map, Value};
use tempfile::TempDir;
use uuid::Uuid;

pub(crate) struct TestEngine {
    pub(crate) engine: Engine,
    pub(crate) clock: Arc<SetClock>,
    _folder: TempDir,
}

impl TestEngine {
    pub(crate) async fn start(agents: Vec<Arc<dyn Agent>>) -> Self {
        let (folder, clock) = (tempfile::tempdir().unwrap(), Arc::new(SetClock::default()));
        let store = open_in(folder.path(), SqliteOptions { readers: 1, ..SqliteOptions::default() });
        let mut catalog = Catalog::default();
        for agent in agents {
            catalog.add(agent).unwrap();
        }
        let parts = EngineParts {
            clock: Arc::clone(&clock) as Arc<dyn Clock>,
            ..EngineParts::new(store.await, catalog)
        };
        let engine = Engine::start(parts).await.unwrap();
        engine.catalog().surface().set_base_url("http://here.example");
        Self { engine, clock, _folder: folder }
    }

    /// Calls a tool. Its arguments and its result are held against its schemas.
    pub(crate) async fn call(
        &self,
        caller: &Caller,
        tool: &str,
        arguments: Value,
    ) -> Result<Value, HandlerError> {
        let tool = self.engine.catalog().surface().tool(tool).expect("a tool");
        if let Some(why) = tool.input.refuse(&arguments) {
            return Err(HandlerError::Invalid(why));
        }
        let request = HandlerRequest::new(caller.clone(), members(arguments));
        let HandlerReply::Done(ToolOutput { structured, content, .. }) = tool.handler.call(request).await?
        else {
            panic!("it asks")
        };
        let structured = structured.expect("a structured result");
        assert!(!content.is_empty(), "no words");
        let refused = tool.output.as_ref().expect("an output schema").refuse(&structured);
        assert_eq!(refused, None, "{structured}");
        Ok(structured)
    }

    /// Reads a resource. What it holds is held against the schema that its metadata names.
    pub(crate) async fn read(&self, caller: &Caller, uri: &str) -> Result<Value, HandlerError> {
        let surface = self.engine.catalog().surface();
        let resource = surface.resource(&surface.canonical(uri)).expect("a resource");
        let HandlerReply::Done(contents) =
            resource.handler.read(HandlerRequest::new(caller.clone(), Map::new())).await?
        else {
            panic!("it asks")
        };
        let [ResourceContent { body: ResourceBody::Text(text), meta: Some(meta), .. }] = &contents[..] else {
            panic!("{contents:?}")
        };
        let value: Value = serde_json::from_str(text).unwrap();
        let schema = meta["schema"].as_str().unwrap();
        let schema = schema.trim_start_matches("http://here.example/schemas/").trim_end_matches(".json");
        let schema = surface.schema(schema).expect("a schema");
        assert_eq!(CompiledSchema::compile(&schema).unwrap().refuse(&value), None, "{value}");
        Ok(value)
    }
}

fn members(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        other => panic!("{other}"),
    }
}

/// Waits until there is something.
pub(crate) async fn until<T>(what: &str, look: impl AsyncFn() -> Option<T>) -> T {
    let found = tokio::time::timeout(Duration::from_secs(60), async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    found.await.unwrap_or_else(|_| panic!("there was no {what} in time"))
}

/// Goes where it is put; runs by itself until then.
#[derive(Default)]
pub(crate) struct SetClock {
    /// Zero: the real time.
    now: AtomicI64,
    /// The chances to come; then always one half.
    chances: Mutex<Vec<f64>>,
}

impl SetClock {
    pub(crate) fn put(&self, now: Timestamp) {
        self.now.store(now.0, Ordering::SeqCst);
    }

    pub(crate) fn go_on(&self, by: Duration) {
        let by = i64::try_from(by.as_millis()).unwrap();
        self.now.fetch_add(by, Ordering::SeqCst);
    }

    pub(crate) fn chances(&self, next: impl IntoIterator<Item = f64>) {
        let mut chances: Vec<f64> = next.into_iter().collect();
        chances.reverse();
        *self.chances.lock().unwrap() = chances;
    }
}

impl Clock for SetClock {
    fn now(&self) -> Timestamp {
        match self.now.load(Ordering::SeqCst) {
            0 => nuncio_engine::clock::SystemClock.now(),
            now => Timestamp(now),
        }
    }

    fn new_id(&self) -> Uuid {
        Uuid::now_v7()
    }

    fn chance(&self) -> f64 {
        self.chances.lock().unwrap().pop().unwrap_or(0.5)
    }

    fn random_bytes(&self) -> [u8; 32] {
        [7; 32]
    }
}
