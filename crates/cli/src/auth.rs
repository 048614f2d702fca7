//! `nuncio auth …`: signs in at an agent whose card asks for OAuth or OpenID Connect. The token is stored in the user's
//! state folder, readable by its owner only, and sent with later calls of that agent, and to no other address.
//!
//! The card's author names the authorization server. A client secret is sent only to an origin that the user named.

use std::{collections::BTreeSet, process::Stdio, sync::Arc};

use clap::{Args, Subcommand, ValueEnum};
use nuncio_client::auth::Authorizer as _;
use nuncio_client::oauth::{
    DevicePrompt, FileTokenStore, LoopbackConsent, NoConsent, OAuth, OAuthClient, OAuthFlow, OAuthLogin,
    OAuthOptions, TokenStore as _,
};
use serde_json::{Value, json};
use url::Url;

use super::{
    client_config::token_folder,
    connection::{AgentConnection, AgentFlags},
    error::CliError,
    output::{self, note},
    text::{self, TextOutput},
};

#[derive(Subcommand)]
pub(crate) enum AuthCommand {
    /// Sign in at an agent, as its card says
    Login(LoginFlags),
    /// Delete the token of an agent
    Logout(AgentOnlyFlags),
    /// Show whether there is a token for an agent
    Status(AgentOnlyFlags),
}

#[derive(Args)]
pub(crate) struct LoginFlags {
    /// The way to a token. Default: client-credentials if there is a client secret, else the first that the card has of
    /// device and code
    #[arg(long, value_name = "FLOW")]
    flow: Option<LoginFlow>,
    /// The id that the authorization server knows this client by
    #[arg(long, env = "A2ACLI_CLIENT_ID", value_name = "ID")]
    client_id: Option<String>,
    /// The client's secret. Other users of this machine can see flags: prefer A2ACLI_CLIENT_SECRET
    #[arg(
        long,
        env = "A2ACLI_CLIENT_SECRET",
        hide_env_values = true,
        value_name = "SECRET",
        requires = "client_id"
    )]
    client_secret: Option<String>,
    /// A scope to ask for. Repeatable. Default: those that the card names
    #[arg(long = "scope", value_name = "SCOPE")]
    scopes: Vec<String>,
    /// Open the link (xdg-open) as well as showing it
    #[arg(long)]
    open_link: bool,
    #[command(flatten)]
    agent: AgentFlags,
}

#[derive(Args)]
pub(crate) struct AgentOnlyFlags {
    #[command(flatten)]
    agent: AgentFlags,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LoginFlow {
    /// A code is shown, and used on any device.
    Device,
    /// The client's own secret; no user is asked.
    ClientCredentials,
    /// A browser on this machine.
    Code,
}

impl AuthCommand {
    pub(crate) fn agent(&self) -> &AgentFlags {
        match self {
            Self::Login(flags) => &flags.agent,
            Self::Logout(flags) | Self::Status(flags) => &flags.agent,
        }
    }

