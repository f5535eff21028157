//! Static Services: files on this node with Services and EndpointSlices that it serves beside those
//! of the API server, with or without one. They are watched, and a file in the folder tells which
//! of them are in force, so that their writers can rely on it.
//!
//! [`file`] reads one file, [`watch`] tells when to look, [`Folder`] knows what changed; [`serve`]
//! is the task around them.

mod file;
mod watch;

use crate::aligned_timer::AlignedTimer;
use crate::objects::{Name, Object};
use crate::sync::Input;
use portico_model::static_services::{INSTALLED, Installed, version};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch as flag};
use watch::FolderWatch;

/// Files may have so many bytes, and a folder so many files.
const MOST_BYTES: u64 = 1 << 20;
const MOST_FILES: usize = 256;
/// The time between two looks though nothing was told, and where nothing can be told.
const LOOK: Duration = Duration::from_secs(60);
const LOOK_WITHOUT_WATCH: Duration = Duration::from_millis(100);
/// Another process has the folder, or it cannot be made.
const AGAIN: Duration = Duration::from_millis(500);

/// One file as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub file: String,
    /// `None`: it is gone.
    pub version: Option<String>,
    pub objects: Vec<Object>,
    /// Objects that it had before.
    pub gone: Vec<Name>,
}

/// The version of each file that is in the kernel.
pub(crate) type InForce = BTreeMap<String, String>;

