//! The message types and services of the compiled `.proto` files, and these files for the reflection service.

use std::{collections::HashMap, sync::LazyLock};

use super::{
    ProtobufError,
    record::{RecordValue, WireRecords},
};

/// The compiled files: a `FileDescriptorSet`.
static COMPILED: &[u8] = include_bytes!("../../proto/descriptors.bin");

/// The fields of one message: those that occur are a bit each.
const MAX_FIELDS: usize = 64;

#[allow(clippy::expect_used, reason = "the bytes are a constant that a test compiles and reads")]
static POOL: LazyLock<DescriptorPool> =
    LazyLock::new(|| DescriptorPool::read(COMPILED).expect("the compiled descriptors are valid"));

/// All message types and services that this crate knows.
#[derive(Debug)]
pub struct DescriptorPool {
    messages: Vec<ProtobufMessage>,
    enums: Vec<EnumType>,
    services: Vec<ProtobufService>,
    files: Vec<DescriptorFile>,
    by_name: HashMap<String, usize>,
}

/// A message type.
#[derive(Debug)]
pub struct ProtobufMessage {
    pub(super) name: String,
    pub(super) fields: Vec<ProtobufField>,
    pub(super) form: JsonForm,
}

/// How the JSON of a message looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JsonForm {
    Object,
    /// A key and a value; the entries of one field are one object.
    MapEntry,
    Struct,
    Value,
    ListValue,
    Timestamp,
}

/// A field of a message.
#[derive(Debug)]
pub struct ProtobufField {
    pub(super) number: u32,
    /// The name in the `.proto` file, which JSON may use, too.
    pub(super) name: String,
    pub(super) json_name: String,
    pub(super) kind: FieldKind,
    pub(super) repeated: bool,
    /// The number of its group, of which the last one counts.
    oneof: Option<u32>,
    /// The other fields of its group: a bit for each, by its place in the message.
    pub(super) rivals: u64,
    /// Whether absence differs from the default value.
    pub(super) has_presence: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FieldKind {
    Bool,
    /// Of 32 and of 64 bits.
    Int,
    Double,
    Text,
    Bytes,
    Enum(usize),
    Message(usize),
}

#[derive(Debug)]
pub(super) struct EnumType {
    name: String,
    pub(super) values: Vec<(String, i32)>,
}

/// A service and its methods.
#[derive(Debug)]
pub struct ProtobufService {
    /// The full name, such as `lf.a2a.v1.A2AService`.
    pub name: String,
    /// The methods, in the order of the file.
    pub methods: Vec<ProtobufMethod>,
}

/// A method of a service.
#[derive(Debug)]
pub struct ProtobufMethod {
    /// The name within the service.
    pub name: String,
    /// Whether it answers with a stream.
    pub streams: bool,
    input: usize,
    output: usize,
}

/// One `.proto` file.
#[derive(Debug)]
struct DescriptorFile {
    name: String,
    bytes: &'static [u8],
    dependencies: Vec<String>,
    /// The full names of its messages, enums and services.
    symbols: Vec<String>,
}

impl DescriptorPool {
    /// The pool of this crate.
    pub fn get() -> &'static Self {
        &POOL
    }

    /// The message type of that full name.
    pub fn message(&self, name: &str) -> Option<&ProtobufMessage> {
        self.by_name.get(name).map(|index| &self.messages[*index])
    }

    /// All services.
    pub fn services(&self) -> &[ProtobufService] {
        &self.services
    }

    /// The service of that full name.
    pub fn service(&self, name: &str) -> Option<&ProtobufService> {
        self.services.iter().find(|service| service.name == name)
    }

    /// The descriptors of the file of that name and of the files that it imports; `None` if there is no such file.
    pub fn file(&self, name: &str) -> Option<Vec<&'static [u8]>> {
        let mut names = vec![name.to_owned()];
        let mut index = 0;
        while let Some(name) = names.get(index) {
            let file = self.files.iter().find(|file| file.name == *name)?;
            for dependency in &file.dependencies {
                if !names.contains(dependency) {
                    names.push(dependency.clone());
                }
            }
            index += 1;
        }
        let bytes_of =
            |name: &String| self.files.iter().find(|file| file.name == *name).map(|file| file.bytes);
        Some(names.iter().filter_map(bytes_of).collect())
    }

    /// The name of the file in which a message, an enum, a service or a method is defined.
    pub fn file_of_symbol(&self, symbol: &str) -> Option<&str> {
        let defines = |file: &&DescriptorFile| file.symbols.iter().any(|name| name == symbol);
        self.files.iter().find(defines).map(|file| file.name.as_str())
    }

    pub(super) fn message_at(&self, index: usize) -> &ProtobufMessage {
        &self.messages[index]
    }

    pub(super) fn enum_at(&self, index: usize) -> &EnumType {
        &self.enums[index]
    }

    fn read(compiled: &'static [u8]) -> Result<Self, ProtobufError> {
        let mut reader = PoolReader::default();
        for file in fields_of(compiled, 1)? {
            reader.read_file(file)?;
        }
        reader.finish()
    }
}

