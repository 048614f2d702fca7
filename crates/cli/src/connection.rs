//! The connection to an agent: the flags that all client commands share, and the client built from them.

use std::{
    cell::{Cell, RefCell},
    future::Future,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use clap::Args;
use http::{HeaderName, HeaderValue};
use nuncio_client::a2a::{
    A2aClient, A2aClientError, A2aCredentials, A2aHttpOptions, A2aResponse, AgentCard, CardCache,
    CardFreshness, CardReference, InterfacePreference, RenewedBearer, WaitOptions,
};
use nuncio_engine::{task::State, trace};
use nuncio_wire::a2a::Dialect;
use tokio::sync::Notify;
use url::Url;

use super::{
    agent_names::{UnknownAgent, list_agents},
    auth,
    card_folder::card_cache,
    client_config::{AGENT_CARD, API_KEY, BEARER, ClientSources, ShownSetting},
    console_client::{ConsoleAccess, server_of_card},
    credential_origin::CredentialFlags,
    error::{CliError, TaskResumePoint},
    output::{OutputFlags, note},
    server,
};
use crate::{
    config::LogFormat,
    duration, logs,
    tls_flags::{CLIENT_CERT, TlsFlags},
};

/// The flags that all client commands share.
#[derive(Args, Debug, Clone)]
pub(crate) struct AgentFlags {
    // First: the parser takes the values of the other fields out of the matches, and their sources with them.
    #[command(flatten)]
    sources: ClientSources,
    /// The agent: a host, the URL of its card, a file, or CATALOG#NAME for an entry of a catalog. Default: NUNCIO_SERVER,
    /// else the local server
    #[arg(short = 'a', long, alias = "server", env = "A2ACLI_AGENT_CARD", value_name = "REF")]
    agent_card: Option<String>,
    /// One of the agents of a Nuncio server, by its name
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// The protocol version to speak: 1.0, 0.3 or 0.1. Versions before 1.0 must be requested
    #[arg(long, env = "A2ACLI_A2A_VERSION", default_value = "1.0", value_name = "VERSION", value_parser = version)]
    a2a_version: Dialect,
    /// The bindings to prefer, best first: JSONRPC, HTTP+JSON, GRPC. Default: the card's order
    #[arg(long, env = "A2ACLI_TRANSPORT", value_name = "BINDING")]
    transport: Vec<String>,
    /// A bearer token. Other users of this machine can see flags: prefer A2ACLI_BEARER
    #[arg(long, env = "A2ACLI_BEARER", hide_env_values = true, value_name = "TOKEN")]
    bearer: Option<String>,
    /// An API key. Other users of this machine can see flags: prefer A2ACLI_API_KEY
    #[arg(long, env = "A2ACLI_API_KEY", hide_env_values = true, value_name = "KEY")]
    api_key: Option<String>,
    #[command(flatten)]
    credential_flags: CredentialFlags,
    #[command(flatten)]
    tls: TlsFlags,
    /// A service parameter, sent as an HTTP header
    #[arg(long = "svc-param", value_name = "KEY:VALUE", value_parser = service_parameter)]
    service_parameters: Vec<(HeaderName, HeaderValue)>,
    /// A protocol extension that you know and want, by its URI; required where the agent's card requires one that this
    /// client does not know. Repeatable
    #[arg(long = "extension", value_name = "URI", value_parser = extension)]
    extensions: Vec<String>,
    /// How long to wait before giving up, such as 30s. Default: no limit
    #[arg(long, env = "A2ACLI_TIMEOUT", value_name = "DURATION", value_parser = duration::parse)]
    timeout: Option<Duration>,
    /// How often to poll the task while waiting without a stream
    #[arg(long, env = "A2ACLI_POLL_INTERVAL", default_value = "2s", value_name = "DURATION", value_parser = poll)]
    pub(crate) poll_interval: Duration,
    /// Go on waiting while the task waits for an authorization, which is given elsewhere: by its link, which is shown, or
    /// by the agent's operator
    #[arg(long)]
    wait_auth: bool,
    /// Accept any TLS certificate. For development only
    #[arg(long, env = "A2ACLI_INSECURE")]
    insecure: bool,
    /// Log the messages exchanged with the agent to the standard error, without credentials
    #[arg(long, env = "A2ACLI_DEBUG")]
    debug: bool,
    #[command(flatten)]
    pub(crate) output: OutputFlags,
}

/// The agent that a command addresses, for error messages.
#[derive(Debug, Clone)]
pub(crate) struct AgentTarget {
    pub(crate) origin: TargetOrigin,
    /// The flags that name the agent, for suggested commands; with a leading space.
    pub(crate) flags: String,
}

/// How the agent's address was found.
#[derive(Debug, Clone)]
pub(crate) enum TargetOrigin {
    /// The user named it.
    Given,
    /// A server published its address in this file.
    Published(PathBuf),
    /// The default address.
    Default,
}

pub(crate) struct AgentConnection {
    pub(crate) target: AgentTarget,
    pub(crate) output: OutputFlags,
    pub(crate) poll_interval: Duration,
    /// Whether an authorization is waited for.
    pub(crate) wait_auth: bool,
    reference: CardReference,
    cards: CardCache,
    preference: InterfacePreference,
    credentials: A2aCredentials,
    credential_flags: CredentialFlags,
    /// The extensions that the user declares.
    extensions: Vec<String>,
    /// Where the agent and the credentials were named.
    sources: ClientSources,
    pub(crate) http: A2aHttpOptions,
    /// Whether a client certificate is shown.
    shows_certificate: bool,
    /// The address of the local server and its operator token, where the user named neither.
    operator: Option<(String, String)>,
    /// The agent's name, where the user named one of a server's agents.
    agent: Option<String>,
    timeout: Option<Duration>,
    /// Where to resume if the command ends early.
    seen: RefCell<TaskResumePoint>,
    /// Notified when a task is recorded there.
    recorded: Notify,
    /// The state in which the command left the task.
    final_state: Cell<Option<State>>,
}

impl AgentFlags {
    /// The agent's name, where the user named one of a server's agents.
    pub(crate) fn agent_name(&self) -> Option<&str> {
        self.agent.as_deref()
    }

    /// The requested protocol version.
    pub(crate) fn dialect(&self) -> Dialect {
        self.a2a_version
    }

    /// Where the values come from.
    pub(crate) fn sources(&self) -> &ClientSources {
        &self.sources
    }

    /// The effective values, for `nuncio config show`.
    pub(crate) fn shown_settings(&self) -> Vec<ShownSetting> {
        let shown = |variable, value| ShownSetting { variable, value };
        let switch = |on: bool| Some(on.to_string());
        let format = if self.output.is_json() { "json" } else { "text" };
        let transport = (!self.transport.is_empty()).then(|| self.transport.join(","));
        vec![
            shown(
                AGENT_CARD,
                Some(
                    self.agent_card
                        .clone()
                        .or_else(server::from_environment)
                        .unwrap_or_else(|| server::locate().0),
                ),
            ),
            shown("A2ACLI_A2A_VERSION", Some(self.a2a_version.version().to_owned())),
            shown("A2ACLI_TRANSPORT", transport),
            shown(BEARER, self.bearer.clone()),
            shown(API_KEY, self.api_key.clone()),
            shown("A2ACLI_TIMEOUT", self.timeout.map(duration::format)),
            shown("A2ACLI_POLL_INTERVAL", Some(duration::format(self.poll_interval))),
            shown("A2ACLI_OUTPUT", Some(format.to_owned())),
            shown("A2ACLI_VERBOSE", switch(self.output.verbose)),
            shown("A2ACLI_DEBUG", switch(self.debug)),
            shown("A2ACLI_INSECURE", switch(self.insecure)),
        ]
    }

    /// Resolves the flags, without any network access.
    pub(crate) fn resolve(self) -> Result<AgentConnection, CliError> {
        if self.debug {
            logs::start("warn,nuncio_client=debug", LogFormat::Text, &Arc::default());
        } else {
            logs::start("warn", LogFormat::Text, &Arc::default());
        }
        if self.insecure {
            note(
                "warning: --insecure accepts any certificate: what is sent, credentials included, can be read",
            );
        }
        self.sources.files.notes.iter().for_each(|text| note(&format!("note: {text}")));
        if let (Some(file), Some(card)) = (self.sources.found_agent(), &self.agent_card) {
            note(&format!("note: the agent is {card}, as {} says", file.display()));
        }
        let named = self.agent_card.clone().or_else(server::from_environment);
        let (text, origin, token) = match named {
            Some(text) => (text.clone(), TargetOrigin::Given, server::token_of(&text)),
            None => server::locate(),
        };
        let operator = token.filter(|_| self.bearer.is_none()).map(|token| (text.clone(), token));
        let mut flags = match origin {
            TargetOrigin::Given => format!(" -a {text}"),
            TargetOrigin::Published(_) | TargetOrigin::Default => String::new(),
        };
        if let Some(agent) = &self.agent {
            flags = format!("{flags} --agent {agent}");
        }
        if self.tls.shows_certificate() {
            // Before the card is fetched: that handshake shows the certificate.
            self.sources.check_credential(CLIENT_CERT).map_err(CliError::Usage)?;
        }
        let tls = server::trust_published(self.tls.read()?, &server::configured().data);
        let target = AgentTarget { origin, flags };
        let reference = match &self.agent {
            Some(agent) => agent_of(&text, agent)?,
            None => CardReference::parse(&text)
                .map_err(|error| CliError::Client { error: Box::new(error), target: target.clone() })?,
        };
        let seen =
            RefCell::new(TaskResumePoint { agent_flags: target.flags.clone(), ..TaskResumePoint::default() });
        Ok(AgentConnection {
            target,
            output: self.output,
            poll_interval: self.poll_interval,
            wait_auth: self.wait_auth,
            reference,
            cards: card_cache(),
            preference: InterfacePreference {
                bindings: self.transport,
                dialect: self.a2a_version,
                only: false,
            },
            credentials: A2aCredentials {
                bearer: self.bearer,
                api_key: self.api_key,
                service_parameters: with_trace(self.service_parameters),
                ..A2aCredentials::default()
            },
            credential_flags: self.credential_flags,
            extensions: self.extensions,
            sources: self.sources,
            shows_certificate: self.tls.shows_certificate(),
            http: A2aHttpOptions { insecure: self.insecure, tls, ..A2aHttpOptions::default() },
            operator,
            agent: self.agent,
            timeout: self.timeout,
            seen,
            recorded: Notify::new(),
            final_state: Cell::new(None),
        })
    }
}

impl AgentConnection {
    /// The agent's card as it is now.
    pub(crate) async fn card(&self) -> Result<A2aResponse<AgentCard>, CliError> {
        self.find_card(CardFreshness::Revalidated).await
    }

    /// The agent's card; for as long as its server says that it is valid, the stored one.
    async fn find_card(&self, freshness: CardFreshness) -> Result<A2aResponse<AgentCard>, CliError> {
        let none = A2aCredentials::default();
        let open = self.cards.card(&self.reference, &self.http, &none, freshness).await;
        if let (Err(error @ A2aClientError::NoCard { .. }), Some(agent)) = (&open, &self.agent) {
            return Err(self.unknown_agent(agent, error.clone()).await);
        }
        let (Some(url), Err(A2aClientError::Unauthorized { .. })) = (self.reference.url(), &open) else {
            return open.map_err(|error| self.failed(error));
        };
        let bearer = self.credentials.bearer.clone();
        let bearer = bearer.or_else(|| self.operator.as_ref().map(|(_, token)| token.clone()));
        let Some(bearer) = bearer else {
            return open.map_err(|error| self.failed(error));
        };
        // Only now: a public card needs no credentials.
        self.check_credentials(url, Some(url))?;
        let credentials = A2aCredentials { bearer: Some(bearer), ..self.credentials.clone() };
        let closed = self.cards.card(&self.reference, &self.http, &credentials, freshness).await;
        match (closed, &self.agent) {
            (Err(error @ A2aClientError::NoCard { .. }), Some(agent)) => {
                Err(self.unknown_agent(agent, error).await)
            }
            (closed, _) => closed.map_err(|error| self.failed(error)),
        }
    }

    /// The error for an agent that the server does not have: with those that it has, if it lists them.
    async fn unknown_agent(&self, agent: &str, error: A2aClientError) -> CliError {
        let Some(url) = self.reference.url() else { return self.failed(error) };
        let server = server_of_card(url);
        let bearer = self.credentials.bearer.as_deref();
        let bearer = bearer.or(self.operator.as_ref().map(|(_, token)| token.as_str()));
        let bearer = bearer.filter(|_| self.check_credentials(url, Some(url)).is_ok());
        let open = list_agents(&server, &self.http, None).await.unwrap_or_default();
        let known = match (open.is_empty(), bearer) {
            // A server may show its agents only to callers that it knows.
            (true, Some(bearer)) => list_agents(&server, &self.http, Some(bearer)).await.unwrap_or_default(),
            _ => open,
        };
        if !known.is_empty() {
            return CliError::UnknownAgent(UnknownAgent::new(agent, server, known));
        }
        self.failed(error)
    }

    /// Where the console API of the agent's server is, and the token that it is called with.
    pub(crate) async fn console_access(&self) -> Result<ConsoleAccess, CliError> {
        let Some(url) = self.reference.url() else {
            let why = "this needs a Nuncio server: give -a its address, not a file";
            return Err(CliError::Usage(why.to_owned()));
        };
        let base = server_of_card(url);
        let (bearer, folder) = match (&self.credentials.bearer, &self.operator) {
            (Some(bearer), _) => {
                self.check_credentials(url, Some(url))?;
                (Some(bearer.clone()), None)
            }
            (None, Some((_, token))) => (Some(token.clone()), Some(server::configured().data)),
            (None, None) => {
                if self.shows_certificate {
                    self.check_credentials(url, Some(url))?;
                }
                (auth::stored_token(url).await, None)
            }
        };
        Ok(ConsoleAccess { base, bearer, folder, target: self.target.clone(), http: self.http.clone() })
    }

    /// The extended card. Only a credential of a scheme that the public card declares is sent for it (`a2a-cli`,
    /// section 12.4).
    pub(crate) async fn extended_card(&self) -> Result<A2aResponse<AgentCard>, CliError> {
        let card = self.card().await?.value;
        let unsupported = |why: &str| Err(self.failed(A2aClientError::Unsupported(why.to_owned())));
        if !card.extended_card {
            return unsupported("the agent's card declares no extended card");
        }
        if self.credentials.bearer.is_some() && !card.takes_bearer {
            return unsupported("the agent's card declares no scheme that takes a bearer token");
        }
        if self.credentials.api_key.is_some() && card.api_key_place.is_none() {
            return unsupported("the agent's card declares no scheme that takes an API key");
        }
        let client = self.client_of(&card).await?;
        client.extended_card().await.map_err(|error| self.failed(error))
    }

    /// A client for the agent.
    pub(crate) async fn client(&self) -> Result<A2aClient, CliError> {
        let card = self.find_card(CardFreshness::Fresh).await?.value;
        self.client_of(&card).await
    }

    /// The card, the address that the agent is called at, and whether credentials may be sent there.
    pub(crate) async fn login_target(&self) -> Result<(A2aResponse<AgentCard>, Url), CliError> {
        let card = self.card().await?;
        let client = A2aClient::new(&card.value, &self.preference, &A2aCredentials::default(), &self.http)
            .map_err(|error| self.failed(error))?;
        let endpoint = client.endpoint().clone();
        self.check_login(&endpoint)?;
        Ok((card, endpoint))
    }

    /// Whether a secret of the user's may be sent to an address.
    pub(crate) fn check_login(&self, to: &Url) -> Result<(), CliError> {
        self.credential_flags.check(to, self.reference.url()).map_err(CliError::Usage)
    }

    async fn client_of(&self, card: &AgentCard) -> Result<A2aClient, CliError> {
        let extensions = card.declared_extensions(&self.extensions).map_err(|error| self.failed(error))?;
        let connect = |credentials: &A2aCredentials| {
            A2aClient::new(card, &self.preference, credentials, &self.http)
                .map(|client| client.with_extensions(&extensions))
                .map_err(|error| self.failed(error))
        };
        let client = connect(&self.credentials)?;
        let endpoint = client.endpoint();
        let A2aCredentials { bearer, api_key, service_parameters, .. } = &self.credentials;
        let given = bearer.is_some()
            || api_key.is_some()
            || has_other_than_trace(service_parameters)
            || self.shows_certificate;
        if given {
            self.check_credentials(endpoint, self.reference.url())?;
        }
        let Some((server, token)) = &self.operator else {
            if given {
                return Ok(client);
            }
            return match auth::stored_token(endpoint).await {
                Some(token) => connect(&A2aCredentials { bearer: Some(token), ..self.credentials.clone() }),
                None => Ok(client),
            };
        };
        // The operator token is only for the server that published it, whatever address the card names.
        let here = Url::parse(server).is_ok_and(|server| server.origin() == endpoint.origin());
        let is_named = self.credential_flags.check(endpoint, None).is_ok();
        match here || is_named {
            true => {
                let address = server.clone();
                connect(&A2aCredentials {
                    bearer: Some(token.clone()),
                    // It changes with every start of the server, and a task outlives those.
                    bearer_source: Some(RenewedBearer::new(move || server::token_of(&address))),
                    ..self.credentials.clone()
                })
            }
            false => Ok(client),
        }
    }

    /// Whether the given credentials may be sent to an address. `named`: the address that the user named.
    fn check_credentials(&self, endpoint: &Url, named: Option<&Url>) -> Result<(), CliError> {
        let A2aCredentials { bearer, api_key, service_parameters, .. } = &self.credentials;
        let given = [
            (BEARER, bearer.is_some()),
            (API_KEY, api_key.is_some()),
            ("--svc-param", has_other_than_trace(service_parameters)),
            (CLIENT_CERT, self.shows_certificate),
        ];
        for (variable, _) in given.into_iter().filter(|(_, is_given)| *is_given) {
            self.sources.check_credential(variable).map_err(CliError::Usage)?;
        }
        self.credential_flags.check(endpoint, named).map_err(CliError::Usage)
    }

    pub(crate) fn failed(&self, error: A2aClientError) -> CliError {
        CliError::Client { error: Box::new(error), target: self.target.clone() }
    }

    /// How a task is waited for.
    pub(crate) fn wait_options(&self) -> WaitOptions {
        WaitOptions {
            poll: self.poll_interval,
            through_authorization: self.wait_auth,
            ..WaitOptions::default()
        }
    }

    /// The address of the agent's host: that of its card, or of the catalog that names it.
    pub(crate) fn card_url(&self) -> Option<&Url> {
        self.reference.url()
    }

    /// Records the task, in case the command ends early.
    pub(crate) fn record_task(&self, task: &str, context: Option<&str>, cursor: Option<&str>) {
        let mut seen = self.seen.borrow_mut();
        seen.task = Some(task.to_owned());
        if let Some(context) = context {
            seen.context = Some(context.to_owned());
        }
        if let Some(cursor) = cursor {
            seen.cursor = Some(cursor.to_owned());
        }
        self.recorded.notify_one();
    }

    /// Waits until a task is recorded, and returns its id.
    pub(crate) async fn recorded_task(&self) -> String {
        loop {
            if let Some(task) = self.resume_point().task {
                return task;
            }
            self.recorded.notified().await;
        }
    }

    pub(crate) fn record_final_state(&self, state: State) {
        self.final_state.set(Some(state));
    }

    /// The state of the task at the end of the command; `None` where there is no task.
    pub(crate) fn final_state(&self) -> Option<State> {
        self.final_state.get()
    }

    /// Records the command that goes on from here, in case this one ends early.
    pub(crate) fn record_command(&self, task: &str, command: String) {
        let mut seen = self.seen.borrow_mut();
        (seen.task, seen.command) = (Some(task.to_owned()), Some(command));
    }

    pub(crate) fn resume_point(&self) -> TaskResumePoint {
        self.seen.borrow().clone()
    }

    /// Runs the work, within `--timeout` and until Ctrl-C.
    pub(crate) async fn bounded<T>(
        &self,
        work: impl Future<Output = Result<T, CliError>>,
    ) -> Result<T, CliError> {
        let limit = self.timeout.unwrap_or(Duration::MAX);
        tokio::select! {
            done = tokio::time::timeout(limit, work) => {
                done.unwrap_or_else(|_| Err(CliError::Timeout { limit, seen: Box::new(self.resume_point()) }))
            }
            _ = tokio::signal::ctrl_c() => Err(CliError::Interrupted { seen: Box::new(self.resume_point()) }),
        }
    }
}

/// The card of one agent, on a server that has several.
fn agent_of(server: &str, agent: &str) -> Result<CardReference, CliError> {
    let url = match CardReference::parse(server) {
        Ok(CardReference::Url(url)) => url,
        _ => {
            return Err(CliError::Usage(format!(
                "--agent names an agent of a server, and {server:?} is none"
            )));
        }
    };
    if url.path() != nuncio_client::a2a::WELL_KNOWN {
        let why = "--agent names an agent of a server: give -a the server's address, without a path";
        return Err(CliError::Usage(why.to_owned()));
    }
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if agent.is_empty() || !agent.chars().all(legal) {
        return Err(CliError::Usage(format!("{agent:?} is not the name of an agent")));
    }
    Ok(CardReference::of_agent(&origin_of(url), agent))
}

fn origin_of(mut url: Url) -> Url {
    url.set_path("/");
    url
}

fn version(text: &str) -> Result<Dialect, String> {
    match text {
        "1.0" | "1" => Ok(Dialect::V1),
        "0.3" | "0.3.0" => Ok(Dialect::V0_3),
        "0.1" | "0.1.0" => Ok(Dialect::V0_1),
        _ => Err("this client speaks 1.0, 0.3 and 0.1".to_owned()),
    }
}

/// The URI of an extension. In the header a comma separates them.
fn extension(text: &str) -> Result<String, String> {
    match Url::parse(text).is_ok() && !text.contains([',', ' ']) {
        true => Ok(text.to_owned()),
        false => Err("expected the URI of an extension".to_owned()),
    }
}

/// The caller's trace, from the environment.
pub(crate) fn trace_from_environment() -> Option<String> {
    std::env::var("TRACEPARENT").ok().filter(|trace| trace::parse(trace).is_some())
}

/// Whether there are headers beside the trace, which may be credentials.
fn has_other_than_trace(parameters: &[(HeaderName, HeaderValue)]) -> bool {
    parameters.iter().any(|(name, _)| name.as_str() != "traceparent")
}

/// The headers, with the caller's trace.
fn with_trace(mut parameters: Vec<(HeaderName, HeaderValue)>) -> Vec<(HeaderName, HeaderValue)> {
    let name = HeaderName::from_static("traceparent");
    if let Some(value) = trace_from_environment().and_then(|trace| HeaderValue::try_from(trace).ok())
        && !parameters.iter().any(|(given, _)| *given == name)
    {
        parameters.push((name, value));
    }
    parameters
}

fn service_parameter(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let (name, value) = text.split_once(':').ok_or("expected KEY:VALUE")?;
    let name = name.trim().parse().map_err(|_| format!("{name:?} is not a name for a header"))?;
    let mut value: HeaderValue =
        value.trim().parse().map_err(|_| "the value is not one for a header".to_owned())?;
    value.set_sensitive(true);
    Ok((name, value))
}

fn poll(text: &str) -> Result<Duration, String> {
    let duration = duration::parse(text)?;
    if duration < Duration::from_millis(10) { Err("at least 10ms".into()) } else { Ok(duration) }
}
