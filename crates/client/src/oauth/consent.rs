//! The user's consent: sends the user to a URL and receives the code at the redirect URI.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use url::Url;

use super::discovery::OAuthEndpoints;

/// How long the user may take.
const PATIENCE: Duration = Duration::from_secs(5 * 60);
/// Bytes of the redirect request.
const MAX_REQUEST: usize = 16 * 1024;
/// The wait after the system failed to accept a connection.
const BREATH: Duration = Duration::from_millis(50);
/// Limit for reading the redirect request.
const REQUEST_PATIENCE: Duration = Duration::from_secs(10);

/// Asks users for consent at authorization servers.
#[async_trait]
pub trait Consent: Send + Sync + 'static {
    /// Prepares a visit; with the registered redirect URI, if that is possible.
    async fn prepare(&self, redirect_uri: Option<&str>) -> Result<Box<dyn ConsentVisit>, String>;
}

/// A prepared visit of the user to an authorization server.
#[async_trait]
pub trait ConsentVisit: Send {
    /// The URI that the user is redirected to.
    fn redirect_uri(&self) -> &str;

    /// Sends the user to `url`, and returns the URL that the user was redirected to.
    async fn ask(self: Box<Self>, url: &Url) -> Result<Url, String>;
}

/// A [`Consent`] for processes without a user: always fails.
pub struct NoConsent {
    /// What the user has to do elsewhere; the text of the error.
    pub why: String,
}

#[async_trait]
impl Consent for NoConsent {
    async fn prepare(&self, _: Option<&str>) -> Result<Box<dyn ConsentVisit>, String> {
        Err(self.why.clone())
    }
}

/// Asks a user at this machine: the redirect goes to a loopback port that is open only for that.
pub struct LoopbackConsent {
    /// Shows the URL to the user, or opens it.
    pub open: Arc<dyn Fn(&Url) + Send + Sync>,
}

struct LoopbackVisit {
    listener: TcpListener,
    redirect_uri: String,
    open: Arc<dyn Fn(&Url) + Send + Sync>,
}

#[async_trait]
impl Consent for LoopbackConsent {
    async fn prepare(&self, redirect_uri: Option<&str>) -> Result<Box<dyn ConsentVisit>, String> {
        let port = redirect_uri.and_then(|uri| Url::parse(uri).ok()?.port()).unwrap_or(0);
        let listener = match TcpListener::bind(("127.0.0.1", port)).await {
            Ok(listener) => listener,
            Err(_) => TcpListener::bind(("127.0.0.1", 0))
                .await
                .map_err(|error| format!("no port of this machine is free to come back to: {error}"))?,
        };
        let address = listener.local_addr().map_err(|error| error.to_string())?;
        let redirect_uri = format!("http://127.0.0.1:{}/callback", address.port());
        Ok(Box::new(LoopbackVisit { listener, redirect_uri, open: Arc::clone(&self.open) }))
    }
}

#[async_trait]
impl ConsentVisit for LoopbackVisit {
    fn redirect_uri(&self) -> &str {
        &self.redirect_uri
    }

    async fn ask(self: Box<Self>, url: &Url) -> Result<Url, String> {
        (self.open)(url);
        let back = tokio::time::timeout(PATIENCE, async {
            // Browsers open connections that they do not use, and request icons; these must not block the
            // redirect.
            let mut connections = FuturesUnordered::new();
            loop {
                tokio::select! {
                    accepted = self.listener.accept() => match accepted {
                        Ok((connection, _)) => connections.push(self.came_back(connection)),
                        Err(_) => tokio::time::sleep(BREATH).await,
                    },
                    Some(came_back) = connections.next(), if !connections.is_empty() => {
                        if let Some(back) = came_back {
                            return back;
                        }
                    }
                }
            }
        });
        back.await.map_err(|_| format!("no consent was given within {} minutes", PATIENCE.as_secs() / 60))
    }
}

impl LoopbackVisit {
    async fn came_back(&self, mut connection: TcpStream) -> Option<Url> {
        let head = tokio::time::timeout(REQUEST_PATIENCE, async {
            let mut head = vec![];
            while !head.windows(4).any(|end| end == b"\r\n\r\n") && head.len() < MAX_REQUEST {
                if connection.read_buf(&mut head).await.ok()? == 0 {
                    return None;
                }
            }
            Some(head)
        });
        let head = head.await.ok()??;
        let line = String::from_utf8_lossy(&head).lines().next()?.to_owned();
        let target = line.strip_prefix("GET ")?.split(' ').next()?.to_owned();
        let back = Url::parse(&self.redirect_uri).ok()?.join(&target).ok()?;
        let is_it = back.path() == "/callback" && back.query().is_some();
        let (status, words) = match is_it {
            true => ("200 OK", "That was all: you can close this page and go back to the terminal."),
            false => ("404 Not Found", "There is nothing here."),
        };
        let answer = format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{words}",
            words.len()
        );
        let _ = connection.write_all(answer.as_bytes()).await;
        let _ = connection.shutdown().await;
        is_it.then_some(back)
    }
}

/// The code in a redirect, if its state and issuer are the expected ones.
pub(super) fn code_in(back: &Url, state: &str, found: &OAuthEndpoints) -> Result<String, String> {
    let member =
        |name: &str| back.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned());
    if member("state").as_deref() != Some(state) {
        return Err(
            "who came back does not know the state that they were sent with: that may be an attack".into()
        );
    }
    // Compared as strings, without normalization (RFC 9207).
    match member("iss") {
        Some(issuer) if issuer != found.issuer => {
            return Err(format!(
                "who came back was sent by {issuer:?}, and not by {:?}: that may be an attack",
                found.issuer
            ));
        }
        None if found.names_itself => {
            return Err(format!(
                "the authorization server {} did not name itself as it promised",
                found.issuer
            ));
        }
        _ => {}
    }
    if let Some(error) = member("error") {
        let why = member("error_description").unwrap_or_default();
        return Err(format!("consent was not given: {error} {why}").trim_end().to_owned());
    }
    member("code").ok_or_else(|| "who came back brought no code".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_comes_back_is_the_one_who_was_sent_from_where_they_were_sent() {
        let url = |text: &str| Url::parse(text).unwrap();
        let found = |names_itself| OAuthEndpoints {
            resource: "https://tools.example".into(),
            scopes: None,
            issuer: "https://issuer.example".into(),
            authorization_endpoint: None,
            token_endpoint: url("https://issuer.example/token"),
            registration_endpoint: None,
            auth_methods: vec![],
            takes_metadata_urls: false,
            knows_pkce: true,
            names_itself,
            offers_offline: false,
        };
        let come = |query: &str, names_itself| {
            code_in(&url(&format!("http://127.0.0.1:9/{query}")), "s1", &found(names_itself))
        };
        assert_eq!(come("?code=c&state=s1", false).unwrap(), "c");
        assert_eq!(come("?code=c&state=s1&iss=https://issuer.example", true).unwrap(), "c");
        for (query, names_itself, why) in [
            ("?code=c&state=s2", false, "does not know the state"),
            ("?code=c", false, "does not know the state"),
            ("?code=c&state=s1&iss=https://other.example", false, "not by"),
            ("?code=c&state=s1", true, "did not name itself"),
            ("?error=access_denied&state=s1", false, "consent was not given: access_denied"),
            ("?state=s1", false, "brought no code"),
        ] {
            let error = come(query, names_itself).unwrap_err();
            assert!(error.contains(why), "{query}: {error}");
        }
    }
}
