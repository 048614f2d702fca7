//! The `[[agent]]` table: the keys that all kinds share, and those of each kind.
//!
//! An unknown key is an error, because a limit that seems to be set and is not is worse than none. Keys that
//! may hold a secret may name an environment variable, `${NAME}`; keys whose values are shown to callers may
//! not.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use nuncio_client::peer::{PeerLocation, PeerProgram};
use nuncio_engine::{ExtendedCard, Profile, QuestionLimit, Skill, redact::KnownSecrets};
use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::{Map, Value, json};
use url::Url;

pub use super::card_spec::{CardSpec, ExtensionSpec, ProviderSpec};
pub use super::filled_text::{FilledText, FilledUrl, Secret, path_beside};
use super::filled_text::{fill, is_filled};

/// An invalid table.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("agent {agent:?}: {key}: {why}")]
pub struct SpecError {
    /// The agent's name, if it has one.
    pub agent: String,
    /// The key that is wrong.
    pub key: String,
    /// What is wrong with it.
    pub why: String,
}

/// A parsed `[[agent]]` table.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentSpec {
    /// The agent's name, unique on the server.
    pub name: String,
    /// What it does. If missing, a remote agent's own description is used.
    pub description: Option<String>,
    /// The version on its card.
    pub version: Option<String>,
    /// The skills on its card.
    pub skills: Vec<SkillSpec>,
    /// The JSON Schema of structured input.
    pub input_schema: Option<Value>,
    /// How long it may run, without the time it waits.
    pub time_limit: Option<Duration>,
    /// How long its tasks may wait for an answer.
    pub question_limit: Option<QuestionLimit>,
    /// How long its tasks are retained after they have ended.
    pub retention: Option<Duration>,
    /// Further values on its card.
    pub card: CardSpec,
    /// Whether callers of this server reach it. If not, it is only listed in the registry, with its health.
    pub serve: bool,
    /// The kind, with its own keys.
    pub kind: AgentKind,
    /// The values of the environment variables that the table names, for redaction.
    pub known: KnownSecrets,
}

/// A skill in a table.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SkillSpec {
    /// Unique within the agent.
    pub id: String,
    /// The display name; the id if missing.
    pub name: Option<String>,
    /// What it does.
    #[serde(default)]
    pub description: String,
    /// Keywords to find it by.
    #[serde(default)]
    pub tags: Vec<String>,
    /// Example prompts.
    #[serde(default)]
    pub examples: Vec<String>,
    /// Media types that it accepts; those of the agent if missing.
    #[serde(default)]
    pub input_modes: Vec<String>,
    /// Media types that it produces; those of the agent if missing.
    #[serde(default)]
    pub output_modes: Vec<String>,
    /// Whether only authenticated callers read of it, on the extended card.
    #[serde(default)]
    pub extended: bool,
}

/// The kinds of agents.
#[derive(Debug, Clone, PartialEq)]
pub enum AgentKind {
    /// A program that exchanges lines of JSON over its pipes.
    Process(ProcessSpec),
    /// An HTTP endpoint that accepts POST requests.
    Http(HttpSpec),
    /// An MCP server.
    Mcp(McpSpec),
    /// A remote A2A agent.
    A2a(A2aSpec),
    /// A language model.
    Llm(LlmSpec),
}

/// A program that exchanges lines of JSON over its pipes, one process per task.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ProcessSpec {
    /// The program, then its arguments.
    pub command: Vec<FilledText>,
    /// Environment variables in addition to PATH, HOME, LANG and TMPDIR.
    #[serde(default)]
    pub env: BTreeMap<String, FilledText>,
    /// The working directory; relative to the folder of the configuration file.
    #[serde(default)]
    pub dir: Option<FilledText>,
    /// How many times it is restarted after a crash, per task.
    #[serde(default = "three")]
    pub restarts: u32,
    /// How long it may take to exit after a cancellation.
    #[serde(default = "five_seconds", deserialize_with = "duration")]
    pub grace: Duration,
    /// The format on its pipes.
    #[serde(default)]
    pub speaks: PipeFormat,
    /// Concurrent processes; further tasks wait.
    #[serde(default = "sixty_four")]
    pub max_processes: usize,
    /// Bytes of one line of its output.
    #[serde(default = "one_mebibyte")]
    pub max_line_bytes: usize,
    /// Lines of its output, per process.
    #[serde(default = "hundred_thousand")]
    pub max_lines: u64,
    /// Whether it receives the name and the tenant of the task's caller.
    #[serde(default)]
    pub tell_caller: bool,
}

