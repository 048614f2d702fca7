//! The servers: each is connected to on its own, looked at now and then, and tried again while it is away.

use std::{collections::BTreeSet, future::Future, pin::Pin, sync::Arc, time::Duration};

use nuncio_client::{
    a2a::{A2aPeer, A2aPeerOptions},
    auth::Authorizer,
    peer::{CallHandle, Peer, PeerCapability, PeerError},
};
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
    time::{sleep, timeout},
};
use url::Url;

use super::{login::ServerLogin, server_address::ChatServerAddress};

/// How often a server is looked at while all is well.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How long it may take to answer that it is there.
const LOOK_FOR: Duration = Duration::from_secs(10);
/// The first wait for a server that is away, and the longest.
const FIRST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// Connects to a server. Called again while it is away.
pub(super) type ServerDialer =
    Arc<dyn Fn() -> Pin<Box<dyn Future<Output = Result<Arc<dyn Peer>, PeerError>> + Send>> + Send + Sync>;

/// What there is to tell about a server.
pub(super) enum ServerUpdate {
    /// It is there, with what it offers. Told again when that has changed.
    Up { peer: Arc<dyn Peer>, offers: Vec<PeerCapability> },
    /// It is away.
    Away(PeerError),
    /// It wants to know who is calling: somebody has to go there.
    Visit(Url),
}

/// A server that is kept in touch with until it is dropped.
pub(super) struct ServerWatch(JoinHandle<()>);

impl Drop for ServerWatch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Keeps in touch with a server, and tells how it is. `anew`: after it was away it may be somewhere else, and is
/// connected to once more; a program is not, whoever started it starts it again.
pub(super) fn keep_connected(
    number: usize,
    dial: ServerDialer,
    anew: bool,
    sign_in: Option<ServerLogin>,
    tell: mpsc::Sender<(usize, ServerUpdate)>,
) -> ServerWatch {
    ServerWatch(tokio::spawn(async move {
        let mut wait = FIRST_WAIT;
        let mut told_away = false;
        let mut known = None;
        loop {
            let error = match connect(&dial, known.clone().filter(|_| !anew)).await {
                Ok((peer, offers)) => {
                    (wait, told_away) = (FIRST_WAIT, false);
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
            // Nobody is asked again before they want to be.
            let stranger = sign_in.as_ref().filter(|_| matches!(error, PeerError::Unauthorized { .. }));
            if let Some(sign_in) = stranger {
                if tell.send((number, ServerUpdate::Away(error))).await.is_err() {
                    return;
                }
                sign_in.wait_for_request().await;
                (wait, told_away) = (FIRST_WAIT, false);
                continue;
            }
            if !std::mem::replace(&mut told_away, true)
                && tell.send((number, ServerUpdate::Away(error))).await.is_err()
            {
                return;
            }
            sleep(wait).await;
            wait = (wait * 2).min(LONGEST_WAIT);
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

/// Looks at a server until it is away; why it is.
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

/// A server as the others speak of it.
pub(super) struct ChatServer {
    /// Short, and its own.
    pub(super) name: String,
    pub(super) peer: watch::Sender<Option<Arc<dyn Peer>>>,
    pub(super) offers: Vec<PeerCapability>,
    /// Why it is away, if it is.
    pub(super) away: Option<String>,
    /// Whether it was ever heard of.
    pub(super) known: bool,
    /// Dropped with it.
    pub(super) _touch: ServerWatch,
    /// Where it is.
    pub(super) at: ChatServerAddress,
    /// Who we are to it.
    pub(super) authorizer: Option<Arc<dyn Authorizer>>,
    /// Where one signs in, if one does.
    pub(super) sign_in: Option<ServerLogin>,
    /// Whether somebody was sent away to sign in.
    pub(super) asks: bool,
}

impl ChatServer {
    /// What it is shown.
    pub(super) async fn token(&self) -> Option<String> {
        self.authorizer.as_ref()?.token(&self.at.resource()?).await
    }

    /// What leads to a task by its id. Tasks are spoken of in A2A, whatever else a server speaks.
    pub(super) async fn find_task(&self, id: &str) -> Result<(Arc<dyn Peer>, CallHandle), PeerError> {
        let none = || PeerError::Unsupported("a program has no tasks that are found by their ids".into());
        let url = self.at.base().and_then(|base| Url::parse(&base).ok()).ok_or_else(none)?;
        let options = A2aPeerOptions { authorizer: self.authorizer.clone(), ..A2aPeerOptions::default() };
        let peer = A2aPeer::new(url, options);
        let handle = peer.task(id).await?;
        Ok((Arc::new(peer), handle))
    }
}

/// Finds what is meant by a name: `offer`, or `server/offer`; as it is listed, or as the server calls it.
pub(super) fn find<'a>(
    servers: &'a [ChatServer],
    name: &str,
) -> Result<(usize, &'a PeerCapability), NameLookupError> {
    let all = callable(servers);
    // An offer may have a slash in its name.
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

/// Why a name leads nowhere.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NameLookupError {
    Unknown,
    /// These are meant by it.
    Several(Vec<String>),
}

fn full(server: &str, offer: &str) -> String {
    format!("{server}/{offer}")
}

/// The names under which everything can be called: short where that is clear.
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

/// What is offered, each under a word of its own within its server.
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

/// A name that can be typed: other people's agents are called `Hello World Agent`, or worse.
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
