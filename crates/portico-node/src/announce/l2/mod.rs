//! Layer 2: this node answers for its share of the addresses, by ARP and neighbour discovery.
//!
//! A thread of its own, before all ordinary threads where that is allowed, drives
//! [`portico_l2::Speaker`]: it needs the other nodes, and neither an API server nor another part of
//! the process. It answers requests itself, in the place of the kernel, so that addresses leave
//! with the process, however it ends.
//!
//! `driver` is the loop; `holdings` tells what this node answers for; `heartbeats` has the sockets to other nodes and `seal` what proves who
//! they are from; `links` knows the node's links, `wire` has the frames on them, `groups` the
//! groups in which questions for IPv6 addresses come.

mod driver;
mod groups;
mod heartbeats;
mod holdings;
pub mod links;
mod metrics;
mod seal;
mod wire;

pub use holdings::Layer2;
pub use metrics::Metrics;
pub use seal::Key;

use super::{Peers, ShareChanges};
use driver::Driver;
use portico_dataplane::thread;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};

/// The time to wait after a failure that may pass by itself.
const RETRY: Duration = Duration::from_secs(2);

/// What it works with.
pub struct Parts {
    /// The name of this node.
    pub node: Arc<str>,
    /// Those that could take part, this node among them if it may.
    pub peers: watch::Receiver<Peers>,
    /// Nothing is answered before the first, which has all that there is.
    pub shares: mpsc::Receiver<ShareChanges>,
    /// The same on all nodes.
    pub key: Key,
    /// The UDP port of heartbeats.
    pub port: u16,
    /// Among whom addresses are shared out, and which of them this node has, for its report.
    pub report: watch::Sender<Layer2>,
    /// What it counts.
    pub metrics: Metrics,
}

/// Runs until the sender of shares is dropped: then other nodes have taken over what this one had.
/// To be called in an async runtime; belongs to the network namespace of the calling thread.
pub async fn run(parts: Parts) {
    let (end, ended) = oneshot::channel();
    let thread = std::thread::Builder::new()
        .name("layer-2".to_owned())
        .spawn(move || {
            let _end: oneshot::Sender<()> = end;
            thread::run_on_time();
            match tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
            {
                Ok(runtime) => runtime.block_on(drive(parts)),
                Err(error) => tracing::error!(%error, "cannot start the runtime of layer 2"),
            }
        });
    match thread {
        Ok(_) => drop(ended.await),
        Err(error) => tracing::error!(%error, "cannot start the thread of layer 2"),
    }
}

async fn drive(mut parts: Parts) {
    loop {
        match Driver::open(&parts) {
            Ok(driver) => return driver.run(&mut parts).await,
            Err(error) => {
                tracing::error!(%error, port = parts.port, "layer 2 cannot be announced (it needs CAP_NET_RAW), will try again")
            }
        }
        tokio::time::sleep(RETRY).await;
    }
}
