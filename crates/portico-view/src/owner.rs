//! Who has an announced address: the node that answers for it at layer 2, since when, why that
//! node and who before; and the nodes that announce it by BGP. Decided from the reports of nodes.

use crate::{NodeView, ReportView, life};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use portico_l2::rank::{self, NodeId};
use portico_model::report::{self, Announcing, Holding};
use serde::Serialize;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

/// Who has an address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Owner {
    /// The announced address.
    pub address: IpAddr,
    /// The node that answers for it at layer 2; `None` where none does now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// In RFC 3339; empty where that node does not say.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub since: String,
    /// Why that node, or why none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// Who had it before.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub before: String,
    /// Who takes it over from a node that is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// The nodes that announce it by BGP.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub bgp: Vec<String>,
}

impl Owner {
    /// Somebody attracts its traffic.
    pub fn is_announced(&self) -> bool {
        self.node.is_some() || !self.bgp.is_empty()
    }

    /// Nothing is known of it: it is announced neither now nor before by any node that reports.
    pub fn is_unknown(&self) -> bool {
        !self.is_announced() && self.before.is_empty()
    }
}

impl fmt::Display for Owner {
    /// `node1 answers for 192.0.2.200 since 2026-11-20T01:02:03Z (node3 is gone; before: node3)`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = self.address;
        match (&self.node, &self.next) {
            (Some(node), _) => {
                write!(f, "{node} answers for {address}")?;
                if !self.since.is_empty() {
                    write!(f, " since {}", self.since)?;
                }
                let before = match self.before.as_str() {
                    "" => String::new(),
                    before => format!("before: {before}"),
                };
                let notes = [self.why.clone(), before];
                let notes: Vec<String> =
                    notes.into_iter().filter(|note| !note.is_empty()).collect();
                match notes.is_empty() {
                    true => Ok(()),
                    false => write!(f, " ({})", notes.join("; ")),
                }
            }
            (None, Some(next)) => {
                write!(
                    f,
                    "no node answers for {address}: {}; {next} takes over",
                    self.why
                )
            }
            (None, None) if self.why.is_empty() => write!(f, "no node answers for {address}"),
            (None, None) => write!(f, "no node answers for {address}: {}", self.why),
        }
    }
}

/// What nodes report of the addresses that they announce, by address.
#[derive(Debug, Default)]
pub struct Owners {
    nodes: BTreeMap<String, Announcing>,
    layer2: BTreeMap<IpAddr, BTreeMap<String, Claim>>,
    bgp: BTreeMap<IpAddr, BTreeSet<String>>,
    /// Those nodes whose reports are alive, where that is known once for all addresses.
    alive: BTreeSet<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Claim {
    since: String,
    why: String,
    before: String,
}

/// Which nodes count.
pub struct Scope<'a> {
    /// Its report is alive.
    pub is_alive: &'a dyn Fn(&str) -> bool,
    /// It may announce the address: with the policy Local only a node with an endpoint.
    pub may_serve: &'a dyn Fn(&str) -> bool,
}

impl Owners {
    pub(crate) fn of_nodes(nodes: &[NodeView]) -> Self {
        let mut owners = Self::default();
        for node in nodes {
            let Some(report) = &node.report else { continue };
            owners.set(&node.name, report.content.announcing.as_ref());
            if report.fresh {
                owners.alive.insert(node.name.clone());
            }
        }
        owners
    }

    /// Of Leases that were read once.
    pub fn of_leases(leases: &[Lease], clock: Timestamp) -> Self {
        let mut owners = Self::default();
        for lease in leases {
            let name = lease.metadata.name.as_deref().unwrap_or_default();
            let is_alive = life::life(lease, clock).is_alive();
            let report = ReportView::of(lease, is_alive, 0, clock);
            let (Some(node), Some(report)) = (report::node_of_lease(name), report) else {
                continue;
            };
            owners.set(node, report.content.announcing.as_ref());
            if is_alive {
                owners.alive.insert(node.to_owned());
            }
        }
        owners
    }

