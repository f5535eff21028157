//! Which addresses are local to the node, as the kernel's routing sees it: node ports may answer on
//! any of those.

use crate::netlink::{Messages, Socket};
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;

const GET_ROUTE: u16 = 26;
const DESTINATION: u16 = 1;
/// Where struct rtmsg has the type of the route, and the type of addresses that are the node's own.
const TYPE_AT: usize = 7;
const LOCAL: u8 = 2;

/// Asks the kernel, and remembers the answers for a while.
pub struct LocalAddresses {
    routes: Socket,
    known: BTreeMap<IpAddr, bool>,
}

impl LocalAddresses {
    pub fn open() -> io::Result<LocalAddresses> {
        Ok(LocalAddresses {
            routes: Socket::open(libc::NETLINK_ROUTE)?,
            known: BTreeMap::new(),
        })
    }

    pub fn forget(&mut self) {
        self.known.clear();
    }

    pub fn has(&mut self, address: IpAddr) -> bool {
        if let Some(known) = self.known.get(&address) {
            return *known;
        }
        let answer = self.routes.query(&route_to(address), |message| {
            message.payload.get(TYPE_AT).copied()
        });
        // An address that nobody has a route to is not local.
        let local = answer.is_ok_and(|types| types.contains(&LOCAL));
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
    request.message(GET_ROUTE, 0, |m| {
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
        m.put(DESTINATION, &octets);
    });
    request
}
