//! Resources that are read by URI, single ones and templates; and the parsing of their URIs.

use std::collections::BTreeMap;

use async_trait::async_trait;
use serde_json::{Map, Value};

use super::{HandlerError, HandlerReply, HandlerRequest};
use crate::access::{AccessKind, Caller};

/// A resource that is read by its URI.
#[async_trait]
pub trait Resource: Send + Sync + 'static {
    /// Its listing entry. Read once, when the resource is registered.
    fn profile(&self) -> ResourceProfile;

    /// Reads its current content.
    async fn read(&self, request: HandlerRequest)
    -> Result<HandlerReply<Vec<ResourceContent>>, HandlerError>;
}

/// A family of resources whose URIs match one template. The `uri` of the profile has its variables in braces.
#[async_trait]
pub trait Template: Send + Sync + 'static {
    /// Its listing entry. Read once, when the template is registered.
    fn profile(&self) -> ResourceProfile;

    /// Reads the current content of the resource of that URI. The variables are the request's arguments.
    async fn read(
        &self,
        uri: &str,
        request: HandlerRequest,
    ) -> Result<HandlerReply<Vec<ResourceContent>>, HandlerError>;

    /// One page of the existing resources that the caller may read, after that cursor, and the cursor of the next
    /// page if there may be more.
    async fn list(
        &self,
        caller: &Caller,
        after: Option<&str>,
        limit: usize,
    ) -> Result<(Vec<ResourceProfile>, Option<String>), HandlerError> {
        let _ = (caller, after, limit);
        Ok((vec![], None))
    }

    /// Completions of a variable that begin with `typed` and that the caller may see, best first. `known` holds
    /// the other variables chosen so far.
    async fn complete(
        &self,
        caller: &Caller,
        variable: &str,
        typed: &str,
        known: &BTreeMap<String, String>,
    ) -> Vec<String> {
        let _ = (caller, variable, typed, known);
        vec![]
    }
}

/// The listing entry of a resource or a template.
#[derive(Debug, Clone, PartialEq)]
pub struct ResourceProfile {
    /// The URI; of a template, with variables in braces.
    pub uri: String,
    /// A programmatic name.
    pub name: String,
    /// A display name.
    pub title: Option<String>,
    /// What the resource holds, for people and models.
    pub description: Option<String>,
    /// The media type of its content, if that is always the same.
    pub media_type: Option<String>,
    /// How long a client may cache the content, in milliseconds. `None`: it may change at any time.
    pub fresh_ms: Option<u64>,
}

impl ResourceProfile {
    /// A resource with that URI and name.
    pub fn new(uri: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            uri: uri.into(),
            name: name.into(),
            title: None,
            description: None,
            media_type: None,
            fresh_ms: None,
        }
    }

    /// Sets the description.
    #[must_use]
    pub fn described(mut self, description: impl Into<String>) -> Self {
        self.description = Some(description.into());
        self
    }

    /// Sets the media type.
    #[must_use]
    pub fn media_type(mut self, media_type: impl Into<String>) -> Self {
        self.media_type = Some(media_type.into());
        self
    }
}

/// The content of a resource.
#[derive(Debug, Clone, PartialEq)]
pub struct ResourceContent {
    /// The URI that was read.
    pub uri: String,
    /// The media type, if known.
    pub media_type: Option<String>,
    /// The text or bytes.
    pub body: ResourceBody,
    /// Metadata of the content (`_meta`).
    pub meta: Option<Map<String, Value>>,
}

impl ResourceContent {
    /// Text content.
    pub fn text(uri: impl Into<String>, media_type: &str, text: impl Into<String>) -> Self {
        let (uri, body) = (uri.into(), ResourceBody::Text(text.into()));
        Self { uri, media_type: Some(media_type.into()), body, meta: None }
    }

    /// Binary content.
    pub fn bytes(uri: impl Into<String>, media_type: &str, bytes: Vec<u8>) -> Self {
        Self {
            uri: uri.into(),
            media_type: Some(media_type.into()),
            body: ResourceBody::Bytes(bytes),
            meta: None,
        }
    }

    /// JSON content.
    pub fn json(uri: impl Into<String>, value: &Value) -> Self {
        Self::text(uri, "application/json", value.to_string())
    }
}

