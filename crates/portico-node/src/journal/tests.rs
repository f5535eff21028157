use super::*;
use portico_model::objects::{EndpointSlice, Service};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use tempfile::TempDir;

fn service(name: &str, revision: u32) -> Object {
    let mut service = Service::default();
    service.metadata.name = name.to_owned();
    service.metadata.namespace = "default".to_owned();
    service.metadata.resource_version = revision.to_string();
    service.spec.cluster_ip = format!("10.0.0.{}", revision % 250);
    Object::Service(Box::new(service))
}

fn slice(name: &str, revision: u32) -> Object {
    let mut slice = EndpointSlice::default();
    slice.metadata.name = name.to_owned();
    slice.metadata.resource_version = revision.to_string();
    slice.address_type = "IPv4".to_owned();
    Object::Slice(Box::new(slice))
}

fn lines(object: &Object) -> Lines {
    let mut lines = Lines::default();
    lines.apply(key_of(object), object);
    lines
}

fn path(directory: &TempDir) -> PathBuf {
    directory.path().join("node1/journal")
}

fn open(directory: &TempDir) -> Journal {
    Journal::open(directory.path(), "node1").unwrap().0
}

fn read(directory: &TempDir) -> Vec<Object> {
    let mut objects = file::objects(&path(directory)).unwrap();
    objects.sort_by_key(Object::name);
    objects
}

#[test]
fn remembers_what_was_last() {
    let directory = TempDir::new().unwrap();
    let journal = open(&directory);
    journal.apply(service("a", 1));
    journal.apply(service("b", 2));
    journal.apply(slice("a", 3));
    journal.apply(service("a", 4));
    journal.delete(&service("b", 0).name());
    drop(journal);
    assert_eq!(read(&directory), [service("a", 4), slice("a", 3)]);
    // Across a restart, too.
    let journal = open(&directory);
    journal.delete(&service("a", 0).name());
    drop(journal);
    let (journal, remembered) = Journal::open(directory.path(), "node1").unwrap();
    assert_eq!(remembered.read().unwrap(), [slice("a", 3)]);
    drop(journal);
}

#[test]
fn what_changed_is_in_the_file_after_a_pause_and_not_at_the_end_only() {
    let directory = TempDir::new().unwrap();
    let (journal, _) =
        Journal::open_with(directory.path(), "node1", Duration::from_millis(1)).unwrap();
    for revision in 1..4 {
        journal.apply(service("a", revision));
        let start = Instant::now();
        while read(&directory) != [service("a", revision)] {
            assert!(
                start.elapsed() < Duration::from_secs(60),
                "the change is not written"
            );
            std::thread::yield_now();
        }
    }
}

#[test]
fn what_is_written_is_synced_once() {
    let directory = TempDir::new().unwrap();
    let (mut file, _) = File::open(directory.path(), "node1").unwrap();
    file.sync().unwrap();
    assert!(file.is_synced());
    file.write(&lines(&service("a", 1))).unwrap();
    assert!(!file.is_synced());
    file.sync().unwrap();
    assert!(file.is_synced());
}

#[test]
fn a_list_deletes_what_it_does_not_have() {
    let directory = TempDir::new().unwrap();
    let journal = open(&directory);
    [service("a", 1), service("b", 2), slice("a", 3)]
        .into_iter()
        .for_each(|object| journal.apply(object));
    journal.listed(Kind::Service, &HashSet::from([service("b", 0).name()]));
    drop(journal);
    assert_eq!(read(&directory), [service("b", 2), slice("a", 3)]);
}

#[test]
fn the_same_revision_is_not_written_again() {
    let directory = TempDir::new().unwrap();
    let journal = open(&directory);
    journal.apply(service("a", 1));
    drop(journal);
    let before = fs::read(path(&directory)).unwrap();
    let journal = open(&directory);
    journal.apply(service("a", 1));
    journal.delete(&service("never", 0).name());
    drop(journal);
    assert_eq!(fs::read(path(&directory)).unwrap(), before);
}

#[test]
fn only_the_last_change_of_an_object_is_written() {
    let directory = TempDir::new().unwrap();
    let journal = open(&directory);
    (1..10).for_each(|revision| journal.apply(service("a", revision)));
    journal.apply(service("short", 10));
    journal.delete(&service("short", 0).name());
    drop(journal);
    let text = fs::read_to_string(path(&directory)).unwrap();
    assert_eq!(text.lines().count(), 2, "{text}");
    assert_eq!(read(&directory), [service("a", 9)]);
}

