//! The chat commands that call no capability: they list servers, runs and tasks, and reattach to them.

use std::collections::BTreeSet;

use nuncio_client::{
    a2a::{A2aClient, A2aCredentials, A2aHttpOptions, CardReference, InterfacePreference, fetch_card},
    mcp::{ToolClient, ToolError, ToolOptions},
    peer::{PeerCapability, PeerProtocol},
};
use nuncio_engine::{Message, Role, State};
use nuncio_wire::{a2a::ListTasks, jsonrpc::METHOD_NOT_FOUND};
use serde_json::{Value, json};
use tokio::sync::watch;
use url::Url;
use uuid::Uuid;

use super::{
    arguments::describe_arguments,
    command::COMMANDS,
    follower::RunStart,
    line_renderer::{ScreenItem, level_name, measure},
    login::ServerLogin,
    run_store::SavedRun,
    servers::{self, ChatServer},
    session::{ChatRun, ChatSession, unless_interrupted},
};
use crate::{
    form::fields,
    table::Table,
    text::{plain, shown_state, state_name},
};

/// The most tasks listed per server.
const LISTED: usize = 20;
/// The most characters of a description in a list.
const SHORT: usize = 60;

impl ChatSession {
    fn show_answer(&mut self, text: String, data: Value) {
        self.failed = false;
        self.screen.show(&ScreenItem::Answer { text, data }, false);
    }

    /// `list`
    pub(super) fn list(&mut self) {
        let mut table = Table::new(&["NAME", "SERVER", "ARGUMENTS", "ABOUT"]);
        let mut listed = vec![];
        for (name, server, offer) in servers::names(&self.servers) {
            let server = &self.servers[server];
            table.row([name.clone(), server.name.clone(), takes(offer), short(&offer.description)]);
            listed.push(json!({
                "name": name,
                "server": server.name,
                "description": offer.description,
                "inputSchema": offer.input_schema,
            }));
        }
        let mut text = if table.is_empty() { "There is nothing to call.\n".to_owned() } else { table.show() };
        for server in self.servers.iter().filter(|server| server.away.is_some()) {
            text.push_str(&format!("{} is away.\n", plain(&server.name)));
        }
        self.show_answer(text, json!({ "event": "offers", "offers": listed }));
    }

    /// `help`
    pub(super) fn help(&mut self, about: Option<&str>) {
        let Some(name) = about else {
            let mut text = String::from(
                "The name of a capability calls it: `NAME argument=value …`, `NAME {JSON}`, `NAME some text`, or `NAME` alone, which asks.\n`&` at the end gives the prompt back at once. Ctrl+C lets go of what runs; it goes on.\n\n",
            );
            let mut table = Table::new(&["COMMAND", "ALSO", "DOES"]);
            for (name, also, usage, does) in COMMANDS {
                table.row([
                    format!("{name} {usage}").trim_end().to_owned(),
                    also.join(", "),
                    (*does).to_owned(),
                ]);
            }
            text.push_str(&table.show());
            text.push_str(
                "\nAt a question: !n declines, !c cancels, ? or d shows details, Ctrl+C leaves it open.\n",
            );
            let commands: Vec<Value> = COMMANDS.iter().map(|(name, also, usage, does)| json!({ "name": name, "also": also, "usage": usage, "does": does })).collect();
            return self.show_answer(text, json!({ "event": "help", "commands": commands }));
        };
        if let Some((name, also, usage, does)) =
            COMMANDS.iter().find(|(known, also, ..)| *known == name || also.contains(&name))
        {
            let also = if also.is_empty() { String::new() } else { format!(" (also {})", also.join(", ")) };
            let text = format!("{}{also}: {does}", format!("{name} {usage}").trim_end());
            return self
                .show_answer(text, json!({ "event": "help", "name": name, "usage": usage, "does": does }));
        }
        match servers::find(&self.servers, name) {
            Ok((server, offer)) => {
                let text = about_offer(&self.servers[server], offer);
                let data = json!({
                    "event": "help",
                    "name": offer.name,
                    "server": self.servers[server].name,
                    "description": offer.description,
                    "inputSchema": offer.input_schema,
                    "outputSchema": offer.output_schema,
                });
                self.show_answer(text, data);
            }
            Err(error) => self.not_found(name, &error),
        }
    }

