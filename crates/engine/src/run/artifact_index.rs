//! The artifacts of a task by position, each with the scope that writes it in this run.

use crate::agent::AgentError;

/// The scope that a step belongs to; a scope that is not a step is its own.
fn line_of(scope: &str) -> &str {
    scope.split_once('#').map_or(scope, |(line, _)| line)
}

/// The task's artifacts by position, while the lock is held.
pub(crate) struct ArtifactIndex<'a>(pub(super) &'a mut Vec<(String, Option<String>)>);

impl ArtifactIndex<'_> {
    /// The position of an artifact that this scope writes. `anew`: it replaces the existing content, which
    /// may then have been written by an earlier step of the same scope that has ended and is not repeated.
    pub(crate) fn index_for_writer(&mut self, id: &str, scope: &str, anew: bool) -> Result<u32, AgentError> {
        let index = match self.0.iter().position(|(known, _)| known == id) {
            Some(index) => index,
            None => {
                self.0.push((id.to_owned(), None));
                self.0.len() - 1
            }
        };
        let writer = &mut self.0[index].1;
        match writer {
            Some(writer) if writer == scope => {}
            Some(writer) if anew && line_of(writer) == line_of(scope) => scope.clone_into(writer),
            // A repeated step replaces what it wrote, so no other scope may have written there.
            Some(writer) => {
                return Err(AgentError::Misuse(format!(
                    "artifact {id:?} is written by {writer:?} and by {scope:?}: a step or a branch writes its own artifacts"
                )));
            }
            None => *writer = Some(scope.to_owned()),
        }
        Ok(index as u32)
    }

    /// The position of an artifact to which all scopes append, and whether it existed.
    pub(crate) fn shared_index(&mut self, id: &str) -> Result<(u32, bool), AgentError> {
        let known = self.0.iter().any(|(known, _)| known == id);
        Ok((self.index_for_writer(id, SHARED, false)?, known))
    }
}

/// The writer of an artifact to which all scopes append. No scope has this name.
pub(super) const SHARED: &str = "#";
