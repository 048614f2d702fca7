//! Cards that one command leaves for the next.

use std::{
    fs,
    net::TcpListener,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse as _, Response},
    routing::{get, post},
};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    command::{Ran, nuncio_in, run},
    fake_agent::task,
};

/// What a request for the card said: `If-None-Match`, `If-Modified-Since`, `Authorization`.
type CardRequest = [Option<String>; 3];

/// How an agent serves its card.
#[derive(Clone, Copy, Default)]
struct CardRules {
    cache_control: Option<&'static str>,
    last_modified: Option<&'static str>,
    has_etag: bool,
    is_private: bool,
}

/// An agent whose card has validators, and a home folder for the commands that call it.
struct CardSite {
    url: String,
    asked: Arc<Mutex<Vec<CardRequest>>>,
    home: TempDir,
}

impl CardSite {
    fn start(rules: CardRules) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked: Arc<Mutex<Vec<CardRequest>>> = Arc::default();
        let (seen, base) = (Arc::clone(&asked), url.clone());
        let card = async move |headers: HeaderMap| {
            let said = [header::IF_NONE_MATCH, header::IF_MODIFIED_SINCE, header::AUTHORIZATION]
                .map(|name| headers.get(name).map(|value| value.to_str().unwrap().to_owned()));
            seen.lock().unwrap().push(said.clone());
            answer(rules, &base, &said)
        };
        let app = Router::new().route("/.well-known/agent-card.json", get(card)).route(
            "/rpc",
            post(async || {
                json!({ "jsonrpc": "2.0", "id": 1, "result": { "task": task("COMPLETED") } }).to_string()
            }),
        );
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                listener.set_nonblocking(true).unwrap();
                axum::serve(tokio::net::TcpListener::from_std(listener).unwrap(), app).await.unwrap();
            });
        });
        Self { url, asked, home: tempfile::tempdir().unwrap() }
    }

    /// Runs a command with the folder of cards of this site.
    fn nuncio(&self, args: &[&str]) -> Ran {
        let home = self.home.path();
        let mut command = nuncio_in(home);
        command.env("HOME", home).env_remove("NUNCIO_CARD_CACHE");
        for name in ["XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"] {
            command.env_remove(name);
        }
        run(command.args(args).args(["-a", &self.url]))
    }

    fn send(&self) {
        self.nuncio(&["send", "x"]).exits(0);
    }

    /// The requests for the card since the last time.
    fn asked(&self) -> Vec<CardRequest> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }

    fn folder(&self) -> PathBuf {
        self.home.path().join(".cache/nuncio/cards")
    }

    fn files(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.folder()).into_iter().flatten();
        entries.map(|entry| entry.unwrap().path()).collect()
    }
}

fn answer(rules: CardRules, base: &str, [etag, since, authorization]: &CardRequest) -> Response {
    if rules.is_private && authorization.is_none() {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let mut headers = HeaderMap::new();
    if let Some(rule) = rules.cache_control {
        headers.insert(header::CACHE_CONTROL, rule.parse().unwrap());
    }
    if let Some(at) = rules.last_modified {
        headers.insert(header::LAST_MODIFIED, at.parse().unwrap());
    }
    // What is shown depends on who asks.
    let own = format!("\"for {}\"", authorization.as_deref().unwrap_or("all"));
    if rules.has_etag {
        headers.insert(header::ETAG, own.parse().unwrap());
    }
    let is_same = etag.as_ref() == Some(&own) || (since.is_some() && since.as_deref() == rules.last_modified);
    if is_same {
        return (StatusCode::NOT_MODIFIED, headers).into_response();
    }
    let card = json!({
        "name": authorization.as_deref().unwrap_or("open"), "description": "d", "version": "1", "skills": [],
        "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"], "capabilities": {},
        "supportedInterfaces": [
            { "url": format!("{base}/rpc"), "protocolBinding": "JSONRPC", "protocolVersion": "1.0" },
        ],
    });
    (headers, card.to_string()).into_response()
}

fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

#[test]
fn the_next_command_asks_only_whether_the_card_has_changed() {
    let site = CardSite::start(CardRules { has_etag: true, ..CardRules::default() });
    site.send();
    assert_eq!(site.asked(), [[None, None, None]]);
    site.send();
    site.send();
    assert_eq!(site.asked(), vec![[some("\"for all\""), None, None]; 2]);
    let at = "Wed, 21 Oct 2015 07:28:00 GMT";
    let site = CardSite::start(CardRules { last_modified: Some(at), ..CardRules::default() });
    site.send();
    site.send();
    assert_eq!(site.asked(), [[None, None, None], [None, some(at), None]]);
}

