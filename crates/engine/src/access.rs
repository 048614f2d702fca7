//! Who is calling, and what they may see.
//!
//! Every call of the engine takes a `Caller`, so that no protocol can forget to ask. What a caller may not
//! see is answered exactly as what does not exist.

use std::sync::Arc;

/// The verified principal behind a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    owner: Arc<str>,
}

impl Caller {
    /// The one caller there is before any authentication is configured.
    pub fn local() -> Self {
        Self::named("local")
    }

    /// The caller of that name. The name has been verified by whoever calls this.
    pub fn named(owner: impl Into<Arc<str>>) -> Self {
        Self { owner: owner.into() }
    }

    /// Whose tasks the caller makes and sees.
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// Whether the caller may know that a task of this owner exists.
    pub fn sees(&self, owner: &str) -> bool {
        *self.owner == *owner
    }
}