impl ProtobufMessage {
    /// The full name.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn field(&self, name: &str) -> Option<&ProtobufField> {
        self.fields.iter().find(|field| field.json_name == name || field.name == name)
    }
}

impl ProtobufMethod {
    /// The type of its request.
    pub fn input(&self) -> &'static ProtobufMessage {
        POOL.message_at(self.input)
    }

    /// The type of its response.
    pub fn output(&self) -> &'static ProtobufMessage {
        POOL.message_at(self.output)
    }
}

/// Reads the files; references between types are by name until all are read.
#[derive(Default)]
struct PoolReader {
    messages: Vec<(String, JsonForm, Vec<RawField>)>,
    enums: Vec<EnumType>,
    services: Vec<(String, Vec<RawMethod>)>,
    files: Vec<DescriptorFile>,
}

/// A method with the names of its types.
struct RawMethod {
    name: String,
    input: String,
    output: String,
    streams: bool,
}

struct RawField {
    field: ProtobufField,
    kind: u64,
    type_name: String,
}

impl PoolReader {
    fn read_file(&mut self, bytes: &'static [u8]) -> Result<(), ProtobufError> {
        let (mut file, mut package) = (Members::default(), String::new());
        let mut dependencies = vec![];
        for record in WireRecords(bytes) {
            match record? {
                (2, RecordValue::Bytes(name)) => package = text(name)?,
                (3, RecordValue::Bytes(name)) => dependencies.push(text(name)?),
                (number, value) => file.push(number, value),
            }
        }
        let mut symbols = vec![];
        for message in file.all(4) {
            self.read_message(&package, message, &mut symbols)?;
        }
        for definition in file.all(5) {
            self.read_enum(&package, definition, &mut symbols)?;
        }
        for service in file.all(6) {
            self.read_service(&package, service, &mut symbols)?;
        }
        self.files.push(DescriptorFile { name: text(file.last(1))?, bytes, dependencies, symbols });
        Ok(())
    }

    fn read_message(
        &mut self,
        scope: &str,
        bytes: &'static [u8],
        symbols: &mut Vec<String>,
    ) -> Result<(), ProtobufError> {
        let message = Members::read(bytes)?;
        let name = format!("{scope}.{}", text(message.last(1))?);
        let is_map_entry = Members::read(message.last(7))?.number(7) != 0;
        let form = match name.as_str() {
            _ if is_map_entry => JsonForm::MapEntry,
            "google.protobuf.Struct" => JsonForm::Struct,
            "google.protobuf.Value" => JsonForm::Value,
            "google.protobuf.ListValue" => JsonForm::ListValue,
            "google.protobuf.Timestamp" => JsonForm::Timestamp,
            _ => JsonForm::Object,
        };
        let fields = message.all(2).map(read_field).collect::<Result<_, _>>()?;
        for nested in message.all(3) {
            self.read_message(&name, nested, symbols)?;
        }
        for definition in message.all(4) {
            self.read_enum(&name, definition, symbols)?;
        }
        symbols.push(name.clone());
        self.messages.push((name, form, fields));
        Ok(())
    }

    fn read_enum(
        &mut self,
        scope: &str,
        bytes: &'static [u8],
        symbols: &mut Vec<String>,
    ) -> Result<(), ProtobufError> {
        let definition = Members::read(bytes)?;
        let name = format!("{scope}.{}", text(definition.last(1))?);
        let values = definition.all(2).map(|value| {
            let value = Members::read(value)?;
            Ok((text(value.last(1))?, value.number(2) as i32))
        });
        let values = values.collect::<Result<_, ProtobufError>>()?;
        symbols.push(name.clone());
        self.enums.push(EnumType { name, values });
        Ok(())
    }

    fn read_service(
        &mut self,
        scope: &str,
        bytes: &'static [u8],
        symbols: &mut Vec<String>,
    ) -> Result<(), ProtobufError> {
        let service = Members::read(bytes)?;
        let name = format!("{scope}.{}", text(service.last(1))?);
        let methods = service.all(2).map(|method| {
            let method = Members::read(method)?;
            let type_of = |number| Ok::<_, ProtobufError>(text(method.last(number))?.replacen('.', "", 1));
            Ok(RawMethod {
                name: text(method.last(1))?,
                input: type_of(2)?,
                output: type_of(3)?,
                streams: method.number(6) != 0,
            })
        });
        let methods: Vec<RawMethod> = methods.collect::<Result<_, ProtobufError>>()?;
        symbols.extend(methods.iter().map(|method| format!("{name}.{}", method.name)));
        symbols.push(name.clone());
        self.services.push((name, methods));
        Ok(())
    }

