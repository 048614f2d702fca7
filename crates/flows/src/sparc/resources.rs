//! The SPARC resources: workflows, artifacts, histories, templates and the agents' capabilities.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use nuncio_engine::{
    AccessKind, Caller, Surface,
    clock::Timestamp,
    surface::{
        HandlerError, HandlerReply, HandlerRequest, Resource, ResourceContent, ResourceProfile, Template,
        output_schema,
    },
};
use serde::Serialize;
use serde_json::json;

use super::{
    api::{ArtifactAnswer, CapabilitiesAnswer, PhaseTemplateAnswer, WorkflowAnswer, WorkflowHistoryAnswer},
    phase::{SparcPhase, SparcRole},
    templates, view,
    workflows::{MAX_PAGE, Workflows},
};
use crate::resource::{CachePolicy, ResourceDetails, content, profile};

pub(super) const WORKFLOW: &str = "sparc://workflow/{contextId}";
pub(super) const ARTIFACT: &str = "sparc://workflow/{contextId}/artifacts/{phase}/{version}";
const HISTORY: &str = "sparc://workflow/{contextId}/history{?after,limit}";
const TEMPLATE: &str = "sparc://phase/{phase}/template";
const CAPABILITIES: &str = "sparc://agent/{agentType}/capabilities";

/// Maximum values that a completion returns.
const COMPLETIONS: usize = 100;
/// Entries of a history on a page by default.
const PAGE: usize = 50;

type SparcReadResult = Result<HandlerReply<Vec<ResourceContent>>, HandlerError>;

/// A URI template with its variables filled in.
pub(super) fn expand(template: &str, values: &[(&str, &str)]) -> String {
    let values = values.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    nuncio_engine::surface::expand(template, &values)
}

/// The URI of a workflow.
pub(super) fn workflow_uri(context_id: &str) -> String {
    expand(WORKFLOW, &[("contextId", context_id)])
}

/// The URI of an artifact.
pub(super) fn artifact_uri(context_id: &str, phase: SparcPhase, version: u32) -> String {
    let version = version.to_string();
    let values = [("contextId", context_id), ("phase", phase.name()), ("version", &version)];
    expand(ARTIFACT, &values)
}

/// The state that all SPARC resources share.
#[derive(Clone)]
struct SparcResources {
    workflows: Workflows,
    surface: Arc<Surface>,
    /// When the server started: the modification time of resources that never change.
    since: Timestamp,
}

/// Registers the resources.
pub(super) fn install(workflows: &Workflows, surface: &Arc<Surface>) {
    let since = workflows.engine().clock().now();
    let shelf = SparcResources { workflows: workflows.clone(), surface: Arc::clone(surface), since };
    surface.add_schema("sparc-workflow", output_schema::<WorkflowAnswer>());
    surface.add_schema("sparc-artifact", output_schema::<ArtifactAnswer>());
    surface.add_schema("sparc-history", output_schema::<WorkflowHistoryAnswer>());
    surface.add_schema("sparc-template", output_schema::<PhaseTemplateAnswer>());
    surface.add_schema("sparc-capabilities", output_schema::<CapabilitiesAnswer>());
    for family in [
        SparcResourceFamily::Workflow,
        SparcResourceFamily::Artifact,
        SparcResourceFamily::History,
        SparcResourceFamily::Template,
        SparcResourceFamily::Capabilities,
    ] {
        surface.add_template(SparcTemplateResource { shelf: shelf.clone(), family });
    }
    for phase in SparcPhase::ALL {
        let uri = expand(TEMPLATE, &[("phase", phase.name())]);
        let name = format!("sparc-{phase}-template");
        let about = format!(
            "What belongs into the artifact of the {phase} phase, with guidelines, a worked example and the JSON Schema that its gate applies."
        );
        let profile = profile(&uri, &name, &about, CachePolicy::Static);
        let variables = ("phase", phase.name());
        surface.add_resource(SparcFixedResource {
            shelf: shelf.clone(),
            profile,
            family: SparcResourceFamily::Template,
            variables,
        });
    }
    for role in SparcRole::ALL {
        let uri = expand(CAPABILITIES, &[("agentType", role.name())]);
        let name = format!("sparc-{}-capabilities", role.name());
        let about = format!("What the agent {} can do, from its live card.", role.name());
        let profile = profile(&uri, &name, &about, CachePolicy::Static);
        let variables = ("agentType", role.name());
        surface.add_resource(SparcFixedResource {
            shelf: shelf.clone(),
            profile,
            family: SparcResourceFamily::Capabilities,
            variables,
        });
    }
}

