//! The redb file: its layout, opening it, reading it whole, and writing a batch durably.
//!
//! Table `objects`: key to `created` and `modified` (little-endian u64) and the value. Table
//! `meta`: `format` (the version of this layout) and `revision` (the newest that was committed).

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use bytes::{BufMut, Bytes, BytesMut};
use redb::{
    Database, DatabaseError, ReadableDatabase, ReadableTable, StorageError, TableDefinition,
    TableError,
};

use crate::mirror::Commit;
use crate::{Entry, OpenError, Revision};

const FILE: &str = "portico.redb";
const FORMAT: u64 = 1;
const HEADER: usize = 16;
const OBJECTS: TableDefinition<&str, &[u8]> = TableDefinition::new("objects");
const META: TableDefinition<&str, u64> = TableDefinition::new("meta");

/// Everything the file holds.
pub(super) struct Contents {
    pub revision: Revision,
    pub entries: Vec<Entry>,
}

pub(super) struct Disk {
    database: Database,
    path: PathBuf,
}

impl Disk {
    pub fn open(dir: &Path, cache_bytes: usize) -> Result<(Disk, Contents), OpenError> {
        make_dir(dir).map_err(|error| io_error(dir, error))?;
        let path = dir.join(FILE);
        let file = open_file(&path).map_err(|error| io_error(&path, error))?;
        let database = Database::builder()
            .set_cache_size(cache_bytes)
            .create_file(file)
            .map_err(|error| database_error(&path, error))?;
        let disk = Disk { database, path };
        disk.prepare()?;
        sync_dir(dir).map_err(|error| io_error(dir, error))?;
        let contents = disk.load()?;
        Ok((disk, contents))
    }

    #[cfg(test)]
    pub fn with(database: Database, path: PathBuf) -> Disk {
        Disk { database, path }
    }

    fn prepare(&self) -> Result<(), OpenError> {
        let found = self.format().map_err(|error| self.storage(error))?;
        match found {
            Some(found) if found > FORMAT => Err(OpenError::Newer {
                place: self.path.display().to_string(),
                found,
                known: FORMAT,
            }),
            Some(_) => Ok(()),
            None => self.write_format().map_err(|error| self.storage(error)),
        }
    }

    fn format(&self) -> Result<Option<u64>, redb::Error> {
        match self.database.begin_read()?.open_table(META) {
            Ok(meta) => Ok(meta.get("format")?.map(|format| format.value())),
            Err(TableError::TableDoesNotExist(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn write_format(&self) -> Result<(), redb::Error> {
        let write = self.database.begin_write()?;
        write.open_table(META)?.insert("format", FORMAT)?;
        write.open_table(META)?.insert("revision", 1)?;
        write.open_table(OBJECTS)?;
        Ok(write.commit()?)
    }

    fn load(&self) -> Result<Contents, OpenError> {
        let (revision, records) = self.records().map_err(|error| self.storage(error))?;
        let damaged = |key: &str| OpenError::Damaged {
            path: self.path.clone(),
            reason: format!("the record of {key} is too short"),
        };
        let entries = records
            .into_iter()
            .map(|(key, record)| decode(&key, &record).ok_or_else(|| damaged(&key)));
        Ok(Contents {
            revision,
            entries: entries.collect::<Result<_, _>>()?,
        })
    }

    fn records(&self) -> Result<(Revision, Vec<(String, Bytes)>), redb::Error> {
        let read = self.database.begin_read()?;
        let revision = read
            .open_table(META)?
            .get("revision")?
            .map_or(1, |revision| revision.value());
        let objects = read.open_table(OBJECTS)?;
        let records = objects.iter()?.map(|record| {
            let (key, value) = record?;
            Ok((
                key.value().to_owned(),
                Bytes::copy_from_slice(value.value()),
            ))
        });
        Ok((revision, records.collect::<Result<_, redb::Error>>()?))
    }

    /// Makes commits durable, all or none, with one sync of the disk.
    pub fn write(&self, commits: &[Commit]) -> Result<(), redb::Error> {
        let write = self.database.begin_write()?;
        {
            let mut objects = write.open_table(OBJECTS)?;
            for change in commits.iter().flat_map(|commit| &commit.changes) {
                match &change.now {
                    Some(entry) => drop(objects.insert(&*change.key, &*encode(entry))?),
                    None => drop(objects.remove(&*change.key)?),
                }
            }
            let revision = commits.last().map_or(0, |commit| commit.revision);
            write.open_table(META)?.insert("revision", revision)?;
        }
        Ok(write.commit()?)
    }

    fn storage(&self, error: redb::Error) -> OpenError {
        match error {
            redb::Error::Corrupted(reason) => OpenError::Damaged {
                path: self.path.clone(),
                reason,
            },
            other => OpenError::Storage {
                path: self.path.clone(),
                source: other.into(),
            },
        }
    }
}

fn encode(entry: &Entry) -> BytesMut {
    let mut record = BytesMut::with_capacity(HEADER + entry.value.len());
    record.put_u64_le(entry.created);
    record.put_u64_le(entry.modified);
    record.put_slice(&entry.value);
    record
}

fn decode(key: &str, record: &Bytes) -> Option<Entry> {
    let (created, rest) = record.split_first_chunk::<8>()?;
    let (modified, _) = rest.split_first_chunk::<8>()?;
    let value = record.slice(HEADER..);
    Some(Entry {
        key: key.into(),
        value,
        created: u64::from_le_bytes(*created),
        modified: u64::from_le_bytes(*modified),
    })
}

/// Objects may be secrets: the file is for its owner alone.
fn open_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
}

/// So is the directory, if it is new.
fn make_dir(dir: &Path) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    match dir.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => sync_dir(parent),
        _ => sync_dir(Path::new(".")),
    }
}

fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

fn io_error(path: &Path, source: io::Error) -> OpenError {
    let path = path.to_owned();
    match source.kind() {
        io::ErrorKind::PermissionDenied => OpenError::Permission { path, source },
        _ => OpenError::Storage {
            path,
            source: source.into(),
        },
    }
}

fn database_error(path: &Path, error: DatabaseError) -> OpenError {
    let damaged = |reason| OpenError::Damaged {
        path: path.to_owned(),
        reason,
    };
    match error {
        DatabaseError::DatabaseAlreadyOpen => OpenError::Locked {
            path: path.to_owned(),
        },
        DatabaseError::Storage(StorageError::Corrupted(reason)) => damaged(reason),
        DatabaseError::Storage(StorageError::Io(error))
            if error.kind() == io::ErrorKind::InvalidData =>
        {
            damaged(error.to_string())
        }
        DatabaseError::Storage(StorageError::Io(error)) => io_error(path, error),
        other => OpenError::Storage {
            path: path.to_owned(),
            source: other.into(),
        },
    }
}
