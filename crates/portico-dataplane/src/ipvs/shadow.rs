//! A second address for a frontend that serves this node and its pods otherwise than other clients
//! (a Local external policy).
//!
//! IPVS finds a virtual server by its address and port alone. So packets from inside are sent to
//! another address, by one rule for all: `NETMAP` replaces the first bits of the destination. The
//! resulting addresses are used by no host outside.

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use portico_model::table::Family;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The network that `NETMAP` maps to.
pub(super) fn network(family: Family) -> IpNet {
    // Neither is in use anywhere: reserved "for future use", and the half of the unique local
    // addresses without a meaning.
    match family {
        Family::V4 => IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(240, 0, 0, 0), 4)),
        Family::V6 => IpNet::V6(Ipv6Net::new_assert(
            Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0),
            8,
        )),
    }
}

/// What becomes of an address; `None` if it would stay what it is, or become one that cannot be
/// used.
pub(super) fn shadow(address: IpAddr) -> Option<IpAddr> {
    let shadow = match address {
        IpAddr::V4(v4) => IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() | 0xf000_0000)),
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() << 8 >> 8 | 0xfc << 120)),
    };
    let usable = shadow != address && shadow != IpAddr::V4(Ipv4Addr::BROADCAST);
    usable.then_some(shadow)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shadows() {
        let table = [
            ("203.0.113.4", Some("251.0.113.4")),
            ("172.30.0.11", Some("252.30.0.11")),
            ("10.96.0.1", Some("250.96.0.1")),
            ("2001:db8:3::4", Some("fc01:db8:3::4")),
            ("fd00:30::11", Some("fc00:30::11")),
            ("251.0.113.4", None),
            ("fc01::1", None),
            ("175.255.255.255", None),
        ];
        for (address, expected) in table {
            let address: IpAddr = address.parse().unwrap();
            let shadow = shadow(address);
            assert_eq!(
                shadow,
                expected.map(|text| text.parse().unwrap()),
                "{address}"
            );
            assert!(shadow.is_none_or(|shadow| network(Family::of(address)).contains(&shadow)));
        }
    }
}
