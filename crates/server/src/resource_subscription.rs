//! Subscriptions to resources, for MCP and for the console's live stream: which resource a URI names, and whether the caller
//! may follow it. Nothing is read: a subscriber reads the resource itself, when it was notified.

use nuncio_engine::{
    AccessRequest, Action, Caller, Engine, Error,
    surface::{access_of, matches},
};

use crate::mcp::task_of;

/// The longest URI that can be read or subscribed to, in bytes.
pub(crate) const MAX_URI: usize = 4096;

/// Why a resource cannot be subscribed to.
pub(crate) enum SubscriptionRefusal {
    /// The URI is longer than [`MAX_URI`].
    TooLong,
    /// There is no such resource, or it is a task that the caller may not see.
    NotFound,
    /// The engine refused it, or failed.
    Engine(Error),
}

/// The last event that a subscriber would know by reading the resource now; 0 for a resource without a log. The resource
/// must exist; one of a template may be created later.
pub(crate) async fn check_subscription(
    engine: &Engine,
    caller: &Caller,
    uri: &str,
) -> Result<u64, SubscriptionRefusal> {
    if uri.len() > MAX_URI {
        return Err(SubscriptionRefusal::TooLong);
    }
    let surface = engine.catalog().surface();
    let meant = surface.canonical(uri);
    if let Some(task) = task_of(&meant) {
        return match engine.task_summary(caller, task).await {
            Ok(summary) => Ok(summary.seq),
            Err(Error::NoSuchTask(_)) => Err(SubscriptionRefusal::NotFound),
            Err(error) => Err(SubscriptionRefusal::Engine(error)),
        };
    }
    // A caller that may not read it gets no notifications about it either.
    if let Some((kind, name)) = access_of(&meant) {
        let (action, operation) = (Action::Read, "resource.follow");
        let access = AccessRequest { action, kind, name: &name, operation, resource: &meant };
        engine.allow(caller, &access).map_err(SubscriptionRefusal::Engine)?;
    }
    if exists(engine, &meant) { Ok(0) } else { Err(SubscriptionRefusal::NotFound) }
}

/// Whether the server has a resource of that canonical URI, or a template that it matches.
pub(crate) fn exists(engine: &Engine, uri: &str) -> bool {
    let surface = engine.catalog().surface();
    surface.resource(uri).is_some()
        || surface.templates().iter().any(|template| matches(&template.profile.uri, uri).is_some())
}

/// Whether the caller's scopes allow it to be notified of the resource of that canonical URI.
pub(crate) fn may_be_notified(caller: &Caller, uri: &str) -> bool {
    access_of(uri).is_none_or(|(kind, name)| caller.may(Action::Read, kind, &name))
}
