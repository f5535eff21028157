//! The last known objects on disk, so that a node that starts without an API server forwards what
//! it last knew.
//!
//! A file of lines, one for each object that changed; the last line about an object counts. Changes
//! are left in memory; a thread writes what has gathered, once a minute, and rewrites the file when
//! more than half of it is of no use. A line that was cut off by a crash is ignored.

mod file;

use crate::objects::{Kind, Name, Object};
use file::File;
use portico_model::objects::Metadata;
use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The time between two writes. To wake the thread costs more than what it writes.
const PAUSE: Duration = Duration::from_secs(60);
/// The time between tries to write that fail.
const AGAIN: Duration = Duration::from_secs(1);
/// So many changes are left as they are; more are made lines at once, which take less memory.
const FEW: usize = 64;
/// More than this is not left in memory for the pause.
const MUCH: usize = 128 << 10;
/// A disk that is so far behind is given up.
const TOO_MUCH: usize = 32 << 20;

/// Which object, in one text: there are many of them.
type Key = Arc<str>;

fn key(kind: Kind, namespace: &str, name: &str) -> Key {
    [kind.plural(), "/", namespace, "/", name].concat().into()
}

fn key_of(object: &Object) -> Key {
    let metadata = object.metadata();
    key(object.kind(), &metadata.namespace, &metadata.name)
}

/// Objects of the same revision are the same.
fn revision(metadata: &Metadata) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&metadata.uid, &metadata.resource_version).hash(&mut hasher);
    hasher.finish()
}

/// Lines to be written, one after the other.
#[derive(Default)]
struct Lines {
    bytes: Vec<u8>,
    /// What each is about, whether the object is there, and how many bytes it has.
    entries: Vec<(Key, bool, usize)>,
}

impl Lines {
    fn apply(&mut self, key: Key, object: &Object) {
        self.add(key, true, |bytes| file::write_apply(bytes, object));
    }

    fn delete(&mut self, key: Key) {
        self.add(Arc::clone(&key), false, |bytes| {
            file::write_delete(bytes, &key)
        });
    }

    fn add(&mut self, key: Key, there: bool, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        write(&mut self.bytes);
        self.entries.push((key, there, self.bytes.len() - start));
    }

    fn extend(&mut self, newer: Self) {
        self.bytes.extend(newer.bytes);
        self.entries.extend(newer.entries);
    }
}

enum Change {
    Apply(Object),
    Delete(Key),
}

#[derive(Default)]
struct Waiting {
    /// Newer than all lines.
    changes: Vec<Change>,
    lines: Lines,
    /// What the file will have when all is written, each with its revision.
    known: HashMap<Key, u64>,
    /// The writer sleeps until there is something to write.
    asleep: bool,
    closed: bool,
    given_up: bool,
}

