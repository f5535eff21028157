//! The redb file: its layout, opening it, reading it whole, and writing a batch durably.
//!
//! Table `objects`: key to a record (`record`). Table `meta`: `format` (the version of this
//! layout), `revision` (the newest that was committed), `records` and `digest` (how many records
//! there are, and the sum of their checksums) and `checksum` (of the four). Table `damaged`: key to
//! a record that was found damaged. Format 1 had no checksums; it is brought up when it is opened.
//!
//! A file is tried before it is opened: redb repairs what it opens, and goes back to an older
//! commit where the newest is damaged.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use redb::backends::FileBackend;
use redb::{
    Database, DatabaseError, ReadTransaction, ReadableDatabase, ReadableTable, StorageBackend,
    StorageError, TableDefinition, TableError,
};

use super::backend::{Fault, Faults, Trial, Watched};
use super::guard::guarded;
use super::mark::{self, Mark};
use super::record::{self, Tally};
use super::salvage;
use crate::backup::JUMP;
use crate::mirror::Commit;
use crate::{Damaged, Entry, OpenError, Revision};

pub(super) const FILE: &str = "portico.redb";
/// Made beside and then put in its place, so that there is never half a store.
const NEW_FILE: &str = "portico.redb.new";
const FORMAT: u64 = 2;
const FORMAT_WITHOUT_CHECKSUMS: u64 = 1;
/// A file is read through once: what was read need not be remembered.
const LOOK_CACHE: usize = 4 << 20;
/// What a store begins with.
const FIRST_REVISION: Revision = 1;
const OBJECTS: TableDefinition<&str, &[u8]> = TableDefinition::new("objects");
const DAMAGED: TableDefinition<&str, &[u8]> = TableDefinition::new("damaged");
const META: TableDefinition<&str, u64> = TableDefinition::new("meta");

/// Everything the file holds.
#[derive(Debug)]
pub(super) struct Contents {
    pub revision: Revision,
    pub entries: Vec<Entry>,
    /// What cannot be read, with what is left of its record.
    pub damaged: Vec<(Damaged, Bytes)>,
}

/// What is known of the store before it is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Start {
    /// Nothing says that there was one.
    First,
    /// There was one.
    Again,
    /// There may have been one, and a new one is asked for.
    Anew,
}

impl Contents {
    /// The contents of a new store. Its revisions are above those of one that was there before.
    pub(super) fn empty(before: Revision) -> Self {
        let revision = match before {
            0 => FIRST_REVISION,
            before => before.saturating_add(JUMP),
        };
        Self {
            revision,
            entries: Vec::new(),
            damaged: Vec::new(),
        }
    }
}

pub(super) struct Disk {
    database: Database,
    path: PathBuf,
    tally: Tally,
    faults: Faults,
    /// `None` in tests that have no directory.
    mark: Option<Mark>,
    /// The lock of the directory, held as long as the store is open.
    _lock: Option<Lock>,
}

impl Disk {
    /// Opens the store of a directory, and makes one where `start` allows that.
    pub(super) fn open(
        dir: &Path,
        cache_bytes: usize,
        start: Start,
    ) -> Result<(Self, Contents), OpenError> {
        make_dir(dir).map_err(|error| io_error(dir, error))?;
        let lock = lock(dir)?;
        let path = dir.join(FILE);
        let mark = mark::find(dir).map_err(|error| io_error(dir, error))?;
        let start = match mark {
            mark::Found::Nothing => start,
            _ => start.max(Start::Again),
        };
        let acknowledged = match mark {
            mark::Found::Acknowledged(revision) => revision,
            _ => 0,
        };
        if is_first_start(&path, start)? {
            build(dir, &Contents::empty(acknowledged))?;
        }
        from_the_disk(&path)?;
        let (contents, tally) = match look(&path, acknowledged) {
            Err(OpenError::Damaged { reason, .. }) => {
                mend(dir, acknowledged, &reason)?;
                look(&path, acknowledged)?
            }
            looked => looked?,
        };
        let file = open_file(&path).map_err(|error| io_error(&path, error))?;
        let backend = FileBackend::new(file).map_err(|error| database_error(&path, error))?;
        let mut disk = Self::on(backend, path, cache_bytes)?;
        if disk.tally != tally {
            return Err(damaged(&disk.path, "it changed while it was opened"));
        }
        let mark = Mark::open(dir, contents.revision).map_err(|error| io_error(dir, error))?;
        (disk.mark, disk._lock) = (Some(mark), lock);
        Ok((disk, contents))
    }

