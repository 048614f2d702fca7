//! The server's own tokens: what each may do, in words, and when it was last used. The same callers may as at
//! `/admin/tokens`.

use serde_json::{Value, json};

use super::{api::ConsoleRequest, problem::ConsoleProblem};
use crate::auth::{NewToken, TokenAdmin, TokenAdminError};

/// `GET /tokens`
pub(super) async fn list(request: &ConsoleRequest<'_>) -> Result<Value, ConsoleProblem> {
    request.check_parameters(&[])?;
    let mut listed = admin(request)?.list(&request.caller).await?;
    if let Some(tokens) = listed["tokens"].as_array_mut() {
        tokens.iter_mut().for_each(add_words);
    }
    listed["now"] = request.now().into();
    Ok(listed)
}

/// `POST /tokens`
pub(super) async fn create(request: &ConsoleRequest<'_>, token: NewToken) -> Result<Value, ConsoleProblem> {
    request.check_parameters(&[])?;
    let mut created = admin(request)?.create(&request.caller, token).await?;
    add_words(&mut created);
    Ok(created)
}

/// `DELETE /tokens/{id}`
pub(super) async fn revoke(request: &ConsoleRequest<'_>, id: &str) -> Result<Value, ConsoleProblem> {
    request.check_parameters(&["stop"])?;
    let stop = match request.parameter("stop")? {
        None | Some("false") => false,
        Some("true") => true,
        Some(_) => return Err(ConsoleProblem::bad_request("stop", "stop: expected true or false")),
    };
    let mut revoked = admin(request)?.revoke(&request.caller, id, stop).await?;
    add_words(&mut revoked);
    Ok(revoked)
}

fn admin<'a>(request: &'a ConsoleRequest<'_>) -> Result<&'a dyn TokenAdmin, ConsoleProblem> {
    let tokens = request.app.options.tokens.as_deref();
    tokens.ok_or_else(|| ConsoleProblem::not_found("this server has no tokens of its own"))
}

impl From<TokenAdminError> for ConsoleProblem {
    fn from(error: TokenAdminError) -> Self {
        match error {
            TokenAdminError::Engine(error) => error.into(),
            TokenAdminError::NoSuchToken(_) => Self::not_found(error.to_string()),
            TokenAdminError::Invalid(why) => {
                // The message begins with the member that it refuses.
                let field = why.split(':').next().filter(|field| FIELDS.contains(field)).unwrap_or_default();
                Self::bad_request(field, why.as_str())
            }
        }
    }
}

/// The members of a new token.
const FIELDS: [&str; 4] = ["name", "tenant", "scopes", "expiresIn"];

fn add_words(token: &mut Value) {
    let words: Vec<String> = token["scopes"]
        .as_array()
        .map(|scopes| scopes.iter().filter_map(Value::as_str).map(in_words).collect())
        .unwrap_or_default();
    token["scopesInWords"] = json!(words);
}

/// A scope as a person would say it: "may read and write memory team-*".
fn in_words(scope: &str) -> String {
    let mut parts = scope.splitn(3, ':');
    let (actions, kind) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let names = parts.next().filter(|names| *names != "*");
    let action = |action: &str| match (action, kind) {
        ("*", _) => "read, write and execute".to_owned(),
        ("execute", "a2a") => "send to".to_owned(),
        (action, _) => action.to_owned(),
    };
    let actions: Vec<String> = actions.split(',').map(action).collect();
    let actions = match actions.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
        None => String::new(),
    };
    let subject = match kind {
        "*" => "everything but administration",
        "a2a" => "agents and tasks",
        "memory" => "memory",
        "sparc" => "workflows",
        "batchtools" => "batches",
        "admin" => "administration",
        other => other,
    };
    match names {
        Some(names) => format!("may {actions} {subject} {names}"),
        None => format!("may {actions} {subject}"),
    }
}

#[cfg(test)]
mod tests {
    use super::in_words;

    #[test]
    fn a_scope_is_said_in_words() {
        for (scope, words) in [
            ("read:memory:team-*", "may read memory team-*"),
            ("read,write:memory:team-*", "may read and write memory team-*"),
            ("read,execute:a2a", "may read and send to agents and tasks"),
            ("execute:a2a:echo", "may send to agents and tasks echo"),
            ("*:*", "may read, write and execute everything but administration"),
            ("read:admin:server", "may read administration server"),
            ("*:admin:*", "may read, write and execute administration"),
            ("odd", "may odd "),
        ] {
            assert_eq!(in_words(scope), words);
        }
    }
}
