//! The framing of gRPC over HTTP/2: messages with a length prefix, statuses, and the fields of headers and trailers.
//!
//! Messages are not compressed: a peer that insists on it is refused. What a message means is the dialect's.

use std::{fmt::Write as _, time::Duration};

use crate::protobuf::{self, ProtobufError};

/// The bytes before each message: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// The longest deadline that is taken literally; a longer one is as good as none.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(366 * 24 * 3600);

/// The status of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are those of gRPC")]
pub enum GrpcCode {
    Ok = 0,
    Cancelled = 1,
    Unknown = 2,
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    AlreadyExists = 6,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    Aborted = 10,
    OutOfRange = 11,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
    DataLoss = 15,
    Unauthenticated = 16,
}

/// The name of a code, as the specification of gRPC spells it.
pub fn code_name(code: GrpcCode) -> &'static str {
    match code {
        GrpcCode::Ok => "OK",
        GrpcCode::Cancelled => "CANCELLED",
        GrpcCode::Unknown => "UNKNOWN",
        GrpcCode::InvalidArgument => "INVALID_ARGUMENT",
        GrpcCode::DeadlineExceeded => "DEADLINE_EXCEEDED",
        GrpcCode::NotFound => "NOT_FOUND",
        GrpcCode::AlreadyExists => "ALREADY_EXISTS",
        GrpcCode::PermissionDenied => "PERMISSION_DENIED",
        GrpcCode::ResourceExhausted => "RESOURCE_EXHAUSTED",
        GrpcCode::FailedPrecondition => "FAILED_PRECONDITION",
        GrpcCode::Aborted => "ABORTED",
        GrpcCode::OutOfRange => "OUT_OF_RANGE",
        GrpcCode::Unimplemented => "UNIMPLEMENTED",
        GrpcCode::Internal => "INTERNAL",
        GrpcCode::Unavailable => "UNAVAILABLE",
        GrpcCode::DataLoss => "DATA_LOSS",
        GrpcCode::Unauthenticated => "UNAUTHENTICATED",
    }
}

impl GrpcCode {
    /// All codes, in the order of their numbers.
    pub const ALL: [Self; 17] = [
        Self::Ok,
        Self::Cancelled,
        Self::Unknown,
        Self::InvalidArgument,
        Self::DeadlineExceeded,
        Self::NotFound,
        Self::AlreadyExists,
        Self::PermissionDenied,
        Self::ResourceExhausted,
        Self::FailedPrecondition,
        Self::Aborted,
        Self::OutOfRange,
        Self::Unimplemented,
        Self::Internal,
        Self::Unavailable,
        Self::DataLoss,
        Self::Unauthenticated,
    ];

    /// The code of a trailer `grpc-status`; a number that gRPC does not define is unknown.
    pub fn parse(text: &str) -> Self {
        let number = text.parse::<usize>().unwrap_or(usize::MAX);
        Self::ALL.get(number).copied().unwrap_or(Self::Unknown)
    }

    /// The code for a response without one, by its HTTP status.
    pub fn of_http(status: u16) -> Self {
        match status {
            400 | 431 => Self::Internal,
            401 => Self::Unauthenticated,
            403 => Self::PermissionDenied,
            404 | 405 | 415 | 501 | 505 => Self::Unimplemented,
            408 => Self::DeadlineExceeded,
            413 => Self::ResourceExhausted,
            429 | 502..=504 => Self::Unavailable,
            _ => Self::Unknown,
        }
    }
}

/// The end of a call that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrpcStatus {
    /// The code.
    pub code: GrpcCode,
    /// A text for people.
    pub message: String,
    /// Typed details as ProtoJSON, each with its `@type`.
    pub details: Vec<serde_json::Value>,
}

