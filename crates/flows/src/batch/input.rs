//! The request of a batch: parsed, validated and ordered before any operation runs.

use std::collections::{HashMap, HashSet};

use nuncio_engine::content::json_size;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::{BatchOptions, scheduler::Priority};

/// Maximum bytes of an operation's id.
pub const ID_BYTES: usize = 64;
/// What an operation's id consists of.
const ID_PATTERN: &str = "^[A-Za-z0-9_.:-]{1,64}$";
/// Maximum dependencies of one operation.
pub const NEEDS_PER_OPERATION: usize = 100;
/// Maximum retries of one operation.
pub const MAX_RETRIES: u32 = 5;
/// The longest `wait`, in milliseconds.
pub const WAIT_MS: u64 = 60_000;
/// Maximum bytes of a task's id.
pub const TASK_BYTES: usize = 256;
/// Maximum bytes of a path.
pub const PATH_BYTES: usize = 1_024;
/// Maximum bytes of a search pattern.
pub const PATTERN_BYTES: usize = 1_024;
/// Maximum distinct regular expressions in one batch: each is compiled before the batch is admitted.
pub const PATTERNS_PER_BATCH: usize = 100;
/// Maximum matches that one search returns.
pub const MATCHES: usize = 1_000;
/// Matches that a search returns by default.
pub const DEFAULT_MATCHES: usize = 100;
/// The smallest chunk of a content, in bytes.
pub const CHUNK_BYTES: usize = 1_024;
/// The default chunk size, in bytes.
pub const DEFAULT_CHUNK_BYTES: usize = 256 * 1_024;

/// The strategy by which a batch is processed.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// Runs independent operations concurrently.
    #[default]
    ConcurrentProcessing,
    /// Processes one large content in chunks.
    ParallelContentProcessing,
    /// Deduplicates and compresses contents.
    ResourceOptimization,
}

impl Strategy {
    /// All strategies.
    pub const ALL: [Self; 3] =
        [Self::ConcurrentProcessing, Self::ParallelContentProcessing, Self::ResourceOptimization];

    /// Its name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::ConcurrentProcessing => "concurrent_processing",
            Self::ParallelContentProcessing => "parallel_content_processing",
            Self::ResourceOptimization => "resource_optimization",
        }
    }
}

/// A batch as requested. The doc comments of its fields are published as their descriptions.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct BatchInput {
    /// For concurrent_processing.
    #[serde(default)]
    pub(crate) operations: Vec<OperationInput>,
    #[serde(default)]
    pub(crate) strategy: Strategy,
    #[serde(default)]
    pub(crate) priority: Priority,
    /// Operations of this batch that run at once, where that is less than the server's cap.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub(crate) max_concurrency: Option<usize>,
    /// So many operations are done one after another first, which is what the speed-up is measured against. Each is
    /// done once. Not given: a small part of a large batch, for at most a second; 0: none.
    #[serde(default)]
    pub(crate) sequential_sample: Option<usize>,
    /// Whether nothing more begins after a failure.
    #[serde(default)]
    pub(crate) stop_on_failure: bool,
    #[serde(default)]
    pub(crate) process: Option<ContentProcessing>,
    #[serde(default)]
    pub(crate) optimize: Option<ContentOptimization>,
}

/// An operation as requested.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct OperationInput {
    #[schemars(extend("pattern" = ID_PATTERN))]
    pub(crate) id: String,
    #[schemars(extend("enum" = TYPES))]
    pub(crate) r#type: String,
    /// files.read {path, encoding?: text|base64}; files.write {path, content, encoding?, append?, createFolders?,
    /// overwrite?}; files.copy {from, to, createFolders?, overwrite?}; files.hash {path}; files.search {path, pattern,
    /// regex?, ignoreCase?, maxMatches?}; memory.get and memory.delete {namespace, key}; memory.store {namespace, key,
    /// value, ttl?, expectedVersion?}; memory.search {namespace, pattern | text, limit?}; agent.call {agent, input: text
    /// or object}; task.cancel and task.rerun {task | selection}; wait {ms}.
    #[serde(default)]
    #[schemars(extend("type" = "object"))]
    pub(crate) args: Value,
    #[serde(default)]
    pub(crate) priority: Option<Priority>,
    /// Operations that have to succeed first.
    #[serde(default)]
    #[schemars(length(max = NEEDS_PER_OPERATION), inner(regex(pattern = ID_PATTERN)))]
    pub(crate) needs: Vec<String>,
    #[serde(default)]
    #[schemars(range(max = MAX_RETRIES))]
    pub(crate) retries: u32,
}

