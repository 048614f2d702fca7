//! The chat session: owns the servers and the runs, and executes the typed commands.
//!
//! All events are handled here, one after the other: typed lines, and updates of servers and runs. The
//! session either waits for a line or watches runs; it handles updates in both cases.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    io,
    time::{Duration, Instant},
};

use nuncio_client::{
    mcp::McpLogLevel,
    peer::{PeerCallEnd, PeerCallRequest, PeerError},
};
use nuncio_engine::{State, event::Progress, question::Question, surface::check_foreign_cost, trace};
use tokio::{
    signal::unix::Signal,
    sync::mpsc,
    time::{sleep_until, timeout},
};
use uuid::Uuid;

use super::{
    arguments::{self, ChatArguments},
    command::{self, ChatCommand},
    complete::Vocabulary,
    follower::{CurrentPeer, RunFollower, RunStart, RunUpdate},
    input::{ChatInput, LineInput, LineRequest},
    line_renderer::{RunEvent, RunLabel, ScreenItem, message_text},
    questions::ChatQuestionOutcome,
    run_store::{RunStore, SavedRun},
    sampling::Sampling,
    screen::Screen,
    servers::{self, ChatServer, NameLookupError, ServerUpdate},
};
use crate::{
    form::fields,
    questions::{FieldPromptOutcome, ask_field, check_form},
    text::is_safe,
};

/// How long the session waits for the servers' first response before it shows the prompt.
const GREETING: Duration = Duration::from_secs(15);
/// The most words of one kind offered for completion, because a server may list any number.
const MOST_WORDS: usize = 10_000;
/// The capacity of the update channels.
pub(super) const NEWS: usize = 256;

pub(super) struct ChatSession {
    pub(super) servers: Vec<ChatServer>,
    /// The saved runs of each server.
    pub(super) run_stores: Vec<RunStore>,
    pub(super) runs: BTreeMap<u32, ChatRun>,
    /// Open questions, oldest first.
    pub(super) questions: VecDeque<(u32, Question)>,
    pub(super) screen: Screen,
    pub(super) input: ChatInput,
    pub(super) sampling: Sampling,
    pub(super) interrupts: Signal,
    pub(super) news: ChatInbox,
    /// The runs that are shown now.
    pub(super) watched: BTreeSet<u32>,
    /// The run whose question is on the screen, and that question.
    pub(super) asking: Option<(u32, String)>,
    /// Questions of background runs that the user did not want to answer when they came.
    pub(super) put_off: BTreeSet<(u32, String)>,
    /// Questions that came while the prompt of a closed question was still on the screen. They are shown
    /// later, when they are asked: below their text that prompt would look like theirs, and the line typed
    /// there is not for them.
    pub(super) unshown: BTreeSet<(u32, String)>,
    /// Whether the last command failed.
    pub(super) failed: bool,
    /// Whether detached runs are resumed as soon as their server is reachable.
    pub(super) resumes: bool,
    /// Ids of listed tasks, for completion.
    pub(super) tasks: Vec<String>,
    /// Whether the session has waited for the servers.
    pub(super) greeted: bool,
    /// The lowest level of log lines that servers are asked for.
    pub(super) log_level: McpLogLevel,
}

/// The receivers of updates.
pub(super) struct ChatInbox {
    pub(super) servers: mpsc::Receiver<(usize, ServerUpdate)>,
    pub(super) runs: mpsc::Receiver<(u32, Vec<RunUpdate>)>,
    pub(super) tell: mpsc::Sender<(u32, Vec<RunUpdate>)>,
}

pub(super) struct ChatRun {
    pub(super) label: RunLabel,
    pub(super) server: usize,
    /// The id of the message that began it.
    pub(super) id: String,
    pub(super) task: Option<String>,
    pub(super) progress: Option<Progress>,
    pub(super) begun: Instant,
    /// Whether the run can be resumed.
    pub(super) resumable: bool,
    /// Whether the user deleted its saved state.
    pub(super) forgotten: bool,
    pub(super) is_waiting: bool,
    /// `None`: the run is not followed. It has ended, or was detached.
    pub(super) follower: Option<RunFollower>,
    /// The final state.
    pub(super) ended: Option<State>,
}

