//! What servers and runs report, and what the session makes of it: the screen, the open questions and the saved runs.

use std::collections::BTreeSet;

use nuncio_client::peer::{PeerCallEnd, PeerError};
use nuncio_engine::State;

use super::{
    follower::RunUpdate,
    line_renderer::{RunEvent, ScreenItem, message_text},
    servers::ServerUpdate,
    session::ChatSession,
};

impl ChatSession {
    /// Handles an update of a server.
    pub(super) fn handle_server_update(&mut self, number: usize, news: ServerUpdate) {
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
                let is_unchanged = was_known && !was_away && server.offers == offers;
                server.offers = offers;
                server.peer.send_replace(Some(peer));
                if is_unchanged {
                    return;
                }
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
    pub(super) fn handle_run_updates(&mut self, run: u32, news: Vec<RunUpdate>) {
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
        let is_terminal = self.screen.is_terminal();
        let stands_idle = self.is_question_closed() && is_terminal;
        // Updates that were in flight when the run was detached come again when it is resumed.
        let Some(run) = self.runs.get_mut(&number).filter(|run| run.follower.is_some()) else { return };
        let watched = self.watched.contains(&number);
        let (who, run_store) = (run.label.clone(), &mut self.run_stores[run.server]);
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
                run_store.advance(&run.id, &handle);
            }
            RunUpdate::Context(context) => {
                self.contexts.insert((run.server, run.label.offer.clone()), context);
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
                    if self.watched.is_empty() || is_terminal && !watched && !stands_idle {
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
                show(RunEvent::Ended(&ended, run.begun.map(|begun| begun.elapsed())));
                run_store.forget(&run.id);
                self.finish_run(number, &ended);
            }
            RunUpdate::Lost { error, kept } => {
                show(RunEvent::Lost(&error.to_string()));
                if !kept {
                    run_store.forget(&run.id);
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
}