    fn finish(self) -> Result<DescriptorPool, ProtobufError> {
        let names = self.messages.iter().enumerate().map(|(index, (name, ..))| (name.clone(), index));
        let by_name: HashMap<String, usize> = names.collect();
        let find = |name: &str| {
            by_name.get(name).copied().ok_or_else(|| ProtobufError(format!("there is no message {name}")))
        };
        let find_enum = |name: &str| {
            let found = self.enums.iter().position(|definition| definition.name == name);
            found.ok_or_else(|| ProtobufError(format!("there is no enum {name}")))
        };
        let mut messages = vec![];
        for (name, form, raw) in self.messages {
            let mut fields = vec![];
            for RawField { mut field, kind, type_name } in raw {
                field.kind = match kind {
                    1 => FieldKind::Double,
                    3 | 5 => FieldKind::Int,
                    8 => FieldKind::Bool,
                    9 => FieldKind::Text,
                    11 => FieldKind::Message(find(&type_name)?),
                    12 => FieldKind::Bytes,
                    14 => FieldKind::Enum(find_enum(&type_name)?),
                    other => return Err(ProtobufError(format!("{name}: a field of the type {other}"))),
                };
                field.has_presence |= kind == 11;
                fields.push(field);
            }
            if fields.len() > MAX_FIELDS {
                return Err(ProtobufError(format!("{name}: more than {MAX_FIELDS} fields")));
            }
            set_rivals(&mut fields);
            messages.push(ProtobufMessage { name, fields, form });
        }
        let mut services = vec![];
        for (name, raw) in self.services {
            let methods = raw.into_iter().map(|RawMethod { name, input, output, streams }| {
                Ok(ProtobufMethod { name, streams, input: find(&input)?, output: find(&output)? })
            });
            let methods = methods.collect::<Result<_, ProtobufError>>()?;
            services.push(ProtobufService { name, methods });
        }
        Ok(DescriptorPool { messages, enums: self.enums, services, files: self.files, by_name })
    }
}

fn set_rivals(fields: &mut [ProtobufField]) {
    let groups: Vec<Option<u32>> = fields.iter().map(|field| field.oneof).collect();
    for (index, field) in fields.iter_mut().enumerate() {
        let is_rival =
            |other: &usize| *other != index && field.oneof.is_some() && groups[*other] == field.oneof;
        field.rivals = (0..groups.len()).filter(is_rival).fold(0, |bits, other| bits | 1 << other);
    }
}

fn read_field(bytes: &'static [u8]) -> Result<RawField, ProtobufError> {
    let record = Members::read(bytes)?;
    let name = text(record.last(1))?;
    // An optional scalar is a group of its own.
    let optional = record.number(17) != 0;
    let oneof = record.find(9).filter(|_| !optional).map(|index| index as u32);
    let field = ProtobufField {
        number: record.number(3) as u32,
        json_name: text(record.last(10))?,
        name,
        kind: FieldKind::Bool,
        repeated: record.number(4) == 3,
        oneof,
        rivals: 0,
        has_presence: optional || oneof.is_some(),
    };
    Ok(RawField { field, kind: record.number(5), type_name: text(record.last(6))?.replacen('.', "", 1) })
}

/// The records of one descriptor.
#[derive(Default)]
struct Members(Vec<(u32, RecordValue<'static>)>);

impl Members {
    fn read(bytes: &'static [u8]) -> Result<Self, ProtobufError> {
        WireRecords(bytes).collect::<Result<_, _>>().map(Self)
    }

    fn push(&mut self, number: u32, value: RecordValue<'static>) {
        self.0.push((number, value));
    }

    fn all(&self, number: u32) -> impl Iterator<Item = &'static [u8]> {
        self.0.iter().filter_map(move |record| match record {
            (found, RecordValue::Bytes(bytes)) if *found == number => Some(*bytes),
            _ => None,
        })
    }

    fn last(&self, number: u32) -> &'static [u8] {
        self.all(number).last().unwrap_or_default()
    }

    fn find(&self, number: u32) -> Option<u64> {
        self.0.iter().rev().find_map(|record| match record {
            (found, RecordValue::Varint(value)) if *found == number => Some(*value),
            _ => None,
        })
    }

    fn number(&self, number: u32) -> u64 {
        self.find(number).unwrap_or_default()
    }
}

fn fields_of(bytes: &'static [u8], number: u32) -> Result<Vec<&'static [u8]>, ProtobufError> {
    Ok(Members::read(bytes)?.all(number).collect())
}

fn text(bytes: &[u8]) -> Result<String, ProtobufError> {
    String::from_utf8(bytes.to_vec()).map_err(|error| ProtobufError::new(error.to_string()))
}
