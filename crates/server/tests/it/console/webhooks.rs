//! Webhooks and failed deliveries: who sees them, and what is done with them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use nuncio_engine::{
    Caller,
    knowledge::AuditQuery,
    outbox::{DeliveryResult, OutboxOptions, RetrySchedule, WebhookDelivery, WebhookSender},
    webhook::{Authentication, WebhookConfig},
};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::refused;
use crate::{
    guests::{As, site},
    receiver::until,
    site::Site,
};

/// Fails as the address says, until it is mended.
struct Sender(Arc<AtomicBool>);

#[async_trait]
impl WebhookSender for Sender {
    async fn deliver(&self, delivery: &WebhookDelivery<'_>) -> DeliveryResult {
        if self.0.load(Ordering::SeqCst) {
            return DeliveryResult::Delivered;
        }
        match &delivery.webhook.url {
            url if url.contains("gone") => {
                DeliveryResult::Dead { reason: "the receiver answered 410 Gone".into() }
            }
            url if url.contains("down") => {
                DeliveryResult::Retry { after: None, reason: "10.0.0.5 refused the connection".into() }
            }
            _ => DeliveryResult::Retry { after: None, reason: "the receiver answered 500".into() },
        }
    }
}

pub(super) struct Post {
    pub(super) site: Site,
    is_mended: Arc<AtomicBool>,
    _stop: watch::Sender<bool>,
}

impl Post {
    pub(super) async fn new() -> Self {
        let site = site().await;
        let is_mended = Arc::new(AtomicBool::new(false));
        let first = Duration::from_secs(3600);
        let schedule = RetrySchedule { first, longest: first, jitter: 0.0, ..RetrySchedule::default() };
        let options = OutboxOptions { schedule, ..OutboxOptions::default() };
        let outbox = site.engine.new_outbox(Arc::new(Sender(Arc::clone(&is_mended))), options);
        let (stop, closing) = watch::channel(false);
        tokio::spawn(outbox.run(closing));
        Self { site, is_mended, _stop: stop }
    }

    /// A task of the owner with a webhook that waits for events, and then gets some.
    pub(super) async fn task(&self, owner: &str, hook: &str, url: &str) -> String {
        let task = As { site: &self.site, token: owner }.begin("ask").await;
        self.site.engine.put_webhook(&Caller::named(owner), &task, config(hook, url)).await.unwrap();
        let params = json!({ "message": {
            "messageId": format!("m-{task}"), "role": "ROLE_USER", "taskId": task, "parts": [{ "text": "yes" }],
        } });
        let sent = As { site: &self.site, token: owner }.a2a("1.0", "SendMessage", &params).await;
        assert_eq!(sent.status, 200, "{}", sent.text());
        task
    }

    async fn get(&self, token: &str, path: &str) -> Value {
        let answer = self.site.console(path, &[("authorization", &bearer(token))]).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        assert!(!answer.text().contains("s3cret") && !answer.text().contains("t0ken"), "{}", answer.text());
        answer.json()
    }

    async fn failed(&self, token: &str, state: &str) -> Vec<Value> {
        self.get(token, &format!("deliveries?state={state}")).await["deliveries"].as_array().unwrap().clone()
    }

    async fn failing(&self, token: &str, state: &str, count: usize) -> Vec<Value> {
        until("deliveries that failed", async || self.failed(token, state).await.len() == count).await;
        self.failed(token, state).await
    }

    async fn act(&self, token: &str, act: &str, ids: &[&Value]) -> Value {
        let headers = [("authorization", &*bearer(token))];
        let answer =
            self.site.console_post(&format!("deliveries/{act}"), &headers, &json!({ "ids": ids })).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    }
}

fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

fn config(id: &str, url: &str) -> WebhookConfig {
    WebhookConfig {
        id: id.into(),
        url: url.into(),
        token: Some("t0ken".into()),
        authentication: Some(Authentication {
            schemes: vec!["Bearer".into()],
            credentials: Some("s3cret".into()),
        }),
        dialect: "a2a/1.0".into(),
    }
}

const ADMIN: &str = "acme/boss;read,write:admin:webhooks+read:a2a:tasks";
const ROOT: &str = "root;read,write:admin:webhooks+read:a2a:tasks";

