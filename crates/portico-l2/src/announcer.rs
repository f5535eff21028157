//! When addresses are announced: at once and a few times after, since any of these frames may be
//! lost, and not all at the same moment where there are thousands.

use crate::Time;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

/// After each announcement, how long to the next.
const GAPS: [Duration; 4] = [
    Duration::from_millis(100),
    Duration::from_millis(400),
    Duration::from_millis(1500),
    Duration::from_secs(4),
];
/// At most so many at once, and then a breath: 10,000 addresses are announced within half a second.
const BURST: usize = 128;
const BREATH: Duration = Duration::from_millis(5);

/// Says when the addresses of this node are to be announced.
#[derive(Clone, Debug, Default)]
pub struct Announcer {
    /// What is to be announced next, and how many times it was.
    due: BTreeSet<(Time, IpAddr)>,
    of: BTreeMap<IpAddr, (Time, usize)>,
    not_before: Time,
}

impl Announcer {
    /// The address became this node's, or has to be announced again because another host claimed
    /// it.
    pub fn begin(&mut self, now: Time, address: IpAddr) {
        self.stop(address);
        self.order(now, address, 0);
    }

    /// Announces the address no more.
    pub fn stop(&mut self, address: IpAddr) {
        if let Some((at, _)) = self.of.remove(&address) {
            self.due.remove(&(at, address));
        }
    }

    /// Announces no address any more.
    pub fn stop_all(&mut self) {
        (self.due, self.of) = Default::default();
    }

    /// When the next announcement is due; `None` without any.
    pub fn deadline(&self) -> Option<Time> {
        self.due.first().map(|(at, _)| self.not_before.max(*at))
    }

    /// The addresses to announce now, first announcements before repeated ones.
    pub fn due(&mut self, now: Time) -> Vec<IpAddr> {
        let mut addresses = Vec::new();
        while let Some((at, address)) = self
            .due
            .first()
            .copied()
            .filter(|(at, _)| *at <= now && self.not_before <= now)
        {
            if addresses.len() == BURST {
                self.not_before = now + BREATH;
                break;
            }
            self.due.remove(&(at, address));
            let (_, times) = self.of.remove(&address).unwrap_or_default();
            if let Some(gap) = GAPS.get(times) {
                self.order(now + *gap, address, times + 1);
            }
            addresses.push(address);
        }
        addresses
    }

    fn order(&mut self, at: Time, address: IpAddr, times: usize) {
        self.due.insert((at, address));
        self.of.insert(address, (at, times));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn address(n: u32) -> IpAddr {
        Ipv4Addr::from(0x0a00_0000 + n).into()
    }

    #[test]
    fn at_once_and_a_few_times_after() {
        let mut announcer = Announcer::default();
        announcer.begin(Duration::from_secs(1), address(1));
        let mut times = vec![];
        while let Some(at) = announcer.deadline() {
            assert!(announcer.due(at - Duration::from_millis(1)).is_empty());
            assert_eq!(announcer.due(at), [address(1)]);
            times.push(at.as_millis());
        }
        assert_eq!(times, [1000, 1100, 1500, 3000, 7000]);
    }

    #[test]
    fn no_longer_when_it_is_not_ours_and_from_the_beginning_when_it_is_again() {
        let mut announcer = Announcer::default();
        announcer.begin(Duration::ZERO, address(1));
        announcer.stop(address(1));
        assert_eq!(
            (announcer.deadline(), announcer.due(Duration::from_secs(9))),
            (None, vec![])
        );
        announcer.begin(Duration::from_secs(9), address(1));
        announcer.due(Duration::from_secs(9));
        announcer.begin(Duration::from_secs(10), address(1));
        assert_eq!(announcer.deadline(), Some(Duration::from_secs(10)));
    }

    #[test]
    fn thousands_are_announced_soon_but_not_in_one_burst() {
        let mut announcer = Announcer::default();
        (0..10_000).for_each(|n| announcer.begin(Duration::ZERO, address(n)));
        let mut first = BTreeSet::new();
        let mut now = Duration::ZERO;
        while first.len() < 10_000 {
            let due = announcer.due(now);
            assert!(due.len() <= BURST);
            first.extend(due);
            now = announcer.deadline().unwrap();
        }
        assert!(now < Duration::from_secs(1), "{now:?}");
    }
}
