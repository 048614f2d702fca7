//! What is offered, in pages: tools, resources, prompts; and what may be filled in.

use nuncio_engine::surface::{PromptProfile, ResourceProfile};
use nuncio_wire::{
    jsonrpc::Id,
    mcp::{
        Complete, CompleteRef, Fault, Page, write_prompt, write_resource, write_template, write_tool,
        write_tool_of,
    },
};

use super::{Mcp, client::Client, task_resource};

/// The most values that one completion holds.
const MAX_VALUES: usize = 100;

impl Mcp {
    /// Agents and tools, by name. A tool that is offered under an agent's name hides the agent.
    pub(super) fn list_tools(&self, client: &Client, id: &Id, page: &Page) -> Result<Vec<u8>, Fault> {
        let version = client.version;
        let (agents, tools) = (self.engine.catalog(), self.surface().tools());
        let mut all: Vec<(String, Vec<u8>)> = vec![];
        for tool in &tools {
            all.push((tool.profile.name.clone(), written(|out| write_tool(out, version, &tool.profile))));
        }
        for agent in agents.iter().filter(|agent| self.surface().tool(&agent.profile.name).is_none()) {
            let name = agent.profile.name.clone();
            all.push((name, written(|out| write_tool_of(out, version, &agent.profile))));
        }
        self.page(client, id, "tools", all, page)
    }

    pub(super) fn list_resources(&self, client: &Client, id: &Id, page: &Page) -> Result<Vec<u8>, Fault> {
        let version = client.version;
        let write = |profile: &ResourceProfile| {
            (profile.uri.clone(), written(|out| write_resource(out, version, profile)))
        };
        let all = self.surface().resources().iter().map(|resource| write(&resource.profile)).collect();
        self.page(client, id, "resources", all, page)
    }

    pub(super) fn list_templates(&self, client: &Client, id: &Id, page: &Page) -> Result<Vec<u8>, Fault> {
        let version = client.version;
        let write = |profile: &ResourceProfile| {
            (profile.uri.clone(), written(|out| write_template(out, version, profile)))
        };
        let offered = self.surface().templates();
        let all = offered.iter().map(|template| write(&template.profile));
        let all = all.chain([write(&task_resource::template())]).collect();
        self.page(client, id, "resourceTemplates", all, page)
    }

    pub(super) fn list_prompts(&self, client: &Client, id: &Id, page: &Page) -> Result<Vec<u8>, Fault> {
        let version = client.version;
        let write = |profile: &PromptProfile| {
            (profile.name.clone(), written(|out| write_prompt(out, version, profile)))
        };
        let all = self.surface().prompts().iter().map(|prompt| write(&prompt.profile)).collect();
        self.page(client, id, "prompts", all, page)
    }

    /// One page, in the order of the names. The cursor is the last name of the page before, so that what
    /// comes or goes meanwhile moves nothing else.
    fn page(
        &self,
        client: &Client,
        id: &Id,
        key: &'static str,
        mut all: Vec<(String, Vec<u8>)>,
        page: &Page,
    ) -> Result<Vec<u8>, Fault> {
        all.sort_by(|(a, _), (b, _)| a.cmp(b));
        let begin = match &page.cursor {
            None => 0,
            Some(cursor) => {
                let after = cursor.strip_prefix("after:");
                let after = after.ok_or_else(|| Fault::params("cursor: not one that this server gave"))?;
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
                self.cache_hints(result, self.options.list_ttl.as_millis() as u64, "public");
            }
        }))
    }

    pub(super) async fn complete(&self, client: &Client, id: &Id, asked: Complete) -> Result<Vec<u8>, Fault> {
        let known = asked.context.map(|context| context.arguments).unwrap_or_default();
        let (caller, argument, typed) = (&client.caller, &asked.argument.name, &asked.argument.value);
        let mut values = match &asked.reference {
            CompleteRef::Prompt { name } => {
                let prompt = self.surface().prompt(name);
                let prompt = prompt.ok_or_else(|| Fault::params(format!("there is no prompt {name:?}")))?;
                prompt.handler.complete(caller, argument, typed, &known).await
            }
            CompleteRef::Resource { uri } if *uri == task_resource::TEMPLATE => {
                self.complete_task(client, typed).await?
            }
            CompleteRef::Resource { uri } => {
                let templates = self.surface().templates();
                let template = templates.iter().find(|template| template.profile.uri == *uri);
                let template = template
                    .ok_or_else(|| Fault::params(format!("there is no resource template {uri:?}")))?;
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

fn written(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    write(&mut out);
    out
}
