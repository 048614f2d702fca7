//! The servers of a chat: parsing of `--server`, credentials, and connection.

use std::{collections::BTreeSet, path::PathBuf, sync::Arc};

use async_trait::async_trait;
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use nuncio_client::{
    auth::{Authorizer, Bearer},
    mcp::McpLogLevel,
    peer::{self, PeerConnectOptions, PeerError, PeerProgram, PeerProtocol},
};
use nuncio_outbound::TlsClientOptions;
use nuncio_wire::mcp::McpVersion;
use sha2::{Digest as _, Sha256};
use url::Url;

use super::{servers::ServerDialer, split_line::split_words};
use crate::server;

/// A server, as the command line names it.
#[derive(Debug, Clone)]
pub(super) enum ChatServerAddress {
    /// The server that holds a data folder. `server.json` there has its address, which may change.
    Local(PathBuf),
    /// A server at a URL.
    Url { name: Option<String>, url: Url },
    /// A program to start, which speaks MCP over pipes.
    Command { name: Option<String>, command: Vec<String> },
}

impl ChatServerAddress {
    /// The local server.
    pub(super) fn local(data: Option<PathBuf>) -> Self {
        let data = server::configured_for(data).data;
        Self::Local(data.canonicalize().unwrap_or(data))
    }

    /// Parses a value of `--server`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| format!("--server {text:?}: {why}");
        let (name, rest) = match text.split_once('=') {
            Some((name, rest)) if is_name(name) && is_url(rest) => (Some(name.to_owned()), rest),
            _ => (None, text),
        };
        if is_url(rest) {
            let url = Url::parse(rest).map_err(|error| wrong(&error.to_string()))?;
            if url.host().is_none() {
                return Err(wrong("expected an address such as http://127.0.0.1:8080"));
            }
            if !url.username().is_empty() || url.password().is_some() {
                return Err(wrong("credentials do not belong into an address: set A2ACLI_BEARER"));
            }
            return Ok(Self::Url { name, url });
        }
        let mut command: Vec<String> = split_words(text).into_iter().map(|word| word.text).collect();
        let mut name = None;
        // NAME=COMMAND. A program whose path itself looks like that must be given with a longer path.
        if let Some(first) = command.first_mut()
            && let Some((given, program)) = first.split_once('=')
            && is_name(given)
        {
            (name, *first) = (Some(given.to_owned()), program.to_owned());
            if first.is_empty() {
                command.remove(0);
            }
        }
        if command.is_empty() {
            return Err(wrong("expected a URL, or a command"));
        }
        if let [word] = &command[..]
            && word.contains("://")
        {
            return Err(wrong("expected http://… or https://…"));
        }
        Ok(Self::Command { name, command })
    }

    /// The identity of the server, stable across restarts of the chat.
    pub(super) fn key(&self) -> String {
        match self {
            Self::Local(data) => format!("folder {}", data.display()),
            Self::Url { url, .. } => url.to_string(),
            Self::Command { command, .. } => format!("command {}", command.join("\u{1f}")),
        }
    }

    /// The address for people.
    pub(super) fn display_text(&self) -> String {
        match self {
            Self::Local(data) => format!("the server of {}", data.display()),
            Self::Url { url, .. } => url.to_string(),
            Self::Command { command, .. } => command.join(" "),
        }
    }

    /// A short name that no other server has.
    pub(super) fn name(&self, taken: &mut BTreeSet<String>) -> String {
        let name = match self {
            Self::Local(_) => "local".to_owned(),
            Self::Url { name: Some(name), .. } | Self::Command { name: Some(name), .. } => name.clone(),
            Self::Url { url, .. } => {
                let host = url.host_str().unwrap_or_default();
                url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
            }
            Self::Command { command, .. } => {
                // For a launcher such as npx, the name of what it starts.
                let starts = |word: &&String| {
                    !word.starts_with('-')
                        && !matches!(&***word, "npx" | "uvx" | "node" | "python" | "python3" | "env")
                };
                let word = command.iter().find(starts).or(command.first()).map_or("", |word| &**word);
                let word = word.rsplit('/').next().unwrap_or(word);
                word.split('@').next().filter(|word| !word.is_empty()).unwrap_or("command").to_owned()
            }
        };
        let several = (2..).map(|number| format!("{name}-{number}"));
        let free = std::iter::once(name.clone()).chain(several).find(|name| !taken.contains(name));
        let name = free.unwrap_or(name);
        taken.insert(name.clone());
        name
    }

    /// Whether the server has a URL, rather than being started.
    pub(super) fn is_url(&self) -> bool {
        !matches!(self, Self::Command { .. })
    }

    /// The URL, without the path of the MCP endpoint.
    pub(super) fn base(&self) -> Option<String> {
        match self {
            Self::Local(data) => Some(server::address_of(data).trim_end_matches('/').to_owned()),
            Self::Url { url, .. } => {
                let mut url = url.clone();
                url.set_query(None);
                let text = url.as_str().trim_end_matches('/');
                Some(text.strip_suffix("/mcp").unwrap_or(text).to_owned())
            }
            Self::Command { .. } => None,
        }
    }

    /// The resource that a token is for.
    pub(super) fn resource(&self) -> Option<Url> {
        match self {
            Self::Local(data) => Url::parse(&format!("{}/mcp", server::address_of(data))).ok(),
            Self::Url { url, .. } => Some(url.clone()),
            Self::Command { .. } => None,
        }
    }

    /// The identity of the caller: a digest, so that no credential is stored.
    pub(super) fn caller(&self, bearer: Option<&str>, account: Option<&str>) -> String {
        let digest = |kind: &str, of: &str| {
            let digest = Sha256::digest(format!("nuncio chat {kind}\n{of}"));
            digest.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
        };
        match (self, bearer, account) {
            (Self::Command { .. }, ..) => "program".to_owned(),
            (_, Some(token), _) => digest("caller", &bearer_of(token)),
            (Self::Local(_), None, _) => "operator".to_owned(),
            (Self::Url { .. }, None, Some(account)) => digest("account", account),
            (Self::Url { .. }, None, None) => "nobody".to_owned(),
        }
    }

    /// The credentials for this server.
    pub(super) fn authorizer(&self, bearer: Option<&str>) -> Option<Arc<dyn Authorizer>> {
        match (self, bearer) {
            (Self::Command { .. }, _) => None,
            (Self::Local(_) | Self::Url { .. }, Some(token)) => {
                Some(Arc::new(Bearer::new(token, &self.resource()?)))
            }
            (Self::Local(data), None) => Some(Arc::new(OperatorAuthorizer(data.clone()))),
            (Self::Url { url, .. }, None) => {
                // The local server, named by its URL, is still the local server.
                let data = server::configured().data;
                let published = Url::parse(&server::published(&data)?.url).ok()?;
                (published.origin() == url.origin())
                    .then(|| Arc::new(OperatorAuthorizer(data)) as Arc<dyn Authorizer>)
            }
        }
    }

    /// The same options, with the certificate of the local server, and the client's own for this server alone.
    pub(super) fn trust(&self, tls: &TlsClientOptions) -> TlsClientOptions {
        let data = match self {
            Self::Local(data) => data.clone(),
            Self::Url { .. } | Self::Command { .. } => server::configured().data,
        };
        let tls = server::trust_published(tls.clone(), &data);
        match self {
            Self::Url { url, .. } => tls.identity_for(url),
            Self::Local(_) | Self::Command { .. } => tls,
        }
    }

    /// How to connect to the server.
    pub(super) fn dial(
        &self,
        authorizer: Option<Arc<dyn Authorizer>>,
        tls: &TlsClientOptions,
        log_level: &McpLogLevel,
        revision: Option<&str>,
    ) -> ServerDialer {
        let (place, tls, log_level) = (self.clone(), tls.clone(), log_level.clone());
        let revision = revision.map(str::to_owned);
        Arc::new(move || {
            let place = place.clone();
            let (authorizer, log_level) = (authorizer.clone(), log_level.clone());
            let revision = revision.clone();
            let mut options = PeerConnectOptions {
                authorizer,
                tls: tls.clone(),
                log_level,
                every_event: true,
                ..PeerConnectOptions::default()
            };
            options.revision.clone_from(&revision);
            Box::pin(async move {
                let there = match place {
                    // The MCP endpoint has everything a server offers: agents, sampling, logs, tools.
                    Self::Local(data) => {
                        // In the last revision with sessions, a change of the log level also applies to
                        // running calls.
                        options.protocol = Some(PeerProtocol::Mcp);
                        options.revision.get_or_insert_with(|| McpVersion::V2025_11_25.name().to_owned());
                        let text = format!("{}/mcp?tools=all", server::address_of(&data));
                        let no_url = |error: url::ParseError| PeerError::Unreachable {
                            at: text.clone(),
                            why: error.to_string(),
                        };
                        peer::PeerLocation::Url(Url::parse(&text).map_err(no_url)?)
                    }
                    Self::Url { url, .. } => peer::PeerLocation::Url(url),
                    Self::Command { command, .. } => peer::PeerLocation::Command(PeerProgram {
                        command,
                        env: Default::default(),
                        dir: None,
                    }),
                };
                peer::connect(&there, &options).await
            })
        })
    }
}

