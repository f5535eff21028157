//! Work that takes long, on the thread that follows changes.

use portico_dataplane::thread;
use tokio::runtime::{Handle, RuntimeFlavor};

/// The thread's other work goes to another thread, and this one runs as others do.
pub fn aside<T>(work: impl FnOnce() -> T) -> T {
    thread::run_as_others();
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}
