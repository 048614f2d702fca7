//! A client of a server's console API, for what no protocol of agents has: the rows, the family, the journal and the
//! events of a task.
//!
//! A local server is found through its data folder. After a restart it has another token, and maybe another address, so
//! both are read again.

mod live;

use std::{
    cell::{Cell, RefCell},
    path::PathBuf,
    time::Duration,
};

use http::{HeaderValue, header};
use nuncio_client::a2a::A2aHttpOptions;
use nuncio_outbound::{
    HttpClient, HttpClientOptions, HttpDestination, HttpRequest, HttpResponse, OutboundError, ProxyRule,
    RedirectRule, TlsClientOptions,
};
use serde::de::DeserializeOwned;
use serde_json::Value;
use url::Url;

pub(crate) use self::live::TaskEventReader;
use super::{
    connection::{AgentConnection, AgentTarget, TargetOrigin},
    error::CliError,
    server::{self, configured_for},
};

/// The deadline of a connection, and of a request with a short answer.
const CONNECT: Duration = Duration::from_secs(10);
const ANSWER: Duration = Duration::from_secs(30);
/// Bytes of an answer, and of an error, that are read.
const MAX_ANSWER: usize = 64 * 1024 * 1024;
const MAX_REFUSAL: usize = 64 * 1024;

/// Why a request to the console API has no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConsoleClientError {
    /// The server cannot be reached, or its answer broke off.
    #[error(transparent)]
    Unreachable(#[from] OutboundError),
    /// There is no such API at the address.
    #[error("{at} has no console API: it is no Nuncio server, or its setting console is off")]
    Absent { at: String },
    /// The server refused the request.
    #[error("{message}")]
    Refused { status: u16, code: String, message: String, retry_after: Option<Duration>, supplied: bool },
    /// The answer is not what the API has.
    #[error("the server's answer is malformed: {0}")]
    Malformed(String),
}

impl ConsoleClientError {
    /// Whether the same request may be answered later.
    fn may_pass(&self) -> bool {
        match self {
            Self::Unreachable(error) => !error.is_permanent(),
            Self::Refused { status, .. } => matches!(status, 429 | 502 | 503 | 504),
            Self::Absent { .. } | Self::Malformed(_) => false,
        }
    }
}

pub(crate) struct ConsoleClient {
    http: HttpClient,
    /// The address of the server, with its public path and without a slash at its end.
    base: RefCell<String>,
    bearer: RefCell<Option<HeaderValue>>,
    /// The data folder of the server, where the user named no token.
    folder: Option<PathBuf>,
    /// Whether the user named the address. It is then not replaced.
    is_given: bool,
    /// Whether the server has answered once.
    reached: Cell<bool>,
    target: AgentTarget,
}

/// Where a console API is, and what is shown to it.
pub(crate) struct ConsoleAccess {
    pub(crate) base: String,
    pub(crate) bearer: Option<String>,
    pub(crate) folder: Option<PathBuf>,
    pub(crate) target: AgentTarget,
    pub(crate) http: A2aHttpOptions,
}

impl ConsoleClient {
    /// The server of an agent.
    pub(crate) async fn of_agent(connection: &AgentConnection) -> Result<Self, CliError> {
        Self::new(connection.console_access().await?)
    }

    /// The server that holds the data folder, called with the operator token.
    pub(crate) fn of_folder(data: Option<PathBuf>) -> Result<Self, CliError> {
        let flags = data.as_ref().map(|data| format!(" --data {}", data.display())).unwrap_or_default();
        let data = configured_for(data).data;
        let Some(published) = server::published(&data) else {
            return Err(CliError::Admin(format!(
                "no server runs on the data folder {}, and this needs one: start it with nuncio serve, or name another \
                 folder with --data",
                data.display()
            )));
        };
        let tls = server::trust_published(TlsClientOptions::default(), &data);
        Self::new(ConsoleAccess {
            base: published.url.trim_end_matches('/').to_owned(),
            bearer: Some(published.admin_token),
            target: AgentTarget { origin: TargetOrigin::Published(data.join("server.json")), flags },
            folder: Some(data),
            http: A2aHttpOptions { tls, ..A2aHttpOptions::default() },
        })
    }

    fn new(access: ConsoleAccess) -> Result<Self, CliError> {
        let ConsoleAccess { base, bearer, folder, target, http } = access;
        let failed =
            |error: ConsoleClientError| CliError::Console { error: Box::new(error), target: target.clone() };
        let url = Url::parse(&base)
            .map_err(|error| failed(ConsoleClientError::Malformed(format!("{base}: {error}"))))?;
        let client = HttpClient::new(HttpClientOptions {
            connect_timeout: Some(CONNECT),
            tls: http.tls.for_url(&url),
            ..HttpClientOptions::new(HttpDestination::Chosen {
                redirects: RedirectRule::Return,
                proxy: ProxyRule::unless_loopback(&url),
                any_certificate: http.insecure,
            })
        });
        let client = client.map_err(|error| failed(error.into()))?;
        let bearer = bearer.as_deref().map(authorization).transpose()?;
        let is_given = matches!(target.origin, TargetOrigin::Given);
        Ok(Self {
            http: client,
            base: RefCell::new(base),
            bearer: RefCell::new(bearer),
            folder,
            is_given,
            reached: Cell::new(false),
            target,
        })
    }

