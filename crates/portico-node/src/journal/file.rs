//! The file of the journal: lines at the end, rewritten when most of it is old.

use super::{Key, Lines, key, key_of, revision};
use crate::objects::{Kind, Object};
use portico_model::objects::Metadata;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const VERSION: u32 = 1;
const NAME: &str = "journal";
/// A file this small is never rewritten.
const SMALL: u64 = 64 << 10;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Line<T> {
    /// The first line.
    Journal {
        version: u32,
    },
    Apply(T),
    Delete(String),
}

/// As much of an [`Object`] as is needed to know which it is.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
enum Head {
    Service(Only),
    Slice(Only),
    Node(Only),
    Cidr(Only),
    Pod(Only),
    Partition(Only),
}

#[derive(Deserialize)]
struct Only {
    metadata: Metadata,
}

impl Head {
    fn key_and_revision(&self) -> (Key, u64) {
        let (kind, Only { metadata }) = match self {
            Self::Service(only) => (Kind::Service, only),
            Self::Slice(only) => (Kind::Slice, only),
            Self::Node(only) => (Kind::Node, only),
            Self::Cidr(only) => (Kind::Cidr, only),
            Self::Pod(only) => (Kind::Pod, only),
            Self::Partition(only) => (Kind::Partition, only),
        };
        (
            key(kind, &metadata.namespace, &metadata.name),
            revision(metadata),
        )
    }
}

/// The line that says an object is there.
pub(super) fn write_apply(bytes: &mut Vec<u8>, object: &Object) {
    write_line(bytes, &Line::Apply(object));
}

pub(super) fn write_delete(bytes: &mut Vec<u8>, key: &Key) {
    write_line(bytes, &Line::<Object>::Delete(key.to_string()));
}

fn write_line<T: Serialize>(bytes: &mut Vec<u8>, line: &Line<T>) {
    // Plain structs of texts and numbers always serialise, and memory always takes them.
    let _ = serde_json::to_writer(&mut *bytes, line);
    bytes.push(b'\n');
}

fn header() -> Vec<u8> {
    let mut bytes = Vec::new();
    write_line(&mut bytes, &Line::<Object>::Journal { version: VERSION });
    bytes
}

/// Where the line of an object is.
#[derive(Clone, Copy)]
struct Place {
    offset: u64,
    length: u32,
}

pub(super) struct File {
    pub path: PathBuf,
    file: fs::File,
    end: u64,
    /// How many bytes of the file are lines that count.
    useful: u64,
    places: HashMap<Key, Place>,
    /// Something is written that may not be on disk yet. Only a machine that loses power loses it.
    unsynced: bool,
}

impl File {
    /// Opens the file, and returns the objects that it has, each with its revision.
    pub(super) fn open(directory: &Path, node: &str) -> io::Result<(Self, HashMap<Key, u64>)> {
        let directory = directory.join(node);
        fs::create_dir_all(&directory)?;
        let path = directory.join(NAME);
        let file = open_locked(&path)?;
        let (mut places, mut known) = (HashMap::new(), HashMap::new());
        let end = read(&file, |place, line: Line<Head>| match line {
            Line::Apply(head) => {
                let (key, revision) = head.key_and_revision();
                known.insert(Arc::clone(&key), revision);
                places.insert(key, place);
            }
            Line::Delete(key) => {
                known.remove(key.as_str());
                places.remove(key.as_str());
            }
            Line::Journal { .. } => {}
        })?;
        let useful = places
            .values()
            .map(|place: &Place| u64::from(place.length))
            .sum();
        let mut file = Self {
            path,
            file,
            end,
            useful,
            places,
            unsynced: false,
        };
        file.file.set_len(end)?;
        if end == 0 {
            file.append(&header())?;
        }
        Ok((file, known))
    }

    /// Writes lines. After an error none of them is written.
    pub(super) fn write(&mut self, lines: &Lines) -> io::Result<()> {
        let mut offset = self.end;
        self.append(&lines.bytes)?;
        for (key, there, length) in &lines.entries {
            let place = Place {
                offset,
                length: u32::try_from(*length).unwrap_or(u32::MAX),
            };
            self.put(Arc::clone(key), there.then_some(place));
            offset += *length as u64;
        }
        if self.end > SMALL.max(2 * self.useful) {
            return self.rewrite();
        }
        Ok(())
    }