impl GrpcStatus {
    /// A status without details.
    pub fn new(code: GrpcCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: vec![] }
    }

    /// The `google.rpc.Status` of the trailer `grpc-status-details-bin`; `None` without details.
    pub fn write_details(&self) -> Option<Vec<u8>> {
        if self.details.is_empty() {
            return None;
        }
        let (mut status, mut json) = (Vec::new(), Vec::new());
        let details: Vec<_> = self.details.iter().filter_map(write_any).collect();
        crate::json::object(&mut json, |members| {
            members.value("code", &(self.code as i32));
            members.value("message", &self.message);
            members.value("details", &details);
        });
        let written = protobuf::message("google.rpc.Status")?.write_from_json(&mut status, &json);
        written.ok().map(|()| status)
    }

    /// Reads the details of such a trailer; those of other types are left out.
    pub fn read_details(bytes: &[u8]) -> Vec<serde_json::Value> {
        let limits = protobuf::ProtobufLimits { max_depth: 16, max_json_bytes: 64 * 1024 };
        let read = |name: &str, bytes: &[u8]| {
            let json = protobuf::message(name)?.read_json(bytes, limits).ok()?;
            serde_json::from_str::<serde_json::Value>(json.get()).ok()
        };
        let Some(status) = read("google.rpc.Status", bytes) else { return vec![] };
        let details = status["details"].as_array().cloned().unwrap_or_default();
        let read_any = |any: &serde_json::Value| {
            let kind = any["typeUrl"].as_str()?;
            let value =
                base64::Engine::decode(&base64::prelude::BASE64_STANDARD, any["value"].as_str()?).ok()?;
            let mut detail = read(kind.rsplit('/').next()?, &value)?;
            detail.as_object_mut()?.insert("@type".to_owned(), kind.into());
            Some(detail)
        };
        details.iter().filter_map(read_any).collect()
    }
}

/// A detail as `google.protobuf.Any`, in the JSON of its own two members.
fn write_any(detail: &serde_json::Value) -> Option<serde_json::Value> {
    let kind = detail["@type"].as_str()?;
    let mut value = Vec::new();
    let message = protobuf::message(kind.rsplit('/').next()?)?;
    message.write_from_json(&mut value, detail.to_string().as_bytes()).ok()?;
    let value = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, value);
    Some(serde_json::json!({ "typeUrl": kind, "value": value }))
}

/// Writes a message with its prefix.
pub fn write_message<E>(
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
) -> Result<(), E> {
    let start = out.len();
    out.extend_from_slice(&[0; PREFIX]);
    if let Err(error) = write(out) {
        out.truncate(start);
        return Err(error);
    }
    let length = u32::try_from(out.len() - start - PREFIX).unwrap_or(u32::MAX);
    out[start + 1..start + PREFIX].copy_from_slice(&length.to_be_bytes());
    Ok(())
}

/// The only message of a body.
pub fn read_message(body: &[u8]) -> Result<&[u8], GrpcStatus> {
    let incomplete = || GrpcStatus::new(GrpcCode::Internal, "the request ends within its message");
    let (prefix, rest) = body.split_first_chunk::<PREFIX>().ok_or_else(incomplete)?;
    let length = length_of(*prefix)?;
    match rest.len() {
        present if present == length => Ok(rest),
        present if present < length => Err(incomplete()),
        _ => Err(GrpcStatus::new(GrpcCode::Internal, "the request has more than one message")),
    }
}

fn length_of([compressed, length @ ..]: [u8; PREFIX]) -> Result<usize, GrpcStatus> {
    match compressed {
        0 => Ok(u32::from_be_bytes(length) as usize),
        1 => {
            let message = "the message is compressed, which is not supported: send grpc-encoding identity";
            Err(GrpcStatus::new(GrpcCode::Unimplemented, message))
        }
        _ => Err(GrpcStatus::new(GrpcCode::Internal, "the message has no valid prefix")),
    }
}

/// The messages of a body that arrives in pieces.
#[derive(Debug)]
pub struct MessageReader {
    buffer: Vec<u8>,
    max_bytes: usize,
}

impl MessageReader {
    /// A reader of messages of at most that size.
    pub fn new(max_bytes: usize) -> Self {
        Self { buffer: vec![], max_bytes }
    }