#[test]
fn a_torn_tail_is_ignored_and_written_over() {
    let directory = TempDir::new().unwrap();
    let journal = open(&directory);
    journal.apply(service("a", 1));
    drop(journal);
    let whole = fs::read(path(&directory)).unwrap();
    let mut longer = whole.clone();
    longer.extend_from_slice(&lines(&service("b", 2)).bytes);
    for length in whole.len()..longer.len() {
        fs::write(path(&directory), &longer[..length]).unwrap();
        let journal = open(&directory);
        journal.apply(service("c", 3));
        drop(journal);
        assert_eq!(
            read(&directory),
            [service("a", 1), service("c", 3)],
            "cut at {length}"
        );
    }
}

#[test]
fn a_line_without_sense_costs_only_itself() {
    let directory = TempDir::new().unwrap();
    let journal = open(&directory);
    journal.apply(service("a", 1));
    drop(journal);
    let mut bytes = fs::read(path(&directory)).unwrap();
    bytes.extend_from_slice(b"{\"apply\":{\"service\":7}}\n\xff\xfe\n");
    bytes.extend_from_slice(&lines(&service("b", 2)).bytes);
    fs::write(path(&directory), &bytes).unwrap();
    drop(open(&directory));
    assert_eq!(read(&directory), [service("a", 1), service("b", 2)]);
}

#[test]
fn another_version_is_taken_for_empty() {
    let directory = TempDir::new().unwrap();
    fs::create_dir_all(directory.path().join("node1")).unwrap();
    fs::write(
        path(&directory),
        "{\"journal\":{\"version\":999}}\n{\"other\":1}\n",
    )
    .unwrap();
    let journal = open(&directory);
    journal.apply(service("a", 1));
    drop(journal);
    assert_eq!(read(&directory), [service("a", 1)]);
}

#[test]
fn only_one_process_has_it() {
    let directory = TempDir::new().unwrap();
    let journal = open(&directory);
    assert!(Journal::open(directory.path(), "node1").is_err());
    assert!(Journal::open(directory.path(), "node2").is_ok());
    drop(journal);
    drop(open(&directory));
}

#[test]
fn is_rewritten_when_most_of_it_is_old() {
    let directory = TempDir::new().unwrap();
    let (mut file, _) = File::open(directory.path(), "node1").unwrap();
    let keep = service("keep", 1);
    file.write(&lines(&keep)).unwrap();
    let mut largest = 0;
    for revision in 2..2000 {
        let object = service("a", revision);
        file.write(&lines(&object)).unwrap();
        largest = largest.max(fs::metadata(path(&directory)).unwrap().len());
    }
    assert!(largest < 80 << 10, "{largest}");
    assert_eq!(read(&directory), [service("a", 1999), keep]);
    assert!(!path(&directory).with_extension("new").exists());
    // The rewritten file is locked as well.
    assert!(Journal::open(directory.path(), "node1").is_err());
}

#[derive(Clone, Debug)]
enum Step {
    Apply(u8, u32),
    Delete(u8),
    Listed(Vec<u8>),
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..12_u8, any::<u32>()).prop_map(|(name, revision)| Step::Apply(name, revision)),
        3 => (0..12_u8).prop_map(Step::Delete),
        1 => proptest::collection::vec(0..12_u8, 0..12).prop_map(Step::Listed),
        1 => Just(Step::Reopen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn replay_equals_state(steps in proptest::collection::vec(step(), 1..60)) {
        let directory = TempDir::new().unwrap();
        let mut journal = Some(open(&directory));
        let mut state: BTreeMap<Name, Object> = BTreeMap::new();
        for step in steps {
            let current = journal.take().unwrap();
            match step {
                Step::Apply(name, revision) => {
                    let object = service(&name.to_string(), revision);
                    current.apply(object.clone());
                    state.insert(object.name(), object);
                }
                Step::Delete(name) => {
                    let name = service(&name.to_string(), 0).name();
                    current.delete(&name);
                    state.remove(&name);
                }
                Step::Listed(names) => {
                    let names = names.iter().map(|name| service(&name.to_string(), 0).name()).collect();
                    current.listed(Kind::Service, &names);
                    state.retain(|name, _| names.contains(name));
                }
                Step::Reopen => {
                    drop(current);
                    journal = Some(open(&directory));
                    continue;
                }
            }
            journal = Some(current);
        }
        drop(journal);
        prop_assert_eq!(read(&directory), state.into_values().collect::<Vec<_>>());
    }
}
