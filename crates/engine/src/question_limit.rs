//! How long a task may wait for an answer.

use std::{collections::HashMap, fmt, time::Duration};

use crate::{catalog::Catalog, duration};

/// The limit for a question, or for an authorization, that nobody gives. Written as a duration, or as `never`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuestionLimit {
    /// The task waits without limit.
    Never,
    /// The task fails after this time.
    After(Duration),
}

impl QuestionLimit {
    /// Parses a duration above zero, or `never`.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text {
            "never" => Ok(Self::Never),
            text => match duration::parse(text)? {
                Duration::ZERO => Err("expected more than no time, or never".into()),
                limit => Ok(Self::After(limit)),
            },
        }
    }

    /// The time after which a task fails, if there is one.
    pub fn time(self) -> Option<Duration> {
        match self {
            Self::Never => None,
            Self::After(limit) => Some(limit),
        }
    }
}

impl fmt::Display for QuestionLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Never => f.write_str("never"),
            Self::After(limit) => f.write_str(&duration::format(*limit)),
        }
    }
}

/// The limits of all agents that this node serves.
pub(crate) struct QuestionLimits {
    default: QuestionLimit,
    by_agent: HashMap<String, QuestionLimit>,
}

impl QuestionLimits {
    /// The limits as of now: the tables of agents change while the server runs.
    pub(crate) fn new(default: QuestionLimit, catalog: &Catalog) -> Self {
        let own = catalog.iter().filter_map(|registered| {
            registered.profile.question_limit.map(|limit| (registered.profile.name.clone(), limit))
        });
        Self { default, by_agent: own.collect() }
    }

    /// The limit of an agent; the default if this node does not serve it.
    pub(crate) fn of(&self, agent: &str) -> Option<Duration> {
        self.by_agent.get(agent).unwrap_or(&self.default).time()
    }

    /// The shortest limit of any agent: a task that waits for less is within its own.
    pub(crate) fn shortest(&self) -> Option<Duration> {
        self.by_agent.values().chain([&self.default]).filter_map(|limit| limit.time()).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_a_duration_or_never() {
        let check = |text: &str, expected: Result<QuestionLimit, &str>| {
            let read = QuestionLimit::parse(text);
            assert_eq!(
                read.as_ref().map_err(String::as_str),
                expected.as_ref().map_err(|why| *why),
                "{text}"
            );
            if let Ok(limit) = read {
                assert_eq!(limit.to_string(), text);
            }
        };
        check("never", Ok(QuestionLimit::Never));
        check("30d", Ok(QuestionLimit::After(Duration::from_secs(30 * 24 * 3600))));
        check("0s", Err("expected more than no time, or never"));
        check("soon", Err("\"soon\" is no length of time: write 500ms, 2s, 5m, 1h30m or 30d"));
    }
}