/// One large content, for `parallel_content_processing`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ContentProcessing {
    #[serde(default)]
    pub(crate) content: Option<String>,
    #[serde(default)]
    #[schemars(length(min = 1, max = PATH_BYTES))]
    pub(crate) file: Option<String>,
    #[serde(default = "default_chunk")]
    #[schemars(range(min = CHUNK_BYTES))]
    pub(crate) chunk_bytes: usize,
    pub(crate) operation: ContentOperation,
    #[serde(default)]
    #[schemars(length(min = 1, max = PATTERN_BYTES))]
    pub(crate) pattern: Option<String>,
    #[serde(default)]
    pub(crate) regex: bool,
    #[serde(default)]
    pub(crate) ignore_case: bool,
    #[serde(default)]
    #[schemars(range(min = 1, max = MATCHES))]
    pub(crate) max_matches: Option<usize>,
    // The path of the compressed output.
    #[serde(default)]
    #[schemars(length(min = 1, max = PATH_BYTES))]
    pub(crate) to: Option<String>,
}

fn default_chunk() -> usize {
    DEFAULT_CHUNK_BYTES
}

/// The operation applied to every chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ContentOperation {
    Hash,
    Count,
    Search,
    Compress,
}

/// Contents that may contain duplicates, for `resource_optimization`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ContentOptimization {
    #[schemars(length(min = 1))]
    pub(crate) contents: Vec<ContentSource>,
    // The folder for the compressed contents.
    #[serde(default)]
    #[schemars(length(min = 1, max = PATH_BYTES))]
    pub(crate) to: Option<String>,
}

/// One content: inline, in a file, or in the memory bank.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ContentSource {
    #[schemars(extend("pattern" = ID_PATTERN))]
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) content: Option<String>,
    #[serde(default)]
    #[schemars(length(min = 1, max = PATH_BYTES))]
    pub(crate) file: Option<String>,
    #[serde(default)]
    pub(crate) memory: Option<MemoryName>,
    #[serde(default)]
    #[schemars(range(max = MAX_RETRIES))]
    pub(crate) retries: u32,
}

/// An entry of the memory bank.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MemoryName {
    pub(crate) namespace: String,
    pub(crate) key: String,
}

