//! Input validation: the message that begins a task against its agent's input schema.
//!
//! A tool call has arguments, a message has parts. The arguments of a message are, in this order:
//!
//! 1. the value of its data part, if it has one; two are ambiguous, and refused;
//! 2. `{"text": …}` with all of its text, if the schema accepts that: a tool call with nothing but a text is
//!    stored like this too;
//! 3. the object that its text contains as JSON. It becomes a data part, so that the agent gets the same in both
//!    cases;
//! 4. `{}`, if it has neither.
//!
//! Files, and text beside a data part, are passed on unchecked.

use serde_json::{Value, json};

use super::RegisteredAgent;
use crate::{
    content::{Content, Message, Part},
    error::Error,
    surface::CompiledSchema,
};

/// The most violations that an error lists.
const NAMED: usize = 3;

impl RegisteredAgent {
    /// Checks whether a message may begin a task of this agent.
    pub fn check_input(&self, message: &Message) -> Result<(), Error> {
        self.take_input(&mut message.clone())
    }

    /// Validates a message against the schema of an agent with strict input, and converts JSON text to a data
    /// part.
    pub(crate) fn take_input(&self, message: &mut Message) -> Result<(), Error> {
        let (Some(shape), true) = (&self.input, self.profile.strict_input) else { return Ok(()) };
        let refuse = |what: &str, why: String| {
            let agent = &self.profile.name;
            Err(Error::Invalid(format!("{what} does not fit the input schema of the agent {agent:?}: {why}")))
        };
        let mut data = message.parts.iter().filter_map(|part| match &part.content {
            Content::Data(value) => Some(value),
            _ => None,
        });
        match (data.next(), data.next()) {
            (Some(value), None) => {
                return wrong(shape, value).map_or(Ok(()), |why| refuse("the data part", why));
            }
            (Some(_), Some(_)) => {
                return refuse("the message", "it has several data parts, and one is expected".into());
            }
            (None, _) => {}
        }
        if message.parts.iter().all(|part| part.as_text().is_none()) {
            return wrong(shape, &json!({}))
                .map_or(Ok(()), |why| refuse("the message", format!("it has no data part: {why}")));
        }
        let text = message.joined_text();
        let Some(spoken) = wrong(shape, &json!({ "text": text })) else { return Ok(()) };
        match serde_json::from_str(&text) {
            Ok(value @ Value::Object(_)) => {
                if let Some(why) = wrong(shape, &value) {
                    return refuse("the object in the text", why);
                }
                message.parts.retain(|part| part.as_text().is_none());
                message.parts.insert(0, Part::data(value));
                Ok(())
            }
            _ => refuse(
                "the text",
                format!(
                    "send a data part (application/json) with an object instead; as {{\"text\": …}} it is wrong: {spoken}"
                ),
            ),
        }
    }
}

/// The violations of a value, with their paths.
fn wrong(shape: &CompiledSchema, value: &Value) -> Option<String> {
    let (violations, more) = shape.violations(value, NAMED);
    if violations.is_empty() {
        return None;
    }
    let mut words: Vec<String> = violations
        .into_iter()
        .map(|(path, why)| if path.is_empty() { why } else { format!("{path}: {why}") })
        .collect();
    if more > 0 {
        words.push(format!("and {more} more"));
    }
    Some(words.join("; "))
}