    /// What a node reports now, or (`None`) that it announces nothing or is gone. The addresses for
    /// which this changes something.
    pub fn set(&mut self, node: &str, now: Option<&Announcing>) -> BTreeSet<IpAddr> {
        if self.nodes.get(node) == now {
            return BTreeSet::new();
        }
        let before = match now {
            Some(now) => self.nodes.insert(node.to_owned(), now.clone()),
            None => self.nodes.remove(node),
        };
        let mut changed = self.set_claims(node, claims(before.as_ref()), claims(now));
        changed.extend(self.set_routes(node, &routes(before.as_ref()), &routes(now)));
        changed
    }

    fn set_claims(
        &mut self,
        node: &str,
        before: BTreeMap<IpAddr, Claim>,
        now: BTreeMap<IpAddr, Claim>,
    ) -> BTreeSet<IpAddr> {
        let gone = before.keys().filter(|address| !now.contains_key(*address));
        let mut changed: BTreeSet<IpAddr> = gone.copied().collect();
        for address in &changed {
            if let Some(held) = self.layer2.get_mut(address) {
                held.remove(node);
                if held.is_empty() {
                    self.layer2.remove(address);
                }
            }
        }
        for (address, claim) in now {
            if before.get(&address) != Some(&claim) {
                changed.insert(address);
                let held = self.layer2.entry(address).or_default();
                held.insert(node.to_owned(), claim);
            }
        }
        changed
    }

    fn set_routes(
        &mut self,
        node: &str,
        before: &BTreeSet<IpAddr>,
        now: &BTreeSet<IpAddr>,
    ) -> BTreeSet<IpAddr> {
        for address in before.difference(now) {
            if let Some(announced) = self.bgp.get_mut(address) {
                announced.remove(node);
                if announced.is_empty() {
                    self.bgp.remove(address);
                }
            }
        }
        for address in now.difference(before) {
            let announced = self.bgp.entry(*address).or_default();
            announced.insert(node.to_owned());
        }
        before.symmetric_difference(now).copied().collect()
    }

    /// Who has an address, among nodes whose life was known when these were put together.
    pub fn of_address(&self, address: IpAddr, may_serve: &dyn Fn(&str) -> bool) -> Owner {
        let is_alive = |node: &str| self.alive.contains(node);
        self.owner(
            address,
            &Scope {
                is_alive: &is_alive,
                may_serve,
            },
        )
    }

    /// Who has an address now. A node that does not report has nothing: the others have taken over
    /// what it had before its report is seen to be old.
    pub fn owner(&self, address: IpAddr, scope: &Scope<'_>) -> Owner {
        let mut owner = Owner {
            address,
            node: None,
            since: String::new(),
            why: String::new(),
            before: String::new(),
            next: None,
            bgp: self.speakers(address, scope),
        };
        let claims = self.layer2.get(&address).into_iter().flatten();
        let (alive, gone): (Vec<_>, Vec<_>) = claims.partition(|(node, _)| (scope.is_alive)(node));
        if let Some((node, claim)) = self.latest(&alive) {
            owner.node = Some(node.clone());
            owner.since.clone_from(&claim.since);
            owner.why.clone_from(&claim.why);
            owner.before.clone_from(&claim.before);
        } else if let Some((node, _)) = self.latest(&gone) {
            owner.before.clone_from(node);
            owner.why = format!("{node}, which had it, does not report");
            owner.next = self.first(address, scope);
        } else if self.some_do_not_say(scope) {
            owner.node = self.first(address, scope);
        }
        owner
    }

