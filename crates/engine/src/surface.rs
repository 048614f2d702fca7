//! The tools, resources and prompts that a program provides beside its agents.
//!
//! A tool here returns at once and stores nothing. Work that takes time, asks questions or must survive a
//! crash is an agent: it is a tool as well, with a durable task behind every call. A handler that needs input
//! returns its questions and is called again with the answers, so that no call stays open meanwhile.

mod cost;
mod derived_schema;
mod handler;
mod list_changes;
mod meta;
mod prompts;
mod resources;
mod schema;
mod tool_group;
mod tools;
mod typed_tool;

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use serde_json::Value;
use tokio::sync::broadcast;

pub use self::{
    derived_schema::{input_schema, limit_field, output_schema},
    handler::{
        Abilities, Answers, HandlerError, HandlerQuestion, HandlerQuestions, HandlerReply, HandlerRequest,
    },
    list_changes::{LIST_URI, ListChanges},
    meta::{CachePolicy, ResourceDescription, STATIC_FRESH_MS},
    prompts::{Prompt, PromptArgument, PromptMessage, PromptOutput, PromptProfile},
    resources::{
        Resource, ResourceBody, ResourceContent, ResourceProfile, Template, access_of, expand, matches,
        normalized,
    },
    schema::{
        BoundedText, CompiledSchema, MAX_EXPLAINED, MAX_EXPLANATION, MAX_SCHEMA_BYTES, MAX_SCHEMA_COST,
        MAX_SCHEMA_DEPTH, MAX_SUBSCHEMAS, SchemaError, VALIDATION_DEADLINE, check_foreign_cost, is_cheap,
        limit_foreign_cost, validate_off_worker,
    },
    tool_group::ToolGroup,
    tools::{ContentBlock, Tool, ToolOutput, ToolProfile, tool},
    typed_tool::{
        ToolCall, TypedOutput, TypedReply, TypedTool, structured_tool, task_arguments, typed_reply,
        typed_tool,
    },
};

/// How many changes a slow listener may lag behind before it gets [`SurfaceChange::Missed`].
const CHANGES: usize = 1024;

/// A notification for listeners.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SurfaceChange {
    /// The list of tools has changed.
    Tools,
    /// The list of prompts has changed.
    Prompts,
    /// The list of resources has changed.
    Resources,
    /// The content of a resource has changed.
    Updated(ResourceUpdate),
    /// Changes may have been lost: every subscriber must read its resources again.
    Missed,
}

/// One or several resources whose content has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceUpdate {
    /// The URI of the resource, or their common prefix.
    pub uri: Arc<str>,
    /// The tenant that owns it: other tenants have another resource of that URI. `None`: shared by all
    /// tenants.
    pub tenant: Option<Arc<str>>,
    /// Whether it means all resources whose URIs begin with `uri`.
    pub within: bool,
    /// For searches: the key that was written or deleted. It means only searches whose pattern matches it.
    pub key: Option<Arc<str>>,
}

impl ResourceUpdate {
    /// Whether a subscriber of that URI, in that tenant, is affected. URIs that differ only in their
    /// percent-encoding denote the same resource.
    pub fn concerns(&self, tenant: &str, uri: &str) -> bool {
        if self.tenant.as_deref().is_some_and(|owner| owner != tenant) {
            return false;
        }
        let mut followed = units(uri);
        units(&self.uri).all(|unit| followed.next() == Some(unit))
            && (self.within || followed.next().is_none())
            && self.key.as_deref().is_none_or(|key| finds(uri, key))
    }
}

/// Whether a search may find that key. A search for words in values always may.
fn finds(search: &str, key: &str) -> bool {
    let found = matches(crate::memory::SEARCH_TEMPLATE, search);
    found.is_none_or(|found| found.get("pattern").is_none_or(|pattern| crate::memory::fits(pattern, key)))
}