impl ChatSession {
    /// Executes lines until the end of the input. Returns whether all succeeded.
    pub(super) async fn run(&mut self) -> bool {
        self.wait_for_servers().await;
        if self.resumes {
            self.resume().await;
        }
        let mut interrupted = false;
        while !self.screen.broken {
            let wanted =
                LineRequest { prompt: "nuncio> ".into(), vocabulary: self.vocabulary(), command: true };
            match self.read(wanted).await {
                LineInput::Line(line) => {
                    interrupted = false;
                    match command::parse(&line) {
                        Ok(ChatCommand::Quit) => break,
                        Ok(command) => interrupted = self.run_command(command).await,
                        Err(why) => self.show_error(&why),
                    }
                }
                LineInput::Interrupted if interrupted || !self.screen.is_terminal() => break,
                LineInput::Interrupted => {
                    interrupted = true;
                    self.show_remark("Ctrl+C once more, or Ctrl+D, leaves");
                }
                LineInput::End => break,
            }
        }
        if !self.screen.is_terminal() {
            self.finish().await;
        }
        self.leave();
        !self.failed
    }

    /// Waits until every server has answered or is found unreachable.
    async fn wait_for_servers(&mut self) {
        let deadline = tokio::time::Instant::now() + GREETING;
        while self.servers.iter().any(|server| !server.known && !server.asks) {
            tokio::select! {
                Some((number, news)) = self.news.servers.recv() => self.handle_server_update(number, news),
                _ = self.interrupts.recv() => break,
                () = sleep_until(deadline) => break,
            }
        }
        self.greeted = true;
        if self.screen.is_terminal() {
            self.show_remark("`list` shows what can be called, `help` what can be typed");
        }
    }

    /// Without a terminal: waits for background runs.
    async fn finish(&mut self) {
        let going: BTreeSet<u32> =
            self.runs.values().filter(|run| run.follower.is_some()).map(|run| run.label.run).collect();
        if !going.is_empty() {
            self.watch(going).await;
        }
    }

    /// Reports which runs continue without this process, and saves them.
    fn leave(&mut self) {
        let left: usize = self.run_stores.iter().map(|book| book.runs().len()).sum();
        if left > 0 && self.screen.is_terminal() {
            self.show_remark(&format!("{left} left going on: the next start takes up what goes on"));
        }
        self.save();
    }

    /// Executes a command. Returns whether Ctrl+C ended it.
    async fn run_command(&mut self, command: ChatCommand) -> bool {
        match command {
            ChatCommand::Nothing | ChatCommand::Quit => {}
            ChatCommand::Call(wanted) => return self.call(wanted).await,
            ChatCommand::Attach(id) => return self.attach(&id).await,
            ChatCommand::Answer(run) => return self.answer(run.as_deref()).await,
            ChatCommand::Resume => return self.resume().await,
            ChatCommand::Cancel(id) => self.cancel(&id).await,
            ChatCommand::List => self.list(),
            ChatCommand::Help(about) => self.help(about.as_deref()),
            ChatCommand::Agents => self.agents().await,
            ChatCommand::Tasks => self.list_tasks().await,
            ChatCommand::Runs => self.list_runs(),
            ChatCommand::Memory(words) => self.memory(&words).await,
            ChatCommand::Log(level) => self.log(level.as_deref()).await,
            ChatCommand::Login(server) => self.login(server.as_deref()),
            ChatCommand::Clean => self.clean(),
        }
        false
    }

