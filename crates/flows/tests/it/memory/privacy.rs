//! Values that look like secrets: what is stored of them, and who reads them back; and whose a namespace is.

use std::sync::Arc;

use async_trait::async_trait;
use nuncio_engine::{
    Agent, AgentError, Caller, Catalog, Engine, EngineParts, Message, Outcome, Profile, Role, State, Submit,
    TaskContext,
    knowledge::{ExpectedVersion, MemoryPageQuery, MemoryQuery},
    memory::Privacy,
};
use nuncio_flows::memory::MemoryOptions;
use nuncio_store::SqliteOptions;
use nuncio_testkit::open_in;
use serde_json::json;

use super::{Bank, me};

const SECRET: &str = "sk-planted0123456789abcdef";

/// Whether the text is in what the store holds of the namespace, or in any file of an embedded one.
async fn is_stored(bank: &Bank, text: &str) -> bool {
    let query = MemoryPageQuery {
        tenant: "home".into(),
        namespace: "n".into(),
        prefix: String::new(),
        after: String::new(),
        limit: 100,
        values: true,
        now: bank.engine.clock().now(),
    };
    let entries = bank.engine.store_for_tests().knowledge().memory_page(&query).await.unwrap();
    let has = |file: std::fs::DirEntry| {
        let bytes = std::fs::read(file.path()).unwrap_or_default();
        bytes.windows(text.len()).any(|window| window == text.as_bytes())
    };
    entries.iter().any(|entry| entry.value.contains(text))
        || std::fs::read_dir(bank._folder.path()).unwrap().any(|file| has(file.unwrap()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_is_stored_encrypted_and_read_back_by_who_may_read_it() {
    let bank = Bank::new().await;
    let value = json!({ "note": "deploy key", "apiKey": SECRET, "list": [format!("use {SECRET} now")] });
    bank.store("n", "k", value.clone()).await;
    bank.store("n", "plain", json!({ "note": "visiblemarker" })).await;
    assert_eq!(bank.read("memory://data/n/k").await.unwrap()["value"], value, "read back");
    assert!(is_stored(&bank, "visiblemarker").await, "what is no secret is as it was");
    assert!(!is_stored(&bank, SECRET).await, "a planted secret is nowhere in the store");
    assert!(!is_stored(&bank, "planted0123456789abcdef").await, "not as a word of the index either");
    // The rest of it is found, the secret is not; and a preview does not show it.
    let found = bank.read("memory://search/n?text=deploy").await.unwrap();
    assert_eq!(found["results"][0]["key"], "k");
    assert!(!found.to_string().contains(SECRET), "{found}");
    let found = bank.read("memory://search/n?text=planted0123456789abcdef").await.unwrap();
    assert_eq!(found["pagination"]["total"], 0);
    let memory = bank.engine.memory();
    let found = memory.search(&me(), "n", &MemoryQuery::Keys("k".into()), 1, 5).await.unwrap();
    assert_eq!(found.results[0].0.value, value, "a caller of the bank itself gets the value");
    let (exported, _) = memory
        .export(&me(), "n", &nuncio_engine::memory::BankPageQuery { limit: 9, ..Default::default() }, 1 << 20)
        .await
        .unwrap();
    assert_eq!(exported[0].value, value);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn masked_it_is_not_stored_and_off_it_is_as_it_was() {
    for (privacy, kept) in [(Privacy::Mask, false), (Privacy::Off, true)] {
        let bank = Bank::with(|options| options.privacy = privacy, MemoryOptions::default()).await;
        bank.store("n", "k", json!({ "token": SECRET, "note": "x" })).await;
        let read = bank.read("memory://data/n/k").await.unwrap();
        assert_eq!(read["value"]["token"] == SECRET, kept, "{privacy:?}: {read}");
        assert_eq!(read["value"]["note"], "x");
        assert_eq!(is_stored(&bank, SECRET).await, kept, "{privacy:?}");
    }
}

/// Reads and writes the namespace that it is told.
struct Reader(&'static str);

#[async_trait]
impl Agent for Reader {
    fn profile(&self) -> Profile {
        Profile::new(self.0, "reads memory")
    }

    async fn run(&self, cx: TaskContext) -> Result<Outcome, AgentError> {
        let namespace = cx.input().joined_text();
        cx.memory(namespace.clone()).store("k", &json!(self.0), None).await?;
        let found = cx.memory(namespace).get("k").await?;
        Ok(Outcome::said(format!("{:?}", found.map(|entry| entry.value))))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_of_an_agent_or_a_context_is_closed_to_others() {
    let folder = tempfile::tempdir().unwrap();
    let store = open_in(folder.path(), SqliteOptions::default()).await;
    let mut catalog = Catalog::default();
    catalog.add(Arc::new(Reader("alice"))).unwrap();
    catalog.add(Arc::new(Reader("bob"))).unwrap();
    let engine = Engine::start(EngineParts::new(store, catalog)).await.unwrap();
    let caller = Caller::local();
    let run = async |agent: &str, context: &str, namespace: &str| {
        let mut submit = Submit::new(agent, Message::text("m", Role::User, namespace));
        submit.context = Some(context.into());
        let task = engine.submit(&caller, submit).await.unwrap();
        engine.wait_until_idle(&caller, task).await.unwrap()
    };
    assert_eq!(run("alice", "c1", "agent:alice/notes").await.state, State::Completed);
    assert_eq!(run("alice", "c1", "shared").await.state, State::Completed);
    let refused = run("bob", "c1", "agent:alice/notes").await;
    assert_eq!(refused.state, State::Failed, "another agent's");
    let why = refused.status_message.unwrap().joined_text();
    assert!(why.contains("memory:agent:alice/notes"), "{why}");
    assert_eq!(run("bob", "c1", "context:c1/plan").await.state, State::Completed);
    assert_eq!(run("bob", "c2", "context:c1/plan").await.state, State::Failed, "another context's");
    assert_eq!(run("bob", "c1", "agent:alicex").await.state, State::Failed, "a name is not a beginning");
    // Whoever may read the tenant's memory reads them by itself.
    let stored = engine.memory().get(&caller, "agent:alice/notes", "k").await.unwrap().unwrap();
    assert_eq!(stored.value, json!("alice"));
    engine.memory().store(&caller, "x", "y", &json!(1), None, ExpectedVersion::Any).await.unwrap();
}
