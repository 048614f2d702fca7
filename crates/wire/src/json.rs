//! A JSON writer that appends straight to a buffer.
//!
//! The writers of this crate go from borrowed engine types to bytes in one pass. Keys are constants, so they are
//! copied without escaping; serde writes the values. Writing cannot fail: the sink is a `Vec` and every map has
//! string keys.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde::Serialize;

/// Writes an object whose members the closure adds.
pub fn object(out: &mut Vec<u8>, members: impl FnOnce(&mut JsonObject<'_>)) {
    out.push(b'{');
    let mut object = JsonObject { out, empty: true };
    members(&mut object);
    object.out.push(b'}');
}

/// Writes an array with one element per item.
pub fn array<T>(
    out: &mut Vec<u8>,
    items: impl IntoIterator<Item = T>,
    mut element: impl FnMut(&mut Vec<u8>, T),
) {
    out.push(b'[');
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        element(out, item);
    }
    out.push(b']');
}

/// Writes any value.
pub fn value(out: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) {
    #[allow(clippy::expect_used, reason = "string keys and a Vec as the sink: neither can fail")]
    serde_json::to_writer(out, value).expect("the value serializes");
}

/// Writes bytes as a base64 string, without an intermediate copy.
pub fn base64(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'"');
    let start = out.len();
    out.resize(start + bytes.len().div_ceil(3) * 4, 0);
    #[allow(clippy::expect_used, reason = "the room was made in the line above")]
    let written = BASE64_STANDARD.encode_slice(bytes, &mut out[start..]).expect("there is room");
    out.truncate(start + written);
    out.push(b'"');
}

/// An object that is being written.
pub struct JsonObject<'o> {
    out: &'o mut Vec<u8>,
    empty: bool,
}

impl JsonObject<'_> {
    /// Begins a member; the caller writes its value to the returned buffer. The key must need no escapes.
    pub fn key(&mut self, key: &'static str) -> &mut Vec<u8> {
        if !self.empty {
            self.out.push(b',');
        }
        self.empty = false;
        self.out.push(b'"');
        self.out.extend_from_slice(key.as_bytes());
        self.out.extend_from_slice(b"\":");
        self.out
    }

    /// Writes a member.
    pub fn value(&mut self, key: &'static str, member: &(impl Serialize + ?Sized)) {
        value(self.key(key), member);
    }

    /// Writes a member if there is a value.
    pub fn optional(&mut self, key: &'static str, member: Option<&(impl Serialize + ?Sized)>) {
        if let Some(member) = member {
            self.value(key, member);
        }
    }

    /// Writes an array member if it is not empty.
    pub fn list<T: Serialize>(&mut self, key: &'static str, items: &[T]) {
        if !items.is_empty() {
            self.value(key, items);
        }
    }

    /// Writes an object member, whose members the closure adds.
    pub fn object(&mut self, key: &'static str, members: impl FnOnce(&mut JsonObject<'_>)) {
        object(self.key(key), members);
    }

    /// Writes a member whose key is not constant; it is escaped.
    pub fn object_at(&mut self, key: &str, member: impl FnOnce(&mut Vec<u8>)) {
        if !self.empty {
            self.out.push(b',');
        }
        self.empty = false;
        value(self.out, key);
        self.out.push(b':');
        member(self.out);
    }

    /// Writes an array member with one element per item.
    pub fn array<T>(
        &mut self,
        key: &'static str,
        items: impl IntoIterator<Item = T>,
        element: impl FnMut(&mut Vec<u8>, T),
    ) {
        array(self.key(key), items, element);
    }
}
