//! From protobuf to JSON, without a tree between: the input is a peer's, and its size bounds what is held.
//!
//! Fields are written in the order of their type. A field may occur several times: elements of a list may lie apart,
//! the last scalar counts, and the parts of a message are merged, which is what joining their bytes does.

use std::{borrow::Cow, collections::HashMap};

use super::{
    DescriptorPool, ProtobufError, ProtobufField, ProtobufLimits, ProtobufMessage,
    descriptor::{FieldKind, JsonForm},
    record::{RecordValue, WireRecords, read_varint},
};
use crate::json;

/// Integers beyond it are not exact in the numbers of JSON and of `google.protobuf.Value`.
const MAX_SAFE_INTEGER: f64 = 9_007_199_254_740_992.0;

pub(super) fn write(
    out: &mut Vec<u8>,
    message: &ProtobufMessage,
    bytes: &[u8],
    limits: ProtobufLimits,
) -> Result<(), ProtobufError> {
    let mut writer = JsonWriter { out, depth: limits.max_depth, max_bytes: limits.max_json_bytes };
    writer.message(message, bytes)
}

struct JsonWriter<'o> {
    out: &'o mut Vec<u8>,
    /// The levels that may still be opened.
    depth: usize,
    max_bytes: usize,
}

impl JsonWriter<'_> {
    fn message(&mut self, message: &ProtobufMessage, bytes: &[u8]) -> Result<(), ProtobufError> {
        match message.form {
            JsonForm::Timestamp => return self.timestamp(bytes),
            // It is no level of its own in JSON.
            JsonForm::Value => return self.value(message, bytes),
            JsonForm::Object | JsonForm::MapEntry | JsonForm::Struct | JsonForm::ListValue => {}
        }
        let Some(depth) = self.depth.checked_sub(1) else {
            return Err(ProtobufError::new("the message is nested too deeply"));
        };
        self.depth = depth;
        match (message.form, message.fields.first()) {
            (JsonForm::Struct, Some(fields)) => self.map(fields, bytes)?,
            (JsonForm::ListValue, Some(values)) => self.list(values, bytes)?,
            _ => self.object(message, bytes)?,
        }
        self.depth += 1;
        Ok(())
    }

    fn object(&mut self, message: &ProtobufMessage, bytes: &[u8]) -> Result<(), ProtobufError> {
        let mut present = present_fields(message, bytes)?;
        self.out.push(b'{');
        let mut separator: &[u8] = b"\"";
        while present != 0 {
            let field = &message.fields[present.trailing_zeros() as usize];
            present &= present - 1;
            self.out.extend_from_slice(separator);
            separator = b",\"";
            // Names of fields need no escapes.
            self.out.extend_from_slice(field.json_name.as_bytes());
            self.out.extend_from_slice(b"\":");
            match (field.repeated, field.kind) {
                (true, FieldKind::Message(index)) if is_map_entry(index) => self.map(field, bytes)?,
                (true, _) => self.list(field, bytes)?,
                (false, _) => self.single(field, bytes)?,
            }
            self.check_size()?;
        }
        self.out.push(b'}');
        Ok(())
    }

    /// The value of a field that is no list: the last one, or all parts of a message together.
    fn single(&mut self, field: &ProtobufField, bytes: &[u8]) -> Result<(), ProtobufError> {
        match field.kind {
            FieldKind::Message(_) => {
                let mut whole: Cow<'_, [u8]> = Cow::Borrowed(&[]);
                for part in occurrences(field, bytes) {
                    let part = bytes_of(field, part?)?;
                    match whole.is_empty() {
                        true => whole = Cow::Borrowed(part),
                        false => whole.to_mut().extend_from_slice(part),
                    }
                }
                self.scalar(field, RecordValue::Bytes(&whole))
            }
            _ => match occurrences(field, bytes).last() {
                Some(value) => self.scalar(field, value?),
                None => Err(ProtobufError(format!("{}: it has no value", field.json_name))),
            },
        }
    }

    fn list(&mut self, field: &ProtobufField, bytes: &[u8]) -> Result<(), ProtobufError> {
        self.out.push(b'[');
        let mut empty = true;
        for value in occurrences(field, bytes) {
            let value = value?;
            match (field.kind, value) {
                (FieldKind::Bool | FieldKind::Int | FieldKind::Enum(_), RecordValue::Bytes(mut packed)) => {
                    while !packed.is_empty() {
                        let number = read_varint(&mut packed)?;
                        self.element(&mut empty, field, RecordValue::Varint(number))?;
                    }
                }
                _ => self.element(&mut empty, field, value)?,
            }
        }
        self.out.push(b']');
        Ok(())
    }

    fn element(
        &mut self,
        empty: &mut bool,
        field: &ProtobufField,
        value: RecordValue<'_>,
    ) -> Result<(), ProtobufError> {
        if !*empty {
            self.out.push(b',');
        }
        *empty = false;
        self.check_size()?;
        self.scalar(field, value)
    }

    /// The entries of a map as an object; the last one of a key counts.
    fn map(&mut self, field: &ProtobufField, bytes: &[u8]) -> Result<(), ProtobufError> {
        let FieldKind::Message(entry) = field.kind else {
            return Err(ProtobufError(format!("{}: expected a map", field.json_name)));
        };
        let [key, value] = &DescriptorPool::get().message_at(entry).fields[..] else {
            return Err(ProtobufError(format!("{}: expected a map", field.json_name)));
        };
        let mut order = vec![];
        let mut entries: HashMap<&[u8], &[u8]> = HashMap::new();
        for occurrence in occurrences(field, bytes) {
            let entry = bytes_of(field, occurrence?)?;
            let name = match occurrences(key, entry).last() {
                Some(name) => bytes_of(key, name?)?,
                None => &[],
            };
            if entries.insert(name, entry).is_none() {
                order.push(name);
            }
        }
        self.out.push(b'{');
        for (index, name) in order.into_iter().enumerate() {
            if index > 0 {
                self.out.push(b',');
            }
            json::value(self.out, text_of(key, name)?);
            self.out.push(b':');
            let entry = entries.get(name).copied().unwrap_or_default();
            let is_message = matches!(value.kind, FieldKind::Message(_));
            match is_message || occurrences(value, entry).next().is_some() {
                true => self.single(value, entry)?,
                // A default value need not be written; only texts occur here.
                false => self.out.extend_from_slice(b"\"\""),
            }
            self.check_size()?;
        }
        self.out.push(b'}');
        Ok(())
    }

    /// A `google.protobuf.Value`: the last of its alternatives.
    fn value(&mut self, message: &ProtobufMessage, bytes: &[u8]) -> Result<(), ProtobufError> {
        let mut last = None;
        for record in WireRecords(bytes) {
            let (number, _) = record?;
            last = message.fields.iter().find(|field| field.number == number).or(last);
        }
        match last {
            // Unset: JSON has no other word for it.
            None => self.out.extend_from_slice(b"null"),
            Some(field) if matches!(field.kind, FieldKind::Enum(_)) => self.out.extend_from_slice(b"null"),
            Some(field) => self.single(field, bytes)?,
        }
        Ok(())
    }

    fn timestamp(&mut self, bytes: &[u8]) -> Result<(), ProtobufError> {
        let (mut seconds, mut nanos) = (0, 0);
        for record in WireRecords(bytes) {
            match record? {
                (1, RecordValue::Varint(value)) => seconds = value as i64,
                (2, RecordValue::Varint(value)) => nanos = value as i32,
                _ => {}
            }
        }
        let at = jiff::Timestamp::new(seconds, nanos)
            .map_err(|_| ProtobufError::new("a timestamp is out of range: the years 1 to 9999 are valid"))?;
        json::value(self.out, &at.to_string());
        Ok(())
    }

    fn scalar(&mut self, field: &ProtobufField, value: RecordValue<'_>) -> Result<(), ProtobufError> {
        match (field.kind, value) {
            (FieldKind::Bool, RecordValue::Varint(value)) => json::value(self.out, &(value != 0)),
            (FieldKind::Int, RecordValue::Varint(value)) => json::value(self.out, &(value as i64)),
            (FieldKind::Double, RecordValue::Fixed64(bits)) => self.number(f64::from_bits(bits))?,
            (FieldKind::Text, RecordValue::Bytes(bytes)) => json::value(self.out, text_of(field, bytes)?),
            (FieldKind::Bytes, RecordValue::Bytes(bytes)) => json::base64(self.out, bytes),
            (FieldKind::Enum(index), RecordValue::Varint(value)) => {
                let known = &DescriptorPool::get().enum_at(index).values;
                match known.iter().find(|(_, number)| *number == value as i32) {
                    Some((name, _)) => json::value(self.out, name),
                    None => json::value(self.out, &(value as i32)),
                }
            }
            (FieldKind::Message(index), RecordValue::Bytes(bytes)) => {
                self.message(DescriptorPool::get().message_at(index), bytes)?;
            }
            _ => return Err(ProtobufError(format!("{}: a value of another type", field.json_name))),
        }
        Ok(())
    }

    /// A number of JSON; whole numbers have no fraction.
    fn number(&mut self, number: f64) -> Result<(), ProtobufError> {
        if !number.is_finite() {
            return Err(ProtobufError::new("a value is no number of JSON (it is infinite, or not a number)"));
        }
        match number.fract() == 0.0 && number.abs() <= MAX_SAFE_INTEGER {
            true => json::value(self.out, &(number as i64)),
            false => json::value(self.out, &number),
        }
        Ok(())
    }

    fn check_size(&self) -> Result<(), ProtobufError> {
        match self.out.len() > self.max_bytes {
            true => Err(ProtobufError::new("the message is too large as JSON")),
            false => Ok(()),
        }
    }
}