    pub(crate) async fn run(self) -> Result<(), CliError> {
        let connection = self.agent().clone().resolve()?;
        match self {
            Self::Login(flags) => connection.bounded(login(&connection, flags)).await,
            Self::Logout(_) => connection.bounded(logout(&connection)).await,
            Self::Status(_) => connection.bounded(status(&connection)).await,
        }
    }
}

/// The token that `auth login` stored for an address, renewed if it has to be.
pub(crate) async fn stored_token(endpoint: &Url) -> Option<String> {
    let store = store().ok()?;
    // Most agents have none, and then nothing is set up.
    store.load(endpoint).await?;
    let why = "a new login is needed: `nuncio auth login`".to_owned();
    let oauth = OAuth::new(OAuthOptions::default(), Arc::new(store), Arc::new(NoConsent { why })).ok()?;
    let token = oauth.token(endpoint).await;
    if token.is_none() {
        note("note: the token of this agent has expired: `nuncio auth login` gets another one");
    }
    token
}

fn store() -> Result<FileTokenStore, CliError> {
    let folder = token_folder().ok_or_else(|| {
        CliError::Usage("neither XDG_STATE_HOME nor HOME is set: there is no place for tokens".to_owned())
    })?;
    Ok(FileTokenStore::new(folder))
}

async fn login(connection: &AgentConnection, flags: LoginFlags) -> Result<(), CliError> {
    let (card, endpoint) = connection.login_target().await?;
    let card: Value = serde_json::from_str(card.json.get()).map_err(std::io::Error::other)?;
    let client = flags.client_id.clone().map(|id| OAuthClient {
        id,
        secret: flags.client_secret.clone(),
        method: None,
        redirect_uri: None,
    });
    let is_json = connection.output.is_json();
    let opens = flags.open_link;
    let consent = LoopbackConsent { open: Arc::new(move |url: &Url| show_link(url, None, is_json, opens)) };
    let options = OAuthOptions { client_name: "nuncio".into(), client, ..OAuthOptions::default() };
    let oauth = OAuth::new(options, Arc::new(store()?), Arc::new(consent)).map_err(CliError::Usage)?;
    let (login, flow) = find_login(&oauth, &card, &endpoint, &flags).await.map_err(CliError::Usage)?;
    if flags.client_secret.is_some() {
        connection.check_login(&login.token_endpoint)?;
    }
    let server = login.token_endpoint.origin().ascii_serialization();
    if !is_json {
        note(&format!("the authorization server is {server}"));
    }
    let show = |prompt: &DevicePrompt| {
        let link = prompt.verification_uri_complete.as_ref().unwrap_or(&prompt.verification_uri);
        show_link(link, Some(&prompt.user_code), is_json, opens);
    };
    let grant = oauth.login(&login, flow, show).await.map_err(CliError::Login)?;
    let scopes: Vec<_> = grant.scopes.iter().cloned().collect();
    if is_json {
        let document = json!({
            "endpoint": endpoint, "signedIn": true, "server": server, "scopes": scopes,
            "subject": grant.subject, "expiresAt": grant.expires_at,
        });
        return output::json_text(&document.to_string());
    }
    let mut text = TextOutput::default();
    text.field("Signed in", endpoint.as_str());
    text.field("Server", &server);
    if let Some(subject) = &grant.subject {
        text.field("Subject", &text::plain(subject));
    }
    text.field("Scopes", &scopes.join(" "));
    output::text(&text.0)
}

/// Shows the user a link, and the code to type there.
fn show_link(url: &Url, code: Option<&str>, is_json: bool, opens: bool) {
    if opens {
        let mut opener = std::process::Command::new("xdg-open");
        opener.arg(url.as_str()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // Without a program that opens links, the user opens it.
        let _ = opener.spawn();
    }
    // The standard output has one document, at the end.
    match (is_json, code) {
        (true, _) => note(&json!({ "visit": url, "userCode": code }).to_string()),
        (false, Some(code)) => {
            note(&format!("Open this link on any device:\n  {url}\nand give this code: {code}"));
        }
        (false, None) => note(&format!("Open this link on this machine, and come back:\n  {url}")),
    }
}

/// The endpoints that the card names, and the flow to use.
async fn find_login(
    oauth: &OAuth,
    card: &Value,
    endpoint: &Url,
    flags: &LoginFlags,
) -> Result<(OAuthLogin, OAuthFlow), String> {
    let schemes = card["securitySchemes"].as_object().cloned().unwrap_or_default();
    let mut offered = vec![];
    for scheme in schemes.values() {
        // In 1.0 the name of the only member is the type; before that, `type` is.
        let oauth2 = Some(&scheme["oauth2SecurityScheme"]).filter(|inner| inner.is_object());
        if let Some(scheme) = oauth2.or_else(|| Some(scheme).filter(|scheme| scheme["type"] == "oauth2")) {
            offered.extend(named_flows(scheme, endpoint)?);
        }
        let openid = scheme["openIdConnectSecurityScheme"]["openIdConnectUrl"].as_str();
        let openid = openid.or_else(|| scheme["openIdConnectUrl"].as_str());
        if let Some(url) = openid {
            let url = parse_url("openIdConnectUrl", url)?;
            let mut login = oauth.login_by_metadata(&url, endpoint).await?;
            login.scopes.insert("openid".to_owned());
            let device = login.device_endpoint.is_some().then(|| (OAuthFlow::Device, login.clone()));
            let code = login.authorization_endpoint.is_some().then(|| (OAuthFlow::Code, login.clone()));
            offered.extend(device.into_iter().chain(code));
            offered.push((OAuthFlow::ClientCredentials, login));
        }
    }
    let wanted = match (flags.flow, &flags.client_secret) {
        (Some(LoginFlow::Device), _) => vec![OAuthFlow::Device],
        (Some(LoginFlow::ClientCredentials), _) => vec![OAuthFlow::ClientCredentials],
        (Some(LoginFlow::Code), _) => vec![OAuthFlow::Code],
        (None, Some(_)) => vec![OAuthFlow::ClientCredentials, OAuthFlow::Device, OAuthFlow::Code],
        (None, None) => vec![OAuthFlow::Device, OAuthFlow::Code],
    };
    let names: Vec<_> = offered.iter().map(|(flow, _)| flow_name(*flow)).collect();
    let chosen = wanted.iter().find_map(|flow| offered.iter().find(|(offered, _)| offered == flow));
    let (flow, login) = chosen.ok_or_else(|| match &names[..] {
        [] => "the agent's card names no OAuth flow: give a token with A2ACLI_BEARER, or a key with A2ACLI_API_KEY"
            .to_owned(),
        names => format!("the agent's card has the flows {}: --flow names one", names.join(", ")),
    })?;
    if flags.client_id.is_none() {
        return Err(
            "a login needs the id that the authorization server knows this client by: --client-id".to_owned()
        );
    }
    if *flow == OAuthFlow::ClientCredentials && flags.client_secret.is_none() {
        return Err("client-credentials needs the client's secret: set A2ACLI_CLIENT_SECRET".to_owned());
    }
    let mut login = login.clone();
    if !flags.scopes.is_empty() {
        login.scopes = flags.scopes.iter().cloned().collect();
    }
    Ok((login, *flow))
}

/// The flows of an OAuth scheme of a card.
fn named_flows(scheme: &Value, endpoint: &Url) -> Result<Vec<(OAuthFlow, OAuthLogin)>, String> {
    let mut found = vec![];
    let known = [
        ("deviceCode", OAuthFlow::Device),
        ("authorizationCode", OAuthFlow::Code),
        ("clientCredentials", OAuthFlow::ClientCredentials),
    ];
    for (name, flow) in known {
        let Some(named) = scheme["flows"].get(name).filter(|named| named.is_object()) else { continue };
        let url = |member: &str| -> Result<Option<Url>, String> {
            named[member].as_str().map(|text| parse_url(member, text)).transpose()
        };
        let scopes: BTreeSet<String> =
            named["scopes"].as_object().into_iter().flat_map(|scopes| scopes.keys().cloned()).collect();
        let token_endpoint =
            url("tokenUrl")?.ok_or_else(|| format!("the card's flow {name} has no tokenUrl"))?;
        let login = OAuthLogin {
            resource: endpoint.clone(),
            issuer: None,
            authorization_endpoint: url("authorizationUrl")?,
            device_endpoint: url("deviceAuthorizationUrl")?,
            token_endpoint,
            scopes,
        };
        found.push((flow, login));
    }
    Ok(found)
}

fn parse_url(member: &str, text: &str) -> Result<Url, String> {
    Url::parse(text).map_err(|error| format!("the card's {member} is not a URL: {error}"))
}

fn flow_name(flow: OAuthFlow) -> &'static str {
    match flow {
        OAuthFlow::Code => "code",
        OAuthFlow::ClientCredentials => "client-credentials",
        OAuthFlow::Device => "device",
    }
}

async fn logout(connection: &AgentConnection) -> Result<(), CliError> {
    let (_, endpoint) = connection.login_target().await?;
    let store = store()?;
    let was = store.load(&endpoint).await.is_some();
    store.forget(&endpoint).await;
    if connection.output.is_json() {
        return output::json_text(
            &json!({ "endpoint": endpoint, "signedIn": false, "wasSignedIn": was }).to_string(),
        );
    }
    let mut text = TextOutput::default();
    text.field("Signed out", if was { endpoint.as_str() } else { "there was no token" });
    output::text(&text.0)
}

async fn status(connection: &AgentConnection) -> Result<(), CliError> {
    let (_, endpoint) = connection.login_target().await?;
    let grant = store()?.load(&endpoint).await.and_then(|record| record.grant);
    if connection.output.is_json() {
        let document = json!({
            "endpoint": endpoint, "signedIn": grant.is_some(),
            "server": grant.as_ref().map(|grant| &grant.issuer),
            "scopes": grant.as_ref().map(|grant| &grant.scopes),
            "subject": grant.as_ref().and_then(|grant| grant.subject.as_ref()),
            "expiresAt": grant.as_ref().and_then(|grant| grant.expires_at),
        });
        return output::json_text(&document.to_string());
    }
    let mut text = TextOutput::default();
    text.field("Endpoint", endpoint.as_str());
    text.field("Signed in", if grant.is_some() { "yes" } else { "no" });
    if let Some(grant) = grant {
        text.field("Server", &grant.issuer);
        if let Some(subject) = &grant.subject {
            text.field("Subject", &text::plain(subject));
        }
        let scopes: Vec<_> = grant.scopes.iter().map(String::as_str).collect();
        text.field("Scopes", &scopes.join(" "));
    }
    output::text(&text.0)
}
