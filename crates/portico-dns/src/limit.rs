//! How many answers a network gets by UDP. The source address of UDP can be forged, and an answer
//! is larger than its question: a victim of such a flood gets no more than the limit. Now and then
//! an answer tells honest clients to use TCP, where the address cannot be forged.

use std::hash::BuildHasher;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Networks that are told apart. Two in the same place share a limit, which is rare and does no
/// harm.
const PLACES: usize = 1 << 16;
/// Every so many answers over the limit is sent, empty and with the advice to use TCP.
const SLIP: u64 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Answer,
    /// Only the advice to use TCP.
    Truncate,
    Drop,
}

/// One number for each network: until when its answers are paid for. A limit of so many a second
/// lets as many pass at once.
pub(crate) struct Limit<S> {
    /// Microseconds that an answer costs; 0 is no limit.
    cost: u64,
    paid: Box<[AtomicU64]>,
    slips: AtomicU64,
    hasher: S,
}

impl<S: BuildHasher> Limit<S> {
    /// `hasher` has to be seeded at random, so that clients cannot foresee collisions.
    pub(crate) fn new(per_second: u32, hasher: S) -> Self {
        let cost = if per_second == 0 {
            0
        } else {
            (1_000_000 / u64::from(per_second)).max(1)
        };
        let places = if cost == 0 { 0 } else { PLACES };
        Self {
            cost,
            paid: (0..places).map(|_| AtomicU64::new(0)).collect(),
            slips: AtomicU64::new(0),
            hasher,
        }
    }

    /// May this client have an answer; `now` is the time since some moment.
    pub(crate) fn ask(&self, client: IpAddr, now: Duration) -> Verdict {
        let place = self.hasher.hash_one(network(client)) as usize % PLACES;
        let Some(paid) = self.paid.get(place) else {
            return Verdict::Answer;
        };
        let now = u64::try_from(now.as_micros()).unwrap_or(u64::MAX / 2);
        let pay = |until: u64| {
            let until = until.max(now) + self.cost;
            (until <= now + 1_000_000).then_some(until)
        };
        if paid.fetch_update(Relaxed, Relaxed, pay).is_ok() {
            return Verdict::Answer;
        }
        let slip = self.slips.fetch_add(1, Relaxed).is_multiple_of(SLIP);
        if slip {
            Verdict::Truncate
        } else {
            Verdict::Drop
        }
    }
}

/// A /24 or a /56: what one customer of a provider may have.
fn network(client: IpAddr) -> u64 {
    match client.to_canonical() {
        IpAddr::V4(ip) => u64::from(u32::from(ip) >> 8),
        IpAddr::V6(ip) => 1 << 63 | (u128::from(ip) >> 72) as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::RandomState;

    fn count(limit: &Limit<RandomState>, client: &str, from: u64, times: usize) -> [usize; 3] {
        let mut counts = [0; 3];
        for _ in 0..times {
            counts[limit.ask(client.parse().unwrap(), Duration::from_millis(from)) as usize] += 1;
        }
        counts
    }

    #[test]
    fn a_network_gets_its_share_and_no_more() {
        let limit = Limit::new(100, RandomState::new());
        assert_eq!(count(&limit, "192.0.2.1", 0, 300), [100, 100, 100]);
        assert_eq!(
            count(&limit, "192.0.2.200", 0, 2),
            [0, 1, 1],
            "the same network"
        );
        assert_eq!(
            count(&limit, "198.51.100.1", 0, 10)[0],
            10,
            "another network"
        );
        assert_eq!(
            count(&limit, "192.0.2.1", 500, 100)[0],
            50,
            "half a second later"
        );
        assert_eq!(
            count(&limit, "192.0.2.1", 10_000, 200)[0],
            100,
            "no more than a second's worth is saved"
        );
    }

    #[test]
    fn networks_of_both_families() {
        for (one, other, same) in [
            ("192.0.2.1", "192.0.2.255", true),
            ("192.0.2.1", "192.0.3.1", false),
            ("192.0.2.1", "::ffff:192.0.2.9", true),
            ("2001:db8::1", "2001:db8:0:ff::1", true),
            ("2001:db8::1", "2001:db8:0:100::1", false),
        ] {
            let equal = network(one.parse().unwrap()) == network(other.parse().unwrap());
            assert_eq!(equal, same, "{one} {other}");
        }
    }

    #[test]
    fn no_limit_is_no_limit() {
        let limit = Limit::new(0, RandomState::new());
        assert_eq!(count(&limit, "192.0.2.1", 0, 10_000)[0], 10_000);
    }
}