    /// `agents`
    pub(super) async fn agents(&mut self) {
        let mut table = Table::new(&["SERVER", "SPEAKS", "STATE", "OFFERS ", "ADDRESS"]);
        let mut listed = vec![];
        for server in &self.servers {
            let peer = server.peer.borrow().clone();
            let speaks = peer.as_ref().map_or("", |peer| match peer.protocol() {
                PeerProtocol::A2a => "A2A",
                PeerProtocol::Mcp => "MCP",
            });
            let state = match (&server.away, server.known) {
                (None, true) => "up",
                (None, false) => "not reached yet",
                (Some(_), _) => "away",
            };
            let address = peer.as_ref().map_or_else(|| server.at.display_text(), |peer| peer.address());
            let count = server.offers.len();
            table.row([server.name.clone(), speaks.into(), state.into(), count.to_string(), address.clone()]);
            listed.push(json!({ "server": server.name, "speaks": speaks, "state": state, "address": address, "why": server.away, "offers": count }));
        }
        self.show_answer(table.show(), json!({ "event": "servers", "servers": listed }));
    }

    /// `runs`
    pub(super) fn list_runs(&mut self) {
        let mut table = Table::new(&["RUN", "OFFER", "SERVER", "STATE", "TASK"]);
        let mut listed = vec![];
        for run in self.runs.values() {
            let state = self.state_of(run);
            let task = run.task.clone().unwrap_or_default();
            table.row([
                run.label.run.to_string(),
                run.label.offer.clone(),
                run.label.server.clone(),
                state.clone(),
                task,
            ]);
            listed.push(json!({ "run": run.label.run, "offer": run.label.offer, "server": run.label.server, "state": state, "task": run.task }));
        }
        for (server, run_store) in self.servers.iter().zip(&self.run_stores) {
            let unknown =
                run_store.runs().iter().filter(|kept| self.runs.values().all(|run| run.id != kept.input.id));
            for kept in unknown {
                let task = kept.handle.as_ref().and_then(|handle| handle.task.clone());
                table.row([
                    "-".into(),
                    kept.offer.clone(),
                    server.name.clone(),
                    "left going on".into(),
                    task.clone().unwrap_or_default(),
                ]);
                listed.push(
                    json!({ "offer": kept.offer, "server": server.name, "state": "left", "task": task }),
                );
            }
        }
        let text = if table.is_empty() { "Nothing goes on here.\n".to_owned() } else { table.show() };
        self.show_answer(text, json!({ "event": "runs", "runs": listed }));
    }

    fn state_of(&self, run: &ChatRun) -> String {
        let asks = self.questions.iter().any(|(asking, _)| *asking == run.label.run);
        match (&run.ended, &run.follower, &run.progress) {
            (Some(state), ..) => state_name(*state).to_owned(),
            (None, None, _) => "left going on".to_owned(),
            (None, Some(_), _) if asks => "asks".to_owned(),
            (None, Some(_), _) if run.is_waiting => "waits for the server".to_owned(),
            (None, Some(_), Some(progress)) => measure(progress).trim_start().to_owned(),
            (None, Some(_), None) => "working".to_owned(),
        }
    }

    /// `attach`: reattaches to a run or to a task. Returns whether Ctrl+C ended it.
    pub(super) async fn attach(&mut self, id: &str) -> bool {
        let is_meant = |run: &&ChatRun| run.label.run.to_string() == id || run.task.as_deref() == Some(id);
        let Some(run) = self.runs.values().find(is_meant) else { return self.attach_task(id, None).await };
        let (number, server, task) = (run.label.run, run.server, run.task.clone());
        if run.follower.is_none() {
            let kept = self.run_stores[server].runs().iter().find(|kept| kept.input.id == run.id).cloned();
            let handle = kept.as_ref().and_then(|kept| kept.handle.clone());
            match (run.ended, kept.zip(handle), task) {
                (_, Some((kept, handle)), _) => {
                    self.follow(server, &kept, RunStart::Resume(handle), Some(number));
                }

                (None, None, Some(task)) => return self.attach_task(&task, Some(number)).await,
                (Some(_), None, _) | (None, None, None) => {
                    self.show_error(&format!("run {number} is over: there is nothing to come back to"));
                    return false;
                }
            }
        }
        self.watch(BTreeSet::from([number])).await
    }

