//! The file of the journal: lines at the end, rewritten when most of it is old.

use crate::objects::{Name, Object};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const VERSION: u32 = 1;
const NAME: &str = "journal";
/// A file this small is never rewritten.
const SMALL: u64 = 64 << 10;
/// Between two syncs to disk. A burst writes more often than that.
const SYNC: Duration = Duration::from_secs(1);

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Line {
    /// The first line.
    Journal {
        version: u32,
    },
    Apply(Object),
    Delete(Name),
}

/// The line that says an object is there.
pub fn line(object: &Object) -> Vec<u8> {
    // Serialising without a copy of the object needs a borrowed twin of [`Line`].
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    enum Borrowed<'a> {
        Apply(&'a Object),
    }
    terminated(serde_json::to_vec(&Borrowed::Apply(object)))
}

fn terminated(line: serde_json::Result<Vec<u8>>) -> Vec<u8> {
    // Objects are plain structs of texts and numbers, which always serialise.
    let mut line = line.unwrap_or_default();
    line.push(b'\n');
    line
}

/// Where the line of an object is.
#[derive(Clone, Copy)]
struct Place {
    offset: u64,
    length: u64,
}

pub struct File {
    path: PathBuf,
    file: fs::File,
    end: u64,
    /// How many bytes of the file are lines that count.
    useful: u64,
    places: HashMap<Name, Place>,
    synced: Instant,
}

impl File {
    pub fn open(directory: &Path, node: &str) -> io::Result<(File, Vec<Object>)> {
        let directory = directory.join(node);
        fs::create_dir_all(&directory)?;
        let path = directory.join(NAME);
        let mut file = open_locked(&path)?;
        let read = read(&mut file)?;
        let mut file = File {
            path,
            file,
            end: read.end,
            useful: read.places.values().map(|place| place.length).sum(),
            places: read.places,
            synced: Instant::now(),
        };
        file.file.set_len(read.end)?;
        file.file.seek(SeekFrom::End(0))?;
        if read.end == 0 {
            file.append(&header())?;
        }
        Ok((file, read.objects))
    }

    /// Lines to be written, one for each object that changed.
    pub fn write(&mut self, lines: HashMap<Name, Option<Vec<u8>>>) -> io::Result<()> {
        let mut batch = Vec::new();
        for (name, line) in lines {
            let offset = self.end + batch.len() as u64;
            let before = match line {
                Some(line) => {
                    let place = Place { offset, length: line.len() as u64 };
                    self.useful += place.length;
                    batch.extend_from_slice(&line);
                    self.places.insert(name, place)
                }
                None => {
                    let before = self.places.remove(&name);
                    batch.extend_from_slice(&terminated(serde_json::to_vec(&Line::Delete(name))));
                    before
                }
            };
            self.useful -= before.map_or(0, |place| place.length);
        }
        self.append(&batch)?;
        if self.end > SMALL.max(2 * self.useful) {
            return self.rewrite();
        }
        if self.synced.elapsed() >= SYNC {
            self.file.sync_data()?;
            self.synced = Instant::now();
        }
        Ok(())
    }

    /// On an error the file is cut back to what it was, so that half a line is never followed by another.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Err(error) = self.file.write_all(bytes) {
            self.file.set_len(self.end)?;
            self.file.seek(SeekFrom::Start(self.end))?;
            return Err(error);
        }
        self.end += bytes.len() as u64;
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
        let mut in_order: Vec<(&Name, &mut Place)> =
            self.places.iter_mut().map(|(name, place)| (name, place)).collect();
        in_order.sort_unstable_by_key(|(_, place)| place.offset);
        let mut moved = Vec::with_capacity(in_order.len());
        let mut reader = BufReader::new(&self.file);
        let mut position = 0;
        reader.seek(SeekFrom::Start(0))?;
        for (_, place) in &in_order {
            reader.seek_relative((place.offset - position).cast_signed())?;
            io::copy(&mut reader.by_ref().take(place.length), &mut writer)?;
            position = place.offset + place.length;
            moved.push(end);
            end += place.length;
        }
        writer.flush()?;
        drop(writer);
        new.sync_data()?;
        fs::rename(&path, &self.path)?;
        for ((_, place), offset) in in_order.into_iter().zip(moved) {
            place.offset = offset;
        }
        (self.file, self.end, self.synced) = (new, end, Instant::now());
        Ok(())
    }
}

fn header() -> Vec<u8> {
    terminated(serde_json::to_vec(&Line::Journal { version: VERSION }))
}

/// Another process with the same file would write over our lines.
fn open_locked(path: &Path) -> io::Result<fs::File> {
    let file = fs::File::options().read(true).write(true).create(true).truncate(false).open(path)?;
    file.try_lock().map_err(|error| match error {
        fs::TryLockError::WouldBlock => io::Error::other(format!("another process uses {}", path.display())),
        fs::TryLockError::Error(error) => error,
    })?;
    Ok(file)
}

#[derive(Default)]
struct Contents {
    objects: Vec<Object>,
    places: HashMap<Name, Place>,
    /// Where the last whole line ends.
    end: u64,
}

/// Everything up to the last whole line. A line that makes no sense is skipped; a file of another version is taken for
/// empty.
fn read(file: &mut fs::File) -> io::Result<Contents> {
    let mut reader = BufReader::new(file);
    let mut objects: BTreeMap<Name, Object> = BTreeMap::new();
    let mut contents = Contents::default();
    let mut line = Vec::new();
    loop {
        line.clear();
        let length = reader.read_until(b'\n', &mut line)? as u64;
        if line.last() != Some(&b'\n') {
            break;
        }
        let place = Place { offset: contents.end, length };
        match (contents.end, serde_json::from_slice(&line)) {
            (0, Ok(Line::Journal { version: VERSION })) => {}
            (0, _) => return Ok(Contents::default()),
            (_, Ok(Line::Apply(object))) => {
                contents.places.insert(object.name(), place);
                objects.insert(object.name(), object);
            }
            (_, Ok(Line::Delete(name))) => {
                contents.places.remove(&name);
                objects.remove(&name);
            }
            (_, Ok(Line::Journal { .. })) => {}
            (offset, Err(error)) => tracing::warn!(offset, %error, "a line of the journal makes no sense"),
        }
        contents.end += length;
    }
    contents.objects = objects.into_values().collect();
    Ok(contents)
}
