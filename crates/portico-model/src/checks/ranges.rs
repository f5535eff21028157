//! Which addresses may be asked for their health. The writer of an EndpointSlice, or of a Node's
//! status, says where probes go: without a bound that writer could have a program with a better
//! place in the network make requests for it.

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// The flag that lists them, of every program that probes.
pub const FLAG: &str = "--health-check-ranges";
/// The word for what the cluster is known to consist of.
const CLUSTER: &str = "cluster";

/// Networks that belong to no cluster, or to machines that trust every client that reaches them:
/// probed only where a range inside of them is listed, so that `0.0.0.0/0` does not mean them.
const SPECIAL: [(IpNet, &str); 17] = [
    (v4([127, 0, 0, 0], 8), "a loopback address"),
    (v4([0, 0, 0, 0], 8), "an address of this host"),
    (v4([169, 254, 0, 0], 16), "a link-local address"),
    (v4([100, 100, 100, 200], 32), METADATA),
    (v4([168, 63, 129, 16], 32), METADATA),
    (v4([192, 0, 0, 192], 32), METADATA),
    (v4([224, 0, 0, 0], 4), "a multicast address"),
    (v4([240, 0, 0, 0], 4), "a reserved address"),
    (v6([0, 0, 0, 0, 0, 0, 0, 1], 128), "a loopback address"),
    (v6([0; 8], 128), "the unspecified address"),
    (
        v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10),
        "a link-local address",
    ),
    (v6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8), "a multicast address"),
    (v6([0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x254], 128), METADATA),
    (v6([0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254], 128), METADATA),
    (v6([0xfd00, 0xc1, 0, 0, 0, 0, 0, 0], 32), METADATA),
    (
        v6([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10),
        "a site-local address",
    ),
    (v6([0x100, 0, 0, 0, 0, 0, 0, 0], 64), "a discarded address"),
];
const METADATA: &str = "an address of a cloud's metadata service";

const fn v4(address: [u8; 4], length: u8) -> IpNet {
    let [a, b, c, d] = address;
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), length))
}

const fn v6(address: [u16; 8], length: u8) -> IpNet {
    let [a, b, c, d, e, f, g, h] = address;
    IpNet::V6(Ipv6Net::new_assert(
        Ipv6Addr::new(a, b, c, d, e, f, g, h),
        length,
    ))
}

/// One entry of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Range {
    /// The nodes' addresses and their networks of pods.
    Cluster,
    /// Addresses in this network.
    Network(IpNet),
}

impl FromStr for Range {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == CLUSTER {
            return Ok(Self::Cluster);
        }
        let network = text
            .parse::<IpNet>()
            .or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
        match network {
            Ok(network) => Ok(Self::Network(network.trunc())),
            Err(_) => Err(format!(
                "{text:?} is neither {CLUSTER:?} nor a network: write cluster, 192.0.2.0/24 or \
                 192.0.2.7"
            )),
        }
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster => f.write_str(CLUSTER),
            Self::Network(network) => network.fmt(f),
        }
    }
}

/// What may be asked. By default the cluster itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranges(Vec<Range>);

impl Default for Ranges {
    fn default() -> Self {
        Self(vec![Range::Cluster])
    }
}

impl From<Vec<Range>> for Ranges {
    fn from(list: Vec<Range>) -> Self {
        Self(list)
    }
}

/// Why an address is not asked, with the way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It is of a kind that has to be listed by itself.
    Special(&'static str),
    /// It is in no range of the list.
    Outside,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Special(kind) => write!(f, "not asked: {kind} must be in {FLAG} by itself"),
            Self::Outside => write!(f, "not asked: add it to {FLAG} if it should be"),
        }
    }
}

impl Ranges {
    /// The nodes of the cluster have to be known.
    pub fn names_cluster(&self) -> bool {
        self.0.contains(&Range::Cluster)
    }

    /// Whether an address may be asked. `in_cluster`: it is one of a node, or in a network of pods.
    pub fn check(&self, address: IpAddr, in_cluster: bool) -> Result<(), Refused> {
        let addresses = meant(address);
        for &address in addresses.iter().flatten() {
            if let Some((network, kind)) = special(address)
                && !self.lists(address, Some(network))
            {
                return Err(Refused::Special(kind));
            }
        }
        let canonical = address.to_canonical();
        if in_cluster && self.names_cluster() || self.lists(canonical, None) {
            Ok(())
        } else {
            Err(Refused::Outside)
        }
    }

