//! The dates of cards: since when each is as it is now. They are stored with the card's tag, so that a restart, another
//! node or a change of another agent does not make a card newer than it is.

use std::collections::BTreeMap;

use axum::http::HeaderValue;
use jiff::{Timestamp, fmt::rfc2822};
use nuncio_engine::{Engine, Error};
use serde::{Deserialize, Serialize};

use super::CardDocument;

/// No tenant's name contains a slash, so erasing a tenant never deletes the dates.
const TENANT: &str = "/server";
const KIND: &str = "card.dates";
/// Nodes that start together write the same record.
const ATTEMPTS: usize = 5;

/// A document's tag, and the time in seconds since 1970 at which it got it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct CardDate {
    etag: String,
    modified: i64,
}

/// The stored dates of cards.
pub(super) struct CardDates<'a> {
    engine: &'a Engine,
    now: i64,
    /// Whether the store answered so far. A card must not wait for a store that does not, once for every agent.
    reachable: bool,
}

impl<'a> CardDates<'a> {
    pub(super) fn new(engine: &'a Engine) -> Self {
        Self { engine, now: engine.clock().now().0.div_euclid(1000), reachable: true }
    }

    /// Sets the dates of the documents of one agent: the stored one of a document that has not changed, else now.
    pub(super) async fn assign(&mut self, agent: &str, documents: &mut [(&'static str, &mut CardDocument)]) {
        let dates = match self.reachable {
            true => self.update(agent, documents).await.unwrap_or_else(|error| {
                tracing::warn!(agent, %error, "the dates of the cards could not be stored; the cards count as new");
                self.reachable = false;
                BTreeMap::new()
            }),
            false => BTreeMap::new(),
        };
        for (name, document) in documents {
            document.modified = dates.get(*name).map_or(self.now, |date| date.modified);
        }
    }

    async fn update(
        &self,
        agent: &str,
        documents: &[(&'static str, &mut CardDocument)],
    ) -> Result<BTreeMap<String, CardDate>, Error> {
        let records = self.engine.records::<BTreeMap<String, CardDate>>(KIND);
        let stored = records.update(TENANT, agent, ATTEMPTS, |found| {
            let known = found.map(|found| &found.value);
            let date = |(name, document): &(&'static str, &mut CardDocument)| {
                let etag = document.etag.to_str().unwrap_or_default().to_owned();
                let same = known.and_then(|known| known.get(*name)).filter(|date| date.etag == etag);
                let modified = same.map_or(self.now, |date| date.modified);
                ((*name).to_owned(), CardDate { etag, modified })
            };
            let dates: BTreeMap<_, _> = documents.iter().map(date).collect();
            Ok::<_, Error>((known != Some(&dates)).then_some(dates))
        });
        Ok(stored.await?.map(|record| record.value).unwrap_or_default())
    }
}

/// The date as a header.
pub(super) fn write(seconds: i64) -> HeaderValue {
    let date = Timestamp::from_second(seconds).unwrap_or_default();
    let text = rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&date).unwrap_or_default();
    HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static(""))
}

/// The date of a header, in seconds since 1970; `None` if it is none.
pub(super) fn read(header: &HeaderValue) -> Option<i64> {
    let date = rfc2822::DateTimeParser::new().parse_timestamp(header.to_str().ok()?).ok()?;
    Some(date.as_second())
}
