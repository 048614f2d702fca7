//! The resources of the memory bank: the keys of a namespace, an entry, a search.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use nuncio_engine::{
    AccessKind, Caller, Surface,
    clock::Timestamp,
    memory::{BankPageQuery, DATA_TEMPLATE, KEYS_TEMPLATE, SEARCH_TEMPLATE, keys_page_uri, keys_uri},
    surface::{
        HandlerError, HandlerReply, HandlerRequest, ResourceContent, ResourceProfile, Template, output_schema,
    },
};
use serde::Serialize;

use super::{
    MemoryBank, SEARCH_LIMIT,
    answers::MemoryEntryText,
    api::{MemoryEntryAnswer, MemoryKeySummary, MemoryKeysAnswer, MemorySearchAnswer, NamespaceStats},
    sought,
};
use crate::resource::{CachePolicy, ResourceDetails, content, profile};

/// The schema of `memory://namespace/{namespace}/keys`.
const KEYS: &str = "memory-keys";
/// The schema of `memory://data/{namespace}/{key}`.
const DATA: &str = "memory-data";
/// The schema of `memory://search/{namespace}`.
const SEARCH: &str = "memory-search";
const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";
/// Maximum values that a completion returns.
const COMPLETIONS: usize = 100;

type MemoryReadResult = Result<HandlerReply<Vec<ResourceContent>>, HandlerError>;

pub(super) fn publish_schemas(surface: &Surface) {
    let schemas = [
        (KEYS, output_schema::<MemoryKeysAnswer>()),
        (DATA, output_schema::<MemoryEntryAnswer>()),
        (SEARCH, output_schema::<MemorySearchAnswer>()),
    ];
    for (name, mut schema) in schemas {
        schema["$schema"] = DIALECT.into();
        surface.add_schema(name, schema);
    }
}

pub(super) fn install(bank: &Arc<MemoryBank>, surface: &Surface) {
    surface.add_template(MemoryKeysResource(Arc::clone(bank)));
    surface.add_template(MemoryDataResource(Arc::clone(bank)));
    surface.add_template(MemorySearchResource(Arc::clone(bank)));
}

struct MemoryKeysResource(Arc<MemoryBank>);

#[async_trait]
impl Template for MemoryKeysResource {
    fn profile(&self) -> ResourceProfile {
        let description = "The keys of a namespace in their order, with when they were written and read, their \
            sizes in bytes and for how many seconds they are kept. A page has up to 1000 keys, and where there are \
            more, `next` is the address of the next.";
        profile(KEYS_TEMPLATE, "memory-keys", description, CachePolicy::Dynamic)
    }

    async fn read(&self, uri: &str, request: HandlerRequest) -> MemoryReadResult {
        only(&request, &["after", "limit", "prefix"])?;
        let namespace = request.text("namespace").unwrap_or_default();
        let memory = self.0.memory();
        let query = BankPageQuery {
            prefix: request.text("prefix").unwrap_or_default().to_owned(),
            after: request.text("after").unwrap_or_default().to_owned(),
            limit: number(&request, "limit", memory.limits().keys_page)?,
        };
        let page = memory.page(&request.caller, namespace, &query).await?;
        let page = page.ok_or_else(|| HandlerError::NotFound(uri.to_owned()))?;
        let last = page.entries.last().filter(|_| page.more);
        let next = last.map(|last| keys_page_uri(namespace, &query.prefix, &last.key, query.limit));
        let value = MemoryKeysAnswer {
            namespace: namespace.to_owned(),
            keys: MemoryKeySummary::all(page.entries),
            stats: NamespaceStats::of(&page.stats),
            next,
        };
        self.0.content(&request.caller, uri, namespace, KEYS, page.stats.newest, &value)
    }

    /// The namespaces that are not empty.
    async fn list(
        &self,
        caller: &Caller,
        after: Option<&str>,
        limit: usize,
    ) -> Result<(Vec<ResourceProfile>, Option<String>), HandlerError> {
        let memory = self.0.memory();
        let limit = limit.min(memory.limits().keys_page);
        let page = memory.namespaces(caller, "", after.unwrap_or_default(), limit).await?;
        let shown = page.names.iter().map(|namespace| {
            let about = format!("The keys of the namespace {namespace}.");
            profile(&keys_uri(namespace), &format!("memory-{namespace}"), &about, CachePolicy::Dynamic)
        });
        Ok((shown.collect(), page.next))
    }

    async fn complete(
        &self,
        caller: &Caller,
        variable: &str,
        typed: &str,
        known: &UriVariables,
    ) -> Vec<String> {
        self.0.complete(caller, variable, typed, known).await
    }
}

struct MemoryDataResource(Arc<MemoryBank>);

#[async_trait]
impl Template for MemoryDataResource {
    fn profile(&self) -> ResourceProfile {
        let description = "A value of the memory bank, with when it was written and read, how often it was read, \
            its version, its size in bytes and for how many seconds it is kept. Namespace and key are \
            percent-encoded, each as one part of the path.";
        profile(DATA_TEMPLATE, "memory-data", description, CachePolicy::Dynamic)
    }

