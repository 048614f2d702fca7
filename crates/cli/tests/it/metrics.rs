//! `/metrics` of the real server: whether it says what happened, in a form that Prometheus takes, and whether the dashboard,
//! the alerts and the page about it name what is there.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use nuncio_engine::metric::{FAMILIES, MetricKind};
use nuncio_testkit::model_provider::{StandIn, StandInReply};
use serde_json::{Value, json};

use crate::{
    command::{nuncio_in, run, run_with_input},
    exposition::Scrape,
    http::{client, rpc},
    server_process::ServerProcess,
};

const PATIENCE: Duration = Duration::from_secs(60);

/// Agents that end as their names say, one that asks, one whose program is not there, and a model that nobody answers for.
const AGENTS: &str = r#"
[[agent]]
name = "succeeds"
kind = "process"
command = ["sh", "-c", '''read line; echo '{"type":"done","text":"fine"}' ''']

[[agent]]
name = "fails"
kind = "process"
restarts = 0
command = ["sh", "-c", "read line; exit 3"]

[[agent]]
name = "declines"
kind = "process"
command = ["sh", "-c", "read line; cat declines.json"]

[[agent]]
name = "asks"
kind = "process"
command = ["sh", "-c", '''read line; echo '{"type":"ask","text":"Go on?"}'; read line; echo '{"type":"done"}' ''']

[[agent]]
name = "missing"
kind = "process"
command = ["no-such-program-anywhere"]

[[agent]]
name = "thinks"
kind = "llm"
provider = "openai"
model = "stand-in"
base-url = "http://127.0.0.1:9"
tools = ["no-such-agent"]
"#;

/// What the agent `declines` says: its text has a second line.
const DECLINES: &str = r#"{"type":"failed","text":"no, and forged\n2026 INFO line"}"#;

/// What only a server with a certificate has.
const WITH_TLS: &str = "nuncio_tls_certificate_expiry_timestamp_seconds";

struct Observed {
    dir: tempfile::TempDir,
    server: ServerProcess,
}

