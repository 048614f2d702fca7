//! Resources: a text, some bytes, one that changes by itself, and a template.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use nuncio::{
    engine::surface::{
        HandlerError, HandlerReply, HandlerRequest, Resource, ResourceContent, ResourceProfile, Template,
    },
    prelude::*,
};

use crate::media;

type Found = Result<HandlerReply<Vec<ResourceContent>>, HandlerError>;

const TEXT: &str = "test://static-text";
const BINARY: &str = "test://static-binary";
const WATCHED: &str = "test://watched-resource";
const FAMILY: &str = "test://template/{id}/data";
const CHANGES_EVERY: Duration = Duration::from_secs(3);

/// A resource with constant content.
struct Static {
    profile: ResourceProfile,
    content: ResourceContent,
}

#[async_trait]
impl Resource for Static {
    fn profile(&self) -> ResourceProfile {
        self.profile.clone()
    }

    async fn read(&self, _: HandlerRequest) -> Found {
        Ok(HandlerReply::Done(vec![self.content.clone()]))
    }
}

/// A resource that counts its changes.
struct Watched(Arc<AtomicU64>);

#[async_trait]
impl Resource for Watched {
    fn profile(&self) -> ResourceProfile {
        let description = "Changes every three seconds, and says so to whoever follows it.";
        ResourceProfile::new(WATCHED, "watched-resource").described(description).media_type("text/plain")
    }

    async fn read(&self, _: HandlerRequest) -> Found {
        let text = format!("It has changed {} times.", self.0.load(Ordering::Relaxed));
        Ok(HandlerReply::Done(vec![ResourceContent::text(WATCHED, "text/plain", text)]))
    }
}

/// A template with one resource for every id.
struct Family;

#[async_trait]
impl Template for Family {
    fn profile(&self) -> ResourceProfile {
        ResourceProfile::new(FAMILY, "template").described("Data for an id.").media_type("application/json")
    }

    async fn read(&self, uri: &str, request: HandlerRequest) -> Found {
        let id = request.text("id").unwrap_or_default();
        let data = json!({ "id": id, "templateTest": true, "data": format!("Data for ID: {id}") });
        Ok(HandlerReply::Done(vec![ResourceContent::json(uri, &data)]))
    }
}

pub(crate) fn offer(surface: &Arc<Surface>) {
    let text = "This is the content of the static text resource.";
    surface.add_resource(Static {
        profile: ResourceProfile::new(TEXT, "static-text").described("A text.").media_type("text/plain"),
        content: ResourceContent::text(TEXT, "text/plain", text),
    });
    surface.add_resource(Static {
        profile: ResourceProfile::new(BINARY, "static-binary")
            .described("A picture.")
            .media_type("image/png"),
        content: ResourceContent::bytes(BINARY, "image/png", media::png()),
    });
    surface.add_template(Family);

    let changes = Arc::new(AtomicU64::new(0));
    surface.add_resource(Watched(Arc::clone(&changes)));
    let surface = Arc::clone(surface);
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(CHANGES_EVERY).await;
            changes.fetch_add(1, Ordering::Relaxed);
            surface.updated(WATCHED);
        }
    });
}
