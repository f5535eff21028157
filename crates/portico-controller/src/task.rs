//! Tasks that end with what started them.

use tokio::task::AbortHandle;

/// Work that is dropped, because its lease is lost, is dropped where it stands, with all it has
/// started.
#[derive(Debug)]
pub struct AbortOnDrop(pub AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