/// The percent-decoded bytes of a URI, each with whether it is an encoded slash, which separates nothing.
fn units(uri: &str) -> impl Iterator<Item = (u8, bool)> {
    let bytes = uri.as_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        let byte = *bytes.get(at)?;
        let digit = |at: usize| bytes.get(at).and_then(|byte| char::from(*byte).to_digit(16));
        at += 1;
        if byte == b'%'
            && let (Some(high), Some(low)) = (digit(at), digit(at + 1))
        {
            at += 2;
            let byte = (high * 16 + low) as u8;
            return Some((byte, byte == b'/'));
        }
        Some((byte, false))
    })
}

type Resources = BTreeMap<String, Arc<SurfaceItem<dyn Resource, ResourceProfile>>>;
type Prompts = BTreeMap<String, Arc<SurfaceItem<dyn Prompt, PromptProfile>>>;

/// The tools, resources and prompts of a server. They may change while it runs.
pub struct Surface {
    tools: RwLock<BTreeMap<String, Arc<SurfaceTool>>>,
    resources: RwLock<Resources>,
    templates: RwLock<Vec<Arc<SurfaceItem<dyn Template, ResourceProfile>>>>,
    prompts: RwLock<Prompts>,
    schemas: RwLock<BTreeMap<String, Arc<Value>>>,
    base_url: RwLock<String>,
    aliases: RwLock<Vec<(String, String)>>,
    changes: broadcast::Sender<SurfaceChange>,
    list_changes: ListChanges,
}

/// A handler with its description, which is read once.
pub struct SurfaceItem<H: ?Sized, P> {
    /// The handler's description in listings.
    pub profile: P,
    /// The handler of requests.
    pub handler: Arc<H>,
}

/// A tool with the schemas against which its calls are validated.
pub struct SurfaceTool {
    /// The tool's description in listings.
    pub profile: ToolProfile,
    /// The handler of calls.
    pub handler: Arc<dyn Tool>,
    /// The schema of the arguments.
    pub input: CompiledSchema,
    /// The schema of structured results, if the tool has one.
    pub output: Option<CompiledSchema>,
}

impl Default for Surface {
    fn default() -> Self {
        Self {
            tools: RwLock::default(),
            resources: RwLock::default(),
            templates: RwLock::default(),
            prompts: RwLock::default(),
            schemas: RwLock::default(),
            base_url: RwLock::default(),
            aliases: RwLock::default(),
            changes: broadcast::Sender::new(CHANGES),
            list_changes: ListChanges::default(),
        }
    }
}

impl Surface {
    /// Adds a tool, replacing one of the same name. The error names the schema that cannot be used.
    pub fn add_tool(&self, tool: impl Tool) -> Result<(), SchemaError> {
        let profile = tool.profile();
        let input = CompiledSchema::compile(&profile.input_schema)?;
        let output = profile.output_schema.as_ref().map(CompiledSchema::compile).transpose()?;
        let offered = SurfaceTool { profile, handler: Arc::new(tool), input, output };
        write(&self.tools).insert(offered.profile.name.clone(), Arc::new(offered));
        self.broadcast_change(SurfaceChange::Tools);
        Ok(())
    }

    /// Removes a tool. Returns whether it existed.
    pub fn remove_tool(&self, name: &str) -> bool {
        let removed = write(&self.tools).remove(name).is_some();
        if removed {
            self.broadcast_change(SurfaceChange::Tools);
        }
        removed
    }

    /// Adds a resource, replacing one of the same URI.
    pub fn add_resource(&self, resource: impl Resource) {
        let offered =
            SurfaceItem { profile: resource.profile(), handler: Arc::new(resource) as Arc<dyn Resource> };
        write(&self.resources).insert(offered.profile.uri.clone(), Arc::new(offered));
        self.broadcast_change(SurfaceChange::Resources);
    }

    /// Removes a resource. Returns whether it existed.
    pub fn remove_resource(&self, uri: &str) -> bool {
        let removed = write(&self.resources).remove(uri).is_some();
        if removed {
            self.broadcast_change(SurfaceChange::Resources);
        }
        removed
    }

