//! Sign-in at servers that require authentication: OAuth, with a link for the user and a redirect to this
//! machine.
//!
//! Tokens are stored in one folder per server and account, readable only by its owner. Without a terminal no
//! link is shown, and only stored tokens are used.

use std::{
    io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use async_trait::async_trait;
use nuncio_client::{
    auth::Authorizer,
    oauth::{Consent, ConsentVisit, FileTokenStore, LoopbackConsent, OAuth, OAuthOptions},
};
use sha2::{Digest as _, Sha256};
use tokio::sync::{Notify, mpsc};
use url::Url;

use super::{server_address::ChatServerAddress, servers::ServerUpdate};
use crate::questions::open_in_browser;

#[derive(Debug, Clone)]
pub(super) struct LoginOptions {
    /// The account, if the user has several on one server.
    pub(super) account: Option<String>,
    /// Whether links are opened as well as shown.
    pub(super) opens: bool,
    /// Whether a user can be asked at the terminal.
    pub(super) is_terminal: bool,
}

/// The sign-in at one server.
#[derive(Clone)]
pub(super) struct ServerLogin {
    token_store: Arc<FileTokenStore>,
    /// Whether the user may be asked now: not without a terminal, and not after signing out.
    may_ask: Arc<AtomicBool>,
    /// Wakes the connection that waits until the user wants to sign in.
    wanted: Arc<Notify>,
}

impl LoginOptions {
    /// Creates the sign-in for all endpoints of a server.
    pub(super) fn at(
        &self,
        number: usize,
        (place, resource): (&ChatServerAddress, &Url),
        state: &Path,
        tell: &mpsc::Sender<(usize, ServerUpdate)>,
    ) -> Result<(Arc<dyn Authorizer>, ServerLogin), String> {
        let (key, shown) = (place.key(), place.display_text());
        let digest = Sha256::digest(format!("{key}\n{}", self.account.as_deref().unwrap_or_default()));
        let name = digest[..12].iter().fold(String::new(), |name, byte| format!("{name}{byte:02x}"));
        let token_store = Arc::new(FileTokenStore::new(state.join("tokens").join(name)));
        let may_ask = Arc::new(AtomicBool::new(self.is_terminal));
        let (tell, opens) = (tell.clone(), self.opens);
        let show = move |url: &Url| {
            if opens {
                open_in_browser(url.as_str());
            }
            let (tell, url) = (tell.clone(), url.clone());
            tokio::spawn(async move { tell.send((number, ServerUpdate::Visit(url))).await });
        };
        let consent = TerminalConsent {
            loopback: LoopbackConsent { open: Arc::new(show) },
            may_ask: Arc::clone(&may_ask),
            why: match self.is_terminal {
                true => "nobody is signed in there".to_owned(),
                false => format!(
                    "nobody is signed in there, and nobody can be asked here: run `nuncio chat --server {shown}` in a terminal and sign in, or set A2ACLI_BEARER to a token"
                ),
            },
        };
        let options = OAuthOptions { client_name: "nuncio chat".into(), ..OAuthOptions::default() };
        let oauth = OAuth::new(options, Arc::clone(&token_store) as _, Arc::new(consent))?;
        let whole = ServerAuthorizer { oauth, resource: resource.clone() };
        Ok((Arc::new(whole), ServerLogin { token_store, may_ask, wanted: Arc::default() }))
    }
}

impl ServerLogin {
    /// The user wants to sign in now.
    pub(super) fn request_login(&self) {
        self.may_ask.store(true, Ordering::Release);
        self.wanted.notify_one();
    }

    /// Waits until the user wants to sign in.
    pub(super) async fn wait_for_request(&self) {
        self.wanted.notified().await;
    }

    /// Deletes every token and returns how many there were. The user is not asked again before
    /// `request_login`.
    pub(super) fn forget(&self) -> io::Result<usize> {
        self.may_ask.store(false, Ordering::Release);
        self.token_store.forget_all()
    }
}

/// One token for a whole server: a sign-in for its tools is good for its tasks as well. Other origins get no
/// token.
struct ServerAuthorizer {
    oauth: OAuth,
    resource: Url,
}

#[async_trait]
impl Authorizer for ServerAuthorizer {
    async fn token(&self, resource: &Url) -> Option<String> {
        if resource.origin() != self.resource.origin() {
            return None;
        }
        self.oauth.token(&self.resource).await
    }

    async fn challenged(
        &self,
        resource: &Url,
        status: u16,
        www_authenticate: Option<&str>,
    ) -> Result<bool, String> {
        if resource.origin() != self.resource.origin() {
            let own = self.resource.origin().ascii_serialization();
            return Err(format!(
                "you sign in at {own}, and {resource} is somewhere else: name it with --server"
            ));
        }
        self.oauth.challenged(&self.resource, status, www_authenticate).await
    }
}

/// Asks the user at the terminal to open the sign-in link.
struct TerminalConsent {
    loopback: LoopbackConsent,
    may_ask: Arc<AtomicBool>,
    /// The error where the user may not be asked.
    why: String,
}

#[async_trait]
impl Consent for TerminalConsent {
    async fn prepare(&self, redirect_uri: Option<&str>) -> Result<Box<dyn ConsentVisit>, String> {
        match self.may_ask.load(Ordering::Acquire) {
            true => self.loopback.prepare(redirect_uri).await,
            false => Err(self.why.clone()),
        }
    }
}
