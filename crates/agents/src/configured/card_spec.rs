//! The keys of an `[[agent]]` table that only change its card, and what callers may do by it.

use std::collections::BTreeSet;

use nuncio_engine::{AgentExtension, AgentProvider, Profile};
use serde::Deserialize;
use serde_json::{Map, Value};
use url::Url;

use super::spec::SkillSpec;

/// Values on an agent's card.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct CardSpec {
    /// Media types that the agent accepts.
    pub input_modes: Option<Vec<String>>,
    /// Media types that it produces.
    pub output_modes: Option<Vec<String>>,
    /// Whether callers may stream.
    pub streaming: Option<bool>,
    /// Whether callers may register webhooks.
    pub push_notifications: Option<bool>,
    /// Whether it may answer with a message instead of a task.
    pub replies: Option<bool>,
    /// The organization that provides it.
    pub provider: Option<ProviderSpec>,
    /// The URL of its documentation.
    pub documentation_url: Option<String>,
    /// The URL of its icon.
    pub icon_url: Option<String>,
    /// The protocol extensions that it declares.
    #[serde(default)]
    pub extensions: Vec<ExtensionSpec>,
    /// What it does, for authenticated callers.
    pub extended_description: Option<String>,
}

/// The organization that provides an agent.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProviderSpec {
    /// The name of the organization.
    pub organization: String,
    /// Its web site.
    pub url: String,
}

/// A protocol extension that an agent declares.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExtensionSpec {
    /// The extension's identity.
    pub uri: String,
    /// How the agent uses it.
    pub description: Option<String>,
    /// Whether a request must name it.
    #[serde(default)]
    pub required: bool,
    /// The extension's own configuration.
    pub params: Option<Map<String, Value>>,
}

impl CardSpec {
    /// Checks the values that a type cannot: the key that is wrong, and why.
    pub(super) fn check(&self, skills: &[SkillSpec]) -> Result<(), (&'static str, String)> {
        for (key, modes) in [("input-modes", &self.input_modes), ("output-modes", &self.output_modes)] {
            if modes.as_ref().is_some_and(Vec::is_empty) {
                return Err((key, "expected at least one media type; \"*/*\" stands for all".into()));
            }
            check_modes(modes.iter().flatten()).map_err(|why| (key, why))?;
        }
        let modes = skills.iter().flat_map(|skill| skill.input_modes.iter().chain(&skill.output_modes));
        check_modes(modes).map_err(|why| ("skills", why))?;
        let addresses = [
            ("provider", self.provider.as_ref().map(|provider| &provider.url)),
            ("documentation-url", self.documentation_url.as_ref()),
            ("icon-url", self.icon_url.as_ref()),
        ];
        for (key, address) in addresses {
            let is_web = |url: &Url| matches!(url.scheme(), "http" | "https");
            if let Some(address) = address
                && !Url::parse(address).is_ok_and(|url| is_web(&url))
            {
                return Err((key, format!("expected a URL with http or https, not {address:?}")));
            }
        }
        let mut known = BTreeSet::new();
        for extension in &self.extensions {
            // The URI is a value of a header whose values are separated by commas.
            let uri = &extension.uri;
            if uri.is_empty() || !uri.bytes().all(|byte| byte.is_ascii_graphic() && byte != b',') {
                return Err(("extensions", format!("{uri:?} is no URI")));
            }
            if !known.insert(uri) {
                return Err(("extensions", format!("{uri:?} is there twice")));
            }
        }
        Ok(())
    }

    /// Puts the values into a profile. What the table does not name stays as it is.
    pub(super) fn apply(&self, profile: &mut Profile) {
        if let Some(modes) = &self.input_modes {
            profile.input_modes.clone_from(modes);
        }
        if let Some(modes) = &self.output_modes {
            profile.output_modes.clone_from(modes);
        }
        profile.streaming = self.streaming.unwrap_or(profile.streaming);
        profile.push_notifications = self.push_notifications.unwrap_or(profile.push_notifications);
        profile.replies = self.replies.unwrap_or(profile.replies);
        profile.provider = self.provider.as_ref().map(|provider| AgentProvider {
            organization: provider.organization.clone(),
            url: provider.url.clone(),
        });
        profile.documentation_url.clone_from(&self.documentation_url);
        profile.icon_url.clone_from(&self.icon_url);
        let extensions = self.extensions.iter().map(|extension| AgentExtension {
            uri: extension.uri.clone(),
            description: extension.description.clone(),
            required: extension.required,
            params: extension.params.clone(),
        });
        profile.extensions = extensions.collect();
    }
}

fn check_modes<'a>(modes: impl IntoIterator<Item = &'a String>) -> Result<(), String> {
    match modes.into_iter().find(|mode| !is_media_type(mode)) {
        Some(mode) => Err(format!("{mode:?} is no media type such as text/plain")),
        None => Ok(()),
    }
}

fn is_media_type(mode: &str) -> bool {
    let is_plain = mode.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ');
    let parts = mode.split_once('/');
    is_plain && parts.is_some_and(|(kind, subtype)| !kind.is_empty() && !subtype.is_empty())
}
