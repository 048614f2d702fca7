//! Open questions, and their answers.

use nuncio_engine::{
    AccessKind, Action, Answer, Caller, Engine, Error,
    access::TASKS,
    engine::{ClosedQuestion, Inbox, InboxQuestion},
};
use nuncio_wire::timestamp;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::{api::ConsoleRequest, problem::ConsoleProblem, sender::SenderView, tasks::MAX_ROWS};

/// The questions of a page.
const PAGE: u64 = 50;

/// `GET /questions`
pub(super) async fn list(request: &ConsoleRequest<'_>) -> Result<Value, ConsoleProblem> {
    request.check_parameters(&["limit", "cursor"])?;
    let limit = request.number("limit", MAX_ROWS)?.unwrap_or(PAGE) as usize;
    let skipped = match request.parameter("cursor")? {
        None => 0,
        Some(cursor) => cursor.parse::<usize>().map_err(|_| {
            ConsoleProblem::bad_request("cursor", "cursor: it is not from a page of questions")
        })?,
    };
    let open = request.engine().open_questions(&request.caller).await?;
    let total = open.questions.len();
    let shown: Vec<Value> =
        open.questions.iter().skip(skipped).take(limit).map(|question| view(request, question)).collect();
    let next = skipped + shown.len();
    Ok(json!({
        "questions": shown,
        "next": (next < total && limit > 0).then(|| next.to_string()),
        "total": total,
        "more": open.is_cut,
        "liveCursor": live_cursor(&open),
        "now": request.now(),
        "lastClosed": null,
    }))
}

/// The cursor of the topic `questions`: what is open. Two equal ones mean that nothing was asked or closed between them.
pub(super) fn live_cursor(open: &Inbox) -> String {
    let mut digest = Sha256::new();
    for question in &open.questions {
        digest.update(question.task.0.as_bytes());
        digest.update(question.question.id.as_bytes());
        digest.update([0]);
    }
    let digest = digest.finalize();
    digest[..8].iter().fold("q-".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}

/// A question as JSON.
pub(super) fn view(request: &ConsoleRequest<'_>, open: &InboxQuestion) -> Value {
    let may_answer = request.caller.may(Action::Write, AccessKind::A2a, TASKS);
    question_view(open, may_answer)
}

pub(super) fn question_view(open: &InboxQuestion, may_answer: bool) -> Value {
    let path: Vec<Value> =
        open.path.iter().map(|(task, agent)| json!({ "taskId": task.to_string(), "agent": agent })).collect();
    json!({
        "taskId": open.task.to_string(),
        "questionId": open.question.id,
        "seq": open.seq,
        "askedAt": timestamp::format(open.asked_at),
        "agent": open.agent,
        "owner": open.owner,
        "contextId": open.context,
        "text": open.question.text,
        "ask": open.question.ask,
        "path": path,
        "mayAnswer": may_answer,
    })
}

/// The refusal of an answer that came too late, with what became of the question.
async fn closed_problem(
    request: &ConsoleRequest<'_>,
    id: &str,
    question: &str,
    error: Error,
) -> ConsoleProblem {
    let problem = ConsoleProblem::from(error);
    let (engine, caller) = (request.engine(), &request.caller);
    let (Ok(summary), Ok(closure)) =
        (engine.task_summary(caller, id).await, engine.question_closure(caller, id, question, 0).await)
    else {
        return problem;
    };
    let problem = problem.with("state", summary.state.name()).with("lastEvent", summary.seq);
    match closure {
        Some(closure) => problem.with("closed", closure_view(&closure, caller, &summary.origin.owner)),
        None => problem,
    }
}

/// How a question was closed, as JSON.
fn closure_view(closed: &ClosedQuestion, viewer: &Caller, task_owner: &str) -> Value {
    let by = closed.by.as_ref().map(|by| SenderView::of(by, viewer, task_owner));
    json!({ "how": closed.how.name(), "at": timestamp::format(closed.at), "by": by })
}

/// A question that is no longer open, as JSON.
pub(super) async fn closed_view(engine: &Engine, caller: &Caller, asked: &InboxQuestion) -> Value {
    let (task, question) = (asked.task.to_string(), &asked.question.id);
    let closure = engine.question_closure(caller, &task, question, asked.seq).await;
    // A task that was deleted meanwhile has no log.
    let mut view = match closure {
        Ok(Some(closure)) => closure_view(&closure, caller, &asked.owner),
        Ok(None) | Err(_) => json!({ "how": null, "at": null, "by": null }),
    };
    view["taskId"] = task.into();
    view["questionId"] = question.as_str().into();
    view
}

/// An answer as a person gives it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "an object")]
pub(super) struct NewAnswer {
    question_id: String,
    action: AnswerAction,
    content: Option<Value>,
    note: Option<String>,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "lowercase")]
pub(super) enum AnswerAction {
    Accept,
    Decline,
    Cancel,
    Unavailable,
}

/// `POST /tasks/{id}/answers`
pub(super) async fn answer(
    request: &ConsoleRequest<'_>,
    id: &str,
    given: NewAnswer,
) -> Result<Value, ConsoleProblem> {
    request.check_parameters(&[])?;
    let NewAnswer { question_id, action, content, note } = given;
    let answer = answer_of(action, content, note.as_deref())?;
    let task = match request.engine().answer(&request.caller, id, &question_id, &answer).await {
        Ok(task) => task,
        Err(error @ (Error::NotAsked(_) | Error::Ended(_) | Error::Unanswered(_))) => {
            return Err(closed_problem(request, id, &question_id, error).await);
        }
        Err(error) => return Err(error.into()),
    };
    Ok(json!({
        "taskId": task.origin.id.to_string(),
        "questionId": question_id,
        "state": task.state.name(),
        "lastEvent": task.seq,
    }))
}

/// The engine's answer.
pub(super) fn answer_of(
    action: AnswerAction,
    content: Option<Value>,
    note: Option<&str>,
) -> Result<Answer, ConsoleProblem> {
    if note.is_some() && !matches!(action, AnswerAction::Decline) {
        return Err(ConsoleProblem::bad_request("note", "note: only a decline has one"));
    }
    if content.is_some() && !matches!(action, AnswerAction::Accept) {
        return Err(ConsoleProblem::bad_request("content", "content: only an accepted answer has one"));
    }
    Ok(match action {
        AnswerAction::Accept => Answer::Accept(content.unwrap_or_else(|| Value::Object(Map::new()))),
        AnswerAction::Decline => Answer::decline(note.unwrap_or_default()),
        AnswerAction::Cancel => Answer::Cancel,
        AnswerAction::Unavailable => Answer::Unavailable,
    })
}
