//! What lies between redb and the file: `Watched` notes how the disk failed, `Trial` keeps writes
//! away from it, so that a file can be looked at without being changed.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::ops::Bound;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redb::{BackendError, StorageBackend};

/// How the disk failed.
#[derive(Clone, Debug)]
pub(super) enum Fault {
    /// There was no room for a write. What the disk has is as it was.
    Full(String),
    /// A sync or a write failed otherwise. The kernel may have dropped the pages that it could not
    /// write and taken them for written, so what is read from now on need not be what the disk has.
    Lost(String),
}

/// The worst that happened since the file was opened.
#[derive(Clone, Debug, Default)]
pub(super) struct Faults(Arc<Mutex<Option<Fault>>>);

impl Faults {
    pub(super) fn worst(&self) -> Option<Fault> {
        self.lock().clone()
    }

    fn note<T>(&self, what: &str, result: io::Result<T>) -> io::Result<T> {
        if let Err(error) = &result {
            let text = format!("{what}: {error}");
            let mut worst = self.lock();
            match (what, error.kind()) {
                ("write", io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => {
                    worst.get_or_insert(Fault::Full(text));
                }
                _ if matches!(*worst, Some(Fault::Lost(_))) => {}
                _ => *worst = Some(Fault::Lost(text)),
            }
        }
        result
    }

    fn lock(&self) -> MutexGuard<'_, Option<Fault>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A backend that notes its faults.
#[derive(Debug)]
pub(super) struct Watched<B> {
    pub inner: B,
    pub faults: Faults,
}

impl<B: StorageBackend> StorageBackend for Watched<B> {
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.inner.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.faults.note("write", self.inner.set_len(len))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.faults.note("sync", self.inner.sync_data())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.faults.note("write", self.inner.write(offset, data))
    }

    fn close(&self) -> io::Result<()> {
        self.inner.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.inner.try_lock_range(start, end)
    }

    fn try_lock_shared_range(
        &self,
        start: Bound<u64>,
        end: Bound<u64>,
    ) -> Result<bool, BackendError> {
        self.inner.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.inner.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.inner.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.inner.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.inner.query_lock_range(start, end)
    }
}

const BLOCK: u64 = 4096;

/// The file as it is, with writes that stay in memory: what redb repairs when it opens a file is
/// tried here before it is done.
#[derive(Debug)]
pub(super) struct Trial {
    file: File,
    state: Mutex<TrialState>,
}

#[derive(Debug)]
struct TrialState {
    len: u64,
    /// So much of the file itself still counts: what was cut off does not come back.
    kept: u64,
    written: HashMap<u64, Vec<u8>>,
}

impl Trial {
    pub(super) fn new(file: File) -> io::Result<Self> {
        let len = file.metadata()?.len();
        let written = HashMap::new();
        let state = Mutex::new(TrialState {
            len,
            kept: len,
            written,
        });
        Ok(Self { file, state })
    }

    fn lock(&self) -> MutexGuard<'_, TrialState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A block of the file; zeros behind its end.
    fn block(&self, state: &TrialState, block: u64) -> io::Result<Vec<u8>> {
        if let Some(written) = state.written.get(&block) {
            return Ok(written.clone());
        }
        let mut bytes = vec![0; BLOCK as usize];
        let there = state.kept.saturating_sub(block * BLOCK).min(BLOCK) as usize;
        let mut filled = 0;
        while filled < there {
            let at = block * BLOCK + filled as u64;
            match self.file.read_at(&mut bytes[filled..there], at)? {
                0 => break,
                count => filled += count,
            }
        }
        Ok(bytes)
    }
}

/// The blocks that a range touches, each with its part of the range and of the block.
fn blocks(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, usize, usize)> {
    let end = offset + len as u64;
    (offset / BLOCK..end.div_ceil(BLOCK)).map(move |block| {
        let from = offset.max(block * BLOCK);
        let to = end.min((block + 1) * BLOCK);
        (
            block,
            (from - offset) as usize,
            (from - block * BLOCK) as usize,
            (to - from) as usize,
        )
    })
}

impl StorageBackend for Trial {
    fn len(&self) -> io::Result<u64> {
        Ok(self.lock().len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.lock();
        if offset.saturating_add(out.len() as u64) > state.len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let end = offset + out.len() as u64;
        let written =
            blocks(offset, out.len()).any(|(block, ..)| state.written.contains_key(&block));
        if !written && end <= state.kept {
            return self.file.read_exact_at(out, offset);
        }
        for (block, at, within, len) in blocks(offset, out.len()) {
            let bytes = self.block(&state, block)?;
            out[at..at + len].copy_from_slice(&bytes[within..within + len]);
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.lock();
        if len < state.len {
            state.written.retain(|block, _| block * BLOCK < len);
        }
        state.len = len;
        state.kept = state.kept.min(len);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.lock();
        for (block, at, within, len) in blocks(offset, data.len()) {
            let mut bytes = self.block(&state, block)?;
            bytes[within..within + len].copy_from_slice(&data[at..at + len]);
            state.written.insert(block, bytes);
        }
        Ok(())
    }
}
