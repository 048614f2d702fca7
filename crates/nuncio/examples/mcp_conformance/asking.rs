//! Tools that ask questions first.
//!
//! A handler returns its questions and is called again with the answers. Clients of 2025-11-25 are asked on
//! the stream of their call, clients of 2026-07-28 call again with their answers; handlers are the same for
//! both.

use nuncio::{
    engine::surface::{HandlerQuestion, HandlerQuestions, HandlerReply, HandlerRequest, SchemaError},
    prelude::*,
};

use crate::plain::{Answered, Plain, said};

pub(crate) fn offer(surface: &Surface) -> Result<(), SchemaError> {
    offer_sampling_and_forms(surface)?;
    offer_rounds(surface)?;
    offer_states(surface)?;
    let greets = |request: &HandlerRequest| {
        match until_told(request, "name", HandlerQuestions::one("user_name", your_name())) {
            // The agent of the same name takes over. The tool hides it from the list.
            Ok(name) => {
                let arguments = [("name".to_owned(), name.clone())].into_iter().collect();
                Ok(HandlerReply::HandOver { agent: "test_tool_with_task".into(), arguments })
            }
            Err(answered) => answered,
        }
    };
    let about = "Asks for a name, then works as a task.";
    surface.add_tool(Plain::new("test_tool_with_task", about, greets).handing_over())
}

/// Tools for the suite of 2025-11-25: one question, whose answer is repeated.
fn offer_sampling_and_forms(surface: &Surface) -> Result<(), SchemaError> {
    surface.add_tool(
        Plain::new("test_sampling", "Puts a prompt to the client's model.", |request| {
            let inquiry = sample(request.text("prompt").unwrap_or_default(), 100);
            asks(request, "text", HandlerQuestions::one("completion", inquiry), |text| {
                format!("LLM response: {}", text.as_str().unwrap_or_default())
            })
        })
        .input(json!({
            "type": "object",
            "properties": { "prompt": { "type": "string", "description": "What is put to the model." } },
            "required": ["prompt"],
        })),
    )?;
    surface.add_tool(
        Plain::new("test_elicitation", "Asks for a name and an address.", |request| {
            let schema = json!({
                "type": "object",
                "properties": {
                    "username": { "type": "string", "description": "User's response" },
                    "email": { "type": "string", "description": "User's email address" },
                },
                "required": ["username", "email"],
            });
            repeats(request, "User response", request.text("message").unwrap_or_default(), schema)
        })
        .input(json!({
            "type": "object",
            "properties": { "message": { "type": "string", "description": "What is put to the user." } },
            "required": ["message"],
        })),
    )?;
    surface.add_tool(Plain::new("test_elicitation_sep1034_defaults", "Asks with defaults.", |request| {
        let schema = json!({
            "type": "object",
            "properties": {
                "name": { "type": "string", "default": "John Doe" },
                "age": { "type": "integer", "default": 30 },
                "score": { "type": "number", "default": 95.5 },
                "status": { "type": "string", "enum": ["active", "inactive", "pending"], "default": "active" },
                "verified": { "type": "boolean", "default": true },
            },
        });
        repeats(request, "Elicitation completed", "Please look through these.", schema)
    }))?;
    surface.add_tool(Plain::new("test_elicitation_sep1330_enums", "Asks for choices.", |request| {
        repeats(request, "Elicitation completed", "Please choose.", choices())
    }))?;
    surface.add_tool(Plain::new("test_streaming_elicitation", "Asks one question.", |request| {
        asks(request, "name", HandlerQuestions::one("user_name", your_name()), greeting)
    }))
}

/// Tools for the suite of 2026-07-28: one question of each kind, several at once, one after another.
fn offer_rounds(surface: &Surface) -> Result<(), SchemaError> {
    let tool = |name: &str, description: &str, answer: fn(&HandlerRequest) -> Answered| {
        surface.add_tool(Plain::new(&format!("test_input_required_result_{name}"), description, answer))
    };
    tool("elicitation", "Asks for a name.", |request| {
        asks(request, "name", HandlerQuestions::one("user_name", your_name()), greeting)
    })?;
    tool("sampling", "Asks the client's model.", |request| {
        let asking = HandlerQuestions::one("capital_question", sample("What is the capital of France?", 100));
        asks(request, "text", asking, |text| format!("It says: {}", text.as_str().unwrap_or_default()))
    })?;
    tool("list_roots", "Asks for the client's folders.", |request| {
        asks(request, "roots", HandlerQuestions::one("client_roots", HandlerQuestion::Roots), |roots| {
            format!("Roots: {roots}")
        })
    })?;
    tool("multiple_inputs", "Asks a person, a model and the client at once.", |request| {
        let all = HandlerQuestions::one("user_name", your_name())
            .and("greeting", sample("Generate a greeting", 50))
            .and("client_roots", HandlerQuestion::Roots);
        let open = |name: &String| !request.answers.contains_key(name);
        let questions = all.questions.into_iter().filter(|(name, _)| open(name)).collect();
        let asking = HandlerQuestions { questions, state: Some(json!("several")) };
        match asking.questions.is_empty() {
            true => said(format!("Told: {}", json!(request.answers))),
            false => Ok(HandlerReply::Ask(asking)),
        }
    })?;
    tool("multi_round", "Asks for a name, then for a color.", |request| {
        let color = form("Step 2: What is your favorite color?", "color", "string");
        let name = form("Step 1: What is your name?", "name", "string");
        // The answer of the first round is available in the second.
        match until_told(request, "name", HandlerQuestions::one("step1", name)) {
            Ok(name) => asks(request, "color", HandlerQuestions::one("step2", color), |color| {
                format!("{} likes {}.", name.as_str().unwrap_or_default(), color.as_str().unwrap_or_default())
            }),
            Err(answered) => answered,
        }
    })?;
    tool("capabilities", "Asks whatever the client can be asked.", |request| {
        let mut asking = HandlerQuestions::default();
        if request.abilities.sample {
            asking = asking.and("greeting", sample("Generate a greeting", 50));
        }
        if request.abilities.ask {
            asking = asking.and("user_name", your_name());
        }
        asking.questions.retain(|name, _| !request.answers.contains_key(name));
        match asking.questions.is_empty() {
            true => said("Nothing more can be asked."),
            false => Ok(HandlerReply::Ask(asking)),
        }
    })
}

