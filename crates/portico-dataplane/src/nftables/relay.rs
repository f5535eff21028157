//! Sends packets of TCP connections that this host does not know to another host on the link,
//! unchanged: for a host that has taken an address over from that one, where those connections
//! still are.
//!
//! A copy is sent and the packet dropped, before it is translated and routed. So the address may be
//! on this host or not, nothing has to be forwarded or routed here, and the connection is never
//! tracked: each of its packets is as unknown as the first. Packets that open a connection are not
//! sent on, nor those that were already: their hops are few.

use super::expr::Expressions;
use super::kernel::{Kernel, Netlink};
use super::plan::{Plan, Step};
use super::rules::{Base, Chain, chain, rule};
use super::sets::Table;
use crate::ApplyError;
use portico_model::table::Family;
use std::net::{IpAddr, SocketAddr};

/// What was sent on goes no further than this, and is not sent on again. The receiver may still be
/// some routers away.
const HOPS: u8 = 16;
/// After connections are looked up, before addresses are translated.
const PRIORITY: i32 = -150;

/// Where unknown connections go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relay {
    /// What they are to, of one family.
    pub frontends: Vec<SocketAddr>,
    /// The host that packets are sent to.
    pub to: IpAddr,
    /// The index of the link that it is on.
    pub link: u32,
}

/// A table that has nothing but this, in one family. Belongs to the network namespace of the thread
/// that opened it.
pub struct RelayTable {
    family: Family,
    kernel: Netlink,
}

impl RelayTable {
    /// Opens the socket, in the network namespace of the calling thread.
    pub fn open(name: &'static str, family: Family) -> Result<Self, ApplyError> {
        Ok(Self {
            family,
            kernel: Netlink::unwatched(Table::small(name))?,
        })
    }

    /// Make it so, whatever an earlier process left and others changed; what is right already is
    /// not touched.
    pub fn set(&mut self, relay: Option<&Relay>) -> Result<(), ApplyError> {
        match relay {
            Some(relay) => self.install(&wanted(self.family, relay)),
            None => self.remove(),
        }
    }

    fn install(&mut self, chain: &Chain) -> Result<(), ApplyError> {
        let fingerprints = chain.rules.iter().map(|rule| Some(rule.fingerprint));
        if !self
            .kernel
            .fingerprints(self.family)?
            .into_iter()
            .eq(fingerprints)
        {
            self.kernel.commit(&replacement(self.family, chain), None)?;
        }
        Ok(())
    }

    fn remove(&mut self) -> Result<(), ApplyError> {
        if *self.kernel.tables()?.get(self.family) {
            let plan = Plan {
                after: vec![Step::DeleteTable(self.family)],
                ..Plan::default()
            };
            self.kernel.commit(&plan, None)?;
        }
        Ok(())
    }
}

fn wanted(family: Family, relay: &Relay) -> Chain {
    let frontends = relay
        .frontends
        .iter()
        .filter(|at| Family::of(at.ip()) == family);
    let send_on = |at: &SocketAddr| {
        let unknown = Expressions::new(family)
            .tcp_to(*at)
            .unless_opening()
            .when_unknown();
        rule(
            unknown
                .lower_hops(HOPS)
                .count()
                .copy_to(relay.to, relay.link)
                .drop(),
        )
        .because("known to who had it before")
    };
    let base = Base {
        kind: "filter",
        hook: 0,
        priority: PRIORITY,
    };
    chain("relay", Some(base), frontends.map(send_on).collect())
}

/// Whatever was there goes in the same moment.
fn replacement(family: Family, chain: &Chain) -> Plan {
    let mut steps = vec![
        Step::AddTable(family),
        Step::DeleteTable(family),
        Step::AddTable(family),
    ];
    steps.push(Step::AddChain(
        family,
        chain.name.clone(),
        chain.base.clone(),
    ));
    steps.extend(
        chain
            .rules
            .iter()
            .map(|rule| Step::AddRule(family, chain.name.clone(), rule.clone())),
    );
    Plan {
        before: steps,
        ..Plan::default()
    }
}