impl Observed {
    fn start(flags: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("nuncio.toml"), AGENTS).unwrap();
        fs::write(dir.path().join("declines.json"), format!("{DECLINES}\n")).unwrap();
        let server = ServerProcess::start(&dir.path().join("data"), flags);
        Self { dir, server }
    }

    fn send(&self, agent: &str) -> Value {
        let message = json!({ "messageId": uuid::Uuid::now_v7().to_string(), "role": "ROLE_USER", "parts": [{ "text": "go" }] });
        let sent = rpc(
            &format!("{}/agents/{agent}", self.server.url()),
            "SendMessage",
            &json!({ "message": message }),
        );
        let task = sent["result"]["task"].clone();
        assert!(task.is_object(), "{sent}");
        task
    }

    fn get(&self, path: &str, headers: &[(&str, &str)]) -> (u16, String, String) {
        let url = format!("{}{path}", self.server.url());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let request = client().get(&url);
            let request =
                headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
            let answer = request.send().await.unwrap();
            let kind = answer.headers().get("content-type").map(|kind| kind.to_str().unwrap().to_owned());
            (answer.status().as_u16(), kind.unwrap_or_default(), answer.text().await.unwrap())
        })
    }

    fn scrape(&self) -> Scrape {
        let (status, kind, text) = self.get("/metrics", &[]);
        assert_eq!((status, &*kind), (200, "text/plain; version=0.0.4; charset=utf-8"));
        Scrape::read(&text)
    }

    /// The first scrape that is as wanted.
    #[track_caller]
    fn scrape_until(&self, what: &str, is_so: impl Fn(&Scrape) -> bool) -> Scrape {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let scrape = self.scrape();
            if is_so(&scrape) {
                return scrape;
            }
            assert!(Instant::now() < deadline, "never {what}: {:#?}", scrape.samples);
            thread::sleep(Duration::from_millis(50));
        }
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn a_scrape_equals_what_was_done() {
    let site = Observed::start(&[]);
    for _ in 0..3 {
        assert_eq!(site.send("succeeds")["status"]["state"], "TASK_STATE_COMPLETED");
    }
    for _ in 0..2 {
        assert_eq!(site.send("fails")["status"]["state"], "TASK_STATE_FAILED");
    }
    site.send("declines");
    site.send("missing");
    let asking = site.send("asks");
    let canceled = site.send("asks");
    let asks = format!("{}/agents/asks", site.server.url());
    rpc(&asks, "CancelTask", &json!({ "id": canceled["id"] }));
    let (refused, _, _) = site.get("/.well-known/agent-card.json", &[("Host", "elsewhere.example")]);
    assert_eq!(refused, 403);

    let scrape = site.scrape_until("all ends", |scrape| {
        scrape.sum("nuncio_tasks_ended_total") == 8.0
            && scrape.find("nuncio_remote_up", &[("name", "missing")]) == Some(0.0)
            && scrape.find("nuncio_remote_up", &[("name", "succeeds")]) == Some(1.0)
    });
    let ended = |agent: &str, state: &str| {
        scrape.value("nuncio_tasks_ended_total", &[("agent", agent), ("state", state)])
    };
    for (agent, created, state, count) in [
        ("succeeds", 3.0, "completed", 3.0),
        ("fails", 2.0, "failed", 2.0),
        ("declines", 1.0, "failed", 1.0),
        ("missing", 1.0, "failed", 1.0),
        ("asks", 2.0, "canceled", 1.0),
    ] {
        assert_eq!(scrape.value("nuncio_tasks_created_total", &[("agent", agent)]), created, "{agent}");
        assert_eq!(ended(agent, state), count, "{agent}");
        let all: f64 = ["completed", "failed", "canceled", "rejected", "replied"]
            .map(|state| ended(agent, state))
            .iter()
            .sum();
        assert_eq!(scrape.value("nuncio_task_duration_seconds_count", &[("agent", agent)]), all, "{agent}");
    }
    assert_eq!(scrape.value("nuncio_task_queue_wait_seconds_count", &[]), 9.0, "one for each first run");
    assert_eq!(scrape.value("nuncio_refusals_total", &[("rule", "allowed-hosts")]), 1.0);
    let requests = |route: &str, code: &str| {
        scrape.value("nuncio_http_requests_total", &[("route", route), ("code", code)])
    };
    assert_eq!(requests("/agents/{name}", "200"), 10.0, "the tasks, and the cancel");
    assert_eq!(requests("/.well-known/agent-card.json", "403"), 1.0);
    let timed = scrape.value("nuncio_http_request_duration_seconds_count", &[("route", "/agents/{name}")]);
    assert_eq!(timed, 10.0);
    assert!(scrape.value("nuncio_store_commit_duration_seconds_count", &[]) >= 9.0);
    assert_eq!(scrape.value("nuncio_store_commit_failures_total", &[]), 0.0);
    assert_eq!(scrape.value("nuncio_ready", &[]), 1.0);
    assert!(scrape.value("process_resident_memory_bytes", &[]) > 1e6);
    let version = scrape.samples.iter().find(|sample| sample.name == "nuncio_build_info").unwrap();
    assert_eq!(version.labels["version"], env!("CARGO_PKG_VERSION"));

    // The gauges of the store are read at an interval.
    let waits = |scrape: &Scrape| scrape.value("nuncio_tasks_waiting_for_answer", &[]) == 1.0;
    let scrape = site.scrape_until("a task that waits", waits);
    assert!(scrape.value("nuncio_oldest_question_age_seconds", &[]) > 0.0);
    assert!(
        scrape.value("nuncio_store_bytes", &[]) > 0.0 && scrape.value("nuncio_store_free_bytes", &[]) > 0.0
    );
    let message = json!({
        "messageId": "answer", "role": "ROLE_USER", "taskId": asking["id"], "parts": [{ "text": "yes" }],
    });
    rpc(&asks, "SendMessage", &json!({ "message": message }));
    site.scrape_until("an answered task", |scrape| {
        scrape.value("nuncio_tasks_ended_total", &[("agent", "asks"), ("state", "completed")]) == 1.0
            && scrape.value("nuncio_tasks_waiting_for_answer", &[]) == 0.0
    });
}