    async fn read(&self, uri: &str, request: HandlerRequest) -> MemoryReadResult {
        let namespace = request.text("namespace").unwrap_or_default();
        let key = request.text("key").unwrap_or_default();
        let found = self.0.memory().get_text(&request.caller, namespace, key).await?;
        let found = found.ok_or_else(|| HandlerError::NotFound(uri.to_owned()))?;
        let value = MemoryEntryText::of(namespace, &found)?;
        self.0.content(&request.caller, uri, namespace, DATA, found.entry.updated, &value)
    }

    async fn complete(
        &self,
        caller: &Caller,
        variable: &str,
        typed: &str,
        known: &UriVariables,
    ) -> Vec<String> {
        self.0.complete(caller, variable, typed, known).await
    }
}

struct MemorySearchResource(Arc<MemoryBank>);

#[async_trait]
impl Template for MemorySearchResource {
    fn profile(&self) -> ResourceProfile {
        let description = "Searches a namespace: by `pattern` in its keys (* any characters, ? one, [abc] one of \
            these), scored by the share of a key's characters that the pattern says literally; or by `text`, for \
            values with all of these words in them, scored by the store's rank. The best come first, `limit` \
            results (10, at most 100) on a `page` (from 1).";
        profile(SEARCH_TEMPLATE, "memory-search", description, CachePolicy::Dynamic)
    }

    async fn read(&self, uri: &str, request: HandlerRequest) -> MemoryReadResult {
        only(&request, &["pattern", "text", "page", "limit"])?;
        let namespace = request.text("namespace").unwrap_or_default();
        let said = (request.text("pattern"), request.text("text"));
        let what = sought(said.0, said.1)?;
        let (page, limit) = (number(&request, "page", 1)?, number(&request, "limit", SEARCH_LIMIT)?);
        let (memory, caller) = (self.0.memory(), &request.caller);
        let found = memory.search(caller, namespace, &what, page, limit).await?;
        let redactor = self.0.engine.redactor();
        let value = MemorySearchAnswer::of(redactor, namespace, said, &found, page, limit);
        let newest = found.results.iter().map(|(entry, _)| entry.updated).max();
        // An empty result has the current time as its modification time.
        let modified = newest.unwrap_or_else(|| self.0.engine.clock().now());
        self.0.content(caller, uri, namespace, SEARCH, modified, &value)
    }

    async fn complete(
        &self,
        caller: &Caller,
        variable: &str,
        typed: &str,
        known: &UriVariables,
    ) -> Vec<String> {
        self.0.complete(caller, variable, typed, known).await
    }
}

type UriVariables = BTreeMap<String, String>;

impl MemoryBank {
    fn content(
        &self,
        caller: &Caller,
        uri: &str,
        namespace: &str,
        schema: &str,
        modified: Timestamp,
        value: &impl Serialize,
    ) -> MemoryReadResult {
        let policy = CachePolicy::Dynamic;
        let about = ResourceDetails { kind: AccessKind::Memory, name: namespace, schema, modified, policy };
        Ok(HandlerReply::Done(vec![content(self.engine.catalog().surface(), caller, uri, &about, value)]))
    }

    /// Completes namespaces, or keys of the chosen namespace, that the caller may read. If they cannot be read
    /// there are no completions.
    async fn complete(
        &self,
        caller: &Caller,
        variable: &str,
        typed: &str,
        known: &UriVariables,
    ) -> Vec<String> {
        let memory = self.memory();
        match (variable, known.get("namespace")) {
            ("namespace", _) => {
                let names = memory.namespaces(caller, typed, "", COMPLETIONS).await;
                names.map(|page| page.names).unwrap_or_default()
            }
            ("key", Some(namespace)) => {
                let query =
                    BankPageQuery { prefix: typed.to_owned(), after: String::new(), limit: COMPLETIONS };
                let page = memory.page(caller, namespace, &query).await.ok().flatten();
                page.map_or(vec![], |page| page.entries.into_iter().map(|entry| entry.key).collect())
            }
            _ => vec![],
        }
    }
}

/// Refuses a query with parameters other than these.
fn only(request: &HandlerRequest, known: &[&str]) -> Result<(), HandlerError> {
    let mut names = request.arguments.keys().filter(|name| *name != "namespace");
    match names.find(|name| !known.contains(&name.as_str())) {
        None => Ok(()),
        Some(name) => Err(HandlerError::Invalid(format!(
            "{name:?}: this resource takes no query of that name; it takes {}",
            known.join(", ")
        ))),
    }
}

/// A number in the query. The engine checks its upper bound.
fn number<T: std::str::FromStr>(request: &HandlerRequest, name: &str, default: T) -> Result<T, HandlerError> {
    match request.text(name) {
        None => Ok(default),
        Some(text) => text
            .parse()
            .map_err(|_| HandlerError::Invalid(format!("{name}: a whole number from 1, not {text:?}"))),
    }
}