    /// Adds a piece of the body.
    pub fn push(&mut self, piece: &[u8]) {
        self.buffer.extend_from_slice(piece);
    }

    /// Takes the next message, if all of it has arrived.
    pub fn next_message(&mut self) -> Result<Option<Vec<u8>>, GrpcStatus> {
        let Some(prefix) = self.buffer.first_chunk::<PREFIX>() else { return Ok(None) };
        let length = length_of(*prefix)?;
        if length > self.max_bytes {
            let message = format!("a message has {length} bytes, the limit is {}", self.max_bytes);
            return Err(GrpcStatus::new(GrpcCode::ResourceExhausted, message));
        }
        if self.buffer.len() < PREFIX + length {
            return Ok(None);
        }
        let message = self.buffer[PREFIX..PREFIX + length].to_vec();
        self.buffer.drain(..PREFIX + length);
        Ok(Some(message))
    }

    /// Whether a message has begun to arrive and has not ended.
    pub fn is_within_message(&self) -> bool {
        !self.buffer.is_empty()
    }
}

/// The trailer `grpc-message`: percent-encoded, so that it is printable ASCII.
pub fn encode_text(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b' '..=b'$' | b'&'..=b'~' => encoded.push(char::from(byte)),
            // Writing to a string does not fail.
            _ => drop(write!(encoded, "%{byte:02X}")),
        }
    }
    encoded
}

