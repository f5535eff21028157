//! Ends UDP and SCTP flows in the connection tracker whose endpoint is gone.
//!
//! The kernel decides where a flow goes by its first packet. A UDP client that keeps its port keeps
//! sending to an endpoint that is long gone; an SCTP association that begins anew between the same
//! ports does so too. TCP connections end by themselves and are not cut, except by
//! [`Conntrack::end_served_by`].
//!
//! [`stale`] says which flows (pure), [`flow`] is how the kernel writes them (pure), [`Conntrack`]
//! asks and deletes.

pub(crate) mod flow;
pub(crate) mod local;
pub(crate) mod stale;

pub use stale::{ABANDONED_AFTER, Stale, check, plan};

use crate::netlink::{Messages, Socket};
use flow::Flow;
use local::LocalAddresses;
use portico_model::table::{Family, PerFamily, Protocol};
use stale::Scope;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;

/// As many are deleted with one system call.
const BATCH: usize = 1_000;

/// The connection tracker of the network namespace of the thread that opened it.
pub struct Conntrack {
    tracker: Socket,
    local: LocalAddresses,
}

impl Conntrack {
    /// Opens the sockets, in the network namespace of the calling thread.
    pub fn open() -> io::Result<Self> {
        Ok(Self {
            tracker: Socket::netfilter()?,
            local: LocalAddresses::open()?,
        })
    }

    /// End the flows that are stale, to be called after the new rules are installed; how many were
    /// ended. The kernel is asked nothing if there is nothing that can be stale.
    pub fn end(&mut self, stale: &Stale) -> io::Result<PerFamily<usize>> {
        self.local.forget();
        let mut ended = PerFamily::default();
        for scope in stale.scopes() {
            let flows = self.tracker.query(&flow::list(&scope), |message| {
                let flow = Flow::parse(&message, scope.protocol)?;
                stale
                    .ends(&flow, |address| self.local.has(address))
                    .then_some(flow)
            })?;
            *ended.get_mut(scope.family) += self.delete(&flows)?;
        }
        Ok(ended)
    }

    /// End the flows to a frontend that one endpoint answers, to be called when no rule leads there
    /// any more; how many were ended. The next packet of each goes to another endpoint, which does
    /// not know it and sends a TCP reset, so that the client connects anew at once instead of
    /// waiting for an endpoint that does not answer.
    pub fn end_served_by(
        &mut self,
        endpoint: SocketAddr,
        frontend: SocketAddr,
        protocol: Protocol,
    ) -> io::Result<usize> {
        let (address, port) = (Some(frontend.ip()), Some(frontend.port()));
        let scope = Scope {
            family: Family::of(frontend.ip()),
            protocol,
            address,
            port,
        };
        let flows = self.tracker.query(&flow::list(&scope), |message| {
            let flow = Flow::parse(&message, protocol)?;
            (flow.to == frontend && flow.answered_by == endpoint).then_some(flow)
        })?;
        self.delete(&flows)
    }

    /// How many flows each endpoint answers that clients sent to another address: those that were
    /// translated, by any program.
    pub fn translated(&mut self) -> io::Result<BTreeMap<(Protocol, SocketAddr), u64>> {
        let mut counts = BTreeMap::new();
        let protocols = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp];
        for (family, protocol) in Family::BOTH
            .into_iter()
            .flat_map(|f| protocols.map(|protocol| (f, protocol)))
        {
            let scope = Scope {
                family,
                protocol,
                address: None,
                port: None,
            };
            self.tracker.query(&flow::list(&scope), |message| {
                let flow =
                    Flow::parse(&message, protocol).filter(|flow| flow.to != flow.answered_by)?;
                *counts.entry((protocol, flow.answered_by)).or_default() += 1;
                None::<()>
            })?;
        }
        Ok(counts)
    }

    fn delete(&mut self, flows: &[Flow]) -> io::Result<usize> {
        flows
            .chunks(BATCH)
            .try_fold(0, |ended, batch| Ok(ended + self.delete_batch(batch)?))
    }

    fn delete_batch(&mut self, flows: &[Flow]) -> io::Result<usize> {
        let mut requests = Messages::new();
        for flow in flows {
            flow.delete(&mut requests);
        }
        let refused = self.tracker.exchange(&requests)?.refused;
        // Gone by itself meanwhile, or another one by now: nothing to do.
        let left = refused
            .iter()
            .filter(|refusal| refusal.error.kind() != io::ErrorKind::NotFound)
            .count();
        if let Some(refusal) = refused
            .iter()
            .find(|refusal| refusal.error.kind() != io::ErrorKind::NotFound)
        {
            tracing::warn!(left, error = %refusal.error, "cannot end flows whose endpoint is gone");
        }
        Ok(flows.len().saturating_sub(refused.len()))
    }
}

#[cfg(test)]
mod tests;
