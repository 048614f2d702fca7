//! The audit log as an MCP resource, for administrators.

use async_trait::async_trait;
use nuncio_engine::{
    AccessKind, Engine,
    surface::{HandlerError, HandlerReply, HandlerRequest, ResourceContent, ResourceProfile, Template},
};
use nuncio_flows::resource::{CachePolicy, ResourceDetails, content, profile};
use nuncio_server::audit;

const SCHEMA: &str = "audit-log";

/// Registers the resource on the surface of an engine.
pub(super) fn install(engine: &Engine) {
    let surface = engine.catalog().surface();
    surface.add_schema(SCHEMA, audit::schema());
    surface.add_template(AuditLog(engine.clone()));
}

struct AuditLog(Engine);

#[async_trait]
impl Template for AuditLog {
    fn profile(&self) -> ResourceProfile {
        let about = "Who did what, to which resource, when, from where, and whether it was allowed; newest first. \
                     For administrators (read:admin:audit).";
        profile(audit::URI, "audit", about, CachePolicy::Realtime)
    }

    async fn read(
        &self,
        uri: &str,
        request: HandlerRequest,
    ) -> Result<HandlerReply<Vec<ResourceContent>>, HandlerError> {
        let Self(engine) = self;
        let query = audit::read_query(&request.arguments).map_err(HandlerError::Invalid)?;
        let page = audit::read(engine, &request.caller, query).await?;
        let about = ResourceDetails {
            kind: AccessKind::Admin,
            name: "audit",
            schema: SCHEMA,
            modified: engine.clock().now(),
            policy: CachePolicy::Realtime,
        };
        let surface = engine.catalog().surface();
        Ok(HandlerReply::Done(vec![content(surface, &request.caller, uri, &about, &page)]))
    }
}
