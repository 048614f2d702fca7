//! Rows of tasks, their filters, pages and counts; open questions and their answers.

use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::Ordering},
};

use async_trait::async_trait;
use nuncio_engine::{
    Agent, AgentError, Caller, Catalog, Engine, EngineParts, Message, Outcome, Profile, Role, State, Submit,
    TaskContext, engine::OverviewQuery,
};
use nuncio_store::SqliteOptions;
use nuncio_testkit::{
    fault_injection::{HookedStore, proceed},
    open_in,
};
use serde_json::{Value, json};

use super::refused;
use crate::{
    guests::Guests,
    site::{Site, message},
    socket::within,
};

impl Site {
    async fn task_of(&self, agent: &str, text: &str) -> String {
        let params = json!({ "message": message(text), "configuration": { "returnImmediately": true } });
        let sent = self.call_at(&format!("/agents/{agent}"), "1.0", "SendMessage", params).await;
        sent["result"]["task"]["id"].as_str().unwrap().to_owned()
    }

    /// All rows of a filter, page by page.
    async fn all_rows(&self, filter: &str, limit: usize) -> Vec<Value> {
        let (mut rows, mut cursor) = (vec![], String::new());
        loop {
            let page = self.shown(&format!("tasks?limit={limit}{filter}{cursor}")).await;
            let found = page["rows"].as_array().unwrap();
            assert!(found.len() <= limit);
            rows.extend(found.iter().cloned());
            match page["next"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return rows,
            }
        }
    }
}

fn ids(rows: &[Value]) -> Vec<&str> {
    rows.iter().map(|row| row["taskId"].as_str().unwrap()).collect()
}

/// Under every combination of filters a list has the rows that a plain filter over all rows has, in the same order.
#[tokio::test]
async fn lists_agree_with_a_plain_filter() {
    let site = Site::new().await;
    for (agent, text) in [
        ("actor", "hello   there\n friend"),
        ("unstreamed", "fail it broke"),
        ("actor", "fail again"),
        ("unpushed", "ask"),
        ("actor", "ask"),
        ("unstreamed", "hello"),
        ("actor", "wait"),
    ] {
        let task = site.task_of(agent, text).await;
        let state = match text.split(' ').next() {
            Some("hello") => "COMPLETED",
            Some("fail") => "FAILED",
            Some("ask") => "INPUT_REQUIRED",
            _ => "WORKING",
        };
        site.until_state(&task, state).await;
    }
    let all = site.all_rows("", 100).await;
    assert_eq!(all.len(), 7);
    let times: Vec<&str> = all.iter().map(|row| row["statusAt"].as_str().unwrap()).collect();
    assert!(times.is_sorted_by(|a, b| a >= b), "{times:?}");
    let texts: BTreeSet<&str> = all.iter().map(|row| row["firstText"].as_str().unwrap()).collect();
    assert!(texts.contains("hello there friend"), "white space is joined: {texts:?}");
    let why = all.iter().find(|row| row["firstText"] == "fail it broke").unwrap();
    assert_eq!(why["why"], "it broke");

    let middle = all[3]["statusAt"].as_str().unwrap();
    let states =
        ["", "&state=failed", "&state=failed&state=input-required", "&state=completed&state=working"];
    let agents = ["", "&agent=actor", "&agent=actor&agent=unpushed", "&agent=nobody"];
    let times = [String::new(), format!("&since={middle}"), format!("&before={middle}")];
    for state in states {
        for agent in agents {
            for time in &times {
                let filter = format!("{state}{agent}{time}");
                let has = |name: &str, value: &str| {
                    let of_name: Vec<&str> =
                        filter.split('&').filter(|part| part.starts_with(name)).collect();
                    of_name.is_empty() || of_name.contains(&format!("{name}={value}").as_str())
                };
                let expected: Vec<Value> = all
                    .iter()
                    .filter(|row| {
                        let at = row["statusAt"].as_str().unwrap();
                        has("state", row["state"].as_str().unwrap())
                            && has("agent", row["agent"].as_str().unwrap())
                            && (!time.starts_with("&since") || at >= middle)
                            && (!time.starts_with("&before") || at < middle)
                    })
                    .cloned()
                    .collect();
                for limit in [1, 2, 100] {
                    let rows = site.all_rows(&filter, limit).await;
                    assert_eq!(ids(&rows), ids(&expected), "{filter} in pages of {limit}");
                }
                let page = site.shown(&format!("tasks?limit=1{filter}")).await;
                match time.is_empty() {
                    true => assert_eq!(page["total"], expected.len(), "{filter}"),
                    false => assert!(page["total"].is_null() && page["facets"].is_null(), "{filter}"),
                }
            }
        }
    }
    let twice = site.all_rows("&state=failed&state=failed&agent=actor&agent=actor", 5).await;
    assert_eq!(ids(&twice), ids(&site.all_rows("&state=failed&agent=actor", 5).await), "each row once");
    let facets = site.shown("tasks?state=failed&agent=actor").await["facets"].take();
    assert_eq!(facets["state"], json!({ "completed": 1, "failed": 1, "input-required": 1, "working": 1 }));
    assert_eq!(facets["agent"], json!({ "actor": 1, "unstreamed": 1 }));

    let id = all[2]["taskId"].as_str().unwrap();
    assert_eq!(ids(&site.all_rows(&format!("&id={id}"), 5).await), [id]);
    let prefix = &id[..24];
    let expected: Vec<&str> = ids(&all).into_iter().filter(|id| id.starts_with(prefix)).collect();
    assert_eq!(ids(&site.all_rows(&format!("&id={prefix}"), 2).await), expected);
    assert_eq!(ids(&site.all_rows(&format!("&id={prefix}&state=rejected"), 2).await), Vec::<&str>::new());
    let context = all[2]["contextId"].as_str().unwrap();
    assert_eq!(ids(&site.all_rows(&format!("&context={context}"), 5).await), [id]);
    assert_eq!(site.all_rows("&roots=true", 5).await.len(), 7);
}

