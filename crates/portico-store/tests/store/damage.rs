//! Bits flip and files are cut, in stores that were closed and in stores whose server was killed.
//! Each damage is found or harmless: no altered value is served, and what is good stays readable.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use portico_store::{EmbeddedOptions, Op, OpenError, Store, Txn, TxnError, check, repair};
use tempfile::TempDir;

use crate::put;

const FILE: &str = "portico.redb";
const OBJECTS: usize = 60;

type Written = BTreeMap<String, Bytes>;

async fn open(dir: &Path) -> Result<Store, OpenError> {
    Store::embedded(dir, EmbeddedOptions::default()).await
}

/// In memory where there is room for that: these tests write a lot.
fn folder() -> TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap()
}

fn everything(store: &Store) -> Written {
    let all = store.range(Default::default()).unwrap().entries;
    all.into_iter()
        .map(|entry| (entry.key.to_string(), entry.value))
        .collect()
}

/// A store with objects of all sizes, some of them changed and some deleted; as its server left it
/// when it was closed, or when it was killed.
async fn store(killed: bool) -> (TempDir, Written) {
    let (dir, image) = (folder(), folder());
    let store = open(dir.path()).await.unwrap();
    for number in 0..OBJECTS {
        let value = format!("<{number}>").repeat(match number % 6 {
            5 => 2000,
            size => 1 + size * 30,
        });
        put(&store, &format!("services/default/s{number:03}"), &value).await;
    }
    let change = |number: usize| {
        let key = format!("services/default/s{number:03}");
        match number % 2 {
            0 => Op::delete(key),
            _ => Op::put(key, "changed".repeat(20)),
        }
    };
    let ops = (0..OBJECTS).step_by(9).map(change).collect();
    let checks = vec![];
    store.commit(Txn { checks, ops }).await.unwrap();
    let written = everything(&store);
    if !killed {
        store.close().await;
    }
    copy(dir.path(), image.path());
    (image, written)
}

fn copy(from: &Path, to: &Path) {
    for file in fs::read_dir(from).unwrap().flatten() {
        fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
}

fn damaged_copy(image: &Path, damage: impl FnOnce(&mut Vec<u8>)) -> (TempDir, PathBuf) {
    let dir = folder();
    copy(image, dir.path());
    let path = dir.path().join(FILE);
    let mut bytes = fs::read(&path).unwrap();
    damage(&mut bytes);
    fs::write(&path, bytes).unwrap();
    (dir, path)
}

#[derive(Debug, Default)]
struct Count {
    harmless: usize,
    named: usize,
    refused: usize,
}

/// What became of a damage. Panics if it is served, hidden, or costs what is good.
async fn judge(dir: &Path, written: &Written, what: &str, count: &mut Count) {
    let report = check(dir);
    match open(dir).await {
        Err(OpenError::Damaged { .. } | OpenError::Missing { .. } | OpenError::Newer { .. }) => {
            assert!(report.map_or(true, |report| !report.is_well()), "{what}");
            count.refused += 1;
        }
        Err(other) => panic!("{what}: {other:?}"),
        Ok(store) => {
            let served = everything(&store);
            for (key, value) in &served {
                assert_eq!(written.get(key), Some(value), "{what}: {key} is altered");
            }
            let lost = written.len() - served.len();
            assert_eq!(
                store.damaged().len(),
                lost,
                "{what}: some are lost in silence"
            );
            let found = report.unwrap();
            assert_eq!(found.damaged.len(), lost, "{what}");
            // What goes on from there is whole.
            put(&store, "services/default/after", "1").await;
            store.close().await;
            let again = open(dir).await.unwrap();
            assert_eq!(everything(&again).len(), served.len() + 1, "{what}");
            again.close().await;
            match lost {
                0 => count.harmless += 1,
                _ => count.named += 1,
            }
        }
    }
}

fn position(bytes: &[u8], part: &[u8]) -> Vec<usize> {
    let found = bytes.windows(part.len()).enumerate();
    found
        .filter(|(_, window)| *window == part)
        .map(|(at, _)| at)
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_value_is_named_and_the_others_are_served() {
    for killed in [false, true] {
        let (image, written) = store(killed).await;
        for (key, value) in written.iter().step_by(4) {
            // Every copy that the file has of it, the ones of older commits too.
            let (dir, _) = damaged_copy(image.path(), |bytes| {
                let places = position(bytes, value);
                assert!(!places.is_empty());
                for at in places {
                    bytes[at + value.len() / 2] ^= 0x10;
                }
            });
            let report = check(dir.path()).unwrap();
            assert!(
                report.damaged.iter().any(|damaged| damaged.key == *key),
                "{report:?}"
            );
            let store = open(dir.path()).await.unwrap();
            let named: Vec<_> = store
                .damaged()
                .iter()
                .map(|found| found.key.clone())
                .collect();
            assert!(named.contains(key), "{named:?}");
            let mut expected = written.clone();
            named.iter().for_each(|key| drop(expected.remove(key)));
            assert_eq!(everything(&store), expected, "killed: {killed}");
            // It is neither free nor overwritten by accident.
            let over = Op::put(key.clone(), "1");
            let txn = Txn {
                checks: vec![],
                ops: vec![over],
            };
            let refused = store.commit(txn).await;
            assert!(matches!(refused, Err(TxnError::Damaged { key: named }) if named == *key));
            store.close().await;
            // That it is known stays known.
            assert!(!check(dir.path()).unwrap().is_well());
            let repaired = repair(dir.path()).unwrap();
            assert!(repaired.kept.is_some_and(|kept| kept.exists()));
            assert!(check(dir.path()).unwrap().is_well());
            let store = open(dir.path()).await.unwrap();
            assert_eq!((everything(&store), store.damaged().len()), (expected, 0));
            put(&store, key, "again").await;
        }
    }
}

/// `PORTICO_DAMAGES` changes how many there are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_damage_is_found_or_harmless() {
    let damages = std::env::var("PORTICO_DAMAGES").map_or(160, |text| text.parse().unwrap());
    let seed = proptest::test_runner::TestRng::deterministic_rng(
        proptest::test_runner::RngAlgorithm::ChaCha,
    );
    let mut random = Random(seed);
    let mut count = Count::default();
    for killed in [false, true] {
        let (image, written) = store(killed).await;
        let len = fs::metadata(image.path().join(FILE)).unwrap().len() as usize;
        let used = used(&fs::read(image.path().join(FILE)).unwrap());
        for number in 0..damages {
            let what = match number % 8 {
                0 => Damage::Cut(random.below(len)),
                1 => Damage::Zeros(used[random.below(used.len())]),
                2 => Damage::Flip(random.below(320), random.below(8)),
                _ => {
                    let page = used[random.below(used.len())];
                    Damage::Flip(page * PAGE + random.below(PAGE), random.below(8))
                }
            };
            let (dir, _) = damaged_copy(image.path(), |bytes| what.apply(bytes));
            let told = format!("killed: {killed}, {what:?}");
            judge(dir.path(), &written, &told, &mut count).await;
        }
    }
    println!("{count:?}");
    assert!(
        count.refused > 0 && count.named > 0 && count.harmless > 0,
        "{count:?}"
    );
}

const PAGE: usize = 4096;

/// Pages with something in them.
fn used(bytes: &[u8]) -> Vec<usize> {
    let pages = bytes.chunks(PAGE).enumerate();
    pages
        .filter(|(_, page)| page.iter().any(|byte| *byte != 0))
        .map(|(number, _)| number)
        .collect()
}

#[derive(Debug)]
enum Damage {
    Flip(usize, usize),
    Zeros(usize),
    Cut(usize),
}

impl Damage {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match *self {
            Self::Flip(at, bit) => bytes[at] ^= 1 << bit,
            Self::Zeros(page) => bytes[page * PAGE..(page + 1) * PAGE].fill(0),
            Self::Cut(len) => bytes.truncate(len),
        }
    }
}

