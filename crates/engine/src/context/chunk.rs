//! A chunk of an artifact, as an agent writes it.

use serde_json::Value;

use crate::{
    content::{Metadata, Part, json_size},
    event::{ArtifactChunk, Event},
};

/// A chunk of an artifact, as an agent writes it.
#[derive(Debug, Clone)]
pub struct Chunk {
    pub(super) id: String,
    name: Option<String>,
    description: Option<String>,
    parts: Vec<Part>,
    last: bool,
    metadata: Option<Metadata>,
    extensions: Vec<String>,
    /// Whether it replaces the existing content.
    pub(super) anew: bool,
}

impl Chunk {
    /// Text for the artifact of that id.
    pub fn text(id: impl Into<String>, text: impl Into<String>) -> Self {
        Self::parts(id, vec![Part::text(text)])
    }

    /// A structured value for the artifact of that id.
    pub fn data(id: impl Into<String>, value: Value) -> Self {
        Self::parts(id, vec![Part::data(value)])
    }

    /// Parts for the artifact of that id.
    pub fn parts(id: impl Into<String>, parts: Vec<Part>) -> Self {
        Self {
            id: id.into(),
            name: None,
            description: None,
            parts,
            last: false,
            metadata: None,
            extensions: vec![],
            anew: false,
        }
    }

    /// A chunk of a remote agent's artifact, as received. Unless it appends, it replaces the existing
    /// content, including what an earlier step of the same scope has written.
    pub fn from_elsewhere(chunk: ArtifactChunk) -> Self {
        let ArtifactChunk { id, parts, append, last, name, description, metadata, extensions, index: _ } =
            chunk;
        Self { id, name, description, parts, last, metadata, extensions, anew: !append }
    }

    /// Sets the artifact's display name.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets the artifact's description.
    #[must_use]
    pub fn described(mut self, description: impl Into<String>) -> Self {
        self.description = Some(description.into());
        self
    }

    /// Marks the artifact as complete with this chunk.
    #[must_use]
    pub fn complete(mut self) -> Self {
        self.last = true;
        self
    }

    /// Begins the artifact anew: this chunk replaces all existing content, including that of other steps.
    #[must_use]
    pub fn anew(mut self) -> Self {
        self.anew = true;
        self
    }

    /// Sets the artifact's attributes, replacing those that it has.
    #[must_use]
    pub fn with_metadata(mut self, metadata: Metadata) -> Self {
        self.metadata = Some(metadata);
        self
    }

    /// Sets the URIs of the protocol extensions that the artifact uses.
    #[must_use]
    pub fn with_extensions(mut self, extensions: Vec<String>) -> Self {
        self.extensions = extensions;
        self
    }

    /// Names the active extensions of the request, unless the agent named its own.
    pub(super) fn with_active_extensions(mut self, active: &[String]) -> Self {
        if self.extensions.is_empty() {
            self.extensions = active.to_vec();
        }
        self
    }

    /// The approximate size in bytes, attributes included: they count towards the limit on a task's size.
    pub(super) fn size(&self) -> usize {
        let attributes = self.parts.iter().map(|part| &part.metadata).chain([&self.metadata]);
        let attributes: usize =
            attributes.flatten().flatten().map(|(key, value)| key.len() + 4 + json_size(value)).sum();
        self.parts.iter().map(Part::size).sum::<usize>() + attributes + 48
    }

    pub(super) fn event(self, index: u32, append: bool) -> Event {
        Event::Artifact(ArtifactChunk {
            id: self.id,
            index,
            parts: self.parts,
            append,
            last: self.last,
            name: self.name,
            description: self.description,
            metadata: self.metadata,
            extensions: self.extensions,
        })
    }
}
