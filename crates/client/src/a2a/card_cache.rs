//! A cache of agent cards by the rules of HTTP: a card is used without a request for as long as its server says, and then
//! asked for again with its `ETag`, or the time of its last change. It is in memory, and for the command line also in a
//! folder (`folder.rs`).
//!
//! A card belongs to the exact URL and to the credentials that it was fetched with: what one caller may see is never
//! shown to another. A card without any of these three, and one that must not be stored, is not.

mod folder;

use std::{collections::HashMap, fmt, path::PathBuf, sync::Arc, time::Duration};

use ::http::{HeaderMap, header};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tokio::time::Instant;
use url::Url;

use self::folder::{CardFolder, StoredCard};
use super::{
    A2aClientError, A2aCredentials, A2aHttpOptions, A2aResponse, AgentCard, CardReference, card,
    http::{A2aHttp, DocumentValidator},
};

/// Cards that are stored. With more, the oldest goes.
const MAX_CARDS: usize = 1000;
/// Bytes of a card that is stored; a larger one is fetched every time.
const MAX_CARD: usize = 256 * 1024;
/// The longest time that a card is used without a request, whatever its server says.
const MAX_AGE: Duration = Duration::from_secs(60);

/// A cache of agent cards. Clones share their cards.
#[derive(Clone, Default)]
pub struct CardCache {
    cards: Arc<Mutex<HashMap<CardCacheKey, CachedCard>>>,
    folder: Option<Arc<CardFolder>>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct CardCacheKey {
    url: Url,
    /// A digest of the credentials, so that the cache holds none.
    credentials: [u8; 32],
}

#[derive(Clone)]
struct CachedCard {
    body: Arc<[u8]>,
    validator: DocumentValidator,
    stored: Instant,
    fresh_until: Instant,
}

/// Whether a request can be saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CardFreshness {
    /// A card that is fresh by the server's own words is used as it is.
    Fresh,
    /// The server is asked whether the card has changed.
    Revalidated,
}

impl fmt::Debug for CardCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CardCache").field("cards", &self.cards.lock().len()).finish()
    }
}

impl CardCache {
    /// A cache whose cards other processes find in this folder. Only this user may be able to write there: a card decides
    /// where credentials go.
    pub fn in_folder(folder: PathBuf) -> Self {
        Self { cards: Arc::default(), folder: Some(Arc::new(CardFolder::new(folder))) }
    }

    /// The card that a reference points to. A file is read every time.
    pub async fn card(
        &self,
        reference: &CardReference,
        options: &A2aHttpOptions,
        credentials: &A2aCredentials,
        freshness: CardFreshness,
    ) -> Result<A2aResponse<AgentCard>, A2aClientError> {
        card::fetch(reference, options, credentials, self, freshness).await
    }

    /// The bytes of the card at that address.
    pub(super) async fn fetch(
        &self,
        url: &Url,
        options: &A2aHttpOptions,
        credentials: &A2aCredentials,
        freshness: CardFreshness,
    ) -> Result<Arc<[u8]>, A2aClientError> {
        let key = CardCacheKey { url: url.clone(), credentials: digest(credentials) };
        let folder = self.folder_for(url, options);
        let cached = self.cards.lock().get(&key).cloned();
        let cached = cached.or_else(|| folder?.load(&key).map(CachedCard::from));
        if let Some(card) = &cached
            && freshness == CardFreshness::Fresh
            && Instant::now() < card.fresh_until
        {
            return Ok(Arc::clone(&card.body));
        }
        let http = A2aHttp::new(options, url).with_credentials(credentials)?;
        let validator = cached.as_ref().map(|card| card.validator.clone()).unwrap_or_default();
        let answer = http.get_unless(url, "application/json", &validator).await?;
        let newer = DocumentValidator::read(&answer.headers);
        let (body, validator) = match (answer.body, cached) {
            (Some(body), _) => (Arc::from(body), newer),
            (None, Some(card)) => (card.body, if newer.is_any() { newer } else { validator }),
            (None, None) => {
                return Err(A2aClientError::Malformed("304 to a request without a condition".into()));
            }
        };
        self.store(folder, key, &answer.headers, Arc::clone(&body), validator);
        Ok(body)
    }

    /// The folder, unless this connection trusts others, or shows a certificate: its cards are for no other.
    fn folder_for(&self, url: &Url, options: &A2aHttpOptions) -> Option<&CardFolder> {
        let is_special = options.insecure || options.tls.for_url(url).has_files();
        self.folder.as_deref().filter(|_| !is_special)
    }

