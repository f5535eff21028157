//! One object's record in the file, and what the file says of all of them together. Each has a
//! checksum of its own, so that what a disk altered is known when it is read.
//!
//! A record is its checksum, `created` and `modified` (little-endian u64), and the value. The
//! checksum covers the key too: a record that turns up under another key is damaged.

use bytes::{BufMut, Bytes, BytesMut};
use ring::digest::{Context, SHA256};

use crate::{Entry, Revision};

const SUM: usize = 8;
const HEADER: usize = 24;
/// The same without the checksum, as format 1 had it.
const OLD_HEADER: usize = 16;

pub(super) fn encode(entry: &Entry) -> BytesMut {
    let mut record = BytesMut::with_capacity(HEADER + entry.value.len());
    record.put_u64_le(0);
    record.put_u64_le(entry.created);
    record.put_u64_le(entry.modified);
    record.put_slice(&entry.value);
    let sum = checksum(&[entry.key.as_bytes(), &record[SUM..]]);
    record[..SUM].copy_from_slice(&sum.to_le_bytes());
    record
}

/// The entry, or what is wrong with it.
pub(super) fn decode(key: &str, record: &Bytes) -> Result<Entry, &'static str> {
    let (sum, rest) = record
        .split_first_chunk::<SUM>()
        .ok_or("its record is cut short")?;
    if checksum(&[key.as_bytes(), rest]) != u64::from_le_bytes(*sum) {
        return Err("its checksum is wrong");
    }
    decode_old(key, &record.slice(SUM..)).ok_or("its record is cut short")
}

/// Decodes a record of format 1, which had no checksums.
pub(super) fn decode_old(key: &str, record: &Bytes) -> Option<Entry> {
    let (created, rest) = record.split_first_chunk::<8>()?;
    let (modified, _) = rest.split_first_chunk::<8>()?;
    Some(Entry {
        key: key.into(),
        value: record.slice(OLD_HEADER..),
        created: u64::from_le_bytes(*created),
        modified: u64::from_le_bytes(*modified),
    })
}

/// The checksum that a record carries.
pub(super) fn sum_of(record: &[u8]) -> u64 {
    record
        .first_chunk::<SUM>()
        .map_or(0, |sum| u64::from_le_bytes(*sum))
}

/// What the file says of all its records: with it, one that is missing or that is an older version
/// of itself is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tally {
    pub revision: Revision,
    pub records: u64,
    /// The wrapping sum of the checksums of all records.
    pub digest: u64,
}

impl Tally {
    pub(super) fn add(&mut self, record: &[u8]) {
        self.records += 1;
        self.digest = self.digest.wrapping_add(sum_of(record));
    }

    pub(super) fn remove(&mut self, record: &[u8]) {
        self.records = self.records.saturating_sub(1);
        self.digest = self.digest.wrapping_sub(sum_of(record));
    }

    pub(super) fn checksum(&self, format: u64) -> u64 {
        let numbers = [format, self.revision, self.records, self.digest];
        checksum(&[numbers.map(u64::to_le_bytes).as_flattened()])
    }
}

/// 64 bits of SHA-256, which processors compute faster than disks take data. Each part is preceded
/// by its length, so that nothing can move from one part to the next.
pub(super) fn checksum(parts: &[&[u8]]) -> u64 {
    let mut context = Context::new(&SHA256);
    for part in parts {
        context.update(&(part.len() as u64).to_le_bytes());
        context.update(part);
    }
    let digest = context.finish();
    digest
        .as_ref()
        .first_chunk::<8>()
        .map_or(0, |bytes| u64::from_le_bytes(*bytes))
}
