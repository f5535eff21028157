//! What IPVS serves, from the kernel's own list (`/proc/net/ip_vs`). Pure.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// The virtual server gives connections to all of these servers, and to no other.
pub(super) fn covers(list: &str, virtual_server: SocketAddr, servers: &[SocketAddr]) -> bool {
    let mut lines = list.lines();
    let is_it =
        |line: &str| line.strip_prefix("TCP").and_then(first_address) == Some(virtual_server);
    if !lines.any(is_it) {
        return false;
    }
    let of_it = lines.map_while(|line| line.trim_start().strip_prefix("-> "));
    let mut found: Vec<SocketAddr> = of_it
        .filter(|line| has_weight(line))
        .filter_map(first_address)
        .collect();
    found.sort_unstable();
    found == servers
}

/// `0A60FF01:01BB` or `[fd00:0000:0000:0000:0000:0000:0000:0001]:01BB`.
fn first_address(line: &str) -> Option<SocketAddr> {
    let (address, port) = line.split_whitespace().next()?.rsplit_once(':')?;
    let address: IpAddr = match address
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
    {
        Some(v6) => IpAddr::V6(v6.parse().ok()?),
        None => Ipv4Addr::from(u32::from_str_radix(address, 16).ok()?).into(),
    };
    Some(SocketAddr::new(
        address,
        u16::from_str_radix(port, 16).ok()?,
    ))
}

/// Servers of weight 0 are on their way out. The line is `address method weight active inactive`.
fn has_weight(line: &str) -> bool {
    line.split_whitespace()
        .nth(2)
        .is_some_and(|weight| weight != "0")
}
