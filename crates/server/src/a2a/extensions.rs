//! The protocol extensions of a request: those that are active for it, and those that it must name.
//!
//! Independent of the binding: every binding reads the names from its headers or metadata, and writes the active
//! ones back.

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use nuncio_engine::{Error, Profile};
use nuncio_wire::a2a::card::declares_extension;

/// The headers in which a request names extensions, and its response lists the active ones: since 1.0, and
/// before.
const HEADERS: [HeaderName; 2] =
    [HeaderName::from_static("a2a-extensions"), HeaderName::from_static("x-a2a-extensions")];

/// The extensions that a request names and the agent's card declares.
pub(crate) struct ActiveExtensions {
    uris: Vec<String>,
    /// The headers that the request used: the response uses the same.
    headers: Vec<HeaderName>,
}

impl ActiveExtensions {
    /// The active ones of those that the headers name.
    pub(crate) fn of(profile: &Profile, headers: &HeaderMap) -> Self {
        let mut active = Self { uris: vec![], headers: vec![] };
        for name in HEADERS {
            let values = headers.get_all(&name).iter().filter_map(|value| value.to_str().ok());
            let before = active.headers.len();
            for uri in values.flat_map(|value| value.split(',')).map(str::trim) {
                if !declares_extension(profile, uri) {
                    continue;
                }
                if active.headers.len() == before {
                    active.headers.push(name.clone());
                }
                if !active.contains(uri) {
                    active.uris.push(uri.to_owned());
                }
            }
        }
        active
    }

    pub(crate) fn uris(&self) -> &[String] {
        &self.uris
    }

    pub(crate) fn contains(&self, uri: &str) -> bool {
        self.uris.iter().any(|known| known == uri)
    }

    /// Lists the active extensions in the headers of a response; nothing if there are none.
    pub(crate) fn write(&self, response: &mut HeaderMap) {
        let Ok(list) = HeaderValue::from_str(&self.uris.join(", ")) else { return };
        for name in &self.headers {
            response.insert(name, list.clone());
        }
    }
}

/// Refuses a request that does not name an extension which the agent's card requires.
pub(crate) fn check_required(profile: &Profile, active: &[String]) -> Result<(), Error> {
    let required = profile.extensions.iter().filter(|extension| extension.required);
    match required.map(|extension| &extension.uri).find(|uri| !active.contains(uri)) {
        Some(uri) => Err(Error::ExtensionRequired(uri.clone())),
        None => Ok(()),
    }
}
