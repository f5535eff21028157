//! The mark beside the store's file: that there is a store here, and the newest revision that was
//! acknowledged. Without it a file that is missing looks like a first start, and one that lost its
//! newest commits looks whole.
//!
//! It is written after every commit that became durable and never waits for the disk: after a power
//! cut it may be behind the store, which says nothing, but it is never ahead of it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use super::record::checksum;
use crate::Revision;

pub(super) const FILE: &str = "portico.mark";
const MAGIC: &[u8; 8] = b"portico\n";

pub(super) struct Mark {
    file: File,
}

/// What the mark of a directory says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Nothing,
    /// There is one, and what it says cannot be read.
    Unreadable,
    Acknowledged(Revision),
}

pub(super) fn find(dir: &Path) -> io::Result<Found> {
    match fs::read(dir.join(FILE)) {
        Ok(bytes) => Ok(decode(&bytes).map_or(Found::Unreadable, Found::Acknowledged)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Found::Nothing),
        Err(error) => Err(error),
    }
}

impl Mark {
    /// Opens the mark, made or mended if need be, and lets it say `revision`.
    pub(super) fn open(dir: &Path, revision: Revision) -> io::Result<Self> {
        let new = find(dir)? == Found::Nothing;
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(dir.join(FILE))?;
        file.write_all(&encode(revision))?;
        if new {
            file.sync_all()?;
            File::open(dir)?.sync_all()?;
        }
        Ok(Self { file })
    }

    /// Says that `revision` is durable. That the mark cannot be written is no reason to fail what
    /// is durable.
    pub(super) fn acknowledge(&self, revision: Revision) {
        if let Err(error) = self.file.write_all_at(&encode(revision), 0) {
            tracing::debug!(%error, "cannot write the store's mark");
        }
    }
}

fn encode(revision: Revision) -> [u8; 24] {
    let mut bytes = [0; 24];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..16].copy_from_slice(&revision.to_le_bytes());
    let sum = checksum(&[&bytes[..16]]);
    bytes[16..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

fn decode(bytes: &[u8]) -> Option<Revision> {
    let revision = u64::from_le_bytes(*bytes.get(8..)?.first_chunk()?);
    (bytes == encode(revision)).then_some(revision)
}