/// The kinds of SPARC resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SparcResourceFamily {
    Workflow,
    Artifact,
    History,
    Template,
    Capabilities,
}

struct SparcTemplateResource {
    shelf: SparcResources,
    family: SparcResourceFamily,
}

#[async_trait]
impl Template for SparcTemplateResource {
    fn profile(&self) -> ResourceProfile {
        let (uri, name, about, policy) = match self.family {
            SparcResourceFamily::Workflow => (
                WORKFLOW,
                "sparc-workflow",
                "A SPARC workflow: its phases with their gates, its artifacts, who works on it.",
                CachePolicy::Dynamic,
            ),
            SparcResourceFamily::Artifact => {
                (ARTIFACT, "sparc-artifact", "One version of the artifact of a phase.", CachePolicy::Dynamic)
            }
            SparcResourceFamily::History => (
                HISTORY,
                "sparc-history",
                "Who did what to a workflow, oldest first; after: the last entry that is known, limit: how many.",
                CachePolicy::Dynamic,
            ),
            SparcResourceFamily::Template => {
                (TEMPLATE, "sparc-template", "The template of a phase's artifact.", CachePolicy::Static)
            }
            SparcResourceFamily::Capabilities => {
                (CAPABILITIES, "sparc-capabilities", "What a type of agent can do.", CachePolicy::Static)
            }
        };
        profile(uri, name, about, policy)
    }

    async fn read(&self, uri: &str, request: HandlerRequest) -> SparcReadResult {
        self.shelf.read(self.family, uri, &request).await
    }

    /// The existing workflows. The fixed resources of the other kinds are registered one by one.
    async fn list(
        &self,
        caller: &Caller,
        after: Option<&str>,
        limit: usize,
    ) -> Result<(Vec<ResourceProfile>, Option<String>), HandlerError> {
        if self.family != SparcResourceFamily::Workflow {
            return Ok((vec![], None));
        }
        let page = self.shelf.workflows.list(caller, "", after.unwrap_or_default(), limit).await;
        let (found, next) = page.map_err(|error| error.of_resource(WORKFLOW))?;
        let shown = found.iter().map(|stored| {
            let workflow = &stored.workflow;
            let name = format!("sparc-workflow-{}", workflow.context_id);
            let about = format!("A SPARC workflow, at {}.", workflow.current);
            profile(&workflow_uri(&workflow.context_id), &name, &about, CachePolicy::Dynamic)
        });
        Ok((shown.collect(), next))
    }

    async fn complete(
        &self,
        caller: &Caller,
        variable: &str,
        typed: &str,
        known: &BTreeMap<String, String>,
    ) -> Vec<String> {
        let begins = |value: &String| value.starts_with(typed);
        match variable {
            "phase" => SparcPhase::ALL.iter().map(|phase| phase.name().to_owned()).filter(begins).collect(),
            "agentType" => SparcRole::ALL.iter().map(|role| role.name().to_owned()).filter(begins).collect(),
            "contextId" => match self.shelf.workflows.list(caller, typed, "", COMPLETIONS).await {
                Ok((found, _)) => found.into_iter().map(|stored| stored.workflow.context_id).collect(),
                Err(_) => vec![],
            },
            "version" => self.shelf.versions(caller, known).await.into_iter().filter(begins).collect(),
            _ => vec![],
        }
    }
}

/// One resource of a kind that has a fixed number of them.
struct SparcFixedResource {
    shelf: SparcResources,
    profile: ResourceProfile,
    family: SparcResourceFamily,
    variables: (&'static str, &'static str),
}

#[async_trait]
impl Resource for SparcFixedResource {
    fn profile(&self) -> ResourceProfile {
        self.profile.clone()
    }

    async fn read(&self, mut request: HandlerRequest) -> SparcReadResult {
        let (name, value) = self.variables;
        request.arguments.insert(name.into(), value.into());
        self.shelf.read(self.family, &self.profile.uri, &request).await
    }
}