/// The format on a program's pipes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PipeFormat {
    /// Lines of JSON, in both directions.
    #[default]
    Json,
    /// Plain text: the input's text on stdin, the result on stdout, and the exit code for success.
    Lines,
}

/// An HTTP endpoint that accepts POST requests.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct HttpSpec {
    /// The endpoint.
    pub url: FilledUrl,
    /// Additional headers of every request.
    #[serde(default)]
    pub headers: BTreeMap<String, FilledText>,
    /// Limit for a response, or for the next piece of a stream.
    #[serde(default = "two_minutes", deserialize_with = "duration")]
    pub timeout: Duration,
    /// How many times a rejected request is retried (429, 5xx, no connection).
    #[serde(default = "three")]
    pub retries: u32,
    /// Bytes of a response; for a stream, of all its messages together.
    #[serde(default = "sixteen_mebibytes")]
    pub max_answer_bytes: usize,
    /// Whether it receives the name and the tenant of the task's caller.
    #[serde(default)]
    pub tell_caller: bool,
}

/// An MCP server: a command or a URL.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct McpSpec {
    /// The program, then its arguments.
    #[serde(default)]
    pub command: Vec<FilledText>,
    /// Environment variables in addition to PATH, HOME, LANG and TMPDIR.
    #[serde(default)]
    pub env: BTreeMap<String, FilledText>,
    /// The working directory; relative to the folder of the configuration file.
    #[serde(default)]
    pub dir: Option<FilledText>,
    /// The endpoint, if it is not a program.
    #[serde(default)]
    pub url: Option<FilledUrl>,
    /// A bearer token, for the origin of the URL.
    #[serde(default)]
    pub token: Option<Secret>,
    /// The file with the token, read for every request; relative to the folder of the configuration file.
    #[serde(default)]
    pub token_file: Option<FilledText>,
    /// How to obtain tokens by OAuth.
    #[serde(default)]
    pub oauth: Option<OAuthSpec>,
    /// CAs to trust beside the system's, a PEM file; relative to the folder of the configuration file.
    #[serde(default)]
    pub ca_cert: Option<FilledText>,
    /// The certificate that is shown to the origin of the URL, a PEM file like `ca-cert`.
    #[serde(default)]
    pub client_cert: Option<FilledText>,
    /// The key of that certificate, a PEM file like `ca-cert`.
    #[serde(default)]
    pub client_key: Option<FilledText>,
    /// The tools to expose; empty: all.
    #[serde(default)]
    pub tools: Vec<String>,
    /// The MCP revision; missing: the newest that both sides know.
    #[serde(default)]
    pub revision: Option<String>,
    /// What to do about a call that was lost with its connection and cannot be resumed.
    #[serde(default)]
    pub lost: LostCallPolicy,
    /// How long to retry beginning a call before the task fails.
    #[serde(default = "twenty_seconds", deserialize_with = "duration")]
    pub patience: Duration,
    /// How long the server may be unreachable during a call.
    #[serde(default = "five_minutes", deserialize_with = "duration")]
    pub away: Duration,
    /// How long a call may go without any message.
    #[serde(default = "one_day", deserialize_with = "duration")]
    pub silence: Duration,
}

/// A remote A2A agent.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct A2aSpec {
    /// The URL of the agent, or of its card.
    pub url: FilledUrl,
    /// A bearer token, for the origin of the URL.
    #[serde(default)]
    pub token: Option<Secret>,
    /// The file with the token, read for every request; relative to the folder of the configuration file.
    #[serde(default)]
    pub token_file: Option<FilledText>,
    /// How to obtain tokens by OAuth.
    #[serde(default)]
    pub oauth: Option<OAuthSpec>,
    /// The keys that must have signed its card: a file, the URL of a key set, or the keys themselves; missing: the card is
    /// not verified. A file is relative to the folder of the configuration file.
    #[serde(default)]
    pub card_keys: Option<FilledText>,
    /// CAs to trust beside the system's, a PEM file; relative to the folder of the configuration file.
    #[serde(default)]
    pub ca_cert: Option<FilledText>,
    /// The certificate that is shown to the origin of the URL, a PEM file like `ca-cert`.
    #[serde(default)]
    pub client_cert: Option<FilledText>,
    /// The key of that certificate, a PEM file like `ca-cert`.
    #[serde(default)]
    pub client_key: Option<FilledText>,
    /// The A2A version: 1.0, 0.3 or 0.1; missing: the one that its card prefers.
    #[serde(default)]
    pub dialect: Option<String>,
    /// The only binding to use: JSONRPC, HTTP+JSON or GRPC; missing: the order of its card.
    #[serde(default)]
    pub transport: Option<String>,
    /// URIs of extensions to declare in every request, for an agent that requires them.
    #[serde(default)]
    pub declare_extensions: Vec<String>,
    /// What to do about a call that was lost with its connection and cannot be resumed.
    #[serde(default)]
    pub lost: LostCallPolicy,
    /// How long to retry beginning a call before the task fails.
    #[serde(default = "twenty_seconds", deserialize_with = "duration")]
    pub patience: Duration,
    /// How long the agent may be unreachable during a call.
    #[serde(default = "five_minutes", deserialize_with = "duration")]
    pub away: Duration,
}

