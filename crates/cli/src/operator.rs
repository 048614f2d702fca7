//! The backend of the operator's commands: the running server that holds the data folder, or the store itself
//! where no server runs.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use clap::Args;
use http::{HeaderValue, Method, StatusCode, header};
use nuncio::{StoreLocation, data_dir::PublishedServer};
use nuncio_engine::store::Store;
use nuncio_outbound::{
    HttpClient, HttpClientOptions, HttpDestination, HttpRequest, HttpResponse, OutboundError, ProxyRule,
    TlsClientOptions,
};
use serde_json::Value;
use url::Url;

use super::{
    error::CliError,
    output::{Format, note},
    server,
    text::plain,
};
use crate::config::Config;

/// The timeout of a request to the local server.
const PATIENCE: Duration = Duration::from_secs(30);

/// The timeout of a long response.
const LONG: Duration = Duration::from_secs(24 * 60 * 60);

/// Bytes of a response that is read as a whole; longer ones are streamed.
const MAX_ANSWER: usize = 256 * 1024 * 1024;
/// Bytes of an error response that are read.
const MAX_REFUSAL: usize = 64 * 1024;

/// The flags of a command for the operator: which server, and how its answer is printed.
#[derive(Args)]
pub(crate) struct OperatorFlags {
    /// The data folder of the server. Default: the one that `nuncio serve` would use here
    #[arg(long, value_name = "DIR")]
    pub(super) data: Option<PathBuf>,
    /// The output format
    #[arg(
        short = 'o',
        long = "output",
        env = "A2ACLI_OUTPUT",
        default_value = "text",
        value_name = "FORMAT"
    )]
    pub(super) format: Format,
}

pub(super) enum OperatorBackend {
    /// The server that holds the folder.
    Server(OperatorServer),
    /// No server runs, so this process opens the store.
    Store(Arc<dyn Store>),
}

/// A server, called with the operator token.
pub(super) struct OperatorServer {
    published: PublishedServer,
    http: HttpClient,
}

impl OperatorBackend {
    pub(super) async fn find(config: &Config) -> Result<Self, CliError> {
        if let Some(published) = server::published(&config.data) {
            let http = HttpClient::new(client_options(&config.data)).map_err(|error| admin(&error))?;
            let server = OperatorServer { published, http };
            // Without the operator token: another process may have taken the port of a server that has gone.
            if server.http.send(HttpRequest::get(server.url("/healthz")?)).await.is_ok() {
                return Ok(Self::Server(server));
            }
        }
        let place = config.store_location();
        if let StoreLocation::Sqlite(dir) = &place
            && !dir.join("nuncio.db").is_file()
        {
            return Err(CliError::Store(format!(
                "there is no server and no store in {}: --data names another folder",
                dir.display()
            )));
        }
        let store = place.open().await.map_err(|error| CliError::Store(error.to_string()))?;
        note(&server::note_of_direct_access(&place));
        Ok(Self::Store(store))
    }

    /// The server, for commands that need a running one.
    pub(super) async fn server(self) -> Result<OperatorServer, CliError> {
        match self {
            Self::Server(server) => Ok(server),
            Self::Store(store) => {
                let _ = store.close().await;
                Err(CliError::Admin(
                    "no server runs on this data folder, and this needs one: start it with nuncio serve, or name \
                     another folder with --data"
                        .into(),
                ))
            }
        }
    }

    pub(super) async fn close(self) {
        if let Self::Store(store) = self {
            let _ = store.close().await;
        }
    }
}

impl OperatorServer {
    pub(super) async fn get(&self, path: &str, query: &[(&str, String)]) -> Result<Value, CliError> {
        let mut url = self.url(path)?;
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        self.ask(HttpRequest::get(url)).await
    }

    pub(super) async fn post(&self, path: &str, body: &Value) -> Result<Value, CliError> {
        self.ask(HttpRequest::post(self.url(path)?).json(body.to_string())).await
    }

    pub(super) async fn delete(&self, path: &str) -> Result<Value, CliError> {
        self.ask(HttpRequest::new(Method::DELETE, self.url(path)?)).await
    }

    /// Whether callers have to show a token: only then does a server publish where to get one (RFC 9728). True where the
    /// server does not answer.
    pub(super) async fn requires_tokens(&self) -> bool {
        let Ok(url) = self.url("/.well-known/oauth-protected-resource") else { return true };
        let answer = self.http.send(HttpRequest::get(url)).await;
        !answer.is_ok_and(|answer| answer.status() == StatusCode::NOT_FOUND)
    }

