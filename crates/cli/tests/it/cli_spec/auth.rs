//! Sign-in at an agent: the flows of its card, the token that is stored, and where a secret does not go.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, process::Command};

use serde_json::{Value, json};

use crate::{
    authority::{Authority, CLIENT, visit},
    caller::until,
    command::{Live, Ran, nuncio_in, run},
    fake_agent::{FakeAgent, Reply, task},
};

/// An agent that takes only callers with a token, and whose card names these flows.
fn agent(flows: &Value) -> FakeAgent {
    let schemes = json!({ "o": { "oauth2SecurityScheme": { "flows": flows } } });
    FakeAgent::start(json!({ "securitySchemes": schemes }), |asked| match asked.header("authorization") {
        Some(_) => Reply::Result(json!({ "task": task("COMPLETED") })),
        None => Reply::Status(401),
    })
}

fn flow(name: &str, authority: &str) -> Value {
    json!({ name: {
        "authorizationUrl": format!("{authority}/authorize"), "tokenUrl": format!("{authority}/token"),
        "deviceAuthorizationUrl": format!("{authority}/device"), "scopes": { "tasks": "Tasks" },
    } })
}

struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = nuncio_in(self.0.path());
        command
            .env("HOME", self.0.path())
            .env_remove("XDG_STATE_HOME")
            .env_remove("XDG_CONFIG_HOME")
            .args(args);
        command
    }

    fn run(&self, args: &[&str]) -> Ran {
        run(&mut self.command(args))
    }

    fn tokens(&self) -> std::path::PathBuf {
        self.0.path().join(".local/state/nuncio/tokens")
    }
}

/// The link that a login shows on the standard error.
fn shown_link(login: &mut Live) -> String {
    use std::io::BufRead as _;
    let stderr = std::io::BufReader::new(login.child.stderr.as_mut().unwrap());
    let mut lines = stderr.lines().map(Result::unwrap);
    lines.find_map(|line| line.strip_prefix("  http").map(|rest| format!("http{rest}"))).expect("a link")
}