    /// Whether the address is in one of the networks; only networks that lie `within` another
    /// count, where that is given.
    fn lists(&self, address: IpAddr, within: Option<IpNet>) -> bool {
        self.0.iter().any(|range| match range {
            Range::Cluster => false,
            Range::Network(network) => {
                network.contains(&address) && within.is_none_or(|outer| outer.contains(network))
            }
        })
    }
}

fn special(address: IpAddr) -> Option<(IpNet, &'static str)> {
    SPECIAL
        .into_iter()
        .find(|(network, _)| network.contains(&address))
}

/// The address, and the IPv4 address that a translator on the way would make of it (RFC 6052,
/// 3056): both have to be allowed.
fn meant(address: IpAddr) -> [Option<IpAddr>; 2] {
    let canonical = address.to_canonical();
    let IpAddr::V6(v6) = canonical else {
        return [Some(canonical), None];
    };
    let embedded = match v6.segments() {
        [0x64, 0xff9b, _, _, _, _, high, low] | [0x2002, high, low, ..] => Some((high, low)),
        // ::1 and :: are no IPv4 addresses.
        [0, 0, 0, 0, 0, 0, high, low] if high != 0 => Some((high, low)),
        _ => None,
    };
    let v4 = embedded
        .map(|(high, low)| IpAddr::V4(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low))));
    [Some(canonical), v4]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(list: &str) -> Ranges {
        let list: Vec<Range> = list.split(',').map(|one| one.parse().unwrap()).collect();
        list.into()
    }

    fn judged(list: &str, address: &str, in_cluster: bool) -> &'static str {
        match ranges(list).check(address.parse().unwrap(), in_cluster) {
            Ok(()) => "asked",
            Err(Refused::Outside) => "outside",
            Err(Refused::Special(_)) => "special",
        }
    }

    #[test]
    fn the_cluster_is_asked_and_nothing_else() {
        assert_eq!(judged("cluster", "10.244.1.7", true), "asked");
        for address in ["10.244.1.7", "192.0.2.1", "2001:db8::1", "8.8.8.8"] {
            assert_eq!(judged("cluster", address, false), "outside", "{address}");
        }
    }

    /// A Node may say that it has any address, so being in the cluster does not help.
    #[test]
    fn special_addresses_are_never_asked_unless_they_are_listed_themselves() {
        for address in [
            "127.0.0.1",
            "127.8.9.10",
            "0.0.0.0",
            "169.254.169.254",
            "100.100.100.200",
            "168.63.129.16",
            "224.0.0.18",
            "255.255.255.255",
            "::1",
            "::",
            "fe80::1",
            "ff02::1",
            "fd00:ec2::254",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::a9fe:a9fe",
            "2002:7f00:1::",
            "::169.254.169.254",
        ] {
            for list in ["cluster", "cluster,0.0.0.0/0,::/0", "fd00::/8,128.0.0.0/1"] {
                assert_eq!(judged(list, address, true), "special", "{address} {list}");
            }
        }
        assert_eq!(judged("127.0.0.0/8", "127.0.0.1", false), "asked");
        assert_eq!(judged("127.0.0.1", "127.0.0.2", false), "special");
        assert_eq!(judged("169.254.0.0/16", "169.254.7.7", false), "asked");
        assert_eq!(judged("fe80::/10", "fe80::1", false), "asked");
    }

    #[test]
    fn networks_are_asked_as_they_are_listed() {
        assert_eq!(judged("192.0.2.7/24", "192.0.2.9", false), "asked");
        assert_eq!(judged("192.0.2.0/24", "192.0.3.9", false), "outside");
        assert_eq!(judged("192.0.2.0/24", "::ffff:192.0.2.9", false), "asked");
        assert_eq!(judged("192.0.2.0/24", "10.244.1.7", true), "outside");
        assert_eq!(judged("0.0.0.0/0", "8.8.8.8", false), "asked");
        assert_eq!(judged("0.0.0.0/0", "2001:db8::1", false), "outside");
    }

    #[test]
    fn what_is_no_range_is_told_with_the_way_out() {
        let told = "10.0.0".parse::<Range>().unwrap_err();
        assert!(told.contains("write cluster, 192.0.2.0/24"), "{told}");
        for text in ["cluster", "192.0.2.0/24", "2001:db8::/32"] {
            assert_eq!(text.parse::<Range>().unwrap().to_string(), text);
        }
    }
}