    /// Adds a resource template.
    pub fn add_template(&self, template: impl Template) {
        let offered =
            SurfaceItem { profile: template.profile(), handler: Arc::new(template) as Arc<dyn Template> };
        write(&self.templates).push(Arc::new(offered));
        self.broadcast_change(SurfaceChange::Resources);
    }

    /// Adds a prompt, replacing one of the same name.
    pub fn add_prompt(&self, prompt: impl Prompt) {
        let offered = SurfaceItem { profile: prompt.profile(), handler: Arc::new(prompt) as Arc<dyn Prompt> };
        write(&self.prompts).insert(offered.profile.name.clone(), Arc::new(offered));
        self.broadcast_change(SurfaceChange::Prompts);
    }

    /// Removes a prompt. Returns whether it existed.
    pub fn remove_prompt(&self, name: &str) -> bool {
        let removed = write(&self.prompts).remove(name).is_some();
        if removed {
            self.broadcast_change(SurfaceChange::Prompts);
        }
        removed
    }

    /// Notifies listeners that the content of a resource has changed.
    pub fn updated(&self, uri: &str) {
        self.broadcast_change(SurfaceChange::Updated(ResourceUpdate {
            uri: uri.into(),
            tenant: None,
            within: false,
            key: None,
        }));
    }

    /// Notifies listeners that the content of a tenant's resource has changed.
    pub fn updated_for(&self, tenant: &str, uri: &str) {
        let tenant = Some(tenant.into());
        self.broadcast_change(SurfaceChange::Updated(ResourceUpdate {
            uri: uri.into(),
            tenant,
            within: false,
            key: None,
        }));
    }

    /// Like [`Surface::updated_for`], for all resources of a tenant whose URIs begin with `prefix`.
    pub fn updated_within(&self, tenant: &str, prefix: &str) {
        let tenant = Some(tenant.into());
        self.broadcast_change(SurfaceChange::Updated(ResourceUpdate {
            uri: prefix.into(),
            tenant,
            within: true,
            key: None,
        }));
    }

    /// Like [`Surface::updated_within`], only for searches that may find `key`.
    pub fn updated_search(&self, tenant: &str, prefix: &str, key: &str) {
        let (tenant, key) = (Some(tenant.into()), Some(key.into()));
        self.broadcast_change(SurfaceChange::Updated(ResourceUpdate {
            uri: prefix.into(),
            tenant,
            within: true,
            key,
        }));
    }

    /// Notifies listeners that changes may have been lost.
    pub(crate) fn missed(&self) {
        self.broadcast_change(SurfaceChange::Missed);
    }

    /// Publishes a JSON Schema under a name, at [`Surface::schema_url`].
    pub fn add_schema(&self, name: impl Into<String>, schema: Value) {
        write(&self.schemas).insert(name.into(), Arc::new(schema));
    }

    /// The schema of that name.
    pub fn schema(&self, name: &str) -> Option<Arc<Value>> {
        read(&self.schemas).get(name).cloned()
    }

    /// Where the schema of that name is published.
    pub fn schema_url(&self, name: &str) -> String {
        format!("{}/schemas/{name}.json", read(&self.base_url))
    }

    /// The server's base URL, without a trailing slash; empty if it listens nowhere.
    pub fn base_url(&self) -> String {
        read(&self.base_url).clone()
    }

    /// Sets the server's base URL.
    pub fn set_base_url(&self, url: &str) {
        *write(&self.base_url) = url.trim_end_matches('/').into();
    }

    /// Makes `mcp://{host}/{scheme}/…` an alias of `{scheme}://…`, for these hosts.
    pub fn set_aliases(&self, hosts: &[String], schemes: &[&str]) {
        let mut aliases = vec![];
        for host in hosts {
            aliases.extend(
                schemes.iter().map(|scheme| (format!("mcp://{host}/{scheme}/"), format!("{scheme}://"))),
            );
        }
        *write(&self.aliases) = aliases;
    }