    /// The store on any backend, whatever it is called in messages.
    pub(super) fn on(
        backend: impl StorageBackend,
        path: PathBuf,
        cache_bytes: usize,
    ) -> Result<Self, OpenError> {
        let faults = Faults::default();
        let backend = Watched {
            inner: backend,
            faults: faults.clone(),
        };
        without_panic(&path.clone(), || {
            let database = Database::builder()
                .set_cache_size(cache_bytes)
                .create_with_backend(backend)
                .map_err(|error| database_error(&path, error))?;
            bring_up(&database, &path)?;
            Ok(Self {
                tally: tally(&database, &path)?,
                database,
                path,
                faults,
                mark: None,
                _lock: None,
            })
        })
    }

    #[cfg(test)]
    pub(super) fn load(&self) -> Result<Contents, OpenError> {
        load(&self.database, &self.path).map(|(contents, _)| contents)
    }

    /// Makes commits durable, all or none, with one sync of the disk.
    pub(super) fn write(&mut self, commits: &[Commit]) -> Result<(), Fault> {
        let (database, mut tally) = (&self.database, self.tally);
        let written = guarded(|| write(database, commits, &mut tally));
        match written {
            Some(Ok(())) => {
                self.tally = tally;
                if let Some(mark) = &self.mark {
                    mark.acknowledge(tally.revision);
                }
                Ok(())
            }
            Some(Err(error)) => Err(self.fault(&error.to_string())),
            None => Err(Fault::Lost(format!(
                "{} is damaged: run portico store check",
                self.path.display()
            ))),
        }
    }

    /// Whether the disk takes a write again: writes what is there already.
    pub(super) fn probe(&mut self) -> Result<(), Fault> {
        let commit = Commit {
            revision: self.tally.revision,
            changes: Vec::new(),
        };
        self.write(&[commit])
    }

    fn fault(&self, error: &str) -> Fault {
        let place = self.path.display();
        match self.faults.worst() {
            Some(Fault::Full(text)) => Fault::Full(format!("{place}: {text}")),
            Some(Fault::Lost(text)) => Fault::Lost(format!("{place}: {text}")),
            None => Fault::Lost(format!("{place}: {error}")),
        }
    }
}

fn write(database: &Database, commits: &[Commit], tally: &mut Tally) -> Result<(), redb::Error> {
    let write = database.begin_write()?;
    {
        let mut objects = write.open_table(OBJECTS)?;
        for change in commits.iter().flat_map(|commit| &commit.changes) {
            let before = match &change.now {
                Some(entry) => {
                    let record = record::encode(entry);
                    tally.add(&record);
                    objects.insert(&*change.key, &*record)?
                }
                None => objects.remove(&*change.key)?,
            };
            if let Some(before) = before {
                tally.remove(before.value());
            }
        }
    }
    tally.revision = commits
        .last()
        .map_or(tally.revision, |commit| commit.revision);
    put_tally(&write, *tally)?;
    Ok(write.commit()?)
}

fn put_tally(write: &redb::WriteTransaction, tally: Tally) -> Result<(), redb::Error> {
    let mut meta = write.open_table(META)?;
    for (name, number) in [
        ("format", FORMAT),
        ("revision", tally.revision),
        ("records", tally.records),
        ("digest", tally.digest),
        ("checksum", tally.checksum(FORMAT)),
    ] {
        meta.insert(name, number)?;
    }
    Ok(())
}