#[tokio::test]
async fn what_cannot_be_used_is_named() {
    let site = Site::new().await;
    for n in 0..3 {
        site.task_of("actor", &format!("hello {n}")).await;
    }
    for (query, field) in [
        ("state=done", "state"),
        ("roots=maybe", "roots"),
        ("since=yesterday", "since"),
        ("id=xyz", "id"),
        ("limit=0", "limit"),
        ("limit=101", "limit"),
        ("cursor=nothing", "cursor"),
        ("context=a&context=b", "context"),
        ("colour=red", "colour"),
    ] {
        let error = site.console_refuses(&format!("tasks?{query}"), &[], 400, "bad_request").await;
        assert_eq!(error["field"], field, "{query}: {error}");
    }
    let many: String = (0..17).map(|n| format!("&agent=a{n}")).collect();
    let error = site.console_refuses(&format!("tasks?{}", &many[1..]), &[], 400, "bad_request").await;
    assert!(error["message"].as_str().unwrap().contains("at most 16 agents"), "{error}");
    // A cursor is good for the filters that it was made with.
    let cursor = site.shown("tasks?limit=1").await["next"].as_str().unwrap().to_owned();
    site.shown(&format!("tasks?limit=2&cursor={cursor}")).await;
    site.console_refuses(&format!("tasks?state=failed&cursor={cursor}"), &[], 400, "bad_request").await;
    site.console_refuses("tasks/none", &[], 404, "not_found").await;
    site.console_refuses("nothing", &[], 404, "not_found").await;
}

