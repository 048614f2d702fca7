//! The kill switch, with the real binary: a token's work, other callers' tasks, and tenants.

use serde_json::{Value, json};

use super::Place;
use crate::{command::Ran, http::rpc_with};

impl Place {
    /// Begins a task that goes on for long; its id.
    fn begin(&self, token: &str) -> String {
        let url = format!("{}/agents/long_running_agent", self.server.url());
        let message = json!({ "messageId": uuid::Uuid::now_v7().to_string(), "role": "ROLE_USER",
            "parts": [{ "data": { "steps": 1000 } }] });
        let params = json!({ "message": message, "configuration": { "returnImmediately": true } });
        let sent = rpc_with(&url, "SendMessage", &params, &[("Authorization", &format!("Bearer {token}"))]);
        sent["result"]["task"]["id"].as_str().unwrap_or_else(|| panic!("{sent}")).to_owned()
    }

    fn operator_json(&self, args: &[&str]) -> Value {
        self.nuncio(&[args, &["-o", "json"]].concat()).exits(0).json()
    }

    fn state(&self, tenant: &str, task: &str) -> String {
        let shown = self.operator_json(&["task", "get", task, "--tenant", tenant]);
        shown["state"].as_str().unwrap().to_owned()
    }

    fn canceled(&self, tenant: &str, task: &str) {
        let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while self.state(tenant, task) != "canceled" {
            assert!(std::time::Instant::now() < until, "{}", self.state(tenant, task));
        }
    }
}

fn token(place: &Place, name: &str, tenant: &str) -> (String, String) {
    let made = place.token(&["--name", name, "--tenant", tenant]);
    (made["id"].as_str().unwrap().to_owned(), made["token"].as_str().unwrap().to_owned())
}

fn says(ran: &Ran, text: &str) {
    let said = format!("{}{}", ran.stdout, ran.stderr);
    assert!(said.contains(text), "{said}");
}

#[test]
fn a_token_that_is_stopped_takes_its_tasks_with_it() {
    let place = Place::new(&[]);
    let ((bad, bad_token), (_, good_token)) = (token(&place, "ada", "acme"), token(&place, "ada", "acme"));
    let (first, second) = (place.begin(&bad_token), place.begin(&bad_token));
    let other = place.begin(&good_token);
    let listed = place.operator_json(&["task", "list", "--tenant", "acme"]);
    let tasks = listed["tasks"].as_array().unwrap();
    assert_eq!(tasks.iter().filter(|task| task["token"] == *bad).count(), 2, "{listed}");
    let stopped = place.operator_json(&["token", "revoke", "--stop", &bad]);
    assert_eq!(stopped["stopped"]["counts"]["canceled"], 2, "{stopped}");
    place.canceled("acme", &first);
    place.canceled("acme", &second);
    assert_ne!(place.state("acme", &other), "canceled", "another token of the same name");
    says(&place.send_as(&bad_token, "x").exits(4), "not good");
    let lines = place.audit(&["--tenant", "acme"]);
    assert!(lines.iter().any(|line| line["operation"] == "task.send" && line["token"] == *bad), "{lines:?}");
}

#[test]
fn the_operator_lists_shows_cancels_and_deletes_tasks_of_a_tenant() {
    let place = Place::new(&[]);
    let (_, ada) = token(&place, "ada", "acme");
    let task = place.begin(&ada);
    says(&place.nuncio(&["task", "list", "--tenant", "acme"]).exits(0), &task);
    assert_eq!(place.operator_json(&["task", "list", "--tenant", "other"])["tasks"], json!([]));
    says(&place.nuncio(&["task", "get", &task, "--tenant", "other"]).exits(1), "there is no task");
    says(&place.nuncio(&["task", "delete", &task, "--tenant", "acme"]).exits(1), "cancel it first");
    says(&place.nuncio(&["task", "cancel", &task, "--tenant", "acme"]).exits(0), "canceled");
    says(&place.nuncio(&["task", "delete", &task, "--tenant", "acme"]).exits(0), "Deleted");
    says(&place.nuncio(&["task", "get", &task, "--tenant", "acme"]).exits(1), "there is no task");

    // Over HTTP only the scopes count, and another tenant's task is none.
    let task = place.begin(&ada);
    let url = |task: &str| format!("{}/admin/tasks/{task}", place.server.url());
    let (_, plain) = token(&place, "eve", "acme");
    let made = place.token(&["--name", "root", "--tenant", "other", "--scope", "*:admin", "--scope", "*:*"]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let get = async |task: &str, token: &str| {
            let answer = crate::http::client().get(url(task)).bearer_auth(token).send().await.unwrap();
            (answer.status().as_u16(), answer.text().await.unwrap().replace(task, "ID"))
        };
        let nobody = "0190a1b2-c3d4-7e5f-8a6b-7c8d9e0f1a2b";
        assert_eq!(get(&task, &plain).await, get(nobody, &plain).await);
        assert_eq!(get(&task, &plain).await.0, 403);
        let admin = made["token"].as_str().unwrap();
        assert_eq!(get(&task, admin).await, get(nobody, admin).await);
        assert_eq!(get(&task, admin).await.0, 404);
    });
}