/// The token for each of the servers. A token without a server name is for the only server.
pub(super) fn bearers(
    places: &[ChatServerAddress],
    names: &[String],
    given: &[String],
) -> Result<Vec<Option<String>>, String> {
    let mut bearers = vec![None; places.len()];
    let takes: Vec<usize> = (0..places.len()).filter(|at| places[*at].is_url()).collect();
    for text in given.iter().filter(|text| !text.is_empty()) {
        let named = text.split_once('=').and_then(|(name, token)| {
            takes.iter().find(|at| names[**at] == name).map(|at| (*at, token.to_owned()))
        });
        let (at, token) = match (named, &takes[..]) {
            (Some(named), _) => named,
            (None, [only]) => (*only, text.clone()),
            (None, []) => return Err("--bearer: programs are shown no token; give --server a URL".to_owned()),
            (None, _) => {
                let names: Vec<&str> = takes.iter().map(|at| &*names[*at]).collect();
                return Err(format!(
                    "--bearer: which server is the token for? Write NAME=TOKEN, with one of the names {} (--server NAME=URL gives others)",
                    names.join(", ")
                ));
            }
        };
        bearers[at] = Some(token);
    }
    Ok(bearers)
}

/// The subject of a token, as far as the token names it: a new token of the same caller is the same caller.
/// It is not verified, and only chooses a file.
fn bearer_of(token: &str) -> String {
    let own =
        || token.strip_prefix("nun_").and_then(|rest| rest.split_once('_')).map(|(id, _)| id.to_owned());
    let claims = || {
        let payload = BASE64_URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?;
        let claims: serde_json::Value = serde_json::from_slice(&payload).ok()?;
        let subject = claims["sub"].as_str()?;
        Some(format!("{}\n{subject}", claims["iss"].as_str().unwrap_or_default()))
    };
    own().or_else(claims).unwrap_or_else(|| token.to_owned())
}

