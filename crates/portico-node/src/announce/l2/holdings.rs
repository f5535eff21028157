//! Which addresses this node answers for, since when and why it: for its report, its log and its
//! metrics. Pure.

use portico_l2::NodeId;
use portico_model::report::{Holding, MOST_ADDRESSES};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// So many addresses that came or went together are written into the log one by one.
const MOST_LOGGED: usize = 10;

/// What the report says of layer 2.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layer2 {
    /// Among whom addresses are shared out, sorted.
    pub members: Vec<String>,
    /// Addresses that this node answers for now.
    pub holds: Vec<Holding>,
    /// How many more there are than are named.
    pub more_held: usize,
}

/// Why an address is this node's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reason {
    pub why: String,
    pub before: String,
}

impl Reason {
    /// `before` is the other node that was last to have the address, `members` those among whom
    /// addresses are shared out now.
    pub(super) fn new(
        before: Option<NodeId>,
        members: &[NodeId],
        names: &BTreeMap<NodeId, Arc<str>>,
    ) -> Self {
        let name = |node| names.get(&node).map(ToString::to_string);
        let is_member = before.is_some_and(|before| members.contains(&before));
        // A Node that was deleted has no name any more.
        let before = before.map(|before| name(before).unwrap_or_else(|| format!("{before:?}")));
        let why = match &before {
            None => "no other node had it".to_owned(),
            Some(_) if is_member => format!("it is first in rank of {} nodes", members.len()),
            Some(before) => format!("{before} is gone"),
        };
        Self {
            why,
            before: before.unwrap_or_default(),
        }
    }
}

/// Everything that this node answers for.
#[derive(Debug, Default)]
pub(super) struct Holdings {
    held: BTreeMap<IpAddr, (String, Reason)>,
    /// What changed since the last [`Holdings::take_news`].
    taken: Vec<IpAddr>,
    released: Vec<IpAddr>,
}

impl Holdings {
    /// `since` is in RFC 3339.
    pub(super) fn take(&mut self, address: IpAddr, since: String, reason: Reason) {
        self.held.insert(address, (since, reason));
        self.taken.push(address);
    }

    pub(super) fn release(&mut self, address: IpAddr) {
        if self.held.remove(&address).is_some() {
            self.released.push(address);
        }
    }

    /// For the log; empty where nothing changed.
    pub(super) fn take_news(&mut self) -> Vec<String> {
        let taken = std::mem::take(&mut self.taken);
        let released = std::mem::take(&mut self.released);
        let mut news = Vec::new();
        for address in taken.iter().take(MOST_LOGGED) {
            if let Some((_, Reason { why, before })) = self.held.get(address) {
                let before = match before.as_str() {
                    "" => String::new(),
                    before => format!(", before it {before} did"),
                };
                news.push(format!(
                    "this node answers for {address} now{before}: {why}"
                ));
            }
        }
        let each = |address: &IpAddr| format!("this node no longer answers for {address}");
        news.extend(released.iter().take(MOST_LOGGED).map(each));
        for (addresses, what) in [
            (&taken, "this node answers for"),
            (&released, "this node no longer answers for"),
        ] {
            match addresses.len().saturating_sub(MOST_LOGGED) {
                0 => {}
                more => news.push(format!("{what} {more} more addresses")),
            }
        }
        news
    }

    /// For the report: those of the last moment first, together those that came together.
    pub(super) fn listed(&self) -> (Vec<Holding>, usize) {
        let mut groups: BTreeMap<(Reverse<&String>, &String, &String), Vec<IpAddr>> =
            BTreeMap::new();
        for (address, (since, Reason { why, before })) in &self.held {
            let group = groups.entry((Reverse(since), why, before)).or_default();
            group.push(*address);
        }
        let mut left = MOST_ADDRESSES;
        let mut all = Vec::new();
        for ((Reverse(since), why, before), mut addresses) in groups {
            addresses.truncate(left);
            left -= addresses.len();
            if addresses.is_empty() {
                break;
            }
            all.push(Holding {
                addresses,
                since: since.clone(),
                why: why.clone(),
                before: before.clone(),
            });
        }
        (all, self.held.len().saturating_sub(MOST_ADDRESSES))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn ip(number: u32) -> IpAddr {
        Ipv4Addr::from(0xc000_0200 + number).into()
    }

    fn reason(why: &str) -> Reason {
        Reason {
            why: why.to_owned(),
            before: String::new(),
        }
    }

    #[test]
    fn why_an_address_is_ours() {
        let [a, b] = ["a", "b"].map(NodeId::of);
        let names: BTreeMap<NodeId, Arc<str>> = [(a, Arc::from("a")), (b, Arc::from("b"))].into();
        let told = |before, members: &[NodeId]| {
            let Reason { why, before } = Reason::new(before, members, &names);
            (why, before)
        };
        let text = |why: &str, before: &str| (why.to_owned(), before.to_owned());
        assert_eq!(told(None, &[a, b]), text("no other node had it", ""));
        assert_eq!(told(Some(b), &[a]), text("b is gone", "b"));
        assert_eq!(
            told(Some(b), &[a, b]),
            text("it is first in rank of 2 nodes", "b")
        );
    }

    #[test]
    fn what_came_together_is_listed_together_and_the_last_first() {
        let mut holdings = Holdings::default();
        holdings.take(ip(1), "t1".into(), reason("x"));
        holdings.take(ip(2), "t2".into(), reason("y"));
        holdings.take(ip(3), "t1".into(), reason("x"));
        holdings.take(ip(4), "t1".into(), reason("x"));
        holdings.release(ip(4));
        let (listed, more) = holdings.listed();
        let shown: Vec<_> = listed
            .iter()
            .map(|one| (&*one.since, &*one.addresses))
            .collect();
        assert_eq!(shown, [("t2", &[ip(2)][..]), ("t1", &[ip(1), ip(3)])]);
        assert_eq!(more, 0);
    }

    #[test]
    fn a_report_stays_small_and_so_does_the_log() {
        let mut holdings = Holdings::default();
        for number in 0..2000 {
            holdings.take(ip(number), "t1".into(), reason("x"));
        }
        holdings.take(ip(5000), "t2".into(), reason("y"));
        let (listed, more) = holdings.listed();
        let count: usize = listed.iter().map(|one| one.addresses.len()).sum();
        assert_eq!((count, more), (MOST_ADDRESSES, 1501));
        assert_eq!(listed[0].since, "t2");
        let news = holdings.take_news();
        assert_eq!(news.len(), MOST_LOGGED + 1);
        assert_eq!(news[0], "this node answers for 192.0.2.0 now: x");
        assert_eq!(
            news[MOST_LOGGED],
            "this node answers for 1991 more addresses"
        );
        assert!(holdings.take_news().is_empty());
    }
}