    /// Reads a long response in pieces.
    pub(super) async fn lines(&self, path: &str) -> Result<OperatorResponseStream, CliError> {
        // A day, so in practice unbounded: the response ends when it is complete, or when the server stops.
        let response = self.send(HttpRequest::get(self.url(path)?).timeout(LONG)).await?;
        Ok(OperatorResponseStream(response))
    }

    /// The address of the server for programs on this machine.
    pub(super) fn base_url(&self) -> &str {
        self.published.url.trim_end_matches('/')
    }

    fn url(&self, path: &str) -> Result<Url, CliError> {
        Url::parse(&format!("{}{path}", self.published.url))
            .map_err(|error| CliError::Admin(format!("the address of the server is not a URL: {error}")))
    }

    /// Sends a request with the operator token; a status that is no success is an error.
    async fn send(&self, request: HttpRequest) -> Result<HttpResponse, CliError> {
        let token = HeaderValue::try_from(format!("Bearer {}", self.published.admin_token));
        let mut token = token.map_err(|_| CliError::Admin("the operator token fits no header".into()))?;
        token.set_sensitive(true);
        let request = request.header(header::AUTHORIZATION, token);
        let response = self.http.send(request).await.map_err(|error| admin(&error))?;
        match response.status().is_success() {
            true => Ok(response),
            false => Err(admin(&response.into_status_error(MAX_REFUSAL).await)),
        }
    }

    async fn ask(&self, request: HttpRequest) -> Result<Value, CliError> {
        let mut response = self.send(request).await?;
        let body = response.read_to_end(MAX_ANSWER).await.map_err(|error| admin(&error))?;
        serde_json::from_slice(&body)
            .map_err(|error| CliError::Admin(format!("the server's answer is not JSON: {error}")))
    }
}

pub(super) struct OperatorResponseStream(HttpResponse);

impl OperatorResponseStream {
    pub(super) async fn chunk(&mut self) -> Result<Option<Vec<u8>>, CliError> {
        Ok(self.0.chunk().await.map_err(|error| admin(&error))?.map(|bytes| bytes.to_vec()))
    }
}

fn client_options(data: &Path) -> HttpClientOptions {
    HttpClientOptions {
        timeout: Some(PATIENCE),
        tls: server::trust_published(TlsClientOptions::default(), data),
        ..HttpClientOptions::new(HttpDestination::chosen(ProxyRule::Never))
    }
}

fn admin(error: &OutboundError) -> CliError {
    let OutboundError::Status { status, body, .. } = error else {
        return CliError::Admin(format!("the server did not answer: {error}"));
    };
    let said: Value = serde_json::from_str(body).unwrap_or_default();
    let why = said["error"]["message"].as_str().unwrap_or(body);
    CliError::Admin(format!("the server answered HTTP {}: {}", status.as_u16(), plain(why)))
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    use super::*;

    /// The request carries the operator token, so it goes where the data folder says and nowhere else.
    #[tokio::test]
    async fn a_redirect_is_an_error_and_the_operator_token_does_not_follow_it() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let served = tokio::spawn(async move {
            let mut paths = vec![];
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = [0; 4096];
                let length = stream.read(&mut request).await.unwrap();
                let request = String::from_utf8_lossy(&request[..length]).into_owned();
                paths.push(request.split(' ').nth(1).unwrap_or_default().to_owned());
                let answer = match paths.last().is_some_and(|path| path == "/end") {
                    true => "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}",
                    false => {
                        "HTTP/1.1 307 Moved\r\nlocation: /elsewhere\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
                    }
                };
                stream.write_all(answer.as_bytes()).await.unwrap();
                if paths.last().is_some_and(|path| path == "/end") {
                    return paths;
                }
            }
        });
        let http = HttpClient::new(client_options(Path::new("."))).unwrap();
        let published = PublishedServer { url, pid: 0, admin_token: "secret".into(), certificate: None };
        let server = OperatorServer { published, http };
        let Err(CliError::Admin(why)) = server.get("/admin/streams", &[]).await else {
            panic!("the redirect was followed");
        };
        assert!(why.contains("HTTP 307"), "{why}");
        server.get("/end", &[]).await.unwrap();
        assert_eq!(served.await.unwrap(), ["/admin/streams", "/end"]);
    }
}
