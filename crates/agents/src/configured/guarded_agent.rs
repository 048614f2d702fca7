//! A wrapper that removes the table's secrets from a configured agent's card, from how a task ends, and from
//! why the agent is unreachable. A program, an endpoint or a remote server may repeat whatever it was sent.
//!
//! Internal errors are shown to callers of the tenant `home`; others only read that the agent failed. The
//! final message of a program or a server is not such an error.

use std::sync::Arc;

use async_trait::async_trait;
use nuncio_engine::{
    Agent, AgentError, Message, Outcome, Probe, Profile, TaskContext, content::Content, redact::KnownSecrets,
};
use serde_json::Value;

use super::{BuiltAgent, ManagedAgent};

/// An agent whose secrets are removed from everything that callers see.
struct GuardedAgent {
    agent: Arc<dyn Agent>,
    secrets: Arc<KnownSecrets>,
}

/// Wraps an agent.
pub(super) fn guard(made: BuiltAgent, secrets: &KnownSecrets) -> BuiltAgent {
    let secrets = Arc::new(secrets.clone());
    let living = made.managed.map(|living| -> Arc<dyn ManagedAgent> {
        Arc::new(GuardedManagedAgent { managed: living, secrets: Arc::clone(&secrets) })
    });
    BuiltAgent { agent: Arc::new(GuardedAgent { agent: made.agent, secrets }), managed: living }
}

#[async_trait]
impl Agent for GuardedAgent {
    fn profile(&self) -> Profile {
        clean_profile(&self.secrets, self.agent.profile())
    }

    async fn run(&self, cx: TaskContext) -> Result<Outcome, AgentError> {
        cx.hide(&self.secrets);
        let report = cx.failure_report();
        match self.agent.run(cx).await {
            Ok(outcome) => Ok(clean_outcome(&self.secrets, outcome)),
            Err(error) => Err(report.error(clean_error(&self.secrets, error))),
        }
    }

    fn probe(&self) -> Option<Arc<dyn Probe>> {
        let probe = self.agent.probe()?;
        Some(Arc::new(GuardedProbe { probe, secrets: Arc::clone(&self.secrets) }))
    }

    fn works_elsewhere(&self) -> bool {
        self.agent.works_elsewhere()
    }
}

struct GuardedProbe {
    probe: Arc<dyn Probe>,
    secrets: Arc<KnownSecrets>,
}

#[async_trait]
impl Probe for GuardedProbe {
    async fn check_reachable(&self) -> Result<(), String> {
        self.probe.check_reachable().await.map_err(|why| self.secrets.clean(&why).into_owned())
    }
}

struct GuardedManagedAgent {
    managed: Arc<dyn ManagedAgent>,
    secrets: Arc<KnownSecrets>,
}

#[async_trait]
impl ManagedAgent for GuardedManagedAgent {
    async fn wait_for_update(&self) -> Arc<dyn Agent> {
        let agent = self.managed.wait_for_update().await;
        Arc::new(GuardedAgent { agent, secrets: Arc::clone(&self.secrets) })
    }

    async fn close(&self) {
        self.managed.close().await;
    }

    async fn retire(&self) {
        self.managed.retire().await;
    }
}

fn clean_profile(secrets: &KnownSecrets, mut profile: Profile) -> Profile {
    let clean = |text: &mut String| *text = secrets.clean(text).into_owned();
    clean(&mut profile.description);
    clean(&mut profile.version);
    let mut extended = profile.extended_card.take();
    extended.iter_mut().flat_map(|more| &mut more.description).for_each(clean);
    for skill in profile.skills.iter_mut().chain(extended.iter_mut().flat_map(|more| &mut more.skills)) {
        clean(&mut skill.description);
        clean(&mut skill.name);
        skill.tags.iter_mut().chain(&mut skill.examples).for_each(clean);
    }
    profile.extended_card = extended;
    for schema in [&mut profile.input_schema, &mut profile.output_schema].into_iter().flatten() {
        clean_json(secrets, schema);
    }
    profile
}

fn clean_json(secrets: &KnownSecrets, value: &mut Value) {
    match value {
        Value::String(text) => *text = secrets.clean(text).into_owned(),
        Value::Array(items) => items.iter_mut().for_each(|item| clean_json(secrets, item)),
        Value::Object(members) => members.values_mut().for_each(|member| clean_json(secrets, member)),
        _ => {}
    }
}

fn clean_outcome(secrets: &KnownSecrets, outcome: Outcome) -> Outcome {
    let clean = |text: String| secrets.clean(&text).into_owned();
    match outcome {
        Outcome::Completed(message) => {
            Outcome::Completed(message.map(|message| clean_message(secrets, message)))
        }
        Outcome::Replied(message) => Outcome::Replied(clean_message(secrets, message)),
        Outcome::Failed(why) => Outcome::Failed(clean(why)),
        Outcome::Rejected(why) => Outcome::Rejected(clean(why)),
        Outcome::Canceled(why) => Outcome::Canceled(why.map(clean)),
    }
}

fn clean_message(secrets: &KnownSecrets, mut message: Message) -> Message {
    for part in &mut message.parts {
        match &mut part.content {
            Content::Text(text) => *text = secrets.clean(text).into_owned(),
            Content::Data(value) => clean_json(secrets, value),
            _ => {}
        }
    }
    message
}

fn clean_error(secrets: &KnownSecrets, error: AgentError) -> AgentError {
    let clean = |text: String| secrets.clean(&text).into_owned();
    match error {
        AgentError::Failed(why) => AgentError::Failed(clean(why)),
        AgentError::Unreachable(why) => AgentError::Unreachable(clean(why)),
        AgentError::Misuse(why) => AgentError::Misuse(clean(why)),
        AgentError::Nondeterministic(why) => AgentError::Nondeterministic(clean(why)),
        AgentError::Canceled => AgentError::Canceled,
    }
}
