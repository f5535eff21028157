//! Disks that fail, fill up and alter what they hold; stores that are gone; backups and what comes
//! of them. An acknowledged write is there, or the server says that it is not.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::common::{Client, Server, Store, eventually, items, text};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn portico(arguments: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_portico");
    Command::new(program).args(arguments).output().unwrap()
}

#[track_caller]
fn succeeds(arguments: &[&str]) -> String {
    let output = portico(arguments);
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{arguments:?}: {}",
        said(&output.stderr)
    );
    said(&output.stdout)
}

fn map(name: &str, value: &str) -> Value {
    let metadata = json!({"name": name});
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"v": value}})
}

/// Creates objects until the server stops acknowledging; what it acknowledged.
async fn create(
    client: Client,
    writer: String,
    acknowledged: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
) -> Vec<String> {
    let mut names = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let name = format!("{writer}-{}", names.len());
        let body = map(&name, &name.repeat(1 + names.len() % 200)).to_string();
        let answer = client.try_call("POST", MAPS, &[], Some(("application/json", body.into())));
        match answer.await {
            Ok(answer) if answer.status == 201 => {
                names.push(name);
                acknowledged.fetch_add(1, Ordering::Relaxed);
            }
            _ => break,
        }
    }
    names
}

struct Load {
    writers: Vec<tokio::task::JoinHandle<Vec<String>>>,
    acknowledged: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
}

impl Load {
    fn start(client: &Client, round: usize) -> Self {
        let (acknowledged, stop) = (Arc::default(), Arc::default());
        let writer = |number| {
            let name = format!("w{round}-{number}");
            let counted = Arc::clone(&acknowledged);
            tokio::spawn(create(client.clone(), name, counted, Arc::clone(&stop)))
        };
        Self {
            writers: (0..8).map(writer).collect(),
            acknowledged,
            stop,
        }
    }

    async fn reaches(&self, count: usize) {
        eventually("enough acknowledged writes", || async {
            (self.acknowledged.load(Ordering::Relaxed) >= count).then_some(())
        })
        .await;
    }

    async fn end(self) -> Vec<String> {
        self.stop.store(true, Ordering::Relaxed);
        let mut names = Vec::new();
        for writer in self.writers {
            names.extend(writer.await.unwrap());
        }
        names
    }
}

async fn names(client: &Client) -> Vec<String> {
    let list = client.get(MAPS).await.expect(200);
    let names = items(&list).iter();
    names
        .map(|object| text(object, "metadata.name").to_owned())
        .collect()
}

async fn assert_all_there(client: &Client, acknowledged: &[String]) {
    let there = names(client).await;
    let lost: Vec<_> = acknowledged
        .iter()
        .filter(|name| !there.contains(name))
        .collect();
    assert!(
        lost.is_empty(),
        "{} of {} acknowledged writes are lost: {lost:?}",
        lost.len(),
        acknowledged.len()
    );
}

/// Starts Portico with the library before it, while there is a file `preload`.
fn with_library(dir: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/hostile/sync.c");
    let library = dir.join("sync.so");
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-Wall", "-o"])
        .arg(&library)
        .arg(source)
        .arg("-ldl")
        .status();
    assert!(compiled.unwrap().success());
    let program = dir.join("portico");
    let dir = dir.display();
    let script = format!(
        "#!/bin/sh\nif [ -e {dir}/preload ]; then\n  export SYNC_DISK={dir}/disk SYNC_ARMED={dir}/armed \
         SYNC_NTH=$(cat {dir}/preload)\n  export LD_PRELOAD={dir}/sync.so\nfi\nexec {} \"$@\"\n",
        env!("CARGO_BIN_EXE_portico")
    );
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    program
}

