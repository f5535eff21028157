//! The addresses of packet sockets: plain C structs, kept from the rest of the code.

use super::Mac;
use socket2::{SockAddr, SockAddrStorage};

/// A link, and what is to be heard from it.
/// The address to bind to, or to send to, for packets of this EtherType on a link.
#[expect(
    unsafe_code,
    reason = "the addresses of packet sockets are plain C structs"
)]
pub fn link_address(link: u32, ethertype: u16) -> SockAddr {
    let mut storage = SockAddrStorage::zeroed();
    // SAFETY: the storage is zero and large enough for any address, so it is a valid sockaddr_ll,
    // whose length is given.
    unsafe {
        let address = storage.view_as::<libc::sockaddr_ll>();
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = ethertype.to_be();
        address.sll_ifindex = link as i32;
        SockAddr::new(storage, size_of::<libc::sockaddr_ll>() as u32)
    }
}

/// The link on which a packet came in, and the hardware address of its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The number of the link.
    pub link: u32,
    /// The hardware address of the sender.
    pub mac: Mac,
    /// Whether the packet was sent to this host, a group or all hosts, and not to another host.
    pub for_us: bool,
}

/// `None`: it is not the address of a packet socket on Ethernet.
/// What the address of a received packet says; `None` for other kinds of addresses.
#[expect(
    unsafe_code,
    reason = "the addresses of packet sockets are plain C structs"
)]
pub fn origin(address: &SockAddr) -> Option<Origin> {
    if i32::from(address.family()) != libc::AF_PACKET
        || (address.len() as usize) < size_of::<libc::sockaddr_ll>() - 2
    {
        return None;
    }
    // SAFETY: the storage behind every `SockAddr` is aligned and large enough for any address, and
    // of the family that it says.
    let address = unsafe { *address.as_ptr().cast::<libc::sockaddr_ll>() };
    let [a, b, c, d, e, f, ..] = address.sll_addr;
    (address.sll_halen == 6).then_some(Origin {
        link: address.sll_ifindex.unsigned_abs(),
        mac: [a, b, c, d, e, f],
        for_us: address.sll_pkttype != libc::PACKET_OTHERHOST,
    })
}
