//! The travel agent: books a trip (simulated) after the caller has confirmed the estimated price, with a
//! summary by the caller's model if it has one.
//!
//! Until the price is confirmed a message may change the destination or stop the search. Only an explicit
//! yes books. Every other answer ends with a message of its own: a form that does not confirm, a refusal, a
//! dismissed question, and a caller that cannot be asked.

use async_trait::async_trait;
use nuncio_engine::{Agent, AgentError, Answer, Chunk, Level, Outcome, Part, Profile, TaskContext};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{
    AgentOptions, argument,
    pace::StepPace,
    redirect::{Redirect, Redirects},
};

const DEFAULT_DESTINATION: &str = "Paris";
/// In US dollars.
const PRICE: u32 = 1200;
/// Tokens of the summary.
const SUMMARY_TOKENS: u32 = 100;

/// Books a trip after the caller has confirmed the price.
#[derive(Debug, Clone)]
pub struct TravelAgent {
    pace: StepPace,
}

impl TravelAgent {
    /// An agent with the step length of the options.
    pub fn new(options: &AgentOptions) -> Self {
        Self { pace: StepPace::new(options) }
    }
}

#[async_trait]
impl Agent for TravelAgent {
    fn profile(&self) -> Profile {
        let mut profile = Profile::new(
            "travel_agent",
            "Plans and books a trip (simulated): looks for flights and dates, asks you to confirm the estimated \
             price, and books only after a yes. Your own model summarizes the trip, if it may be asked. Reports \
             progress from 0 to 100 percent; say \"destination: Oslo\" or \"stop\" while it works.",
        )
        .version("2")
        .demo();
        profile.input_schema = Some(json!({
            "type": "object",
            "properties": {
                "destination": {
                    "type": "string",
                    "description": "Where to go.",
                    "default": DEFAULT_DESTINATION,
                }
            },
        }));
        let skill = &mut profile.skills[0];
        skill.id = "book_trip".into();
        skill.name = "Book a trip".into();
        skill.tags = vec!["travel".into(), "booking".into(), "confirmation".into()];
        skill.examples = vec!["Book a trip to Lisbon".into(), "Kyoto".into()];
        profile
    }

    async fn run(&self, cx: TaskContext) -> Result<Outcome, AgentError> {
        let mut destination = match argument::read_argument(&cx, "destination", destination_in) {
            Ok(given) => given.unwrap_or_else(|| DEFAULT_DESTINATION.into()),
            Err(why) => return Ok(Outcome::Rejected(why)),
        };
        let mut redirects = Redirects::new();
        for (percent, step) in [(0, "flights"), (25, "dates"), (50, "price")] {
            let doing = match step {
                "flights" => format!("Looking for flights to {destination}"),
                "dates" => format!("Finding dates that are free for {destination}"),
                _ => format!("Checking the price for {destination}"),
            };
            let heard = self.pace.stage(&cx, &mut redirects, percent, step, doing).await?;
            for redirect in redirects.take(&cx, heard, "destination").await? {
                match redirect {
                    Redirect::Subject(other) => destination = other,
                    Redirect::Stop => {
                        let words =
                            format!("Not booked: stopped as you asked, before the trip to {destination}.");
                        return leave(&cx, words).await;
                    }
                    Redirect::Shorter | Redirect::Unclear(_) => {}
                }
            }
        }
        let question =
            format!("Please confirm the estimated price of ${PRICE} for your trip to {destination}");
        match cx.ask(question, confirmation()).await? {
            Answer::Accept(form) if form["confirm"] == true => self.book(&cx, &destination, &form).await,
            Answer::Accept(form) => {
                let remark = notes(&form).map(|notes| format!(" You said: {notes}")).unwrap_or_default();
                let trip = format!("${PRICE} for the trip to {destination}");
                leave(&cx, format!("Not booked: you did not confirm {trip}.{remark}")).await
            }
            Answer::Decline(note) => {
                let remark = note.map(|note| format!(" You said: {note}")).unwrap_or_default();
                leave(&cx, format!("Not booked: the offer for {destination} was declined.{remark}")).await
            }
            Answer::Cancel => Ok(Outcome::Canceled(Some(format!(
                "Not booked: the question about the trip to {destination} was dismissed."
            )))),
            Answer::Unavailable => quote(&cx, &destination).await,
        }
    }
}