#[test]
fn within_its_time_a_card_is_used_without_a_request_but_shown_only_with_one() {
    let rules = CardRules { cache_control: Some("max-age=60"), has_etag: true, ..CardRules::default() };
    let site = CardSite::start(rules);
    site.send();
    assert_eq!(site.asked().len(), 1);
    site.send();
    assert_eq!(site.asked().len(), 0);
    let shown: Value = site.nuncio(&["card", "get", "-o", "json"]).exits(0).json();
    assert_eq!(shown["name"], "open");
    assert_eq!(site.asked(), [[some("\"for all\""), None, None]]);
}

#[test]
fn what_must_not_be_stored_is_not_and_the_variable_turns_all_of_it_off() {
    let site = CardSite::start(CardRules {
        cache_control: Some("no-store, max-age=60"),
        has_etag: true,
        ..CardRules::default()
    });
    site.send();
    site.send();
    assert_eq!(site.asked(), vec![[None, None, None]; 2]);
    assert_eq!(site.files().len(), 0);
    let site = CardSite::start(CardRules { has_etag: true, ..CardRules::default() });
    for _ in 0..2 {
        let mut command = nuncio_in(site.home.path());
        command.env("HOME", site.home.path()).env_remove("XDG_CACHE_HOME").env("NUNCIO_CARD_CACHE", "off");
        run(command.args(["send", "x", "-a", &site.url])).exits(0);
    }
    assert_eq!(site.asked(), vec![[None, None, None]; 2]);
    assert!(!site.folder().exists());
}

#[test]
fn a_card_for_one_caller_is_not_another_callers() {
    let rules = CardRules {
        cache_control: Some("max-age=60"),
        has_etag: true,
        is_private: true,
        ..CardRules::default()
    };
    let site = CardSite::start(rules);
    let name = |bearer: &str| -> String {
        let ran = site.nuncio(&["card", "get", "-o", "json", "--bearer", bearer]).exits(0);
        ran.json()["name"].as_str().unwrap().to_owned()
    };
    assert_eq!([name("one"), name("two"), name("one")], ["Bearer one", "Bearer two", "Bearer one"]);
    let conditions: Vec<_> = site.asked().into_iter().filter(|asked| asked[2].is_some()).collect();
    assert_eq!(
        conditions,
        [
            [None, None, some("Bearer one")],
            [None, None, some("Bearer two")],
            [some("\"for Bearer one\""), None, some("Bearer one")],
        ]
    );
    assert_eq!(site.files().len(), 2);
    for file in site.files() {
        let stored = fs::read_to_string(&file).unwrap();
        // The fake's own card names the token; what is beside the card does not.
        let mut stored: Value = serde_json::from_str(&stored).unwrap();
        (stored["card"], stored["etag"]) = (Value::Null, Value::Null);
        assert!(!stored.to_string().contains("one") && !stored.to_string().contains("two"), "{stored}");
    }
    // And without a credential none of them is shown.
    site.nuncio(&["send", "x"]).exits(4);
}

#[test]
fn only_the_user_reads_the_files_and_a_damaged_one_is_replaced() {
    let rules = CardRules { cache_control: Some("max-age=60"), has_etag: true, ..CardRules::default() };
    let site = CardSite::start(rules);
    site.send();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let [file] = &site.files()[..] else { panic!("{:?}", site.files()) };
    assert_eq!((mode(&site.folder()), mode(file)), (0o700, 0o600));
    let whole = fs::read(file).unwrap();
    fs::write(file, &whole[..whole.len() / 2]).unwrap();
    site.asked();
    site.send();
    assert_eq!(site.asked(), [[None, None, None]]);
    site.send();
    assert_eq!(site.asked().len(), 0, "it was replaced");
}

#[test]
fn a_folder_that_others_can_write_is_not_used() {
    let rules = CardRules { cache_control: Some("max-age=60"), has_etag: true, ..CardRules::default() };
    let site = CardSite::start(rules);
    site.send();
    fs::set_permissions(site.folder(), fs::Permissions::from_mode(0o777)).unwrap();
    site.asked();
    site.send();
    assert_eq!(site.asked(), [[None, None, None]]);
}
