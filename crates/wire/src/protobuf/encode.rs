//! From JSON to protobuf, in one pass over the text.

use std::fmt;

use base64::{
    Engine as _, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use nuncio_engine::clock::Timestamp;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::{
    DescriptorPool, ProtobufError, ProtobufField, ProtobufMessage,
    descriptor::{FieldKind, JsonForm},
    record::{write_bytes, write_nested, write_number, write_tag},
};
use crate::timestamp;

const LENIENT: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
const STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT);
const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT);

pub(super) fn write(
    out: &mut Vec<u8>,
    message: &'static ProtobufMessage,
    json: &[u8],
) -> Result<(), ProtobufError> {
    // Checked once: from a slice each string would be checked by itself.
    let json = std::str::from_utf8(json).map_err(|error| ProtobufError(error.to_string()))?;
    let mut deserializer = serde_json::Deserializer::from_str(json);
    // The JSON is our own, and the data in it was read within the usual limit: an event adds a few levels to it.
    deserializer.disable_recursion_limit();
    let written = MessageBody { message, out, is_null: None }.deserialize(&mut deserializer);
    written.and_then(|()| deserializer.end()).map_err(|error| ProtobufError(error.to_string()))
}

/// Writes the content of a message, without a tag and a length.
struct MessageBody<'o> {
    message: &'static ProtobufMessage,
    out: &'o mut Vec<u8>,
    /// Set for `null`, which is absence unless the message is a JSON value itself. `None`: it may not be absent.
    is_null: Option<&'o mut bool>,
}

impl<'de> DeserializeSeed<'de> for MessageBody<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for MessageBody<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(expected(self.message.form))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        match (self.message.form, &self.message.fields[..]) {
            (JsonForm::Struct, [fields]) => write_map(self.out, fields, members),
            (JsonForm::Value, _) => {
                let field = value_field(self.message, "structValue")?;
                write_nested(self.out, field.number, |out| {
                    MessageBody { message: type_of(field)?, out, is_null: None }.visit_map(members)
                })
            }
            (JsonForm::Object, _) => {
                while let Some(field) = members.next_key_seed(FieldName(self.message))? {
                    match field {
                        Some(field) => members.next_value_seed(FieldValue { field, out: self.out })?,
                        None => {
                            members.next_value::<IgnoredAny>()?;
                        }
                    }
                }
                Ok(())
            }
            _ => Err(A::Error::invalid_type(serde::de::Unexpected::Map, &self)),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<(), A::Error> {
        match (self.message.form, &self.message.fields[..]) {
            (JsonForm::ListValue, [values]) => {
                while elements.next_element_seed(ElementValue { field: values, out: self.out })?.is_some() {}
                Ok(())
            }
            (JsonForm::Value, _) => {
                let field = value_field(self.message, "listValue")?;
                write_nested(self.out, field.number, |out| {
                    MessageBody { message: type_of(field)?, out, is_null: None }.visit_seq(elements)
                })
            }
            _ => Err(A::Error::invalid_type(serde::de::Unexpected::Seq, &self)),
        }
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        match self.message.form {
            JsonForm::Timestamp => {
                let (seconds, nanos) =
                    read_time(text).ok_or_else(|| E::custom(format!("{text:?} is no time of ISO 8601")))?;
                for (number, value) in [(1, seconds), (2, i64::from(nanos))] {
                    if value != 0 {
                        write_number(self.out, number, value as u64);
                    }
                }
                Ok(())
            }
            JsonForm::Value => {
                write_bytes(self.out, value_field::<E>(self.message, "stringValue")?.number, text.as_bytes());
                Ok(())
            }
            _ => Err(E::invalid_type(serde::de::Unexpected::Str(text), &self)),
        }
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        let field = value_field::<E>(self.message, "boolValue")?;
        write_tag(self.out, field.number, 0);
        self.out.push(u8::from(value));
        Ok(())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.visit_f64(value as f64)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.visit_f64(value as f64)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        let field = value_field::<E>(self.message, "numberValue")?;
        write_tag(self.out, field.number, 1);
        self.out.extend_from_slice(&value.to_le_bytes());
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        if let (Some(is_null), true) = (self.is_null, self.message.form != JsonForm::Value) {
            *is_null = true;
            return Ok(());
        }
        let field = value_field::<E>(self.message, "nullValue")?;
        write_tag(self.out, field.number, 0);
        self.out.push(0);
        Ok(())
    }
}