    fn put(&mut self, key: Key, place: Option<Place>) {
        let before = match place {
            Some(place) => self.places.insert(key, place),
            None => self.places.remove(&key),
        };
        self.useful += place.map_or(0, |place| u64::from(place.length));
        self.useful -= before.map_or(0, |place| u64::from(place.length));
    }

    pub(super) fn sync(&mut self) -> io::Result<()> {
        if self.unsynced {
            self.file.sync_data()?;
            self.unsynced = false;
        }
        Ok(())
    }

    pub(super) fn is_synced(&self) -> bool {
        !self.unsynced
    }

    /// Appends bytes. On an error the file is cut back to what it was, so that half a line is never
    /// followed by another.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Err(error) = self.file.write_all(bytes) {
            self.file.set_len(self.end)?;
            return Err(error);
        }
        self.end += bytes.len() as u64;
        self.unsynced |= !bytes.is_empty();
        Ok(())
    }

    /// Copy what counts to a new file and put it in place of the old.
    fn rewrite(&mut self) -> io::Result<()> {
        let path = self.path.with_extension("new");
        let new = open_locked(&path)?;
        new.set_len(0)?;
        let mut writer = BufWriter::new(&new);
        writer.write_all(&header())?;
        let mut end = header().len() as u64;
        let mut in_order: Vec<&mut Place> = self.places.values_mut().collect();
        in_order.sort_unstable_by_key(|place| place.offset);
        let mut moved = Vec::with_capacity(in_order.len());
        let mut reader = BufReader::new(&self.file);
        let (mut position, mut line) = (0, Vec::new());
        reader.seek(SeekFrom::Start(0))?;
        for place in &in_order {
            reader.seek_relative((place.offset - position).cast_signed())?;
            let length = u64::from(place.length);
            // Not `io::copy`: between files it asks the kernel, with some system calls for each
            // line.
            line.resize(place.length as usize, 0);
            reader.read_exact(&mut line)?;
            writer.write_all(&line)?;
            position = place.offset + length;
            moved.push(end);
            end += length;
        }
        writer.flush()?;
        drop(writer);
        new.sync_data()?;
        fs::rename(&path, &self.path)?;
        for (place, offset) in in_order.into_iter().zip(moved) {
            place.offset = offset;
        }
        (self.file, self.end, self.unsynced) = (new, end, false);
        Ok(())
    }
}

/// Another process with the same file would write over our lines.
fn open_locked(path: &Path) -> io::Result<fs::File> {
    let file = fs::File::options()
        .read(true)
        .append(true)
        .create(true)
        .open(path)?;
    file.try_lock().map_err(|error| match error {
        fs::TryLockError::WouldBlock => {
            io::Error::other(format!("another process uses {}", path.display()))
        }
        fs::TryLockError::Error(error) => error,
    })?;
    Ok(file)
}

/// The objects that a file knows.
pub(super) fn objects(path: &Path) -> io::Result<Vec<Object>> {
    let mut objects: BTreeMap<Key, Object> = BTreeMap::new();
    read(&fs::File::open(path)?, |_, line: Line<Object>| match line {
        Line::Apply(object) => drop(objects.insert(key_of(&object), object)),
        Line::Delete(key) => drop(objects.remove(key.as_str())),
        Line::Journal { .. } => {}
    })?;
    Ok(objects.into_values().collect())
}

/// Every line, up to the last whole one; returns where that ends. A line that makes no sense is
/// skipped; a file of another version is taken for empty.
fn read<T: DeserializeOwned>(
    file: &fs::File,
    mut each: impl FnMut(Place, Line<T>),
) -> io::Result<u64> {
    let mut reader = BufReader::new(file);
    let (mut line, mut end) = (Vec::new(), 0);
    loop {
        line.clear();
        let length =
            u32::try_from(reader.read_until(b'\n', &mut line)?).map_err(io::Error::other)?;
        if line.last() != Some(&b'\n') {
            return Ok(end);
        }
        match (end, serde_json::from_slice(&line)) {
            (0, Ok(Line::<T>::Journal { version: VERSION })) => {}
            (0, _) => return Ok(0),
            (_, Ok(line)) => each(
                Place {
                    offset: end,
                    length,
                },
                line,
            ),
            (offset, Err(error)) => {
                tracing::warn!(offset, %error, "a line of the journal makes no sense")
            }
        }
        end += u64::from(length);
    }
}
