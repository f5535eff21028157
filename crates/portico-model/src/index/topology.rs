//! Which endpoints of a service port this node uses: readiness, the terminating fallback, and hints
//! for zones and nodes.

use super::slices::Candidate;
use crate::table::Endpoint;

/// Which pools a service port may need.
#[derive(Clone, Copy, Debug)]
pub(super) struct Needs {
    pub cluster: bool,
    pub local: bool,
}

/// Sorted, as the candidates are.
#[derive(Debug, Default)]
pub(super) struct Pools {
    pub cluster: Vec<Endpoint>,
    pub local: Vec<Endpoint>,
    /// An endpoint elsewhere could serve, even if none in these pools can.
    pub anywhere: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Prefer {
    SameNode,
    SameZone,
    Nothing,
}

pub(super) fn pools(candidates: &[Candidate<'_>], needs: Needs, zone: &str) -> Pools {
    let mut pools = Pools {
        anywhere: candidates.iter().any(|c| c.condition.is_usable()),
        ..Pools::default()
    };
    if needs.cluster {
        let prefer = preference(candidates, zone);
        pools.cluster = usable(
            candidates,
            |candidate| available(candidate, prefer, zone),
            |_| true,
        );
    }
    if needs.local {
        pools.local = usable(
            candidates,
            |candidate| candidate.condition.local,
            |candidate| candidate.condition.local,
        );
    }
    pools
}

/// Those that are ready and `wanted`; if there is none, those that end but still serve and are
/// `wanted_fallback`.
fn usable(
    candidates: &[Candidate<'_>],
    wanted: impl Fn(&Candidate<'_>) -> bool,
    wanted_fallback: impl Fn(&Candidate<'_>) -> bool,
) -> Vec<Endpoint> {
    let choose = |choice: &dyn Fn(&Candidate<'_>) -> bool| -> Vec<Endpoint> {
        candidates
            .iter()
            .filter(|candidate| choice(candidate))
            .map(|candidate| candidate.endpoint)
            .collect()
    };
    let ready = choose(&|candidate| candidate.condition.ready && wanted(candidate));
    match ready.is_empty() {
        true => {
            choose(&|candidate| candidate.condition.is_fallback() && wanted_fallback(candidate))
        }
        false => ready,
    }
}

/// Hints count only if every ready endpoint has some and at least one is meant for this node (or
/// its zone).
fn preference(candidates: &[Candidate<'_>], zone: &str) -> Prefer {
    let ready = || {
        candidates
            .iter()
            .filter(|candidate| candidate.condition.ready)
    };
    let all_and_any = |prefer, hinted: &dyn Fn(&Candidate<'_>) -> bool| {
        ready().all(hinted) && ready().any(|candidate| available(candidate, prefer, zone))
    };
    if all_and_any(Prefer::SameNode, &|candidate| {
        candidate.condition.node_hints
    }) {
        Prefer::SameNode
    } else if all_and_any(Prefer::SameZone, &|candidate| !candidate.zones.is_empty()) {
        Prefer::SameZone
    } else {
        Prefer::Nothing
    }
}

fn available(candidate: &Candidate<'_>, prefer: Prefer, zone: &str) -> bool {
    match prefer {
        Prefer::SameNode => candidate.condition.hinted_here,
        Prefer::SameZone => candidate.zones.iter().any(|hinted| &**hinted == zone),
        Prefer::Nothing => true,
    }
}