impl Waiting {
    /// Makes lines of the changes, but for those that a later one makes useless, and objects of
    /// which this very revision is known.
    fn settle(&mut self) {
        let mut settled = HashSet::with_capacity(self.changes.len());
        for change in self.changes.drain(..).rev() {
            let key = match &change {
                Change::Apply(object) => key_of(object),
                Change::Delete(key) => Arc::clone(key),
            };
            if !settled.insert(Arc::clone(&key)) {
                continue;
            }
            match change {
                Change::Apply(object) => {
                    let revision = revision(object.metadata());
                    if self.known.insert(Arc::clone(&key), revision) != Some(revision) {
                        self.lines.apply(key, &object);
                    }
                }
                Change::Delete(_) => {
                    if self.known.remove(&key).is_some() {
                        self.lines.delete(key);
                    }
                }
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.lines.entries.is_empty()
    }
}

struct Shared {
    waiting: Mutex<Waiting>,
    changed: Condvar,
    /// The time between two writes.
    pause: Duration,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where changes are left to be written.
pub(crate) struct Journal {
    shared: Arc<Shared>,
    writer: Option<JoinHandle<()>>,
}

impl Journal {
    /// Open the journal of a node in a directory. Only one process may have it.
    pub(crate) fn open(directory: &Path, node: &str) -> io::Result<(Self, Remembered)> {
        Self::open_with(directory, node, PAUSE)
    }

    fn open_with(directory: &Path, node: &str, pause: Duration) -> io::Result<(Self, Remembered)> {
        let (file, known) = File::open(directory, node)?;
        let remembered = Remembered(file.path.clone());
        let waiting = Mutex::new(Waiting {
            known,
            ..Waiting::default()
        });
        let shared = Arc::new(Shared {
            waiting,
            changed: Condvar::new(),
            pause,
        });
        let theirs = Arc::clone(&shared);
        let writer = std::thread::Builder::new()
            .name("journal".to_owned())
            .spawn(move || write(file, &theirs))?;
        Ok((
            Self {
                shared,
                writer: Some(writer),
            },
            remembered,
        ))
    }

    /// It is there, or it changed.
    pub(crate) fn apply(&self, object: Object) {
        self.leave(Change::Apply(object));
    }

    pub(crate) fn delete(&self, name: &Name) {
        self.leave(Change::Delete(key(name.kind, &name.namespace, &name.name)));
    }

    /// These are all of a kind.
    pub(crate) fn listed(&self, kind: Kind, names: &HashSet<Name>) {
        let there: HashSet<Key> = names
            .iter()
            .map(|name| key(name.kind, &name.namespace, &name.name))
            .collect();
        let prefix = format!("{}/", kind.plural());
        let gone = |key: &&Key| key.starts_with(&prefix) && !there.contains(*key);
        let mut waiting = self.shared.lock();
        waiting.settle();
        let gone: Vec<Key> = waiting.known.keys().filter(gone).cloned().collect();
        drop(waiting);
        gone.into_iter()
            .for_each(|key| self.leave(Change::Delete(key)));
    }

    /// Wakes the writer where it sleeps, or should not go on to.
    fn leave(&self, change: Change) {
        let mut waiting = self.shared.lock();
        if waiting.given_up {
            return;
        }
        waiting.changes.push(change);
        if waiting.changes.len() > FEW {
            waiting.settle();
        }
        let bytes = waiting.lines.bytes.len();
        if bytes > TOO_MUCH {
            tracing::error!(
                "the disk does not keep up: a start without an API server will know an older state"
            );
            *waiting = Waiting {
                given_up: true,
                ..Waiting::default()
            };
        }
        if std::mem::take(&mut waiting.asleep) || bytes > MUCH {
            self.shared.changed.notify_one();
        }
    }
}

/// What was known before. Most starts do not need it, so it is read only on demand.
pub(crate) struct Remembered(PathBuf);

impl Remembered {
    pub(crate) fn read(&self) -> io::Result<Vec<Object>> {
        file::objects(&self.0)
    }
}

/// Writes the rest.
impl Drop for Journal {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_one();
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

/// The thread: writes what has gathered until the journal is closed. What cannot be written is
/// tried again.
fn write(mut file: File, shared: &Shared) {
    let mut failing = false;
    loop {
        let Gathered {
            lines,
            more,
            closed,
        } = gathered(shared, file.is_synced());
        let written = file
            .write(&lines)
            .and_then(|()| if more { Ok(()) } else { file.sync() });
        if let Err(error) = &written {
            if !std::mem::replace(&mut failing, true) {
                tracing::error!(%error, "cannot remember what is known: a start without an API server will know \
                                         less");
            }
            let mut waiting = shared.lock();
            let newer = std::mem::replace(&mut waiting.lines, lines);
            waiting.lines.extend(newer);
        }
        failing &= written.is_err();
        if closed {
            return;
        }
        if failing {
            std::thread::sleep(AGAIN);
        }
    }
}

struct Gathered {
    lines: Lines,
    /// There was too much to wait for the rest of it, which comes soon.
    more: bool,
    closed: bool,
}

/// Wait a while for what gathers. If that is nothing, and all is on disk, wait for something to
/// write, and a while longer for more. A node that has changes all the time so wakes the thread
/// once for each write, and by its clock alone.
fn gathered(shared: &Shared, synced: bool) -> Gathered {
    let may_gather = |waiting: &Waiting| !waiting.closed && waiting.lines.bytes.len() <= MUCH;
    let pause = |waiting| {
        wait(
            shared,
            waiting,
            Some(Instant::now() + shared.pause),
            may_gather,
        )
    };
    let mut waiting = pause(shared.lock());
    if synced && waiting.is_empty() && !waiting.closed {
        waiting.asleep = true;
        waiting = wait(shared, waiting, None, |waiting| {
            waiting.asleep && !waiting.closed
        });
        waiting.asleep = false;
        waiting = pause(waiting);
    }
    let more = !waiting.closed && !may_gather(&waiting);
    waiting.settle();
    Gathered {
        lines: std::mem::take(&mut waiting.lines),
        more,
        closed: waiting.closed,
    }
}

fn wait<'a>(
    shared: &Shared,
    mut waiting: MutexGuard<'a, Waiting>,
    until: Option<Instant>,
    longer: impl Fn(&Waiting) -> bool,
) -> MutexGuard<'a, Waiting> {
    while longer(&waiting) {
        waiting = match until.map(|until| until.saturating_duration_since(Instant::now())) {
            None => shared
                .changed
                .wait(waiting)
                .unwrap_or_else(PoisonError::into_inner),
            Some(Duration::ZERO) => break,
            Some(rest) => {
                shared
                    .changed
                    .wait_timeout(waiting, rest)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0
            }
        };
    }
    waiting
}

#[cfg(test)]
mod tests;
