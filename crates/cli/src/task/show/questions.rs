//! The questions of a task, each with what became of it.

use serde_json::{Value, json};

use super::{PAGE, PREVIEW, ServerTask, short};
use crate::{
    error::CliError,
    table::{Table, cell},
    text::TextOutput,
};

/// A question, and its answer if it has one.
#[derive(Debug)]
pub(super) struct ShownQuestion {
    id: String,
    pub(super) text: String,
    asked_at: Value,
    /// `open`, `answered`, `declined`, `canceled`, `unavailable`, `withdrawn` or `unanswered` (the task ended).
    state: &'static str,
    closed_at: Value,
    answer: Value,
}

impl ShownQuestion {
    pub(super) fn is_open(&self) -> bool {
        self.state == "open"
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "questionId": self.id, "text": self.text, "state": self.state, "askedAt": self.asked_at,
            "closedAt": self.closed_at, "answer": self.answer,
        })
    }
}

/// All questions of a task, in the order in which they were asked.
pub(super) async fn questions_of(task: &ServerTask<'_>, ended: bool) -> Result<Vec<ShownQuestion>, CliError> {
    let (mut events, mut after) = (vec![], 0);
    loop {
        let query = [
            ("kind", "question".to_owned()),
            ("kind", "answer".to_owned()),
            ("kind", "withdrawn".to_owned()),
            ("after", after.to_string()),
            ("limit", PAGE.to_string()),
            ("preview", PREVIEW.to_string()),
        ];
        let mut page: Value = task.console.get(&["tasks", &task.id, "events"], &query).await?;
        if let Value::Array(found) = page["events"].take() {
            events.extend(found);
        }
        let (read, last) = (page["after"].as_u64().unwrap_or(0), page["last"].as_u64().unwrap_or(0));
        if read >= last || read <= after {
            return Ok(fold(&events, ended));
        }
        after = read;
    }
}

fn fold(events: &[Value], ended: bool) -> Vec<ShownQuestion> {
    let mut questions: Vec<ShownQuestion> = vec![];
    for event in events {
        let data = &event["data"];
        if event["type"] == "question" {
            questions.push(ShownQuestion {
                id: cell(&data["id"]),
                // A question that is too long to be sent whole is shown by its beginning.
                text: data["text"].as_str().or(event["preview"].as_str()).unwrap_or_default().to_owned(),
                asked_at: event["timestamp"].clone(),
                state: if ended { "unanswered" } else { "open" },
                closed_at: Value::Null,
                answer: Value::Null,
            });
            continue;
        }
        let open = |question: &&mut ShownQuestion| {
            question.closed_at.is_null() && data["question"].as_str().is_none_or(|id| id == question.id)
        };
        let Some(question) = questions.iter_mut().find(open) else { continue };
        question.closed_at = event["timestamp"].clone();
        (question.state, question.answer) = match event["type"] == "withdrawn" {
            true => ("withdrawn", Value::Null),
            false => outcome(&data["answer"]),
        };
    }
    questions
}

/// What an answer, as it is stored, says.
fn outcome(answer: &Value) -> (&'static str, Value) {
    match (answer.as_str(), answer.as_object()) {
        (Some("decline"), _) => ("declined", Value::Null),
        (Some("cancel"), _) => ("canceled", Value::Null),
        (Some("unavailable"), _) => ("unavailable", Value::Null),
        (_, Some(members)) if members.contains_key("declined") => {
            ("declined", members["declined"]["note"].clone())
        }
        _ => ("answered", answer["accept"].clone()),
    }
}

pub(super) fn show(text: &mut TextOutput, questions: &[ShownQuestion]) {
    if questions.is_empty() {
        return;
    }
    let mut table =
        Table::new(&["QUESTION", "STATE", "ASKED", "TEXT", "ANSWER"]).whole(&["QUESTION", "STATE"]);
    for question in questions {
        table.row([
            question.id.clone(),
            question.state.to_owned(),
            cell(&question.asked_at),
            short(&question.text),
            if question.answer.is_null() { String::new() } else { short(&cell(&question.answer)) },
        ]);
    }
    text.gap();
    text.0.push_str(&table.optional(&["ASKED", "ANSWER"]).show());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_question_has_the_answer_to_it() {
        let question =
            |id: &str| json!({ "type": "question", "timestamp": "t1", "data": { "id": id, "text": id } });
        let answer = |id: &str, answer: Value| json!({ "type": "answer", "timestamp": "t2", "data": { "question": id, "answer": answer } });
        let states = |events: &[Value], ended| -> Vec<(String, &'static str)> {
            fold(events, ended).into_iter().map(|question| (question.id, question.state)).collect()
        };
        let events = [
            question("q1"),
            question("q2"),
            question("q3"),
            answer("q2", json!({ "accept": { "seat": "12A" } })),
            json!({ "type": "withdrawn", "timestamp": "t3", "data": { "question": "q1" } }),
        ];
        let named = |pairs: &[(&str, &'static str)]| -> Vec<(String, &'static str)> {
            pairs.iter().map(|(id, state)| ((*id).to_owned(), *state)).collect()
        };
        assert_eq!(states(&events, false), named(&[("q1", "withdrawn"), ("q2", "answered"), ("q3", "open")]));
        assert_eq!(states(&events, true)[2].1, "unanswered");
        assert_eq!(fold(&events, false)[1].answer, json!({ "seat": "12A" }));
        for (stored, state) in [
            (json!("decline"), "declined"),
            (json!({ "declined": { "note": "no" } }), "declined"),
            (json!("cancel"), "canceled"),
            (json!("unavailable"), "unavailable"),
            (json!({ "accept": null }), "answered"),
        ] {
            assert_eq!(states(&[question("q"), answer("q", stored)], false), named(&[("q", state)]));
        }
    }
}
