//! The registry by hand: a prober that finds what the test says, at the times that the test says.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use nuncio_agents::EchoAgent;
use nuncio_engine::{
    Caller, Grants,
    clock::{Clock as _, Timestamp},
    surface::{HandlerError, SurfaceChange},
};
use nuncio_flows::registry::{
    Breaker, ProbeFindings, Prober, Registry, RegistryOptions, RegistryRemote, RemoteKind, URI,
};
use serde_json::json;
use tokio::sync::{Semaphore, broadcast};

use crate::test_engine::{TestEngine, until};

const START: Timestamp = Timestamp(1_900_000_000_000);

/// Finds what it is told to find, and notes whom it was asked for.
#[derive(Default)]
struct Script {
    ill: Mutex<BTreeMap<String, String>>,
    asked: Mutex<Vec<String>>,
}

impl Script {
    fn fail(&self, name: &str, why: &str) {
        self.ill.lock().unwrap().insert(name.into(), why.into());
    }

    fn heal(&self, name: &str) {
        self.ill.lock().unwrap().remove(name);
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }
}

#[async_trait]
impl Prober for Script {
    async fn probe(&self, remote: &RegistryRemote) -> Result<ProbeFindings, String> {
        self.asked.lock().unwrap().push(remote.name.clone());
        match self.ill.lock().unwrap().get(&remote.name) {
            Some(why) => Err(why.clone()),
            None => Ok(ProbeFindings {
                card: Some(json!({ "name": remote.name })),
                server_info: None,
                capabilities: vec!["sums".into()],
            }),
        }
    }
}

fn remote(name: &str) -> RegistryRemote {
    RegistryRemote {
        name: name.into(),
        url: "http://far.example/".parse().unwrap(),
        kind: RemoteKind::A2a,
        authorizer: None,
        card_keys: None,
        tls: nuncio_outbound::TlsClientOptions::default(),
    }
}

fn options(names: &[&str]) -> RegistryOptions {
    RegistryOptions { remotes: names.iter().map(|name| remote(name)).collect(), ..RegistryOptions::default() }
}

/// A registry that only looks when it is told to.
async fn by_hand(names: &[&str]) -> (TestEngine, Arc<Script>, Registry) {
    let here = TestEngine::start(vec![Arc::new(EchoAgent)]).await;
    here.clock.put(START);
    let script = Arc::new(Script::default());
    let registry = Registry::with_prober(options(names), Arc::clone(&script) as Arc<dyn Prober>);
    registry.watch(&here.engine);
    (here, script, registry)
}

fn told(changes: &mut broadcast::Receiver<SurfaceChange>) -> usize {
    let mut told = 0;
    while let Ok(change) = changes.try_recv() {
        told += usize::from(matches!(change, SurfaceChange::Updated(updated) if &*updated.uri == URI));
    }
    told
}

#[tokio::test]
async fn somebody_who_falls_silent_is_given_up_for_growing_pauses_and_comes_back() {
    let (here, script, registry) = by_hand(&["far"]).await;
    let mut changes = here.engine.catalog().surface().changes();
    let far = || registry.agent("far").unwrap();
    assert!(!far().healthy, "nobody has seen it yet");
    registry.round().await;
    let seen = far();
    assert_eq!((seen.healthy, seen.last_seen, seen.last_error), (true, Some(START), None));
    assert_eq!((told(&mut changes), script.asked().len()), (1, 1));
    // As long as all is well nobody hears of it.
    here.clock.go_on(Duration::from_secs(15));
    registry.round().await;
    assert_eq!((told(&mut changes), script.asked().len()), (0, 1));
    registry.round().await;
    assert_eq!(script.asked().len(), 0, "it is not due");

    script.fail("far", "no connection, password=hunter2");
    let mut states = vec![];
    for _ in 0..3 {
        here.clock.go_on(Duration::from_secs(15));
        registry.round().await;
        states.push((far().healthy, far().breaker, told(&mut changes)));
    }
    let [closed, open] = [Breaker::Closed, Breaker::Open];
    assert_eq!(states, [(false, closed, 1), (false, closed, 0), (false, open, 1)]);
    assert_eq!(far().last_error.unwrap(), "no connection, password=[redacted]");
    assert_eq!(far().last_seen, Some(START.after(Duration::from_secs(15))));
    assert!(far().card.is_some(), "what was known is still known");

    script.asked();
    for pause in [15, 30, 60] {
        here.clock.go_on(Duration::from_secs(pause - 1));
        registry.round().await;
        assert_eq!(script.asked().len(), 0, "too soon, after {pause} s");
        here.clock.go_on(Duration::from_secs(1));
        registry.round().await;
        assert_eq!((script.asked().len(), far().breaker, told(&mut changes)), (1, open, 0));
    }
    script.heal("far");
    here.clock.go_on(Duration::from_secs(120));
    registry.round().await;
    assert_eq!((far().healthy, far().breaker, told(&mut changes)), (true, closed, 1));
    assert_eq!(far().last_seen, Some(here.clock.now()));
}

