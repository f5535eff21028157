//! What the kernel is told of this process's memory: what to end first when there is none left, and
//! the size of its pages.

use std::io;

/// The traffic of all pods depends on the daemon: when memory is short the kernel should rather
/// kill another program.
pub(crate) fn prefer_others_to_be_killed(adjustment: i32) {
    if let Err(error) = std::fs::write("/proc/self/oom_score_adj", adjustment.to_string()) {
        tracing::info!(%error, adjustment, "cannot set oom_score_adj");
    }
}

/// A heap of many small objects that come and go in bursts wastes most of a large page.
#[expect(unsafe_code, reason = "prctl is only there as a system call")]
pub(crate) fn use_small_pages() {
    // SAFETY: takes integers, touches no memory of ours.
    let result = unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
    if result != 0 {
        tracing::debug!(error = %io::Error::last_os_error(), "cannot do without large pages");
    }
}