    fn store(
        &self,
        folder: Option<&CardFolder>,
        key: CardCacheKey,
        headers: &HeaderMap,
        body: Arc<[u8]>,
        validator: DocumentValidator,
    ) {
        let rule = StorageRule::read(headers);
        let is_useful = validator.is_any() || !rule.max_age.is_zero();
        if !rule.may_store || body.len() > MAX_CARD || !is_useful {
            self.cards.lock().remove(&key);
            if let Some(folder) = folder {
                folder.remove(&key);
            }
            return;
        }
        if let Some(folder) = folder {
            folder.store(&key, &body, &validator, rule.max_age);
        }
        let mut cards = self.cards.lock();
        if cards.len() >= MAX_CARDS && !cards.contains_key(&key) {
            let oldest = cards.iter().min_by_key(|(_, card)| card.stored).map(|(key, _)| key.clone());
            oldest.and_then(|oldest| cards.remove(&oldest));
        }
        let stored = Instant::now();
        cards.insert(key, CachedCard { body, validator, stored, fresh_until: stored + rule.max_age });
    }
}

impl From<StoredCard> for CachedCard {
    fn from(card: StoredCard) -> Self {
        let stored = Instant::now();
        let StoredCard { body, validator, remaining } = card;
        Self { body, validator, stored, fresh_until: stored + remaining }
    }
}

fn digest(credentials: &A2aCredentials) -> [u8; 32] {
    let mut hash = Sha256::new();
    let mut add = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_be_bytes());
        hash.update(bytes);
    };
    for secret in [&credentials.bearer, &credentials.api_key] {
        add(secret.as_deref().unwrap_or_default().as_bytes());
    }
    add(format!("{:?}", credentials.api_key_place).as_bytes());
    // A trace is another one in every process, and no credential.
    for (name, value) in credentials.service_parameters.iter().filter(|(name, _)| name != "traceparent") {
        add(name.as_str().as_bytes());
        add(value.as_bytes());
    }
    hash.finalize().into()
}

/// What the headers of a response say about storing it.
#[derive(Debug, PartialEq, Eq)]
struct StorageRule {
    may_store: bool,
    max_age: Duration,
}

impl StorageRule {
    fn read(headers: &HeaderMap) -> Self {
        let mut rule = Self { may_store: true, max_age: Duration::ZERO };
        let lines = headers.get_all(header::CACHE_CONTROL).iter().filter_map(|value| value.to_str().ok());
        let mut revalidate = false;
        for directive in lines.flat_map(|line| line.split(',')) {
            let (name, value) = directive.split_once('=').unwrap_or((directive, ""));
            match name.trim().to_ascii_lowercase().as_str() {
                "no-store" => rule.may_store = false,
                "no-cache" => revalidate = true,
                "max-age" => {
                    let seconds = value.trim().trim_matches('"').parse().unwrap_or(0);
                    rule.max_age = Duration::from_secs(seconds).min(MAX_AGE);
                }
                _ => {}
            }
        }
        // The time that the response has spent in other caches.
        let age = headers.get(header::AGE).and_then(|age| age.to_str().ok()?.trim().parse().ok());
        rule.max_age = rule.max_age.saturating_sub(Duration::from_secs(age.unwrap_or(0)));
        if revalidate {
            rule.max_age = Duration::ZERO;
        }
        // The response depends on more than the request says.
        rule.may_store &= headers.get(header::VARY).is_none_or(|vary| vary != "*");
        rule
    }
}

#[cfg(test)]
mod tests {
    use ::http::HeaderValue;

    use super::*;

    #[test]
    fn the_headers_decide_what_is_stored_and_how_long() {
        let check = |lines: &[(&str, &str)], may_store: bool, seconds: u64| {
            let header = |(name, value): &(&str, &str)| {
                (name.parse::<header::HeaderName>().unwrap(), value.parse::<HeaderValue>().unwrap())
            };
            let headers: HeaderMap = lines.iter().map(header).collect();
            let max_age = Duration::from_secs(seconds);
            assert_eq!(StorageRule::read(&headers), StorageRule { may_store, max_age }, "{lines:?}");
        };
        check(&[], true, 0);
        check(&[("cache-control", "public, max-age=30")], true, 30);
        check(&[("cache-control", "private,MAX-AGE=\"30\"")], true, 30);
        check(&[("cache-control", "max-age=31536000")], true, 60);
        check(&[("cache-control", "max-age=-5")], true, 0);
        check(&[("cache-control", "max-age=30, no-cache")], true, 0);
        check(&[("cache-control", "max-age=30"), ("age", "20")], true, 10);
        check(&[("cache-control", "max-age=30"), ("age", "400")], true, 0);
        check(&[("cache-control", "no-store, max-age=30")], false, 30);
        check(&[("cache-control", "max-age=30"), ("vary", "*")], false, 30);
    }

    #[test]
    fn credentials_are_told_apart() {
        let bearer = |text: &str| A2aCredentials { bearer: Some(text.into()), ..A2aCredentials::default() };
        let key = A2aCredentials { api_key: Some("a".into()), ..A2aCredentials::default() };
        let all = [A2aCredentials::default(), bearer("a"), bearer("b"), key];
        let digests: std::collections::HashSet<_> = all.iter().map(digest).collect();
        assert_eq!(digests.len(), all.len());
        assert_eq!(digest(&bearer("a")), digest(&bearer("a")));
    }
}