/// Another caller's task is answered as one that does not exist, by every operation.
#[tokio::test]
async fn a_task_of_another_caller_does_not_exist() {
    let site = Site::with(|setup| setup.server.authenticator = Some(Arc::new(Guests::default()))).await;
    let (ada, eve) = ([("Authorization", "Bearer acme/ada")], [("Authorization", "Bearer globex/eve")]);
    let params = json!({ "message": message("ask") });
    let sent = site.send(crate::socket::post(
        "/",
        &[("A2A-Version", "1.0"), ada[0]],
        crate::site::request("SendMessage", &params),
    ));
    let id = sent.await.json()["result"]["task"]["id"].as_str().unwrap().to_owned();
    assert_eq!(site.console(&format!("tasks/{id}"), &ada).await.status, 200);
    let unknown = "00000000-0000-7000-8000-000000000000";
    for path in ["", "/family", "/events", "/events/1", "/events/1?part=data", "/at/1", "/wire/1"] {
        let theirs = site.console(&format!("tasks/{id}{path}"), &eve).await;
        let none = site.console(&format!("tasks/{unknown}{path}"), &eve).await;
        assert_eq!(theirs.status, 404, "{path}: {}", theirs.text());
        assert_eq!(theirs.text().replace(&id, unknown), none.text(), "{path}");
    }
    let answer = json!({ "questionId": "q1", "action": "accept", "content": { "confirm": true } });
    refused(&site.console_post(&format!("tasks/{id}/answers"), &eve, &answer).await, 404, "not_found");
    refused(&site.console_post(&format!("tasks/{id}/cancel"), &eve, &json!({})).await, 404, "not_found");
    let topics = json!({ "topics": [{ "key": "t", "topic": "task", "id": id }] });
    refused(&site.console_post("live", &eve, &topics).await, 404, "not_found");
    for path in ["tasks", "questions"] {
        let shown = site.console(path, &eve).await.json();
        assert_eq!(shown["total"], 0, "{shown}");
    }
    // One who may administer a tenant sees its tasks, and none of another tenant.
    let boss = [("Authorization", "Bearer acme/boss;read:admin:tasks")];
    let seen = site.console("tasks?owner=all", &boss).await.json();
    assert_eq!(seen["rows"][0]["taskId"], *id);
    let seen = site.console("tasks?owner=acme/ada", &boss).await.json();
    assert_eq!(seen["rows"][0]["taskId"], *id);
    // Such a caller reads them, too, and cancels them only with the scope for that.
    for path in ["", "/events", "/events/1", "/at/1", "/wire/1"] {
        let read = site.console(&format!("tasks/{id}{path}"), &boss).await;
        assert_eq!(read.status, 200, "{path}: {}", read.text());
    }
    let cancel = site.console_post(&format!("tasks/{id}/cancel"), &boss, &json!({})).await;
    assert_eq!(refused(&cancel, 403, "scope_missing")["scope"], "write:admin:tasks");
    refused(&site.console_post(&format!("tasks/{id}/answers"), &boss, &answer).await, 403, "scope_missing");
    let operator = [("Authorization", "Bearer operator;read,write:admin:tasks")];
    let seen = site.console("tasks?owner=all", &operator).await.json();
    assert_eq!(seen["rows"][0]["owner"], "acme/ada", "the home tenant administers all");
    let stranger = [("Authorization", "Bearer globex/boss;read:admin:tasks")];
    for path in ["", "/events", "/at/1", "/wire/1"] {
        site.console_refuses(&format!("tasks/{id}{path}"), &stranger, 404, "not_found").await;
    }
    for path in
        ["tasks?owner=all".to_owned(), "tasks?owner=acme/ada".into(), format!("tasks?owner=all&id={id}")]
    {
        assert_eq!(site.console(&path, &stranger).await.json()["rows"], json!([]), "{path}");
    }
    let canceled = site.console_post(&format!("tasks/{id}/cancel"), &operator, &json!({})).await.json();
    assert_eq!(canceled["state"], "canceled");
}