/// The seconds since 1970 and the nanoseconds, which count forward from the second, also before 1970.
fn read_time(text: &str) -> Option<(i64, i32)> {
    if let Some(Timestamp(millis)) = timestamp::read_written(text) {
        return Some((millis.div_euclid(1000), millis.rem_euclid(1000) as i32 * 1_000_000));
    }
    let at: jiff::Timestamp = text.parse().ok()?;
    Some(match at.subsec_nanosecond() {
        nanos @ ..0 => (at.as_second() - 1, nanos + 1_000_000_000),
        nanos => (at.as_second(), nanos),
    })
}

/// The alternative of a `google.protobuf.Value` of that name; all other messages have none.
fn value_field<E: Error>(message: &'static ProtobufMessage, name: &str) -> Result<&'static ProtobufField, E> {
    match message.form {
        JsonForm::Value => message.field(name).ok_or_else(|| E::custom("the descriptor of Value")),
        form => Err(E::custom(format!("{}: expected {}", message.name, expected(form)))),
    }
}

fn expected(form: JsonForm) -> &'static str {
    match form {
        JsonForm::Timestamp => "a time",
        JsonForm::ListValue => "an array",
        JsonForm::Value => "a value",
        JsonForm::Object | JsonForm::MapEntry | JsonForm::Struct => "an object",
    }
}

/// Finds the field of a member's name, without a copy of the name.
struct FieldName(&'static ProtobufMessage);

impl<'de> DeserializeSeed<'de> for FieldName {
    type Value = Option<&'static ProtobufField>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for FieldName {
    type Value = Option<&'static ProtobufField>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the name of a member")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.field(name))
    }
}

/// Writes a field: one record, or one for each element of a list and each entry of a map. `null` is absence.
struct FieldValue<'o> {
    field: &'static ProtobufField,
    out: &'o mut Vec<u8>,
}

impl<'de> DeserializeSeed<'de> for FieldValue<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        match self.field.repeated {
            true => deserializer.deserialize_any(self),
            false => ElementValue { field: self.field, out: self.out }.deserialize(deserializer),
        }
    }
}

impl<'de> Visitor<'de> for FieldValue<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "a list or a map for {}", self.field.json_name)
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<(), A::Error> {
        while elements.next_element_seed(ElementValue { field: self.field, out: self.out })?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<(), A::Error> {
        write_map(self.out, self.field, members)
    }
}

/// Writes each member as a record with a key and a value.
fn write_map<'de, A: MapAccess<'de>>(
    out: &mut Vec<u8>,
    field: &'static ProtobufField,
    mut members: A,
) -> Result<(), A::Error> {
    let entry = type_of(field)?;
    let (JsonForm::MapEntry, [key, value]) = (entry.form, &entry.fields[..]) else {
        return Err(A::Error::custom(format!("{}: expected a list", field.json_name)));
    };
    while let Some(name) = members.next_key::<std::borrow::Cow<'de, str>>()? {
        write_nested(out, field.number, |out| {
            write_bytes(out, key.number, name.as_bytes());
            members.next_value_seed(ElementValue { field: value, out })
        })?;
    }
    Ok(())
}

/// Writes one value with its tag.
struct ElementValue<'o> {
    field: &'static ProtobufField,
    out: &'o mut Vec<u8>,
}

