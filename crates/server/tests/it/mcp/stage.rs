//! A server with agents that do what the message tells them, and go on when the test says so.

use std::{ops::Deref, sync::Arc};

use async_trait::async_trait;
use nuncio_engine::{
    Agent, AgentError, Answer, Caller, Chunk, Level, Outcome, Profile, TaskContext, TaskUse,
    surface::{HandlerQuestion, HandlerQuestions, HandlerReply, ToolOutput, ToolProfile, tool},
};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::{
    site::{Setup, Site, Stopping, message},
    socket::within,
};

/// A site whose agents are `player` (callers may take a task), `soloist` (they must), `quick` (they cannot) and
/// `typed` (it has an input schema); `greet` is a plain tool that asks for a name.
pub(super) struct Stage {
    site: Site,
    gate: watch::Sender<u32>,
}

impl Deref for Stage {
    type Target = Site;

    fn deref(&self) -> &Site {
        &self.site
    }
}

impl Stage {
    pub(super) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    pub(super) async fn with(change: impl FnOnce(&mut Setup)) -> Self {
        let gate = watch::Sender::new(0);
        let site = Site::with(|setup| {
            for (name, tasks) in [
                ("player", TaskUse::Offered),
                ("soloist", TaskUse::Required),
                ("quick", TaskUse::Never),
                ("typed", TaskUse::Offered),
            ] {
                let mut profile = Profile::new(name, "Does what the first word of the message says.");
                profile.tasks = tasks;
                if name == "typed" {
                    profile = profile.input(typed_input());
                }
                setup.agents.push(Arc::new(Player { profile, gate: gate.subscribe() }));
            }
            setup.surface.add_tool(greet()).unwrap();
            change(setup);
        })
        .await;
        Self { site, gate }
    }

    /// Lets agents that wait for this gate, or an earlier one, go on.
    pub(super) fn open(&self, gate: u32) {
        self.gate.send_replace(gate);
    }

    /// The same folder under a new server.
    pub(super) async fn restart(self) -> Self {
        let folder = self.stop().finish().await;
        Self::with(|setup| setup.folder = folder).await
    }

    /// Asks the server to stop, and does not wait for it.
    pub(super) fn stop(self) -> Stopping {
        self.site.begin_stop()
    }

    /// The only task that there is, once there is one.
    pub(super) async fn only_task(&self) -> String {
        until("a task", async || {
            let listed = self.result("1.0", "ListTasks", json!({})).await;
            let tasks = listed["tasks"].as_array().unwrap();
            assert!(tasks.len() < 2, "{listed}");
            tasks.first().map(|task| task["id"].as_str().unwrap().to_owned())
        })
        .await
    }

    /// Makes a task of the player over A2A, and does not wait for its end.
    pub(super) async fn begin_player(&self, text: &str) -> String {
        let params = json!({ "message": message(text), "configuration": { "returnImmediately": true } });
        let sent = self.call_at("/agents/player", "1.0", "SendMessage", params).await;
        sent["result"]["task"]["id"].as_str().unwrap_or_else(|| panic!("{sent}")).to_owned()
    }

    /// Answers the open question of a task over A2A.
    pub(super) async fn answer_over_a2a(&self, task: &str, data: Value) {
        let mut reply = message("");
        reply["taskId"] = task.into();
        reply["parts"] = json!([{ "data": data }]);
        let params = json!({ "message": reply, "configuration": { "returnImmediately": true } });
        let sent = self.call("1.0", "SendMessage", params).await;
        assert!(sent.get("error").is_none(), "{sent}");
    }

    /// The state of a task, without the prefix of 1.0.
    pub(super) async fn state(&self, task: &str) -> String {
        let task = self.result("1.0", "GetTask", json!({ "id": task })).await;
        task["status"]["state"].as_str().unwrap().trim_start_matches("TASK_STATE_").to_owned()
    }

    /// Tells all listeners that the tools have changed.
    pub(super) fn change_tools(&self) {
        self.engine.catalog().surface().add_tool(greet()).unwrap();
    }

    /// How far the log of a task is.
    pub(super) async fn seq(&self, task: &str) -> u64 {
        self.engine.task_summary(&Caller::local(), task).await.unwrap().seq
    }
}

/// Waits until there is something.
pub(super) async fn until<T>(what: &str, look: impl AsyncFn() -> Option<T>) -> T {
    within(what, async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    })
    .await
}

/// What `typed` wants: a number, which is repeated in a header.
fn typed_input() -> Value {
    json!({
        "type": "object",
        "properties": { "n": { "type": "integer", "x-mcp-header": "N" }, "text": { "type": "string" } },
        "required": ["n"],
    })
}

fn greet() -> impl nuncio_engine::surface::Tool {
    tool(ToolProfile::new("greet", "Greets whoever says their name."), |request| async move {
        let form = json!({
            "type": "object",
            "properties": { "name": { "type": "string" } },
            "required": ["name"],
        });
        let question = HandlerQuestion::Form { text: "Who are you?".into(), schema: form };
        Ok(match request.answers.get("name") {
            Some(Answer::Accept(data)) => HandlerReply::Done(ToolOutput::text(format!(
                "Hello, {}.",
                data["name"].as_str().unwrap_or("nobody")
            ))),
            Some(_) => HandlerReply::Done(ToolOutput::text("Hello, whoever you are.")),
            None => HandlerReply::Ask(HandlerQuestions::one("name", question)),
        })
    })
}

