//! The records of a protobuf message: field numbers with their raw values.

use super::ProtobufError;

/// A value as it is on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RecordValue<'a> {
    Varint(u64),
    Fixed64(u64),
    Fixed32(u32),
    Bytes(&'a [u8]),
}

/// Reads the records of a message, one after the other; nothing follows an error.
#[derive(Debug, Clone)]
pub(super) struct WireRecords<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for WireRecords<'a> {
    type Item = Result<(u32, RecordValue<'a>), ProtobufError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let record = self.read();
        if record.is_err() {
            self.0 = &[];
        }
        Some(record)
    }
}

impl<'a> WireRecords<'a> {
    fn read(&mut self) -> Result<(u32, RecordValue<'a>), ProtobufError> {
        let tag = read_varint(&mut self.0)?;
        let number = u32::try_from(tag >> 3).ok().filter(|number| *number > 0);
        let number = number.ok_or_else(|| ProtobufError::new("a field has no valid number"))?;
        let value = match tag & 7 {
            0 => RecordValue::Varint(read_varint(&mut self.0)?),
            1 => RecordValue::Fixed64(u64::from_le_bytes(self.take_array()?)),
            2 => {
                let length = usize::try_from(read_varint(&mut self.0)?).unwrap_or(usize::MAX);
                RecordValue::Bytes(self.take(length)?)
            }
            5 => RecordValue::Fixed32(u32::from_le_bytes(self.take_array()?)),
            other => {
                let message = format!("field {number} has the wire type {other}, which is not in use");
                return Err(ProtobufError(message));
            }
        };
        Ok((number, value))
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], ProtobufError> {
        match self.0.split_at_checked(length) {
            Some((taken, rest)) => {
                self.0 = rest;
                Ok(taken)
            }
            None => Err(ProtobufError::new("the message ends within a field")),
        }
    }

    fn take_array<const N: usize>(&mut self) -> Result<[u8; N], ProtobufError> {
        let taken = self.take(N)?;
        taken.try_into().map_err(|_| ProtobufError::new("the message ends within a field"))
    }
}

pub(super) fn read_varint(bytes: &mut &[u8]) -> Result<u64, ProtobufError> {
    let mut value = 0_u64;
    for (index, byte) in bytes.iter().take(10).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            // The tenth byte has room for one bit.
            if index == 9 && *byte > 1 {
                break;
            }
            *bytes = &bytes[index + 1..];
            return Ok(value);
        }
    }
    Err(ProtobufError::new(match bytes.len() {
        0..10 => "the message ends within a number",
        _ => "a number is longer than 64 bits",
    }))
}

pub(super) fn write_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn varint_length(value: u64) -> usize {
    (value.max(1).ilog2() / 7 + 1) as usize
}

pub(super) fn write_tag(out: &mut Vec<u8>, number: u32, wire_type: u32) {
    write_varint(out, u64::from(number << 3 | wire_type));
}

pub(crate) fn write_number(out: &mut Vec<u8>, number: u32, value: u64) {
    write_tag(out, number, 0);
    write_varint(out, value);
}

pub(crate) fn write_bytes(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    write_tag(out, number, 2);
    write_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Writes a record whose length is known only afterwards. One byte is reserved for it, which is enough for most.
pub(crate) fn write_nested<E>(
    out: &mut Vec<u8>,
    number: u32,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
) -> Result<(), E> {
    write_tag(out, number, 2);
    let start = out.len();
    out.push(0);
    write(out)?;
    let length = out.len() - start - 1;
    if length < 0x80 {
        out[start] = length as u8;
        return Ok(());
    }
    // The content makes room for the rest of its length.
    let (end, more) = (out.len(), varint_length(length as u64) - 1);
    out.resize(end + more, 0);
    out.copy_within(start + 1..end, start + 1 + more);
    let (mut rest, prefix) = (length, &mut out[start..=start + more]);
    for byte in &mut *prefix {
        *byte = rest as u8 | 0x80;
        rest >>= 7;
    }
    prefix[more] &= 0x7f;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_all_lengths_are_read_back() {
        for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            let mut out = vec![];
            write_varint(&mut out, value);
            let mut rest = &out[..];
            assert_eq!(read_varint(&mut rest), Ok(value));
            assert!(rest.is_empty());
        }
    }

    #[test]
    fn what_is_cut_or_too_long_is_refused() {
        let read = |bytes: &[u8]| WireRecords(bytes).collect::<Result<Vec<_>, _>>().unwrap_err().0;
        assert_eq!(read(&[0x0a]), "the message ends within a number");
        assert_eq!(read(&[0x0a, 5, b'x']), "the message ends within a field");
        assert_eq!(read(&[0x09, 1, 2]), "the message ends within a field");
        assert_eq!(
            read(&[0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02]),
            "a number is longer than 64 bits"
        );
        assert_eq!(read(&[0x00]), "a field has no valid number");
        assert_eq!(read(&[0x0b]), "field 1 has the wire type 3, which is not in use");
        assert_eq!(
            read(&[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]),
            "the message ends within a field"
        );
    }

    #[test]
    fn a_nested_message_of_any_length_has_it() {
        for length in [0, 1, 127, 128, 300, 16_383, 16_384, 2_097_151, 2_097_152] {
            let mut content = vec![7; length];
            if let Some(last) = content.last_mut() {
                *last = 8;
            }
            let mut out = vec![];
            write_nested(&mut out, 3, |out| {
                out.extend_from_slice(&content);
                Ok::<_, ()>(())
            })
            .unwrap();
            let mut plain = vec![];
            write_bytes(&mut plain, 3, &content);
            assert!(out == plain, "{length}");
        }
    }
}
