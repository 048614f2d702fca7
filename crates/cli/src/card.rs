//! `nuncio card get`: an agent's card: its identity, skills and endpoints.

use clap::{Args, Subcommand};
use nuncio_client::a2a::{
    A2aClientError, A2aResponse, AgentCard, CardVerificationError, TrustedCardKeys, problems, verify_card,
};
use serde_json::Value;

use super::{
    connection::{AgentConnection, AgentFlags},
    error::CliError,
    output,
    text::TextOutput,
};

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Fetch an agent's card and show it
    Get(Flags),
}

#[derive(Args)]
pub(crate) struct Flags {
    /// Check the card against the requirements of A2A 1.0
    #[arg(long)]
    validate: bool,
    /// Fetch the extended card, which the agent shows to authenticated callers only
    #[arg(long)]
    extended: bool,
    /// Fail unless the card's signatures are by a key of --card-keys. A card without signatures is no failure
    #[arg(long)]
    verify: bool,
    /// The keys that may sign the card: a file (JWK, JWKS or PEM), or the https URL of a key set
    #[arg(long, value_name = "FILE|URL", value_parser = card_keys)]
    card_keys: Option<TrustedCardKeys>,
    #[command(flatten)]
    agent: AgentFlags,
}

fn card_keys(text: &str) -> Result<TrustedCardKeys, String> {
    TrustedCardKeys::read(text)
}

/// The outcome of the verification of a card's signatures (`a2a-cli`, section 10.1).
enum SignatureOutcome {
    /// By this key.
    Verified(String),
    /// There are signatures, and this is why none counts.
    Unverifiable(String),
    Absent,
}

impl Command {
    pub(crate) fn agent(&self) -> &AgentFlags {
        let Self::Get(flags) = self;
        &flags.agent
    }

    pub(crate) async fn run(self) -> Result<(), CliError> {
        let Self::Get(flags) = self;
        let connection = flags.agent.clone().resolve()?;
        connection.bounded(get(&connection, &flags)).await
    }
}

async fn get(connection: &AgentConnection, flags: &Flags) -> Result<(), CliError> {
    let validate = flags.validate;
    let received = match flags.extended {
        true => connection.extended_card().await?,
        false => connection.card().await?,
    };
    let (received, outcome) = verify(connection, flags, received).await?;
    let card: Value = serde_json::from_str(received.json.get()).map_err(std::io::Error::other)?;
    if validate {
        let problems = problems(&card);
        if !problems.is_empty() {
            return Err(CliError::InvalidCard { at: received.value.at, problems });
        }
    }
    if connection.output.is_json() {
        // The document on standard output is the card and nothing else.
        output::note(&format!("signature: {outcome}"));
        return output::json(&received.json);
    }
    let mut text = TextOutput::default();
    show(&mut text, &card, connection.output.verbose);
    text.field("Signature", &outcome.to_string());
    if validate {
        text.field("Valid", "yes");
    }
    output::text(&text.0)
}

/// Verifies the card with the given keys. What was verified is shown, and nothing else of the card. Without keys the
/// card's own `jku` proves nothing: whoever changed the card could name another key set.
async fn verify(
    connection: &AgentConnection,
    flags: &Flags,
    received: A2aResponse<AgentCard>,
) -> Result<(A2aResponse<AgentCard>, SignatureOutcome), CliError> {
    let card: Value = serde_json::from_str(received.json.get()).map_err(std::io::Error::other)?;
    let is_signed = card["signatures"].as_array().is_some_and(|signatures| !signatures.is_empty());
    let Some(keys) = flags.card_keys.as_ref().filter(|_| is_signed) else {
        return match (is_signed, flags.verify) {
            (false, _) => Ok((received, SignatureOutcome::Absent)),
            (true, true) => {
                let (at, why) = (received.value.at, CardVerificationError::NoKeys);
                Err(connection.failed(A2aClientError::UntrustedCard { at, why }))
            }
            (true, false) => {
                Ok((received, SignatureOutcome::Unverifiable(CardVerificationError::NoKeys.to_string())))
            }
        };
    };
    match verify_card(received.clone(), keys, &connection.http).await {
        Ok((verified, key)) => Ok((verified, SignatureOutcome::Verified(key))),
        Err(A2aClientError::UntrustedCard { why, .. }) if !flags.verify => {
            Ok((received, SignatureOutcome::Unverifiable(why.to_string())))
        }
        Err(error) => Err(connection.failed(error)),
    }
}

impl std::fmt::Display for SignatureOutcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Verified(key) => write!(f, "verified, by the key {key}"),
            Self::Unverifiable(why) => write!(f, "unverifiable: {why}"),
            Self::Absent => f.write_str("absent"),
        }
    }
}

fn show(text: &mut TextOutput, card: &Value, verbose: bool) {
    let string = |value: &Value| value.as_str().unwrap_or("not given").to_owned();
    let yes = |value: &Value| if value.as_bool().unwrap_or(false) { "yes" } else { "no" };
    let listed = |value: &Value| value.as_array().cloned().unwrap_or_default();
    text.field("Name", &string(&card["name"]));
    text.field("Description", &string(&card["description"]));
    text.field("Version", &string(&card["version"]));
    if let Some(organization) = card["provider"]["organization"].as_str() {
        text.field("Provider", organization);
    }
    for interface in listed(&card["supportedInterfaces"]) {
        let [binding, version, url] =
            ["protocolBinding", "protocolVersion", "url"].map(|member| string(&interface[member]));
        text.field("Interface", &format!("{binding} {version} {url}"));
    }
    if card["supportedInterfaces"].is_null()
        && let Some(url) = card["url"].as_str()
    {
        let binding = card["preferredTransport"].as_str().unwrap_or("JSONRPC");
        let version = card["protocolVersion"].as_str().unwrap_or("before 1.0");
        text.field("Interface", &format!("{binding} {version} {url}"));
    }
    let capabilities = &card["capabilities"];
    text.field("Streaming", yes(&capabilities["streaming"]));
    text.field("Push notifications", yes(&capabilities["pushNotifications"]));
    text.field("Extended card", yes(&capabilities["extendedAgentCard"]));
    for extension in listed(&capabilities["extensions"]) {
        let required = if extension["required"].as_bool().unwrap_or(false) { " (required)" } else { "" };
        text.field("Extension", &format!("{}{required}", string(&extension["uri"])));
    }
    let schemes = card["securitySchemes"].as_object().cloned().unwrap_or_default();
    if schemes.is_empty() {
        text.field("Security", "none");
    }
    for (name, scheme) in &schemes {
        // In 1.0 the name of the only member is the type; before that, `type` is.
        let kind = scheme["type"].as_str().map(str::to_owned);
        let kind = kind.or_else(|| scheme.as_object()?.keys().next().cloned()).unwrap_or_default();
        text.field("Security", &format!("{name} ({})", kind.trim_end_matches("SecurityScheme")));
    }
    for skill in listed(&card["skills"]) {
        let [id, name, description] = ["id", "name", "description"].map(|member| string(&skill[member]));
        text.field("Skill", &format!("{id} ({name}): {description}"));
        if verbose {
            for example in listed(&skill["examples"]) {
                text.field("Example", &string(&example));
            }
        }
    }
    if verbose {
        for (label, member) in [("Input", "defaultInputModes"), ("Output", "defaultOutputModes")] {
            let modes: Vec<_> = listed(&card[member]).iter().map(string).collect();
            text.field(label, &modes.join(", "));
        }
    }
}
