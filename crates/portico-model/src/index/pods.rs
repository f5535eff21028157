//! The pods of this node: which address is whose, and so who may use a Service that not everybody
//! may.
//!
//! An address is trusted as long as nobody else can have it. A pod that is being deleted may have
//! given its address back before we hear of it; the pod that gets the address next is known before
//! it starts, since it was bound to this node. So while a pod of another kind waits for its address,
//! those of pods that are being deleted open nothing.

use super::parse::Complaints;
use crate::key::ObjectKey;
use crate::objects::{DMZ, Pod};
use crate::table::{DmzPods, Family, PerFamily};
use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::net::IpAddr;
use std::sync::Arc;

#[derive(Default)]
pub(super) struct Pods {
    /// By namespace and name.
    known: BTreeMap<ObjectKey, PodRecord>,
    changed: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PodRecord {
    dmz: bool,
    /// It is being deleted.
    leaving: bool,
    /// Empty before it is known, and when the pod has no network any more.
    addresses: Vec<IpAddr>,
}

impl PodRecord {
    /// `None` for a pod without an address of its own: on another node, on the node's network, or
    /// at its end.
    pub(super) fn read(pod: &Pod, node: &str, complaints: &mut Complaints<'_>) -> Option<Self> {
        let (spec, status) = (&pod.spec, &pod.status);
        let dmz = pod.metadata.labels.contains_key(DMZ);
        let has_ended = matches!(status.phase.as_str(), "Succeeded" | "Failed");
        if spec.node_name != node || has_ended {
            return None;
        }
        if spec.host_network {
            if dmz {
                complaints.add(format!(
                    "has the label {DMZ} and the node's network, where it cannot be told from the \
                     node: it is not kept from any Service; take hostNetwork or the label off"
                ));
            }
            return None;
        }
        let without_network = status.conditions.iter().any(|condition| {
            condition.type_ == "PodReadyToStartContainers" && condition.status == "False"
        });
        let all = match status.pod_ips.is_empty() {
            true => vec![status.pod_ip.as_str()],
            false => status.pod_ips.iter().map(|own| own.ip.as_str()).collect(),
        };
        let addresses = all
            .into_iter()
            .filter(|_| !without_network)
            .filter_map(|text| complaints.address(text, "pod IP"))
            .collect();
        Some(Self {
            dmz,
            leaving: pod.metadata.deletion_timestamp.is_some(),
            addresses,
        })
    }
}

/// Pods that may use the same Services.
type Class<'a> = (&'a Arc<str>, bool);

/// Whose the trusted addresses are, by namespace; sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Access {
    outside_dmz: BTreeMap<Arc<str>, Vec<IpAddr>>,
    in_dmz: BTreeMap<Arc<str>, Vec<IpAddr>>,
    /// Addresses that a pod in the DMZ has or had, trusted or not.
    dmz: Vec<IpAddr>,
    /// A pod in the DMZ may run, and its address is not known.
    dmz_is_incomplete: bool,
}

impl Pods {
    pub(super) fn set(&mut self, name: ObjectKey, record: Option<PodRecord>) {
        let old = match record.clone() {
            Some(record) => self.known.insert(name, record),
            None => self.known.remove(&name),
        };
        self.changed |= old != record;
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &ObjectKey> {
        self.known.keys()
    }

    /// Since the last call.
    pub(super) fn take_changed(&mut self) -> bool {
        mem::take(&mut self.changed)
    }

    pub(super) fn access(&self) -> Access {
        let mut access = Access::default();
        let mut claims: BTreeMap<IpAddr, Vec<(Class<'_>, bool)>> = BTreeMap::new();
        let mut waiting: BTreeSet<Class<'_>> = BTreeSet::new();
        for (name, pod) in &self.known {
            let class = (&name.namespace, pod.dmz);
            for address in &pod.addresses {
                claims
                    .entry(*address)
                    .or_default()
                    .push((class, pod.leaving));
            }
            if pod.addresses.is_empty() {
                waiting.insert(class);
                access.dmz_is_incomplete |= pod.dmz;
            }
        }
        for (address, claims) in claims {
            if claims.iter().any(|((_, dmz), _)| *dmz) {
                access.dmz.push(address);
            }
            let Some((namespace, dmz)) = owner(&claims, &waiting) else {
                continue;
            };
            let of_class = match dmz {
                true => &mut access.in_dmz,
                false => &mut access.outside_dmz,
            };
            of_class.entry(namespace.clone()).or_default().push(address);
        }
        access
    }
}

/// `None` where it is not sure.
fn owner<'a>(claims: &[(Class<'a>, bool)], waiting: &BTreeSet<Class<'a>>) -> Option<Class<'a>> {
    let mut staying = claims.iter().filter(|(_, leaving)| !leaving);
    let (class, leaving) = staying.next().or_else(|| claims.first())?;
    let same = |(other, is_leaving): &(Class<'_>, bool)| {
        // A pod that leaves the DMZ's address behind opens nothing for the next one.
        other == class || (*is_leaving && !leaving && !other.1)
    };
    let contested = !claims.iter().all(same);
    let may_be_another = *leaving && waiting.iter().any(|other| other != class);
    (!contested && !may_be_another).then_some(*class)
}

impl Access {
    /// Addresses of one family of a namespace's pods outside the DMZ.
    pub(super) fn outside_dmz(
        &self,
        namespace: &str,
        family: Family,
    ) -> impl Iterator<Item = IpAddr> {
        of_namespace(&self.outside_dmz, namespace, family)
    }

    pub(super) fn in_dmz(&self, namespace: &str, family: Family) -> impl Iterator<Item = IpAddr> {
        of_namespace(&self.in_dmz, namespace, family)
    }

    /// Whether the pods of a namespace are the same.
    pub(super) fn is_same_for(&self, other: &Self, namespace: &str) -> bool {
        self.outside_dmz.get(namespace) == other.outside_dmz.get(namespace)
            && self.in_dmz.get(namespace) == other.in_dmz.get(namespace)
    }

    pub(super) fn dmz_pods(&self) -> PerFamily<DmzPods> {
        let of_family = |family| match self.dmz_is_incomplete {
            true => {
                let mut known: Vec<IpAddr> = self
                    .outside_dmz
                    .values()
                    .flatten()
                    .filter(|address| Family::of(**address) == family)
                    .copied()
                    .collect();
                known.sort_unstable();
                DmzPods::AllBut(known)
            }
            false => {
                let dmz = self.dmz.iter().copied();
                DmzPods::Listed(
                    dmz.filter(|address| Family::of(*address) == family)
                        .collect(),
                )
            }
        };
        PerFamily {
            v4: of_family(Family::V4),
            v6: of_family(Family::V6),
        }
    }
}

fn of_namespace(
    all: &BTreeMap<Arc<str>, Vec<IpAddr>>,
    namespace: &str,
    family: Family,
) -> impl Iterator<Item = IpAddr> {
    let own = all.get(namespace).map(Vec::as_slice).unwrap_or_default();
    own.iter()
        .copied()
        .filter(move |address| Family::of(*address) == family)
}