#[tokio::test]
async fn questions_are_listed_oldest_first_and_answered_once() {
    let site = Site::new().await;
    let first = site.task_of("actor", "ask").await;
    site.until_state(&first, "INPUT_REQUIRED").await;
    let second = site.task_of("actor", "ask-both").await;
    site.until_state(&second, "INPUT_REQUIRED").await;
    let login = site.task_of("actor", "authorize").await;
    site.until_state(&login, "AUTH_REQUIRED").await;
    let open = within("all four questions", async {
        loop {
            let open = site.shown("questions").await;
            if open["total"] == 4 {
                return open;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    })
    .await;
    let asked: Vec<&str> =
        open["questions"].as_array().unwrap().iter().map(|q| q["text"].as_str().unwrap()).collect();
    assert_eq!((asked[0], asked[3]), ("Really?", "Log in, please."), "{asked:?}");
    assert_eq!(open["questions"][0]["path"], json!([{ "taskId": first, "agent": "actor" }]));
    assert_eq!(open["questions"][3]["ask"], json!({ "authorization": { "url": "https://login.example/" } }));
    let page = site.shown("questions?limit=3").await;
    let rest = site.shown(&format!("questions?cursor={}", page["next"].as_str().unwrap())).await;
    assert_eq!(rest["questions"], json!([open["questions"][3]]));

    let question = open["questions"][0]["questionId"].as_str().unwrap();
    let answers = format!("tasks/{first}/answers");
    let with = |content: Value| json!({ "questionId": question, "action": "accept", "content": content });
    let wrong = site.console_post(&answers, &[], &with(json!({ "confirm": "perhaps" }))).await;
    refused(&wrong, 422, "answer_invalid");
    let noted = json!({ "questionId": question, "action": "accept", "note": "x" });
    refused(&site.console_post(&answers, &[], &noted).await, 400, "bad_request");
    let taken = site.console_post(&answers, &[], &with(json!({ "confirm": true }))).await.json();
    assert_eq!((&taken["taskId"], &taken["questionId"]), (&json!(first), &json!(question)));
    let done = site.until_state(&first, "COMPLETED").await;
    assert_eq!(done["status"]["message"]["parts"][0]["text"], "yes");
    let late = site.console_post(&answers, &[], &with(json!({ "confirm": false }))).await;
    assert_eq!(late.status, 409, "{}", late.text());
    let late = late.json()["error"].take();
    assert_eq!((&late["state"], &late["closed"]["how"]), (&json!("completed"), &json!("answered")), "{late}");
    let login_question = open["questions"][3]["questionId"].clone();
    let decline = json!({ "questionId": login_question, "action": "decline", "note": "not now" });
    assert_eq!(site.console_post(&format!("tasks/{login}/answers"), &[], &decline).await.status, 200);
    site.until_state(&login, "COMPLETED").await;

    let canceled = site.console_post(&format!("tasks/{second}/cancel"), &[], &json!({})).await.json();
    assert_eq!(canceled["state"], "canceled");
    let again = site.console_post(&format!("tasks/{second}/cancel"), &[], &json!({})).await;
    assert_eq!(refused(&again, 409, "ended")["state"], "canceled");
    assert_eq!(site.shown("questions").await["total"], 0);
}

/// Ends at once.
struct Quick;

#[async_trait]
impl Agent for Quick {
    fn profile(&self) -> Profile {
        Profile::new("quick", "Ends at once.")
    }

    async fn run(&self, _: TaskContext) -> Result<Outcome, AgentError> {
        Ok(Outcome::done())
    }
}

/// However few rows a page shows, it reads many at once, and each of them once.
#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_few_rows_that_are_hard_to_find_reads_many_at_once() {
    const COUNT: u64 = 300;
    let folder = tempfile::tempdir().unwrap();
    let store = HookedStore::new(open_in(folder.path(), SqliteOptions::default()).await, |_, _| proceed());
    let mut catalog = Catalog::default();
    catalog.add(Arc::new(Quick)).unwrap();
    let engine = Engine::start(EngineParts::new(Arc::clone(&store) as _, catalog)).await.unwrap();
    let caller = Caller::local();
    for n in 0..COUNT {
        let message = Message::text(format!("m{n}"), Role::User, "hello");
        engine.submit(&caller, Submit::new("quick", message)).await.unwrap();
    }
    let ended = OverviewQuery { states: vec![State::Completed], limit: 1, ..OverviewQuery::default() };
    within("the end of all tasks", async {
        while engine.overview(&caller, &ended).await.unwrap().total != Some(COUNT) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let states = vec![State::Completed, State::Failed, State::Canceled, State::Working];
    let agents: Vec<String> = ["quick", "b", "c", "d"].map(str::to_owned).into();
    for (states, agents) in [(vec![], vec![]), (states, agents)] {
        let pairs = (states.len() * agents.len()).max(1) as u64;
        // No id begins like this.
        let query = OverviewQuery {
            id_prefix: Some("f".into()),
            limit: 1,
            states,
            agents,
            ..OverviewQuery::default()
        };
        let (lists, rows) = (store.lists.load(Ordering::SeqCst), store.listed_rows.load(Ordering::SeqCst));
        let page = engine.overview(&caller, &query).await.unwrap();
        assert!(page.rows.is_empty() && page.next.is_none(), "{page:?}");
        let lists = store.lists.load(Ordering::SeqCst) - lists;
        let rows = store.listed_rows.load(Ordering::SeqCst) - rows;
        assert!(lists <= pairs + 25, "{lists} reads of the store for {pairs} pairs");
        assert_eq!(rows, COUNT, "every row is read once");
    }
    engine.stop().await;
}
