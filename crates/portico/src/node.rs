//! `portico node`: arguments to a configuration, and a run from start to signal.

use crate::logging;
use crate::signals::Signals;
use anyhow::Context;
use portico_node::config::{self, Arguments, Loaded, Task};
use std::fs;
use std::time::Duration;

/// Do what was asked for: forward until SIGINT or SIGTERM, or something short.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let loaded = config::load(arguments);
    logging::start_with(
        loaded
            .as_ref()
            .map(|loaded| loaded.config.logging)
            .unwrap_or_default(),
    );
    let Loaded {
        config,
        task,
        warnings,
    } = loaded?;
    warnings
        .iter()
        .for_each(|warning| tracing::warn!("{warning}"));
    match task {
        Task::WriteConfig(path) => {
            let text = config.print();
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
        }
        Task::Cleanup => portico_node::remove_all().context("not all rules could be removed"),
        Task::InitOnly => {
            portico_node::initialise(&config);
            Ok(())
        }
        Task::Run => runtime()?.block_on(async {
            set_purge_delay(Duration::ZERO);
            let mut signals = Signals::new()?;
            portico_node::run(
                config,
                give_memory_back,
                async move { signals.wait().await },
            )
            .await?;
            tracing::info!("stopped; the rules stay");
            Ok(())
        }),
    }
}

/// A thread that has nothing to do keeps the memory that others freed for it, so it ends soon.
const IDLE: Duration = Duration::from_millis(200);

/// One worker for all but changes, which have a thread of their own; while it is at something that
/// takes long, another takes its place.
fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder
        .worker_threads(1)
        .max_blocking_threads(4)
        .thread_keep_alive(IDLE)
        .enable_all()
        .build()
}

/// The lists of a start and their batch are large and soon gone, then little happens for long. What
/// is freed goes back to the system at once during a start, and from then on when there is time for
/// it: single changes reuse what others freed.
fn give_memory_back() {
    set_purge_delay(Duration::from_secs(3600));
    collect();
}

#[expect(unsafe_code, reason = "options of the allocator are only there in C")]
fn set_purge_delay(delay: Duration) {
    // It has no name in the bindings, and stands before this one.
    const PURGE_DELAY: libmimalloc_sys::mi_option_t = libmimalloc_sys::mi_option_use_numa_nodes - 1;
    // SAFETY: sets a number of the allocator's own; options out of its range are ignored there.
    unsafe {
        libmimalloc_sys::mi_option_set(PURGE_DELAY, delay.as_millis().try_into().unwrap_or(0))
    };
}

#[expect(unsafe_code, reason = "the allocator is C")]
fn collect() {
    // SAFETY: looks for pages of the calling thread that have nothing in use, and unmaps what is in
    // none.
    unsafe { libmimalloc_sys::mi_collect(true) };
}
