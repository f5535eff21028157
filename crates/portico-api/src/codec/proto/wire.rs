//! The protobuf wire format: varints, lengths, and skipping what is not known.

use super::{ProtoError, error};

/// A value as it stands on the wire.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Raw<'a> {
    Varint(u64),
    Fixed64(u64),
    Fixed32(u32),
    Bytes(&'a [u8]),
}

impl<'a> Raw<'a> {
    pub(crate) fn bytes(self) -> Result<&'a [u8], ProtoError> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            _ => Err(error("proto: wrong wire type, want bytes")),
        }
    }

    pub(crate) fn text(self) -> Result<String, ProtoError> {
        let text =
            std::str::from_utf8(self.bytes()?).map_err(|_| error("proto: text is not UTF-8"))?;
        Ok(text.to_owned())
    }

    pub(crate) fn varint(self) -> Result<u64, ProtoError> {
        match self {
            Self::Varint(value) => Ok(value),
            _ => Err(error("proto: wrong wire type, want a varint")),
        }
    }
}

pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next field number and value, or nothing at the end.
    pub(crate) fn field(&mut self) -> Result<Option<(u32, Raw<'a>)>, ProtoError> {
        if self.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3)
            .ok()
            .filter(|n| *n > 0)
            .ok_or_else(|| error("proto: illegal tag"))?;
        let value = match tag & 7 {
            0 => Raw::Varint(self.varint()?),
            1 => Raw::Fixed64(u64::from_le_bytes(self.array()?)),
            2 => {
                let length = self.varint()?;
                Raw::Bytes(self.take(usize::try_from(length).map_err(|_| end())?)?)
            }
            5 => Raw::Fixed32(u32::from_le_bytes(self.array()?)),
            kind => return Err(error(format!("proto: wire type {kind} is not supported"))),
        };
        Ok(Some((number, value)))
    }

    pub(crate) fn varint(&mut self) -> Result<u64, ProtoError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let [byte] = self.array()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(error("proto: integer overflow"))
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], ProtoError> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or_else(end)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], ProtoError> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or_else(end)?;
        self.rest = rest;
        Ok(*taken)
    }
}

fn end() -> ProtoError {
    error("unexpected EOF")
}

#[derive(Default)]
pub(crate) struct Writer(pub(crate) Vec<u8>);

impl Writer {
    pub(crate) fn raw_varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    pub(crate) fn varint(&mut self, number: u32, value: u64) {
        self.raw_varint(u64::from(number) << 3);
        self.raw_varint(value);
    }

    pub(crate) fn fixed64(&mut self, number: u32, value: u64) {
        self.raw_varint(u64::from(number) << 3 | 1);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn bytes(&mut self, number: u32, bytes: &[u8]) {
        self.raw_varint(u64::from(number) << 3 | 2);
        self.raw_varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }
}
