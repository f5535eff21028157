//! The writer on a disk that fails on purpose, at every write and every sync of a run.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};

use redb::StorageBackend;

use super::*;
use crate::mirror::HistoryLimits;

const PAGE: usize = 4096;
const COMMITS: usize = 12;

/// A disk behind a page cache. What is written is in the cache, and on the disk after the next
/// sync. A sync that fails takes every page for written, as Linux does, whether it is on the disk
/// or not.
#[derive(Clone, Debug, Default)]
struct ModelDisk(Arc<Mutex<Model>>);

#[derive(Debug, Default)]
struct Model {
    cache: Vec<u8>,
    disk: Vec<u8>,
    dirty: BTreeSet<usize>,
    operations: usize,
    plan: Trouble,
    full: bool,
    random: u64,
}

/// What goes wrong, at the operation of that number.
#[derive(Clone, Copy, Debug, Default)]
enum Trouble {
    #[default]
    Nothing,
    /// None of the pages that a failed sync leaves are on the disk, or each as chance has it.
    Fail {
        at: usize,
        some_pages: bool,
    },
    FullFrom {
        at: usize,
    },
}

impl ModelDisk {
    fn model(&self) -> MutexGuard<'_, Model> {
        self.0.lock().unwrap()
    }

    fn failing(plan: Trouble) -> Self {
        let disk = Self::default();
        disk.model().plan = plan;
        disk
    }

    /// What is found after the power was cut: the disk, without the cache.
    fn after_a_power_cut(&self) -> Self {
        let disk = self.model().disk.clone();
        let model = Model {
            cache: disk.clone(),
            disk,
            ..Model::default()
        };
        Self(Arc::new(Mutex::new(model)))
    }
}

impl Model {
    fn chance(&mut self) -> bool {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.random >> 63 == 1
    }

    /// Counts an operation, and says how it fails.
    fn operation(&mut self, needs_room: bool) -> io::Result<()> {
        self.operations += 1;
        match self.plan {
            Trouble::Fail { at, .. } if at == self.operations => {
                Err(io::Error::other("failing on purpose"))
            }
            Trouble::FullFrom { at } if at == self.operations => {
                self.full = true;
                Err(io::ErrorKind::StorageFull.into())
            }
            _ if self.full && needs_room => Err(io::ErrorKind::StorageFull.into()),
            _ => Ok(()),
        }
    }

    fn page_out(&mut self, page: usize) {
        let end = ((page + 1) * PAGE).min(self.cache.len());
        if page * PAGE < end {
            self.disk[page * PAGE..end].copy_from_slice(&self.cache[page * PAGE..end]);
        }
    }
}

impl StorageBackend for ModelDisk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.model().cache.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let at = offset as usize;
        let model = self.model();
        let bytes = model.cache.get(at..at + out.len());
        out.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut model = self.model();
        let grows = len as usize > model.cache.len();
        model.operation(grows)?;
        model.cache.resize(len as usize, 0);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut model = self.model();
        let result = model.operation(false);
        let dirty = std::mem::take(&mut model.dirty);
        let some_pages = matches!(model.plan, Trouble::Fail { some_pages, .. } if some_pages);
        if result.is_ok() || some_pages {
            let len = model.cache.len();
            model.disk.resize(len, 0);
            for page in dirty {
                if result.is_ok() || model.chance() {
                    model.page_out(page);
                }
            }
        }
        result
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut model = self.model();
        model.operation(true)?;
        let (from, to) = (offset as usize, offset as usize + data.len());
        model.cache[from..to].copy_from_slice(data);
        model.dirty.extend(from / PAGE..to.div_ceil(PAGE));
        Ok(())
    }
}

impl StoreFiles for ModelDisk {
    fn open(&self) -> Result<(Disk, Contents), OpenError> {
        let disk = Disk::on(self.clone(), PathBuf::from("the disk"), 1 << 20)?;
        let contents = disk.load()?;
        Ok((disk, contents))
    }

    fn has_room(&self) -> io::Result<()> {
        match self.model().full {
            true => Err(io::ErrorKind::StorageFull.into()),
            false => Ok(()),
        }
    }
}

type Objects = BTreeMap<String, Bytes>;

fn start(disk: &ModelDisk) -> Result<Writer, OpenError> {
    let (opened, contents) = disk.open()?;
    let mirror = Arc::new(Mirror::new(
        contents.revision,
        contents.entries,
        HistoryLimits::default(),
    ));
    let health = Arc::new(Health::default());
    Ok(Writer::new(
        opened,
        mirror,
        Box::new(disk.clone()),
        health,
        Arc::new([]),
    ))
}

fn contents(entries: impl IntoIterator<Item = Entry>) -> Objects {
    let pair = |entry: Entry| (entry.key.to_string(), entry.value);
    entries.into_iter().map(pair).collect()
}

fn commit(writer: &mut Writer, op: Op) -> Result<Revision, TxnError> {
    let (answer, mut answered) = oneshot::channel();
    let txn = Txn {
        checks: vec![],
        ops: vec![op],
    };
    writer.commit(vec![(txn, answer)]);
    answered.try_recv().unwrap()
}

