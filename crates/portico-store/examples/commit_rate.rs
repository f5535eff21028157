//! Durable commits a second of the embedded engine, with one writer and with 64.
#![expect(clippy::print_stdout, reason = "the figures are the purpose")]

use std::error::Error;
use std::time::{Duration, Instant};

use portico_store::{EmbeddedOptions, Op, Store, Txn};

const TIME: Duration = Duration::from_secs(2);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    for writers in [1, 64] {
        let dir = tempfile::tempdir()?;
        let store = Store::embedded(dir.path(), EmbeddedOptions::default()).await?;
        let start = Instant::now();
        let tasks: Vec<_> = (0..writers)
            .map(|writer| tokio::spawn(write(store.clone(), writer, start)))
            .collect();
        let mut commits = 0;
        for task in tasks {
            commits += task.await??;
        }
        let rate = commits as f64 / start.elapsed().as_secs_f64();
        println!("{writers:>3} writers: {rate:.0} commits/s");
        store.close().await;
    }
    Ok(())
}

async fn write(
    store: Store,
    writer: usize,
    start: Instant,
) -> Result<usize, portico_store::TxnError> {
    let mut commits = 0;
    while start.elapsed() < TIME {
        let op = Op::put(
            format!("services/default/{writer}-{}", commits % 300),
            vec![b'x'; 1500],
        );
        store
            .commit(Txn {
                checks: vec![],
                ops: vec![op],
            })
            .await?;
        commits += 1;
    }
    Ok(commits)
}