    /// Follows a task that another client started. This program did not call it, so the next start does not
    /// resume it.
    async fn attach_task(&mut self, id: &str, number: Option<u32>) -> bool {
        let mut why = vec![];
        for server in 0..self.servers.len() {
            let found = unless_interrupted(&mut self.interrupts, self.servers[server].find_task(id)).await;
            let Some(found) = found else {
                self.show_error("not attached");
                return true;
            };
            match found {
                Ok((peer, handle)) => {
                    let input = Message::of(Uuid::now_v7().to_string(), Role::User, vec![]);
                    // The task does not name which of several agents it belongs to.
                    let offer = if self.servers[server].offers.len() == 1 {
                        handle.offer.clone()
                    } else {
                        "task".into()
                    };
                    let kept = SavedRun {
                        offer,
                        input,
                        context: None,
                        handle: Some(handle.clone()),
                        begun: 0,
                        trace: None,
                        unfinished: None,
                    };
                    let (_, peer) = watch::channel(Some(peer));
                    let run = self.follow_on(peer, server, &kept, RunStart::Resume(handle), number);
                    return self.watch(BTreeSet::from([run])).await;
                }
                Err(error) => why.push(format!("{}: {error}", self.servers[server].name)),
            }
        }
        self.show_error(&format!("there is no run and no task {id} here. {}", why.join("; ")));
        false
    }

    /// `answer`: reattaches to a run with an open question. Returns whether Ctrl+C ended it.
    pub(super) async fn answer(&mut self, run: Option<&str>) -> bool {
        let asks = |asking: u32| run.is_none_or(|run| asking.to_string() == run);
        let Some(at) = self.questions.iter().position(|(asking, _)| asks(*asking)) else {
            self.show_error("nothing is asked");
            return false;
        };
        if let Some(question) = self.questions.remove(at) {
            self.questions.push_front(question.clone());
            let who = self.runs.get(&question.0).map(|run| run.label.clone());
            if let Some(who) = who {
                let asks = super::line_renderer::RunEvent::Asks(&question.1);
                self.screen.show(&ScreenItem::Run(&who, asks), true);
            }
            return self.watch(BTreeSet::from([question.0])).await;
        }
        false
    }

    /// `cancel`
    pub(super) async fn cancel(&mut self, id: &str) {
        let known =
            self.runs.values().find(|run| run.label.run.to_string() == id || run.task.as_deref() == Some(id));
        if let Some(run) = known {
            let (number, task, server) = (run.label.run, run.task.clone(), run.server);
            match (&run.follower, task, run.ended) {
                (_, _, Some(_)) => self.show_error(&format!("run {number} is over already")),
                (Some(follower), ..) => {
                    follower.cancel();
                    // A run that is being canceled needs no answers.
                    self.questions.retain(|(asking, _)| *asking != number);
                    self.failed = false;
                    self.watch(BTreeSet::from([number])).await;
                    // A run that the user canceled is no failure.
                    self.failed = self.runs.get(&number).is_none_or(|run| run.ended != Some(State::Canceled));
                }
                (None, Some(task), None) => self.cancel_task(&task, Some(server)).await,
                (None, None, None) => {
                    self.show_error(&format!("`attach {number}` first: the server gave the run no id"));
                }
            }
            return;
        }
        self.cancel_task(id, None).await;
    }