    /// Of several that say to have it, the one that has it by the newest view: one that another does
    /// not count among the members has not heard of that yet.
    fn latest<'a>(&self, claims: &[(&'a String, &'a Claim)]) -> Option<(&'a String, &'a Claim)> {
        let counts = |one: &str, other: &str| {
            let members = self.nodes.get(one).map(|told| &told.members);
            members.is_some_and(|members| members.iter().any(|member| member == other))
        };
        let order = |one: &(&String, &Claim), other: &(&String, &Claim)| match (
            counts(one.0, other.0),
            counts(other.0, one.0),
        ) {
            (false, true) => Ordering::Greater,
            (true, false) => Ordering::Less,
            _ => one.1.since.cmp(&other.1.since),
        };
        claims.iter().copied().max_by(order)
    }

    /// Who is to have it by the rule that the nodes themselves follow.
    fn first(&self, address: IpAddr, scope: &Scope<'_>) -> Option<String> {
        let members = self.nodes.iter().filter(|(node, told)| {
            !told.members.is_empty() && (scope.is_alive)(node) && (scope.may_serve)(node)
        });
        let members: BTreeMap<NodeId, &String> =
            members.map(|(node, _)| (NodeId::of(node), node)).collect();
        let first = rank::first(rank::hash_address(address), members.keys().copied())?;
        members.get(&first).map(|node| (*node).clone())
    }

    /// A node does not name all addresses that it answers for.
    fn some_do_not_say(&self, scope: &Scope<'_>) -> bool {
        self.nodes.iter().any(|(node, told)| {
            (told.holds.is_none() || told.more_held > 0)
                && !told.members.is_empty()
                && (scope.is_alive)(node)
        })
    }

    fn speakers(&self, address: IpAddr, scope: &Scope<'_>) -> Vec<String> {
        let named = self.bgp.get(&address);
        let announces = |(node, told): &(&String, &Announcing)| {
            let named = named.is_some_and(|nodes| nodes.contains(*node));
            let silent = told.routes.is_none() || told.more_routes > 0;
            told.sessions.iter().any(|session| session.established)
                && (named || silent && (scope.may_serve)(node))
                && (scope.is_alive)(node)
        };
        let nodes = self.nodes.iter().filter(announces);
        nodes.map(|(node, _)| node.clone()).collect()
    }
}

fn claims(announcing: Option<&Announcing>) -> BTreeMap<IpAddr, Claim> {
    let holdings = announcing.and_then(|told| told.holds.as_ref());
    let each = |holding: &Holding| {
        let claim = Claim {
            since: holding.since.clone(),
            why: holding.why.clone(),
            before: holding.before.clone(),
        };
        let addresses = holding.addresses.clone().into_iter();
        addresses.map(move |address| (address, claim.clone()))
    };
    holdings.into_iter().flatten().flat_map(each).collect()
}