    /// Waits for a line, and handles updates meanwhile.
    pub(super) async fn read(&mut self, wanted: LineRequest) -> LineInput {
        let is_terminal = self.screen.is_terminal();
        // A Ctrl+C from before the prompt was meant for something that has ended. While a line is edited,
        // Ctrl+C is a key and the editor returns it.
        while is_terminal && self.was_interrupted() {}
        self.screen.editing(true);
        self.input.request_line(wanted);
        let typed = loop {
            tokio::select! {
                typed = self.input.next_line() => break typed,
                Some((number, news)) = self.news.servers.recv() => self.handle_server_update(number, news),
                Some((run, news)) = self.news.runs.recv() => self.handle_run_updates(run, news),
                _ = self.interrupts.recv(), if !is_terminal => break LineInput::Interrupted,
            }
        };
        self.screen.editing(false);
        typed
    }

    /// Whether a Ctrl+C is pending.
    fn was_interrupted(&mut self) -> bool {
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        matches!(self.interrupts.poll_recv(&mut cx), std::task::Poll::Ready(Some(())))
    }

    /// Shows runs until they have ended. Returns whether Ctrl+C ended it, or no user is there to answer.
    pub(super) async fn watch(&mut self, runs: BTreeSet<u32>) -> bool {
        for run in runs.iter().filter_map(|run| self.runs.get(run)) {
            if let Some(progress) = &run.progress {
                self.screen.show(&ScreenItem::Run(&run.label, RunEvent::Progress(progress)), true);
            }
        }
        self.watched = runs;
        let interrupted = loop {
            let is_next = |(run, question): &&(u32, Question)| {
                self.watched.contains(run) || !self.put_off.contains(&(*run, question.id.clone()))
            };
            if let Some((run, question)) = self.questions.iter().find(is_next).cloned() {
                self.show_question(run, &question);
                self.asking = Some((run, question.id.clone()));
                let asked = self.ask(run, &question).await;
                self.asking = None;
                match asked {
                    ChatQuestionOutcome::Done => continue,
                    ChatQuestionOutcome::Left if self.watched.contains(&run) => break true,
                    // The question belongs to a background run: the watched runs are watched further.
                    ChatQuestionOutcome::Left => {
                        self.put_off.insert((run, question.id));
                        self.show_remark(&format!("`answer {run}` answers it"));
                        continue;
                    }
                }
            }
            let goes_on = |run: &u32| self.runs.get(run).is_some_and(|run| run.follower.is_some());
            if !self.watched.iter().any(goes_on) || self.screen.broken {
                break false;
            }
            tokio::select! {
                Some((number, news)) = self.news.servers.recv() => self.handle_server_update(number, news),
                Some((run, news)) = self.news.runs.recv() => self.handle_run_updates(run, news),
                _ = self.interrupts.recv() => break true,
            }
        };
        let watched = std::mem::take(&mut self.watched);
        let unshown =
            |(run, question): &&(u32, Question)| self.unshown.contains(&(*run, question.id.clone()));
        for (run, question) in self.questions.iter().filter(unshown).cloned().collect::<Vec<_>>() {
            self.show_question(run, &question);
            self.show_remark(&format!("`answer {run}` answers it"));
        }
        if interrupted {
            for run in watched {
                self.detach(run);
            }
        }
        interrupted
    }

    /// Shows a question that was not shown when it came.
    fn show_question(&mut self, run: u32, question: &Question) {
        if self.unshown.remove(&(run, question.id.clone()))
            && let Some(who) = self.runs.get(&run).map(|run| run.label.clone())
        {
            self.screen.show(&ScreenItem::Run(&who, RunEvent::Asks(question)), true);
        }
    }

    /// Detaches from a run, which continues. A run that cannot be resumed is still followed.
    fn detach(&mut self, number: u32) {
        let Some(run) = self.runs.get_mut(&number).filter(|run| run.follower.is_some()) else { return };
        self.failed = true;
        if run.resumable {
            run.follower = None;
            self.questions.retain(|(asking, _)| *asking != number);
            let is_kept = self.run_stores[run.server].runs().iter().any(|kept| kept.input.id == run.id);
            self.screen.show(&ScreenItem::Run(&run.label, RunEvent::Detached(is_kept)), false);
            // All of its text was shown.
            self.run_stores[run.server].set_unfinished(&run.id, None);
        } else {
            self.screen.remove_progress_bar(number);
            let text = format!(
                "run {number} goes on beside: its server gives no way back to it, so that it is followed until you leave"
            );
            self.show_remark(&text);
        }
        self.save();
    }

