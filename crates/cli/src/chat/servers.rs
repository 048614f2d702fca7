//! The servers of a chat: each has its own connection, which is probed periodically and re-established with
//! backoff.

use std::{collections::BTreeSet, future::Future, pin::Pin, sync::Arc, time::Duration};

use nuncio_client::{
    a2a::{A2aPeer, A2aPeerOptions},
    auth::Authorizer,
    peer::{CallHandle, Peer, PeerCapability, PeerError},
};
use nuncio_outbound::{Backoff, TlsClientOptions};
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
    time::{sleep, timeout},
};
use url::Url;

use super::{login::ServerLogin, server_address::ChatServerAddress};

/// The probe interval of a reachable server.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// The timeout of one probe.
const LOOK_FOR: Duration = Duration::from_secs(10);
/// The first and the longest backoff while a server is unreachable.
const FIRST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// Connects to a server. Called again for every attempt.
pub(super) type ServerDialer =
    Arc<dyn Fn() -> Pin<Box<dyn Future<Output = Result<Arc<dyn Peer>, PeerError>> + Send>> + Send + Sync>;

/// An update about a server.
pub(super) enum ServerUpdate {
    /// The server is reachable and has these capabilities. Sent again when they change.
    Up { peer: Arc<dyn Peer>, offers: Vec<PeerCapability> },
    /// The server is unreachable.
    Away(PeerError),
    /// The server requires authentication: the user has to open this link.
    Visit(Url),
}

/// The connection to a server, maintained until this is dropped.
pub(super) struct ServerWatch(JoinHandle<()>);

impl Drop for ServerWatch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Maintains the connection to a server, and sends updates about it. `anew`: connect again after a failure,
/// because the server may have moved. Not for a program, whose peer restarts it.
pub(super) fn keep_connected(
    number: usize,
    dial: ServerDialer,
    anew: bool,
    sign_in: Option<ServerLogin>,
    tell: mpsc::Sender<(usize, ServerUpdate)>,
) -> ServerWatch {
    ServerWatch(tokio::spawn(async move {
        let mut backoff = Backoff::unlimited(FIRST_WAIT, LONGEST_WAIT);
        let mut told_away = false;
        let mut known = None;
        loop {
            let mut was_up = false;
            let error = match connect(&dial, known.clone().filter(|_| !anew)).await {
                Ok((peer, offers)) => {
                    was_up = true;
                    told_away = false;
                    backoff.reset();
                    let up = ServerUpdate::Up { peer: Arc::clone(&peer), offers: offers.clone() };
                    if tell.send((number, up)).await.is_err() {
                        return;
                    }
                    let error = watch(number, &peer, offers, &tell).await;
                    known = Some(peer);
                    error
                }
                Err(error) => error,
            };
            // The user is not asked again before requesting it.
            let stranger = sign_in.as_ref().filter(|_| matches!(error, PeerError::Unauthorized { .. }));
            if let Some(sign_in) = stranger {
                if tell.send((number, ServerUpdate::Away(error))).await.is_err() {
                    return;
                }
                sign_in.wait_for_request().await;
                told_away = false;
                backoff.reset();
                continue;
            }
            // One probe that failed is not an outage: it is one if the next attempt fails, too.
            if !was_up
                && !std::mem::replace(&mut told_away, true)
                && tell.send((number, ServerUpdate::Away(error))).await.is_err()
            {
                return;
            }
            sleep(backoff.take_pause(None)).await;
        }
    }))
}

async fn connect(
    dial: &ServerDialer,
    known: Option<Arc<dyn Peer>>,
) -> Result<(Arc<dyn Peer>, Vec<PeerCapability>), PeerError> {
    let peer = match known {
        Some(peer) => peer,
        None => dial().await?,
    };
    let offers = peer.list_capabilities().await?;
    Ok((peer, offers))
}

/// Probes a server until it is unreachable; returns why.
async fn watch(
    number: usize,
    peer: &Arc<dyn Peer>,
    mut offers: Vec<PeerCapability>,
    tell: &mpsc::Sender<(usize, ServerUpdate)>,
) -> PeerError {
    loop {
        tokio::select! {
            () = peer.wait_for_change() => match peer.list_capabilities().await {
                Ok(now) if now != offers => {
                    offers = now;
                    let up = ServerUpdate::Up { peer: Arc::clone(peer), offers: offers.clone() };
                    let _ = tell.send((number, up)).await;
                }
                Ok(_) => {}
                Err(error) => return error,
            },
            () = sleep(LOOK_EVERY) => {
                let looked = timeout(LOOK_FOR, peer.check_reachable()).await;
                let silent = || PeerError::Unreachable { at: peer.address(), why: "it does not answer".into() };
                match looked.unwrap_or_else(|_| Err(silent())) {
                    Ok(()) => {}
                    Err(PeerError::Busy { .. }) => {}
                    Err(error) => return error,
                }
            }
        }
    }
}

