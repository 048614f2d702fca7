//! The lists of tools, resources and prompts, in pages, and the completion of arguments. A list contains only
//! what the caller may use, so it differs by caller, and only what the client's endpoint has. Resources come from the current state: first those that
//! always exist, then the caller's workflows, namespaces and tasks, family by family.

use nuncio_engine::{
    AccessKind, Action, Caller, List,
    access::TASKS,
    surface::{HandlerError, PromptProfile, ResourceProfile, access_of},
};
use nuncio_wire::{
    jsonrpc::RpcId,
    mcp::{
        CompleteParams, CompletionReference, ListParams, McpFault, write_agent_as_tool, write_prompt,
        write_resource, write_template, write_tool,
    },
};

use super::{Mcp, client::McpClient, task_resource, tool_access::may_use};

/// Maximum values in one completion.
const MAX_VALUES: usize = 100;

impl Mcp {
    /// Agents and tools, by name. A tool registered under an agent's name hides the agent.
    pub(super) fn list_tools(
        &self,
        client: &McpClient,
        id: &RpcId,
        page: &ListParams,
    ) -> Result<Vec<u8>, McpFault> {
        let (version, endpoint) = (client.version, &client.endpoint);
        let (agents, tools) = (self.engine.catalog(), self.surface().tools());
        let mut all: Vec<(String, Vec<u8>)> = vec![];
        let usable = tools.iter().filter(|tool| may_use(&client.caller, &tool.profile.name));
        for tool in usable.filter(|tool| endpoint.lists_tool(&tool.profile)) {
            all.push((tool.profile.name.clone(), written(|out| write_tool(out, version, &tool.profile))));
        }
        let may_call = |name: &str| client.caller.may(Action::Execute, AccessKind::A2a, name);
        let is_hidden =
            |name: &str| self.surface().tool(name).is_some_and(|tool| endpoint.reaches_tool(&tool.profile));
        let callable =
            agents.iter().filter(|agent| may_call(&agent.profile.name) && !is_hidden(&agent.profile.name));
        for agent in callable.filter(|agent| endpoint.lists_agent(&agent.profile)) {
            let name = agent.profile.name.clone();
            all.push((name, written(|out| write_agent_as_tool(out, version, &agent.profile))));
        }
        self.page(client, id, "tools", all, page)
    }

    /// First the resources that always exist, by URI; then those of each family, in the family's own order. A
    /// cursor names the family, and where in it the previous page ended.
    pub(super) async fn list_resources(
        &self,
        client: &McpClient,
        id: &RpcId,
        page: &ListParams,
    ) -> Result<Vec<u8>, McpFault> {
        let size = self.options.page_size.max(1);
        let (mut shown, families) = (vec![], self.surface().templates());
        // The last family is that of the tasks: the only one at the endpoint of an agent.
        let first = if client.endpoint.agent().is_some() { families.len() + 1 } else { 0 };
        let (mut family, mut within) = match page.cursor.as_deref() {
            None => (first, None),
            Some(cursor) => read_cursor(cursor)?,
        };
        if family < first || family > families.len() + 1 {
            return Err(McpFault::invalid_params("cursor: not one that this server gave"));
        }
        loop {
            let room = size - shown.len();
            let (some, next) = match family {
                0 => self.fixed_resources(&client.caller, within.as_deref(), room),
                n if n <= families.len() => {
                    let handler = &families[n - 1].handler;
                    match handler.list(&client.caller, within.as_deref(), room).await {
                        Ok(some) => some,
                        // Resources that the caller may not read are left out.
                        Err(HandlerError::Forbidden(_) | HandlerError::NotOperator(_)) => (vec![], None),
                        // The readable entries are too sparse to list: the caller has to read the family
                        // itself.
                        Err(HandlerError::Invalid(_)) if within.is_none() => (vec![], None),
                        Err(error) => return Err(self.fault_of(client, error)),
                    }
                }
                _ => self.tasks(&client.caller, within.as_deref(), room).await?,
            };
            shown.extend(some);
            within = next;
            if within.is_none() {
                family += 1;
            }
            if family > families.len() + 1 {
                break;
            }
            if shown.len() >= size {
                break;
            }
        }
        let more = family <= families.len() + 1;
        let next = more.then(|| match (family, &within) {
            (0, Some(after)) => format!("after:{after}"),
            (family, within) => format!("in:{family}:{}", within.as_deref().unwrap_or_default()),
        });
        let version = client.version;
        Ok(self.result(version, id, |result| {
            result.array("resources", &shown, |out, profile| write_resource(out, version, profile));
            result.optional("nextCursor", next.as_ref());
            if version.is_stateless() {
                self.cache_hints(result, 0, "private");
            }
        }))
    }