/// Text or binary content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResourceBody {
    /// UTF-8 text.
    Text(String),
    /// Binary data, sent as base64.
    Bytes(Vec<u8>),
}

/// The decoded variables of a URI that matches a template. A variable matches at least one character and no `/`,
/// unless it is `{+name}`. If the template ends with `{?a,b}`, the URI may have a query; all of its parameters
/// are returned, also unknown ones, for the handler to check.
pub fn matches(template: &str, uri: &str) -> Option<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    let (template, uri, query) = match template.split_once("{?") {
        None => (template, uri, ""),
        Some((template, _)) => {
            let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
            (template, path, query)
        }
    };
    if !matches_into(template, uri, &mut found) {
        return None;
    }
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (name, value) = (decode(name)?, decode(value)?);
        // Neither twice nor in place of a path variable: it would be ambiguous.
        if found.insert(name, value).is_some() {
            return None;
        }
    }
    Some(found)
}

fn matches_into(template: &str, uri: &str, found: &mut BTreeMap<String, String>) -> bool {
    let Some((literal, rest)) = template.split_once('{') else { return template == uri };
    let Some((variable, after)) = rest.split_once('}') else { return false };
    let Some(uri) = uri.strip_prefix(literal) else { return false };
    let (name, any) = match variable.strip_prefix('+') {
        Some(name) => (name, true),
        None => (variable, false),
    };
    let end = if any { uri.len() } else { uri.find('/').unwrap_or(uri.len()) };
    let mut take = |stop: usize| {
        let mut inner = BTreeMap::new();
        // Decoded last: decoding costs time proportional to the length.
        let fits = stop > 0 && matches_into(after, &uri[stop..], &mut inner);
        let Some(value) = fits.then(|| decode(&uri[..stop])).flatten() else { return false };
        found.insert(name.to_owned(), value);
        found.append(&mut inner);
        true
    };
    // The text after the variable decides where it ends; of several matches the last one that fits.
    match after.split('{').next().unwrap_or_default() {
        "" => take(end),
        next => {
            let reach = uri.floor_char_boundary((end + next.len()).min(uri.len()));
            uri[..reach].rmatch_indices(next).any(|(stop, _)| take(stop))
        }
    }
}

/// The URI of a template with its variables filled in, encoded so that [`matches()`] decodes them again.
pub fn expand(template: &str, values: &BTreeMap<String, String>) -> String {
    let (mut out, mut rest) = (String::new(), template);
    while let Some((literal, tail)) = rest.split_once('{') {
        out.push_str(literal);
        let Some((variable, after)) = tail.split_once('}') else { break };
        if let Some(names) = variable.strip_prefix('?') {
            let given = names.split(',').filter_map(|name| Some((name, values.get(name)?)));
            for (n, (name, value)) in given.enumerate() {
                out.push_str(if n == 0 { "?" } else { "&" });
                out.push_str(name);
                out.push('=');
                encode(&mut out, value);
            }
            rest = after;
            continue;
        }
        let value = values.get(variable.trim_start_matches('+')).map_or("", String::as_str);
        encode(&mut out, value);
        rest = after;
    }
    out.push_str(rest);
    out
}

fn encode(out: &mut String, value: &str) {
    for byte in value.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(byte as char),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
}

/// The canonical form of a URI: minimal percent-encoding, and a sorted query.
pub fn normalized(uri: &str) -> String {
    let Some((scheme, rest)) = uri.split_once("://") else { return uri.to_owned() };
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let mut out = format!("{}://", scheme.to_ascii_lowercase());
    for (n, part) in path.split('/').enumerate() {
        if n > 0 {
            out.push('/');
        }
        encode(&mut out, &decode_lossy(part));
    }
    let pair = |pair: &str| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decode_lossy(name), decode_lossy(value))
    };
    let mut pairs: Vec<_> = query.split('&').filter(|one| !one.is_empty()).map(pair).collect();
    pairs.sort();
    for (n, (name, value)) in pairs.iter().enumerate() {
        out.push(if n == 0 { '?' } else { '&' });
        encode(&mut out, name);
        out.push('=');
        encode(&mut out, value);
    }
    out
}

