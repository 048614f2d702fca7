//! The peer's artifacts, as the steps of a task write them.
//!
//! A step that is repeated starts its artifacts over, so each step writes whole ones. Incomplete artifacts
//! are handed from step to step, so that a question in the middle does not lose their beginning.

use std::collections::HashSet;

use nuncio_engine::{Chunk, Content, event::ArtifactChunk};

/// Incomplete artifacts, and which of them this step has begun.
#[derive(Default)]
pub(super) struct RemoteArtifacts {
    open: Vec<ArtifactChunk>,
    begun: HashSet<String>,
}

impl RemoteArtifacts {
    /// Starts with the incomplete artifacts of earlier steps.
    pub(super) fn after(open: Vec<ArtifactChunk>) -> Self {
        Self { open, begun: HashSet::new() }
    }

    /// The incomplete artifacts.
    pub(super) fn open(self) -> Vec<ArtifactChunk> {
        self.open
    }

    /// The chunk that this step writes for a received one.
    pub(super) fn take(&mut self, mut chunk: ArtifactChunk) -> Chunk {
        let at = self.open.iter().position(|open| open.id == chunk.id);
        let append = chunk.append && at.is_some();
        chunk.append = append;
        let whole = match at {
            Some(at) if append => {
                let open = &mut self.open[at];
                join(open, &chunk);
                open.last = chunk.last;
                open
            }
            Some(at) => {
                self.open[at] = chunk.clone();
                &mut self.open[at]
            }
            None => {
                self.open.push(chunk.clone());
                let end = self.open.len() - 1;
                &mut self.open[end]
            }
        };
        // The first chunk that this step writes contains the artifact so far.
        let first = self.begun.insert(chunk.id.clone());
        let written = if append && first { ArtifactChunk { append: false, ..whole.clone() } } else { chunk };
        if written.last {
            self.open.retain(|open| open.id != written.id);
        }
        Chunk::from_elsewhere(written)
    }
}

/// Appends a chunk. Adjacent texts are merged, as in the task itself.
fn join(open: &mut ArtifactChunk, chunk: &ArtifactChunk) {
    for part in &chunk.parts {
        let last = open
            .parts
            .last_mut()
            .filter(|last| last.metadata.is_none() && last.media_type == part.media_type);
        match (last.map(|last| &mut last.content), &part.content) {
            (Some(Content::Text(text)), Content::Text(more)) if part.metadata.is_none() => {
                text.push_str(more);
            }
            _ => open.parts.push(part.clone()),
        }
    }
    if open.name.is_none() {
        open.name.clone_from(&chunk.name);
    }
    if open.description.is_none() {
        open.description.clone_from(&chunk.description);
    }
}