    async fn cancel_task(&mut self, task: &str, only: Option<usize>) {
        let mut why = vec![];
        for number in 0..self.servers.len() {
            if only.is_some_and(|only| only != number) {
                continue;
            }
            let name = self.servers[number].name.clone();
            let canceling = async {
                client(&self.servers[number]).await?.cancel(task).await.map_err(|error| error.to_string())
            };
            let Some(canceled) = unless_interrupted(&mut self.interrupts, canceling).await else {
                return self.show_error("whether it was canceled is not known");
            };
            match canceled {
                Ok(seen) => {
                    let state = shown_state(seen.value.state, seen.value.unknown_state.as_ref());
                    let data = json!({ "event": "task", "task": task, "server": name, "state": state });
                    return self.show_answer(format!("Task {} is {state} on {name}.\n", plain(task)), data);
                }
                Err(error) => why.push(format!("{name}: {error}")),
            }
        }
        self.show_error(&format!("task {task} was not canceled. {}", why.join("; ")));
    }

    /// `tasks`
    pub(super) async fn list_tasks(&mut self) {
        let mut table = Table::new(&["TASK", "SERVER", "STATE", "UPDATED"]);
        let (mut listed, mut known, mut why) = (vec![], vec![], String::new());
        for server in &self.servers {
            let page = ListTasks { page_size: LISTED, ..ListTasks::default() };
            let listing = async { client(server).await?.list(page).await.map_err(|error| error.to_string()) };
            let Some(tasks) = unless_interrupted(&mut self.interrupts, listing).await else {
                why.push_str(&format!("{}: not waited for\n", plain(&server.name)));
                break;
            };
            match tasks {
                Ok(tasks) => {
                    for task in tasks.value.tasks {
                        let at = task.at.and_then(|at| jiff::Timestamp::from_millisecond(at.0).ok());
                        let at = at.map(|at| at.to_string()).unwrap_or_default();
                        let state = shown_state(task.state, task.unknown_state.as_ref());
                        table.row([task.id.clone(), server.name.clone(), state.into(), at.clone()]);
                        listed.push(
                            json!({ "task": task.id, "server": server.name, "state": state, "updated": at }),
                        );
                        known.push(task.id);
                    }
                }
                Err(error) => why.push_str(&format!("{}: {}\n", plain(&server.name), plain(&error))),
            }
        }
        let text = if table.is_empty() {
            format!("There are no tasks.\n{why}")
        } else {
            format!("{}{why}", table.show())
        };
        self.tasks = known;
        self.show_answer(text, json!({ "event": "tasks", "tasks": listed }));
    }

    /// `memory`
    pub(super) async fn memory(&mut self, words: &[String]) {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let (tool, arguments) = match words[..] {
            ["get", namespace, key] => ("memory_get", json!({ "namespace": namespace, "key": key })),
            ["set", namespace, key, ..] if words.len() > 3 => {
                let text = words[3..].join(" ");
                let value = serde_json::from_str(&text).unwrap_or(Value::String(text));
                ("memory_store", json!({ "namespace": namespace, "key": key, "value": value }))
            }
            ["list"] => ("memory_list", json!({})),
            ["list", namespace] => ("memory_list", json!({ "namespace": namespace })),
            ["search", namespace, pattern] => {
                ("memory_search", json!({ "namespace": namespace, "pattern": pattern }))
            }
            _ => {
                return self.show_error(
                    "memory get NS KEY, memory set NS KEY VALUE, memory list [NS], memory search NS PATTERN",
                );
            }
        };
        let mut why = vec![];
        for number in 0..self.servers.len() {
            let name = self.servers[number].name.clone();
            let asking = async {
                match tools(&self.servers[number]).await {
                    Ok(tools) => Ok(tools.call(tool, arguments.clone()).await),
                    Err(error) => Err(error),
                }
            };
            let Some(asked) = unless_interrupted(&mut self.interrupts, asking).await else {
                return self.show_error("not waited for");
            };
            match asked {
                Ok(Ok(called)) => {
                    let answer = called.structured.unwrap_or_else(|| json!({ "text": called.text }));
                    let data = json!({ "event": "memory", "server": name, "answer": answer });
                    let of =
                        if self.servers.len() > 1 { format!("{}: ", plain(&name)) } else { String::new() };
                    return self.show_answer(format!("{of}{}", memory_text(tool, &answer)), data);
                }
                // Only a server without a memory bank is skipped: a request that one bank refuses is not sent
                // to another.
                Ok(Err(error)) if has_bank(&error) => return self.show_error(&format!("{name}: {error}")),
                Ok(Err(error)) => why.push(format!("{name}: {error}")),
                Err(error) => why.push(format!("{name}: {error}")),
            }
        }
        self.show_error(&why.join("; "));
    }