/// `A2ACLI_AUTH_005`, `A2ACLI_AUTH_007`: the device flow, a token that only its owner can read, and calls with it.
#[test]
fn a_code_used_on_another_device_signs_in_and_later_calls_carry_the_token() {
    let authority = Authority::start();
    let (agent, home) = (agent(&flow("deviceCode", &authority.url)), Home::new());
    let missing = home.run(&["send", "x", "-a", &agent.url, "-o", "json"]).exits(4).json();
    assert_eq!(missing["error"]["code"], "A2ACLI_ERR_CREDENTIALS_MISSING");
    assert!(missing["error"]["hint"].as_str().unwrap().contains("auth login -a"), "{missing}");

    let args = ["auth", "login", "--client-id", "cli", "-a", &agent.url];
    let mut login = Live::start(&mut home.command(&args));
    let link = shown_link(&mut login);
    assert_eq!(link, format!("{}/activate?code=ABCD-EFGH", authority.url));
    until("a poll before the code is used", || (authority.told().polls > 0).then_some(()));
    visit(&link);
    let signed = login.finish().exits(0);
    assert_eq!(signed.field("Scopes"), "tasks");
    let token = authority.told().tokens[0].clone();
    assert!(!signed.stdout.contains(&token) && !signed.stderr.contains(&token));

    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let files: Vec<_> = fs::read_dir(home.tokens()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!((mode(&home.tokens()), files.len(), mode(&files[0])), (0o700, 1, 0o600));

    let ran = home.run(&["send", "x", "-a", &agent.url, "--debug"]).exits(0);
    assert!(!ran.stderr.contains(&token), "{}", ran.stderr);
    let sent = agent.asked().last().unwrap().header("authorization").map(str::to_owned);
    assert_eq!(sent, Some(format!("Bearer {token}")));
    // Another agent, also of this machine, gets nothing.
    let other = FakeAgent::start(json!({}), |_| Reply::Result(json!({ "task": task("COMPLETED") })));
    home.run(&["send", "x", "-a", &other.url]).exits(0);
    assert_eq!(other.asked()[0].header("authorization"), None);

    let status = home.run(&["auth", "status", "-a", &agent.url, "-o", "json"]).exits(0);
    assert_eq!(status.json()["signedIn"], true);
    assert!(!status.stdout.contains(&token));
    home.run(&["auth", "logout", "-a", &agent.url]).exits(0);
    home.run(&["send", "x", "-a", &agent.url]).exits(4);
}

/// `A2ACLI_AUTH_007`: a token that ends is renewed by itself.
#[test]
fn a_token_that_ends_is_renewed_without_the_user() {
    let authority = Authority::start();
    authority.told().is_activated = true;
    authority.told().lifetime = 20;
    let (agent, home) = (agent(&flow("deviceCode", &authority.url)), Home::new());
    home.run(&["auth", "login", "--client-id", "cli", "-a", &agent.url]).exits(0);
    home.run(&["send", "x", "-a", &agent.url]).exits(0);
    let granted = authority.told().granted.clone();
    assert_eq!(granted, ["urn:ietf:params:oauth:grant-type:device_code", "refresh_token"]);
}

/// `A2ACLI_AUTH_006`
#[test]
fn a_client_with_a_secret_signs_in_for_itself_where_the_user_allows_it() {
    let authority = Authority::start();
    let (agent, home) = (agent(&flow("clientCredentials", &authority.url)), Home::new());
    let args = ["auth", "login", "--client-id", CLIENT.0, "-a", &agent.url, "-o", "json"];
    let mut command = home.command(&args);
    let refused = run(command.env("A2ACLI_CLIENT_SECRET", CLIENT.1)).exits(2).json();
    let why = refused["error"]["message"].as_str().unwrap();
    assert!(
        why.contains(&format!("--credentials-for {}", authority.url)),
        "the card's author named it: {why}"
    );
    assert!(authority.told().granted.is_empty());

    let allowed = [&args[..], &["--credentials-for", &authority.url]].concat();
    let mut command = home.command(&allowed);
    let signed = run(command.env("A2ACLI_CLIENT_SECRET", CLIENT.1)).exits(0);
    assert_eq!(signed.json()["signedIn"], true);
    assert_eq!(authority.told().granted, ["client_credentials"]);
    home.run(&["send", "x", "-a", &agent.url]).exits(0);
    for file in fs::read_dir(home.tokens()).unwrap() {
        let stored = fs::read_to_string(file.unwrap().path()).unwrap();
        assert!(!stored.contains(CLIENT.1), "the secret is not stored");
    }
}

/// The browser on this machine, with PKCE, which the authority checks.
#[test]
fn a_browser_on_this_machine_signs_in_with_pkce() {
    let authority = Authority::start();
    let (agent, home) = (agent(&flow("authorizationCode", &authority.url)), Home::new());
    let mut login =
        Live::start(&mut home.command(&["auth", "login", "--client-id", "cli", "-a", &agent.url]));
    let link = shown_link(&mut login);
    assert!(visit(&link).contains("you can close this page"));
    login.finish().exits(0);
    assert_eq!(authority.told().visits[0]["code_challenge_method"], "S256");
    home.run(&["send", "x", "-a", &agent.url]).exits(0);
}

/// `A2ACLI_AUTH_010`: the endpoints come from OpenID Connect's metadata, and the ID token says who has signed in.
#[test]
fn the_metadata_of_openid_connect_leads_to_a_token() {
    let authority = Authority::start();
    authority.told().is_activated = true;
    let url = format!("{}/.well-known/openid-configuration", authority.url);
    let schemes = json!({ "o": { "openIdConnectSecurityScheme": { "openIdConnectUrl": url } } });
    let agent = FakeAgent::start(json!({ "securitySchemes": schemes }), |asked| {
        assert!(asked.header("authorization").is_some());
        Reply::Result(json!({ "task": task("COMPLETED") }))
    });
    let home = Home::new();
    let signed = home.run(&["auth", "login", "--client-id", "cli", "-a", &agent.url]).exits(0);
    assert_eq!((signed.field("Server"), signed.field("Scopes")), (authority.url.as_str(), "openid"));
    assert_eq!(signed.field("Subject"), "ada");
    assert_eq!(home.run(&["auth", "status", "-a", &agent.url]).exits(0).field("Subject"), "ada");
    home.run(&["send", "x", "-a", &agent.url]).exits(0);
    // One that was made for another client was not made for this login.
    authority.told().id_token_for = "another".into();
    let refused = Home::new().run(&["auth", "login", "--client-id", "cli", "-a", &agent.url]).exits(4);
    assert!(refused.stderr.contains("it is for another client"), "{}", refused.stderr);
}

/// A link of the device flow is shown and may be opened: it must not start a program.
#[test]
fn a_link_that_is_no_page_is_not_shown() {
    let authority = Authority::start();
    let mut flows = flow("deviceCode", &authority.url);
    flows["deviceCode"]["deviceAuthorizationUrl"] = format!("{}/device-with-program", authority.url).into();
    let (agent, home) = (agent(&flows), Home::new());
    let args = ["auth", "login", "--client-id", "cli", "--open-link", "-a", &agent.url];
    let refused = home.run(&args).exits(4);
    assert!(refused.stderr.contains("steam://run/1, which is no page"), "{}", refused.stderr);
    assert_eq!(authority.told().polls, 0);
}

/// A card that sends the user to one server and the code to another wants the code.
#[test]
fn endpoints_of_two_servers_are_refused() {
    let (honest, thief) = (Authority::start(), Authority::start());
    let mut flows = flow("authorizationCode", &honest.url);
    flows["authorizationCode"]["tokenUrl"] = format!("{}/token", thief.url).into();
    let (agent, home) = (agent(&flows), Home::new());
    let args = ["auth", "login", "--client-id", "cli", "-a", &agent.url, "-o", "json"];
    let refused = home.run(&args).exits(4).json();
    let why = refused["error"]["message"].as_str().unwrap();
    assert!(why.contains("are not of one server"), "{why}");
    assert!(honest.told().visits.is_empty() && thief.told().granted.is_empty());
    // And a card without OAuth says what to do instead.
    let bare = FakeAgent::start(json!({}), |_| Reply::Status(401));
    let refused = home.run(&["auth", "login", "--client-id", "cli", "-a", &bare.url]).exits(2);
    assert!(refused.stderr.contains("names no OAuth flow"), "{}", refused.stderr);
}
