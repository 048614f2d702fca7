//! The one place where a caller is let through: what it may do, how often, and the line of the audit about it.
//!
//! Every command of the engine, and everything that is built on it, asks here first. What is refused is refused
//! before anything is looked up, so that a refusal says nothing about what there is.

mod audit;
mod rate;

use std::{fmt::Display, sync::Arc, time::Duration};

pub(crate) use self::rate::EXCHANGE;
use self::{audit::Audit, rate::Rates};
pub use self::{
    audit::AuditLevel,
    rate::{Rate, RateError},
};
use crate::{
    access::{AccessKind, Action, Caller},
    clock::{Clock, Timestamp},
    error::Error,
    knowledge::AuditEntry,
    redact::Redactor,
    store::Store,
};

/// Bytes of an address or a reason that a line of the audit keeps, about.
const LINE: usize = 512;
/// Bytes of it that are looked at: what is cut after that has no half of a secret before it.
const LOOKED_AT: usize = 2 * LINE;

/// What an operator may set about access.
#[derive(Debug, Clone, Default)]
pub struct AccessOptions {
    /// How often one caller may do something to things of a type. What is not named has no limit.
    pub rates: Vec<(AccessKind, Rate)>,
    /// What goes into the audit.
    pub audit: AuditLevel,
    /// How long lines of the audit are kept; `None`: for ever.
    pub audit_retention: Option<Duration>,
    /// Filters secrets out of what is logged, audited and previewed.
    pub redactor: Arc<Redactor>,
}

/// Something that a caller wants to do.
pub struct AccessRequest<'a> {
    /// What kind of thing it does.
    pub action: Action,
    /// To what type of thing.
    pub kind: AccessKind,
    /// What grants go by: an agent, a namespace, a context.
    pub name: &'a str,
    /// The operation, such as `memory.store`.
    pub operation: &'static str,
    /// The address of the thing, for the audit.
    pub resource: &'a dyn Display,
}

/// Lets callers through, or not.
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

    /// Lets a caller through, or says why not. Either way it is noted.
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

    /// As `allow`, where something of that type, whatever its name, is enough.
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

    /// As `allow`, for what the caller did not choose: it needs no permission, and it is counted and noted the same.
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

    /// Writes a line of the audit, where its level wants one.
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
        self.audit.add(AuditEntry {
            at: now,
            tenant: caller.tenant().to_owned(),
            caller: caller.owner().to_owned(),
            from: caller.address().map(str::to_owned),
            operation: access.operation.to_owned(),
            action: access.action,
            kind: access.kind,
            resource: self.line(&access.resource.to_string()),
            refused: refused.map(|why| self.line(&why)),
            credential: caller.credential().map(str::to_owned),
        })
    }

    /// A text as the audit keeps it: short, without secrets and without what no store takes.
    fn line(&self, text: &str) -> String {
        let beginning = &text[..text.floor_char_boundary(LOOKED_AT)];
        let mut kept = self.redactor.text(beginning).into_owned();
        if kept.len() > LINE || beginning.len() < text.len() {
            kept.truncate(kept.floor_char_boundary(LINE));
            kept.push('…');
        }
        kept.replace(char::is_control, "\u{fffd}")
    }

    /// Writes what is noted, until the engine stops; returns when all of it is written.
    pub(crate) async fn keep_audit(
        &self,
        store: &Arc<dyn Store>,
        closing: tokio::sync::watch::Receiver<bool>,
    ) {
        self.audit.keep(store, closing).await;
    }

    /// Writes what is noted so far.
    pub(crate) async fn flush_audit(&self, store: &Arc<dyn Store>) {
        self.audit.flush(store).await;
    }

    /// Tells other nodes what was used here, and hears what was used there.
    pub(crate) async fn share_rates(&self, store: &Arc<dyn Store>, clock: &Arc<dyn Clock>) {
        self.rates.share(store, clock.now()).await;
    }

    pub(crate) fn has_rates(&self) -> bool {
        !self.rates.is_empty()
    }
}

/// The refusal of a caller without that scope. The operator's own name without its grants is a request that did not
/// show the folder's secret ([`Caller::unverified`]): it needs that, and no scope.
fn forbidden(caller: &Caller, kind: AccessKind, needs: String) -> Error {
    match kind == AccessKind::Admin && caller.is_local() {
        true => Error::NotOperator(needs),
        false => Error::Forbidden(needs),
    }
}
