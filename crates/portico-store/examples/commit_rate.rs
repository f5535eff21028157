//! Durable commits a second with one writer and with 64, and the memory of 20,000 objects. On the
//! embedded engine, or on the etcd whose address is given as the argument.
#![expect(clippy::print_stdout, reason = "the figures are the purpose")]

use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

use portico_store::{EmbeddedOptions, EtcdOptions, Op, OpenError, Store, Txn, TxnError};

const TIME: Duration = Duration::from_secs(2);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    for writers in [1, 64] {
        let dir = tempfile::tempdir()?;
        let store = open(dir.path()).await?;
        let start = Instant::now();
        let write = |writer| tokio::spawn(write_for_a_while(store.clone(), writer, start));
        let tasks: Vec<_> = (0..writers).map(write).collect();
        let mut commits = 0;
        for task in tasks {
            commits += task.await??;
        }
        let rate = commits as f64 / start.elapsed().as_secs_f64();
        println!("{writers} writers: {rate:.0} commits/s");
        store.close().await;
    }
    objects().await
}

async fn open(dir: &Path) -> Result<Store, OpenError> {
    match std::env::args().nth(1) {
        Some(endpoint) => {
            Store::etcd(EtcdOptions {
                endpoints: vec![endpoint],
                ..EtcdOptions::default()
            })
            .await
        }
        None => Store::embedded(dir, EmbeddedOptions::default()).await,
    }
}

async fn write_for_a_while(store: Store, writer: usize, start: Instant) -> Result<usize, TxnError> {
    let mut commits = 0;
    while start.elapsed() < TIME {
        put(&store, writer * 300 + commits % 300, 1).await?;
        commits += 1;
    }
    Ok(commits)
}

async fn objects() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let store = open(dir.path()).await?;
    for first in (0..20_000).step_by(100) {
        put(&store, first, 100).await?;
    }
    store.close().await;
    let start = Instant::now();
    let store = open(dir.path()).await?;
    println!(
        "opened 20,000 objects in {:?}, resident {}",
        start.elapsed(),
        resident()?
    );
    store.close().await;
    Ok(())
}

async fn put(store: &Store, first: usize, count: usize) -> Result<(), TxnError> {
    let op = |number| Op::put(format!("services/default/{number}"), vec![b'x'; 1500]);
    let ops = (first..first + count).map(op).collect();
    store
        .commit(Txn {
            checks: vec![],
            ops,
        })
        .await
        .map(drop)
}

fn resident() -> std::io::Result<String> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    Ok(line.unwrap_or("unknown").trim().to_owned())
}