/// Objects that come, change, grow beyond a page, and go.
fn op(number: usize) -> Op {
    let key = format!("services/{}", number % 7);
    match number % 5 {
        4 => Op::delete(key),
        size => Op::put(key, vec![number as u8; 10 + size * 3000]),
    }
}

fn apply(state: &mut Objects, op: Op) {
    match op {
        Op::Put { key, value } => drop(state.insert(key, value)),
        Op::Delete { key } => drop(state.remove(&key)),
    }
}

/// What a run left: what was acknowledged, and that with the write that failed, if one did.
fn run(writer: &mut Writer) -> (Objects, Option<Objects>) {
    let mut acknowledged = Objects::new();
    for number in 0..COMMITS {
        let mut next = acknowledged.clone();
        apply(&mut next, op(number));
        match commit(writer, op(number)) {
            Ok(_) => acknowledged = next,
            Err(TxnError::Unavailable(outage)) => {
                assert!(outage.unknown);
                return (acknowledged, Some(next));
            }
            Err(other) => panic!("{other:?}"),
        }
    }
    (acknowledged, None)
}

/// How many writes and syncs a run has when nothing goes wrong.
fn operations() -> usize {
    let disk = ModelDisk::default();
    let mut writer = start(&disk).unwrap();
    assert_eq!(run(&mut writer).1, None);
    let count = disk.model().operations;
    assert!(count > 50, "{count}");
    count
}

#[test]
fn after_a_failure_at_any_write_or_sync_all_that_was_acknowledged_is_on_the_disk() {
    let mut failed = 0;
    for at in 1..=operations() {
        for some_pages in [false, true] {
            let disk = ModelDisk::failing(Trouble::Fail { at, some_pages });
            disk.model().random = at as u64;
            // Failures while the store is made are told by opening it.
            let Ok(mut writer) = start(&disk) else {
                continue;
            };
            let (acknowledged, with_failed) = run(&mut writer);
            let Some(with_failed) = with_failed else {
                // What redb writes without need may fail without harm.
                continue;
            };
            failed += 1;
            let why = writer.health.writable().unwrap_err().to_string();
            assert!(why.contains("the disk failed"), "{why}");
            // It neither goes on through the cache nor shows what may not be there.
            assert!(matches!(writer.disk, State::Lost));
            assert!(commit(&mut writer, op(0)).is_err());
            assert_eq!(
                contents(
                    writer
                        .mirror
                        .range(crate::Range::default())
                        .unwrap()
                        .entries
                ),
                acknowledged
            );
            drop(writer);
            let (_, found) = disk.after_a_power_cut().open().unwrap();
            let found = contents(found.entries);
            assert!(
                found == acknowledged || found == with_failed,
                "operation {at}, {some_pages}: a write that was acknowledged is not there"
            );
        }
    }
    assert!(failed > 60, "only {failed} runs failed");
}

#[test]
fn a_full_disk_is_waited_for_and_costs_nothing_that_was_acknowledged() {
    let mut blocked = 0;
    for at in 1..=operations() {
        let disk = ModelDisk::failing(Trouble::FullFrom { at });
        let Ok(mut writer) = start(&disk) else {
            continue;
        };
        let (acknowledged, with_failed) = run(&mut writer);
        // A sync that finds no room has lost pages like any other.
        let (Some(with_failed), State::Full(_)) = (with_failed, &writer.disk) else {
            continue;
        };
        blocked += 1;
        let why = writer.health.writable().unwrap_err().to_string();
        assert!(why.contains("no room on the disk"), "{why}");
        match commit(&mut writer, op(0)) {
            Err(TxnError::Unavailable(outage)) => assert!(!outage.unknown),
            other => panic!("{other:?}"),
        }
        writer.recover();
        assert!(writer.health.writable().is_err(), "there is no room yet");
        disk.model().full = false;
        writer.recover();
        assert!(writer.health.writable().is_ok(), "operation {at}");
        let shown = contents(
            writer
                .mirror
                .range(crate::Range::default())
                .unwrap()
                .entries,
        );
        assert!(shown == acknowledged || shown == with_failed);
        commit(&mut writer, Op::put("services/after", "1")).unwrap();
        drop(writer);
        let (_, found) = disk.after_a_power_cut().open().unwrap();
        let mut expected = shown;
        apply(&mut expected, Op::put("services/after", "1"));
        assert_eq!(contents(found.entries), expected, "operation {at}");
    }
    assert!(blocked > 20, "only {blocked} runs were blocked");
}

#[test]
fn nothing_is_written_over_what_is_damaged() {
    let mut writer = start(&ModelDisk::default()).unwrap();
    writer.damaged.insert("services/a".into());
    let refused = commit(&mut writer, Op::put("services/a", "1"));
    assert!(matches!(refused, Err(TxnError::Damaged { key }) if key == "services/a"));
    commit(&mut writer, Op::put("services/b", "1")).unwrap();
}
