//! The settings in force, for the operator, without their secrets.
//!
//! A secret is recognised by its value (`nuncio_engine::redact`) and by the name of its setting. A URL is shown without
//! its user and its parameters, whatever they look like: keys stand there.

use std::borrow::Cow;

use nuncio_engine::redact::{REDACTED, Redactor, is_secret_name};
use serde_json::{Value, json};

use super::{api::ConsoleRequest, problem::ConsoleProblem};

/// Settings whose values are shown to nobody: patterns of secrets may be the secrets themselves.
const NEVER_SHOWN: [&str; 1] = ["redact"];

/// `GET /config`
pub(super) fn show(request: &ConsoleRequest<'_>) -> Result<Value, ConsoleProblem> {
    request.check_parameters(&[])?;
    let engine = request.engine();
    engine.allow_server(&request.caller, "server.config", "admin://server/config")?;
    let settings = request.app.options.settings.iter().map(|setting| {
        json!({
            "key": setting.key,
            "value": redacted(engine.redactor(), &setting.key, &setting.value),
            "source": setting.source,
            "from": setting.from.as_deref().map(|from| engine.redactor().text(from).into_owned()),
            "about": setting.about,
        })
    });
    Ok(json!({
        "settings": settings.collect::<Vec<_>>(),
        "node": engine.node().0.to_string(),
        "version": env!("CARGO_PKG_VERSION"),
        "now": request.now(),
    }))
}

/// The value without secrets. Numbers and switches are none.
fn redacted(redactor: &Redactor, key: &str, value: &Value) -> Value {
    match value {
        Value::String(_) if is_secret_name(key) || NEVER_SHOWN.contains(&key) => REDACTED.into(),
        Value::String(text) => redactor.text(&without_url_secrets(text)).into_owned().into(),
        Value::Array(items) => items.iter().map(|item| redacted(redactor, key, item)).collect(),
        other => other.clone(),
    }
}

/// The text with every URL cut to its scheme, host and path.
fn without_url_secrets(text: &str) -> Cow<'_, str> {
    if !text.contains("://") {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, url) = rest.split_at(at + 3);
        shown.push_str(before);
        let end =
            url.find(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '<' | '>')).unwrap_or(url.len());
        let (url, after) = url.split_at(end);
        let (place, parameters) = match url.find(['?', '#']) {
            Some(at) => (&url[..at], true),
            None => (url, false),
        };
        // A password may contain a slash that was not encoded: what stands before the last @ is hidden.
        match place.rsplit_once('@') {
            Some((_, place)) => {
                shown.push_str(REDACTED);
                shown.push('@');
                shown.push_str(place);
            }
            None => shown.push_str(place),
        }
        if parameters {
            shown.push('?');
            shown.push_str(REDACTED);
        }
        rest = after;
    }
    shown.push_str(rest);
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_secret_of_a_setting_is_shown() {
        let check = |key: &str, value: Value, expected: Value| {
            assert_eq!(redacted(&Redactor::default(), key, &value), expected, "{key}");
        };
        check("listen", json!("127.0.0.1:8080"), json!("127.0.0.1:8080"));
        check("store", json!("postgres://ada:geheim@db/x"), json!("postgres://[redacted]@db/x"));
        check(
            "store",
            json!("postgres://ada:ge/h@eim@db/x?sslmode=require"),
            json!("postgres://[redacted]@db/x?[redacted]"),
        );
        check("store", json!("host=db password=geheim"), json!("host=db password=[redacted]"));
        check("otlp.endpoint", json!("https://key123@host/v1"), json!("https://[redacted]@host/v1"));
        check("model.base-url", json!("https://host/v1?key=AbC"), json!("https://host/v1?[redacted]"));
        check(
            "cors.origins",
            json!(["https://a.example", "https://u@b.example"]),
            json!(["https://a.example", "https://[redacted]@b.example"]),
        );
        check(
            "sparc.test-command",
            json!("run --token=abc https://u:p@h/x then"),
            json!("run --token=[redacted] https://[redacted]@h/x then"),
        );
        check("some.api-key", json!("looks harmless"), json!(REDACTED));
        check("redact", json!(["ACME-1", "x"]), json!([REDACTED, REDACTED]));
        check("limits.tokens-per-tenant", json!(10_000), json!(10_000));
        check("model.key-variable", json!("MODEL_KEY"), json!("MODEL_KEY"));
        check("auth", Value::Null, Value::Null);
    }
}
