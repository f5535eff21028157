//! The writer on a disk that fails on purpose.

use std::fs::OpenOptions;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use redb::backends::FileBackend;
use redb::{Database, StorageBackend};

use super::*;
use crate::mirror::HistoryLimits;

/// A file that fails when it is synced for the n-th time from now, and ever after, as a broken disk
/// does.
#[derive(Clone, Debug)]
struct FailingDisk {
    file: Arc<FileBackend>,
    syncs_left: Arc<AtomicUsize>,
}

impl StorageBackend for FailingDisk {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        let left = self.syncs_left.load(Ordering::SeqCst);
        if left == 0 {
            return Err(io::Error::other("failing on purpose"));
        }
        self.syncs_left.store(left - 1, Ordering::SeqCst);
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write(offset, data)
    }
}

fn failing_writer(dir: &Path) -> (Writer, Arc<AtomicUsize>) {
    let (disk, contents) = Disk::open(dir, 1 << 20).unwrap();
    drop(disk);
    let path = dir.join("portico.redb");
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    let syncs_left = Arc::new(AtomicUsize::new(usize::MAX));
    let file = Arc::new(FileBackend::new(file).unwrap());
    let backend = FailingDisk {
        file,
        syncs_left: syncs_left.clone(),
    };
    let database = Database::builder().create_with_backend(backend).unwrap();
    let mirror = Arc::new(Mirror::new(
        contents.revision,
        contents.entries,
        HistoryLimits::default(),
    ));
    (
        Writer::new(Disk::with(database, path), mirror, dir.to_owned(), 1 << 20),
        syncs_left,
    )
}

fn commit(writer: &mut Writer, key: &str) -> Result<Revision, TxnError> {
    let (answer, mut answered) = oneshot::channel();
    let txn = Txn {
        checks: vec![Check::absent(key)],
        ops: vec![Op::put(key, "value")],
    };
    writer.commit(vec![(txn, answer)]);
    answered.try_recv().unwrap()
}

#[test]
fn a_failed_write_is_not_published_and_the_next_one_recovers() {
    let dir = tempfile::tempdir().unwrap();
    let (mut writer, syncs_left) = failing_writer(dir.path());
    let first = commit(&mut writer, "services/a").unwrap();
    syncs_left.store(0, Ordering::SeqCst);
    match commit(&mut writer, "services/b") {
        Err(TxnError::Unavailable(outage)) => assert!(outage.unknown),
        other => panic!("{other:?}"),
    }
    let mirror = writer.mirror.clone();
    assert_eq!((mirror.revision(), mirror.get("services/b")), (first, None));

    // The file opens again without the broken disk in front of it. Whether the lost write is there
    // is not known before.
    let third = commit(&mut writer, "services/c").unwrap();
    assert!(third > first);
    let shown = mirror.range(crate::Range::default()).unwrap().entries;
    drop(writer);
    let (_, contents) = Disk::open(dir.path(), 1 << 20).unwrap();
    assert_eq!((contents.revision, contents.entries), (third, shown));
}
