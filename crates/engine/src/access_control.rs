//! The access check: permission, rate limit, and the audit entry of every request.
//!
//! Every engine operation, and everything built on it, calls it first. A refusal comes before anything is
//! looked up, so that it reveals nothing about what exists.

mod audit;
mod rate;

use std::{
    borrow::Cow,
    fmt::{Display, Write as _},
    sync::Arc,
    time::Duration,
};

pub(crate) use self::rate::EXCHANGE;
use self::{audit::Audit, rate::Rates};
pub use self::{
    audit::AuditLevel,
    rate::{Rate, RateError},
};
use crate::{
    access::{AccessKind, Action, Caller, HOME_TENANT},
    clock::{Clock, Timestamp},
    error::Error,
    knowledge::AuditEntry,
    redact::Redactor,
    refusal_log::count_refusal,
    store::Store,
};

/// About how many bytes of a URI or a reason an audit entry keeps.
const LINE: usize = 512;
/// How many bytes are redacted before the cut to `LINE`: the kept part has no half of a secret at its end.
const LOOKED_AT: usize = 2 * LINE;
/// About how long the URI of a resource is: it is written into one allocation.
const USUAL_URI: usize = 80;

/// The operator's access settings.
#[derive(Debug, Clone)]
pub struct AccessOptions {
    /// The rate limit of one caller, by resource type. Types that are not listed have no limit.
    pub rates: Vec<(AccessKind, Rate)>,
    /// Which accesses are written to the audit.
    pub audit: AuditLevel,
    /// How long audit entries are retained; `None`: forever.
    pub audit_retention: Option<Duration>,
    /// Filters secrets out of log lines, audit entries and previews.
    pub redactor: Arc<Redactor>,
}

impl Default for AccessOptions {
    fn default() -> Self {
        Self {
            rates: vec![],
            audit: AuditLevel::default(),
            audit_retention: Some(Duration::from_secs(90 * 24 * 3600)),
            redactor: Arc::default(),
        }
    }
}

/// An access that a caller requests.
pub struct AccessRequest<'a> {
    /// Whether it reads, writes or executes.
    pub action: Action,
    /// The type of the resource.
    pub kind: AccessKind,
    /// The name that grants match: an agent, a namespace, a context.
    pub name: &'a str,
    /// The operation, such as `memory.store`.
    pub operation: &'static str,
    /// The URI of the resource, for the audit.
    pub resource: &'a dyn Display,
}

/// Checks permissions and rate limits, and writes the audit.
pub(crate) struct AccessControl {
    rates: Rates,
    audit: Audit,
    redactor: Arc<Redactor>,
}

impl AccessControl {
    pub(crate) fn new(options: &AccessOptions) -> Self {
        Self {
            rates: Rates::new(&options.rates),
            audit: Audit::new(options.audit),
            redactor: Arc::clone(&options.redactor),
        }
    }

    pub(crate) fn redactor(&self) -> &Arc<Redactor> {
        &self.redactor
    }

    /// Allows an access, or refuses it with the reason. Audits both.
    pub(crate) fn allow(
        &self,
        caller: &Caller,
        access: &AccessRequest<'_>,
        now: Timestamp,
    ) -> Result<(), Error> {
        let refused = self.refuse(caller, access, now).err();
        self.note(caller, access, refused.as_ref().map(Error::to_string), now)?;
        refused.map_or(Ok(()), Err)
    }

    /// Like `allow`; a grant for any name of that type is enough.
    pub(crate) fn allow_some(
        &self,
        caller: &Caller,
        access: &AccessRequest<'_>,
        now: Timestamp,
    ) -> Result<(), Error> {
        let refused = match caller.grants().allow_some(access.action, access.kind) {
            true => self.rates.take(caller, access.kind, now).err(),
            false => {
                let needs = format!("{}:{}", access.action.name(), access.kind.name());
                Some(forbidden(caller, access.kind, needs))
            }
        };
        self.note(caller, access, refused.as_ref().map(Error::to_string), now)?;
        refused.map_or(Ok(()), Err)
    }

