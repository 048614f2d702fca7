//! The calls of a session: arguments from the typed line and from prompts, a run that is saved before it begins, and its
//! follower.

use std::{collections::BTreeSet, time::Instant};

use nuncio_client::peer::PeerCallRequest;
use nuncio_engine::{surface::check_foreign_cost, trace};
use uuid::Uuid;

use super::{
    arguments::{self, ChatArguments},
    command,
    follower::{CurrentPeer, RunFollower, RunStart},
    input::{LineInput, LineRequest},
    line_renderer::{RunEvent, RunLabel, ScreenItem},
    run_store::SavedRun,
    servers,
    session::{ChatRun, ChatSession},
};
use crate::{
    form::fields,
    questions::{FieldPromptOutcome, ask_field, check_form},
};

impl ChatSession {
    /// Calls a capability. Returns whether Ctrl+C ended it.
    pub(super) async fn call(&mut self, wanted: command::ChatCall) -> bool {
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
        let context = self.contexts.get(&(server, offer.name.clone())).cloned();
        let offer_name = offer.name.clone();
        let kept =
            SavedRun { offer: offer_name, input, context, handle: None, begun, trace, unfinished: None };
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
        if let Some(run) = self.runs.get_mut(&run) {
            run.begun = Some(Instant::now());
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
            begun: None,
            resumable: kept.handle.is_some(),
            forgotten: false,
            is_waiting: false,
            follower: Some(follower),
            ended: None,
        };
        self.runs.insert(number, run);
        number
    }
}

pub(super) fn begin(kept: &SavedRun) -> PeerCallRequest {
    let SavedRun { offer, input, context, trace, .. } = kept.clone();
    PeerCallRequest { offer, input, context, trace }
}

/// The trace of a run: the one that this process was started in, or a new one.
fn trace() -> String {
    let given = std::env::var("TRACEPARENT").ok().filter(|trace| trace::parse(trace).is_some());
    given.unwrap_or_else(|| {
        let span = format!("{:016x}", Uuid::now_v7().as_u64_pair().1);
        format!("00-{}-{span}-01", Uuid::now_v7().simple())
    })
}
