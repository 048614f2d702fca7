//! Who sent a message, an answer or a cancel request, and over which protocol.
//!
//! It is a part of the log's events, for the people of the task: the console shows it. A task's fold does not have it, and
//! no binding of A2A or MCP writes it, so that no client learns the name of another caller.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::access::{Caller, HOME_TENANT, tenant_of};

/// The sender of an event. Stored with the event; members are only ever added.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentBy {
    /// The caller's owner name. `None`: the task's own owner, which is the usual case and costs nothing to store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    caller: Option<String>,
    /// The label that the binding gave its caller; see [`Caller::over`].
    dialect: Cow<'static, str>,
}

impl SentBy {
    /// This caller, as the sender of an event in a task of this owner.
    pub(crate) fn of(caller: &Caller, task_owner: &str) -> Self {
        let name = caller.owner();
        Self {
            caller: (name != task_owner).then(|| name.to_owned()),
            dialect: Cow::Borrowed(caller.dialect()),
        }
    }

    /// The owner of a task as the sender of an event in it, for an event that is stored without one.
    pub fn owner_over(dialect: impl Into<Cow<'static, str>>) -> Self {
        Self { caller: None, dialect: dialect.into() }
    }

    /// The sender's owner name, as far as `viewer` may know it: a caller of another tenant is not named, except to
    /// callers of the tenant `home`.
    pub fn caller_for<'a>(&'a self, viewer: &Caller, task_owner: &'a str) -> Option<&'a str> {
        let name = self.caller.as_deref().unwrap_or(task_owner);
        let knows = viewer.tenant() == HOME_TENANT || viewer.tenant() == tenant_of(name);
        knows.then_some(name)
    }

    /// The protocol and its version, such as `a2a/1.0`.
    pub fn dialect(&self) -> &str {
        &self.dialect
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_of_another_tenant_is_named_at_home_only() {
        let by = SentBy::of(&Caller::local().over("operator"), "acme/ada");
        let seen = |viewer: &str| by.caller_for(&Caller::named(viewer.to_owned()), "acme/ada");
        assert_eq!(seen("acme/ada"), None);
        assert_eq!(seen("other/bob"), None);
        assert_eq!(seen("local"), Some("local"));
        assert_eq!(by.dialect(), "operator");
        let own = SentBy::of(&Caller::named("acme/ada").over("a2a/1.0"), "acme/ada");
        assert_eq!(own.caller_for(&Caller::named("acme/bob"), "acme/ada"), Some("acme/ada"));
        assert_eq!(own.caller_for(&Caller::named("other/bob"), "acme/ada"), None);
    }

    /// The limit that the send path was given: a sender costs few bytes, and none for the message that creates a task.
    #[test]
    fn the_owner_of_a_task_costs_no_name() {
        let by = SentBy::of(&Caller::named("acme/ada").over("mcp/2026-07-28"), "acme/ada");
        assert_eq!(serde_json::to_string(&by).unwrap(), r#"{"dialect":"mcp/2026-07-28"}"#);
    }
}