/// Percent-decodes a text and leaves invalid escapes as they are.
fn decode_lossy(text: &str) -> String {
    let (mut out, bytes) = (Vec::with_capacity(text.len()), text.as_bytes());
    let mut at = 0;
    while at < bytes.len() {
        let digits = bytes.get(at + 1..at + 3).filter(|_| bytes[at] == b'%');
        match digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The access kind of a resource and the name that grants refer to, by its URI. `None`: every caller may read it.
pub fn access_of(uri: &str) -> Option<(AccessKind, String)> {
    let (scheme, rest) = uri.split_once("://")?;
    let path = rest.split('?').next().unwrap_or_default();
    let mut parts = path.split('/');
    let (first, second) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    match scheme {
        "memory" => Some((AccessKind::Memory, decode_lossy(second))),
        "sparc" if first == "workflow" => Some((AccessKind::Sparc, decode_lossy(second))),
        "batchtools" => Some((AccessKind::Batchtools, "batchtools".into())),
        "a2a" if first == "agents" => Some((AccessKind::A2a, "registry".into())),
        "a2a" => Some((AccessKind::A2a, first.to_owned())),
        "audit" => Some((AccessKind::Admin, "audit".into())),
        _ => None,
    }
}

/// Percent-decodes a text; `None` if an escape is invalid.
fn decode(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let digits = [bytes.next()?, bytes.next()?];
        out.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(template: &str, uri: &str, expected: Option<&[(&str, &str)]>) {
        let expected = expected.map(|pairs| {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        });
        assert_eq!(matches(template, uri), expected, "{template} {uri}");
    }

    #[test]
    fn an_address_is_taken_apart_by_its_template() {
        check("test://template/{id}/data", "test://template/123/data", Some(&[("id", "123")]));
        check("test://template/{id}/data", "test://template//data", None);
        check("test://template/{id}/data", "test://template/1/2/data", None);
        check("test://template/{id}/data", "test://template/a%2Fb/data", Some(&[("id", "a/b")]));
        check("m://{ns}/{key}", "m://a%20b/%C3%BC", Some(&[("ns", "a b"), ("key", "ü")]));
        check("m://{ns}/{key}", "m://a/%zz", None);
        check("m://{+path}", "m://a/b/c", Some(&[("path", "a/b/c")]));
        check("m://{a}-{b}", "m://x-y-z", Some(&[("a", "x-y"), ("b", "z")]));
        check("m://{a}/x", "m://a/x", Some(&[("a", "a")]));
        check("m://{a}/x/{b}", "m://a/x/y/z", None);
        check("m://{+a}/x", "m://a/x/x", Some(&[("a", "a/x")]));
        let search = "m://{ns}{?pattern,page}";
        check(search, "m://a", Some(&[("ns", "a")]));
        check(search, "m://a?pattern=b%2A&page=2", Some(&[("ns", "a"), ("pattern", "b*"), ("page", "2")]));
        check(search, "m://a?pattern=1&pattern=2", None);
        check(search, "m://a?ns=b", None);
        check(search, "m://a/b?pattern=1", None);
        check("plain://x", "plain://x", Some(&[]));
        check("plain://x", "plain://y", None);
    }

    #[test]
    fn an_address_costs_as_much_as_it_is_long() {
        let long = format!("m://data/{}", "a".repeat(1 << 20));
        let started = std::time::Instant::now();
        assert_eq!(matches("m://data/{ns}/{key}", &long), None);
        assert!(started.elapsed() < std::time::Duration::from_secs(1), "{:?}", started.elapsed());
    }

    #[test]
    fn one_thing_has_one_address() {
        let one = "memory://data/ns/task%3A1%2Fx";
        for spelled in [one, "memory://data/n%73/task:1%2fx", "MEMORY://data/ns/task%3a1%2Fx"] {
            assert_eq!(normalized(spelled), one);
        }
        let search = "memory://search/n?limit=5&pattern=a%2A";
        assert_eq!(normalized("memory://search/n?pattern=a*&limit=5"), search);
        assert_eq!(normalized("batchtools://queue/status"), "batchtools://queue/status");
    }

    #[test]
    fn what_is_filled_in_is_found_again() {
        for value in ["plain", "a/b", "50%", "with space", "ünï", "..%2f", "{x}", ":"] {
            let values = BTreeMap::from([("id".to_owned(), value.to_owned())]);
            let uri = expand("t://{id}/end", &values);
            assert_eq!(matches("t://{id}/end", &uri), Some(values), "{uri}");
        }
    }
}