    /// Like `allow`, for an access that the caller did not choose: it needs no permission, but is
    /// rate-limited and audited.
    pub(crate) fn allow_wired(
        &self,
        caller: &Caller,
        access: &AccessRequest<'_>,
        now: Timestamp,
    ) -> Result<(), Error> {
        let refused = self.rates.take(caller, access.kind, now).err();
        self.note(caller, access, refused.as_ref().map(Error::to_string), now)?;
        refused.map_or(Ok(()), Err)
    }

    fn refuse(&self, caller: &Caller, access: &AccessRequest<'_>, now: Timestamp) -> Result<(), Error> {
        let AccessRequest { action, kind, name, .. } = access;
        if !caller.may(*action, *kind, name) {
            let needs = format!("{}:{}:{}", action.name(), kind.name(), self.redactor.text(name));
            return Err(forbidden(caller, *kind, needs));
        }
        self.rates.take(caller, *kind, now)
    }

    /// Queues an audit entry, if the audit level includes it.
    pub(crate) fn note(
        &self,
        caller: &Caller,
        access: &AccessRequest<'_>,
        refused: Option<String>,
        now: Timestamp,
    ) -> Result<(), Error> {
        if !self.audit.wants(access.action, refused.is_some()) {
            return Ok(());
        }
        let mut resource = String::with_capacity(USUAL_URI);
        // Writing to a string does not fail.
        let _ = write!(resource, "{}", access.resource);
        self.audit.add(AuditEntry {
            at: now,
            tenant: match caller.tenant() {
                HOME_TENANT => Cow::Borrowed(HOME_TENANT),
                other => Cow::Owned(other.to_owned()),
            },
            caller: caller.shared_owner(),
            from: caller.shared_address(),
            operation: Cow::Borrowed(access.operation),
            action: access.action,
            kind: access.kind,
            resource: self.line(resource),
            refused: refused.map(|why| self.line(why)),
            credential: caller.shared_credential(),
        })
    }

    /// A text as the audit stores it: short, redacted, and without characters that a store rejects.
    fn line(&self, mut text: String) -> String {
        let is_cut = text.len() > LOOKED_AT;
        text.truncate(text.floor_char_boundary(LOOKED_AT));
        let redacted = match self.redactor.text(&text) {
            // Most texts hold no secret and need no copy.
            Cow::Borrowed(_) => None,
            Cow::Owned(redacted) => Some(redacted),
        };
        let mut kept = redacted.unwrap_or(text);
        if is_cut || kept.len() > LINE {
            kept.truncate(kept.floor_char_boundary(LINE));
            kept.push('…');
        }
        match kept.contains(char::is_control) {
            true => kept.replace(char::is_control, "\u{fffd}"),
            false => kept,
        }
    }

    /// Writes queued audit entries until the engine stops; returns when all of them are written.
    pub(crate) async fn keep_audit(
        &self,
        store: &Arc<dyn Store>,
        closing: tokio::sync::watch::Receiver<bool>,
    ) {
        self.audit.keep(store, closing).await;
    }

    /// Writes all audit entries that are queued now.
    pub(crate) async fn flush_audit(&self, store: &Arc<dyn Store>) {
        self.audit.flush(store).await;
    }

    /// Exchanges rate-limit usage with other nodes.
    pub(crate) async fn share_rates(&self, store: &Arc<dyn Store>, clock: &Arc<dyn Clock>) {
        self.rates.share(store, clock.now()).await;
    }

    pub(crate) fn has_rates(&self) -> bool {
        !self.rates.is_empty()
    }
}

/// The refusal of a caller without that scope. The operator's name without its grants is a request that did
/// not present the data folder's secret ([`Caller::unverified`]): it needs that secret, not a scope.
fn forbidden(caller: &Caller, kind: AccessKind, needs: String) -> Error {
    count_refusal("scope");
    match kind == AccessKind::Admin && caller.is_local() {
        true => Error::NotOperator(needs),
        false => Error::Forbidden(needs),
    }
}