/// The fields that occur in a message, of a group only the last: a bit for each, by its place.
fn present_fields(message: &ProtobufMessage, bytes: &[u8]) -> Result<u64, ProtobufError> {
    let mut present = 0_u64;
    for record in WireRecords(bytes) {
        let (number, _) = record?;
        if let Some(index) = message.fields.iter().position(|field| field.number == number) {
            present = present & !message.fields[index].rivals | 1 << index;
        }
    }
    Ok(present)
}

fn is_map_entry(message: usize) -> bool {
    DescriptorPool::get().message_at(message).form == JsonForm::MapEntry
}

fn occurrences<'a>(
    field: &ProtobufField,
    bytes: &'a [u8],
) -> impl Iterator<Item = Result<RecordValue<'a>, ProtobufError>> {
    let number = field.number;
    WireRecords(bytes).filter_map(move |record| match record {
        Ok((found, value)) if found == number => Some(Ok(value)),
        Ok(_) => None,
        Err(error) => Some(Err(error)),
    })
}

fn bytes_of<'a>(field: &ProtobufField, value: RecordValue<'a>) -> Result<&'a [u8], ProtobufError> {
    match value {
        RecordValue::Bytes(bytes) => Ok(bytes),
        _ => Err(ProtobufError(format!("{}: a value of another type", field.json_name))),
    }
}

fn text_of<'a>(field: &ProtobufField, bytes: &'a [u8]) -> Result<&'a str, ProtobufError> {
    std::str::from_utf8(bytes)
        .map_err(|_| ProtobufError(format!("{}: the text is not UTF-8", field.json_name)))
}
