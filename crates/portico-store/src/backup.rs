//! Everything that a store holds at one revision, as a file: written by a running server, read back
//! whole before anything is restored from it.
//!
//! The file is a line that names its format; the revision, the second since 1970 in which it was
//! made, and how many entries follow (little-endian u64); for each entry the lengths of key and
//! value (u32), `created` and `modified` (u64), key and value; and the SHA-256 of all that.

use std::io::{self, Read};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::{BufMut, Bytes, BytesMut};
use ring::digest::{Context, SHA256, SHA256_OUTPUT_LEN};

use crate::types::topic_of;
use crate::{Entry, Revision};

const MAGIC: &[u8] = b"portico backup 1\n";
/// What is sent at once.
const PIECE: usize = 64 << 10;
/// No key and no value is nearly as long: a length that was altered must not ask for memory.
const LONGEST: usize = 64 << 20;
/// So far are revisions ahead after a restore. More writes than that between a backup and its
/// restore would show watchers an old revision as a new one.
pub(crate) const JUMP: Revision = 1_000_000_000;

/// The contents of a store at one revision.
#[derive(Clone, Debug, PartialEq)]
pub struct Backup {
    /// The revision at which the contents were read.
    pub revision: Revision,
    /// Seconds since 1970.
    pub made: u64,
    /// Every entry, in the order of keys.
    pub entries: Vec<Entry>,
}

/// Why a file cannot be restored.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// It does not begin as a backup of a known version does.
    #[error("this is no backup of Portico's, or of a version that this program does not know")]
    Unknown,
    /// A checksum or a length is wrong.
    #[error("the backup is damaged: {0}; use another one")]
    Damaged(&'static str),
    /// The file cannot be read.
    #[error("cannot read the backup")]
    Read(#[from] io::Error),
}

impl Backup {
    pub(crate) fn now(revision: Revision, entries: Vec<Entry>) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            revision,
            made: since.map_or(0, |since| since.as_secs()),
            entries,
        }
    }

    /// The revision that a store goes on with that was at `known` and gets this: greater than any
    /// that any client has seen.
    pub(crate) fn next_revision(&self, known: Revision) -> Revision {
        self.revision.max(known).saturating_add(JUMP)
    }

    /// The file, in pieces.
    pub fn into_pieces(self) -> impl Iterator<Item = Bytes> + Send {
        let context = Context::new(&SHA256);
        let mut head = BytesMut::from(MAGIC);
        head.put_u64_le(self.revision);
        head.put_u64_le(self.made);
        head.put_u64_le(self.entries.len() as u64);
        let mut entries = self.entries.into_iter().peekable();
        let mut next = Some((head, context));
        std::iter::from_fn(move || {
            let (mut piece, mut context) = next.take()?;
            while piece.len() < PIECE
                && let Some(entry) = entries.next()
            {
                put(&mut piece, &entry);
            }
            context.update(&piece);
            if entries.peek().is_some() {
                next = Some((BytesMut::with_capacity(PIECE), context));
            } else {
                piece.put_slice(context.finish().as_ref());
            }
            Some(piece.freeze())
        })
    }

    /// Reads a file to its end. Nothing of one that is damaged is returned.
    pub fn read(from: impl Read) -> Result<Self, BackupError> {
        let mut source = Source {
            from,
            context: Context::new(&SHA256),
        };
        if source
            .take::<{ MAGIC.len() }>()
            .ok()
            .as_ref()
            .map(|magic| &magic[..])
            != Some(MAGIC)
        {
            return Err(BackupError::Unknown);
        }
        let (revision, made, count) = (source.number()?, source.number()?, source.number()?);
        let mut entries = Vec::new();
        for _ in 0..count {
            entries.push(source.entry()?);
        }
        source.end()?;
        Ok(Self {
            revision,
            made,
            entries,
        })
    }
}

fn put(piece: &mut BytesMut, entry: &Entry) {
    piece.put_u32_le(entry.key.len() as u32);
    piece.put_u32_le(entry.value.len() as u32);
    piece.put_u64_le(entry.created);
    piece.put_u64_le(entry.modified);
    piece.put_slice(entry.key.as_bytes());
    piece.put_slice(&entry.value);
}

struct Source<R> {
    from: R,
    context: Context,
}

impl<R: Read> Source<R> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], BackupError> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), BackupError> {
        self.from.read_exact(bytes).map_err(cut)?;
        self.context.update(bytes);
        Ok(())
    }

    fn number(&mut self) -> Result<u64, BackupError> {
        Ok(u64::from_le_bytes(self.take()?))
    }

    fn entry(&mut self) -> Result<Entry, BackupError> {
        let key = u32::from_le_bytes(self.take()?) as usize;
        let value = u32::from_le_bytes(self.take()?) as usize;
        if key > LONGEST || value > LONGEST {
            return Err(BackupError::Damaged("a length makes no sense"));
        }
        let (created, modified) = (self.number()?, self.number()?);
        let mut bytes = vec![0; key + value];
        self.fill(&mut bytes)?;
        let bytes = Bytes::from(bytes);
        let key = std::str::from_utf8(&bytes[..key])
            .ok()
            .filter(|key| topic_of(key).is_some_and(|topic| !topic.is_empty()))
            .ok_or(BackupError::Damaged("a key makes no sense"))?;
        Ok(Entry {
            key: key.into(),
            value: bytes.slice(key.len()..),
            created,
            modified,
        })
    }

    fn end(mut self) -> Result<(), BackupError> {
        let expected = self.context.finish();
        let mut found = [0; SHA256_OUTPUT_LEN];
        self.from.read_exact(&mut found).map_err(cut)?;
        if found != expected.as_ref() {
            return Err(BackupError::Damaged("its checksum is wrong"));
        }
        match self.from.read(&mut [0])? {
            0 => Ok(()),
            _ => Err(BackupError::Damaged("something follows its end")),
        }
    }
}

fn cut(error: io::Error) -> BackupError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => BackupError::Damaged("it is cut short"),
        _ => error.into(),
    }
}
