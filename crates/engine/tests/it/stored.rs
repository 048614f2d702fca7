//! What tenants store: measured, limited and shown.

use std::time::Duration;

use nuncio_engine::{
    Caller, Engine, Error, MeteredResource, Outcome, Share, TaskContext, knowledge::ExpectedVersion,
    webhook::WebhookConfig,
};
use serde_json::json;

use crate::world::{World, to, until};

fn world(resource: MeteredResource, limit: Option<u64>) -> World {
    World::new().agent("echo", async |_: TaskContext| Ok(Outcome::done())).options(|options| {
        options.measure_interval = Duration::from_millis(20);
        options.usage.set(resource, Share { tenant: limit, ..Share::default() });
    })
}

fn stored(engine: &Engine, tenant: &str, resource: MeteredResource) -> u64 {
    let report = engine.usage_report();
    report.iter().find(|usage| usage.tenant == tenant).map_or(0, |usage| usage.of(resource))
}

fn is_over(refused: &Error, limit: &str) {
    assert!(matches!(refused, Error::Limit(_)) && refused.to_string().contains(limit), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_that_stores_too_much_is_refused_until_something_of_it_is_deleted() {
    let world = world(MeteredResource::StoredBytes, Some(20_000));
    let engine = world.start().await;
    let (operator, ada, eve) = (Caller::local(), Caller::named("acme/ada"), Caller::named("other/eve"));
    let text = "x".repeat(4_000);
    let mut tasks = vec![];
    let refused = loop {
        match engine.submit(&ada, to("echo", &text)).await {
            Ok(task) => tasks.push(task),
            Err(refused) => break refused,
        }
        // What is committed while a measurement begins may be found by the next one only.
        assert!(tasks.len() < 20, "{:?}", engine.usage_report());
    };
    is_over(&refused, "stored-bytes-per-tenant");
    assert!(tasks.len() >= 2, "what is accepted counts at most twice: {}", tasks.len());
    let kept = engine.memory().store(&ada, "notes", "k", &json!(text), None, ExpectedVersion::Any).await;
    assert!(kept.unwrap_err().to_string().contains("stored-bytes-per-tenant"));
    // Another tenant has room of its own.
    engine.submit(&eve, to("echo", &text)).await.unwrap();
    engine.memory().store(&eve, "notes", "k", &json!(text), None, ExpectedVersion::Any).await.unwrap();

    for task in tasks {
        engine.admin_delete(&operator, Some("acme"), &task.origin.id.to_string()).await.unwrap();
    }
    until("there is room again", async || engine.submit(&ada, to("echo", &text)).await.ok()).await;
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_tenants_store_is_known_after_a_restart_and_gone_when_it_is_deleted() {
    let world = world(MeteredResource::StoredBytes, None);
    let engine = world.start().await;
    let (ada, text) = (Caller::named("acme/ada"), "x".repeat(4_000));
    let mut hooked = to("echo", &text);
    hooked.webhooks = vec![WebhookConfig {
        id: "w".into(),
        url: "http://192.0.2.1/".into(),
        token: None,
        authentication: None,
        dialect: "a2a/1.0".into(),
    }];
    let task = engine.submit(&ada, hooked).await.unwrap();
    engine.memory().store(&ada, "notes", "k", &json!(text), None, ExpectedVersion::Any).await.unwrap();
    engine.stop().await;
    drop(engine);

    let engine = world.start().await;
    let bytes = until("it is measured", async || {
        engine.usage().measured_at()?;
        Some(stored(&engine, "acme", MeteredResource::StoredBytes))
    })
    .await;
    // The text twice, and what stands around it.
    assert!((8_000..11_000).contains(&bytes), "{bytes}");
    assert_eq!(stored(&engine, "acme", MeteredResource::Webhooks), 1);
    engine.admin_delete(&Caller::local(), Some("acme"), &task.origin.id.to_string()).await.unwrap();
    until("one of them is gone", async || {
        let bytes = stored(&engine, "acme", MeteredResource::StoredBytes);
        ((4_000..6_000).contains(&bytes) && stored(&engine, "acme", MeteredResource::Webhooks) == 0)
            .then_some(())
    })
    .await;
    engine.memory().delete(&ada, "notes", "k", None).await.unwrap();
    until("nothing is left", async || {
        (stored(&engine, "acme", MeteredResource::StoredBytes) == 0).then_some(())
    })
    .await;
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_has_only_so_many_webhooks() {
    let world = world(MeteredResource::Webhooks, Some(3)).options(|options| {
        options.measure_interval = Duration::from_secs(3600);
    });
    let engine = world.start().await;
    until("the one measurement is over", async || engine.usage().measured_at()).await;
    let ada = Caller::named("acme/ada");
    let hook = |id: &str| WebhookConfig {
        id: id.into(),
        url: "http://192.0.2.1/".into(),
        token: None,
        authentication: None,
        dialect: "a2a/1.0".into(),
    };
    let mut two = to("echo", "x");
    two.webhooks = vec![hook("a"), hook("b")];
    let task = engine.submit(&ada, two.clone()).await.unwrap();
    is_over(&engine.submit(&ada, two).await.unwrap_err(), "webhooks-per-tenant");
    let id = task.origin.id.to_string();
    engine.put_webhook(&ada, &id, hook("c")).await.unwrap();
    is_over(&engine.put_webhook(&ada, &id, hook("d")).await.unwrap_err(), "webhooks-per-tenant");
    engine.submit(&ada, to("echo", "x")).await.unwrap();
    engine.stop().await;
}