    /// Resumes all detached runs. Returns whether Ctrl+C ended it.
    pub(super) async fn resume(&mut self) -> bool {
        self.resumes = true;
        let taken: BTreeSet<u32> =
            (0..self.servers.len()).flat_map(|server| self.resume_runs_of(server)).collect();
        let waiting: usize = self
            .servers
            .iter()
            .zip(&self.run_stores)
            .filter(|(server, _)| !server.known || server.away.is_some())
            .map(|(_, book)| book.runs().len())
            .sum();
        if waiting > 0 {
            self.show_remark(&format!("{waiting} left going on: taken up when the server is back"));
        }
        if taken.is_empty() { false } else { self.watch(taken).await }
    }

    /// Resumes the detached runs of a server.
    fn resume_runs_of(&mut self, server: usize) -> Vec<u32> {
        if self.servers[server].away.is_some() || !self.servers[server].known {
            return vec![];
        }
        let followed = |id: &str, runs: &BTreeMap<u32, ChatRun>| {
            runs.values().any(|run| run.id == id && run.follower.is_some())
        };
        let left: Vec<SavedRun> = self.run_stores[server].runs().to_vec();
        let mut taken = vec![];
        for kept in left {
            if followed(&kept.input.id, &self.runs) {
                continue;
            }
            let offer = self.servers[server].offers.iter().find(|offer| offer.name == kept.offer);
            let again = offer.is_some_and(|offer| offer.idempotent);
            let start = match &kept.handle {
                Some(handle) => RunStart::Resume(handle.clone()),
                None if again => RunStart::Begin { begin: begin(&kept), again },
                None => {
                    let (id, offer) = (kept.input.id.clone(), kept.offer.clone());
                    self.run_stores[server].forget(&id);
                    self.save();
                    self.show_error(&format!("{offer} was called and cut before the server gave a way back: whether it ran is not known. Call it again if it should run"));
                    continue;
                }
            };
            // A run keeps its number, however often it is detached and resumed.
            let before = self.runs.values().find(|run| run.id == kept.input.id).map(|run| run.label.run);
            let run = self.follow(server, &kept, start, before);
            if let Some(unfinished) = kept.unfinished {
                self.screen.restore_unfinished(run, unfinished);
            }
            if let Some(run) = self.runs.get(&run) {
                self.screen.show(&ScreenItem::Run(&run.label, RunEvent::Resumed), true);
            }
            taken.push(run);
        }
        taken
    }

    /// Calls a capability. Returns whether Ctrl+C ended it.
    async fn call(&mut self, wanted: command::ChatCall) -> bool {
        self.failed = true;
        let (server, offer) = match servers::find(&self.servers, &wanted.name) {
            Ok((server, offer)) => (server, offer.clone()),
            Err(error) => {
                self.not_found(&wanted.name, &error);
                return false;
            }
        };
        if let Some(Err(why)) = offer.input_schema.as_ref().map(check_foreign_cost) {
            self.show_error(&format!("{} is not called: {why}", wanted.name));
            return false;
        }
        let given = match arguments::read_arguments(offer.input_schema.as_ref(), &wanted.rest) {
            Ok(given) => given,
            Err(why) => {
                self.show_error(&format!("{}: {why}", wanted.name));
                return false;
            }
        };
        let given = match self.complete_arguments(offer.input_schema.as_ref(), given).await {
            Ok(Some(given)) => given,
            Ok(None) => {
                self.show_remark("not called");
                return false;
            }
            Err(why) => {
                self.show_error(&format!("{}: {why}", wanted.name));
                return false;
            }
        };
        let input = arguments::message(&Uuid::now_v7().to_string(), given);
        let begun = jiff::Timestamp::now().as_millisecond();
        let trace = Some(trace());
        let kept =
            SavedRun { offer: offer.name.clone(), input, handle: None, begun, trace, unfinished: None };
        // Saved before the call, so that the next start knows of it even after a kill right here.
        if let Err(error) = self.run_stores[server].add(kept.clone()) {
            self.show_error(&format!("it could not be called: the run cannot be saved: {error}"));
            return false;
        }
        let run = self.follow(
            server,
            &kept,
            RunStart::Begin { begin: begin(&kept), again: offer.idempotent },
            None,
        );
        if let Some(run) = self.runs.get(&run) {
            self.screen.show(&ScreenItem::Run(&run.label, RunEvent::Begun), true);
        }
        if wanted.background {
            self.failed = false;
            self.show_remark(&format!("run {run} goes on beside; `attach {run}` watches it"));
            return false;
        }
        self.watch(BTreeSet::from([run])).await
    }