    /// `log`
    pub(super) async fn log(&mut self, level: Option<&str>) {
        match level.map(super::level) {
            None => {
                let level = level_name(self.screen.level);
                self.show_answer(
                    format!("Log lines are shown from {level} on.\n"),
                    json!({ "event": "log-level", "level": level }),
                );
            }
            Some(Ok(level)) => {
                self.screen.level = level;
                self.log_level.set(level);
                self.show_answer(String::new(), json!({ "event": "log-level", "level": level }));
                for number in 0..self.servers.len() {
                    let peer = self.servers[number].peer.borrow().clone();
                    if let Some(peer) = peer.filter(|_| self.servers[number].away.is_none())
                        && let Err(error) = peer.set_log_level(level).await
                    {
                        let name = self.servers[number].name.clone();
                        self.show_error(&format!("{name} was not told: {error}"));
                    }
                }
            }
            Some(Err(why)) => self.show_error(&why),
        }
    }

    /// Shows a link that the user has to open to sign in.
    pub(super) fn visit(&mut self, name: &str, url: &Url) {
        let text = format!(
            "{} wants to know who you are: open this link, on this machine, and come back\n  {url}",
            plain(name)
        );
        let data = json!({ "event": "visit", "server": name, "url": url });
        self.screen.show(&ScreenItem::Answer { text, data }, false);
    }

    /// `login`
    pub(super) fn login(&mut self, name: Option<&str>) {
        let named = |server: &&ChatServer| name.is_none_or(|name| server.name == name);
        if self.servers.iter().filter(named).count() == 0 {
            let names: Vec<&str> = self.servers.iter().map(|server| &*server.name).collect();
            let text = format!("there is no server {}: {}", name.unwrap_or_default(), names.join(", "));
            return self.show_error(&text);
        }
        let away = self.servers.iter().filter(named).filter(|server| server.away.is_some());
        let waiting: Vec<_> = away.filter_map(|server| server.sign_in.as_ref()).collect();
        let count = waiting.len();
        waiting.into_iter().for_each(ServerLogin::request_login);
        match count {
            0 => self.show_error("nobody has to sign in there now"),
            _ => self.show_answer(String::new(), json!({ "event": "login", "count": count })),
        }
    }

    /// `clean-tokens`
    pub(super) fn clean(&mut self) {
        let (mut count, mut signed_out) = (0, 0);
        for server in 0..self.servers.len() {
            let Some(sign_in) = &self.servers[server].sign_in else { continue };
            match sign_in.forget() {
                Ok(tokens) => signed_out += usize::from(tokens > 0),
                Err(error) => return self.show_error(&format!("the tokens cannot be deleted: {error}")),
            }
        }
        for number in 0..self.run_stores.len() {
            match self.run_stores[number].clear() {
                Ok(cleared) => count += cleared,
                Err(error) => {
                    return self.show_error(&format!("the saved runs cannot be deleted: {error}"));
                }
            }
        }
        for run in self.runs.values_mut() {
            (run.resumable, run.forgotten) = (false, true);
        }
        let mut text = match count {
            0 if signed_out > 0 => String::new(),
            0 => "Nothing was kept.\n".to_owned(),
            1 => "1 run is forgotten here; it goes on where it is.\n".to_owned(),
            count => format!("{count} saved runs are deleted here; they continue on their servers.\n"),
        };
        match signed_out {
            0 => {}
            1 => text.push_str("The tokens for 1 server are forgotten.\n"),
            servers => text.push_str(&format!("The tokens for {servers} servers are deleted.\n")),
        }
        self.show_answer(text, json!({ "event": "cleaned", "count": count, "tokens": signed_out }));
    }
}

