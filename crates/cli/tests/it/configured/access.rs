//! Agents elsewhere that want to know who is calling. They are served by a real server; who issues the tokens is a
//! stand-in.

use std::{fs, path::Path};

use super::{ending, send};
use crate::{
    authority::{Authority, CLIENT, visit},
    command::{self, Live},
    server_process::ServerProcess,
};

struct World {
    authority: Authority,
    /// Who does the work.
    there: ServerProcess,
    dir: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let (authority, dir) = (Authority::start(), tempfile::tempdir().unwrap());
        authority.trusted_in(&dir.path().join("there"));
        let there = ServerProcess::start(&dir.path().join("there/nuncio-data"), &[]);
        fs::create_dir(dir.path().join("here")).unwrap();
        Self { authority, there, dir }
    }

    fn here(&self) -> std::path::PathBuf {
        self.dir.path().join("here")
    }

    /// A server with an agent of each kind that stands for the same one there.
    fn serve(&self, access: &str) -> ServerProcess {
        let url = self.there.url();
        let tables = format!(
            "[[agent]]\nname = \"tools\"\nkind = \"mcp\"\nurl = \"{url}/mcp\"\ntools = [\"echo\"]\n{access}\n\n\
             [[agent]]\nname = \"agent\"\nkind = \"a2a\"\nurl = \"{url}/agents/echo\"\n{access}\n"
        );
        fs::write(self.here().join("nuncio.toml"), tables).unwrap();
        ServerProcess::start(&self.here().join("nuncio-data"), &["--log", "debug"])
    }

    /// Both agents say a text after somebody else.
    #[track_caller]
    fn both_work(&self, here: &ServerProcess) {
        for agent in ["tools", "agent"] {
            let task = send(here, agent, "hello", None);
            assert_eq!(ending(&task).0, "TASK_STATE_COMPLETED", "{agent}: {task}\n{}", here.log());
        }
    }

    /// Nobody finds a secret in what is kept, logged or shown.
    #[track_caller]
    fn keeps_its_secrets(&self, here: &ServerProcess, secrets: &[String]) {
        let shown = command::run(command::nuncio_in(&self.here()).args(["serve", "--print-config"])).exits(0);
        for secret in secrets {
            assert!(!here.log().contains(secret.as_str()), "in the log");
            assert!(!shown.stdout.contains(secret.as_str()), "{}", shown.stdout);
            for path in files(&self.here().join("nuncio-data")) {
                let is_kept_for_it = path.components().any(|part| part.as_os_str() == "agent-tokens");
                let bytes = fs::read(&path).unwrap();
                let holds = bytes.windows(secret.len()).any(|piece| piece == secret.as_bytes());
                assert!(is_kept_for_it || !holds, "{path:?}");
            }
        }
    }
}

fn files(dir: &Path) -> Vec<std::path::PathBuf> {
    let mut found = vec![];
    for entry in fs::read_dir(dir).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found
}

#[test]
fn a_server_acts_for_itself_with_its_own_credentials() {
    let world = World::new();
    fs::write(world.here().join("secret"), format!("{}\n", CLIENT.1)).unwrap();
    // Tokens that end at once: each call gets another.
    world.authority.told().lifetime = 1;
    let here = world.serve(&format!(
        "oauth = {{ client-id = \"{}\", client-secret-file = \"secret\", issuer = \"{}\" }}",
        CLIENT.0, world.authority.url
    ));
    for _ in 0..3 {
        world.both_work(&here);
    }
    let told = world.authority.told();
    assert!(told.granted.iter().all(|kind| kind == "client_credentials"), "{:?}", told.granted);
    assert_eq!(told.visits.len(), 0);
    let mut secrets = told.tokens.clone();
    drop(told);
    secrets.push(CLIENT.1.to_owned());
    world.keeps_its_secrets(&here, &secrets);
}

#[test]
fn a_secret_is_shown_to_its_own_issuer_only() {
    let world = World::new();
    let here = world.serve(&format!(
        "oauth = {{ client-id = \"{}\", client-secret = \"{}\", issuer = \"https://issuer.example\" }}",
        CLIENT.0, CLIENT.1
    ));
    let (task, other) = (send(&here, "tools", "hello", None), send(&here, "agent", "hello", None));
    for task in [task, other] {
        let (state, words) = ending(&task);
        assert_eq!(state, "TASK_STATE_FAILED", "{task}");
        assert!(words.contains("nothing was shown to it"), "{words}");
    }
    assert!(world.authority.told().granted.is_empty());
    world.keeps_its_secrets(&here, &[CLIENT.1.to_owned()]);
}

#[test]
fn somebody_signs_in_for_an_agent_once() {
    let world = World::new();
    let here = world.serve("oauth = { }");
    let task = send(&here, "tools", "hello", None);
    let (state, words) = ending(&task);
    assert_eq!(state, "TASK_STATE_FAILED");
    assert!(words.contains("`nuncio agents login tools` does it"), "{words}");

    for agent in ["tools", "agent"] {
        let mut login = Live::start(command::nuncio_in(&world.here()).args(["agents", "login", agent]));
        assert!(login.line().unwrap().contains("Open this link"));
        visit(login.line().unwrap().trim());
        let ran = login.finish().exits(0);
        assert!(ran.stdout.contains(&format!("Signed in: {agent}")), "{}", ran.stdout);
    }
    // The server that runs finds it, and a token that is refused or ends is renewed.
    world.both_work(&here);
    let kept = files(&world.here().join("nuncio-data/agent-tokens"));
    assert_eq!(kept.len(), 2, "{kept:?}");
    for path in &kept {
        use std::os::unix::fs::PermissionsExt as _;
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
        let token = world.authority.told().tokens.clone();
        let text = fs::read_to_string(path).unwrap();
        let spoiled = token.iter().fold(text, |text, token| text.replace(token.as_str(), "revoked"));
        fs::write(path, spoiled).unwrap();
    }
    world.both_work(&here);
    assert!(world.authority.told().granted.iter().filter(|kind| *kind == "refresh_token").count() >= 2);
    let secrets = world.authority.told().tokens.clone();
    world.keeps_its_secrets(&here, &secrets);

    for agent in ["tools", "agent"] {
        command::run(command::nuncio_in(&world.here()).args(["agents", "logout", agent])).exits(0);
    }
    let task = send(&here, "agent", "hello", None);
    assert!(ending(&task).1.contains("nuncio agents login agent"), "{task}");
}

#[test]
fn a_token_comes_from_a_file_and_may_be_replaced() {
    let world = World::new();
    let made = |name: &str| {
        let dir = world.dir.path().join("there");
        let ran =
            command::run(command::nuncio_in(&dir).args(["token", "create", "-o", "json", "--name", name]));
        ran.exits(0).json()["token"].as_str().unwrap().to_owned()
    };
    let file = world.here().join("token");
    fs::write(&file, "nun_old_token").unwrap();
    let here = world.serve("token-file = \"token\"");
    let task = send(&here, "agent", "hello", None);
    assert!(ending(&task).1.contains("does not take the token in"), "{task}");
    let token = made("one");
    fs::write(&file, format!("{token}\n")).unwrap();
    world.both_work(&here);
    world.keeps_its_secrets(&here, &[token]);
}