/// Does what the first word of the message says, and says what it does not know.
struct Player {
    profile: Profile,
    gate: watch::Receiver<u32>,
}

impl Player {
    async fn pass(&self, cx: &TaskContext, gate: u32) -> Result<(), AgentError> {
        let mut open = self.gate.clone();
        let passed = async {
            // Nobody opens it any more.
            if open.wait_for(|open| *open >= gate).await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            () = passed => Ok(()),
            () = cx.canceled() => Err(AgentError::Canceled),
        }
    }
}

#[async_trait]
impl Agent for Player {
    fn profile(&self) -> Profile {
        self.profile.clone()
    }

    async fn run(&self, cx: TaskContext) -> Result<Outcome, AgentError> {
        let text = match cx.argument("text") {
            Some(text) => text.as_str().unwrap_or_default().to_owned(),
            None => cx.text(),
        };
        let (word, argument) = text.split_once(' ').unwrap_or((&text, ""));
        match word {
            // So many steps, each with progress and two lines in the log.
            "tell" | "tell-slowly" => {
                let count: u32 = argument.parse().map_err(AgentError::failed)?;
                for n in 1..=count {
                    if word == "tell-slowly" {
                        self.pass(&cx, n).await?;
                    }
                    cx.log(Level::Debug, format!("detail {n}")).await?;
                    cx.log(Level::Info, format!("line {n}")).await?;
                    cx.progress(f64::from(n), Some(f64::from(count)), format!("step {n}")).await?;
                }
                Ok(Outcome::said(format!("told {count}")))
            }
            // Three steps, and when the gate opens from the first one on again.
            "falter" => {
                for n in 1..=7_u32 {
                    if n == 4 {
                        self.pass(&cx, 1).await?;
                    }
                    let step = if n < 4 { n } else { n - 3 };
                    cx.progress(f64::from(step), None, format!("step {step}")).await?;
                }
                Ok(Outcome::said("arrived"))
            }
            // At work until it is canceled.
            "wait" => {
                cx.progress(1.0, None, "waiting").await?;
                cx.canceled().await;
                Err(AgentError::Canceled)
            }
            "ask" => Ok(Outcome::said(word_of(&cx.ask("Really?", confirmation()).await?))),
            // A question when the gate opens.
            "ask-later" => {
                self.pass(&cx, 1).await?;
                Ok(Outcome::said(word_of(&cx.ask("Really?", confirmation()).await?)))
            }
            // Two questions at once.
            "ask-both" => {
                let (left, right) = (cx.branch("left"), cx.branch("right"));
                let (left, right) =
                    tokio::join!(async move { left.ask("Left?", confirmation()).await }, async move {
                        right.ask("Right?", confirmation()).await
                    });
                Ok(Outcome::said(format!("{}, {}", word_of(&left?), word_of(&right?))))
            }
            // The caller's model, as far as there is one.
            "sample" => {
                let answer = cx.sample("Say something.", Some("Be brief.".into()), 50).await?;
                Ok(Outcome::said(answer.text().unwrap_or("no model").to_owned()))
            }
            // Two chapters, the second when the gate opens.
            "book" => {
                cx.artifact(Chunk::text("one", "Chapter 1").complete()).await?;
                self.pass(&cx, 1).await?;
                cx.artifact(Chunk::text("two", "Chapter 2").complete()).await?;
                Ok(Outcome::done())
            }
            // One of everything, with a question in the middle.
            "story" => {
                cx.log(Level::Info, "the first line").await?;
                cx.log(Level::Debug, "a detail").await?;
                cx.progress(25.0, Some(100.0), "a quarter").await?;
                cx.artifact(Chunk::text("text", "One\n")).await?;
                cx.ask("Really?", confirmation()).await?;
                cx.log(Level::Warning, "the answer came").await?;
                cx.artifact(Chunk::text("text", "Two\n").complete()).await?;
                cx.progress(90.0, Some(100.0), "nearly").await?;
                Ok(Outcome::done())
            }
            "fail" => Ok(Outcome::failed(argument)),
            "fail-later" => {
                self.pass(&cx, 1).await?;
                Ok(Outcome::failed(argument))
            }
            "panic" => panic!("it does as it is told"),
            _ => Ok(Outcome::said(text)),
        }
    }
}

fn confirmation() -> Value {
    json!({ "type": "object", "properties": { "confirm": { "type": "boolean" } }, "required": ["confirm"] })
}

fn word_of(answer: &Answer) -> &'static str {
    match answer {
        Answer::Accept(data) if data["confirm"] == true => "yes",
        Answer::Accept(_) => "no",
        Answer::Decline(_) => "declined",
        Answer::Cancel => "dismissed",
        Answer::Unavailable => "unavailable",
    }
}