fn routes(announcing: Option<&Announcing>) -> BTreeSet<IpAddr> {
    let routes = announcing.and_then(|told| told.routes.as_ref());
    routes.into_iter().flatten().copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use portico_model::report::Session;

    const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 200));

    fn member(members: &[&str], holds: Option<(&str, &str)>) -> Announcing {
        let holding = |(since, before): (&str, &str)| Holding {
            addresses: vec![ADDRESS],
            since: since.to_owned(),
            why: "because".to_owned(),
            before: before.to_owned(),
        };
        Announcing {
            members: members.iter().map(|&name| name.to_owned()).collect(),
            holds: Some(holds.map(holding).into_iter().collect()),
            routes: Some(Vec::new()),
            ..Announcing::default()
        }
    }

    fn speaker(routes: Option<Vec<IpAddr>>, established: bool) -> Announcing {
        Announcing {
            sessions: vec![Session {
                established,
                ..Session::default()
            }],
            holds: Some(Vec::new()),
            routes,
            ..Announcing::default()
        }
    }

    fn owner(told: &[(&str, Announcing)], alive: &[&str]) -> Owner {
        let mut owners = Owners::default();
        for (node, announcing) in told {
            owners.set(node, Some(announcing));
        }
        let scope = Scope {
            is_alive: &|node| alive.contains(&node),
            may_serve: &|_| true,
        };
        owners.owner(ADDRESS, &scope)
    }

    #[test]
    fn who_has_an_address() {
        let (all, two) = (["a", "b", "c"], ["a", "b"]);
        let first = |of: &[&str]| {
            let ids = of.iter().map(|name| NodeId::of(name));
            let first = rank::first(rank::hash_address(ADDRESS), ids).unwrap();
            let name = of.iter().find(|name| NodeId::of(name) == first).unwrap();
            (*name).to_owned()
        };
        let old = |members: &[&str]| Announcing {
            holds: None,
            ..member(members, None)
        };
        // (what nodes report, whose reports are alive, who has it, who had it, who takes it over)
        let table = [
            (
                "one node says so",
                vec![
                    ("a", member(&all, Some(("t1", "")))),
                    ("b", member(&all, None)),
                ],
                &all[..],
                (Some("a".to_owned()), "", None),
            ),
            (
                "a killed node that still counts as alive has lost it to one that has left it out",
                vec![
                    ("c", member(&all, Some(("t9", "")))),
                    ("a", member(&two, Some(("t2", "c")))),
                    ("b", member(&two, None)),
                ],
                &all[..],
                (Some("a".to_owned()), "c", None),
            ),
            (
                "one that hands over reports later than the one that took it",
                vec![
                    ("a", member(&all, Some(("t1", "")))),
                    ("c", member(&all, Some(("t2", "a")))),
                ],
                &all[..],
                (Some("c".to_owned()), "a", None),
            ),
            (
                "the owner does not report, and nobody says yet to have taken over",
                vec![
                    ("c", member(&all, Some(("t1", "")))),
                    ("a", member(&all, None)),
                    ("b", member(&all, None)),
                ],
                &two[..],
                (None, "c", Some(first(&two))),
            ),
            (
                "all are gone",
                vec![("c", member(&all, Some(("t1", ""))))],
                &[],
                (None, "c", None),
            ),
            (
                "nobody has it",
                vec![("a", member(&two, None)), ("b", member(&two, None))],
                &two[..],
                (None, "", None),
            ),
            (
                "programs that do not name addresses share them out by rank",
                vec![("a", old(&two)), ("b", old(&two))],
                &two[..],
                (Some(first(&two)), "", None),
            ),
        ];
        for (case, told, alive, (node, before, next)) in table {
            let owner = owner(&told, alive);
            let found = (
                owner.node.clone(),
                owner.before.as_str(),
                owner.next.clone(),
            );
            assert_eq!(found, (node, before, next), "{case}");
            assert!(owner.bgp.is_empty(), "{case}");
            assert_eq!(owner.is_announced(), owner.node.is_some(), "{case}");
        }
    }

    #[test]
    fn who_announces_an_address_by_bgp() {
        let told = [
            ("a", speaker(Some(vec![ADDRESS]), true)),
            ("b", speaker(Some(vec![ADDRESS]), false)),
            ("c", speaker(Some(vec![]), true)),
            ("d", speaker(None, true)),
            ("e", speaker(Some(vec![ADDRESS]), true)),
        ];
        let owner = owner(&told, &["a", "b", "c", "d"]);
        assert_eq!(owner.bgp, ["a", "d"]);
        assert!(owner.is_announced() && owner.node.is_none());
    }

    #[test]
    fn only_addresses_that_move_have_changed() {
        let mut owners = Owners::default();
        let held = member(&["a"], Some(("t1", "")));
        assert_eq!(owners.set("a", Some(&held)), [ADDRESS].into());
        assert_eq!(owners.set("a", Some(&held)), [].into());
        let other_members = member(&["a", "b"], Some(("t1", "")));
        assert_eq!(owners.set("a", Some(&other_members)), [].into());
        let again = member(&["a", "b"], Some(("t2", "b")));
        assert_eq!(owners.set("a", Some(&again)), [ADDRESS].into());
        assert_eq!(owners.set("a", None), [ADDRESS].into());
        assert!(owners.layer2.is_empty() && owners.nodes.is_empty());
    }

    #[test]
    fn an_owner_in_words() {
        let told = [("a", member(&["a"], Some(("2026-01-01T00:00:00Z", "c"))))];
        assert_eq!(
            owner(&told, &["a"]).to_string(),
            "a answers for 192.0.2.200 since 2026-01-01T00:00:00Z (because; before: c)"
        );
        assert_eq!(
            owner(&told, &[]).to_string(),
            "no node answers for 192.0.2.200: a, which had it, does not report"
        );
        assert_eq!(
            owner(&[], &[]).to_string(),
            "no node answers for 192.0.2.200"
        );
    }
}