/// Tools that carry state from one round to the next.
fn offer_states(surface: &Surface) -> Result<(), SchemaError> {
    for (name, description) in [
        ("test_input_required_result_request_state", "Finds its state again."),
        ("test_input_required_result_tampered_state", "Finds its state again, if nobody changed it."),
    ] {
        surface.add_tool(Plain::new(name, description, |request| {
            let confirm = HandlerQuestions::one("confirm", form("Please confirm", "ok", "boolean"));
            let found = request.state == Some(json!("kept"));
            asks(request, "ok", confirm.keeping(json!("kept")), move |_| {
                if found { "state-ok".into() } else { "The state is lost.".into() }
            })
        }))?;
    }
    Ok(())
}

/// Asks one question until `field` is answered, and ends with a text about it.
fn asks(
    request: &HandlerRequest,
    field: &str,
    asking: HandlerQuestions,
    words: impl FnOnce(&Value) -> String,
) -> Answered {
    match until_told(request, field, asking) {
        Ok(told) => said(words(told)),
        Err(answered) => answered,
    }
}

/// The answer in `field`, or what to return instead: the question, or that the user declined.
fn until_told<'a>(
    request: &'a HandlerRequest,
    field: &str,
    asking: HandlerQuestions,
) -> Result<&'a Value, Answered> {
    let answer = asking.questions.keys().find_map(|name| request.answers.get(name));
    match answer {
        Some(Answer::Accept(told)) if !told[field].is_null() => Ok(&told[field]),
        Some(Answer::Accept(_)) | None => Err(Ok(HandlerReply::Ask(asking))),
        Some(Answer::Decline(_) | Answer::Cancel | Answer::Unavailable) => Err(said("Nobody wants to tell.")),
    }
}

/// Asks one form, and repeats whatever the answer is.
fn repeats(request: &HandlerRequest, words: &str, text: &str, schema: Value) -> Answered {
    let (action, content) = match request.answers.get("form") {
        None => {
            let inquiry = HandlerQuestion::Form { text: text.into(), schema };
            return Ok(HandlerReply::Ask(HandlerQuestions::one("form", inquiry)));
        }
        Some(Answer::Accept(content)) => ("accept", content.clone()),
        Some(Answer::Decline(_)) => ("decline", json!({})),
        Some(Answer::Cancel | Answer::Unavailable) => ("cancel", json!({})),
    };
    said(format!("{words}: action={action}, content={content}"))
}

fn greeting(name: &Value) -> String {
    format!("Hello, {}!", name.as_str().unwrap_or_default())
}

fn your_name() -> HandlerQuestion {
    form("What is your name?", "name", "string")
}

/// A form of one field.
pub(crate) fn form(text: &str, field: &str, kind: &str) -> HandlerQuestion {
    let schema = json!({ "type": "object", "properties": { field: { "type": kind } }, "required": [field] });
    HandlerQuestion::Form { text: text.into(), schema }
}

fn sample(prompt: &str, max_tokens: u32) -> HandlerQuestion {
    HandlerQuestion::Sample { prompt: prompt.into(), system: None, max_tokens }
}

/// Single and multiple choices, with titles and without.
fn choices() -> Value {
    let titled = |titles: [&str; 3]| {
        let choice =
            |(n, title): (usize, &str)| json!({ "const": format!("value{}", n + 1), "title": title });
        titles.into_iter().enumerate().map(choice).collect::<Value>()
    };
    let options = json!(["option1", "option2", "option3"]);
    json!({
        "type": "object",
        "properties": {
            "untitledSingle": { "type": "string", "enum": options },
            "titledSingle": {
                "type": "string",
                "oneOf": titled(["First Option", "Second Option", "Third Option"]),
            },
            "legacyEnum": {
                "type": "string",
                "enum": ["opt1", "opt2", "opt3"],
                "enumNames": ["Option One", "Option Two", "Option Three"],
            },
            "untitledMulti": { "type": "array", "items": { "type": "string", "enum": options } },
            "titledMulti": {
                "type": "array",
                "items": { "anyOf": titled(["First Choice", "Second Choice", "Third Choice"]) },
            },
        },
    })
}