/// How to obtain tokens by OAuth. The endpoints are discovered.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct OAuthSpec {
    /// The grant type; missing: client credentials if there is a secret, otherwise the login of a user.
    #[serde(default)]
    pub grant: Option<GrantKind>,
    /// A client id that the issuer has assigned.
    #[serde(default)]
    pub client_id: Option<FilledText>,
    /// The client secret.
    #[serde(default)]
    pub client_secret: Option<Secret>,
    /// The file with the client secret; relative to the folder of the configuration file.
    #[serde(default)]
    pub client_secret_file: Option<FilledText>,
    /// The issuer of the tokens; a server that names another is refused. Required with a secret.
    #[serde(default)]
    pub issuer: Option<FilledText>,
    /// The scopes to request; empty: those that the server names.
    #[serde(default)]
    pub scopes: Vec<String>,
    /// The folder for the tokens of users that logged in. Not a key of the table.
    #[serde(skip)]
    pub tokens: Option<PathBuf>,
}

/// The grant type of OAuth tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GrantKind {
    /// The server's own tokens.
    ClientCredentials,
    /// The tokens of a user that logged in once.
    Login,
}

/// What to do about a call that was lost with its connection and cannot be resumed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LostCallPolicy {
    /// Call again: the work may be done twice.
    Again,
    /// Call again if the remote side declares the call idempotent or honours its idempotency key; otherwise
    /// the task fails.
    #[default]
    Safe,
    /// The task fails.
    Fail,
}

/// A language model.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LlmSpec {
    /// `openai` (and compatible servers), `anthropic`, `gemini` or `ollama`.
    pub provider: String,
    /// The model's name at the provider.
    pub model: FilledText,
    /// The base URL, if it is not the provider's.
    #[serde(default)]
    pub base_url: Option<FilledUrl>,
    /// The API key. May be missing for ollama, and for a `base-url` that requires none.
    #[serde(default)]
    pub api_key: Option<Secret>,
    /// The system prompt.
    #[serde(default)]
    pub system: Option<FilledText>,
    /// Agents of this server that it may call: a name, or `agent/skill` for one tool of an MCP server.
    #[serde(default)]
    pub tools: Vec<String>,
    /// A namespace of the memory bank that it may read and write.
    #[serde(default)]
    pub memory: Option<String>,
    /// Tokens of one reply.
    #[serde(default)]
    pub max_tokens: Option<u32>,
    /// The sampling temperature.
    #[serde(default)]
    pub temperature: Option<f64>,
    /// Tokens of a task, input and output together.
    #[serde(default = "hundred_thousand")]
    pub budget_tokens: u64,
    /// Calls of the model, and calls of tools, per task; the limit applies to each.
    #[serde(default = "fifty")]
    pub budget_calls: u32,
    /// Time of all the model's replies in a task together; tools have their own limits.
    #[serde(default = "thirty_minutes", deserialize_with = "duration")]
    pub budget_time: Duration,
    /// Limit for one reply of the model.
    #[serde(default = "two_minutes", deserialize_with = "duration")]
    pub timeout: Duration,
    /// How many times a failed request is retried (429, 5xx, no connection, a cut stream).
    #[serde(default = "five")]
    pub retries: u32,
}

fn three() -> u32 {
    3
}

fn five() -> u32 {
    5
}

fn fifty() -> u32 {
    50
}

fn one_mebibyte() -> usize {
    1024 * 1024
}

fn sixteen_mebibytes() -> usize {
    16 * 1024 * 1024
}

fn sixty_four() -> usize {
    64
}

fn hundred_thousand() -> u64 {
    100_000
}

fn five_seconds() -> Duration {
    Duration::from_secs(5)
}

