//! Work that keeps a thread of the runtime busy for long.

use tokio::runtime::{Handle, RuntimeFlavor};

/// Does the work while the tasks of the calling thread go on on another thread.
pub(crate) fn run_blocking<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}
