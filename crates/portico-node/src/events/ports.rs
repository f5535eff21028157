//! Which ports the node's own programs have, as the kernel shows it below `/proc`.

use portico_model::table::{Family, NodePortAddresses, PortKey, Protocol};
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::Path;

/// A program waits here for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Listener {
    pub protocol: Protocol,
    pub address: SocketAddr,
}

impl Listener {
    /// It would get what a node port takes.
    pub(super) fn is_in_the_way(
        &self,
        key: &PortKey,
        port: u16,
        addresses: &NodePortAddresses,
    ) -> bool {
        let ip = self.address.ip();
        // `::` takes IPv4 as well, unless it was told not to.
        let family = Family::of(ip) == key.family || (ip.is_unspecified() && ip.is_ipv6());
        let reached = ip.is_unspecified()
            || match addresses {
                NodePortAddresses::AllLocal { loopback } => *loopback || !ip.is_loopback(),
                NodePortAddresses::Listed(listed) => listed.contains(&ip),
            };
        self.protocol == key.protocol && self.address.port() == port && family && reached
    }
}

/// All of them.
pub(super) fn listeners(root: &Path) -> Vec<Listener> {
    const TABLES: [(&str, Protocol, &str); 4] = [
        ("tcp", Protocol::Tcp, "0A"),
        ("tcp6", Protocol::Tcp, "0A"),
        ("udp", Protocol::Udp, "07"),
        ("udp6", Protocol::Udp, "07"),
    ];
    let read = |(table, protocol, waiting): (&str, Protocol, &str)| {
        let text = fs::read_to_string(root.join("proc/net").join(table)).unwrap_or_default();
        let line = |line: &str| {
            let mut fields = line.split_whitespace().skip(1);
            let (local, _remote, state) = (fields.next()?, fields.next()?, fields.next()?);
            (state == waiting)
                .then(|| parse(local))
                .flatten()
                .map(|address| Listener { protocol, address })
        };
        text.lines().skip(1).filter_map(line).collect::<Vec<_>>()
    };
    TABLES.into_iter().flat_map(read).collect()
}

/// `0100007F:1F90`: words of the address in the machine's byte order.
fn parse(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let mut bytes = Vec::with_capacity(16);
    for start in (0..address.len()).step_by(8) {
        let word = u32::from_str_radix(address.get(start..start + 8)?, 16).ok()?;
        bytes.extend_from_slice(&word.to_ne_bytes());
    }
    let ip = match bytes.len() {
        4 => IpAddr::from(<[u8; 4]>::try_from(bytes).ok()?),
        _ => IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?),
    };
    Some(SocketAddr::new(
        ip.to_canonical(),
        u16::from_str_radix(port, 16).ok()?,
    ))
}

/// The ports that the kernel takes for the node's own connections.
#[derive(Debug, Default)]
pub(super) struct Ephemeral {
    range: Option<RangeInclusive<u16>>,
    reserved: Vec<RangeInclusive<u16>>,
}

impl Ephemeral {
    pub(super) fn contains(&self, port: u16) -> bool {
        self.range
            .as_ref()
            .is_some_and(|range| range.contains(&port))
            && !self.reserved.iter().any(|range| range.contains(&port))
    }
}

pub(super) fn ephemeral(root: &Path) -> Ephemeral {
    let read = |name: &str| {
        fs::read_to_string(root.join("proc/sys/net/ipv4").join(name)).unwrap_or_default()
    };
    let range = read("ip_local_port_range");
    let mut bounds = range
        .split_whitespace()
        .filter_map(|text| text.parse().ok());
    let range = bounds
        .next()
        .zip(bounds.next())
        .map(|(first, last)| first..=last);
    let reserved = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse().ok()?..=last.trim().parse().ok()?)
    };
    Ephemeral {
        range,
        reserved: read("ip_local_reserved_ports")
            .split(',')
            .filter_map(reserved)
            .collect(),
    }
}