fn store_file(server: &Server) -> PathBuf {
    server.dir().join("data/store/portico.redb")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_sync_ends_the_server_and_costs_no_acknowledged_write() {
    let dir = TempDir::with_prefix("portico-sync-").unwrap();
    let program = with_library(dir.path());
    let mut server = Server::launch(&program, false, None, &[]).await;
    let mut acknowledged = Vec::new();
    for (round, nth) in [1, 2, 5].into_iter().enumerate() {
        server.stop().await;
        fs::copy(store_file(&server), dir.path().join("disk")).unwrap();
        fs::write(dir.path().join("preload"), nth.to_string()).unwrap();
        server.restart(None).await;
        let load = Load::start(&server.admin(), round);
        load.reaches(40).await;
        fs::write(dir.path().join("armed"), "").unwrap();
        let code = server.ended().await;
        acknowledged.extend(load.end().await);
        assert_eq!(code, Some(1), "{}", server.log());
        let log = server.log();
        assert!(log.contains("the disk failed"), "{log}");
        assert!(log.contains("every acknowledged write is on it"), "{log}");
        // The power goes: what the disk has is all there is.
        fs::copy(dir.path().join("disk"), store_file(&server)).unwrap();
        fs::remove_file(dir.path().join("preload")).unwrap();
        fs::remove_file(dir.path().join("armed")).unwrap();
        server.restart(None).await;
        assert_all_there(&server.admin(), &acknowledged).await;
        println!(
            "sync {nth} failed: the server ended with 1, all {} acknowledged writes are there",
            acknowledged.len()
        );
    }
}

/// A small disk that takes the place of a folder until this is dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn over(folder: &Path) -> Self {
        let before = TempDir::new().unwrap();
        for file in fs::read_dir(folder).unwrap().flatten() {
            fs::copy(file.path(), before.path().join(file.file_name())).unwrap();
        }
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=12m", "portico-test"]);
        assert!(mount.arg(folder).status().unwrap().success());
        let disk = Self(folder.to_owned());
        for file in fs::read_dir(before.path()).unwrap().flatten() {
            fs::copy(file.path(), folder.join(file.file_name())).unwrap();
        }
        disk
    }

    fn fill(&self) {
        let mut bytes = 12 << 20;
        let mut number = 0;
        while bytes >= 4096 {
            let path = self.0.join(format!("filler-{number}"));
            if fs::write(&path, vec![1; bytes]).is_err() {
                fs::remove_file(&path).unwrap();
                bytes /= 2;
            }
            number += 1;
        }
    }

    fn make_room(&self) {
        for file in fs::read_dir(&self.0).unwrap().flatten() {
            if file.file_name().to_string_lossy().starts_with("filler") {
                fs::remove_file(file.path()).unwrap();
            }
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

async fn metric(client: &Client, name: &str) -> String {
    let page = client.get("/metrics").await.text();
    let line = page
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_is_told_by_readyz_and_comes_back_by_itself() {
    let mut server = Server::start(Store::Embedded, &[]).await;
    assert_eq!(server.stop().await, Some(0));
    let disk = SmallDisk::over(store_file(&server).parent().unwrap());
    server.restart(None).await;
    let admin = server.admin();
    let mut acknowledged = Vec::new();
    let mut refused = 0;
    disk.fill();
    for number in 0..200 {
        let name = format!("big-{number}");
        let answer = admin.post(MAPS, &map(&name, &"x".repeat(100_000))).await;
        match answer.status {
            201 => acknowledged.push(name),
            503 => {
                refused += 1;
                if refused == 3 {
                    assert!(answer.text().contains("no room on the disk"));
                    break;
                }
            }
            status => panic!("{status}: {}", answer.text()),
        }
    }
    assert_eq!(refused, 3, "the disk was never full");
    let ready = admin.get("/readyz").await;
    assert_eq!(ready.status, 500);
    assert!(
        ready
            .text()
            .contains("[-]store failed: no room on the disk"),
        "{}",
        ready.text()
    );
    assert_eq!(admin.get("/livez").await.status, 200);
    assert_eq!(metric(&admin, "portico_store_writable").await, "0");
    assert!(server.log().contains("the store takes no writes"));
    assert_all_there(&admin, &acknowledged).await;

    disk.make_room();
    eventually("readyz", || async {
        (admin.get("/readyz").await.status == 200).then_some(())
    })
    .await;
    assert_eq!(metric(&admin, "portico_store_writable").await, "1");
    admin.post(MAPS, &map("after", "1")).await.expect(201);
    acknowledged.push("after".into());
    server.restart(None).await;
    assert_all_there(&server.admin(), &acknowledged).await;
    println!(
        "full after {} writes, back by itself, all there",
        acknowledged.len() - 1
    );
    server.kill();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_object_is_named_and_the_others_are_served() {
    for killed in [false, true] {
        let mut server = Server::start(Store::Embedded, &[]).await;
        for number in 0..30 {
            let value = format!("value-of-{number}-").repeat(20);
            let name = format!("m{number}");
            server
                .admin()
                .post(MAPS, &map(&name, &value))
                .await
                .expect(201);
        }
        match killed {
            true => server.kill(),
            false => drop(server.stop().await),
        }
        let path = store_file(&server);
        let mut bytes = fs::read(&path).unwrap();
        let needle = b"value-of-17-";
        let at: Vec<usize> = (0..bytes.len() - needle.len())
            .filter(|at| bytes[*at..].starts_with(needle))
            .collect();
        at.iter().for_each(|at| bytes[at + 2] ^= 4);
        fs::write(&path, bytes).unwrap();
        let data = server.dir().join("data").display().to_string();
        let check = portico(&["store", "check", "--data-dir", &data]);
        let said = String::from_utf8_lossy(&check.stdout).into_owned();
        assert_eq!(check.status.code(), Some(1), "{said}");
        assert!(said.contains("damaged: configmaps/default/m17: "), "{said}");

        server.restart(None).await;
        let admin = server.admin();
        let damaged = admin.get(&format!("{MAPS}/m17")).await;
        assert_eq!(damaged.status, 500);
        assert!(
            damaged.text().contains("configmaps/default/m17 is damaged"),
            "{}",
            damaged.text()
        );
        let list = admin.get(MAPS).await;
        assert_eq!(items(&list.expect(200)).len(), 29);
        let warning = list.headers["warning"].to_str().unwrap();
        assert!(warning.contains("configmaps/default/m17"), "{warning}");
        for number in (0..30).filter(|number| *number != 17) {
            let found = admin.get(&format!("{MAPS}/m{number}")).await.expect(200);
            assert!(text(&found, "data.v").starts_with(&format!("value-of-{number}-")));
        }
        assert_eq!(admin.post(MAPS, &map("m17", "1")).await.status, 500);
        assert_eq!(metric(&admin, "portico_store_damaged_objects").await, "1");
        admin.post(MAPS, &map("new", "1")).await.expect(201);
        let running = portico(&["store", "check", "--data-dir", &data]);
        let said = String::from_utf8_lossy(&running.stderr).into_owned();
        assert!(said.contains("in use by another process"), "{said}");

        server.stop().await;
        succeeds(&["store", "repair", "--data-dir", &data]);
        succeeds(&["store", "check", "--data-dir", &data]);
        server.restart(None).await;
        server
            .admin()
            .post(MAPS, &map("m17", "1"))
            .await
            .expect(201);
        assert_eq!(names(&server.admin()).await.len(), 31);
        assert!(!server.log().contains("panicked"), "{}", server.log());
        println!("killed: {killed}: 1 of 30 damaged and named, 29 served");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_gone_is_no_empty_cluster() {
    let mut server = Server::start(Store::Embedded, &[]).await;
    server.admin().post(MAPS, &map("a", "1")).await.expect(201);
    let store = store_file(&server);
    let kept = fs::read(&store).unwrap();
    for gone in ["the file", "its contents", "the folder"] {
        server.kill();
        match gone {
            "the file" => fs::remove_file(&store).unwrap(),
            "its contents" => fs::write(&store, "").unwrap(),
            _ => fs::remove_dir_all(store.parent().unwrap()).unwrap(),
        }
        let log = server.start_again().await.unwrap_err();
        assert!(
            log.contains("and there was a store") && log.contains("--new-store"),
            "{log}"
        );
    }
    server.restart(Some(&["--new-store"])).await;
    assert!(names(&server.admin()).await.is_empty());
    // It is for once: left in a unit, it never empties anything.
    server.kill();
    let log = server.start_again().await.unwrap_err();
    assert!(log.contains("leave out --new-store"), "{log}");
    assert!(!kept.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_of_a_running_server_is_restored_into_either_engine() {
    for from in [Store::Embedded, Store::Etcd] {
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("backup").display().to_string();
        let mut server = Server::start(from, &[]).await;
        let admin = server.admin();
        for token in ["viewer-token", "node-token", "nobody-token", ""] {
            let status = server.with_token(token).get("/backup").await.status;
            assert!(matches!(status, 401 | 403), "{token}: {status}");
        }
        let load = Load::start(&admin, 0);
        load.reaches(200).await;
        let before = names(&admin).await;
        let kubeconfig = server.kubeconfig().display().to_string();
        let said = {
            let arguments = ["backup", &file, "--kubeconfig", &kubeconfig];
            tokio::task::block_in_place(|| succeeds(&arguments))
        };
        let acknowledged = load.end().await;
        succeeds(&["store", "check", "--backup", &file]);
        let mode = fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let late = admin.post(MAPS, &map("late", "1")).await.expect(201);
        let seen = text(&late, "metadata.resourceVersion").to_owned();
        println!(
            "{from:?}: {} beside {} writes",
            said.trim(),
            acknowledged.len()
        );

        let data = server.dir().join("data").display().to_string();
        let into = match server.etcd() {
            Some(etcd) => ["--etcd-servers".to_owned(), etcd.url.clone()],
            None => ["--data-dir".to_owned(), data],
        };
        server.stop().await;
        let refused = portico(&["restore", &file, &into[0], &into[1]]);
        let why = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(why.contains("--replace"), "{why}");
        succeeds(&["restore", &file, &into[0], &into[1], "--replace"]);
        server.restart(None).await;
        goes_on(&server, &before, &seen).await;

        let mut other = match from {
            Store::Embedded => Server::start(Store::Etcd, &[]).await,
            Store::Etcd => Server::start(Store::Embedded, &[]).await,
        };
        let data = other.dir().join("data").display().to_string();
        let into = match other.etcd() {
            Some(etcd) => ["--etcd-servers".to_owned(), etcd.url.clone()],
            None => ["--data-dir".to_owned(), data],
        };
        other.stop().await;
        succeeds(&["restore", &file, &into[0], &into[1], "--replace"]);
        other.restart(None).await;
        goes_on(&other, &before, &seen).await;
    }
}

/// What was there before the backup is there, what came after is not, and watchers of then hear so.
async fn goes_on(server: &Server, before: &[String], seen: &str) {
    let admin = server.admin();
    assert_all_there(&admin, before).await;
    assert!(!names(&admin).await.contains(&"late".to_owned()));
    let watch = format!("{MAPS}?watch=1&resourceVersion={seen}&timeoutSeconds=5");
    let answer = admin.get(&watch).await.text();
    assert!(answer.contains("410"), "{answer}");
    let written = admin.post(MAPS, &map("next", "1")).await.expect(201);
    let number = |version: &str| version.parse::<u64>().unwrap();
    let revision = number(text(&written, "metadata.resourceVersion"));
    assert!(revision > number(seen));
}