/// Follow the folder until dropped. One process at a time serves a folder: the others wait.
pub(crate) async fn serve(
    path: PathBuf,
    mode: &'static str,
    inputs: mpsc::Sender<Input>,
    mut in_force: flag::Receiver<InForce>,
    timer: AlignedTimer,
) {
    let mut folder = Folder::default();
    let mut complained = false;
    loop {
        match Place::take(&path) {
            Ok(place) => {
                complained = false;
                tracing::debug!(folder = %path.display(), "serving static Services");
                follow(&place, mode, &mut folder, &inputs, &mut in_force, timer).await;
            }
            Err(error) if !std::mem::replace(&mut complained, true) => {
                tracing::info!(folder = %path.display(), %error, "static Services are not served");
            }
            Err(_) => {}
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// Follows the folder until another takes its place.
async fn follow(
    place: &Place,
    mode: &str,
    folder: &mut Folder,
    inputs: &mpsc::Sender<Input>,
    in_force: &mut flag::Receiver<InForce>,
    timer: AlignedTimer,
) {
    let watch = FolderWatch::open(&place.path)
        .inspect_err(|error| tracing::warn!(%error, "cannot watch static Services: looking at them all the time"))
        .ok();
    let pause = if watch.is_some() {
        LOOK
    } else {
        LOOK_WITHOUT_WATCH
    };
    while place.is_still_there() {
        for change in folder.look(&place.path) {
            // The loop is gone only when everything ends.
            let _ = inputs.send(Input::Static(change)).await;
        }
        let installed = Installed {
            mode: mode.to_owned(),
            files: in_force.borrow_and_update().clone(),
        };
        if let Err(error) = place.tell(&installed) {
            tracing::warn!(%error, "cannot tell which static Services are in force");
        }
        tokio::select! {
            told = next_event(watch.as_ref()) => if told.is_err() { return },
            told = in_force.changed() => if told.is_err() { return std::future::pending().await },
            () = tokio::time::sleep_until(timer.next(Instant::now(), pause).into()) => {}
        }
    }
}

async fn next_event(watch: Option<&FolderWatch>) -> io::Result<()> {
    match watch {
        Some(watch) => watch.next().await,
        None => std::future::pending().await,
    }
}

/// The folder, locked.
struct Place {
    path: PathBuf,
    folder: File,
}

impl Place {
    fn take(path: &Path) -> io::Result<Self> {
        fs::create_dir_all(path)?;
        let folder = File::open(path)?;
        folder.try_lock().map_err(|error| match error {
            fs::TryLockError::Error(error) => error,
            fs::TryLockError::WouldBlock => io::Error::other("another process serves this folder"),
        })?;
        Ok(Self {
            path: path.to_owned(),
            folder,
        })
    }

    /// Whether the folder has been neither removed nor replaced.
    fn is_still_there(&self) -> bool {
        let id = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
        let ours = self.folder.metadata().map(id);
        ours.is_ok_and(|ours| {
            fs::metadata(&self.path)
                .map(id)
                .is_ok_and(|there| there == ours)
        })
    }

    /// Written anew only where it says something else.
    fn tell(&self, installed: &Installed) -> io::Result<()> {
        let text = serde_json::to_vec(installed)?;
        let path = self.path.join(INSTALLED);
        if fs::read(&path).is_ok_and(|there| there == text) {
            return Ok(());
        }
        let new = path.with_extension("new");
        fs::write(&new, text)?;
        fs::rename(new, path)
    }
}

/// What is known of the files.
#[derive(Default)]
struct Folder {
    files: BTreeMap<String, Known>,
}

#[derive(Default)]
struct Known {
    /// The content that was last read, valid or not.
    seen: Option<String>,
    /// The names of objects in the last valid content.
    names: Vec<Name>,
}

impl Folder {
    /// Read everything and say what changed. A file that is bad, or cannot be read, stays what it
    /// was.
    fn look(&mut self, path: &Path) -> Vec<Change> {
        let found = match list(path) {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!(folder = %path.display(), %error, "cannot list static Services");
                return Vec::new();
            }
        };
        let gone: Vec<String> = self
            .files
            .keys()
            .filter(|file| !found.contains(file))
            .cloned()
            .collect();
        let mut changes: Vec<Change> = gone
            .into_iter()
            .filter_map(|file| self.forget(file))
            .collect();
        changes.extend(found.into_iter().filter_map(|file| self.read(path, file)));
        changes
    }

    fn forget(&mut self, file: String) -> Option<Change> {
        let gone = self.files.remove(&file)?.names;
        (!gone.is_empty()).then_some(Change {
            file,
            version: None,
            objects: Vec::new(),
            gone,
        })
    }

    fn read(&mut self, path: &Path, file: String) -> Option<Change> {
        let text = match read(&path.join(&file)) {
            Ok(text) => text,
            // It went meanwhile, or we are told again.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                tracing::warn!(file, %error, "cannot read static Services; the file stays what it was");
                return None;
            }
        };
        let known = self.files.entry(file.clone()).or_default();
        let version = version(text.as_bytes());
        if known.seen.as_ref() == Some(&version) {
            return None;
        }
        known.seen = Some(version.clone());
        let objects = file::parse(&file, &text)
            .inspect_err(|problem| {
                tracing::warn!(
                    file,
                    "bad static Services, the file stays what it was: {problem}"
                )
            })
            .ok()?;
        let names: Vec<Name> = objects.iter().map(Object::name).collect();
        let old = std::mem::replace(&mut known.names, names);
        let gone = old
            .into_iter()
            .filter(|name| !known.names.contains(name))
            .collect();
        tracing::info!(file, objects = objects.len(), "static Services");
        Some(Change {
            file,
            version: Some(version),
            objects,
            gone,
        })
    }
}

/// Names of files, in order. Hidden ones are left out: they are being written.
fn list(path: &Path) -> io::Result<Vec<String>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(path)? {
        let Ok(name) = entry?.file_name().into_string() else {
            continue;
        };
        let is_ours = [".yaml", ".yml", ".json"]
            .iter()
            .any(|ending| name.ends_with(ending));
        if is_ours && !name.starts_with('.') {
            files.push(name);
        }
    }
    files.sort_unstable();
    files.truncate(MOST_FILES);
    Ok(files)
}

fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?
        .take(MOST_BYTES + 1)
        .read_to_string(&mut text)?;
    if text.len() as u64 > MOST_BYTES {
        return Err(io::Error::other(format!(
            "it has more than {MOST_BYTES} bytes"
        )));
    }
    Ok(text)
}

#[cfg(test)]
mod tests;