/// Brings a database to this format.
fn bring_up(database: &Database, path: &Path) -> Result<(), OpenError> {
    let storage = |error| redb_error(path, error);
    match get_meta(database, "format").map_err(storage)? {
        None => put_all(database, &Contents::empty(0)).map_err(storage)?,
        Some(FORMAT) => {}
        Some(FORMAT_WITHOUT_CHECKSUMS) => {
            let contents = load_without_checksums(database, path)?;
            put_all(database, &contents).map_err(storage)?;
            tracing::info!(path = %path.display(), "gave the store checksums");
        }
        Some(0) => return Err(damaged(path, "its format is not known")),
        Some(found) => {
            return Err(OpenError::Newer {
                place: path.display().to_string(),
                found,
                known: FORMAT,
            });
        }
    }
    Ok(())
}

/// Writes everything in one transaction.
fn put_all(database: &Database, contents: &Contents) -> Result<(), redb::Error> {
    let write = database.begin_write()?;
    let mut tally = Tally {
        revision: contents.revision,
        records: 0,
        digest: 0,
    };
    {
        let mut objects = write.open_table(OBJECTS)?;
        for entry in &contents.entries {
            let record = record::encode(entry);
            tally.add(&record);
            objects.insert(&*entry.key, &*record)?;
        }
        let mut damaged = write.open_table(DAMAGED)?;
        for (found, record) in &contents.damaged {
            damaged.insert(&*found.key, &**record)?;
        }
    }
    put_tally(&write, tally)?;
    Ok(write.commit()?)
}