    /// Asks for missing arguments. `None`: the user gave up.
    async fn complete_arguments(
        &mut self,
        schema: Option<&serde_json::Value>,
        given: ChatArguments,
    ) -> Result<Option<ChatArguments>, String> {
        let Some(schema) = schema else {
            let ChatArguments::Nothing = given else { return Ok(Some(given)) };
            let wanted = LineRequest { prompt: "message: ".into(), ..LineRequest::default() };
            return Ok(match self.read(wanted).await {
                LineInput::Line(line) => Some(ChatArguments::Text(line)),
                LineInput::Interrupted | LineInput::End => None,
            });
        };
        let (mut arguments, ask_all) = match given {
            ChatArguments::Arguments(arguments) => (arguments, false),
            // Without a terminal, optional arguments are left out.
            ChatArguments::Nothing | ChatArguments::Text(_) => {
                (serde_json::Map::new(), self.screen.is_terminal())
            }
        };
        // Required fields first, each group in the schema's order.
        let mut fields = fields(schema);
        fields.sort_by_key(|field| !field.required);
        for field in fields {
            let missing = !arguments.contains_key(field.name);
            if missing && (ask_all || (field.required && field.default().is_none())) {
                loop {
                    match ask_field(self, &field, "").await {
                        FieldPromptOutcome::In(value) => {
                            value.and_then(|value| arguments.insert(field.name.to_owned(), value));
                            break;
                        }
                        FieldPromptOutcome::Details => self.show_field(&field),
                        _ => return Ok(None),
                    }
                }
            }
        }
        check_form(schema, &arguments)?;
        Ok(Some(ChatArguments::Arguments(arguments)))
    }

    /// Follows a run.
    pub(super) fn follow(
        &mut self,
        server: usize,
        kept: &SavedRun,
        start: RunStart,
        number: Option<u32>,
    ) -> u32 {
        let peer = self.servers[server].peer.subscribe();
        self.follow_on(peer, server, kept, start, number)
    }

    /// The same, on a given peer.
    pub(super) fn follow_on(
        &mut self,
        peer: CurrentPeer,
        server: usize,
        kept: &SavedRun,
        start: RunStart,
        number: Option<u32>,
    ) -> u32 {
        let number = number.unwrap_or_else(|| self.runs.keys().last().map_or(1, |last| last + 1));
        let who =
            RunLabel { run: number, offer: kept.offer.clone(), server: self.servers[server].name.clone() };
        let follower = RunFollower::start(peer, number, start, self.news.tell.clone());
        let run = ChatRun {
            label: who,
            server,
            id: kept.input.id.clone(),
            task: kept.handle.as_ref().and_then(|handle| handle.task.clone()),
            progress: None,
            begun: Instant::now(),
            resumable: kept.handle.is_some(),
            forgotten: false,
            is_waiting: false,
            follower: Some(follower),
            ended: None,
        };
        self.runs.insert(number, run);
        number
    }