#[test]
fn the_log_has_a_line_for_each_task_and_no_words_of_agents() {
    let site = Observed::start(&["--access-log"]);
    let log_has = |parts: &[&str]| {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let log = site.server.log();
            if log.lines().any(|line| parts.iter().all(|part| line.contains(part))) {
                return;
            }
            assert!(Instant::now() < deadline, "no line with {parts:?} in:\n{log}");
            thread::sleep(Duration::from_millis(10));
        }
    };
    log_has(&["starting", "version=", "commit=", "store=\"sqlite\"", "data=", "nuncio.toml"]);
    // At the start, what cannot work is said.
    log_has(&[
        "WARN",
        "name=\"missing\"",
        "there is no program \\\"no-such-program-anywhere\\\"",
        "cannot be used",
    ]);
    log_has(&["WARN", "agent=\"thinks\"", "there is no agent \"no-such-agent\"", "correct tools"]);
    log_has(&["WARN", "name=\"thinks\"", "cannot be used"]);

    let id = |task: &Value| task["id"].as_str().unwrap().to_owned();
    let done = id(&site.send("succeeds"));
    log_has(&["INFO", "nuncio::task", &done, "agent=\"succeeds\"", "task created"]);
    log_has(&["INFO", "nuncio::task", &done, "state=\"completed\"", "seconds=", "task ended"]);
    let failed = id(&site.send("fails"));
    log_has(&["WARN", &failed, "agent=\"fails\"", "state=\"failed\"", "reason=", "task failed"]);
    let declined = id(&site.send("declines"));
    log_has(&["WARN", &declined, "task failed", "the agent says so"]);
    let missing = id(&site.send("missing"));
    log_has(&["WARN", &missing, "task failed", "no-such-program-anywhere"]);

    site.get("/.well-known/agent-card.json?secret=hunter2", &[]);
    log_has(&["nuncio::access", "method=\"GET\"", "path=\"/.well-known/agent-card.json\"", "status=200"]);
    for _ in 0..5 {
        site.get("/", &[("Host", "evil.example")]);
    }
    // A line for all of an interval, not for each.
    let refused = || {
        let log = site.server.log();
        let lines =
            log.lines().filter(|line| line.contains("refused") && line.contains("rule=\"allowed-hosts\""));
        lines.map(|line| line.rsplit_once("count=").unwrap().1.parse::<u64>().unwrap()).sum::<u64>()
    };
    let deadline = Instant::now() + PATIENCE;
    while refused() != 5 {
        assert!(Instant::now() < deadline, "{} refusals in:\n{}", refused(), site.server.log());
        thread::sleep(Duration::from_millis(50));
    }

    let log = site.server.log();
    assert!(!log.contains("hunter2"), "{log}");
    assert!(!log.lines().any(|line| line.starts_with("2026 INFO line")), "{log}");
    assert!(!log.contains("forged"), "an agent's words are in its task:\n{log}");
}

