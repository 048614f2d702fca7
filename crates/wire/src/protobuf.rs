//! Protobuf messages as their JSON form (ProtoJSON), in both directions, by their descriptors.
//!
//! The dialects read and write JSON. gRPC carries the same messages in protobuf, so a call is translated here and has
//! one reader and one writer for all bindings. The descriptors are compiled from `proto/` (a test checks it); the
//! reflection service sends them to clients as they are.

mod decode;
mod descriptor;
mod encode;
mod record;

pub use descriptor::{DescriptorPool, ProtobufField, ProtobufMessage, ProtobufMethod, ProtobufService};
pub(crate) use record::{write_bytes, write_nested, write_number};
use serde_json::value::RawValue;

/// Bytes that are no valid message, or JSON that does not fit one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ProtobufError(pub(crate) String);

impl ProtobufError {
    fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }
}

/// The bounds of a message that is read from a peer.
#[derive(Debug, Clone, Copy)]
pub struct ProtobufLimits {
    /// The maximum nesting of the JSON.
    pub max_depth: usize,
    /// The maximum size of the JSON in bytes: text may grow sixfold when it is escaped.
    pub max_json_bytes: usize,
}

/// The message type of that full name, such as `lf.a2a.v1.Task`.
pub fn message(name: &str) -> Option<&'static ProtobufMessage> {
    DescriptorPool::get().message(name)
}

impl ProtobufMessage {
    /// Appends the message that the JSON describes. Members that the message does not have are left out.
    pub fn write_from_json(&'static self, out: &mut Vec<u8>, json: &[u8]) -> Result<(), ProtobufError> {
        encode::write(out, self, json)
    }

    /// Appends the JSON of a message.
    pub fn write_json(
        &'static self,
        out: &mut Vec<u8>,
        bytes: &[u8],
        limits: ProtobufLimits,
    ) -> Result<(), ProtobufError> {
        decode::write(out, self, bytes, limits)
    }

    /// The JSON of a message.
    pub fn read_json(
        &'static self,
        bytes: &[u8],
        limits: ProtobufLimits,
    ) -> Result<Box<RawValue>, ProtobufError> {
        let text = self.read_text(bytes, limits)?;
        RawValue::from_string(text).map_err(|error| ProtobufError::new(error.to_string()))
    }

    /// The same as text.
    pub fn read_text(&'static self, bytes: &[u8], limits: ProtobufLimits) -> Result<String, ProtobufError> {
        let mut json = Vec::with_capacity(bytes.len() * 2);
        self.write_json(&mut json, bytes, limits)?;
        String::from_utf8(json).map_err(|error| ProtobufError::new(error.to_string()))
    }
}