    /// Handles an update of a server.
    fn handle_server_update(&mut self, number: usize, news: ServerUpdate) {
        let server = &mut self.servers[number];
        if let ServerUpdate::Visit(url) = news {
            server.asks = true;
            let name = server.name.clone();
            return self.visit(&name, &url);
        }
        server.asks = false;
        let was_known = std::mem::replace(&mut server.known, true);
        let (state, text) = match news {
            ServerUpdate::Up { peer, offers } => {
                let was_away = server.away.take().is_some();
                let count = match offers.len() {
                    1 => "1 offer".to_owned(),
                    count => format!("{count} offers"),
                };
                let address = peer.address();
                server.offers = offers;
                server.peer.send_replace(Some(peer));
                match (was_known, was_away) {
                    (false, _) => ("up", format!("{count} at {address}")),
                    (true, true) => ("back", format!("it is back, with {count}")),
                    (true, false) => ("changed", format!("{count} now")),
                }
            }
            ServerUpdate::Away(error) => {
                server.away = Some(error.to_string());
                let is_stranger = server.sign_in.is_some() && matches!(error, PeerError::Unauthorized { .. });
                match (is_stranger, self.screen.is_terminal()) {
                    (false, _) => ("away", format!("away, it is tried again: {error}")),
                    (true, false) => ("away", error.to_string()),
                    (true, true) => ("away", format!("{error}; `login {}` signs in", server.name)),
                }
            }
            ServerUpdate::Visit(_) => return,
        };
        let (name, address) = (server.name.clone(), server.at.display_text());
        self.screen.show(&ScreenItem::Server { name: &name, address: &address, state, text: &text }, false);
        // A server whose capabilities changed was reachable all the time.
        if matches!(state, "up" | "back") && self.greeted && self.resumes {
            self.resume_runs_of(number);
        }
    }

    /// Handles updates of a run, and all others that have arrived. The cursor is on disk before the output is
    /// shown: a line that was shown is not shown again, whenever this process is killed.
    fn handle_run_updates(&mut self, run: u32, news: Vec<RunUpdate>) {
        self.screen.hold();
        let mut runs = BTreeSet::from([run]);
        news.into_iter().for_each(|news| self.handle_run_update(run, news));
        while let Ok((run, news)) = self.news.runs.try_recv() {
            runs.insert(run);
            news.into_iter().for_each(|news| self.handle_run_update(run, news));
        }
        for run in runs.iter().filter_map(|run| self.runs.get(run)) {
            self.run_stores[run.server].set_unfinished(&run.id, self.screen.unfinished(run.label.run));
        }
        self.save();
        self.screen.release();
    }