impl TravelAgent {
    async fn book(&self, cx: &TaskContext, destination: &str, form: &Value) -> Result<Outcome, AgentError> {
        let summary = summarize(cx, destination).await?;
        let doing = format!("Booking the trip to {destination}");
        cx.log(Level::Info, doing.clone()).await?;
        cx.progress(75.0, Some(100.0), doing).await?;
        // The key is the same whenever the step is repeated, so a booking service would accept only one
        // booking.
        let reference = cx
            .step("book", async |step| {
                self.pace.work(&step).await?;
                Ok(reference(&step.idempotency_key()))
            })
            .await?;
        let words = format!("Trip to {destination} booked for ${PRICE}. Reference: {reference}.");
        let mut data = offer(destination, "booked");
        data["reference"] = reference.into();
        if let Some(notes) = notes(form) {
            data["notes"] = notes.into();
        }
        if let Some(summary) = summary {
            data["summary"] = summary.into();
        }
        let itinerary = Chunk::parts("itinerary", vec![Part::text(&words), Part::data(data)]);
        cx.artifact(itinerary.named(format!("Trip to {destination}")).complete()).await?;
        cx.progress(100.0, Some(100.0), "Booked").await?;
        Ok(Outcome::said(words))
    }
}

/// The model's summary of the trip. Without a model the booking goes on, and the log mentions it.
async fn summarize(cx: &TaskContext, destination: &str) -> Result<Option<String>, AgentError> {
    let prompt =
        format!("Please summarize the travel data for the trip to {destination}: estimated price ${PRICE}");
    let why = match cx.sample(prompt, None, SUMMARY_TOKENS).await? {
        Answer::Accept(answer) => match answer.as_str().or_else(|| answer["text"].as_str()).map(str::trim) {
            Some(text) if !text.is_empty() => {
                cx.log(Level::Info, "Received a summary of the trip").await?;
                return Ok(Some(text.to_owned()));
            }
            _ => "the model's answer held no text",
        },
        Answer::Decline(_) | Answer::Cancel => "the request was turned down",
        Answer::Unavailable => "there was no model to ask",
    };
    cx.log(Level::Notice, format!("Booking without a summary: {why}")).await?;
    Ok(None)
}

/// Ends without a booking, at the caller's request.
async fn leave(cx: &TaskContext, words: String) -> Result<Outcome, AgentError> {
    cx.progress(100.0, Some(100.0), "Finished without a booking").await?;
    Ok(Outcome::said(words))
}

/// Ends with the price and no booking, because the caller could not be asked.
async fn quote(cx: &TaskContext, destination: &str) -> Result<Outcome, AgentError> {
    let words = format!(
        "The trip to {destination} costs ${PRICE}. Price quoted, not booked: nobody could be asked to confirm it."
    );
    let quote = vec![Part::text(&words), Part::data(offer(destination, "quoted"))];
    cx.artifact(Chunk::parts("quote", quote).named(format!("Quote for {destination}")).complete()).await?;
    cx.progress(100.0, Some(100.0), "Quoted, not booked").await?;
    Ok(Outcome::said(words))
}

fn confirmation() -> Value {
    json!({
        "type": "object",
        "properties": {
            "confirm": { "type": "boolean", "title": "Confirm", "description": "Whether to book at this price." },
            "notes": { "type": "string", "title": "Notes", "description": "Anything the booking should say." },
        },
        "required": ["confirm"],
    })
}

fn offer(destination: &str, status: &str) -> Value {
    json!({
        "destination": destination,
        "status": status,
        "price": { "amount": PRICE, "currency": "USD" },
    })
}

fn notes(form: &Value) -> Option<&str> {
    form["notes"].as_str().map(str::trim).filter(|notes| !notes.is_empty())
}

/// The destination in a sentence such as "Book a trip to Lisbon!": the text after the last "to", or else all
/// of it. Only the first line counts.
fn destination_in(text: &str) -> &str {
    let text = text.trim().lines().next().unwrap_or_default();
    let after = text.rfind(" to ").map_or(text, |at| &text[at + " to ".len()..]);
    let place = after.trim_matches(|c: char| c.is_whitespace() || ".,;:!?\"'".contains(c));
    if place.is_empty() { text } else { place }
}

/// A short booking reference, from the key of the step that makes it.
fn reference(key: &str) -> String {
    let digest = Sha256::digest(key);
    digest[..4].iter().fold(String::from("TRIP-"), |name, byte| format!("{name}{byte:02X}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_destination_is_what_follows_the_last_to() {
        let check = |text, place| assert_eq!(destination_in(text), place, "{text:?}");
        check("Lisbon", "Lisbon");
        check("Book a trip to Lisbon!", "Lisbon");
        check("I want to go to New York.", "New York");
        check("Toledo", "Toledo");
        check("?!", "?!");
        check("get me to ", "get me to");
        check("Book a trip to Bern\n\nWhat came of it:\nNobody to ask.", "Bern");
        check("Ich will nach Zürich", "Ich will nach Zürich");
    }

    #[test]
    fn a_reference_depends_on_the_key_alone() {
        assert_eq!(reference("a"), reference("a"));
        assert_ne!(reference("a"), reference("b"));
        assert_eq!(reference("a").len(), "TRIP-".len() + 8);
    }
}