#[test]
fn with_json_every_line_is_json_from_the_first_on() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("nuncio.toml"), AGENTS).unwrap();
    let mut server = ServerProcess::start(&dir.path().join("data"), &["--log-format", "json"]);
    let greeting: Value = serde_json::from_str(server.greeting()).unwrap();
    assert_eq!((&greeting["message"], &greeting["level"]), (&json!("listening"), &json!("INFO")));
    assert_eq!(greeting["url"], server.url());
    assert!(greeting["agents"].as_array().unwrap().contains(&json!("asks")), "{greeting}");
    server.terminate();
    server.logs("stopping");
    let log = server.log();
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0]["message"], "starting", "{log}");
    assert_eq!(lines[0]["version"], env!("CARGO_PKG_VERSION"));
    assert!(lines.iter().all(|line| line["level"].is_string()), "{log}");
    // Also where it does not start.
    let refused = |file: &str, flags: &[&str]| {
        fs::write(dir.path().join("nuncio.toml"), file).unwrap();
        let ran = run(nuncio_in(dir.path()).args(["serve", "--log-format", "json"]).args(flags)).exits(1);
        assert_eq!(ran.stdout, "");
        let lines: Vec<Value> = ran.stderr.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.last().unwrap()["level"], "ERROR", "{}", ran.stderr);
        lines.last().unwrap()["message"].as_str().unwrap().to_owned()
    };
    assert!(refused("max-runing = 5", &[]).contains("max-running"));
    let other = ServerProcess::start(&dir.path().join("other"), &["--config", "/dev/null"]);
    let listen = other.addr().to_string();
    assert!(refused("", &["--listen", &listen, "--data", "third"]).contains("cannot listen on"));
}

#[test]
fn health_is_an_exit_code() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = ServerProcess::start(
        &dir.path().join("data"),
        &["--public-url", "https://a.example", "--auth", "off"],
    );
    let health = |arguments: &[&str]| run(nuncio_in(dir.path()).arg("health").args(arguments));
    assert_eq!(health(&["--data", "data"]).exits(0).field("Status"), "ready");
    assert_eq!(health(&["-a", server.url(), "-o", "json"]).exits(0).json()["status"], "ready");
    // A probe names the address of its machine.
    let get = |path: &str| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let url = format!("{}{path}", server.url());
        let sent = async {
            client().get(url).header("Host", "10.1.2.3:8080").send().await.unwrap().status().as_u16()
        };
        runtime.block_on(sent)
    };
    assert_eq!([get("/healthz"), get("/readyz"), get("/metrics"), get("/")], [200, 200, 403, 403]);
    server.terminate();
    let gone = health(&["-a", server.url()]).exits(1);
    assert_eq!(gone.field("Status"), "unreachable");
    health(&["-a", "http://[", "--timeout", "1s"]).exits(2);
}

#[test]
fn what_the_dashboard_the_alerts_and_the_page_name_is_in_a_scrape() {
    let site = Observed::start(&[]);
    site.send("succeeds");
    site.get("/", &[("Host", "evil.example")]);
    let grpc = ["send", "-a", site.server.url(), "--agent", "succeeds", "--transport", "GRPC", "go"];
    run(nuncio_in(site.dir.path()).args(grpc)).exits(0);
    let scrape = site.scrape_until("a call of gRPC, and the figures of the store", |scrape| {
        scrape.families.contains_key("nuncio_grpc_calls_total")
            && scrape.families.contains_key("nuncio_store_free_bytes")
            && scrape.find("nuncio_remote_up", &[("name", "thinks")]) == Some(0.0)
    });
    for family in FAMILIES {
        let kind = scrape.families.get(family.name);
        assert_eq!(
            kind.map(String::as_str),
            (family.name != WITH_TLS).then_some(family.kind.name()),
            "{}",
            family.name
        );
    }
    assert_eq!(scrape.families.len(), FAMILIES.len() - 1, "no family beside the table");
    for sample in &scrape.samples {
        let family = FAMILIES.iter().find(|family| sample.name.starts_with(family.name)).unwrap();
        let own = sample.labels.keys().filter(|label| !["le", "quantile"].contains(&label.as_str()));
        assert!(own.into_iter().all(|label| family.labels.contains(&label.as_str())), "{sample:?}");
    }
    for file in ["ops/grafana-dashboard.json", "ops/alerts.yml", "docs/metrics.md", "docs/going-live.md"] {
        let text = fs::read_to_string(root().join(file)).unwrap();
        let names = metric_names(&text);
        assert!(!names.is_empty(), "{file} names no metric");
        for name in names {
            let is_there = FAMILIES.iter().any(|family| is_series_of(&name, family.name, family.kind));
            assert!(is_there, "{file} names {name}, which is not in a scrape");
        }
    }
    serde_json::from_str::<Value>(&fs::read_to_string(root().join("ops/grafana-dashboard.json")).unwrap())
        .unwrap();
}