    /// Reads something below the API's address, such as `["tasks", id]`.
    pub(crate) async fn get<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: &[(&str, String)],
    ) -> Result<T, CliError> {
        let mut url = self.url(path).map_err(|error| self.failed(error))?;
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        let answer = self.answer(HttpRequest::get(url).timeout(ANSWER)).await;
        answer.map_err(|error| self.failed(error))
    }

    async fn answer<T: DeserializeOwned>(&self, request: HttpRequest) -> Result<T, ConsoleClientError> {
        let mut response = self.send(request).await?;
        let body = response.read_to_end(MAX_ANSWER).await?;
        serde_json::from_slice(&body).map_err(|error| ConsoleClientError::Malformed(error.to_string()))
    }

    fn url(&self, path: &[&str]) -> Result<Url, ConsoleClientError> {
        let base = self.base.borrow();
        let wrong = |why: String| ConsoleClientError::Malformed(format!("{base}: {why}"));
        let mut url = Url::parse(&base).map_err(|error| wrong(error.to_string()))?;
        let mut segments = url.path_segments_mut().map_err(|()| wrong("it is no base address".to_owned()))?;
        segments.pop_if_empty().extend(["console", "api"]).extend(path);
        drop(segments);
        Ok(url)
    }

    /// Sends a request; a status that is no success is an error.
    async fn send(&self, request: HttpRequest) -> Result<HttpResponse, ConsoleClientError> {
        let bearer = self.bearer.borrow().clone();
        let supplied = bearer.is_some();
        let request = match bearer {
            Some(bearer) => request.header(header::AUTHORIZATION, bearer),
            None => request,
        };
        let mut response = self.http.send(request).await?;
        if response.status().is_success() {
            self.reached.set(true);
            return Ok(response);
        }
        let (status, retry_after) = (response.status().as_u16(), response.retry_after());
        let (body, _) = response.read_beginning(MAX_REFUSAL).await;
        let said: Value = serde_json::from_slice(&body).unwrap_or_default();
        let error = &said["error"];
        match (error["code"].as_str(), error["message"].as_str()) {
            (Some(code), Some(message)) => Err(ConsoleClientError::Refused {
                status,
                code: code.to_owned(),
                message: message.to_owned(),
                retry_after,
                supplied,
            }),
            // Not in this API's form: another program, a proxy, or a check before it.
            _ if matches!(status, 404 | 405) => {
                Err(ConsoleClientError::Absent { at: self.base.borrow().clone() })
            }
            (_, message) => Err(ConsoleClientError::Refused {
                status,
                code: String::new(),
                message: match message {
                    Some(message) => format!("{} answered HTTP {status}: {message}", self.base.borrow()),
                    None => format!("{} answered HTTP {status}", self.base.borrow()),
                },
                retry_after,
                supplied,
            }),
        }
    }

    /// Whether the local server has started again, with another token or at another address. Both are then used from
    /// now on.
    fn renew(&self, error: &ConsoleClientError) -> bool {
        let helps = match error {
            ConsoleClientError::Refused { status, .. } => *status == 401,
            ConsoleClientError::Unreachable(_) => true,
            _ => false,
        };
        let Some(folder) = self.folder.as_ref().filter(|_| helps) else { return false };
        // It may not have published its address yet: then the next attempt finds it.
        let Some(published) = server::published(folder) else { return true };
        let url = published.url.trim_end_matches('/');
        if self.is_given && *self.base.borrow() != url {
            return false;
        }
        let Ok(bearer) = authorization(&published.admin_token) else { return false };
        *self.base.borrow_mut() = url.to_owned();
        *self.bearer.borrow_mut() = Some(bearer);
        true
    }

    pub(crate) fn failed(&self, error: ConsoleClientError) -> CliError {
        CliError::Console { error: Box::new(error), target: self.target.clone() }
    }
}

fn authorization(token: &str) -> Result<HeaderValue, CliError> {
    let mut value = HeaderValue::try_from(format!("Bearer {token}"))
        .map_err(|_| CliError::Usage("the token has a character that no header can have".to_owned()))?;
    value.set_sensitive(true);
    Ok(value)
}

/// The address of the server that has a card: the one before the path of the agent and of the card.
pub(crate) fn server_of_card(card: &Url) -> String {
    let mut base = card.clone();
    base.set_query(None);
    base.set_fragment(None);
    let path = card.path();
    let path = path.split_once("/.well-known/").map_or(path, |(before, _)| before);
    let path = match path.rsplit_once("/agents/") {
        Some((before, name)) if !name.contains('/') => before,
        _ => path,
    };
    let path = path.to_owned();
    base.set_path(&path);
    base.to_string().trim_end_matches('/').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_of_a_card_is_found_from_the_cards_address() {
        let check = |card: &str, server: &str| {
            assert_eq!(server_of_card(&Url::parse(card).unwrap()), server, "{card}");
        };
        check("http://127.0.0.1:8080/.well-known/agent-card.json", "http://127.0.0.1:8080");
        check("http://127.0.0.1:8080/agents/echo/.well-known/agent-card.json", "http://127.0.0.1:8080");
        check(
            "https://a.example/team/agents/echo/.well-known/agent-card.json?x=1#y",
            "https://a.example/team",
        );
        check("https://a.example/team/.well-known/agent-card.json", "https://a.example/team");
        check("https://a.example/cards/mine.json", "https://a.example/cards/mine.json");
    }
}