fn is_url(text: &str) -> bool {
    text.starts_with("http://") || text.starts_with("https://")
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

/// Sends the operator's token of a data folder. It changes with every start of the server.
struct OperatorAuthorizer(PathBuf);

#[async_trait]
impl Authorizer for OperatorAuthorizer {
    async fn token(&self, resource: &Url) -> Option<String> {
        let published = server::published(&self.0)?;
        let here = Url::parse(&published.url).ok()?;
        (here.origin() == resource.origin()).then_some(published.admin_token)
    }

    async fn challenged(&self, resource: &Url, status: u16, _: Option<&str>) -> Result<bool, String> {
        let folder = self.0.display();
        Err(format!(
            "{resource} does not take the token that is in {folder} (HTTP {status}): is it the server of that folder?"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_an_address_or_a_command() {
        let check = |text: &str, name: Option<&str>, shown: &str| {
            let place = ChatServerAddress::parse(text).ok();
            assert_eq!(
                place.as_ref().map(|place| place.name(&mut BTreeSet::new())).as_deref(),
                name,
                "{text}"
            );
            assert_eq!(place.map(|place| place.display_text()).unwrap_or_default(), shown, "{text}");
        };
        check("http://127.0.0.1:8080", Some("127.0.0.1:8080"), "http://127.0.0.1:8080/");
        check("https://a.example/mcp", Some("a.example"), "https://a.example/mcp");
        check("team=http://a.example/mcp", Some("team"), "http://a.example/mcp");
        check(
            "npx -y @modelcontextprotocol/server-everything",
            Some("server-everything"),
            "npx -y @modelcontextprotocol/server-everything",
        );
        check("files=npx -y server-files", Some("files"), "npx -y server-files");
        check("files= npx -y server-files", Some("files"), "npx -y server-files");
        check("'my files'=npx", Some("my files=npx"), "my files=npx");
        check("files=", None, "");
        check("python3 'my server.py'", Some("my server.py"), "python3 my server.py");
        check("http://me:secret@a.example", None, "");
        check("ftp://a.example", None, "");
        check("", None, "");
    }

    #[test]
    fn two_servers_have_two_names() {
        let mut taken = BTreeSet::new();
        let name = |taken: &mut BTreeSet<String>| ChatServerAddress::parse("http://a").unwrap().name(taken);
        assert_eq!((name(&mut taken), name(&mut taken)), ("a".to_owned(), "a-2".to_owned()));
    }

    #[test]
    fn callers_are_told_apart_and_not_known() {
        let place = ChatServerAddress::parse("http://a").unwrap();
        let (one, other) = (place.caller(Some("one"), None), place.caller(Some("other"), None));
        assert_ne!(one, other);
        assert_ne!(one, place.caller(None, None));
        assert!(!one.contains("one"));
        let jwt = |claims: &str, signature: &str| {
            format!("e30.{}.{signature}", BASE64_URL_SAFE_NO_PAD.encode(claims))
        };
        let who = |token: &str| place.caller(Some(token), None);
        let (ann, bob) = (r#"{"iss":"i","sub":"ann","exp":1}"#, r#"{"iss":"i","sub":"bob","exp":1}"#);
        assert_eq!(who(&jwt(ann, "x")), who(&jwt(&ann.replace(":1", ":2"), "y")), "renewed");
        assert_ne!(who(&jwt(ann, "x")), who(&jwt(bob, "x")));
        assert_eq!(who("nun_abc_one"), who("nun_abc_two"));
        assert_ne!(who("nun_abc_one"), who("nun_abd_one"));
        assert_ne!(place.caller(None, Some("one")), one);
        assert_ne!(place.caller(None, Some("one")), place.caller(None, None));
    }

    #[test]
    fn a_token_is_for_one_server() {
        let check = |servers: &[&str], given: &[&str], expected: Result<&[Option<&str>], &str>| {
            let places: Vec<ChatServerAddress> =
                servers.iter().map(|text| ChatServerAddress::parse(text).unwrap()).collect();
            let mut taken = BTreeSet::new();
            let names: Vec<String> = places.iter().map(|place| place.name(&mut taken)).collect();
            let given: Vec<String> = given.iter().map(|text| (*text).to_owned()).collect();
            match (bearers(&places, &names, &given), expected) {
                (Ok(found), Ok(expected)) => {
                    assert_eq!(found.iter().map(Option::as_deref).collect::<Vec<_>>(), expected);
                }
                (Err(why), Err(words)) => assert!(why.contains(words), "{why}"),
                (found, expected) => panic!("{found:?} {expected:?}"),
            }
        };
        check(&["http://a"], &["t="], Ok(&[Some("t=")]));
        check(&["http://a", "some-program"], &["t"], Ok(&[Some("t"), None]));
        check(&["a=http://a", "b=http://b"], &["b=t"], Ok(&[None, Some("t")]));
        check(&["a=http://a", "b=http://b"], &["b=t", "a=u"], Ok(&[Some("u"), Some("t")]));
        check(&["a=http://a", "b=http://b"], &["t"], Err("one of the names a, b"));
        check(&["some-program"], &["t"], Err("programs are shown no token"));
    }

    #[test]
    fn the_base_is_the_server() {
        let check = |text: &str, base: &str| {
            assert_eq!(ChatServerAddress::parse(text).unwrap().base().as_deref(), Some(base));
        };
        check("http://a:1/mcp", "http://a:1");
        check("http://a:1/mcp?tools=all", "http://a:1");
        check("http://a:1/", "http://a:1");
    }
}
