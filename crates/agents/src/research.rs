//! The research agent: reports on a topic (simulated), with a summary by the caller's model if it has one.
//!
//! The report is written section by section, so that a follower can read it as it grows. A message to the
//! working agent shortens the remaining sections, changes their topic, or ends the report after the current
//! one.

use async_trait::async_trait;
use nuncio_engine::{Agent, AgentError, Answer, Chunk, Level, Outcome, Profile, TaskContext};
use serde_json::{Value, json};

use crate::{
    AgentOptions, argument,
    pace::StepPace,
    redirect::{Redirect, Redirects},
};

const DEFAULT_TOPIC: &str = "AI trends";
/// Tokens of the summary.
const SUMMARY_TOKENS: u32 = 100;

/// Researches a topic and writes a report.
#[derive(Debug, Clone)]
pub struct ResearchAgent {
    pace: StepPace,
}

impl ResearchAgent {
    /// An agent with the step length of the options.
    pub fn new(options: &AgentOptions) -> Self {
        Self { pace: StepPace::new(options) }
    }
}

#[async_trait]
impl Agent for ResearchAgent {
    fn profile(&self) -> Profile {
        let mut profile = Profile::new(
            "research_agent",
            "Researches a topic in four steps (simulated) and writes a report section by section. The summary \
             comes from your own model, if it may be asked; otherwise the agent writes one and says so. Say \
             \"shorter, please\", \"topic: tides\" or \"stop after this step\" while it works.",
        )
        .version("2")
        .demo();
        profile.input_schema = Some(json!({
            "type": "object",
            "properties": {
                "topic": {
                    "type": "string",
                    "description": "What to look into.",
                    "default": DEFAULT_TOPIC,
                }
            },
        }));
        profile.output_modes = vec!["text/markdown".into(), "text/plain".into()];
        let skill = &mut profile.skills[0];
        skill.id = "research_topic".into();
        skill.name = "Research a topic".into();
        skill.tags = vec!["research".into(), "report".into(), "summary".into()];
        skill.examples = vec!["AI trends".into(), "Durable execution in distributed systems".into()];
        profile
    }

    async fn run(&self, cx: TaskContext) -> Result<Outcome, AgentError> {
        let mut topic = match argument::read_argument(&cx, "topic", |text| text) {
            Ok(given) => given.unwrap_or_else(|| DEFAULT_TOPIC.into()),
            Err(why) => return Ok(Outcome::Rejected(why)),
        };
        let report = |section: String| Chunk::text("report", section);

        let mut redirects = Redirects::new();
        let mut wish = ResearchWishes::default();

        let heard = self
            .pace
            .stage(&cx, &mut redirects, 0, "sources", format!("Gathering sources on {topic}"))
            .await?;
        wish.take(redirects.take(&cx, heard, "topic").await?, &mut topic);
        let sources = format!("# {topic}\n\n## Sources\n\nThe search is simulated: no source was read.\n");
        cx.artifact(report(sources).named("Report")).await?;
        if wish.stop {
            return stopped(&cx, &topic).await;
        }

        let heard = self.pace.stage(&cx, &mut redirects, 25, "findings", "Reading and comparing").await?;
        wish.take(redirects.take(&cx, heard, "topic").await?, &mut topic);
        let findings = match wish.shorter {
            true => format!("\n## Findings\n\n- What is new in {topic}\n"),
            false => format!(
                "\n## Findings\n\n- What is new in {topic}\n- What holds up so far\n- What is still open\n"
            ),
        };
        cx.artifact(report(findings)).await?;
        if wish.stop {
            return stopped(&cx, &topic).await;
        }

        let heard = self.pace.stage(&cx, &mut redirects, 50, "summary", "Asking for a summary").await?;
        wish.take(redirects.take(&cx, heard, "topic").await?, &mut topic);
        let mut summary = summarize(&cx, &topic).await?;
        if wish.shorter {
            summary.text = first_sentence(&summary.text);
        }
        cx.artifact(report(format!("\n## Summary\n\n{}\n\n_{}_\n", summary.text, summary.by))).await?;

        if wish.stop {
            return stopped(&cx, &topic).await;
        }

        let heard = self.pace.stage(&cx, &mut redirects, 75, "report", "Writing the report").await?;
        wish.take(redirects.take(&cx, heard, "topic").await?, &mut topic);
        let next = match wish.shorter {
            true => "\n## Next\n\nCheck sources.\n",
            false => "\n## Next\n\nCheck the open points against sources.\n",
        };
        cx.artifact(report(next.into()).complete()).await?;

        cx.progress(100.0, Some(100.0), "The report is complete").await?;
        Ok(Outcome::said(format!("The report on {topic} is complete. {}", summary.by)))
    }
}

/// The caller's requests while the agent works.
#[derive(Default)]
struct ResearchWishes {
    shorter: bool,
    stop: bool,
}

impl ResearchWishes {
    fn take(&mut self, redirects: Vec<Redirect>, topic: &mut String) {
        for redirect in redirects {
            match redirect {
                Redirect::Shorter => self.shorter = true,
                Redirect::Stop => self.stop = true,
                Redirect::Subject(other) => *topic = other,
                Redirect::Unclear(_) => {}
            }
        }
    }
}

/// Ends with the sections written so far.
async fn stopped(cx: &TaskContext, topic: &str) -> Result<Outcome, AgentError> {
    cx.artifact(Chunk::text("report", "\n_Stopped here, as asked._\n").complete()).await?;
    cx.progress(100.0, Some(100.0), "Stopped, as asked").await?;
    Ok(Outcome::said(format!("The report on {topic} ends where you stopped it.")))
}

fn first_sentence(text: &str) -> String {
    match text.find(['.', ';']) {
        Some(at) => format!("{}.", &text[..at]),
        None => text.to_owned(),
    }
}

/// A summary and its author.
struct ResearchSummary {
    text: String,
    by: String,
}

async fn summarize(cx: &TaskContext, topic: &str) -> Result<ResearchSummary, AgentError> {
    let prompt = format!("Please summarize the key findings for research on: {topic}");
    let system = "You write short summaries for a research report. Answer with the summary alone.";
    let servers = cx.samples_own_model();
    let why = match cx.sample(prompt, Some(system.into()), SUMMARY_TOKENS).await? {
        Answer::Accept(answer) => match text_in(&answer) {
            Some(text) => {
                let model = if servers { "the server's model" } else { "your model" };
                return Ok(ResearchSummary {
                    text: text.into(),
                    by: format!("The summary was written by {model}."),
                });
            }
            None if servers => "the answer of the server's model held no text",
            None => "your model's answer held no text",
        },
        Answer::Decline(_) | Answer::Cancel => "the request to your model was turned down",
        Answer::Unavailable => "there was no model to ask",
    };
    let by = format!("The agent wrote the summary itself: {why}.");
    cx.log(Level::Notice, by.clone()).await?;
    Ok(ResearchSummary {
        text: format!("Work on {topic} moves on; its main questions are listed above."),
        by,
    })
}

/// The text of a model: a plain string, or the text block that sampling returns.
fn text_in(answer: &Value) -> Option<&str> {
    let text = answer.as_str().or_else(|| answer["text"].as_str())?.trim();
    (!text.is_empty()).then_some(text)
}
