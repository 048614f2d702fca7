//! The chat session: owns the servers and the runs, and executes the typed commands.
//!
//! All events are received here, one after the other: typed lines, and updates of servers and runs (`updates.rs`). The
//! session either waits for a line or watches runs; it handles updates in both cases. `calls.rs` begins runs.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    io,
    time::{Duration, Instant},
};

use nuncio_client::mcp::McpLogLevel;
use nuncio_engine::{State, event::Progress, question::Question};
use tokio::{
    signal::unix::Signal,
    sync::mpsc,
    time::{sleep_until, timeout},
};

use super::{
    calls::begin,
    command::{self, ChatCommand},
    complete::Vocabulary,
    follower::{RunFollower, RunStart, RunUpdate},
    input::{ChatInput, LineInput, LineRequest},
    line_renderer::{RunEvent, RunLabel, ScreenItem},
    questions::ChatQuestionOutcome,
    run_store::{RunStore, SavedRun},
    sampling::Sampling,
    screen::Screen,
    servers::{self, ChatServer, NameLookupError, ServerUpdate},
};
use crate::{
    form::fields,
    text::{is_safe, plain},
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
    /// Whether the question on the screen has not been prompted for yet: what was typed before is no answer to it.
    pub(super) is_unprompted: bool,
    /// Without a terminal: questions of background runs for which the input had no answer.
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
    /// The conversation with each capability of a server: the next call of it belongs there (`a2a-cli`, section 8.1).
    pub(super) contexts: BTreeMap<(usize, String), String>,
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
    /// When this process called it; `None` where it came back to a call, so that it does not know how long that took.
    pub(super) begun: Option<Instant>,
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
            let wanted = LineRequest {
                prompt: "nuncio> ".into(),
                vocabulary: self.vocabulary(),
                command: true,
                ..LineRequest::default()
            };
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
        let left: usize = self.run_stores.iter().map(|run_store| run_store.runs().len()).sum();
        if left > 0 && self.screen.is_terminal() {
            self.show_remark(&match self.run_stores.iter().any(RunStore::is_stored) {
                true => format!("{left} left going on: the next start takes up what goes on"),
                false => format!("{left} left going on: `attach` with the id of the task comes back to it"),
            });
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
            ChatCommand::New => {
                self.contexts.clear();
                self.show_remark("the next calls begin new conversations");
            }
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
        let mut wanted = wanted;
        if let Some(who) = self.asking.as_ref().and_then(|(run, _)| self.runs.get(run)) {
            wanted.prompt = format!("[{} {}] {}", who.label.run, plain(&who.label.offer), wanted.prompt);
            wanted.discards_typed = std::mem::take(&mut self.is_unprompted);
        }
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
            // On a terminal a question of a background run waits for `answer`: the next line that is typed was meant
            // for something else. Without one, the answers are the lines that follow.
            let takes_all = !self.screen.is_terminal();
            let is_next = |(run, question): &&(u32, Question)| {
                self.watched.contains(run)
                    || takes_all && !self.put_off.contains(&(*run, question.id.clone()))
            };
            if let Some((run, question)) = self.questions.iter().find(is_next).cloned() {
                self.show_question(run, &question);
                self.asking = Some((run, question.id.clone()));
                self.is_unprompted = true;
                let asked = self.ask(run, &question).await;
                self.asking = None;
                self.announce_unshown();
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
        self.announce_unshown();
        if interrupted {
            for run in watched {
                self.detach(run);
            }
        }
        interrupted
    }

    /// Shows the questions of background runs that were not shown when they came.
    fn announce_unshown(&mut self) {
        let is_unshown = |(run, question): &&(u32, Question)| {
            !self.watched.contains(run) && self.unshown.contains(&(*run, question.id.clone()))
        };
        for (run, question) in self.questions.iter().filter(is_unshown).cloned().collect::<Vec<_>>() {
            self.show_question(run, &question);
            self.show_remark(&format!("`answer {run}` answers it"));
        }
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
            .map(|(_, run_store)| run_store.runs().len())
            .sum();
        if waiting > 0 {
            self.show_remark(&format!("{waiting} left going on: taken up when the server is back"));
        }
        if taken.is_empty() { false } else { self.watch(taken).await }
    }

    /// Resumes the detached runs of a server.
    pub(super) fn resume_runs_of(&mut self, server: usize) -> Vec<u32> {
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
        for (server, run_store) in self.servers.iter().zip(&self.run_stores) {
            let peer = server.peer.borrow().clone();
            if let Some(peer) = peer.filter(|_| run_store.runs().is_empty() || !server.at.is_url()) {
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
