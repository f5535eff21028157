//! Which addresses are local to the node, as the kernel's routing sees it: node ports may answer on
//! any of those.

use crate::netlink::{Messages, Socket};
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;

/// Where struct rtmsg has the type of the route.
const TYPE_AT: usize = 7;

/// Asks the kernel, and remembers the answers for a while.
pub(crate) struct LocalAddresses {
    routes: Socket,
    known: BTreeMap<IpAddr, bool>,
}

impl LocalAddresses {
    pub(crate) fn open() -> io::Result<Self> {
        Ok(Self {
            routes: Socket::open(libc::NETLINK_ROUTE)?,
            known: BTreeMap::new(),
        })
    }

    pub(crate) fn forget(&mut self) {
        self.known.clear();
    }

    pub(crate) fn has(&mut self, address: IpAddr) -> bool {
        if let Some(known) = self.known.get(&address) {
            return *known;
        }
        let answer = self.routes.query(&route_to(address), |message| {
            message.payload.get(TYPE_AT).copied()
        });
        // An address without a route is not local.
        let local = answer.is_ok_and(|types| types.contains(&libc::RTN_LOCAL));
        self.known.insert(address, local);
        local
    }
}

fn route_to(address: IpAddr) -> Messages {
    let (family, octets) = match address {
        IpAddr::V4(v4) => (libc::AF_INET, v4.octets().to_vec()),
        IpAddr::V6(v6) => (libc::AF_INET6, v6.octets().to_vec()),
    };
    let mut request = Messages::new();
    request.message(libc::RTM_GETROUTE, 0, |m| {
        m.raw(&[
            family as u8,
            octets.len() as u8 * 8,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
        ]);
        m.put(libc::RTA_DST, &octets);
    });
    request
}