/// The encoding of a file's bytes in JSON.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Encoding {
    #[default]
    Text,
    Base64,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ReadFile {
    pub(crate) path: String,
    #[serde(default)]
    pub(crate) encoding: Encoding,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct WriteFile {
    pub(crate) path: String,
    pub(crate) content: String,
    #[serde(default)]
    pub(crate) encoding: Encoding,
    #[serde(default)]
    pub(crate) append: bool,
    #[serde(default)]
    pub(crate) create_folders: bool,
    #[serde(default = "yes")]
    pub(crate) overwrite: bool,
}

fn yes() -> bool {
    true
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct CopyFile {
    pub(crate) from: String,
    pub(crate) to: String,
    #[serde(default)]
    pub(crate) create_folders: bool,
    #[serde(default = "yes")]
    pub(crate) overwrite: bool,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HashFile {
    pub(crate) path: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct SearchFiles {
    /// A file, or a folder that is searched recursively.
    pub(crate) path: String,
    pub(crate) pattern: String,
    #[serde(default)]
    pub(crate) regex: bool,
    #[serde(default)]
    pub(crate) ignore_case: bool,
    #[serde(default)]
    pub(crate) max_matches: Option<usize>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct StoreMemory {
    pub(crate) namespace: String,
    pub(crate) key: String,
    pub(crate) value: Value,
    /// In seconds.
    #[serde(default)]
    pub(crate) ttl: Option<u64>,
    #[serde(default)]
    pub(crate) expected_version: Option<u64>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct SearchMemory {
    pub(crate) namespace: String,
    /// A glob over keys.
    #[serde(default)]
    pub(crate) pattern: Option<String>,
    /// Words to find in values.
    #[serde(default)]
    pub(crate) text: Option<String>,
    #[serde(default)]
    pub(crate) limit: Option<usize>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CallAgent {
    pub(crate) agent: String,
    /// A text, or structured input.
    pub(crate) input: Value,
}

/// A task, by its id. A selection of tasks stands here only in a request: `selection.rs` replaces it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NamedTask {
    #[serde(default)]
    pub(crate) task: String,
    #[serde(default)]
    selection: Option<String>,
}

impl NamedTask {
    fn check(&self) -> Result<(), String> {
        match (&self.selection, self.task.len()) {
            (None, 1..=TASK_BYTES) => Ok(()),
            (None, 0) => Err("task: give a task, or a selection".into()),
            (None, _) => Err(format!("task: the id of a task has at most {TASK_BYTES} bytes")),
            (Some(_), 0) => {
                Err("selection: only batch_submit takes one; what is sent to the agent names each task"
                    .into())
            }
            (Some(_), _) => Err("selection: give either a task or a selection".into()),
        }
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WaitFor {
    pub(crate) ms: u64,
}

/// The kind of an operation, with validated arguments.
#[derive(Debug, Clone)]
pub(crate) enum OperationKind {
    Read(ReadFile),
    Write(WriteFile),
    Copy(CopyFile),
    Hash(HashFile),
    Search(SearchFiles),
    MemoryGet(MemoryName),
    MemoryStore(StoreMemory),
    MemoryDelete(MemoryName),
    MemorySearch(SearchMemory),
    Call(CallAgent),
    CancelTask(NamedTask),
    RerunTask(NamedTask),
    Wait(WaitFor),
    /// A chunk of the content of `process`: offset and length in bytes.
    Chunk(u64, u64),
    /// The index of a content in `optimize`.
    Optimize(usize),
}

/// One operation of a batch.
#[derive(Debug, Clone)]
pub(crate) struct BatchOperation {
    pub(crate) id: String,
    pub(crate) r#type: &'static str,
    pub(crate) work: OperationKind,
    pub(crate) priority: Priority,
    /// The indexes of the operations that must succeed first.
    pub(crate) needs: Vec<usize>,
    pub(crate) retries: u32,
}

/// The operation types that a request can name.
pub const TYPES: [&str; 13] = [
    "files.read",
    "files.write",
    "files.copy",
    "files.hash",
    "files.search",
    "memory.get",
    "memory.store",
    "memory.delete",
    "memory.search",
    "agent.call",
    "task.cancel",
    "task.rerun",
    "wait",
];

impl OperationKind {
    fn read(r#type: &str, args: &Value) -> Result<(&'static str, Self), String> {
        let Some(known) = TYPES.into_iter().find(|known| *known == r#type) else {
            return Err(format!("type: there is no {:?}; there are {}", r#type, TYPES.join(", ")));
        };
        let work = match known {
            "files.read" => Self::Read(arguments(args)?),
            "files.write" => Self::Write(arguments(args)?),
            "files.copy" => Self::Copy(arguments(args)?),
            "files.hash" => Self::Hash(arguments(args)?),
            "files.search" => Self::Search(arguments(args)?),
            "memory.get" => Self::MemoryGet(arguments(args)?),
            "memory.store" => Self::MemoryStore(arguments(args)?),
            "memory.delete" => Self::MemoryDelete(arguments(args)?),
            "memory.search" => Self::MemorySearch(arguments(args)?),
            "agent.call" => Self::Call(arguments(args)?),
            "task.cancel" => Self::CancelTask(arguments(args)?),
            "task.rerun" => Self::RerunTask(arguments(args)?),
            _ => Self::Wait(arguments(args)?),
        };
        work.check().map_err(|why| format!("args.{why}"))?;
        Ok((known, work))
    }

    fn check(&self) -> Result<(), String> {
        match self {
            Self::Read(ReadFile { path, .. })
            | Self::Write(WriteFile { path, .. })
            | Self::Hash(HashFile { path }) => check_path("path", path),
            Self::Copy(copy) => check_path("from", &copy.from).and_then(|()| check_path("to", &copy.to)),
            Self::Search(search) => {
                check_path("path", &search.path)?;
                check_pattern(&search.pattern, search.max_matches)
            }
            Self::MemorySearch(search) => match (&search.pattern, &search.text) {
                (Some(_), None) | (None, Some(_)) => Ok(()),
                _ => Err("pattern: give either a pattern (a glob on keys) or text (words in values)".into()),
            },
            Self::Call(call) if call.agent == super::AGENT => Err(
                "agent: a batch is not an operation of a batch, because it would wait for its own place; put its operations into this one"
                    .into(),
            ),
            Self::Call(call) if !call.input.is_string() && !call.input.is_object() => {
                Err("input: it is a text or an object".into())
            }
            Self::CancelTask(named) | Self::RerunTask(named) => named.check(),
            Self::Wait(wait) if wait.ms > WAIT_MS => {
                Err(format!("ms: a wait has at most {WAIT_MS} ms (wait_ms), not {}", wait.ms))
            }
            _ => Ok(()),
        }
    }

    /// Whether it reads files, and whether it writes files.
    fn files(&self) -> (bool, bool) {
        match self {
            Self::Read(_) | Self::Hash(_) | Self::Search(_) => (true, false),
            Self::Write(_) => (false, true),
            Self::Copy(_) => (true, true),
            _ => (false, false),
        }
    }
}

fn arguments<T: DeserializeOwned>(args: &Value) -> Result<T, String> {
    let args = if args.is_null() { Value::Object(Default::default()) } else { args.clone() };
    serde_json::from_value(args).map_err(|error| format!("args: {error}"))
}

pub(crate) fn check_path(field: &str, path: &str) -> Result<(), String> {
    let refuse =
        |why: &str| Err(format!("{field}: {why}: a path is relative to the files folder and stays in it"));
    if path.is_empty() || path.len() > PATH_BYTES {
        return refuse(&format!("it has 1 to {PATH_BYTES} bytes (path_bytes)"));
    }
    if path.contains('\0') {
        return refuse("it has a NUL in it");
    }
    if path.starts_with('/') {
        return refuse("it is absolute");
    }
    match path.split('/').any(|name| name == "..") {
        true => refuse("it has \"..\" in it"),
        false => Ok(()),
    }
}

/// Checks the size limits of a pattern. Compiling it is expensive and comes later, in `check_patterns`.
pub(crate) fn check_pattern(pattern: &str, max_matches: Option<usize>) -> Result<(), String> {
    if pattern.is_empty() || pattern.len() > PATTERN_BYTES {
        return Err(format!("pattern: it has 1 to {PATTERN_BYTES} bytes (pattern_bytes)"));
    }
    if max_matches.is_some_and(|max| !(1..=MATCHES).contains(&max)) {
        return Err(format!("maxMatches: it is 1 to {MATCHES} (matches)"));
    }
    Ok(())
}

/// The distinct regular expressions of a batch, each with the location of its first use. Plain text needs no check.
type Patterns = HashMap<(String, bool), String>;

/// Compiles every regular expression of a batch once, where blocking is allowed. It runs after the caller is
/// authorized, because even a short expression may take milliseconds to compile.
pub(crate) async fn check_patterns(input: &BatchInput, operations: &[BatchOperation]) -> Result<(), String> {
    let patterns = input.patterns(operations);
    if patterns.is_empty() {
        return Ok(());
    }
    let build = move || {
        patterns.into_iter().try_for_each(|((pattern, ignore_case), place)| {
            super::files::matcher(&pattern, true, ignore_case)
                .map(|_| ())
                .map_err(|why| format!("{place}: {why}"))
        })
    };
    let built = tokio::task::spawn_blocking(build).await;
    built.unwrap_or_else(|error| Err(format!("the patterns could not be built: {error}")))
}

/// How a batch uses files.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FileUse {
    pub(crate) reads: bool,
    pub(crate) writes: bool,
}

impl BatchInput {
    /// Parses a batch. An error names its location in the request.
    pub(crate) fn read(value: &Value, options: &BatchOptions) -> Result<Self, String> {
        let size = json_size(value);
        if size > options.batch_bytes {
            return Err(format!(
                "a batch has at most {} bytes (batch_bytes), this one has about {size}: put contents into files",
                options.batch_bytes
            ));
        }
        // Borrowed, so that the strings of a large batch are copied only once.
        let input = Self::deserialize(value).map_err(|error| error.to_string())?;
        input.check(options)?;
        Ok(input)
    }

    fn check(&self, options: &BatchOptions) -> Result<(), String> {
        if self.max_concurrency == Some(0) {
            return Err("maxConcurrency: it is at least 1".into());
        }
        let (operations, process, optimize) = match self.strategy {
            Strategy::ConcurrentProcessing => (true, false, false),
            Strategy::ParallelContentProcessing => (false, true, false),
            Strategy::ResourceOptimization => (false, false, true),
        };
        for (field, wanted, given) in [
            ("operations", operations, !self.operations.is_empty()),
            ("process", process, self.process.is_some()),
            ("optimize", optimize, self.optimize.is_some()),
        ] {
            let strategy = self.strategy.name();
            match (wanted, given) {
                (true, false) => return Err(format!("{field}: the strategy {strategy} needs it")),
                (false, true) => return Err(format!("{field}: the strategy {strategy} does not accept it")),
                _ => {}
            }
        }
        if let Some(process) = &self.process {
            process.check(options).map_err(|why| format!("process.{why}"))?;
        }
        if let Some(optimize) = &self.optimize {
            optimize.check().map_err(|why| format!("optimize.{why}"))?;
        }
        self.operations(options).map(|_| ())
    }

    /// The operations that are known without reading any content: all but the chunks of a content.
    pub(crate) fn operations(&self, options: &BatchOptions) -> Result<Vec<BatchOperation>, String> {
        let count = self.operations.len().max(self.optimize.as_ref().map_or(0, |o| o.contents.len()));
        if count > options.operations_per_batch {
            return Err(format!(
                "a batch has at most {} operations (operations_per_batch), this one has {count}",
                options.operations_per_batch
            ));
        }
        let mut positions = HashMap::new();
        let ids = self.operations.iter().map(|asked| ("operations", &asked.id));
        let contents = self.optimize.iter().flat_map(|optimize| &optimize.contents);
        for (n, (field, id)) in ids.chain(contents.map(|one| ("optimize.contents", &one.id))).enumerate() {
            check_id(id).map_err(|why| format!("{field}[{n}].id: {why}"))?;
            if positions.insert(id.as_str(), n).is_some() {
                return Err(format!("{field}[{n}].id: there are two of the id {id:?}"));
            }
        }
        let mut operations = Vec::with_capacity(count);
        for (n, asked) in self.operations.iter().enumerate() {
            let operation = asked.operation(self.priority, &positions);
            operations.push(operation.map_err(|why| format!("operations[{n}].{why}"))?);
        }
        for (n, contents) in self.optimize.iter().flat_map(|optimize| &optimize.contents).enumerate() {
            operations.push(BatchOperation {
                id: contents.id.clone(),
                r#type: "optimize",
                work: OperationKind::Optimize(n),
                priority: self.priority,
                needs: vec![],
                retries: contents.retries,
            });
        }
        check_cycles(&operations)?;
        let patterns = self.patterns(&operations).len();
        if patterns > PATTERNS_PER_BATCH {
            return Err(format!(
                "a batch has at most {PATTERNS_PER_BATCH} different regular expressions (patterns_per_batch), this one has {patterns}"
            ));
        }
        Ok(operations)
    }

    fn patterns(&self, operations: &[BatchOperation]) -> Patterns {
        let mut patterns = Patterns::new();
        for (n, operation) in operations.iter().enumerate() {
            if let OperationKind::Search(SearchFiles { pattern, regex: true, ignore_case, .. }) =
                &operation.work
            {
                patterns
                    .entry((pattern.clone(), *ignore_case))
                    .or_insert_with(|| format!("operations[{n}].args.pattern"));
            }
        }
        if let Some(ContentProcessing { pattern: Some(pattern), regex: true, ignore_case, .. }) =
            &self.process
        {
            patterns.insert((pattern.clone(), *ignore_case), "process.pattern".into());
        }
        patterns
    }

    /// How the operations use files.
    pub(crate) fn files(&self, operations: &[BatchOperation]) -> FileUse {
        let mut used = FileUse::default();
        for (reads, writes) in operations.iter().map(|operation| operation.work.files()) {
            used.reads |= reads;
            used.writes |= writes;
        }
        if let Some(process) = &self.process {
            used.reads |= process.file.is_some();
            used.writes |= process.to.is_some();
        }
        if let Some(optimize) = &self.optimize {
            used.reads |= optimize.contents.iter().any(|one| one.file.is_some());
            used.writes |= optimize.to.is_some();
        }
        used
    }

    /// The name of the kind of batch.
    pub(crate) fn kind(&self) -> &'static str {
        match self.strategy {
            Strategy::ParallelContentProcessing => return "content_processing",
            Strategy::ResourceOptimization => return "resource_optimization",
            Strategy::ConcurrentProcessing => {}
        }
        let all = |prefix: &str| self.operations.iter().all(|asked| asked.r#type.starts_with(prefix));
        match () {
            () if all("files.") => "file_operations",
            () if all("memory.") => "memory_operations",
            () if all("agent.") => "agent_operations",
            () if all("task.") => "task_operations",
            () => "mixed_operations",
        }
    }
}

impl OperationInput {
    fn operation(&self, usual: Priority, positions: &HashMap<&str, usize>) -> Result<BatchOperation, String> {
        let (r#type, work) = OperationKind::read(&self.r#type, &self.args)?;
        if self.retries > MAX_RETRIES {
            return Err(format!(
                "retries: an operation is tried again at most {MAX_RETRIES} times (retries)"
            ));
        }
        if self.needs.len() > NEEDS_PER_OPERATION {
            return Err(format!("needs: at most {NEEDS_PER_OPERATION} (needs_per_operation)"));
        }
        let mut needs = Vec::with_capacity(self.needs.len());
        for need in &self.needs {
            match positions.get(need.as_str()) {
                Some(_) if *need == self.id => return Err("needs: it needs itself".into()),
                Some(position) => needs.push(*position),
                None => return Err(format!("needs: there is no operation {need:?}")),
            }
        }
        needs.sort_unstable();
        needs.dedup();
        let (id, priority) = (self.id.clone(), self.priority.unwrap_or(usual));
        Ok(BatchOperation { id, r#type, work, priority, needs, retries: self.retries })
    }
}

impl ContentProcessing {
    fn check(&self, options: &BatchOptions) -> Result<(), String> {
        match (&self.content, &self.file) {
            (Some(_), None) => {}
            (None, Some(file)) => check_path("file", file)?,
            _ => return Err("content: give either a content or a file".into()),
        }
        if !(CHUNK_BYTES..=options.content_bytes).contains(&self.chunk_bytes) {
            return Err(format!(
                "chunkBytes: it is {CHUNK_BYTES} to {} (chunk_bytes)",
                options.content_bytes
            ));
        }
        match (self.operation, &self.pattern) {
            (ContentOperation::Search, Some(pattern)) => {
                check_pattern(pattern, self.max_matches)?;
            }
            (ContentOperation::Search, None) => return Err("pattern: a search needs it".into()),
            (_, Some(_)) => return Err("pattern: only a search has one".into()),
            (_, None) => {}
        }
        match (self.operation, &self.to) {
            (_, None) => Ok(()),
            (ContentOperation::Compress, Some(to)) => check_path("to", to),
            (_, Some(_)) => Err("to: only what is compressed is written".into()),
        }
    }
}

impl ContentOptimization {
    fn check(&self) -> Result<(), String> {
        if self.contents.is_empty() {
            return Err("contents: the list is empty".into());
        }
        if let Some(to) = &self.to {
            check_path("to", to)?;
        }
        for (n, one) in self.contents.iter().enumerate() {
            let given = [one.content.is_some(), one.file.is_some(), one.memory.is_some()];
            if given.into_iter().filter(|given| *given).count() != 1 {
                return Err(format!("contents[{n}]: give one of content, file and memory"));
            }
            if let Some(file) = &one.file {
                check_path(&format!("contents[{n}].file"), file)?;
            }
            if one.retries > MAX_RETRIES {
                return Err(format!("contents[{n}].retries: at most {MAX_RETRIES} (retries)"));
            }
        }
        Ok(())
    }
}

/// An id names a branch of the task, so it is limited to the characters of such a name.
fn check_id(id: &str) -> Result<(), String> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':');
    match !id.is_empty() && id.len() <= ID_BYTES && id.chars().all(legal) {
        true => Ok(()),
        false => Err(format!("an id has 1 to {ID_BYTES} letters, digits and -_.: (id_bytes), unlike {id:?}")),
    }
}

/// Topological sort: removes operations without open dependencies until none are left or a cycle remains.
fn check_cycles(operations: &[BatchOperation]) -> Result<(), String> {
    let mut left: Vec<usize> = operations.iter().map(|operation| operation.needs.len()).collect();
    let dependents = dependents(operations);
    let mut free: Vec<usize> = (0..operations.len()).filter(|n| left[*n] == 0).collect();
    let mut taken = 0;
    while let Some(n) = free.pop() {
        taken += 1;
        for dependent in &dependents[n] {
            left[*dependent] -= 1;
            if left[*dependent] == 0 {
                free.push(*dependent);
            }
        }
    }
    if taken == operations.len() {
        return Ok(());
    }
    // Every remaining operation leads into a cycle, so following its dependencies ends in one.
    let mut seen = HashSet::new();
    let mut at = (0..operations.len()).find(|n| left[*n] > 0).unwrap_or_default();
    while seen.insert(at) {
        at = operations[at].needs.iter().copied().find(|need| left[*need] > 0).unwrap_or(at);
    }
    let first = at;
    let mut cycle = vec![operations[first].id.as_str()];
    loop {
        at = operations[at].needs.iter().copied().find(|need| left[*need] > 0).unwrap_or(first);
        cycle.push(&operations[at].id);
        if at == first {
            break;
        }
    }
    Err(format!("needs: operations wait for each other in a circle: {}", cycle.join(" -> ")))
}

/// The reverse dependencies of each operation.
pub(crate) fn dependents(operations: &[BatchOperation]) -> Vec<Vec<usize>> {
    let mut dependents = vec![vec![]; operations.len()];
    for (n, operation) in operations.iter().enumerate() {
        for need in &operation.needs {
            dependents[*need].push(n);
        }
    }
    dependents
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[allow(clippy::needless_pass_by_value, reason = "the cases read better so")]
    fn refused(value: Value, words: &str) {
        match BatchInput::read(&value, &BatchOptions::default()) {
            Ok(_) => panic!("{value} was taken"),
            Err(why) => assert!(why.contains(words), "{why:?} does not say {words:?}"),
        }
    }

    #[allow(clippy::needless_pass_by_value, reason = "the cases read better so")]
    fn one(operation: Value) -> Value {
        json!({ "operations": [operation] })
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        let wait =
            |id: &str, needs: Value| json!({ "id": id, "type": "wait", "args": { "ms": 1 }, "needs": needs });
        refused(json!({}), "operations: the strategy concurrent_processing needs it");
        refused(json!({ "operations": [], "colour": 1 }), "unknown field `colour`");
        refused(
            one(json!({ "id": "a", "type": "files.burn" })),
            "operations[0].type: there is no \"files.burn\"",
        );
        refused(one(json!({ "id": "a", "type": "wait", "args": { "ms": 1, "x": 2 } })), "unknown field `x`");
        refused(one(json!({ "id": "a", "type": "wait", "args": { "ms": 60_001 } })), "wait_ms");
        refused(one(json!({ "id": "a/b", "type": "wait", "args": { "ms": 1 } })), "operations[0].id");
        refused(one(json!({ "id": "", "type": "wait", "args": { "ms": 1 } })), "id_bytes");
        refused(json!({ "operations": [wait("a", json!([])), wait("a", json!([]))] }), "two of the id \"a\"");
        refused(one(wait("a", json!(["b"]))), "operations[0].needs: there is no operation \"b\"");
        refused(one(wait("a", json!(["a"]))), "it needs itself");
        let circle = json!({ "operations": [
            wait("x", json!(["a"])), wait("a", json!(["b"])), wait("b", json!(["c"])), wait("c", json!(["a"])),
        ] });
        refused(circle, "in a circle: a -> b -> c -> a");
        refused(one(json!({ "id": "a", "type": "wait", "args": { "ms": 1 }, "retries": 6 })), "retries");
        refused(
            one(json!({ "id": "a", "type": "agent.call", "args": { "agent": "batch", "input": {} } })),
            "wait for its own place",
        );
        let many: Vec<Value> = (0..10_001).map(|n| wait(&n.to_string(), json!([]))).collect();
        refused(json!({ "operations": many }), "operations_per_batch");
        refused(json!({ "operations": [], "strategy": "magic" }), "unknown variant `magic`");
        refused(
            json!({ "strategy": "parallel_content_processing", "process": { "content": "x", "operation": "hash", "chunkBytes": 1 } }),
            "process.chunkBytes",
        );
        refused(
            json!({ "strategy": "resource_optimization", "optimize": { "contents": [{ "id": "a" }] } }),
            "optimize.contents[0]: give one of",
        );
        let small = BatchOptions { batch_bytes: 64, ..BatchOptions::default() };
        let long = one(
            json!({ "id": "a", "type": "files.write", "args": { "path": "a", "content": "x".repeat(100) } }),
        );
        assert!(BatchInput::read(&long, &small).is_err_and(|why| why.contains("batch_bytes")));
    }

    #[test]
    fn a_path_that_leads_elsewhere_is_refused_before_anything_is_done() {
        for path in ["", "/etc/passwd", "../x", "a/../../x", "a/..", "a\0b", &"x".repeat(1_025)] {
            refused(one(json!({ "id": "a", "type": "files.read", "args": { "path": path } })), "args.path");
        }
    }

    #[tokio::test]
    async fn expressions_are_built_once_each_and_there_are_only_so_many() {
        let batch = |patterns: Vec<String>| {
            let search = |(n, pattern): (usize, String)| {
                let args = json!({ "path": "a", "pattern": pattern, "regex": true });
                json!({ "id": format!("o{n}"), "type": "files.search", "args": args })
            };
            let operations: Vec<Value> = patterns.into_iter().enumerate().map(search).collect();
            json!({ "operations": operations })
        };
        let options = BatchOptions::default();
        let read = |patterns| {
            let input = BatchInput::read(&batch(patterns), &options)?;
            Ok::<_, String>((input.operations(&options)?, input))
        };
        // A thousand identical patterns compile once; each would take milliseconds.
        let (operations, input) =
            read(vec![r"\w{20}".to_owned(); 1_000]).unwrap_or_else(|why| panic!("{why}"));
        assert_eq!(input.patterns(&operations).len(), 1);
        assert_eq!(check_patterns(&input, &operations).await, Ok(()));
        let many = (0..=PATTERNS_PER_BATCH).map(|n| format!("a{n}")).collect();
        assert!(read(many).is_err_and(|why| why.contains("patterns_per_batch")));
        // An invalid or oversized pattern is reported with its location, but only by `check_patterns`.
        for wrong in ["(", r"\w{1000}{1000}"] {
            let (operations, input) =
                read(vec!["a".to_owned(), wrong.to_owned()]).unwrap_or_else(|why| panic!("{why}"));
            let checked = check_patterns(&input, &operations).await;
            assert!(checked.is_err_and(|why| why.contains("operations[1].args.pattern")), "{wrong}");
        }
    }

    #[test]
    fn a_batch_is_called_after_what_is_in_it() {
        let kind = |types: &[&str]| {
            let args = |r#type: &str| match r#type {
                "files.hash" => json!({ "path": "a" }),
                "memory.get" => json!({ "namespace": "n", "key": "k" }),
                "agent.call" => json!({ "agent": "echo", "input": "x" }),
                _ => json!({ "ms": 1 }),
            };
            let operations: Vec<Value> = types
                .iter()
                .enumerate()
                .map(|(n, one)| json!({ "id": format!("o{n}"), "type": one, "args": args(one) }))
                .collect();
            let input = BatchInput::read(&json!({ "operations": operations }), &BatchOptions::default());
            input.unwrap_or_else(|why| panic!("{why}")).kind()
        };
        assert_eq!(kind(&["files.hash", "files.hash"]), "file_operations");
        assert_eq!(kind(&["memory.get"]), "memory_operations");
        assert_eq!(kind(&["agent.call"]), "agent_operations");
        assert_eq!(kind(&["files.hash", "memory.get"]), "mixed_operations");
        assert_eq!(kind(&["wait"]), "mixed_operations");
    }
}
