//! The OpenAPI document of the console's API, compared with a running server: its parameters, its bodies and its answers.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{API, webhooks::Post};
use crate::{
    guests::As,
    receiver::until,
    site::Site,
    socket::{Answer, Events, bare, get, post},
};

/// The document, and the operations whose answers were compared with it.
struct Document {
    json: Value,
    compared: BTreeSet<String>,
}

/// An operation of the document.
struct Operation {
    method: String,
    path: String,
    described: Value,
}

impl Operation {
    fn name(&self) -> String {
        format!("{} {}", self.method, self.path)
    }

    fn query_parameters(&self) -> Vec<&Value> {
        let listed = self.described["parameters"].as_array();
        listed.into_iter().flatten().filter(|parameter| parameter["in"] == "query").collect()
    }

    fn body_schema(&self) -> Option<&Value> {
        self.described.pointer("/requestBody/content/application~1json/schema")
    }

    fn body_example(&self) -> Value {
        self.described["requestBody"]["content"]["application/json"]["example"].clone()
    }
}

impl Document {
    async fn of(site: &Site) -> Self {
        let answer = site.send(get(&format!("{API}/openapi.json"), &[])).await;
        assert_eq!(answer.status, 200, "without credentials, as the pages: {}", answer.text());
        let json = answer.json();
        assert_eq!(json["openapi"], "3.1.0");
        Self { json, compared: BTreeSet::new() }
    }

    fn operations(&self) -> Vec<Operation> {
        let paths = self.json["paths"].as_object().unwrap().iter();
        let operations = paths.flat_map(|(path, methods)| {
            methods.as_object().unwrap().iter().map(move |(method, described)| Operation {
                method: method.clone(),
                path: path.clone(),
                described: described.clone(),
            })
        });
        operations.collect()
    }

    /// Compares an answer with the schema of its operation, in which objects have no further members: what the server
    /// answers is documented whole.
    fn compare(&mut self, method: &str, path: &str, answer: &Answer) -> Value {
        assert_eq!(answer.status, 200, "{method} {path}: {}", answer.text());
        let pointer = format!(
            "/paths/{}/{method}/responses/200/content/application~1json/schema",
            path.replace('~', "~0").replace('/', "~1")
        );
        let schema = self.json.pointer(&pointer).unwrap_or_else(|| panic!("{pointer}")).clone();
        self.check(&schema, &answer.json(), &format!("{method} {path}"));
        self.compared.insert(format!("{method} {path}"));
        answer.json()
    }

    /// Compares a refusal with the schema of all refusals.
    fn compare_refusal(&self, answer: &Answer) {
        assert!(answer.status >= 400, "{}", answer.text());
        self.check(&json!({ "$ref": "#/components/schemas/Error" }), &answer.json(), "a refusal");
    }

    fn check(&self, schema: &Value, answer: &Value, what: &str) {
        let mut schema = closed(schema);
        schema["components"] = closed(&self.json["components"]);
        let validator = jsonschema::options().should_validate_formats(true).build(&schema).unwrap();
        let errors: Vec<String> = validator
            .iter_errors(answer)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(errors.is_empty(), "{what}: {errors:?} in {answer}");
    }
}

/// The schema without room for members that it does not name.
fn closed(schema: &Value) -> Value {
    match schema {
        Value::Object(members) => {
            let mut closed_members: serde_json::Map<String, Value> =
                members.iter().map(|(name, member)| (name.clone(), closed(member))).collect();
            if members.get("properties").is_some_and(Value::is_object)
                && members.get("type") == Some(&json!("object"))
            {
                closed_members.entry("additionalProperties").or_insert(json!(false));
            }
            Value::Object(closed_members)
        }
        Value::Array(items) => items.iter().map(closed).collect(),
        other => other.clone(),
    }
}

/// A server with tasks in many states, for its operator.
struct Server {
    post: Post,
    /// Tasks of the operator, by what was sent.
    tasks: BTreeMap<&'static str, String>,
}

impl Server {
    async fn new() -> Self {
        let post = Post::new().await;
        let operator = As { site: &post.site, token: "operator" };
        let mut tasks = BTreeMap::new();
        for text in ["hello", "fail it broke", "ask", "authorize", "wait", "chunks 5"] {
            tasks.insert(text, operator.begin(text).await);
        }
        post.task("ada", "hook-1", "https://a.example/broken").await;
        Self { post, tasks }
    }

    fn site(&self) -> &Site {
        &self.post.site
    }

    async fn call(&self, method: &str, path: &str, body: Option<&Value>) -> Answer {
        let path = format!("{API}{path}");
        let headers = [("authorization", "Bearer operator")];
        let request = match (method, body) {
            ("get", _) => get(&path, &headers),
            ("post", body) => post(&path, &headers, body.unwrap_or(&json!({})).to_string()),
            _ => bare("DELETE", &path, &headers),
        };
        self.site().send(request).await
    }

    /// The path with its parameters, which name what exists.
    fn at(&self, path: &str, id: &str) -> String {
        path.replace("{id}", id).replace("{seq}", "1").replace("{webhookId}", "hook-1")
    }
}

