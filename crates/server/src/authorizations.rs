//! The page at which a person completes an authorization that a task waits for; see `nuncio_engine::authorization`.
//!
//! The address is the permission, and needs no token. To read the page changes nothing, because crawlers and
//! previews of links read it as well; its button does. A page of another site can neither know the address nor press the
//! button: requests with a foreign `Origin` are refused before they arrive here, and the page cannot be framed.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::State,
    http::{HeaderValue, Response, StatusCode, Uri, header},
};
use nuncio_engine::{Error, authorization::CALLBACK_PATH};

use crate::app::App;

const BUTTON: &str = "<form method=\"post\"><button>Continue the task</button></form>";

/// `GET /authorizations/{ticket}`: what is asked, and the button.
pub(crate) async fn show(State(app): State<Arc<App>>, uri: Uri) -> Response<Body> {
    match app.engine.authorization(ticket(&uri)).await {
        Ok(question) => page(StatusCode::OK, &question.text, BUTTON),
        Err(error) => refusal(&error),
    }
}

/// `POST /authorizations/{ticket}`: the task continues, once.
pub(crate) async fn complete(State(app): State<Arc<App>>, uri: Uri) -> Response<Body> {
    match app.engine.complete_authorization(ticket(&uri)).await {
        Ok(()) => page(StatusCode::OK, "Thank you. The task continues; this page can be closed.", ""),
        Err(error) => refusal(&error),
    }
}

/// The ticket as it was sent: it needs no decoding.
fn ticket(uri: &Uri) -> &str {
    uri.path().strip_prefix(CALLBACK_PATH).unwrap_or_default()
}

fn refusal(error: &Error) -> Response<Body> {
    let (status, text) = match error {
        Error::NoSuchTask(_) => (
            StatusCode::NOT_FOUND,
            "There is no authorization at this address: was it copied whole?".to_owned(),
        ),
        Error::NotAsked(_) | Error::Ended(_) | Error::Unanswered(_) => (
            StatusCode::GONE,
            "This authorization is no longer awaited: it was completed, or the task has gone on without it."
                .to_owned(),
        ),
        Error::Suspended(..) => (StatusCode::FORBIDDEN, error.to_string()),
        Error::Busy { .. } => (StatusCode::SERVICE_UNAVAILABLE, error.to_string()),
        error => {
            tracing::error!(%error, "an authorization could not be completed");
            (
                StatusCode::INTERNAL_SERVER_ERROR,
                "The authorization could not be completed: try again.".to_owned(),
            )
        }
    };
    page(status, &text, "")
}

/// A page with this text, which an agent may have written, and nothing from elsewhere.
fn page(status: StatusCode, text: &str, below: &str) -> Response<Body> {
    // The form's request names its origin only if the page has a referrer to give; the header of all pages has none.
    let body = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><meta name=\"referrer\" content=\"same-origin\">\
         <title>Authorization</title></head><body><p>{}</p>{below}</body></html>\n",
        escape(text)
    );
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("text/html; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            letter => escaped.push(letter),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_agent_writes_is_text() {
        let text = escape("<script>alert('x' && \"y\")</script>");
        assert_eq!(text, "&lt;script&gt;alert(&#39;x&#39; &amp;&amp; &quot;y&quot;)&lt;/script&gt;");
    }
}