pub(super) struct ChatServer {
    /// Short and unique.
    pub(super) name: String,
    pub(super) peer: watch::Sender<Option<Arc<dyn Peer>>>,
    pub(super) offers: Vec<PeerCapability>,
    /// Why it is unreachable, if it is.
    pub(super) away: Option<String>,
    /// Whether the first connection attempt has finished.
    pub(super) known: bool,
    pub(super) _touch: ServerWatch,
    pub(super) at: ChatServerAddress,
    /// The credentials for the server.
    pub(super) authorizer: Option<Arc<dyn Authorizer>>,
    /// Whom to trust beside the system's CAs, and the certificate to show.
    pub(super) tls: TlsClientOptions,
    /// The sign-in, if the server has one.
    pub(super) sign_in: Option<ServerLogin>,
    /// Whether the user was given a sign-in link.
    pub(super) asks: bool,
}

impl ChatServer {
    /// The bearer token for the server.
    pub(super) async fn token(&self) -> Option<String> {
        self.authorizer.as_ref()?.token(&self.at.resource()?).await
    }

    /// The handle of a task, by its id. Tasks are found over A2A, whatever else a server speaks.
    pub(super) async fn find_task(&self, id: &str) -> Result<(Arc<dyn Peer>, CallHandle), PeerError> {
        let none = || PeerError::Unsupported("a program has no tasks that are found by their ids".into());
        let url = self.at.base().and_then(|base| Url::parse(&base).ok()).ok_or_else(none)?;
        let mut options = A2aPeerOptions { authorizer: self.authorizer.clone(), ..A2aPeerOptions::default() };
        options.http.tls = self.tls.clone();
        let peer = A2aPeer::new(url, options);
        let handle = peer.task(id).await?;
        Ok((Arc::new(peer), handle))
    }
}

/// Finds a capability by name: `name`, or `server/name`; as it is listed, or as the server names it.
pub(super) fn find<'a>(
    servers: &'a [ChatServer],
    name: &str,
) -> Result<(usize, &'a PeerCapability), NameLookupError> {
    let all = callable(servers);
    // The name of a capability may contain a slash.
    let mut found: Vec<_> =
        all.iter().filter(|(word, _, offer)| word == name || offer.name == name).collect();
    if found.is_empty() {
        let is_of = |(word, number, offer): &&(String, usize, &PeerCapability)| {
            let rest = name.strip_prefix(&servers[*number].name).and_then(|rest| rest.strip_prefix('/'));
            rest.is_some_and(|rest| rest == word || rest == offer.name)
        };
        found = all.iter().filter(is_of).collect();
    }
    match found[..] {
        [(_, number, offer)] => Ok((*number, *offer)),
        [] => Err(NameLookupError::Unknown),
        _ => Err(NameLookupError::Several(
            found.iter().map(|(word, number, _)| full(&servers[*number].name, word)).collect(),
        )),
    }
}

/// Why a name finds no capability.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NameLookupError {
    Unknown,
    /// The name is ambiguous between these.
    Several(Vec<String>),
}

fn full(server: &str, offer: &str) -> String {
    format!("{server}/{offer}")
}

/// The names under which all capabilities can be called: without the server where that is unambiguous.
pub(super) fn names(servers: &[ChatServer]) -> Vec<(String, usize, &PeerCapability)> {
    let mut all = callable(servers);
    let mut seen = BTreeSet::new();
    let words: Vec<String> = all.iter().map(|(word, ..)| word.clone()).collect();
    let twice: BTreeSet<&String> = words.iter().filter(|word| !seen.insert(*word)).collect();
    for (word, number, _) in &mut all {
        if twice.contains(word) {
            *word = full(&servers[*number].name, word);
        }
    }
    all
}

/// All capabilities, each under a single word that is unique within its server.
fn callable(servers: &[ChatServer]) -> Vec<(String, usize, &PeerCapability)> {
    let mut all = vec![];
    for (number, server) in servers.iter().enumerate() {
        let mut taken = BTreeSet::new();
        for offer in &server.offers {
            let word = one_word(&offer.name);
            let several = (2..).map(|nth| format!("{word}-{nth}"));
            let free = std::iter::once(word.clone()).chain(several).find(|word| !taken.contains(word));
            let word = free.unwrap_or(word);
            taken.insert(word.clone());
            all.push((word, number, offer));
        }
    }
    all
}

/// A name that can be typed: some agents are called `Hello World Agent`, or worse.
fn one_word(name: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | '/' | ':');
    let words: Vec<&str> = name.split(|c| !is_plain(c)).filter(|word| !word.is_empty()).collect();
    if words.is_empty() { "unnamed".to_owned() } else { words.join("_") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_a_server_calls_it_can_be_typed() {
        let check = |name: &str, expected: &str| assert_eq!(one_word(name), expected);
        check("travel_agent", "travel_agent");
        check("Hello World Agent", "Hello_World_Agent");
        check("größe/2.0", "größe/2.0");
        check("e\u{1b}]52;c;aGk=\u{7}cho", "e_52_c_aGk_cho");
        check("  ", "unnamed");
    }
}
