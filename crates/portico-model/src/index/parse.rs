//! Addresses, networks and ports as the API lets them be written, and the list of what could not be
//! read.

use crate::index::Problem;
use crate::objects::Metadata;
use crate::table::Protocol;
use ipnet::IpNet;
use std::net::{IpAddr, Ipv4Addr};

/// More than this many problems between two calls of `take` are not listed, which bounds the memory
/// of a bad input.
const MOST_PROBLEMS: usize = 1000;

/// Collects what is wrong with one object.
pub(super) struct Complaints<'a> {
    pub list: &'a mut Vec<Problem>,
    pub kind: &'static str,
    pub metadata: &'a Metadata,
}

impl Complaints<'_> {
    pub(super) fn add(&mut self, sentence: String) {
        let Metadata {
            namespace, name, ..
        } = self.metadata;
        report(
            self.list,
            Problem {
                kind: self.kind,
                namespace: namespace.clone(),
                name: name.clone(),
                sentence,
            },
        );
    }

    /// An empty text is no address and no problem.
    pub(super) fn address(&mut self, text: &str, what: &str) -> Option<IpAddr> {
        let parsed = parse_address(text.trim());
        if parsed.is_none() && !text.trim().is_empty() {
            self.add(format!(
                "{what} {text:?} is not an IP address; it is left out"
            ));
        }
        parsed
    }

    /// An address of the family that `of_family` takes.
    pub(super) fn address_where<A>(
        &mut self,
        text: &str,
        of_family: impl Fn(IpAddr) -> Option<A>,
        what: &str,
    ) -> Option<A> {
        let taken = of_family(self.address(text, what)?);
        if taken.is_none() {
            self.add(format!(
                "{what} {text:?} is not of the address family that it is listed under; it is \
                 left out"
            ));
        }
        taken
    }

    pub(super) fn network(&mut self, text: &str, what: &str) -> Option<IpNet> {
        let parsed = parse_network(text.trim());
        if parsed.is_none() && !text.trim().is_empty() {
            self.add(format!("{what} {text:?} is not a CIDR; it is left out"));
        }
        parsed
    }

    /// The API's default is TCP.
    pub(super) fn protocol(&mut self, text: &str) -> Option<Protocol> {
        if text.is_empty() {
            return Some(Protocol::Tcp);
        }
        let known = Protocol::named(text);
        if known.is_none() {
            self.add(format!(
                "protocol {text:?} is not known; the port is left out"
            ));
        }
        known
    }
}

pub(super) fn report(list: &mut Vec<Problem>, problem: Problem) {
    if list.len() < MOST_PROBLEMS {
        list.push(problem);
    }
}

/// Old objects may have IPv4 addresses with leading zeros, which mean nothing, and IPv4 addresses
/// written as IPv6 ones.
pub(super) fn parse_address(text: &str) -> Option<IpAddr> {
    match text.parse::<IpAddr>() {
        Ok(address) => Some(address.to_canonical()),
        Err(_) => dotted_quad(text).map(IpAddr::V4),
    }
}

fn dotted_quad(text: &str) -> Option<Ipv4Addr> {
    let mut octets = [0u8; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        let part = parts.next()?;
        if part.is_empty() || !part.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        *octet = part.parse().ok()?;
    }
    parts.next().is_none().then(|| octets.into())
}

/// Bits of the host are dropped.
pub(super) fn parse_network(text: &str) -> Option<IpNet> {
    let (address, length) = text.split_once('/')?;
    let length: u8 = length.parse().ok()?;
    let address = match address.contains(':') {
        true => address.parse().ok()?,
        false => parse_address(address)?,
    };
    Some(IpNet::new(address, length).ok()?.trunc())
}

/// A single address as a network.
pub(super) fn host(address: IpAddr) -> IpNet {
    IpNet::from(address)
}

/// The seconds of a timestamp as a number that orders like the time; unknown is last.
pub(super) fn order_of_time(timestamp: Option<&str>) -> u64 {
    let digits = timestamp
        .unwrap_or_default()
        .bytes()
        .filter(u8::is_ascii_digit)
        .take(14);
    let mut count = 0;
    let number = digits
        .inspect(|_| count += 1)
        .fold(0, |n, digit| n * 10 + u64::from(digit - b'0'));
    if count == 14 { number } else { u64::MAX }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_as_the_api_lets_them_be_written() {
        for (text, wanted) in [
            ("10.0.0.1", Some("10.0.0.1")),
            ("010.000.000.001", Some("10.0.0.1")),
            ("::ffff:10.0.0.1", Some("10.0.0.1")),
            ("fd00::1", Some("fd00::1")),
            ("10.0.0", None),
            ("10.0.0.1.2", None),
            ("10.0.0.256", None),
            ("10.0.0.+1", None),
            ("fe80::1%eth0", None),
            ("", None),
        ] {
            assert_eq!(
                parse_address(text),
                wanted.map(|w| w.parse().unwrap()),
                "{text}"
            );
        }
    }

    #[test]
    fn networks_as_the_api_lets_them_be_written() {
        for (text, wanted) in [
            ("10.1.2.3/8", Some("10.0.0.0/8")),
            ("010.0.0.0/08", Some("10.0.0.0/8")),
            ("fd00::1/64", Some("fd00::/64")),
            ("::/0", Some("::/0")),
            ("10.0.0.0/33", None),
            ("10.0.0.0", None),
            ("x/8", None),
        ] {
            assert_eq!(
                parse_network(text),
                wanted.map(|w| w.parse().unwrap()),
                "{text}"
            );
        }
    }

    #[test]
    fn time_orders_and_unknown_is_last() {
        let early = order_of_time(Some("2024-01-02T03:04:05Z"));
        let late = order_of_time(Some("2024-01-02T03:04:06Z"));
        assert!(early < late && late < order_of_time(None));
        assert_eq!(order_of_time(Some("yesterday")), order_of_time(None));
    }
}