    /// The URI behind an alias; any other URI is returned unchanged.
    pub fn canonical<'a>(&self, uri: &'a str) -> Cow<'a, str> {
        for (alias, meant) in &*read(&self.aliases) {
            if let Some(rest) = uri.strip_prefix(alias.as_str()) {
                return Cow::Owned(format!("{meant}{rest}"));
            }
        }
        Cow::Borrowed(uri)
    }

    /// The aliases of a resource's URI.
    pub fn aliases_of(&self, uri: &str) -> Vec<String> {
        let aliases = read(&self.aliases);
        aliases
            .iter()
            .filter_map(|(alias, meant)| Some(format!("{alias}{}", uri.strip_prefix(meant.as_str())?)))
            .collect()
    }

    /// Tenants whose list of resources has changed and whose listeners have not been notified yet.
    pub fn list_changes(&self) -> &ListChanges {
        &self.list_changes
    }

    /// A receiver of all changes from now on.
    pub fn changes(&self) -> broadcast::Receiver<SurfaceChange> {
        self.changes.subscribe()
    }

    /// The tool of that name.
    pub fn tool(&self, name: &str) -> Option<Arc<SurfaceTool>> {
        read(&self.tools).get(name).cloned()
    }

    /// All tools, by name.
    pub fn tools(&self) -> Vec<Arc<SurfaceTool>> {
        read(&self.tools).values().cloned().collect()
    }

    /// The resource of that URI.
    pub fn resource(&self, uri: &str) -> Option<Arc<SurfaceItem<dyn Resource, ResourceProfile>>> {
        read(&self.resources).get(uri).cloned()
    }

    /// All resources, by URI.
    pub fn resources(&self) -> Vec<Arc<SurfaceItem<dyn Resource, ResourceProfile>>> {
        read(&self.resources).values().cloned().collect()
    }

    /// All resource templates, in the order in which they were added.
    pub fn templates(&self) -> Vec<Arc<SurfaceItem<dyn Template, ResourceProfile>>> {
        read(&self.templates).clone()
    }

    /// The prompt of that name.
    pub fn prompt(&self, name: &str) -> Option<Arc<SurfaceItem<dyn Prompt, PromptProfile>>> {
        read(&self.prompts).get(name).cloned()
    }

    /// All prompts, by name.
    pub fn prompts(&self) -> Vec<Arc<SurfaceItem<dyn Prompt, PromptProfile>>> {
        read(&self.prompts).values().cloned().collect()
    }

    pub(crate) fn broadcast_change(&self, change: SurfaceChange) {
        // An error means that there are no listeners.
        let _ = self.changes.send(change);
    }
}

fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read()
}

fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_follower_is_told_however_it_wrote_the_address() {
        let updated = |uri: &str, within| ResourceUpdate {
            uri: uri.into(),
            tenant: Some("a".into()),
            within,
            key: None,
        };
        let one = updated("m://data/ns/task%3A1%2Fx", false);
        for uri in ["m://data/ns/task%3A1%2Fx", "m://data/ns/task:1%2fx", "m://data/n%73/task%3a1%2Fx"] {
            assert!(one.concerns("a", uri), "{uri}");
            assert!(!one.concerns("b", uri), "another tenant's {uri}");
        }
        for uri in
            ["m://data/ns/task:1/x", "m://data/ns/task:1", "m://data/ns/task:1%2Fxy", "m://data/ns/task%3"]
        {
            assert!(!one.concerns("a", uri), "{uri}");
        }
        let all = updated("m://search/a%20b?", true);
        assert!(all.concerns("a", "m://search/a b?pattern=x"));
        assert!(!all.concerns("a", "m://search/a bc?pattern=x"));
    }

    #[test]
    fn a_follower_of_a_search_is_told_of_what_it_finds() {
        let (uri, tenant) = ("memory://search/n?".into(), Some("a".into()));
        let one = ResourceUpdate { uri, tenant, within: true, key: Some("task:1".into()) };
        assert!(one.concerns("a", "memory://search/n?pattern=task%3A*"));
        assert!(one.concerns("a", "memory://search/n?text=word"), "whether it has the word is not known");
        assert!(!one.concerns("a", "memory://search/n?pattern=note%3A*&page=2"));
    }
}