impl SparcResources {
    async fn read(
        &self,
        family: SparcResourceFamily,
        uri: &str,
        request: &HandlerRequest,
    ) -> SparcReadResult {
        let caller = &request.caller;
        let context_id = request.text("contextId").unwrap_or_default();
        let missing = || HandlerError::NotFound(uri.to_owned());
        let of_resource = |error: super::error::SparcError| error.of_resource(uri);
        let dynamic = |schema, modified| ResourceDetails {
            kind: AccessKind::Sparc,
            name: context_id,
            schema,
            modified,
            policy: CachePolicy::Dynamic,
        };
        let read = match family {
            SparcResourceFamily::Workflow => {
                let stored = self.workflows.get(caller, context_id).await.map_err(of_resource)?;
                let about = dynamic("sparc-workflow", stored.updated_at);
                content(&self.surface, caller, uri, &about, &view::workflow(&stored))
            }
            SparcResourceFamily::Artifact => {
                let phase = request.text("phase").and_then(|phase| phase.parse().ok()).ok_or_else(missing)?;
                // One URI per artifact: a sign or leading zeros are refused.
                let version = request.text("version").unwrap_or_default();
                let number: u32 = version.parse().map_err(|_| missing())?;
                if number.to_string() != version {
                    return Err(missing());
                }
                let found = self.workflows.artifact(caller, context_id, phase, number).await;
                let artifact = found.map_err(of_resource)?;
                let about = dynamic("sparc-artifact", artifact.note.created);
                content(&self.surface, caller, uri, &about, &view::artifact(context_id, &artifact))
            }
            SparcResourceFamily::History => {
                let (after, limit) = (number(request, "after", 0)?, number(request, "limit", PAGE as u64)?);
                let limit = usize::try_from(limit).unwrap_or(0);
                if limit == 0 || limit > MAX_PAGE {
                    return Err(HandlerError::Invalid(format!("limit: 1 to {MAX_PAGE}")));
                }
                let found = self.workflows.history(caller, context_id, after, limit).await;
                let (stored, entries) = found.map_err(of_resource)?;
                let about = dynamic("sparc-history", stored.updated_at);
                content(&self.surface, caller, uri, &about, &view::history(&stored, &entries))
            }
            SparcResourceFamily::Template => {
                self.workflows.allow_any(caller, "sparc.template", uri)?;
                let phase = request.text("phase").and_then(|phase| phase.parse().ok()).ok_or_else(missing)?;
                self.fixed(uri, "sparc-template", &templates::PhaseTemplate::of(phase).to_json())
            }
            SparcResourceFamily::Capabilities => {
                self.workflows.allow_any(caller, "sparc.capabilities", uri)?;
                let named = request.text("agentType");
                let role =
                    SparcRole::ALL.into_iter().find(|role| Some(role.name()) == named).ok_or_else(missing)?;
                let agent = self.workflows.engine().catalog().get(role.name()).map_err(|_| missing())?;
                self.fixed(uri, "sparc-capabilities", &view::capabilities(role, &agent.profile))
            }
        };
        Ok(HandlerReply::Done(vec![read]))
    }

    /// A resource that never changes while the server runs; its permissions are read-only for every caller.
    fn fixed(&self, uri: &str, schema: &str, value: &impl Serialize) -> ResourceContent {
        let about = ResourceDetails {
            kind: AccessKind::Sparc,
            name: "*",
            schema,
            modified: self.since,
            policy: CachePolicy::Static,
        };
        let mut read = content(&self.surface, &Caller::local(), uri, &about, value);
        if let Some(meta) = &mut read.meta {
            meta.insert("permissions".into(), json!(["read"]));
        }
        read
    }

    async fn versions(&self, caller: &Caller, known: &BTreeMap<String, String>) -> Vec<String> {
        let (Some(context_id), Some(Ok(phase))) =
            (known.get("contextId"), known.get("phase").map(|phase| phase.parse::<SparcPhase>()))
        else {
            return vec![];
        };
        let Ok(stored) = self.workflows.get(caller, context_id).await else { return vec![] };
        let of_phase = stored.workflow.artifacts.iter().rev().filter(|note| note.phase == phase);
        of_phase.map(|note| note.version.to_string()).take(COMPLETIONS).collect()
    }
}

/// A number in the query of a URI.
fn number(request: &HandlerRequest, name: &str, default: u64) -> Result<u64, HandlerError> {
    match request.text(name) {
        None => Ok(default),
        Some(text) => {
            text.parse().map_err(|_| HandlerError::Invalid(format!("{name}: {text:?} is not a whole number")))
        }
    }
}
