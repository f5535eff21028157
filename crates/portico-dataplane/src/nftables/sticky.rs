//! What session affinity takes of a port: which endpoints clients are remembered with, and which
//! classes that needs.

use super::element::Target;
use super::number::MEMBERS;
use super::port::Port;
use super::rules::Class;
use portico_model::table::ServicePort;

pub(super) struct Sticky {
    /// The endpoints that have an index, sorted.
    pub members: Vec<Target>,
    /// The targets of the whole cluster, and those of them on this node.
    pub sides: [Vec<Target>; 2],
    pub classes: Vec<Class>,
}

impl Sticky {
    /// None without affinity.
    pub(super) fn of(port: &ServicePort, [cluster, local]: &[Vec<Target>; 2]) -> Option<Self> {
        port.affinity?;
        // Those of this node first: a local policy has no others.
        let elsewhere = cluster
            .iter()
            .filter(|target| local.binary_search(target).is_err());
        // More cannot be told apart; a Service with affinity does not use the rest.
        let mut members: Vec<Target> = local
            .iter()
            .chain(elsewhere)
            .copied()
            .take(MEMBERS)
            .collect();
        members.sort_unstable();
        let kept = |target: &&Target| members.binary_search(target).is_ok();
        let sides =
            [cluster, local].map(|side| side.iter().filter(kept).copied().collect::<Vec<_>>());
        let class = |(side, targets): (usize, &Vec<Target>)| {
            Port::class_of(targets.len(), port.affinity, side == 1)
        };
        let classes = sides.iter().enumerate().filter_map(class).collect();
        Some(Self {
            members,
            sides,
            classes,
        })
    }
}
