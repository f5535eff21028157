//! Work on the embedded store of a directory that no server has open: look at it, go on with what
//! is left of a damaged one, restore a backup into it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::disk::{self, Contents, FILE, Salvaged, Start};
use super::mark::{self, Mark};
use crate::{Backup, Damaged, OpenError, Revision};

/// What is in a store's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The file that was read.
    pub path: PathBuf,
    /// The revision of the last transaction.
    pub revision: Revision,
    /// Objects, and what the API server keeps beside them.
    pub readable: usize,
    /// Each with its key, as far as that can be read.
    pub damaged: Vec<Damaged>,
    /// What is wrong with the file as a whole: why it would not be opened, or not as it is.
    pub problem: Option<String>,
}

impl Report {
    /// Whether nothing is wrong with it.
    pub fn is_well(&self) -> bool {
        self.damaged.is_empty() && self.problem.is_none()
    }
}

/// Where a store was put, and what it goes on with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The revision that the store goes on with.
    pub revision: Revision,
    /// How many entries it has.
    pub entries: usize,
    /// The file that was there before.
    pub kept: Option<PathBuf>,
}

/// Looks at all of a store, and changes nothing.
pub fn check(dir: &Path) -> Result<Report, OpenError> {
    let path = dir.join(FILE);
    let _lock = disk::lock(dir)?;
    let acknowledged = acknowledged(dir)?;
    disk::is_first_start(&path, Start::Again)?;
    disk::from_the_disk(&path)?;
    match disk::look(&path, acknowledged) {
        Ok((contents, _)) => Ok(Report {
            path,
            revision: contents.revision,
            readable: contents.entries.len(),
            damaged: contents.damaged.into_iter().map(|(key, _)| key).collect(),
            problem: None,
        }),
        Err(OpenError::Damaged { reason, .. }) => Ok(of_damaged(path, reason)?),
        Err(error) => Err(error),
    }
}

fn of_damaged(path: PathBuf, reason: String) -> Result<Report, OpenError> {
    let Salvaged { contents, tally } = disk::salvage(&read(&path)?).unwrap_or_else(|| Salvaged {
        contents: Contents {
            revision: 0,
            ..Contents::empty(0)
        },
        tally: None,
    });
    let found = (contents.entries.len() + contents.damaged.len()) as u64;
    let missing = tally.map_or(0, |tally| tally.records.saturating_sub(found));
    let problem = match missing {
        0 => reason,
        missing => format!("{reason}; {missing} more records cannot be found"),
    };
    Ok(Report {
        path,
        revision: contents.revision,
        readable: contents.entries.len(),
        damaged: contents.damaged.into_iter().map(|(key, _)| key).collect(),
        problem: Some(problem),
    })
}

/// Puts a file with everything that can be read in the place of a damaged one, and lets go of the
/// rest. The old file is kept. Does nothing to a store that is well.
pub fn repair(dir: &Path) -> Result<Restored, OpenError> {
    let path = dir.join(FILE);
    let _lock = disk::lock(dir)?;
    let acknowledged = acknowledged(dir)?;
    disk::is_first_start(&path, Start::Again)?;
    disk::from_the_disk(&path)?;
    let left = match disk::look(&path, acknowledged) {
        Ok((contents, _)) if contents.damaged.is_empty() => {
            return Ok(Restored {
                revision: contents.revision,
                entries: contents.entries.len(),
                kept: None,
            });
        }
        Ok((contents, _)) => contents,
        Err(OpenError::Damaged { reason, path }) => {
            let left = disk::salvage(&read(&path)?).map(|found| found.contents);
            left.filter(|left| !left.entries.is_empty())
                .ok_or(OpenError::Damaged { reason, path })?
        }
        Err(error) => return Err(error),
    };
    let backup = Backup::now(left.revision, left.entries);
    put(dir, backup, acknowledged)
}

/// Puts the contents of a backup in the place of what is there, if `replace` allows that.
pub fn restore(dir: &Path, backup: Backup, replace: bool) -> Result<Restored, OpenError> {
    disk::make_dir(dir).map_err(|error| disk::io_error(dir, error))?;
    let path = dir.join(FILE);
    let _lock = disk::lock(dir)?;
    let there = path.exists();
    if there && !replace {
        return Err(OpenError::InTheWay {
            place: path.display().to_string(),
        });
    }
    let mut known = acknowledged(dir)?;
    if there {
        disk::from_the_disk(&path)?;
        let before = disk::salvage(&read(&path)?);
        known = known.max(before.map_or(0, |before| before.contents.revision));
    }
    put(dir, backup, known)
}

fn put(dir: &Path, backup: Backup, known: Revision) -> Result<Restored, OpenError> {
    let path = dir.join(FILE);
    let kept = keep(&path, backup.revision.max(known))?;
    let contents = Contents {
        revision: backup.next_revision(known),
        entries: backup.entries,
        damaged: Vec::new(),
    };
    disk::build(dir, &contents)?;
    Mark::open(dir, contents.revision).map_err(|error| disk::io_error(dir, error))?;
    Ok(Restored {
        revision: contents.revision,
        entries: contents.entries.len(),
        kept,
    })
}

/// Links the file to another name, if there is one, so that nothing is lost by replacing it.
fn keep(path: &Path, revision: Revision) -> Result<Option<PathBuf>, OpenError> {
    let kept = path.with_extension(format!("redb.before-{revision}"));
    match fs::hard_link(path, &kept) {
        Ok(()) => Ok(Some(kept)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(Some(kept)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(disk::io_error(&kept, error)),
    }
}

fn acknowledged(dir: &Path) -> Result<Revision, OpenError> {
    let mark = mark::find(dir).map_err(|error| disk::io_error(&dir.join(mark::FILE), error))?;
    Ok(match mark {
        mark::Found::Acknowledged(revision) => revision,
        mark::Found::Nothing | mark::Found::Unreadable => 0,
    })
}

fn read(path: &Path) -> Result<Bytes, OpenError> {
    let bytes = fs::read(path).map_err(|error| disk::io_error(path, error))?;
    Ok(Bytes::from(bytes))
}