    /// The resources that always exist, with their aliases, as far as the caller may read them.
    fn fixed_resources(
        &self,
        caller: &Caller,
        after: Option<&str>,
        limit: usize,
    ) -> (Vec<ResourceProfile>, Option<String>) {
        let offered = self.surface().resources();
        let readable = offered.iter().filter(|resource| may_read(caller, &resource.profile.uri));
        let mut all: Vec<ResourceProfile> =
            readable.flat_map(|resource| self.with_aliases(&resource.profile)).collect();
        all.sort_by(|a, b| a.uri.cmp(&b.uri));
        all.retain(|profile| after.is_none_or(|after| profile.uri.as_str() > after));
        let next = all.get(limit.saturating_sub(1)).filter(|_| all.len() > limit);
        let next = next.map(|last| last.uri.clone());
        all.truncate(limit);
        (all, next)
    }

    fn with_aliases(&self, profile: &ResourceProfile) -> Vec<ResourceProfile> {
        let alias = |uri: String| {
            let meant = format!("The same as {}.", profile.uri);
            ResourceProfile { uri, description: Some(meant), ..profile.clone() }
        };
        let aliases = self.surface().aliases_of(&profile.uri);
        std::iter::once(profile.clone()).chain(aliases.into_iter().map(alias)).collect()
    }

    /// The caller's tasks, batches included, newest status first.
    async fn tasks(
        &self,
        caller: &Caller,
        after: Option<&str>,
        limit: usize,
    ) -> Result<(Vec<ResourceProfile>, Option<String>), McpFault> {
        if !caller.may(Action::Read, AccessKind::A2a, TASKS) {
            return Ok((vec![], None));
        }
        let query = List {
            page_size: limit.min(nuncio_engine::commands::list::MAX_PAGE),
            page_token: after.map(str::to_owned),
            ..List::default()
        };
        let listed = self.engine.list_rows(caller, query).await?;
        let profiles = listed.rows.iter().map(|row| {
            let id = row.client_id.clone().unwrap_or_else(|| row.id.to_string());
            let what = if row.agent == "batch" { "batch" } else { "task" };
            ResourceProfile::new(task_resource::task_uri(&id), format!("{what}-{id}"))
                .described(format!("A {what} of {}, {}.", row.agent, row.state.name()))
                .media_type("application/json")
        });
        Ok((profiles.collect(), listed.next_page_token))
    }

    pub(super) fn list_templates(
        &self,
        client: &McpClient,
        id: &RpcId,
        page: &ListParams,
    ) -> Result<Vec<u8>, McpFault> {
        let version = client.version;
        let write = |profile: ResourceProfile| {
            (profile.uri.clone(), written(|out| write_template(out, version, &profile)))
        };
        let offered = self.surface().templates();
        let families = offered.iter().map(|template| template.profile.clone());
        let all = families
            .chain([task_resource::template()])
            .filter(|family| client.endpoint.reaches_resource(&family.uri))
            .filter(|family| may_read_some(&client.caller, &family.uri))
            .flat_map(|family| self.with_aliases(&family))
            .map(write)
            .collect();
        self.page(client, id, "resourceTemplates", all, page)
    }

    pub(super) fn list_prompts(
        &self,
        client: &McpClient,
        id: &RpcId,
        page: &ListParams,
    ) -> Result<Vec<u8>, McpFault> {
        let version = client.version;
        let write = |profile: &PromptProfile| {
            (profile.name.clone(), written(|out| write_prompt(out, version, profile)))
        };
        let prompts = self.surface().prompts();
        let all = match client.endpoint.agent() {
            Some(_) => vec![],
            None => prompts.iter().map(|prompt| write(&prompt.profile)).collect(),
        };
        self.page(client, id, "prompts", all, page)
    }

    /// One page, ordered by name. The cursor is the last name of the previous page, so that entries which
    /// appear or disappear meanwhile shift nothing else.
    fn page(
        &self,
        client: &McpClient,
        id: &RpcId,
        key: &'static str,
        mut all: Vec<(String, Vec<u8>)>,
        page: &ListParams,
    ) -> Result<Vec<u8>, McpFault> {
        all.sort_by(|(a, _), (b, _)| a.cmp(b));
        let begin = match &page.cursor {
            None => 0,
            Some(cursor) => {
                let after = cursor.strip_prefix("after:");
                let after =
                    after.ok_or_else(|| McpFault::invalid_params("cursor: not one that this server gave"))?;
                all.partition_point(|(name, _)| name.as_str() <= after)
            }
        };
        let shown = &all[begin..all.len().min(begin + self.options.page_size.max(1))];
        let more = begin + shown.len() < all.len();
        let next = shown.last().filter(|_| more).map(|(name, _)| format!("after:{name}"));
        Ok(self.result(client.version, id, |result| {
            result.array(key, shown, |out, (_, json)| out.extend_from_slice(json));
            result.optional("nextCursor", next.as_ref());
            if client.version.is_stateless() {
                self.cache_hints(result, self.options.list_ttl.as_millis() as u64, "private");
            }
        }))
    }

