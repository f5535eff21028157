//! Work that takes long, on a thread of the runtime.

use tokio::runtime::{Handle, RuntimeFlavor};

/// The thread's other work goes to another thread.
pub fn aside<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}