#[test]
fn the_operator_authorizes_what_a_task_of_a_tenant_waits_for() {
    let script = r#"read line; echo '{"type":"authorize","text":"Log in.","url":"https://login.example/"}'
read line; case "$line" in *accept*) echo '{"type":"done","text":"in"}';; *) echo '{"type":"done","text":"out"}';; esac"#;
    let table = format!(
        "[[agent]]\nname = \"guarded\"\nkind = \"process\"\ncommand = [\"sh\", \"-c\", {}]\n",
        json!(script)
    );
    let place = Place::configured(&table, &[]);
    let (_, ada) = token(&place, "ada", "acme");
    let url = format!("{}/agents/guarded", place.server.url());
    let bearer = format!("Bearer {ada}");
    let call = |method: &str, params: Value| rpc_with(&url, method, &params, &[("Authorization", &bearer)]);
    let begin = || {
        let id = uuid::Uuid::now_v7().to_string();
        let message = json!({ "messageId": id, "role": "ROLE_USER", "parts": [{ "text": "go" }] });
        let sent = call("SendMessage", json!({ "message": message }));
        assert_eq!(sent["result"]["task"]["status"]["state"], "TASK_STATE_AUTH_REQUIRED", "{sent}");
        sent["result"]["task"]["id"].as_str().unwrap().to_owned()
    };
    let said = |task: &str| {
        let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
        loop {
            let got = call("GetTask", json!({ "id": task }));
            if got["result"]["status"]["state"] == "TASK_STATE_COMPLETED" {
                return got["result"]["status"]["message"]["parts"][0]["text"].as_str().unwrap().to_owned();
            }
            assert!(std::time::Instant::now() < until, "{got}");
        }
    };
    let task = begin();
    says(&place.nuncio(&["task", "authorize", &task, "--tenant", "other"]).exits(1), "there is no task");
    says(&place.nuncio(&["task", "authorize", &task, "--tenant", "acme"]).exits(0), &task);
    assert_eq!(said(&task), "in");
    says(&place.nuncio(&["task", "authorize", &task, "--tenant", "acme"]).exits(1), "no authorization");
    let task = begin();
    place.nuncio(&["task", "authorize", &task, "--tenant", "acme", "--decline"]).exits(0);
    assert_eq!(said(&task), "out");
}

#[test]
fn a_tenant_is_suspended_resumed_exported_and_erased() {
    let place = Place::new(&[]);
    let (_, ada) = token(&place, "ada", "acme");
    let (_, eve) = token(&place, "eve", "other");
    let task = place.begin(&ada);
    place.send_as(&ada, "remember").exits(0);
    place.send_as(&eve, "other's").exits(0);

    let suspended = place.operator_json(&["tenant", "suspend", "acme", "--reason", "unpaid"]);
    assert_eq!((&suspended["state"], &suspended["counts"]["canceled"]), (&json!("suspended"), &json!(1)));
    place.canceled("acme", &task);
    let refused = place.send_as(&ada, "x");
    assert_ne!(refused.code, 0);
    says(&refused, "suspended by the operator");
    place.send_as(&eve, "x").exits(0);
    says(&place.nuncio(&["tenant", "list"]).exits(0), "unpaid");
    place.nuncio(&["tenant", "resume", "acme"]).exits(0);
    place.send_as(&ada, "x").exits(0);
    says(&place.nuncio(&["tenant", "suspend", "home"]).exits(1), "cannot be suspended");

    let file = place.dir.path().join("acme.ndjson");
    let exported = place.operator_json(&["tenant", "export", "acme", file.to_str().unwrap()]);
    let text = std::fs::read_to_string(&file).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&lines[0]["type"], &lines[0]["tenant"]), (&json!("nuncio-export"), &json!("acme")));
    assert_eq!(lines.last().unwrap()["items"], exported["items"]);
    assert!(lines.iter().any(|line| line["type"] == "task" && line["task"].to_string().contains("remember")));
    assert!(!text.contains("other's") && !text.contains(&ada), "nothing of others, no secrets");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    }
    place.nuncio(&["tenant", "export", "acme", file.to_str().unwrap()]).exits(1);

    place.nuncio(&["tenant", "erase", "acme"]).exits(2);
    let erased = place.operator_json(&["tenant", "erase", "acme", "--yes"]);
    assert_eq!((&erased["counts"]["tasks"], &erased["counts"]["tokens"]), (&json!(3), &json!(1)), "{erased}");
    assert_eq!(place.operator_json(&["task", "list", "--tenant", "acme"])["tasks"], json!([]));
    assert!(!place.operator_json(&["token", "list"]).to_string().contains("\"ada\""));
    let lines = place.audit(&[]);
    assert!(lines.iter().any(|line| line["tenant"].as_str().unwrap().starts_with("erased:")));
    assert!(!lines.iter().any(|line| line.to_string().contains("acme/ada")), "{lines:?}");
    says(&place.send_as(&ada, "x"), "not good");
    place.send_as(&eve, "x").exits(0);
}