struct Random(proptest::test_runner::TestRng);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        use proptest::prelude::Rng;
        (self.0.next_u64() % end as u64) as usize
    }
}

#[tokio::test]
async fn a_store_that_is_gone_is_an_error_and_not_an_empty_cluster() {
    let (image, _) = store(false).await;
    let path = image.path().join(FILE);
    for empty in [false, true] {
        fs::remove_file(&path).unwrap();
        if empty {
            fs::write(&path, "").unwrap();
        }
        let error = open(image.path()).await.err().unwrap();
        assert!(matches!(error, OpenError::Missing { .. }), "{error:?}");
        let text = error.to_string();
        assert!(
            text.contains("portico restore") && text.contains("--new-store"),
            "{text}"
        );
        let anew = EmbeddedOptions {
            anew: true,
            ..EmbeddedOptions::default()
        };
        let store = Store::embedded(image.path(), anew).await.unwrap();
        assert!(everything(&store).is_empty());
        store.close().await;
        let error = Store::embedded(image.path(), anew).await.err().unwrap();
        assert!(matches!(error, OpenError::Exists { .. }), "{error:?}");
    }
    // Also where the whole directory is gone, and somebody remembers.
    let expected = EmbeddedOptions {
        expected: true,
        ..EmbeddedOptions::default()
    };
    let error = Store::embedded(folder().path(), expected).await.err();
    assert!(matches!(error, Some(OpenError::Missing { .. })));
}

#[tokio::test]
async fn an_older_copy_of_the_file_is_not_taken_for_the_newest() {
    let dir = folder();
    let store = open(dir.path()).await.unwrap();
    put(&store, "services/a", "old").await;
    store.close().await;
    let old = fs::read(dir.path().join(FILE)).unwrap();
    let store = open(dir.path()).await.unwrap();
    put(&store, "services/a", "new").await;
    store.close().await;
    fs::write(dir.path().join(FILE), old).unwrap();
    let error = open(dir.path()).await.err().unwrap();
    assert!(error.to_string().contains("was acknowledged"), "{error}");
}

/// As version 0.1 wrote it.
#[tokio::test]
async fn a_store_without_checksums_gets_them() {
    let dir = folder();
    let objects: redb::TableDefinition<&str, &[u8]> = redb::TableDefinition::new("objects");
    let meta: redb::TableDefinition<&str, u64> = redb::TableDefinition::new("meta");
    let database = redb::Database::create(dir.path().join(FILE)).unwrap();
    let write = database.begin_write().unwrap();
    write.open_table(meta).unwrap().insert("format", 1).unwrap();
    write
        .open_table(meta)
        .unwrap()
        .insert("revision", 7)
        .unwrap();
    for (key, modified) in [("services/a", 3_u64), ("services/b", 7)] {
        let record = [&2_u64.to_le_bytes()[..], &modified.to_le_bytes(), b"value"].concat();
        let mut table = write.open_table(objects).unwrap();
        table.insert(key, &*record).unwrap();
    }
    write.commit().unwrap();
    drop(database);
    for _ in 0..2 {
        let store = open(dir.path()).await.unwrap();
        let entry = store.get("services/b").unwrap();
        assert_eq!((store.revision(), entry.created, entry.modified), (7, 2, 7));
        assert_eq!(entry.value, "value");
        assert_eq!(everything(&store).len(), 2);
        store.close().await;
        assert!(check(dir.path()).unwrap().is_well());
    }
}
