//! Tests with a managed agent whose profile changes and that is closed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use nuncio_engine::{AgentError, Catalog, EngineParts, Outcome, Profile, TaskContext};
use nuncio_store::SqliteOptions;
use nuncio_testkit::open_in;
use serde_json::json;
use tokio::sync::mpsc;

use super::*;

struct Described(&'static str);

#[async_trait]
impl Agent for Described {
    fn profile(&self) -> Profile {
        Profile::new("far", self.0)
    }

    async fn run(&self, _: TaskContext) -> Result<Outcome, AgentError> {
        Ok(Outcome::done())
    }
}

/// A managed agent whose profile the test controls.
struct Puppet {
    words: Mutex<mpsc::Receiver<&'static str>>,
    closed: AtomicBool,
}

#[async_trait]
impl ManagedAgent for Puppet {
    async fn wait_for_update(&self) -> Arc<dyn Agent> {
        match self.words.lock().await.recv().await {
            Some(words) => Arc::new(Described(words)),
            None => std::future::pending().await,
        }
    }

    async fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }
}

fn spec(name: &str) -> AgentSpec {
    let table = json!({ "name": name, "kind": "process", "command": ["sh"] });
    AgentSpec::read(table.as_object().unwrap(), &|_| None).unwrap()
}

struct Scene {
    _folder: tempfile::TempDir,
    engine: Engine,
    fleet: Fleet,
    puppet: Arc<Puppet>,
    says: mpsc::Sender<&'static str>,
}

async fn scene() -> Scene {
    let folder = tempfile::tempdir().unwrap();
    let (says, words) = mpsc::channel(4);
    let puppet = Arc::new(Puppet { words: Mutex::new(words), closed: AtomicBool::new(false) });
    let living: Option<Arc<dyn ManagedAgent>> = Some(Arc::clone(&puppet) as _);
    let member = FleetMember {
        spec: spec("far"),
        agent: Arc::new(Described("unknown")),
        managed: living,
        watcher: None,
    };
    let fleet = Fleet::new(vec![]).unwrap();
    fleet.0.members.lock().await.by_name.insert("far".into(), member);
    let mut catalog = Catalog::default();
    catalog.add(Arc::new(crate::EchoAgent)).unwrap();
    catalog.add(fleet.agents().remove(0)).unwrap();
    let store = open_in(folder.path(), SqliteOptions::default()).await;
    let engine = Engine::start(EngineParts::new(store, catalog)).await.unwrap();
    fleet.start(&engine).await;
    Scene { _folder: folder, engine, fleet, puppet, says }
}

impl Scene {
    fn described(&self) -> String {
        self.engine.catalog().get("far").map(|far| far.profile.description.clone()).unwrap_or_default()
    }

    async fn is_closed(&self) {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
        while !self.puppet.closed.load(Ordering::Acquire) {
            assert!(tokio::time::Instant::now() < deadline, "nobody let go of it");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn becomes(&self, words: &str) {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
        while self.described() != words {
            assert!(tokio::time::Instant::now() < deadline, "it stays {:?}", self.described());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

#[tokio::test]
async fn whoever_presents_himself_anew_is_known_anew_again_and_again() {
    let scene = scene().await;
    assert_eq!(scene.described(), "unknown");
    for words in ["polite", "rude"] {
        scene.says.send(words).await.unwrap();
        scene.becomes(words).await;
    }
    assert!(!scene.puppet.closed.load(Ordering::Acquire));
}

#[tokio::test]
async fn whoever_was_replaced_is_let_go_and_does_not_come_back() {
    let scene = scene().await;
    let mut changed = spec("far");
    changed.description = Some("a shell".into());
    scene.fleet.apply(vec![changed]).await.unwrap();
    scene.is_closed().await;
    // The agent is no longer watched.
    let _ = scene.says.send("back").await;
    scene.fleet.apply(vec![spec("far")]).await.unwrap();
    assert_eq!(scene.described(), "The program far.");
}

#[tokio::test]
async fn the_end_lets_go_of_everybody() {
    let scene = scene().await;
    scene.fleet.close().await;
    assert!(scene.puppet.closed.load(Ordering::Acquire));
}
