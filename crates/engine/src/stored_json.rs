//! Reads JSON that this server has written to its store.

use serde::de::DeserializeOwned;

/// Parses what was stored, however deep it is.
///
/// A limit belongs where data comes in. What was accepted there is a few levels deeper in the event that holds it: with the
/// parser's own limit of 128 levels such a task could be written and never read again.
pub(crate) fn read<T: DeserializeOwned>(json: &[u8]) -> serde_json::Result<T> {
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    deserializer.disable_recursion_limit();
    let value = T::deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}
