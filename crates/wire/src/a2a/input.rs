//! Parsing shared by all readers: error locations, and the spellings that ProtoJSON allows.
//!
//! The structs that readers parse into are unions: one `Message`, `Part` or `Task` has the members of all
//! generations, and the conversion uses those of its dialect. Every member is optional, because `null` and
//! absence mean the same in all of them. Unknown members are ignored.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{Error, Unexpected, Visitor},
};

/// The input is not what the dialect defines.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {problem}")]
pub struct MalformedInput {
    /// The path of the value, e.g. `params.message.parts[0]`.
    pub path: String,
    /// What was expected there.
    pub problem: String,
}

/// A path in a document; rendered as text only for an error.
#[derive(Clone, Copy)]
pub(super) enum JsonPath<'a> {
    Root(&'static str),
    Member(&'a JsonPath<'a>, &'static str),
    Element(&'a JsonPath<'a>, usize),
}

impl<'a> JsonPath<'a> {
    pub(super) fn member(&'a self, name: &'static str) -> JsonPath<'a> {
        JsonPath::Member(self, name)
    }

    pub(super) fn element(&'a self, index: usize) -> JsonPath<'a> {
        JsonPath::Element(self, index)
    }

    pub(super) fn malformed(&self, problem: impl Into<String>) -> MalformedInput {
        MalformedInput { path: self.to_string(), problem: problem.into() }
    }

    /// The value of a required member.
    pub(super) fn required<T>(&self, name: &'static str, value: Option<T>) -> Result<T, MalformedInput> {
        value.ok_or_else(|| self.member(name).malformed("is required"))
    }

    /// The value of a required string member, which must not be empty.
    pub(super) fn required_text(
        &self,
        name: &'static str,
        value: Option<String>,
    ) -> Result<String, MalformedInput> {
        self.required(name, value.filter(|text| !text.is_empty()))
    }
}

impl fmt::Display for JsonPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root(name) => f.write_str(name),
            Self::Member(parent, name) => write!(f, "{parent}.{name}"),
            Self::Element(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

/// Parses a document. After a failure it is parsed again, more slowly, to locate the error.
pub(super) fn parse<'a, T: Deserialize<'a>>(root: &'static str, json: &'a str) -> Result<T, MalformedInput> {
    serde_json::from_str(json).map_err(|error| {
        let mut input = serde_json::Deserializer::from_str(json);
        let (path, error) = match serde_path_to_error::deserialize::<_, T>(&mut input) {
            Err(located) => (located.path().to_string(), located.into_inner()),
            Ok(_) => (".".to_owned(), error),
        };
        let path = if path == "." { root.to_owned() } else { format!("{root}.{path}") };
        let mut problem = error.to_string();
        // Drop the position: it counts within the params, which a person cannot see alone.
        problem.truncate(problem.rfind(" at line ").unwrap_or(problem.len()));
        MalformedInput { path, problem }
    })
}

/// `None` for an empty string: protobuf's default means absence.
pub(super) fn non_empty(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

/// The name of an enum's value, or its number; ProtoJSON allows both.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum EnumValue<'a> {
    Name(Cow<'a, str>),
    Number(i64),
}

impl EnumValue<'_> {
    /// Looks up the value in a table of names and numbers.
    pub(super) fn find<T: Copy>(&self, table: &[(T, &'static str, i64)]) -> Option<T> {
        let found = table.iter().find(|(_, name, number)| match self {
            Self::Name(given) => given == name,
            Self::Number(given) => given == number,
        });
        found.map(|(value, ..)| *value)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for EnumValue<'a> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        struct EnumValueVisitor;
        impl<'de> Visitor<'de> for EnumValueVisitor {
            type Value = EnumValue<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<EnumValue<'de>, E> {
                Ok(EnumValue::Name(Cow::Borrowed(text)))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<EnumValue<'de>, E> {
                Ok(EnumValue::Name(Cow::Owned(text.to_owned())))
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<EnumValue<'de>, E> {
                Ok(EnumValue::Number(number))
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<EnumValue<'de>, E> {
                i64::try_from(number)
                    .map(EnumValue::Number)
                    .map_err(|_| E::invalid_value(Unexpected::Unsigned(number), &self))
            }
        }
        input.deserialize_any(EnumValueVisitor)
    }
}

/// A whole number, also as a string or with a zero fraction; ProtoJSON allows both.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct WholeNumber(pub(super) i64);

impl<'de> Deserialize<'de> for WholeNumber {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        struct WholeNumberVisitor;
        impl Visitor<'_> for WholeNumberVisitor {
            type Value = WholeNumber;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number")
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<WholeNumber, E> {
                Ok(WholeNumber(number))
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<WholeNumber, E> {
                i64::try_from(number)
                    .map(WholeNumber)
                    .map_err(|_| E::invalid_value(Unexpected::Unsigned(number), &self))
            }

            fn visit_f64<E: Error>(self, number: f64) -> Result<WholeNumber, E> {
                if number.fract() == 0.0 && number.abs() < 2_f64.powi(53) {
                    return Ok(WholeNumber(number as i64));
                }
                Err(E::invalid_value(Unexpected::Float(number), &self))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<WholeNumber, E> {
                text.parse().map(WholeNumber).map_err(|_| E::invalid_value(Unexpected::Str(text), &self))
            }
        }
        input.deserialize_any(WholeNumberVisitor)
    }
}

/// Deserializes a member for which `null` is a value.
pub(super) fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    input: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(input).map(Some)
}
