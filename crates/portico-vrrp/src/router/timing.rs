//! How long routers wait. The formulas of both versions, and what follows from them.

use crate::packet::Version;
use std::time::Duration;

/// How early the kernel may remove an address (a quarter of a second), and how late an advert may
/// be that still saves it.
const KERNEL_MARGIN: Duration = Duration::from_millis(350);
/// On a busy machine the next owner may be late, however short the interval; the one that leaves
/// serves until then.
const SHORTEST_LEAVE: Duration = Duration::from_secs(1);

/// The skew of RFC 9568, by which the router with the highest priority is the first of several that
/// wait.
pub fn skew(version: Version, interval: Duration, priority: u8) -> Duration {
    let unit = match version {
        Version::V2 => Duration::from_secs(1),
        Version::V3 => interval,
    };
    unit * (256 - u32::from(priority)) / 256
}

/// How long a router with this priority waits for an advert before it takes over.
pub fn silence(version: Version, interval: Duration, priority: u8) -> Duration {
    3 * interval + skew(version, interval, priority)
}

/// An owner that was silent for longer than this is not the owner any more: no standby waits for
/// less.
pub fn patience(interval: Duration) -> Duration {
    3 * interval
}

/// A standby runs at least this often while it waits, adverts or not.
pub fn attention(interval: Duration) -> Duration {
    interval * 5 / 4
}

/// A standby that did not run for longer than this has missed something; with less, it missed one
/// advert at most.
pub fn inattention(interval: Duration) -> Duration {
    interval * 7 / 4
}

/// How long the kernel keeps the address without a word from us, in whole seconds: until the
/// slowest of the others has taken over, and not so short that an owner which is late but within
/// its patience loses it. With a refresh every quarter of it, that is two intervals and a quarter.
pub fn lifetime(version: Version, interval: Duration) -> Duration {
    let late = patience(interval) + KERNEL_MARGIN;
    let late_after_refresh = (2 * interval + KERNEL_MARGIN) * 4 / 3;
    let enough = silence(version, interval, 1)
        .max(late)
        .max(late_after_refresh);
    Duration::from_secs(enough.as_nanos().div_ceil(1_000_000_000) as u64)
}

/// An owner that leaves repeats its advert at this interval, should one get lost: a router that
/// heard it has taken over before the next.
pub fn leave_again(version: Version, interval: Duration) -> Duration {
    match version {
        Version::V2 => Duration::from_secs(1),
        Version::V3 => interval,
    }
}

/// An owner that leaves keeps the address at most for this long, when no router takes it.
pub fn leave(version: Version, interval: Duration) -> Duration {
    (3 * leave_again(version, interval)).max(SHORTEST_LEAVE)
}
