//! Protocol extensions: those that an agent requires are declared in every request, or the agent is refused by their
//! name before the first one (A2A 1.0, section 4.6).

use ::http::{HeaderName, HeaderValue};
use nuncio_wire::a2a::{
    Dialect,
    card::{CURSOR_EXTENSION, LOG_EXTENSION},
};

use super::{A2aClient, A2aClientError, AgentCard};

/// The extensions that this client knows and that a card may require.
const KNOWN: [&str; 2] = [CURSOR_EXTENSION, LOG_EXTENSION];

impl AgentCard {
    /// The extensions to declare: those that the card requires, and those that the caller wants. An error names one
    /// that is required and that neither this client nor its caller knows.
    pub fn declared_extensions(&self, wanted: &[String]) -> Result<Vec<String>, A2aClientError> {
        let is_known = |uri: &&String| KNOWN.contains(&uri.as_str()) || wanted.contains(uri);
        if let Some(uri) = self.required_extensions.iter().find(|uri| !is_known(uri)) {
            return Err(A2aClientError::ExtensionRequired(uri.clone()));
        }
        let mut declared = self.required_extensions.clone();
        declared.extend(wanted.iter().filter(|uri| !self.required_extensions.contains(uri)).cloned());
        Ok(declared)
    }
}

impl A2aClient {
    /// Declares these extensions in every request.
    #[must_use]
    pub fn with_extensions(self, uris: &[String]) -> Self {
        let name = if self.dialect() >= Dialect::V1 { "a2a-extensions" } else { "x-a2a-extensions" };
        match HeaderValue::try_from(uris.join(", ")) {
            Ok(value) if !uris.is_empty() => self.with_header(&HeaderName::from_static(name), &value),
            _ => self,
        }
    }
}
