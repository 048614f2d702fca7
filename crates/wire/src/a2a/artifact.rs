//! Artifacts and their chunks. 0.1 identifies them by position, later dialects by id.

use nuncio_engine::{
    content::{Artifact, Metadata, Part},
    event::ArtifactChunk,
};
use serde::Deserialize;

use super::{
    Dialect,
    input::{JsonPath, MalformedInput, WholeNumber},
    part::{self, PartIn},
};
use crate::json;

/// The members common to a whole artifact and a chunk.
struct ArtifactOut<'a> {
    id: &'a str,
    index: u32,
    name: Option<&'a String>,
    description: Option<&'a String>,
    parts: &'a [Part],
    metadata: Option<&'a Metadata>,
    extensions: &'a [String],
    append: bool,
    last: bool,
}

impl ArtifactOut<'_> {
    fn write(&self, out: &mut Vec<u8>, dialect: Dialect) {
        json::object(out, |object| {
            if dialect > Dialect::V0_1 {
                object.value("artifactId", self.id);
            }
            object.optional("name", self.name);
            object.optional("description", self.description);
            object.array("parts", self.parts, |out, part| part::write(out, dialect, part));
            if dialect == Dialect::V0_1 {
                object.value("index", &self.index);
                object.optional("append", self.append.then_some(&true));
                object.optional("lastChunk", self.last.then_some(&true));
            }
            object.optional("metadata", self.metadata);
            if dialect > Dialect::V0_1 {
                object.list("extensions", self.extensions);
            }
        });
    }
}

/// Writes an artifact of a task, as far as it is known.
pub(super) fn write(out: &mut Vec<u8>, dialect: Dialect, index: usize, artifact: &Artifact) {
    let Artifact { id, name, description, parts, metadata, extensions, complete } = artifact;
    let artifact = ArtifactOut {
        id,
        index: index as u32,
        name: name.as_ref(),
        description: description.as_ref(),
        parts,
        metadata: metadata.as_ref(),
        extensions,
        append: false,
        last: *complete,
    };
    artifact.write(out, dialect);
}

/// Writes a chunk. The `append` flag is a member of the update around it, except in 0.1.
pub(super) fn write_chunk(out: &mut Vec<u8>, dialect: Dialect, chunk: &ArtifactChunk) {
    let ArtifactChunk { id, index, parts, append, last, name, description, metadata, extensions } = chunk;
    let artifact = ArtifactOut {
        id,
        index: *index,
        name: name.as_ref(),
        description: description.as_ref(),
        parts,
        metadata: metadata.as_ref(),
        extensions,
        append: *append,
        last: *last,
    };
    artifact.write(out, dialect);
}

/// An artifact of any generation.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object")]
pub(super) struct ArtifactIn<'a> {
    #[serde(alias = "artifact_id")]
    artifact_id: Option<String>,
    name: Option<String>,
    description: Option<String>,
    #[serde(borrow)]
    parts: Option<Vec<PartIn<'a>>>,
    metadata: Option<Metadata>,
    extensions: Option<Vec<String>>,
    index: Option<WholeNumber>,
    append: Option<bool>,
    last_chunk: Option<bool>,
}

impl ArtifactIn<'_> {
    /// Reads a chunk; a whole artifact is read as its only chunk.
    pub(super) fn read(self, dialect: Dialect, at: JsonPath<'_>) -> Result<ArtifactChunk, MalformedInput> {
        let path = at.member("parts");
        let parts = self.parts.unwrap_or_default().into_iter().enumerate();
        let parts =
            parts.map(|(index, part)| part.read(dialect, path.element(index))).collect::<Result<_, _>>()?;
        let index = if dialect == Dialect::V0_1 { self.index.map_or(0, |index| index.0) } else { 0 };
        let index =
            u32::try_from(index).map_err(|_| at.member("index").malformed("expected a position from 0"))?;
        let plain = dialect == Dialect::V0_1;
        Ok(ArtifactChunk {
            id: if plain { index.to_string() } else { self.artifact_id.unwrap_or_default() },
            index,
            parts,
            append: plain && self.append.unwrap_or_default(),
            last: plain && self.last_chunk.unwrap_or_default(),
            name: self.name,
            description: self.description,
            metadata: self.metadata,
            extensions: if plain { vec![] } else { self.extensions.unwrap_or_default() },
        })
    }
}

/// Converts a chunk to a whole artifact.
pub(super) fn whole_artifact(chunk: ArtifactChunk) -> Artifact {
    Artifact {
        id: chunk.id,
        name: chunk.name,
        description: chunk.description,
        parts: chunk.parts,
        metadata: chunk.metadata,
        extensions: chunk.extensions,
        complete: chunk.last,
    }
}
