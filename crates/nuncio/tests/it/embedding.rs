//! The library, embedded in another program.

use nuncio::{Nuncio, StartError, prelude::*};
use nuncio_engine::Caller;

struct Greeter;

#[async_trait]
impl Agent for Greeter {
    fn profile(&self) -> Profile {
        Profile::new("greeter", "Greets whoever writes.")
    }

    async fn run(&self, cx: TaskContext) -> Result<Outcome, AgentError> {
        Ok(Outcome::said(format!("Hello, {}!", cx.input().joined_text())))
    }
}

#[tokio::test]
async fn an_agent_is_served_over_http_and_without_it() {
    let dir = tempfile::tempdir().unwrap();
    let nuncio = || Nuncio::new().agent(Greeter).listen("127.0.0.1:0").data(dir.path().join("data"));
    let running = nuncio().start().await.unwrap();
    assert_eq!(running.url(), format!("http://{}", running.addr()));

    let body = r#"{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"you"}]}}}"#;
    // A client that reaches this machine whatever its proxies are.
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let request =
        client.post(running.url()).header("A2A-Version", "1.0").header("Content-Type", "application/json");
    let answer = request.body(body).send().await.unwrap().text().await.unwrap();
    let answer: Value = serde_json::from_str(&answer).unwrap();
    let task = &answer["result"]["task"];
    assert_eq!(task["status"]["message"]["parts"][0]["text"], "Hello, you!", "{answer}");

    let id = task["id"].as_str().unwrap().to_owned();
    let found = running.engine().get(&Caller::local(), &id).await.unwrap();
    assert_eq!(found.origin.agent, "greeter");
    running.stop().await;

    // What was stored is there again.
    let running = nuncio().start().await.unwrap();
    assert!(running.engine().get(&Caller::local(), &id).await.unwrap().state.is_terminal());
    running.stop().await;
}

#[tokio::test]
async fn what_cannot_be_served_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let start = async |nuncio: Nuncio| nuncio.data(dir.path()).start().await.err().unwrap();
    assert!(matches!(start(Nuncio::new()).await, StartError::NoAgents));
    let remote = Nuncio::new().agent(Greeter).listen("0.0.0.0:0");
    assert!(matches!(start(remote).await, StartError::Remote(_)));
    let twice = Nuncio::new().agent(Greeter).agent(Greeter);
    assert!(matches!(start(twice).await, StartError::Catalog(_)));
    let nobody = Nuncio::new().agent(Greeter).default_agent("nobody");
    assert!(matches!(start(nobody).await, StartError::Catalog(_)));
}

#[tokio::test]
async fn agents_of_configuration_are_served_and_changed() {
    let spec = |name: &str, words: &str| {
        let say = format!(r#"echo '{{"type":"done","text":"{words}"}}'"#);
        let table = json!({ "name": name, "kind": "process", "command": ["sh", "-c", say] });
        nuncio::agents::configured::AgentSpec::read(table.as_object().unwrap(), &|_| None).unwrap()
    };
    let dir = tempfile::tempdir().unwrap();
    let nuncio = || Nuncio::new().listen("127.0.0.1:0").data(dir.path().join("data"));
    let running = nuncio().configured([spec("a", "one")]).start().await.unwrap();
    let applied = running.fleet().apply(vec![spec("a", "two"), spec("b", "three")]).await.unwrap();
    assert_eq!(applied.to_string(), "added b; replaced a");
    let names: Vec<String> =
        running.engine().catalog().iter().map(|agent| agent.profile.name.clone()).collect();
    assert_eq!(names, ["a", "b"]);
    running.stop().await;

    let twice = nuncio().agent(Greeter).configured([spec("greeter", "mine")]).start().await.err().unwrap();
    assert!(matches!(&twice, StartError::Configured(error) if error.key == "name"), "{twice}");
}