    pub(super) async fn complete(
        &self,
        client: &McpClient,
        id: &RpcId,
        asked: CompleteParams,
    ) -> Result<Vec<u8>, McpFault> {
        let known = asked.context.map(|context| context.arguments).unwrap_or_default();
        let (caller, argument, typed) = (&client.caller, &asked.argument.name, &asked.argument.value);
        let mut values = match &asked.reference {
            CompletionReference::Prompt { name } => {
                let prompt = self.prompt(client, name);
                let prompt =
                    prompt.ok_or_else(|| McpFault::invalid_params(format!("there is no prompt {name:?}")))?;
                prompt.handler.complete(caller, argument, typed, &known).await
            }
            CompletionReference::Resource { uri }
                if self.surface().canonical(uri) == task_resource::TEMPLATE =>
            {
                self.complete_task(client, typed).await?
            }
            CompletionReference::Resource { uri } => {
                let templates = self.surface().templates();
                let meant = self.surface().canonical(uri);
                let mut reached = templates
                    .iter()
                    .filter(|template| client.endpoint.reaches_resource(&template.profile.uri));
                let template = reached.find(|template| template.profile.uri == meant);
                let template = template.ok_or_else(|| {
                    McpFault::invalid_params(format!("there is no resource template {uri:?}"))
                })?;
                template.handler.complete(caller, argument, typed, &known).await
            }
        };
        let total = values.len();
        values.truncate(MAX_VALUES);
        Ok(self.result(client.version, id, |result| {
            result.object("completion", |completion| {
                completion.value("values", &values);
                completion.value("total", &total);
                completion.value("hasMore", &(total > values.len()));
            });
        }))
    }
}

/// Parses a cursor of `resources/list`: the family, and where in it the previous page ended.
fn read_cursor(cursor: &str) -> Result<(usize, Option<String>), McpFault> {
    if let Some(after) = cursor.strip_prefix("after:") {
        return Ok((0, Some(after.to_owned())));
    }
    let read = cursor.strip_prefix("in:").and_then(|rest| rest.split_once(':'));
    let read = read.and_then(|(family, within)| Some((family.parse().ok()?, within)));
    let (family, within) =
        read.ok_or_else(|| McpFault::invalid_params("cursor: not one that this server gave"))?;
    Ok((family, (!within.is_empty()).then(|| within.to_owned())))
}

/// Whether the caller may read the resource at that URI.
fn may_read(caller: &Caller, uri: &str) -> bool {
    match access_of(uri) {
        Some((kind, name)) => caller.may(Action::Read, kind, &name),
        None if uri.starts_with("sparc://") => caller.grants().allow_some(Action::Read, AccessKind::Sparc),
        None => true,
    }
}

/// Whether the caller may read any resource of that family.
fn may_read_some(caller: &Caller, template: &str) -> bool {
    match access_of(template) {
        // The name is a variable, or a constant of the whole family.
        Some((kind, name)) if !name.starts_with('{') => caller.may(Action::Read, kind, &name),
        Some((kind, _)) => caller.grants().allow_some(Action::Read, kind),
        None if template.starts_with("sparc://") => {
            caller.grants().allow_some(Action::Read, AccessKind::Sparc)
        }
        None => true,
    }
}

fn written(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    write(&mut out);
    out
}

#[cfg(test)]
mod tests {
    use nuncio_engine::Grants;

    use super::*;

    #[test]
    fn a_list_has_the_resources_that_the_caller_may_read() {
        let grants = Grants::parse("read:memory:team-* execute:a2a:echo");
        let ada = Caller::named("ada").limited_to(grants.unwrap_or_else(|why| panic!("{why}")));
        assert!(may_read_some(&ada, "memory://data/{namespace}/{key}"));
        assert!(!may_read_some(&ada, "sparc://workflow/{contextId}"));
        assert!(may_read_some(&ada, "a2a://tasks/{taskId}"));
        assert!(!may_read(&ada, "batchtools://queue/status"));
        assert!(!may_read(&ada, "sparc://phase/completion/template"));
        assert!(may_read(&Caller::local(), "batchtools://queue/status"));
    }
}