impl<'de> DeserializeSeed<'de> for ElementValue<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        let FieldKind::Message(index) = self.field.kind else { return deserializer.deserialize_any(self) };
        let message = DescriptorPool::get().message_at(index);
        // The tag is written before it is known whether there is a value.
        let (start, mut is_null) = (self.out.len(), false);
        write_nested(self.out, self.field.number, |out| {
            MessageBody { message, out, is_null: Some(&mut is_null) }.deserialize(deserializer)
        })?;
        if is_null {
            self.out.truncate(start);
        }
        Ok(())
    }
}

impl Visitor<'_> for ElementValue<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.field.kind {
            FieldKind::Bool => "true or false",
            FieldKind::Int => "a whole number",
            FieldKind::Double => "a number",
            FieldKind::Text => "a text",
            FieldKind::Bytes => "a text in base64",
            FieldKind::Enum(_) => "a name of its enum",
            FieldKind::Message(_) => "a message",
        };
        write!(formatter, "{kind} for {}", self.field.json_name)
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        match self.field.kind {
            FieldKind::Bool => {
                self.varint(u64::from(value));
                Ok(())
            }
            _ => Err(E::invalid_type(serde::de::Unexpected::Bool(value), &self)),
        }
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        match self.field.kind {
            FieldKind::Int | FieldKind::Enum(_) => {
                self.varint(value as u64);
                Ok(())
            }
            FieldKind::Double => self.visit_f64(value as f64),
            _ => Err(E::invalid_type(serde::de::Unexpected::Signed(value), &self)),
        }
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        match i64::try_from(value) {
            Ok(value) => self.visit_i64(value),
            Err(_) => self.visit_f64(value as f64),
        }
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        match self.field.kind {
            FieldKind::Double => {
                write_tag(self.out, self.field.number, 1);
                self.out.extend_from_slice(&value.to_le_bytes());
                Ok(())
            }
            FieldKind::Int if value.fract() == 0.0 => {
                self.varint(value as i64 as u64);
                Ok(())
            }
            _ => Err(E::invalid_type(serde::de::Unexpected::Float(value), &self)),
        }
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        match self.field.kind {
            FieldKind::Text => self.bytes(text.as_bytes()),
            FieldKind::Bytes => {
                let decoded = STANDARD.decode(text).or_else(|_| URL_SAFE.decode(text));
                let bytes =
                    decoded.map_err(|_| E::custom(format!("{}: it is not base64", self.field.json_name)))?;
                self.bytes(&bytes);
            }
            FieldKind::Enum(index) => {
                let values = &DescriptorPool::get().enum_at(index).values;
                match values.iter().find(|(name, _)| name == text) {
                    Some((_, number)) => self.varint(i64::from(*number) as u64),
                    None => {
                        let message = format!("{}: there is no {text:?} in its enum", self.field.json_name);
                        return Err(E::custom(message));
                    }
                }
            }
            FieldKind::Int => {
                let number: i64 = text.parse().map_err(|_| {
                    E::custom(format!("{}: {text:?} is no whole number", self.field.json_name))
                })?;
                self.varint(number as u64);
            }
            FieldKind::Bool | FieldKind::Double | FieldKind::Message(_) => {
                return Err(E::invalid_type(serde::de::Unexpected::Str(text), &self));
            }
        }
        Ok(())
    }
}

impl ElementValue<'_> {
    /// Whether a default value is written: where absence would mean something else.
    fn writes_default(&self) -> bool {
        self.field.has_presence || self.field.repeated
    }

    fn varint(self, value: u64) {
        if value != 0 || self.writes_default() {
            write_number(self.out, self.field.number, value);
        }
    }

    fn bytes(self, bytes: &[u8]) {
        if !bytes.is_empty() || self.writes_default() {
            write_bytes(self.out, self.field.number, bytes);
        }
    }
}

fn type_of<E: Error>(field: &'static ProtobufField) -> Result<&'static ProtobufMessage, E> {
    match field.kind {
        FieldKind::Message(index) => Ok(DescriptorPool::get().message_at(index)),
        _ => Err(E::custom(format!("{}: expected a list", field.json_name))),
    }
}
