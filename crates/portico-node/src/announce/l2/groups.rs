//! Neighbour solicitations for an IPv6 address are sent to the multicast group of its last bytes:
//! switches and network cards pass them only to hosts that joined it.

use portico_l2::frame::ndp::solicited_node;
use socket2::{Domain, Socket, Type};
use std::collections::BTreeMap;
use std::io;
use std::net::Ipv6Addr;

/// The kernel limits how much memory the groups of one socket take.
const MOST_ON_A_SOCKET: usize = 128;

/// Belongs to the network namespace of the thread that joins.
#[derive(Default)]
pub(super) struct Groups {
    /// How many addresses are in a group on a link, and which socket has joined it.
    joined: BTreeMap<(u32, Ipv6Addr), (usize, usize)>,
    sockets: Vec<(Socket, usize)>,
}

impl Groups {
    /// A group that cannot be joined is logged; its solicitations are then missed behind switches
    /// that filter.
    pub(super) fn join(&mut self, link: u32, address: Ipv6Addr) {
        let group = solicited_node(address);
        if let Some((addresses, _)) = self.joined.get_mut(&(link, group)) {
            *addresses += 1;
            return;
        }
        match self.socket().and_then(|at| {
            self.sockets[at]
                .0
                .join_multicast_v6(&group, link)
                .map(|()| at)
        }) {
            Ok(at) => {
                self.sockets[at].1 += 1;
                self.joined.insert((link, group), (1, at));
            }
            Err(error) => {
                tracing::warn!(%error, link, %group, "cannot join the group of an IPv6 address")
            }
        }
    }

    pub(super) fn leave(&mut self, link: u32, address: Ipv6Addr) {
        let group = solicited_node(address);
        let Some((addresses, at)) = self.joined.get_mut(&(link, group)) else {
            return;
        };
        *addresses -= 1;
        if *addresses == 0 {
            let (socket, groups) = &mut self.sockets[*at];
            *groups -= 1;
            // The link may be gone, and the group with it.
            let _ = socket.leave_multicast_v6(&group, link);
            self.joined.remove(&(link, group));
        }
    }

    /// The index of a socket with room for one more group.
    fn socket(&mut self) -> io::Result<usize> {
        if let Some(at) = self
            .sockets
            .iter()
            .position(|(_, groups)| *groups < MOST_ON_A_SOCKET)
        {
            return Ok(at);
        }
        self.sockets
            .push((Socket::new(Domain::IPV6, Type::DGRAM, None)?, 0));
        Ok(self.sockets.len() - 1)
    }
}
