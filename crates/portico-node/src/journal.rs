//! The last known objects on disk, so that a node that starts without an API server forwards what it last knew.
//!
//! A file of lines, one for each object that changed; the last line about an object counts. Who changes something leaves it
//! in memory, where it costs no more than its own line; a thread writes what has gathered, at most once a second, and
//! rewrites the file when more than half of it is of no use. A line that was cut off by a crash is ignored.

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

/// Between two writes.
const PAUSE: Duration = Duration::from_secs(1);
/// More than this is not left in memory for the pause.
const MOST_WAITING: usize = 256 << 10;

/// Which object, in one text: there are many of them.
type Key = Arc<str>;
/// What is to be written about each object; `None`: it is gone.
type Lines = HashMap<Key, Option<Vec<u8>>>;

fn key(kind: Kind, namespace: &str, name: &str) -> Key {
    format!("{}/{namespace}/{name}", kind.plural()).into()
}

fn key_of(object: &Object) -> Key {
    let metadata = object.metadata();
    key(object.kind(), &metadata.namespace, &metadata.name)
}

/// What is to be written: at most one line for each object, however often it changes.
#[derive(Default)]
struct Waiting {
    lines: Lines,
    bytes: usize,
    /// What the file will have when all is written, each with its revision.
    known: HashMap<Key, u64>,
    closed: bool,
}

#[derive(Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where changes are left to be written.
pub struct Journal {
    shared: Arc<Shared>,
    writer: Option<JoinHandle<()>>,
}

impl Journal {
    /// Open the journal of a node in a directory. Only one process may have it.
    pub fn open(directory: &Path, node: &str) -> io::Result<(Journal, Remembered)> {
        let (file, known) = File::open(directory, node)?;
        let remembered = Remembered(file.path.clone());
        let waiting = Mutex::new(Waiting { known, ..Waiting::default() });
        let shared = Arc::new(Shared { waiting, changed: Condvar::new() });
        let theirs = Arc::clone(&shared);
        let writer = std::thread::Builder::new().name("journal".to_owned()).spawn(move || write(file, &theirs))?;
        Ok((Journal { shared, writer: Some(writer) }, remembered))
    }

    /// It is there, or it changed. Nothing to do where this very revision is known.
    pub fn apply(&self, object: &Object) {
        let (key, revision) = (key_of(object), revision(object.metadata()));
        let mut waiting = self.shared.lock();
        if waiting.known.insert(Arc::clone(&key), revision) != Some(revision) {
            waiting.put(key, Some(file::line(object)));
            self.notice(&waiting);
        }
    }

    pub fn delete(&self, name: &Name) {
        self.delete_key(&key(name.kind, &name.namespace, &name.name));
    }

    fn delete_key(&self, key: &Key) {
        let mut waiting = self.shared.lock();
        if waiting.known.remove(key).is_some() {
            waiting.put(Arc::clone(key), None);
            self.notice(&waiting);
        }
    }

    /// These are all of a kind.
    pub fn listed(&self, kind: Kind, names: &HashSet<Name>) {
        let there: HashSet<Key> = names.iter().map(|name| key(name.kind, &name.namespace, &name.name)).collect();
        let prefix = format!("{}/", kind.plural());
        let gone = |key: &&Key| key.starts_with(&prefix) && !there.contains(*key);
        let gone: Vec<Key> = self.shared.lock().known.keys().filter(gone).cloned().collect();
        gone.iter().for_each(|key| self.delete_key(key));
    }

    fn notice(&self, waiting: &Waiting) {
        if waiting.lines.len() == 1 || waiting.bytes > MOST_WAITING {
            self.shared.changed.notify_one();
        }
    }
}

/// What was known before. Most starts do not need it, so it is read only when somebody asks.
pub struct Remembered(PathBuf);

impl Remembered {
    pub fn read(&self) -> io::Result<Vec<Object>> {
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

impl Waiting {
    fn put(&mut self, key: Key, line: Option<Vec<u8>>) {
        self.bytes += line.as_ref().map_or(0, Vec::len);
        let before = self.lines.insert(key, line);
        self.bytes -= before.flatten().map_or(0, |line| line.len());
    }
}

/// Objects of the same revision are the same.
fn revision(metadata: &Metadata) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&metadata.uid, &metadata.resource_version).hash(&mut hasher);
    hasher.finish()
}

/// The thread: writes what has gathered until the journal is closed. What cannot be written is tried again.
fn write(mut file: File, shared: &Shared) {
    let mut failing = false;
    loop {
        let (lines, closed) = gathered(shared, file.is_unsynced());
        let written = file.write(&lines).and_then(|()| if closed { file.sync() } else { Ok(()) });
        if let Err(error) = &written {
            if !std::mem::replace(&mut failing, true) {
                tracing::error!(%error, "cannot remember what is known: a start without an API server will know less");
            }
            put_back(shared, lines);
        }
        failing &= written.is_err();
        if closed {
            return;
        }
        if failing {
            std::thread::sleep(PAUSE);
        }
    }
}

/// Unless there is something newer.
fn put_back(shared: &Shared, lines: Lines) {
    let mut waiting = shared.lock();
    for (key, line) in lines {
        if !waiting.lines.contains_key(&key) {
            waiting.put(key, line);
        }
    }
}

/// Wait for something to write (or to sync), and a little longer for more.
fn gathered(shared: &Shared, unsynced: bool) -> (Lines, bool) {
    let mut waiting = shared.lock();
    while waiting.lines.is_empty() && !waiting.closed && !unsynced {
        waiting = shared.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
    }
    let until = Instant::now() + PAUSE;
    while !waiting.closed && waiting.bytes <= MOST_WAITING {
        let Some(rest) = until.checked_duration_since(Instant::now()).filter(|rest| !rest.is_zero()) else { break };
        (waiting, _) = shared.changed.wait_timeout(waiting, rest).unwrap_or_else(PoisonError::into_inner);
    }
    waiting.bytes = 0;
    (std::mem::take(&mut waiting.lines), waiting.closed)
}

#[cfg(test)]
mod tests;