fn names(text: &str) -> BTreeSet<String> {
    text.split(", ").filter(|name| *name != "none").map(str::to_owned).collect()
}

/// The server names the parameters that an operation has when it refuses another: those are the documented ones. Each
/// documented one is accepted with its example.
#[tokio::test]
async fn parameters_are_those_of_the_document() {
    let server = Server::new().await;
    let document = Document::of(server.site()).await;
    let task = &server.tasks["chunks 5"];
    server
        .site()
        .engine
        .put_webhook(
            &nuncio_engine::Caller::local(),
            task,
            nuncio_engine::webhook::WebhookConfig {
                id: "hook-1".into(),
                url: "https://a.example/".into(),
                token: None,
                authentication: None,
                dialect: "a2a/1.0".into(),
            },
        )
        .await
        .unwrap();
    for operation in document.operations() {
        let (method, path) = (operation.method.as_str(), server.at(&operation.path, task));
        let body = operation.body_example();
        let refused = server.call(method, &format!("{path}?no-such=1"), Some(&body)).await;
        assert_eq!(refused.status, 400, "{}: {}", operation.name(), refused.text());
        let error = refused.json()["error"].take();
        assert_eq!(error["field"], "no-such", "{}: {error}", operation.name());
        let said = error["message"].as_str().unwrap().split_once("there are ").unwrap().1;
        let documented: BTreeSet<String> = operation
            .query_parameters()
            .iter()
            .map(|parameter| parameter["name"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(names(said), documented, "{}", operation.name());
        for parameter in operation.query_parameters() {
            let Some(example) = parameter.get("example") else {
                assert_eq!(
                    parameter["name"],
                    "cursor",
                    "only a cursor cannot be made up: {}",
                    operation.name()
                );
                continue;
            };
            if method != "get" {
                continue;
            }
            let name = parameter["name"].as_str().unwrap();
            let values = example.as_array().cloned().unwrap_or_else(|| vec![example.clone()]);
            let query: Vec<String> = values
                .iter()
                .map(|value| {
                    format!("{name}={}", value.as_str().map_or_else(|| value.to_string(), str::to_owned))
                })
                .collect();
            let accepted = server.call(method, &format!("{path}?{}", query.join("&")), None).await;
            assert!(
                accepted.status == 200 || accepted.json()["error"]["code"] == "cursor_beyond",
                "{query:?}: {}",
                accepted.text()
            );
        }
    }
}

/// A body's members are those of the document: the server names them when it refuses another.
#[tokio::test]
async fn members_of_bodies_are_those_of_the_document() {
    let server = Server::new().await;
    let document = Document::of(server.site()).await;
    for operation in document.operations() {
        let Some(schema) = operation.body_schema() else { continue };
        let schema = match schema["$ref"].as_str() {
            Some(reference) => document.json.pointer(&reference[1..]).unwrap(),
            None => schema,
        };
        let mut body = operation.body_example();
        document.check(schema, &body, &operation.name());
        body["no-such"] = json!(1);
        let path = server.at(&operation.path, &server.tasks["ask"]);
        let refused = server.call(&operation.method, &path, Some(&body)).await;
        assert_eq!(refused.status, 400, "{}: {}", operation.name(), refused.text());
        document.compare_refusal(&refused);
        let refused = refused.json();
        let message = refused["error"]["message"].as_str().unwrap();
        let expected: BTreeSet<&str> = match message.split_once("expected") {
            Some((_, named)) => named.split('`').skip(1).step_by(2).collect(),
            None => BTreeSet::new(),
        };
        let documented: BTreeSet<&str> =
            schema["properties"].as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(expected, documented, "{}: {message}", operation.name());
    }
}

/// What a server answers satisfies the schemas, which name every member of it.
#[tokio::test]
async fn answers_are_as_documented() {
    let server = Server::new().await;
    let mut document = Document::of(server.site()).await;
    for (text, state) in [
        ("hello", "completed"),
        ("fail it broke", "failed"),
        ("ask", "input-required"),
        ("authorize", "auth-required"),
    ] {
        let path = format!("/tasks/{}", server.tasks[text]);
        until(state, async || server.call("get", &path, None).await.json()["row"]["state"] == state).await;
    }
    until("a failed delivery", async || {
        server.call("get", "/deliveries", None).await.json()["deliveries"][0].is_object()
    })
    .await;
    // A stream of each kind, for the lists of streams.
    let wait = &server.tasks["wait"];
    let topics = json!({ "topics": [{ "key": "t", "topic": "task", "id": wait }] }).to_string();
    let headers = [("authorization", "Bearer operator")];
    let mut live =
        Events::open(server.site().socket().await, &post(&format!("{API}/live"), &headers, topics)).await;
    live.next().await.unwrap();
    let _session = As { site: server.site(), token: "operator" }.session().await;

    for task in server.tasks.values() {
        for operation in document.operations() {
            let of_tasks = operation.path.starts_with("/tasks") || !operation.path.contains('{');
            if operation.method != "get" || !of_tasks || operation.path == "/tokens" {
                continue;
            }
            let answer = server.call("get", &server.at(&operation.path, task), None).await;
            document.compare("get", &operation.path, &answer);
        }
    }
    for event in ["ask", "chunks 5"] {
        let task = &server.tasks[event];
        let last = server.call("get", &format!("/tasks/{task}"), None).await.json()["row"]["events"]
            .as_u64()
            .unwrap();
        for seq in 1..=last {
            for path in ["events", "at", "wire"] {
                let answer = server.call("get", &format!("/tasks/{task}/{path}/{seq}"), None).await;
                document.compare("get", &format!("/tasks/{{id}}/{path}/{{seq}}"), &answer);
            }
        }
    }
    let all = server.call("get", "/tasks?owner=all&limit=1", None).await;
    document.compare("get", "/tasks", &all);

    let deliveries = server.call("get", "/deliveries", None).await.json();
    let failed = &deliveries["deliveries"][0];
    let hooked = failed["taskId"].as_str().unwrap();
    let answer = server.call("get", &format!("/tasks/{hooked}/webhooks"), None).await;
    document.compare("get", "/tasks/{id}/webhooks", &answer);
    for act in ["replay", "discard"] {
        let ids = json!({ "ids": [failed["id"], "not-there.hook.1"] });
        let answer = server.call("post", &format!("/deliveries/{act}"), Some(&ids)).await;
        document.compare("post", &format!("/deliveries/{act}"), &answer);
    }
    let removed = server.call("delete", &format!("/tasks/{hooked}/webhooks/hook-1"), None).await;
    document.compare("delete", "/tasks/{id}/webhooks/{webhookId}", &removed);

    let selected = server.call("post", "/selections", Some(&json!({ "filter": { "owner": "all" } }))).await;
    let selection = document.compare("post", "/selections", &selected);
    let id = selection["id"].as_str().unwrap();
    document.compare(
        "get",
        "/selections/{id}",
        &server.call("get", &format!("/selections/{id}"), None).await,
    );

    let questions = server.call("get", "/questions", None).await.json();
    let asked = &server.tasks["ask"];
    let question =
        questions["questions"].as_array().unwrap().iter().find(|one| one["taskId"] == **asked).unwrap();
    let body =
        json!({ "questionId": question["questionId"], "action": "accept", "content": { "confirm": true } });
    let forked =
        json!({ "at": question["seq"], "answer": { "action": "accept", "content": { "confirm": false } } });
    let forked = server.call("post", &format!("/tasks/{asked}/fork"), Some(&forked)).await;
    let forked = document.compare("post", "/tasks/{id}/fork", &forked);
    let about = server.call("get", &format!("/tasks/{}", forked["taskId"].as_str().unwrap()), None).await;
    assert_eq!(document.compare("get", "/tasks/{id}", &about)["forkedFrom"], forked["forkedFrom"]);
    document.compare_refusal(
        &server.call("post", &format!("/tasks/{asked}/fork"), Some(&json!({ "at": 1 }))).await,
    );
    let path = format!("/tasks/{asked}/answers");
    document.compare("post", "/tasks/{id}/answers", &server.call("post", &path, Some(&body)).await);
    // It is closed now, and the refusal says by whom.
    let late = server.call("post", &path, Some(&body)).await;
    assert!(late.json()["error"]["closed"]["by"].is_object(), "{}", late.text());
    document.compare_refusal(&late);
    let canceled = server.call("post", &format!("/tasks/{wait}/cancel"), Some(&json!({}))).await;
    document.compare("post", "/tasks/{id}/cancel", &canceled);
    let ended = server.call("post", &format!("/tasks/{wait}/cancel"), Some(&json!({}))).await;
    document.compare_refusal(&ended);
    document.compare_refusal(&server.call("get", &format!("/tasks/{wait}/events?after=999"), None).await);
    document.compare_refusal(&server.call("get", "/tasks/nothing", None).await);
    document.compare_refusal(
        &server.call("post", &format!("/selections/{id}/cancel"), Some(&json!({ "count": 0 }))).await,
    );
    document.compare_refusal(&server.site().send(get(&format!("{API}/me"), &[])).await);

    let code = document.compare("post", "/codes", &server.call("post", "/codes", Some(&json!({}))).await);
    let session = server.call("post", "/session", Some(&json!({ "code": code["code"] }))).await;
    document.compare("post", "/session", &session);

    // What needs batches or tokens, which this server does not have, and what is no JSON.
    let without = [
        "delete /session",
        "delete /tokens/{id}",
        "get /tokens",
        "post /live",
        "post /selections/{id}/cancel",
        "post /selections/{id}/rerun",
        "post /tokens",
    ];
    let missing: BTreeSet<String> = document
        .operations()
        .iter()
        .map(Operation::name)
        .filter(|name| !document.compared.contains(name))
        .collect();
    assert_eq!(missing.iter().map(String::as_str).collect::<Vec<_>>(), without);
}