fn twenty_seconds() -> Duration {
    Duration::from_secs(20)
}

fn five_minutes() -> Duration {
    Duration::from_secs(5 * 60)
}

fn one_day() -> Duration {
    Duration::from_secs(24 * 3600)
}

fn thirty_minutes() -> Duration {
    Duration::from_secs(30 * 60)
}

fn two_minutes() -> Duration {
    Duration::from_secs(120)
}

/// A duration that is not zero.
fn duration<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(from)?;
    match nuncio_engine::duration::parse(&text) {
        Ok(duration) if duration.is_zero() => {
            Err(serde::de::Error::custom(format!("expected a duration above zero, not {text:?}")))
        }
        Ok(duration) => Ok(duration),
        Err(why) => Err(serde::de::Error::custom(format!("expected a duration: {why}"))),
    }
}

/// Why a key takes no variable: its value is shown to callers, or in errors.
const NO_VARIABLE: &str = "takes no variable ${NAME}: it is no place for a secret, write the value itself";

/// The keys that all kinds share.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct CommonAgentKeys {
    description: Option<String>,
    version: Option<String>,
    #[serde(default)]
    skills: Vec<SkillSpec>,
    input_schema: Option<Value>,
    #[serde(default, deserialize_with = "optional_duration")]
    time_limit: Option<Duration>,
    #[serde(default, deserialize_with = "optional_question_limit")]
    question_limit: Option<QuestionLimit>,
    #[serde(default, deserialize_with = "optional_duration")]
    retention: Option<Duration>,
    #[serde(flatten)]
    card: CardSpec,
    #[serde(default = "yes")]
    serve: bool,
}

/// The keys that all kinds share, beside `name` and `kind`.
pub const COMMON: [&str; 18] = [
    "description",
    "version",
    "skills",
    "input-schema",
    "time-limit",
    "question-limit",
    "retention",
    "serve",
    "input-modes",
    "output-modes",
    "streaming",
    "push-notifications",
    "replies",
    "provider",
    "documentation-url",
    "icon-url",
    "extensions",
    "extended-description",
];

/// Whether a key is read for all kinds. `provider` of a model is the model's, not that of the card.
fn is_common(kind: &str, key: &str) -> bool {
    COMMON.contains(&key) && (kind, key) != ("llm", "provider")
}

fn yes() -> bool {
    true
}

fn optional_duration<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    duration(from).map(Some)
}

fn optional_question_limit<'de, D: Deserializer<'de>>(from: D) -> Result<Option<QuestionLimit>, D::Error> {
    let text = String::deserialize(from)?;
    let limit = QuestionLimit::parse(&text);
    limit.map(Some).map_err(|why| serde::de::Error::custom(format!("expected a duration, or never: {why}")))
}

