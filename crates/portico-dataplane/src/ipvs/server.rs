//! What IPVS calls a service and its destinations: a virtual server, and the real servers behind
//! it.

use crate::netlink::uapi::*;
use portico_model::table::{Endpoint, Family, Protocol};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Protocol, address and port of a virtual server or an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct At {
    pub address: IpAddr,
    pub port: u16,
    pub protocol: Protocol,
}

impl At {
    pub fn family(&self) -> Family {
        Family::of(self.address)
    }

    pub fn socket(&self) -> SocketAddr {
        SocketAddr::new(self.address, self.port)
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.socket(), self.protocol.lower())
    }
}

/// How a virtual server chooses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub scheduler: Arc<str>,
    pub flags: u32,
    /// For so many seconds a client stays with its endpoint.
    pub timeout: u32,
}

/// Flags that are for the operator to decide; the others are the kernel's own.
pub(super) const DECIDED: u32 = IP_VS_SVC_F_PERSISTENT
    | IP_VS_SVC_F_ONEPACKET
    | IP_VS_SVC_F_SCHED1
    | IP_VS_SVC_F_SCHED_MH_PORT
    | IP_VS_SVC_F_SCHED3;

impl Settings {
    pub fn new(scheduler: &Arc<str>, affinity: Option<u32>) -> Self {
        // The scheduler `mh` looks at the client's port as well, not only at its address.
        let of_scheduler = if &**scheduler == "mh" {
            IP_VS_SVC_F_SCHED_MH_PORT
        } else {
            0
        };
        let of_affinity = if affinity.is_some() {
            IP_VS_SVC_F_PERSISTENT
        } else {
            0
        };
        Self {
            scheduler: scheduler.clone(),
            flags: of_scheduler | of_affinity,
            timeout: affinity.unwrap_or_default(),
        }
    }
}

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.scheduler)?;
        if self.flags & IP_VS_SVC_F_PERSISTENT != 0 {
            write!(f, " persistent {}", self.timeout)?;
        }
        Ok(())
    }
}

/// A virtual server as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Server {
    pub settings: Settings,
    /// The endpoints that get new connections; sorted.
    pub pool: Arc<[Endpoint]>,
    /// The endpoints that get no new connections and keep those they have; sorted.
    pub lingering: Arc<[Endpoint]>,
}

/// A virtual server as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub settings: Settings,
    pub destinations: Vec<Destination>,
}

/// A real server as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destination {
    pub at: SocketAddr,
    /// With 0 it gets no new connection.
    pub weight: u32,
    /// Connections that are established.
    pub active: u32,
    /// Connections that begin or end.
    pub inactive: u32,
}

impl Destination {
    pub fn idle(at: SocketAddr, weight: u32) -> Self {
        Self {
            at,
            weight,
            active: 0,
            inactive: 0,
        }
    }
}

pub(super) fn socket(endpoint: &Endpoint) -> SocketAddr {
    SocketAddr::new(endpoint.address, endpoint.port)
}

/// Whether an endpoint at this place is among those; they are sorted.
pub(super) fn contains(endpoints: &[Endpoint], at: SocketAddr) -> bool {
    endpoints
        .binary_search_by_key(&(at.ip(), at.port()), |endpoint| {
            (endpoint.address, endpoint.port)
        })
        .is_ok()
}
