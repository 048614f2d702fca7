//! Sampling requests of servers: answered by the configured model, by the user, or refused. Nothing is sent
//! to the server that was not shown first.

use clap::ValueEnum;
use nuncio_client::model::Model;
use nuncio_engine::{Answer, question::Question};
use serde_json::json;

use super::{
    input::{LineInput, LineRequest},
    line_renderer::{RunLabel, ScreenItem},
    session::{ChatSession, unless_interrupted},
};
use crate::text::plain;

/// Who decides about sampling requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SamplingPolicy {
    /// The user decides each time
    Ask,
    /// The configured model answers without confirmation; without a model, the user decides
    Always,
    /// Every request is refused
    Never,
}

pub(super) struct Sampling {
    pub(super) policy: SamplingPolicy,
    /// The configured model, and its name.
    pub(super) model: Option<(Model, String)>,
}

impl ChatSession {
    /// Gets a text from the model or the user. `None`: the user does not want to answer now.
    pub(super) async fn ask_sample(
        &mut self,
        who: &RunLabel,
        question: &Question,
        system: Option<&str>,
        max_tokens: u32,
    ) -> Option<Answer> {
        let instructions =
            system.map(|system| format!("\n  Instructions: {}", plain(system))).unwrap_or_default();
        let text = format!("  A text of at most {max_tokens} tokens is wanted.{instructions}");
        let data = json!({ "event": "sampling", "run": who.run, "system": system, "maxTokens": max_tokens, "text": question.text });
        self.screen.show(&ScreenItem::Answer { text, data }, true);
        if self.sampling.policy == SamplingPolicy::Never {
            self.show_remark("refused: --sampling never");
            return Some(Answer::Decline(None));
        }
        let model = self.sampling.model.clone();
        if let (SamplingPolicy::Always, Some((model, _))) = (self.sampling.policy, &model) {
            let asked = model.complete(system, &question.text, max_tokens);
            match unless_interrupted(&mut self.interrupts, asked).await? {
                Ok(text) => {
                    self.show_text(who, &text);
                    return Some(written(&text));
                }
                Err(error) => self.screen.show(&ScreenItem::Wrong(&error.to_string()), true),
            }
        }
        let ways = match &model {
            Some((_, name)) => format!("m: {} writes it, t: I write it, n: refuse, !c", plain(name)),
            None => "t: I write it, n: refuse, !c".to_owned(),
        };
        loop {
            let line = self
                .read(LineRequest { prompt: format!("Who answers? [{ways}]: "), ..LineRequest::default() })
                .await;
            let LineInput::Line(line) = line else { return None };
            if self.is_question_closed() {
                return None;
            }
            match (line.trim(), &model) {
                ("n" | "no" | "!n", _) => return Some(Answer::Decline(None)),
                ("c" | "!c", _) => return Some(Answer::Cancel),
                ("t", _) => {
                    match self.read(LineRequest { prompt: "Text: ".into(), ..LineRequest::default() }).await {
                        LineInput::Line(line) if line.trim() == "!n" => return Some(Answer::Decline(None)),
                        LineInput::Line(line) if line.trim() == "!c" => return Some(Answer::Cancel),
                        LineInput::Line(line) => return Some(written(&line)),
                        LineInput::Interrupted | LineInput::End => return None,
                    }
                }
                ("m" | "y", Some((model, _))) => {
                    let asked = model.complete(system, &question.text, max_tokens);
                    let text = match unless_interrupted(&mut self.interrupts, asked).await? {
                        Ok(text) => text,
                        Err(error) => {
                            self.screen.show(&ScreenItem::Wrong(&error.to_string()), true);
                            continue;
                        }
                    };
                    self.show_text(who, &text);
                    match self
                        .read(LineRequest { prompt: "Send it? [y, n]: ".into(), ..LineRequest::default() })
                        .await
                    {
                        LineInput::Line(line) if matches!(line.trim(), "y" | "yes") => {
                            return Some(written(&text));
                        }
                        LineInput::Line(_) if self.is_question_closed() => return None,
                        LineInput::Line(_) => {}
                        LineInput::Interrupted | LineInput::End => return None,
                    }
                }
                _ => self.show_remark(&ways.clone()),
            }
        }
    }

    fn show_text(&mut self, who: &RunLabel, text: &str) {
        let lines: String = plain(text).lines().map(|line| format!("  | {line}\n")).collect();
        let data = json!({ "event": "sampled", "run": who.run, "text": text });
        self.screen.show(&ScreenItem::Answer { text: lines, data }, true);
    }
}

fn written(text: &str) -> Answer {
    Answer::Accept(json!({ "text": text }))
}