    fn handle_run_update(&mut self, number: u32, news: RunUpdate) {
        let stands_idle = self.is_question_closed() && self.screen.is_terminal();
        // Updates that were in flight when the run was detached come again when it is resumed.
        let Some(run) = self.runs.get_mut(&number).filter(|run| run.follower.is_some()) else { return };
        let watched = self.watched.contains(&number);
        let (who, book) = (run.label.clone(), &mut self.run_stores[run.server]);
        let screen = &mut self.screen;
        let mut show = |event: RunEvent<'_>| screen.show(&ScreenItem::Run(&who, event), watched);
        match news {
            RunUpdate::Handle(handle) => {
                // A run that the user deleted is not saved again.
                run.resumable = !run.forgotten;
                if run.task.is_none()
                    && let Some(task) = &handle.task
                {
                    show(RunEvent::Task(task));
                }
                run.task = handle.task.clone().or(run.task.take());
                book.advance(&run.id, &handle);
            }
            RunUpdate::Progress(progress) => {
                show(RunEvent::Progress(&progress));
                run.progress = Some(progress);
            }
            RunUpdate::Log(line) => show(RunEvent::Log(&line)),
            RunUpdate::Artifact(chunk) => show(RunEvent::Artifact(&chunk)),
            RunUpdate::Message(message) => {
                if !message_text(&message).trim().is_empty() {
                    show(RunEvent::Message(&message));
                }
            }
            RunUpdate::Asks(question) => {
                if !self.questions.iter().any(|(asking, open)| *asking == number && open.id == question.id) {
                    match stands_idle {
                        true => drop(self.unshown.insert((number, question.id.clone()))),
                        false => show(RunEvent::Asks(&question)),
                    }
                    if self.watched.is_empty() {
                        let text = format!("`answer {number}` answers it");
                        screen.show(&ScreenItem::Remark(&text), false);
                    }
                    self.questions.push_back((number, question));
                }
            }
            RunUpdate::Settled(question) => {
                let before = self.questions.len();
                self.questions.retain(|(asking, open)| *asking != number || open.id != question);
                let is_unshown = self.unshown.remove(&(number, question.clone()));
                if self.questions.len() != before && !is_unshown {
                    show(RunEvent::Settled(&question));
                    if self.asking.as_ref() == Some(&(number, question)) {
                        screen.show(&ScreenItem::Remark("Enter goes on"), watched);
                    }
                }
            }
            RunUpdate::Waiting(why) => {
                run.is_waiting = true;
                show(RunEvent::Waiting(&why));
            }
            RunUpdate::Back => {
                run.is_waiting = false;
                show(RunEvent::Back);
            }
            RunUpdate::Answered { question, result } => match result {
                Ok(()) => {}
                Err(PeerError::Refused(why)) => {
                    screen.show(&ScreenItem::Wrong(&format!("the answer was not accepted: {why}")), watched);
                    self.questions.push_front((number, question));
                }
                // It is sent again when the same question comes again.
                Err(
                    error @ (PeerError::Cut(_)
                    | PeerError::Outage { .. }
                    | PeerError::Unreachable { .. }
                    | PeerError::NoCard { .. }
                    | PeerError::Busy { .. }),
                ) => {
                    show(RunEvent::Waiting(&error.to_string()));
                }
                Err(error) => {
                    screen
                        .show(&ScreenItem::Wrong(&format!("the answer was not accepted: {error}")), watched);
                }
            },
            RunUpdate::Canceled(Ok(())) => {}
            RunUpdate::Canceled(Err(error)) => {
                screen.show(&ScreenItem::Wrong(&format!("it was not canceled: {error}")), watched);
            }
            RunUpdate::Ended(ended) => {
                show(RunEvent::Ended(&ended, run.begun.elapsed()));
                book.forget(&run.id);
                self.finish_run(number, &ended);
            }
            RunUpdate::Lost { error, kept } => {
                show(RunEvent::Lost(&error.to_string()));
                if !kept {
                    book.forget(&run.id);
                }
                self.finish_run(number, &PeerCallEnd { state: State::Failed, message: None });
            }
        }
    }

    fn finish_run(&mut self, number: u32, ended: &PeerCallEnd) {
        let is_asked = self.asking.as_ref().is_some_and(|(run, _)| *run == number);
        if is_asked && self.screen.is_terminal() {
            self.show_remark("nothing is asked any more: Enter goes on");
        }
        self.questions.retain(|(asking, _)| *asking != number);
        self.put_off.retain(|(run, _)| *run != number);
        self.unshown.retain(|(run, _)| *run != number);
        if let Some(run) = self.runs.get_mut(&number) {
            run.follower = None;
            run.ended = Some(ended.state);
            self.failed = ended.state != State::Completed;
        }
    }

    /// Writes the run stores to disk.
    pub(super) fn save(&mut self) {
        let saved: io::Result<()> = self.run_stores.iter_mut().try_for_each(RunStore::save);
        if let Err(error) = saved {
            let text = format!("the runs cannot be saved: {error}");
            self.screen.show(&ScreenItem::Wrong(&text), false);
        }
    }

    pub(super) fn show_remark(&mut self, text: &str) {
        self.screen.show(&ScreenItem::Remark(text), false);
    }

