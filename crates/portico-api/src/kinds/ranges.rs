//! Ranges of addresses as people write them: a network, or the first and the last address.

use super::checks;
use crate::names;
use std::net::IpAddr;

const FORM: &str =
    "must be a network (192.0.2.0/24, 2001:db8::/112) or a range (192.0.2.10-192.0.2.20)";

/// Addresses of one family, as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    is_v4: bool,
    first: u128,
    last: u128,
}

impl Range {
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        self.is_v4 == other.is_v4 && self.first <= other.last && other.first <= self.last
    }

    pub(super) fn contains(&self, address: IpAddr) -> bool {
        let number = number(address);
        self.is_v4 == address.is_ipv4() && self.first <= number && number <= self.last
    }
}

/// A range that a pool may have, or what is wrong with it.
pub(super) fn parse(text: &str) -> Result<Range, String> {
    let range = parse_of_any_size(text)?;
    check_size(&range)?;
    Ok(range)
}

pub(crate) fn parse_of_any_size(text: &str) -> Result<Range, String> {
    match text.split_once('-') {
        Some((first, last)) => from_to(first.trim(), last.trim()),
        None => network(text),
    }
}

fn from_to(first: &str, last: &str) -> Result<Range, String> {
    let read =
        |text: &str| names::address(text).map_err(|message| format!("{FORM}: {text:?} {message}"));
    let (from, to) = (read(first)?, read(last)?);
    if from.is_ipv4() != to.is_ipv4() {
        return Err("must have both ends of one family, IPv4 or IPv6".to_owned());
    }
    if number(from) > number(to) {
        return Err(format!(
            "must begin with the lower address: write {to}-{from}"
        ));
    }
    Ok(Range {
        is_v4: from.is_ipv4(),
        first: number(from),
        last: number(to),
    })
}

pub(super) fn network(text: &str) -> Result<Range, String> {
    let wrong = |message: &str| match names::address(text) {
        Ok(address) => format!(
            "{FORM}: for one address write {address}/{}",
            if address.is_ipv4() { 32 } else { 128 }
        ),
        Err(_) if message.starts_with("must be a valid CIDR") => FORM.to_owned(),
        Err(_) => message.to_owned(),
    };
    let address = checks::cidr(text).map_err(wrong)?;
    let length: u32 = text
        .rsplit('/')
        .next()
        .and_then(|length| length.parse().ok())
        .ok_or(FORM)?;
    let width = if address.is_ipv4() { 32 } else { 128 };
    let hosts = 1_u128
        .checked_shl(width - length)
        .map_or(u128::MAX, |size| size - 1);
    Ok(Range {
        is_v4: address.is_ipv4(),
        first: number(address),
        last: number(address) | hosts,
    })
}

/// Larger ranges are slips of the pen, and could not be announced.
fn check_size(range: &Range) -> Result<(), String> {
    let most = if range.is_v4 { 1 << 24 } else { 1 << 64 };
    match range.last - range.first {
        more if more >= most => {
            let (network, family) = if range.is_v4 {
                ("/8", "IPv4")
            } else {
                ("/64", "IPv6")
            };
            Err(format!(
                "must have no more addresses than an {family} {network}"
            ))
        }
        _ => Ok(()),
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => v4.to_bits().into(),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}