#[test]
fn the_operator_sees_what_tenants_use_and_store_and_tenants_are_refused_more_than_they_may() {
    let limits =
        "[limits]\nmeasure-interval = \"100ms\"\nstored-bytes-per-tenant = 100000\ntokens-per-tenant = 2\n";
    let place = Place::configured(limits, &[]);
    let (_, ada) = token(&place, "ada", "acme");
    let made = place.token(&["--name", "root", "--tenant", "acme", "--scope", "*:admin", "--scope", "*:*"]);
    let refused = place.nuncio(&["token", "create", "--name", "eve", "--tenant", "acme"]).exits(1);
    says(&refused, "tokens-per-tenant");
    let (_, eve) = token(&place, "eve", "other");
    place.begin(&ada);
    place.send_as(&ada, &"x".repeat(20_000)).exits(0);

    let usage = |args: &[&str]| place.operator_json(&[&["tenant", "usage"], args].concat());
    let acme = crate::caller::until("it is measured", || {
        let shown = usage(&["acme"]);
        let stored = shown["usage"]["storedBytes"].as_u64().unwrap();
        (shown["measuredAt"].is_string() && stored > 20_000).then_some(shown)
    });
    assert_eq!((&acme["tenant"], &acme["state"]), (&json!("acme"), &json!("active")));
    let figures =
        ["runningTasks", "waitingTasks", "tokens", "webhooks"].map(|name| acme["usage"][name].clone());
    assert_eq!(figures, [json!(1), json!(0), json!(2), json!(0)], "{acme}");
    let all = usage(&[]);
    let names: Vec<&str> =
        all["tenants"].as_array().unwrap().iter().map(|one| one["tenant"].as_str().unwrap()).collect();
    assert_eq!(names, ["acme", "home", "other"], "also one that has a token and nothing else");
    let shown = place.nuncio(&["tenant", "usage"]).exits(0).stdout;
    for part in
        ["TENANT", "RUNNING", "STORED", "TOKENS", "acme", "other", "KiB", "What is stored was measured"]
    {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    // An administrator of a tenant sees its own, and figures for machines have no names of tenants.
    let root = crate::caller::Caller::with_token(place.server.url(), made["token"].as_str().unwrap());
    let own: Value = serde_json::from_str(&root.send("GET", "/admin/tenants", &[], None).body).unwrap();
    assert_eq!(own["tenants"].as_array().unwrap().len(), 1, "{own}");
    let metrics = root.send("GET", "/metrics", &[], None).body;
    for resource in ["running-tasks", "stored-bytes", "webhooks", "tokens", "streams"] {
        for name in ["nuncio_usage", "nuncio_usage_largest_tenant"] {
            assert!(
                metrics.contains(&format!("{name}{{resource=\"{resource}\"}} ")),
                "{resource}: {metrics}"
            );
        }
    }
    assert!(!metrics.contains("acme"), "{metrics}");

    // A tenant that stores as much as it may is refused, and no other.
    let text = "y".repeat(40_000);
    place.send_as(&ada, &text).exits(0);
    crate::caller::until("it has as much as it may", || {
        (usage(&["acme"])["usage"]["storedBytes"].as_u64().unwrap() > 80_000).then_some(())
    });
    says(&place.send_as(&ada, &text), "stored-bytes-per-tenant");
    place.send_as(&eve, &text).exits(0);
}