fn get_meta(database: &Database, name: &str) -> Result<Option<u64>, redb::Error> {
    match database.begin_read()?.open_table(META) {
        Ok(meta) => Ok(meta.get(name)?.map(|number| number.value())),
        Err(TableError::TableDoesNotExist(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The records of a table; none if there is no such table.
fn records(
    read: &ReadTransaction,
    table: TableDefinition<&str, &[u8]>,
) -> Result<Vec<(String, Bytes)>, redb::Error> {
    let table = match read.open_table(table) {
        Ok(table) => table,
        Err(TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let copied = table.iter()?.map(|record| {
        let (key, value) = record?;
        Ok((
            key.value().to_owned(),
            Bytes::copy_from_slice(value.value()),
        ))
    });
    copied.collect()
}

fn load_without_checksums(database: &Database, path: &Path) -> Result<Contents, OpenError> {
    let storage = |error| redb_error(path, error);
    let revision = get_meta(database, "revision").map_err(storage)?;
    let read = database
        .begin_read()
        .map_err(|error| storage(error.into()))?;
    let decode = |(key, record): (String, Bytes)| {
        record::decode_old(&key, &record)
            .ok_or_else(|| damaged(path, &format!("the record of {key} is too short")))
    };
    let entries = records(&read, OBJECTS).map_err(storage)?.into_iter();
    Ok(Contents {
        revision: revision.unwrap_or(FIRST_REVISION),
        entries: entries.map(decode).collect::<Result<_, _>>()?,
        damaged: Vec::new(),
    })
}

/// What the file says of all its records.
fn tally(database: &Database, path: &Path) -> Result<Tally, OpenError> {
    let number = |name| -> Result<u64, OpenError> {
        get_meta(database, name)
            .map_err(|error| redb_error(path, error))?
            .ok_or_else(|| damaged(path, &format!("it has no {name}")))
    };
    let tally = Tally {
        revision: number("revision")?,
        records: number("records")?,
        digest: number("digest")?,
    };
    if number("checksum")? != tally.checksum(FORMAT) {
        return Err(damaged(path, "the checksum of its tally is wrong"));
    }
    Ok(tally)
}

/// Everything, if all of it is as it was written. What was set aside before is no new damage.
fn load(database: &Database, path: &Path) -> Result<(Contents, Tally), OpenError> {
    let storage = |error| redb_error(path, error);
    let tally = tally(database, path)?;
    let read = database
        .begin_read()
        .map_err(|error| storage(error.into()))?;
    let mut seen = Tally {
        revision: tally.revision,
        records: 0,
        digest: 0,
    };
    let mut entries = Vec::new();
    for (key, record) in records(&read, OBJECTS).map_err(storage)? {
        seen.add(&record);
        let entry = record::decode(&key, &record);
        entries.push(entry.map_err(|what| damaged(path, &format!("{key}: {what}")))?);
    }
    if seen != tally {
        return Err(damaged(
            path,
            "records are missing, or are older than they should be",
        ));
    }
    let aside = records(&read, DAMAGED).map_err(storage)?.into_iter();
    let damaged = aside.map(|(key, record)| {
        let what = "it was found damaged before".to_owned();
        (Damaged { key, what }, record)
    });
    let contents = Contents {
        revision: tally.revision,
        entries,
        damaged: damaged.collect(),
    };
    Ok((contents, tally))
}

/// Whether everything in the file is as it was written, without changing it.
pub(super) fn look(path: &Path, acknowledged: Revision) -> Result<(Contents, Tally), OpenError> {
    let file = File::open(path).map_err(|error| io_error(path, error))?;
    let trial = Trial::new(file).map_err(|error| io_error(path, error))?;
    let (contents, tally) = without_panic(path, || {
        let mut database = Database::builder()
            .set_cache_size(LOOK_CACHE)
            .create_with_backend(trial)
            .map_err(|error| database_error(path, error))?;
        // Pages have checksums too: before anything is followed, and before values that had none
        // get some.
        let sound = database
            .check_integrity()
            .map_err(|error| database_error(path, error))?;
        if !sound {
            return Err(damaged(path, "its pages do not fit together"));
        }
        bring_up(&database, path)?;
        load(&database, path)
    })?;
    if contents.revision < acknowledged {
        return Err(damaged(
            path,
            &format!(
                "it ends at revision {}, and {acknowledged} was acknowledged",
                contents.revision
            ),
        ));
    }
    Ok((contents, tally))
}

/// Puts a file with everything that is good in the place of a damaged one, which is kept beside it.
/// Refuses if not every object is accounted for.
fn mend(dir: &Path, acknowledged: Revision, reason: &str) -> Result<(), OpenError> {
    let path = dir.join(FILE);
    let bytes = fs::read(&path).map_err(|error| io_error(&path, error))?;
    let found = salvage(&Bytes::from(bytes));
    let Some(contents) = found.filter(|found| found.is_whole(acknowledged)) else {
        return Err(damaged(&path, reason));
    };
    let kept = path.with_extension(format!("redb.damaged-{}", contents.contents.revision));
    // A link: the file itself stays where it is until the new one takes its place.
    match fs::hard_link(&path, &kept) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(io_error(&kept, error));
        }
        _ => {}
    }
    for (found, _) in &contents.contents.damaged {
        tracing::error!(key = found.key, "an object is damaged: {}", found.what);
    }
    tracing::error!(
        reason,
        damaged = contents.contents.damaged.len(),
        kept = %kept.display(),
        "the store was damaged; what is good goes on in a new file"
    );
    build(dir, &contents.contents)
}

/// What can be had of a damaged file.
#[derive(Debug)]
pub(super) struct Salvaged {
    pub contents: Contents,
    /// What the file says of itself, if that is readable.
    pub tally: Option<Tally>,
}

impl Salvaged {
    /// Whether every record that should be there is there, be it damaged, and nothing newer was
    /// acknowledged.
    pub(super) fn is_whole(&self, acknowledged: Revision) -> bool {
        let found = self.contents.entries.len() + self.contents.damaged.len();
        self.tally.is_some_and(|tally| {
            tally.records == found as u64 && tally.revision >= acknowledged.max(1)
        })
    }
}

/// The newest state that a file has, read record by record. `None` if it is not readable at all, or
/// is from before there were checksums.
pub(super) fn salvage(file: &Bytes) -> Option<Salvaged> {
    let states = salvage::read(file).into_iter().map(judge);
    let states = states.filter(|state| state.tally.is_some() || !state.contents.entries.is_empty());
    states.max_by_key(|state| {
        (
            state.tally.map_or(0, |tally| tally.revision),
            state.contents.entries.len(),
        )
    })
}

fn judge(found: salvage::Found) -> Salvaged {
    let number = |name: &str| found.meta.get(name).copied();
    let tally = (|| {
        let tally = Tally {
            revision: number("revision")?,
            records: number("records")?,
            digest: number("digest")?,
        };
        (tally.checksum(FORMAT) == number("checksum")?).then_some(tally)
    })();
    let (mut entries, mut damaged) = (Vec::new(), Vec::new());
    let mut seen = Tally {
        revision: tally.map_or(0, |tally| tally.revision),
        records: 0,
        digest: 0,
    };
    for (key, record) in found.objects {
        seen.add(&record);
        match record::decode(&key, &record) {
            Ok(entry) => entries.push(entry),
            Err(what) => {
                let what = what.to_owned();
                damaged.push((Damaged { key, what }, record));
            }
        }
    }
    entries.sort_by(|one, other| one.key.cmp(&other.key));
    let newest = entries.iter().map(|entry| entry.modified).max();
    // Good records that do not add up are older versions of themselves.
    let tally = tally.filter(|tally| !damaged.is_empty() || *tally == seen);
    Salvaged {
        contents: Contents {
            revision: tally.map_or(newest.unwrap_or(FIRST_REVISION), |tally| tally.revision),
            entries,
            damaged,
        },
        tally,
    }
}

/// Makes a store with these contents and puts it in its place, whole or not at all.
pub(super) fn build(dir: &Path, contents: &Contents) -> Result<(), OpenError> {
    let (new, path) = (dir.join(NEW_FILE), dir.join(FILE));
    let failed = |error| io_error(&new, error);
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let file = open_file(&new).map_err(failed)?;
    let database = Database::builder()
        .set_cache_size(LOOK_CACHE)
        .create_file(file)
        .map_err(|error| database_error(&new, error))?;
    put_all(&database, contents).map_err(|error| redb_error(&new, error))?;
    drop(database);
    File::open(&new)
        .and_then(|file| file.sync_all())
        .map_err(failed)?;
    fs::rename(&new, &path).map_err(|error| io_error(&path, error))?;
    sync_dir(dir).map_err(|error| io_error(dir, error))
}

/// Whether there never was a store here. A file that is missing or empty where there was one is an
/// error, unless a new one is asked for.
pub(super) fn is_first_start(path: &Path, start: Start) -> Result<bool, OpenError> {
    let len = match fs::metadata(path) {
        Ok(found) => Some(found.len()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(io_error(path, error)),
    };
    let path = || path.to_owned();
    match (len, start) {
        (None | Some(0), Start::Anew) => Ok(true),
        (Some(_), Start::Anew) => Err(OpenError::Exists { path: path() }),
        (None, Start::First) => Ok(true),
        (None, Start::Again) => Err(OpenError::Missing {
            path: path(),
            what: "missing",
        }),
        (Some(0), _) => Err(OpenError::Missing {
            path: path(),
            what: "empty",
        }),
        (Some(_), _) => Ok(false),
    }
}

/// Lets the kernel forget what it remembers of a file, so that what is read next is what the disk
/// has. After a failed sync the two may differ.
pub(super) fn from_the_disk(path: &Path) -> Result<(), OpenError> {
    let failed = |error| io_error(path, error);
    let file = File::open(path).map_err(failed)?;
    // A server of an older version locks the file alone.
    match file.try_lock() {
        Ok(()) => file.unlock().map_err(failed)?,
        Err(fs::TryLockError::WouldBlock) => {
            return Err(OpenError::Locked {
                path: path.to_owned(),
            });
        }
        Err(fs::TryLockError::Error(error)) => tracing::debug!(%error, "cannot lock the store"),
    }
    file.sync_all().map_err(failed)?;
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)
        .map_err(|error| failed(error.into()))
}

/// Writes as much as a small commit takes, durably, and removes it.
pub(super) fn write_something(dir: &Path) -> io::Result<()> {
    static SMALL: [u8; 64 << 10] = [1; 64 << 10];
    let path = dir.join("portico.probe");
    let written = fs::write(&path, SMALL).and_then(|()| File::open(&path)?.sync_all());
    fs::remove_file(&path).and(written)
}

/// A lock that ends with this, and not only when a process that was forked meanwhile lets go of its
/// copy of the file as well.
pub(super) struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing the file does the same, later.
        let _ = self.0.unlock();
    }
}

/// Takes the directory for this process. Where directories cannot be locked, redb's lock on the
/// file is all there is.
pub(super) fn lock(dir: &Path) -> Result<Option<Lock>, OpenError> {
    let file = File::open(dir).map_err(|error| io_error(dir, error))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(Lock(file))),
        Err(fs::TryLockError::WouldBlock) => Err(OpenError::Locked {
            path: dir.to_owned(),
        }),
        Err(fs::TryLockError::Error(error)) => {
            tracing::debug!(%error, "cannot lock the store's directory");
            Ok(None)
        }
    }
}