#[test]
fn model_calls_and_tokens_are_those_of_the_provider() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let replies = [StandInReply::text("one", (30, 8)), StandInReply::text("two", (12, 5))];
    let stand_in = runtime.block_on(StandIn::start(replies));
    let table = |name: &str, url: &str| {
        format!(
            "[[agent]]\nname = \"{name}\"\nkind = \"llm\"\nprovider = \"openai\"\nmodel = \"{name}-model\"\nbase-url = \"{url}\"\n\
             retries = 0\n"
        )
    };
    let dir = tempfile::tempdir().unwrap();
    let tables = table("answers", &stand_in.url) + &table("silent", "http://127.0.0.1:9");
    fs::write(dir.path().join("nuncio.toml"), tables).unwrap();
    let site = Observed { server: ServerProcess::start(&dir.path().join("data"), &[]), dir };
    site.send("answers");
    site.send("answers");
    assert_eq!(site.send("silent")["status"]["state"], "TASK_STATE_FAILED");
    let calls = |scrape: &Scrape, model: &str, outcome: &str| {
        scrape.value("nuncio_model_calls_total", &[("model", model), ("outcome", outcome)])
    };
    let scrape = site.scrape_until("three calls", |scrape| scrape.sum("nuncio_model_calls_total") == 3.0);
    assert_eq!((calls(&scrape, "answers-model", "ok"), calls(&scrape, "silent-model", "error")), (2.0, 1.0));
    let tokens = |direction: &str| {
        scrape.value("nuncio_model_tokens_total", &[("model", "answers-model"), ("direction", direction)])
    };
    assert_eq!((tokens("input"), tokens("output")), (42.0, 13.0));
    assert_eq!(scrape.sum("nuncio_model_call_duration_seconds_count"), 3.0);
}

/// Prometheus' own checker takes the alerts and a scrape: where tests/interop/environments has fetched it, or it is installed.
#[test]
fn prometheus_takes_the_alerts_and_a_scrape() {
    let fetched = root().join("target/interop/promtool/usr/bin/promtool");
    let program = if fetched.is_file() { fetched } else { "promtool".into() };
    if Command::new(&program).arg("--version").output().is_err() {
        return;
    }
    let promtool = |arguments: &[&str], input: &str| {
        run_with_input(Command::new(&program).arg("check").args(arguments), input).exits(0)
    };
    promtool(&["rules", root().join("ops/alerts.yml").to_str().unwrap()], "");
    let site = Observed::start(&[]);
    site.send("succeeds");
    let (_, _, text) = site.get("/metrics", &[]);
    promtool(&["metrics"], &text);
}

/// The page has the rows of the table, in its order.
#[test]
fn the_page_about_metrics_is_the_table() {
    let page = fs::read_to_string(root().join("docs/metrics.md")).unwrap();
    let rows = FAMILIES.iter().map(|family| {
        let labels: Vec<String> = family.labels.iter().map(|label| format!("`{label}`")).collect();
        format!("| `{}` | {} | {} | {} |", family.name, family.kind.name(), labels.join(", "), family.help)
    });
    let expected: Vec<String> = rows.collect();
    let found: Vec<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
    assert_eq!(found, expected, "docs/metrics.md: its table should be\n{}", expected.join("\n"));
}

/// Words of a text that look like metrics of this server.
fn metric_names(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let is_metric =
        |word: &&str| (word.starts_with("nuncio_") || word.starts_with("process_")) && !word.ends_with('_');
    words.filter(is_metric).map(str::to_owned).collect()
}

fn is_series_of(name: &str, family: &str, kind: MetricKind) -> bool {
    match name.strip_prefix(family) {
        Some("") => true,
        Some("_bucket") => kind == MetricKind::Histogram,
        Some("_sum" | "_count") => matches!(kind, MetricKind::Histogram | MetricKind::Summary),
        _ => false,
    }
}
