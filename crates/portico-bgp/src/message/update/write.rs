//! Writing UPDATEs: one message at a time, with as many prefixes as have room.

use super::Path;
use super::attributes::*;
use crate::community::Communities;
use crate::family::AfiSafi;
use crate::message::open::AS_TRANS;
use crate::message::{HEADER, LARGEST, UPDATE, frame};
use ipnet::IpNet;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

/// Header, and the lengths of withdrawn routes and of attributes.
const FRAME: usize = HEADER + 4;
/// Flags, type and length of an attribute whose length has two octets.
const LONG_HEADER: usize = 4;
const ORIGIN_IGP: u8 = 0;

/// Tells prefixes of one family that go through a next hop. Those that have room are taken away;
/// they are returned beside the message.
pub fn announce(
    family: AfiSafi,
    next_hop: IpAddr,
    path: &Path,
    four_octets: bool,
    from: &mut BTreeSet<IpNet>,
) -> (Vec<u8>, Vec<IpNet>) {
    match (family, next_hop) {
        (AfiSafi::Ipv4Unicast, IpAddr::V4(next_hop)) => {
            let attributes = common(path, Some(next_hop), four_octets);
            let (prefixes, octets) = take(from, LARGEST.saturating_sub(FRAME + attributes.len()));
            (update(&[], &attributes, &octets), prefixes)
        }
        (family, next_hop) => {
            let attributes = common(path, None, four_octets);
            let mut reach = family.afi().to_be_bytes().to_vec();
            reach.push(family.safi());
            match next_hop {
                IpAddr::V4(next_hop) => push_block(&mut reach, &next_hop.octets()),
                IpAddr::V6(next_hop) => push_block(&mut reach, &next_hop.octets()),
            }
            reach.push(0);
            let used = FRAME + attributes.len() + LONG_HEADER + reach.len();
            let (prefixes, octets) = take(from, LARGEST.saturating_sub(used));
            reach.extend(octets);
            // It comes first, so that it is found even where the rest is damaged (RFC 7606 section
            // 5.1).
            let mut all = Vec::new();
            put(&mut all, REACH, &reach);
            all.extend(attributes);
            (update(&[], &all, &[]), prefixes)
        }
    }
}

/// Takes prefixes of one family back. Those that have room are taken away; they are returned beside
/// the message.
pub fn withdraw(family: AfiSafi, from: &mut BTreeSet<IpNet>) -> (Vec<u8>, Vec<IpNet>) {
    match family {
        AfiSafi::Ipv4Unicast => {
            let (prefixes, octets) = take(from, LARGEST - FRAME);
            (update(&octets, &[], &[]), prefixes)
        }
        AfiSafi::Ipv6Unicast => {
            let (prefixes, octets) = take(from, LARGEST - FRAME - LONG_HEADER - 3);
            (update(&[], &unreach(family, &octets), &[]), prefixes)
        }
    }
}

/// Says that all of a family has been told (RFC 4724 section 2).
pub fn end_of_rib(family: AfiSafi) -> Vec<u8> {
    match family {
        AfiSafi::Ipv4Unicast => update(&[], &[], &[]),
        AfiSafi::Ipv6Unicast => update(&[], &unreach(family, &[]), &[]),
    }
}

fn unreach(family: AfiSafi, prefixes: &[u8]) -> Vec<u8> {
    let mut value = family.afi().to_be_bytes().to_vec();
    value.push(family.safi());
    value.extend(prefixes);
    let mut attribute = Vec::new();
    put(&mut attribute, UNREACH, &value);
    attribute
}

fn update(withdrawn: &[u8], attributes: &[u8], prefixes: &[u8]) -> Vec<u8> {
    let mut body = Vec::with_capacity(4 + withdrawn.len() + attributes.len() + prefixes.len());
    for block in [withdrawn, attributes] {
        body.extend(u16::try_from(block.len()).unwrap_or_default().to_be_bytes());
        body.extend(block);
    }
    body.extend(prefixes);
    frame(UPDATE, &body)
}

fn take(from: &mut BTreeSet<IpNet>, room: usize) -> (Vec<IpNet>, Vec<u8>) {
    let (mut taken, mut octets) = (Vec::new(), Vec::new());
    while let Some(prefix) = from.first() {
        let length = usize::from(prefix.prefix_len()).div_ceil(8);
        if octets.len() + 1 + length > room {
            break;
        }
        octets.push(prefix.prefix_len());
        match prefix.addr() {
            IpAddr::V4(address) => octets.extend(address.octets().iter().take(length)),
            IpAddr::V6(address) => octets.extend(address.octets().iter().take(length)),
        }
        taken.extend(from.pop_first());
    }
    (taken, octets)
}

/// All attributes but those of other families, in the order of their numbers.
fn common(path: &Path, next_hop: Option<Ipv4Addr>, four_octets: bool) -> Vec<u8> {
    let mut attributes = Vec::new();
    let out = &mut attributes;
    put(out, ORIGIN, &[ORIGIN_IGP]);
    put(out, AS_PATH, &sequence(&path.as_path, four_octets));
    if let Some(next_hop) = next_hop {
        put(out, NEXT_HOP, &next_hop.octets());
    }
    if let Some(preference) = path.local_preference {
        put(out, LOCAL_PREF, &preference.to_be_bytes());
    }
    let Communities { small, large } = &path.communities;
    let small: Vec<u8> = small
        .iter()
        .take(Communities::MOST)
        .flat_map(|one| one.0.to_be_bytes())
        .collect();
    if !small.is_empty() {
        put(out, COMMUNITIES, &small);
    }
    if !four_octets && path.as_path.iter().any(|asn| u16::try_from(*asn).is_err()) {
        put(out, AS4_PATH, &sequence(&path.as_path, true));
    }
    let large = large.iter().take(Communities::MOST).flat_map(|one| one.0);
    let large: Vec<u8> = large.flat_map(u32::to_be_bytes).collect();
    if !large.is_empty() {
        put(out, LARGE_COMMUNITIES, &large);
    }
    attributes
}

fn sequence(path: &[u32], four_octets: bool) -> Vec<u8> {
    let mut value = Vec::new();
    for part in path.chunks(u8::MAX.into()) {
        value.extend([AS_SEQUENCE, u8::try_from(part.len()).unwrap_or_default()]);
        for asn in part {
            match four_octets {
                true => value.extend(asn.to_be_bytes()),
                false => value.extend(u16::try_from(*asn).unwrap_or(AS_TRANS).to_be_bytes()),
            }
        }
    }
    value
}

fn put(out: &mut Vec<u8>, kind: u8, value: &[u8]) {
    let flags = flags(kind).unwrap_or_default();
    match u8::try_from(value.len()) {
        // The room that is left for prefixes is counted with a long header.
        Ok(length) if kind != REACH => out.extend([flags, kind, length]),
        _ => {
            out.extend([flags | EXTENDED, kind]);
            out.extend(u16::try_from(value.len()).unwrap_or_default().to_be_bytes());
        }
    }
    out.extend(value);
}

fn push_block(out: &mut Vec<u8>, value: &[u8]) {
    out.push(u8::try_from(value.len()).unwrap_or_default());
    out.extend(value);
}
