//! The external name of a task's conversation: a keyed digest of owner and context.
//!
//! Callers choose the ids of their contexts, so two callers may choose the same one. A program or endpoint that
//! stores state by that id alone would show one caller's conversation to the other.

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::TaskContext;
use crate::access::tenant_of;

/// The purpose for which the key is derived.
const PURPOSE: &str = "context";
/// Bytes of the digest used in the name.
const BYTES: usize = 18;

impl TaskContext {
    /// A name of the conversation that differs for each owner, reveals neither owner nor context, and is the same
    /// on all nodes and after every restart. A tenant that reuses the name of an erased tenant gets different
    /// digests.
    pub fn context_digest(&self) -> String {
        let owner = &self.run.origin.owner;
        let key = self.engine().derive_tenant_key(tenant_of(owner), PURPOSE);
        digest(&key, owner, &self.run.origin.context)
    }
}

fn digest(key: &[u8; 32], owner: &str, context: &str) -> String {
    #[allow(clippy::expect_used, reason = "HMAC takes keys of every length")]
    let mac = Hmac::<Sha256>::new_from_slice(key).expect("any key will do");
    // The length prefix prevents an owner's name from running over into a context.
    let mac = mac.chain_update((owner.len() as u64).to_be_bytes()).chain_update(owner).chain_update(context);
    format!("ctx_{}", BASE64_URL_SAFE_NO_PAD.encode(&mac.finalize().into_bytes()[..BYTES]))
}

#[cfg(test)]
mod tests {
    use super::digest;

    #[test]
    fn owners_who_choose_the_same_word_do_not_meet() {
        let key = [7; 32];
        let mine = digest(&key, "acme/ann", "main");
        assert_eq!(mine, digest(&key, "acme/ann", "main"));
        for (owner, context) in [("beta/bob", "main"), ("acme/ann", "other"), ("acme/annm", "ain")] {
            assert_ne!(mine, digest(&key, owner, context), "{owner} {context}");
        }
        assert_ne!(mine, digest(&[8; 32], "acme/ann", "main"));
        assert!(mine.len() == 28 && !mine.contains("main") && !mine.contains("ann"), "{mine}");
    }
}