    pub(super) fn show_error(&mut self, text: &str) {
        self.failed = true;
        self.screen.show(&ScreenItem::Wrong(text), false);
    }

    /// Reports an unknown name, and the name that may have been meant.
    pub(super) fn not_found(&mut self, name: &str, error: &NameLookupError) {
        if let NameLookupError::Several(names) = error {
            return self
                .show_error(&format!("several servers offer {name}: say which, {}", names.join(" or ")));
        }
        let names: Vec<String> = servers::names(&self.servers).into_iter().map(|(name, ..)| name).collect();
        let known = names.iter().map(String::as_str).chain(command::COMMANDS.iter().map(|(name, ..)| *name));
        let meant = command::nearest(name, known).map(|meant| format!(": {meant}?")).unwrap_or_default();
        let away: Vec<&str> =
            self.servers.iter().filter(|server| server.away.is_some()).map(|server| &*server.name).collect();
        let away = match &away[..] {
            [] => String::new(),
            names => format!(" (away: {})", names.join(", ")),
        };
        self.show_error(&format!("there is no {name}{meant}{away} `list` shows what there is"));
    }

    fn vocabulary(&self) -> Vocabulary {
        let offers = servers::names(&self.servers).into_iter().map(|(name, _, offer)| {
            let schema = offer.input_schema.as_ref();
            let arguments = schema.map(|schema| {
                fields(schema)
                    .iter()
                    .map(|field| {
                        let choices = match field.kind() {
                            "boolean" => vec!["true".to_owned(), "false".to_owned()],
                            _ => harmless(field.choices()),
                        };
                        (field.name.to_owned(), choices)
                    })
                    .filter(|(name, _)| is_harmless(name))
                    .take(MOST_WORDS)
                    .collect()
            });
            (name, arguments.unwrap_or_default())
        });
        let runs = self.runs.values().filter(|run| run.ended.is_none());
        let ids = runs.flat_map(|run| [Some(run.label.run.to_string()), run.task.clone()]).flatten();
        let ids = harmless(ids.chain(self.tasks.clone()).collect());
        Vocabulary::Commands { offers: offers.take(MOST_WORDS).collect(), ids }
    }

    /// Closes all connections, except those to a URL with saved runs: closing such a session could end the
    /// runs.
    pub(super) async fn close(&mut self) {
        self.runs.clear();
        for (server, book) in self.servers.iter().zip(&self.run_stores) {
            let peer = server.peer.borrow().clone();
            if let Some(peer) = peer.filter(|_| book.runs().is_empty() || !server.at.is_url()) {
                // A program that does not exit in time is left to the system.
                let _ = timeout(Duration::from_secs(5), peer.close()).await;
            }
        }
    }
}

/// Waits for a future, or until Ctrl+C.
pub(super) async fn unless_interrupted<T>(
    interrupts: &mut Signal,
    work: impl Future<Output = T>,
) -> Option<T> {
    tokio::select! {
        done = work => Some(done),
        _ = interrupts.recv() => None,
    }
}

/// Words that are safe to complete: the editor writes them to the terminal unfiltered.
pub(super) fn harmless(words: Vec<String>) -> Vec<String> {
    words.into_iter().filter(|word| is_harmless(word)).take(MOST_WORDS).collect()
}

fn is_harmless(word: &str) -> bool {
    word.chars().all(|c| is_safe(c) && !c.is_control())
}

pub(super) fn begin(kept: &SavedRun) -> PeerCallRequest {
    let trace = kept.trace.clone();
    PeerCallRequest { offer: kept.offer.clone(), input: kept.input.clone(), context: None, trace }
}

/// The trace of a run: the one that this process was started in, or a new one.
fn trace() -> String {
    let given = std::env::var("TRACEPARENT").ok().filter(|trace| trace::parse(trace).is_some());
    given.unwrap_or_else(|| {
        let span = format!("{:016x}", Uuid::now_v7().as_u64_pair().1);
        format!("00-{}-{span}-01", Uuid::now_v7().simple())
    })
}