#[tokio::test]
async fn what_fails_is_listed_to_its_owner_and_to_administrators_of_its_tenant() {
    let post = Post::new().await;
    let ada = post.task("acme/ada", "w.1", "https://u:pw@a.example/500?key=1").await;
    let bob = post.task("acme/bob", "w", "https://b.example/down").await;
    post.task("evil/eve", "w", "https://e.example/500").await;
    let all = post.failing(ROOT, "retrying", 3).await;
    assert!(all.iter().any(|row| row["owner"] == "evil/eve"), "the home tenant sees all: {all:?}");

    let seen = post.failed(ADMIN, "retrying").await;
    assert_eq!(seen.len(), 2, "{seen:?}");
    let row = seen.iter().find(|row| row["taskId"] == *ada).unwrap();
    let seq = row["seq"].as_u64().unwrap();
    assert_eq!(row["id"], format!("{ada}.w.1.{seq}"));
    assert_eq!((&row["owner"], &row["agent"]), (&"acme/ada".into(), &"actor".into()));
    assert_eq!((&row["state"], &row["attempts"]), (&"retrying".into(), &1.into()));
    assert_eq!(row["address"], "https://a.example/500?(hidden)", "only its owner reads it whole");
    assert_eq!(row["reason"], "the receiver answered 500");
    assert!(row["nextAt"].as_str() > row["since"].as_str(), "{row}");
    let wire = post.get("acme/ada", row["payload"].as_str().unwrap()).await;
    assert_eq!(wire["frames"][0]["as"], "webhook");
    let hidden = seen.iter().find(|row| row["taskId"] == *bob).unwrap();
    assert!(hidden["reason"].as_str().unwrap().starts_with("the receiver did not answer"), "{hidden}");
    let whole = all.iter().find(|row| row["taskId"] == *bob).unwrap();
    assert_eq!(whole["reason"], "10.0.0.5 refused the connection", "for the operator");

    // Without the scope a caller sees its own.
    let own = post.get("acme/ada;read:a2a", "deliveries").await;
    assert_eq!((own["deliveries"].as_array().unwrap().len(), &own["own"]), (1, &true.into()));
    let refusal = post
        .site
        .console_refuses(
            "deliveries?owner=acme/bob",
            &[("authorization", &bearer("acme/ada;read:a2a"))],
            403,
            "scope_missing",
        )
        .await;
    assert_eq!(refusal["scope"], "read:admin:webhooks");
    assert_eq!(post.get(ADMIN, "deliveries?owner=acme/bob").await["deliveries"].as_array().unwrap().len(), 1);
    let foreign = post.get(ADMIN, "deliveries?owner=evil/eve").await;
    assert_eq!(foreign["deliveries"], json!([]), "of another tenant there is nothing");
    for (path, field) in [
        ("deliveries?state=odd", "state"),
        ("deliveries?limit=0", "limit"),
        ("deliveries?limit=101", "limit"),
        ("deliveries?cursor=dead.1.2.3.w", "cursor"),
        ("deliveries?cursor=x", "cursor"),
        ("deliveries?page=2", "page"),
    ] {
        let headers = [("authorization", &*bearer(ADMIN))];
        let refusal = post.site.console_refuses(path, &headers, 400, "bad_request").await;
        assert_eq!(refusal["field"], field, "{path}");
    }
    // In pages, each once.
    let (mut rows, mut cursor) = (vec![], String::new());
    loop {
        let page = post.get(ROOT, &format!("deliveries?limit=1{cursor}")).await;
        rows.extend(page["deliveries"].as_array().unwrap().iter().map(|row| row["id"].clone()));
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(rows, all.iter().map(|row| row["id"].clone()).collect::<Vec<_>>());

    // A caller of the home tenant without that scope would map the server's network by its own webhooks.
    let theirs = post.task("guest", "w", "https://c.example/down").await;
    let seen = post.failing("guest;read:a2a", "retrying", 1).await;
    assert_eq!(seen[0]["taskId"], *theirs);
    assert!(seen[0]["reason"].as_str().unwrap().starts_with("the receiver did not answer"), "{seen:?}");
}

#[tokio::test]
async fn webhooks_of_a_task_are_shown_and_removed_by_its_owner_and_administrators() {
    let post = Post::new().await;
    let task = post.task("acme/ada", "w", "https://a.example/500?key=1").await;
    post.failing(ROOT, "retrying", 1).await;
    let path = format!("tasks/{task}/webhooks");
    let shown = post.get("acme/ada;read:a2a", &path).await["webhooks"][0].clone();
    assert_eq!((&shown["webhookId"], &shown["state"]), (&"w".into(), &"retrying".into()));
    assert_eq!(shown["address"], "https://a.example/500?key=1", "as its owner registered it");
    assert_eq!((&shown["hasToken"], &shown["schemes"]), (&true.into(), &json!(["Bearer"])));
    assert!(shown["cursor"].as_u64() < shown["last"].as_u64(), "{shown}");
    let seen = post.get(ADMIN, &path).await["webhooks"][0].clone();
    assert_eq!(seen["address"], "https://a.example/500?(hidden)");
    for stranger in
        ["acme/bob;read,write:a2a", "evil/eve", "evil/eve;read,write:admin:webhooks+read,write:a2a"]
    {
        let headers = [("authorization", &*bearer(stranger))];
        post.site.console_refuses(&path, &headers, 404, "not_found").await;
        let answer = post.site.console_delete(&format!("{path}/w"), &headers).await;
        refused(&answer, 404, "not_found");
    }
    let reader = [("authorization", &*bearer("acme/boss;read:admin:webhooks+read:a2a"))];
    let refusal =
        refused(&post.site.console_delete(&format!("{path}/w"), &reader).await, 403, "scope_missing");
    assert_eq!(refusal["scope"], "write:a2a:tasks");
    let admin = [("authorization", &*bearer(ADMIN))];
    refused(&post.site.console_delete(&format!("{path}/x"), &admin).await, 404, "not_found");
    assert_eq!(post.site.console_delete(&format!("{path}/w"), &admin).await.status, 200);
    assert_eq!(post.get(ADMIN, &path).await["webhooks"], json!([]));
    assert_eq!(post.failed(ROOT, "retrying").await, Vec::<Value>::new(), "what it had to deliver is gone");
    let query = AuditQuery { resource: Some(task.clone()), limit: 100, ..AuditQuery::default() };
    let log = post.site.engine.audit_log(&Caller::local(), query).await.unwrap().entries;
    let line =
        log.iter().find(|(_, line)| line.operation == "admin.webhook.delete" && line.refused.is_none());
    assert_eq!(line.unwrap().1.resource, format!("admin://tasks/{task}/webhooks/w"));

    let own = post.task("acme/ada", "w", "https://a.example/500").await;
    let ada = [("authorization", &*bearer("acme/ada;write:a2a"))];
    assert_eq!(post.site.console_delete(&format!("tasks/{own}/webhooks/w"), &ada).await.status, 200);
}

#[tokio::test]
async fn a_failed_delivery_is_replayed_or_discarded_by_who_may() {
    let post = Post::new().await;
    let retried = post.task("acme/ada", "w", "https://a.example/500").await;
    let dead = post.task("acme/ada", "w", "https://a.example/gone").await;
    let retry = post.failing(ROOT, "retrying", 1).await[0]["id"].clone();
    until("all are given up", async || {
        let shown = post.get(ROOT, &format!("tasks/{dead}/webhooks")).await;
        shown["webhooks"][0]["state"] == "idle"
    })
    .await;
    let letters = post.failed(ROOT, "dead").await;
    assert!(letters.len() > 1 && letters.iter().all(|row| row["attempts"] == 1), "{letters:?}");
    let (first, second) = (&letters[0]["id"], &letters[1]["id"]);

    // Somebody else's, and what is not there, are one thing; and nothing happens to them.
    let unknown = json!(format!("{}.w.3", uuid::Uuid::now_v7()));
    for stranger in ["evil/eve", "acme/bob;read,write:a2a", "evil/eve;write:admin:webhooks"] {
        let said = post.act(stranger, "discard", &[&retry, first, &unknown, &json!("odd")]).await;
        assert_eq!(said["done"], 0);
        let results: Vec<&Value> =
            said["results"].as_array().unwrap().iter().map(|result| &result["result"]).collect();
        assert_eq!(results, ["not_found"; 4], "{said}");
    }
    let refusal = post
        .site
        .console_post(
            "deliveries/replay",
            &[("authorization", &bearer("acme/ada;read:a2a"))],
            &json!({ "ids": [retry] }),
        )
        .await;
    refused(&refusal, 403, "scope_missing");
    for ids in [json!([]), json!(vec!["x"; 101])] {
        let headers = [("authorization", &*bearer(ADMIN))];
        let answer = post.site.console_post("deliveries/replay", &headers, &json!({ "ids": ids })).await;
        assert_eq!(refused(&answer, 400, "bad_request")["field"], "ids");
    }
    assert_eq!(post.failed(ROOT, "dead").await.len(), letters.len());

    let said = post.act(ADMIN, "discard", &[first, first]).await;
    assert_eq!(
        said["results"],
        json!([{ "id": first, "result": "done" }, { "id": first, "result": "unchanged" }])
    );
    assert_eq!(post.failed(ROOT, "dead").await.len(), letters.len() - 1);
    post.is_mended.store(true, Ordering::SeqCst);
    assert_eq!(post.act("acme/ada;write:a2a", "replay", &[second, &retry]).await["done"], 2, "its owner may");
    until("both were delivered", async || {
        post.failed(ROOT, "dead").await.len() == letters.len() - 2
            && post.failed(ROOT, "retrying").await.is_empty()
    })
    .await;
    let shown = post.get(ROOT, &format!("tasks/{retried}/webhooks")).await["webhooks"][0].clone();
    assert_eq!((&shown["state"], &shown["cursor"]), (&"idle".into(), &shown["last"]));
}