/// redb may meet what it does not expect in a damaged file: an error, like all others.
fn without_panic<T>(
    path: &Path,
    work: impl FnOnce() -> Result<T, OpenError>,
) -> Result<T, OpenError> {
    guarded(work).unwrap_or_else(|| Err(damaged(path, "its structure makes no sense")))
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

/// Makes the directory if it is not there, so that it outlives a crash.
pub(super) fn make_dir(dir: &Path) -> io::Result<()> {
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

pub(super) fn io_error(path: &Path, source: io::Error) -> OpenError {
    let path = path.to_owned();
    match source.kind() {
        io::ErrorKind::PermissionDenied => OpenError::Permission { path, source },
        _ => OpenError::Storage {
            path,
            source: source.into(),
        },
    }
}

fn damaged(path: &Path, reason: &str) -> OpenError {
    OpenError::Damaged {
        path: path.to_owned(),
        reason: reason.to_owned(),
    }
}

fn redb_error(path: &Path, error: redb::Error) -> OpenError {
    match error {
        redb::Error::Corrupted(reason) => damaged(path, &reason),
        redb::Error::TableTypeMismatch { .. } | redb::Error::TypeDefinitionChanged { .. } => {
            damaged(path, &error.to_string())
        }
        other => OpenError::Storage {
            path: path.to_owned(),
            source: other.into(),
        },
    }
}

fn database_error(path: &Path, error: DatabaseError) -> OpenError {
    match error {
        DatabaseError::DatabaseAlreadyOpen => OpenError::Locked {
            path: path.to_owned(),
        },
        DatabaseError::Storage(StorageError::Corrupted(reason)) => damaged(path, &reason),
        DatabaseError::Storage(StorageError::Io(error)) => match error.kind() {
            io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => {
                damaged(path, &error.to_string())
            }
            _ => io_error(path, error),
        },
        DatabaseError::UpgradeRequired(version) => damaged(
            path,
            &format!("redb's format {version} was never used by a store"),
        ),
        other => OpenError::Storage {
            path: path.to_owned(),
            source: other.into(),
        },
    }
}
