//! redb panics where a damaged file makes no sense to it. Here that is an answer, and no crash to
//! print a backtrace of.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

thread_local! {
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// What the work returns, or `None` if it panicked. Nothing that it left half done may be used.
pub(super) fn guarded<T>(work: impl FnOnce() -> T) -> Option<T> {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if GUARDED.get() {
                tracing::debug!("redb cannot make sense of a file: {info}");
            } else {
                usual(info);
            }
        }));
    });
    GUARDED.set(true);
    let result = panic::catch_unwind(AssertUnwindSafe(work));
    GUARDED.set(false);
    result.ok()
}