impl AgentSpec {
    /// Parses a table; `variable` looks up environment variables.
    pub fn read(
        table: &Map<String, Value>,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, SpecError> {
        let mut table = table.clone();
        let name = match table.remove("name") {
            Some(Value::String(name)) => name,
            _ => return Err(wrong("", "name", "is required, a text")),
        };
        let kind = match table.remove("kind") {
            Some(Value::String(kind)) => kind,
            _ => {
                let why = "is required: process, http, mcp, a2a or llm";
                return Err(wrong(&name, "kind", why));
            }
        };
        let mut known = KnownSecrets::default();
        for (key, value) in &mut table {
            fill(value, variable, &mut known).map_err(|why| wrong(&name, key, why))?;
        }
        let (common, own): (Map<String, Value>, Map<String, Value>) =
            table.into_iter().partition(|(key, _)| is_common(&kind, key));
        let common: CommonAgentKeys = read(&name, common)?;
        let CommonAgentKeys { description, version, skills, input_schema, card, serve, .. } = common;
        let CommonAgentKeys { time_limit, question_limit, retention, .. } = common;
        card.check(&skills).map_err(|(key, why)| wrong(&name, key, why))?;
        let kind = match kind.as_str() {
            "process" => AgentKind::Process(read(&name, own)?),
            "http" => AgentKind::Http(read(&name, own)?),
            "mcp" => AgentKind::Mcp(read(&name, own)?),
            "a2a" => AgentKind::A2a(read(&name, own)?),
            "llm" => AgentKind::Llm(read(&name, own)?),
            other => {
                let why = format!("expected process, http, mcp, a2a or llm, not {other:?}");
                return Err(wrong(&name, "kind", why));
            }
        };
        let spec = Self {
            name,
            description,
            version,
            skills,
            input_schema,
            time_limit,
            question_limit,
            retention,
            card,
            serve,
            kind,
            known,
        };
        match serve {
            true => Ok(spec),
            false => spec.check_listed().map(|()| spec),
        }
    }

    /// The profile of an agent with this table, before a remote side adds to it. `otherwise` is the default
    /// description.
    pub fn profile(&self, otherwise: &str) -> Profile {
        let mut profile = Profile::new(&self.name, self.description.as_deref().unwrap_or(otherwise));
        if let Some(version) = &self.version {
            profile.version.clone_from(version);
        }
        if self.has_public_skills() {
            profile.skills = self.skills_of(false);
        }
        profile.input_schema.clone_from(&self.input_schema);
        profile.strict_input = self.input_schema.is_some();
        profile.time_limit = self.time_limit;
        profile.question_limit = self.question_limit;
        profile.retention = self.retention;
        // What a program or an endpoint understands is its own business, unless the table says otherwise.
        if matches!(self.kind, AgentKind::Process(_) | AgentKind::Http(_)) {
            profile.input_modes = vec!["*/*".into()];
        }
        self.card.apply(&mut profile);
        let (description, skills) = (self.card.extended_description.clone(), self.skills_of(true));
        if description.is_some() || !skills.is_empty() {
            profile.extended_card = Some(ExtendedCard { description, skills });
        }
        profile
    }

    /// Whether the table names skills that everyone reads of.
    pub(super) fn has_public_skills(&self) -> bool {
        self.skills.iter().any(|skill| !skill.extended)
    }

    fn skills_of(&self, extended: bool) -> Vec<Skill> {
        self.skills.iter().filter(|skill| skill.extended == extended).map(SkillSpec::skill).collect()
    }

    /// The URL of an agent behind a protocol of its own: kind `a2a`, or `mcp` with a URL.
    pub fn remote_url(&self) -> Option<&Url> {
        match &self.kind {
            AgentKind::A2a(own) => Some(own.url.expose()),
            AgentKind::Mcp(own) => own.url.as_ref().map(FilledUrl::expose),
            _ => None,
        }
    }

    /// Checks an agent that is not served: there must be something to probe.
    fn check_listed(&self) -> Result<(), SpecError> {
        let Some(url) = self.remote_url() else {
            return Err(self.wrong(
                "serve",
                "only a remote agent can be listed without being served: kind a2a or mcp, with a url",
            ));
        };
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err(self.wrong("url", "expected a URL with http or https"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(self.wrong("url", "it carries a user name or a password, which is not sent"));
        }
        Ok(())
    }

    /// An error about a key of this table.
    pub fn wrong(&self, key: &str, why: impl Into<String>) -> SpecError {
        wrong(&self.name, key, why)
    }
}

impl SkillSpec {
    fn skill(&self) -> Skill {
        let name = self.name.as_deref().unwrap_or(&self.id);
        let mut skill = Skill::new(&self.id, name, &self.description);
        if !self.tags.is_empty() {
            skill.tags.clone_from(&self.tags);
        }
        skill.examples.clone_from(&self.examples);
        skill.input_modes.clone_from(&self.input_modes);
        skill.output_modes.clone_from(&self.output_modes);
        skill
    }
}

impl McpSpec {
    /// The location of the server.
    pub fn location(&self) -> Result<PeerLocation, String> {
        match (&self.url, self.command.is_empty()) {
            (Some(url), true) => Ok(PeerLocation::Url(url.expose().clone())),
            (None, false) => Ok(PeerLocation::Command(PeerProgram {
                command: self.command.iter().map(|word| word.expose().to_owned()).collect(),
                env: self.env.iter().map(|(name, value)| (name.clone(), value.expose().to_owned())).collect(),
                dir: self.dir.as_ref().map(|dir| dir.path().to_owned()),
            })),
            _ => Err("an MCP server has a command or a url, one of the two".into()),
        }
    }
}

fn wrong(agent: &str, key: &str, why: impl Into<String>) -> SpecError {
    SpecError { agent: agent.into(), key: key.into(), why: why.into() }
}

fn read<T: DeserializeOwned>(agent: &str, table: Map<String, Value>) -> Result<T, SpecError> {
    let mut at = "table".to_owned();
    // These accept any JSON, so they would accept a filled text as a part of themselves.
    for key in ["input-schema", "extensions"] {
        if table.get(key).is_some_and(is_filled) {
            return Err(wrong(agent, key, NO_VARIABLE));
        }
    }
    // Serde's error does not name the key, so each key is parsed alone first.
    for (key, value) in &table {
        let alone: Map<String, Value> = [(key.clone(), value.clone())].into_iter().collect();
        if let Err(error) = serde_json::from_value::<T>(Value::Object(alone))
            && !error.to_string().starts_with("missing field")
        {
            at.clone_from(key);
        }
    }
    let filled = table.get(&at).is_some_and(is_filled);
    let text = table.get(&at).and_then(Value::as_str).map(str::to_owned);
    serde_json::from_value(Value::Object(table)).map_err(|error| match error.to_string() {
        why if why.starts_with("invalid type: string") && why.contains("expected a sequence") => {
            wrong(agent, &at, list_instead_of(&at, text.as_deref().unwrap_or_default()))
        }
        why if filled && why.starts_with("invalid type: map") => wrong(agent, &at, NO_VARIABLE),
        why => wrong(agent, &at, why),
    })
}

/// What to write in the place of a text where a list is expected.
fn list_instead_of(key: &str, text: &str) -> String {
    // The words of a command line, without a shell; of other lists a text may be one item.
    let words: Vec<&str> = match key {
        "command" => text.split_whitespace().collect(),
        _ => vec![text],
    };
    format!("expected a list, not a text: write {key} = {}", json!(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(table: Value) -> Result<AgentSpec, String> {
        let Value::Object(table) = table else { panic!("a table") };
        let variable = |name: &str| (name == "KEY").then(|| "k-1".to_owned());
        AgentSpec::read(&table, &variable).map_err(|error| error.to_string())
    }

    #[test]
    fn a_table_says_what_it_is_and_what_it_needs() {
        let table = json!({
            "name": "shouter", "kind": "process", "command": ["python3", "shout.py"], "time-limit": "5m", "question-limit": "never", "retention": "7d",
            "env": { "API": "${KEY}!" }, "skills": [{ "id": "shout", "tags": ["loud"] }],
        });
        let spec = spec(table).unwrap();
        assert_eq!(spec.time_limit, Some(Duration::from_secs(300)));
        assert_eq!(spec.question_limit, Some(QuestionLimit::Never));
        assert_eq!(spec.retention, Some(Duration::from_secs(7 * 24 * 3600)));
        let profile = spec.profile("");
        assert_eq!((profile.question_limit, profile.retention), (spec.question_limit, spec.retention));
        assert_eq!(spec.profile("a program").skills[0].tags, ["loud"]);
        let AgentKind::Process(process) = spec.kind else { panic!("a process") };
        assert_eq!((process.restarts, process.env["API"].expose()), (3, "k-1!"));
    }

    #[test]
    fn how_long_others_may_be_away_can_be_said() {
        let table = json!({ "name": "a", "kind": "mcp", "url": "http://x", "silence": "2h", "away": "1m" });
        let Ok(AgentSpec { kind: AgentKind::Mcp(mcp), .. }) = spec(table) else { panic!("an MCP server") };
        let seconds = |time: Duration| time.as_secs();
        assert_eq!((seconds(mcp.silence), seconds(mcp.away), seconds(mcp.patience)), (7200, 60, 20));
        let table = json!({ "name": "a", "kind": "a2a", "url": "http://x", "patience": "3s" });
        let Ok(AgentSpec { kind: AgentKind::A2a(a2a), .. }) = spec(table) else { panic!("an agent") };
        assert_eq!((seconds(a2a.patience), seconds(a2a.away)), (3, 300));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let check = |table: Value, words: &str| {
            let why = spec(table).unwrap_err();
            assert!(why.contains(words), "{why}");
        };
        check(json!({ "kind": "process" }), "name: is required");
        check(json!({ "name": "a" }), "kind: is required");
        check(json!({ "name": "a", "kind": "prozess" }), "not \"prozess\"");
        check(json!({ "name": "a", "kind": "process" }), "missing field `command`");
        check(json!({ "name": "a", "kind": "process", "command": ["x"], "cmd": 1 }), "cmd: unknown field");
        check(
            json!({ "name": "a", "kind": "process", "command": "cat -n" }),
            r#"command: expected a list, not a text: write command = ["cat","-n"]"#,
        );
        check(json!({ "name": "a", "kind": "http", "url": "nowhere" }), "url: ");
        check(
            json!({ "name": "a", "kind": "http", "url": "http://x", "timeout": "5 days" }),
            "timeout: expected",
        );
        check(json!({ "name": "a", "kind": "a2a", "url": "http://x", "token": "${NONE}" }), "NONE");
    }
}
