//! Prompts: one for each kind of content, and one that asks a question.

use std::collections::BTreeMap;

use nuncio::{
    engine::{
        access::Caller,
        surface::{
            ContentBlock, HandlerError, HandlerQuestions, HandlerReply, HandlerRequest, Prompt, PromptOutput,
            PromptProfile, ResourceContent,
        },
    },
    prelude::*,
};

use crate::{asking::form, media};

type Prompted = Result<HandlerReply<PromptOutput>, HandlerError>;

/// A prompt built from one function.
pub(crate) struct Told {
    profile: PromptProfile,
    tell: fn(&HandlerRequest) -> Prompted,
}

impl Told {
    pub(crate) fn new(profile: PromptProfile, tell: fn(&HandlerRequest) -> Prompted) -> Self {
        Self { profile, tell }
    }
}

#[async_trait]
impl Prompt for Told {
    fn profile(&self) -> PromptProfile {
        self.profile.clone()
    }

    async fn get(&self, request: HandlerRequest) -> Prompted {
        (self.tell)(&request)
    }

    async fn complete(&self, _: &Caller, _: &str, typed: &str, _: &BTreeMap<String, String>) -> Vec<String> {
        let known = ["test value", "testing", "another value"];
        known.into_iter().filter(|value| value.starts_with(typed)).map(str::to_owned).collect()
    }
}

pub(crate) fn offer(surface: &Surface) {
    surface.add_prompt(Told::new(PromptProfile::new("test_simple_prompt", "A text."), |_| {
        said(vec![ContentBlock::Text("This is a simple prompt for testing.".into())])
    }));
    let profile = PromptProfile::new("test_prompt_with_arguments", "A text of two arguments.")
        .argument("arg1", "The first.")
        .argument("arg2", "The second.");
    surface.add_prompt(Told::new(profile, |request| {
        let argument = |name| request.text(name).unwrap_or_default();
        let (arg1, arg2) = (argument("arg1"), argument("arg2"));
        said(vec![ContentBlock::Text(format!("Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"))])
    }));
    let profile =
        PromptProfile::new("test_prompt_with_embedded_resource", "A resource, and a text about it.")
            .argument("resourceUri", "The resource.");
    surface.add_prompt(Told::new(profile, |request| {
        let (uri, text) =
            (request.text("resourceUri").unwrap_or_default(), "Embedded resource content for testing.");
        said(vec![
            ContentBlock::Resource(ResourceContent::text(uri, "text/plain", text)),
            ContentBlock::Text("Please process the embedded resource above.".into()),
        ])
    }));
    let profile = PromptProfile::new("test_prompt_with_image", "A picture, and a text about it.");
    surface.add_prompt(Told::new(profile, |_| {
        said(vec![media::image(), ContentBlock::Text("Please analyze the image above.".into())])
    }));
    let profile = PromptProfile::new("test_input_required_result_prompt", "A text that has to be asked for.");
    surface.add_prompt(Told::new(profile, |request| {
        match request.answers.get("user_context").map(|answer| answer.accepted::<Value>().unwrap_or_default())
        {
            Some(told) => said(vec![ContentBlock::Text(format!(
                "Context: {}",
                told["context"].as_str().unwrap_or("none")
            ))]),
            None => {
                let inquiry = form("What context should the prompt use?", "context", "string");
                Ok(HandlerReply::Ask(HandlerQuestions::one("user_context", inquiry)))
            }
        }
    }));
}

/// A prompt result with one user message.
fn said(blocks: Vec<ContentBlock>) -> Prompted {
    Ok(HandlerReply::Done(
        blocks.into_iter().fold(PromptOutput::default(), |said, block| said.and(Role::User, block)),
    ))
}