/// Reads such a trailer; what is not encoded as it should be is taken as it is.
pub fn decode_text(encoded: &str) -> String {
    let (bytes, mut text) = (encoded.as_bytes(), Vec::with_capacity(encoded.len()));
    let mut index = 0;
    while index < bytes.len() {
        let hex = bytes.get(index + 1..index + 3).and_then(|hex| std::str::from_utf8(hex).ok());
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) if bytes[index] == b'%' => {
                text.push(byte);
                index += 3;
            }
            _ => {
                text.push(bytes[index]);
                index += 1;
            }
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// Reads the header `grpc-timeout`: up to eight digits and a unit. `None` for a deadline that is too far away to count.
pub fn parse_timeout(text: &str) -> Result<Option<Duration>, GrpcStatus> {
    let refuse = || {
        let message =
            format!("grpc-timeout: {text:?} is not a number of at most 8 digits and one of H, M, S, m, u, n");
        GrpcStatus::new(GrpcCode::InvalidArgument, message)
    };
    let (digits, unit) = text.split_at_checked(text.len().saturating_sub(1)).ok_or_else(refuse)?;
    let valid = (1..=8).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number: u64 = digits.parse().ok().filter(|_| valid).ok_or_else(refuse)?;
    let timeout = match unit {
        "H" => Duration::from_secs(number * 3600),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return Err(refuse()),
    };
    Ok((timeout <= LONGEST_TIMEOUT).then_some(timeout))
}

/// Writes such a header, rounded up: a client must not stop waiting earlier than it wants to.
pub fn write_timeout(timeout: Duration) -> String {
    let units = [("u", 1_000), ("m", 1_000_000), ("S", 1_000_000_000_u128)];
    let fits = |nanos: u128| nanos < 100_000_000;
    let nanos = timeout.as_nanos();
    let written =
        units.iter().map(|(unit, size)| (nanos.div_ceil(*size), unit)).find(|(number, _)| fits(*number));
    written.map_or_else(|| "99999999S".to_owned(), |(number, unit)| format!("{number}{unit}"))
}

impl From<ProtobufError> for GrpcStatus {
    fn from(error: ProtobufError) -> Self {
        Self::new(GrpcCode::InvalidArgument, format!("the message cannot be read: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn texts_survive_the_trailer() {
        for text in ["", "plain", "100 % sure: ä\n€", "%41%zz", "\u{0}\u{7f}"] {
            let encoded = encode_text(text);
            assert!(encoded.bytes().all(|byte| (0x20..0x7f).contains(&byte)), "{encoded}");
            assert_eq!(decode_text(&encoded), text);
        }
        assert_eq!(decode_text("50%"), "50%");
        assert_eq!(decode_text("%zz"), "%zz");
    }

    #[test]
    fn deadlines_are_read_and_written() {
        let read = |text| parse_timeout(text).map_err(|status| status.code);
        assert_eq!(read("5S"), Ok(Some(Duration::from_secs(5))));
        assert_eq!(read("250m"), Ok(Some(Duration::from_millis(250))));
        assert_eq!(read("1H"), Ok(Some(Duration::from_secs(3600))));
        assert_eq!(read("0n"), Ok(Some(Duration::ZERO)));
        assert_eq!(read("99999999H"), Ok(None));
        for wrong in ["", "S", "5", "5s", "-1S", "123456789S", "5 S", "é"] {
            assert_eq!(read(wrong), Err(GrpcCode::InvalidArgument), "{wrong:?}");
        }
        for (timeout, text) in [
            (Duration::from_micros(1), "1u"),
            (Duration::from_millis(1500), "1500000u"),
            (Duration::from_secs(3600), "3600000m"),
            (Duration::from_secs(200_000), "200000S"),
            (Duration::MAX, "99999999S"),
        ] {
            assert_eq!(write_timeout(timeout), text);
        }
    }

    #[test]
    fn messages_are_read_whole_however_they_arrive() {
        let mut body = vec![];
        for message in [&b""[..], b"one", &[7; 70_000]] {
            write_message(&mut body, |out| {
                out.extend_from_slice(message);
                Ok::<_, ()>(())
            })
            .unwrap();
        }
        for size in [1, 4, 5, 6, 1000, body.len()] {
            let mut reader = MessageReader::new(70_000);
            let mut read = vec![];
            for piece in body.chunks(size) {
                reader.push(piece);
                while let Some(message) = reader.next_message().unwrap() {
                    read.push(message);
                }
            }
            assert!(!reader.is_within_message());
            assert_eq!(read, [vec![], b"one".to_vec(), vec![7; 70_000]]);
        }
        let mut small = MessageReader::new(2);
        small.push(&body[5..]);
        assert_eq!(small.next_message().unwrap_err().code, GrpcCode::ResourceExhausted);
    }

    #[test]
    fn a_request_is_one_message_and_not_compressed() {
        assert_eq!(read_message(&[0, 0, 0, 0, 2, 8, 1]).unwrap(), [8, 1]);
        let refused = |body: &[u8]| read_message(body).unwrap_err().code;
        assert_eq!(refused(&[]), GrpcCode::Internal);
        assert_eq!(refused(&[0, 0, 0, 0, 2, 8]), GrpcCode::Internal);
        assert_eq!(refused(&[0, 0, 0, 0, 0, 0]), GrpcCode::Internal);
        assert_eq!(refused(&[1, 0, 0, 0, 0]), GrpcCode::Unimplemented);
        assert_eq!(refused(&[9, 0, 0, 0, 0]), GrpcCode::Internal);
    }

    #[test]
    fn details_are_read_back() {
        let info = json!({
            "reason": "TASK_NOT_FOUND", "domain": "a2a-protocol.org", "metadata": { "taskId": "t" },
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        });
        let mut status = GrpcStatus::new(GrpcCode::NotFound, "Task not found: t");
        assert_eq!(status.write_details(), None);
        status.details = vec![info.clone()];
        assert_eq!(GrpcStatus::read_details(&status.write_details().unwrap()), [info]);
        assert_eq!(GrpcStatus::read_details(b"\xff\xff"), Vec::<serde_json::Value>::new());
    }

    #[test]
    fn codes_have_their_numbers() {
        for (number, code) in GrpcCode::ALL.into_iter().enumerate() {
            assert_eq!(code as usize, number);
            assert_eq!(GrpcCode::parse(&number.to_string()), code);
        }
        assert_eq!(GrpcCode::parse("17"), GrpcCode::Unknown);
        assert_eq!(GrpcCode::parse("-1"), GrpcCode::Unknown);
    }
}