/// Whether an error comes from a memory bank, rather than from a server that has none.
fn has_bank(error: &ToolError) -> bool {
    match error {
        ToolError::Unreachable { .. } | ToolError::Setup(_) => false,
        ToolError::Http { status, .. } => !matches!(status, 404 | 405),
        ToolError::Rpc(error) => {
            error.code != i64::from(METHOD_NOT_FOUND) && !error.message.contains("no tool")
        }
        _ => true,
    }
}

fn takes(offer: &PeerCapability) -> String {
    offer
        .input_schema
        .as_ref()
        .map_or_else(|| "text".to_owned(), |schema| describe_arguments(&fields(schema)))
}

fn short(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    match line.char_indices().nth(SHORT) {
        Some((at, _)) => format!("{}…", line[..at].trim_end()),
        None => line.to_owned(),
    }
}

/// The full description of a capability.
fn about_offer(server: &ChatServer, offer: &PeerCapability) -> String {
    let mut text =
        format!("{} on {}\n", plain(offer.title.as_deref().unwrap_or(&offer.name)), plain(&server.name));
    text.push_str(&format!("  {}\n", plain(&offer.description)));
    match &offer.input_schema {
        None => text.push_str("\nTakes a text.\n"),
        Some(schema) => {
            text.push_str("\nArguments:\n");
            for field in fields(schema) {
                text.push_str(&format!("  {}\n", field.prompt().trim_end_matches([':', ' '])));
            }
            let schema = serde_json::to_string_pretty(schema).unwrap_or_default();
            text.push_str(&format!("\nSchema:\n{}\n", plain(&schema)));
        }
    }
    for skill in offer.skills.iter().filter(|skill| skill.id != offer.name) {
        text.push_str(&format!("\nSkill {}: {}\n", plain(&skill.name), plain(&skill.description)));
        for example in &skill.examples {
            text.push_str(&format!("  such as: {}\n", plain(example)));
        }
    }
    text
}

fn memory_text(tool: &str, answer: &Value) -> String {
    let pretty = |value: &Value| match value {
        Value::String(text) => plain(text),
        other => plain(&serde_json::to_string_pretty(other).unwrap_or_default()),
    };
    let names = |list: &Value, member: &str| -> String {
        let name =
            |one: &Value| one[member].as_str().or(one.as_str()).map(|name| format!("{}\n", plain(name)));
        list.as_array().into_iter().flatten().filter_map(name).collect()
    };
    match tool {
        "memory_get" => pretty(&answer["value"]),
        "memory_store" => format!("kept, at version {}", pretty(&answer["version"])),
        "memory_list" if answer.get("namespaces").is_some() => names(&answer["namespaces"], "name"),
        "memory_list" => names(&answer["keys"], "key"),
        "memory_search" => names(&answer["results"], "key"),
        _ => pretty(answer),
    }
}

/// An A2A client for the tasks of a server.
async fn client(server: &ChatServer) -> Result<A2aClient, String> {
    let base = server.at.base().ok_or("a program keeps no tasks that could be listed")?;
    let at = CardReference::parse(&base).map_err(|error| error.to_string())?;
    let http = A2aHttpOptions { tls: server.tls.clone(), ..A2aHttpOptions::default() };
    let card = fetch_card(&at, &http).await.map_err(|error| error.to_string())?.value;
    // A token is for the server's own origin only: the card may name any address.
    let here = server.at.resource().map(|url| url.origin());
    let is_here = card.interfaces.iter().all(|interface| Some(interface.url.origin()) == here);
    let bearer = if is_here { server.token().await } else { None };
    let credentials = A2aCredentials { bearer, ..A2aCredentials::default() };
    A2aClient::new(&card, &InterfacePreference::default(), &credentials, &http)
        .map_err(|error| error.to_string())
}

/// An MCP client for the tools of a server.
async fn tools(server: &ChatServer) -> Result<ToolClient, String> {
    let base = server.at.base().ok_or("a program has no memory bank")?;
    let bearer = server.token().await;
    let options = ToolOptions { bearer, tls: server.tls.clone(), ..ToolOptions::default() };
    ToolClient::new(&format!("{base}/mcp"), options).map_err(|error| error.to_string())
}