#[tokio::test]
async fn calls_count_as_probes_do() {
    let (_here, _script, registry) = by_hand(&["far"]).await;
    registry.round().await;
    assert_eq!(registry.healthy("sums").len(), 1);
    for _ in 0..3 {
        registry.report("far", Err("it hung up"));
    }
    let far = registry.agent("far").unwrap();
    assert_eq!(
        (far.healthy, far.breaker, far.last_error.as_deref()),
        (false, Breaker::Open, Some("it hung up"))
    );
    assert_eq!(registry.healthy("sums"), []);
    registry.report("far", Ok(()));
    assert_eq!(registry.healthy("sums").len(), 1);
    registry.report("nobody", Ok(()));
}

#[tokio::test]
async fn remotes_that_begin_together_are_soon_probed_apart() {
    let names: Vec<String> = (0..10).map(|n| format!("far-{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (here, script, registry) = by_hand(&names).await;
    here.clock.chances((0..10).map(|n| f64::from(n) / 10.0));
    registry.round().await;
    assert_eq!(script.asked().len(), 10);
    let mut when = vec![];
    for second in 1..=20 {
        here.clock.go_on(Duration::from_secs(1));
        here.clock.chances([0.5; 10]);
        registry.round().await;
        when.extend(script.asked().into_iter().map(|name| (second, name)));
    }
    let seconds: Vec<i32> = when.iter().map(|(second, _)| *second).collect();
    // 15 s and a fifth of it to both sides, each by its own chance.
    assert_eq!(seconds, [12, 13, 14, 14, 15, 15, 16, 17, 17, 18], "{when:?}");
}

/// Waits until it is let go, and knows how many wait, and how many did at most.
#[derive(Default)]
struct Slow {
    waiting: AtomicUsize,
    most: AtomicUsize,
    gate: Gate,
}

struct Gate(Semaphore);

impl Default for Gate {
    fn default() -> Self {
        Self(Semaphore::new(0))
    }
}

/// Waits no more when it is dropped, also by who has no patience.
struct Waits<'a>(&'a AtomicUsize);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[async_trait]
impl Prober for Slow {
    async fn probe(&self, _remote: &RegistryRemote) -> Result<ProbeFindings, String> {
        let waiting = self.waiting.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(waiting, Ordering::SeqCst);
        let _waits = Waits(&self.waiting);
        self.gate.0.acquire().await.map_err(|error| error.to_string())?.forget();
        Ok(ProbeFindings::default())
    }
}

#[tokio::test]
async fn not_more_than_eight_are_probed_at_once() {
    let names: Vec<String> = (0..20).map(|n| format!("far-{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let here = TestEngine::start(vec![]).await;
    let slow = Arc::new(Slow::default());
    let options = RegistryOptions { timeout: Duration::from_secs(60), ..options(&names) };
    let registry = Arc::new(Registry::with_prober(options, Arc::clone(&slow) as Arc<dyn Prober>));
    registry.install(&here.engine, here.engine.catalog().surface()).unwrap();
    // Also somebody who asks by name waits for a place.
    let (asked, name) = (Arc::clone(&registry), names[19].to_owned());
    let by_name = tokio::spawn(async move { asked.probe(&name).await });
    for _ in 0..12 {
        until("eight probes", async || (slow.waiting.load(Ordering::SeqCst) == 8).then_some(())).await;
        slow.gate.0.add_permits(1);
    }
    slow.gate.0.add_permits(1000);
    until("all of them", async || registry.agents().iter().all(|known| known.healthy).then_some(())).await;
    by_name.await.unwrap();
    assert_eq!(slow.most.load(Ordering::SeqCst), 8);
}

#[tokio::test]
async fn a_probe_that_takes_too_long_has_failed() {
    let here = TestEngine::start(vec![]).await;
    let slow = Slow::default();
    let options = RegistryOptions { timeout: Duration::from_millis(20), ..options(&["far"]) };
    let registry = Registry::with_prober(options, Arc::new(slow));
    registry.watch(&here.engine);
    registry.round().await;
    let far = registry.agent("far").unwrap();
    assert_eq!(far.last_error.as_deref(), Some("no answer within 0.02 s"));
    assert!(far.latency.unwrap() >= Duration::from_millis(20));
}

/// The resource and the tools, each held against its schema by `TestEngine`.
#[tokio::test]
async fn the_registry_is_read_listed_and_probed_by_who_may() {
    let here = TestEngine::start(vec![Arc::new(EchoAgent)]).await;
    let script = Arc::new(Script::default());
    script.fail("far", "gone");
    let registry = Registry::with_prober(options(&["far", "near"]), Arc::clone(&script) as Arc<dyn Prober>);
    let registry = Arc::new(registry);
    let surface = here.engine.catalog().surface();
    surface.set_aliases(&["claude-20x".into()], &["a2a"]);
    registry.install(&here.engine, surface).unwrap();
    let ada = Caller::named("ada");
    let read = until("the first probes", async || {
        let read = here.read(&ada, URI).await.unwrap();
        (read["discovery"]["healthyAgents"] == 2 && read["agents"][1]["lastError"].is_string())
            .then_some(read)
    })
    .await;
    let [echo, far, near] = &read["agents"].as_array().unwrap()[..] else { panic!("{read}") };
    assert_eq!(read["discovery"]["totalAgents"], 3);
    assert_eq!(
        (&echo["agentType"], &echo["kind"], &echo["status"]),
        (&json!("echo"), &json!("local"), &json!("healthy"))
    );
    assert_eq!(echo["url"], "http://here.example/agents/echo");
    assert_eq!(echo["agentCard"]["supportedInterfaces"][0]["url"], echo["url"]);
    assert_eq!(echo["lastSeen"], read["discovery"]["lastScan"]);
    assert_eq!(
        (&far["status"], &far["lastSeen"], &far["lastError"]),
        (&json!("unhealthy"), &json!(null), &json!("gone"))
    );
    assert_eq!((&near["capabilities"], &near["agentCard"]["name"]), (&json!(["sums"]), &json!("near")));
    let alias = here.read(&ada, "mcp://claude-20x/a2a/agents/registry").await.unwrap();
    assert_eq!(alias["agents"][2]["agentCard"], near["agentCard"]);

    let names = async |arguments| {
        let listed = here.call(&ada, "agents_list", arguments).await.unwrap();
        listed["agents"]
            .as_array()
            .unwrap()
            .iter()
            .map(|agent| agent["agentType"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(json!({})).await, ["echo", "far", "near"]);
    assert_eq!(names(json!({ "status": "unhealthy" })).await, ["far"]);
    assert_eq!(names(json!({ "skill": "sums", "status": "healthy" })).await, ["near"]);
    let wrong = here.call(&ada, "agents_list", json!({ "state": "healthy" })).await.unwrap_err();
    assert!(matches!(wrong, HandlerError::Invalid(_)), "{wrong}");

    script.heal("far");
    here.clock.put(here.clock.now().after(Duration::from_secs(1)));
    let probed = here.call(&ada, "agents_probe", json!({ "name": "far" })).await.unwrap();
    assert_eq!((&probed["status"], &probed["breaker"]), (&json!("healthy"), &json!("closed")));
    let local = here.call(&ada, "agents_probe", json!({ "name": "echo" })).await.unwrap();
    assert_eq!(local["latencyMs"], json!(null), "nobody was probed");
    let nobody = here.call(&ada, "agents_probe", json!({ "name": "nobody" })).await.unwrap_err();
    assert!(nobody.to_string().contains("there is no agent \"nobody\""), "{nobody}");

    let reader = ada.clone().limited_to(Grants::parse("read:a2a:registry").unwrap());
    assert!(here.read(&reader, URI).await.is_ok());
    let refused = here.call(&reader, "agents_probe", json!({ "name": "far" })).await.unwrap_err();
    assert_eq!(refused, HandlerError::Forbidden("execute:a2a:registry".into()));
    let nobody = ada.limited_to(Grants::parse("read:memory").unwrap());
    assert_eq!(
        here.read(&nobody, URI).await.unwrap_err(),
        HandlerError::Forbidden("read:a2a:registry".into())
    );
}

/// Where remotes are, and why they are not reached, tells of the operator's network.
#[tokio::test]
async fn another_tenant_sees_who_there_is_and_how_they_are_and_no_more() {
    let here = TestEngine::start(vec![Arc::new(EchoAgent)]).await;
    let script = Arc::new(Script::default());
    script.fail("far", "no route to far.example");
    let registry = Registry::with_prober(options(&["far", "near"]), script as Arc<dyn Prober>);
    let registry = Arc::new(registry);
    registry.install(&here.engine, here.engine.catalog().surface()).unwrap();
    registry.probe("far").await;
    registry.probe("near").await;
    let other = Caller::named("acme/ada");
    let read = here.read(&other, URI).await.unwrap();
    let listed = here.call(&other, "agents_list", json!({})).await.unwrap();
    let probed = here.call(&other, "agents_probe", json!({ "name": "far" })).await.unwrap();
    for shown in [&read, &listed, &probed] {
        let shown = shown.to_string();
        assert!(!shown.contains("far.example"), "{shown}");
    }
    let [echo, far, near] = &read["agents"].as_array().unwrap()[..] else { panic!("{read}") };
    assert!(echo["agentCard"].is_object() && echo["url"].is_string(), "this server's own are everybody's");
    assert_eq!((&far["status"], &far["breaker"]), (&json!("unhealthy"), &json!("closed")));
    assert_eq!((&near["status"], &near["capabilities"]), (&json!("healthy"), &json!(["sums"])));
    assert_eq!((&near["url"], &near["agentCard"]), (&json!(null), &json!(null)));
    let own = here.read(&Caller::named("ada"), URI).await.unwrap();
    assert_eq!(own["agents"][1]["lastError"], "no route to far.example");
}

#[tokio::test]
async fn who_asks_for_a_probe_that_is_being_made_shares_it() {
    let here = TestEngine::start(vec![]).await;
    let slow = Arc::new(Slow::default());
    let options = RegistryOptions { timeout: Duration::from_secs(60), ..options(&["far"]) };
    let registry = Arc::new(Registry::with_prober(options, Arc::clone(&slow) as Arc<dyn Prober>));
    registry.watch(&here.engine);
    let ask = || {
        let registry = Arc::clone(&registry);
        tokio::spawn(async move { registry.probe("far").await.unwrap() })
    };
    let first = ask();
    until("a probe", async || (slow.waiting.load(Ordering::SeqCst) == 1).then_some(())).await;
    // Whoever leaves does not end it for those who stay.
    first.abort();
    let asked: Vec<_> = (0..50).map(|_| ask()).collect();
    slow.gate.0.add_permits(1);
    for one in asked {
        assert!(one.await.unwrap().healthy);
    }
    assert_eq!(slow.most.load(Ordering::SeqCst), 1, "there was one probe");
    // A moment later that one still counts: there is no permit for another.
    assert!(registry.probe("far").await.unwrap().healthy);
    assert_eq!(slow.waiting.load(Ordering::SeqCst), 0);
    here.clock.put(here.clock.now().after(Duration::from_secs(1)));
    let later = ask();
    until("another probe", async || (slow.waiting.load(Ordering::SeqCst) == 1).then_some(())).await;
    slow.gate.0.add_permits(1);
    later.await.unwrap();
}

/// Two of one name could not be told apart.
#[tokio::test]
async fn a_remote_of_a_local_name_is_left_out() {
    let (_here, _script, registry) = by_hand(&["echo", "far"]).await;
    let names: Vec<(String, &str)> =
        registry.agents().into_iter().map(|known| (known.name, known.location.name())).collect();
    assert_eq!(names, [("echo".into(), "local"), ("far".into(), "a2a")]);
}
