//! Reading an UPDATE. What is wrong with it ends the session only where its prefixes cannot be told
//! (RFC 7606); otherwise they count as withdrawn, which is `flaw`.

use super::attributes::*;
use super::{Path, Reached, Update};
use crate::community::{Community, LargeCommunity};
use crate::family::AfiSafi;
use crate::message::{Notification, code};
use crate::wire::Reader;
use ipnet::IpNet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const MALFORMED_LIST: u8 = 1;
const UNKNOWN_WELL_KNOWN: u8 = 2;
const OPTIONAL_ATTRIBUTE: u8 = 9;
const WRONG_PREFIX: u8 = 10;

fn error(subcode: u8) -> Notification {
    Notification::new(code::UPDATE, subcode)
}

/// What the attributes said.
#[derive(Default)]
struct Attributes {
    path: Path,
    seen: Vec<u8>,
    next_hop: Option<Ipv4Addr>,
    reach: Option<(AfiSafi, Reached)>,
    unreach: Option<(AfiSafi, Vec<IpNet>)>,
    flaw: Option<&'static str>,
}

impl Update {
    pub(in crate::message) fn decode(
        mut reader: Reader<'_>,
        four_octets: bool,
    ) -> Result<Self, Notification> {
        let withdrawn = reader.long_block().ok_or_else(|| error(MALFORMED_LIST))?;
        let attributes = reader.long_block().ok_or_else(|| error(MALFORMED_LIST))?;
        let is_empty = withdrawn.is_empty() && reader.is_empty();
        let withdrawn =
            prefixes(AfiSafi::Ipv4Unicast, Reader(withdrawn)).ok_or_else(|| error(WRONG_PREFIX))?;
        let announced =
            prefixes(AfiSafi::Ipv4Unicast, reader).ok_or_else(|| error(WRONG_PREFIX))?;
        let mut read = Attributes::default();
        read.all(Reader(attributes), four_octets)?;
        let end_of_rib = match &read.unreach {
            _ if !is_empty => None,
            None => attributes.is_empty().then_some(AfiSafi::Ipv4Unicast),
            Some((family, gone)) => (gone.is_empty() && read.seen == [UNREACH]).then_some(*family),
        };
        Ok(read.into_update(withdrawn, announced, end_of_rib))
    }
}

impl Attributes {
    fn all(&mut self, mut reader: Reader<'_>, four_octets: bool) -> Result<(), Notification> {
        while !reader.is_empty() {
            let Some((flags, kind, value)) = one(&mut reader) else {
                // The attributes end before they should. What they say of other families is lost
                // with the rest.
                self.flaw = Some("an attribute is longer than the attributes are");
                return Ok(());
            };
            self.attribute(flags, kind, value, four_octets)?;
        }
        Ok(())
    }

    fn attribute(
        &mut self,
        flags: u8,
        kind: u8,
        value: &[u8],
        four_octets: bool,
    ) -> Result<(), Notification> {
        if self.seen.contains(&kind) {
            // A second one counts for nothing, but of these two.
            return if [REACH, UNREACH].contains(&kind) {
                Err(error(MALFORMED_LIST))
            } else {
                Ok(())
            };
        }
        self.seen.push(kind);
        let expected = self::flags(kind);
        if expected.is_none() && flags & OPTIONAL == 0 {
            return Err(error(UNKNOWN_WELL_KNOWN));
        }
        if expected.is_some_and(|expected| expected != flags & (OPTIONAL | TRANSITIVE)) {
            self.flaw = Some("an attribute has wrong flags");
        }
        match kind {
            REACH => self.reach = reach(Reader(value)).ok_or_else(|| error(OPTIONAL_ATTRIBUTE))?,
            UNREACH => {
                self.unreach = unreach(Reader(value)).ok_or_else(|| error(OPTIONAL_ATTRIBUTE))?
            }
            _ => {
                if let Err(flaw) = self.plain(kind, value, four_octets) {
                    self.flaw = Some(flaw);
                }
            }
        }
        Ok(())
    }

    fn plain(&mut self, kind: u8, value: &[u8], four_octets: bool) -> Result<(), &'static str> {
        match kind {
            ORIGIN if !matches!(value, [0..=2]) => return Err("a wrong ORIGIN"),
            AS_PATH => {
                self.path.as_path = as_path(Reader(value), four_octets).ok_or("a wrong AS_PATH")?
            }
            // Only a speaker of two-octet AS numbers needs AS4_PATH, so that a wrong one elsewhere
            // is ignored.
            AS4_PATH if !four_octets => {
                self.path.as_path =
                    as_path(Reader(value), true).unwrap_or(std::mem::take(&mut self.path.as_path));
            }
            NEXT_HOP => {
                let octets = <[u8; 4]>::try_from(value).map_err(|_| "a wrong NEXT_HOP")?;
                self.next_hop = Some(octets.into());
            }
            MULTI_EXIT if value.len() != 4 => return Err("a wrong MULTI_EXIT_DISC"),
            LOCAL_PREF => {
                let octets = <[u8; 4]>::try_from(value).map_err(|_| "a wrong LOCAL_PREF")?;
                self.path.local_preference = Some(u32::from_be_bytes(octets));
            }
            COMMUNITIES => {
                let read = each(value, |one| Some(Community(u32::from_be_bytes(one))));
                self.path.communities.small = read.ok_or("wrong COMMUNITIES")?;
            }
            LARGE_COMMUNITIES => {
                self.path.communities.large =
                    each(value, large).ok_or("wrong LARGE_COMMUNITIES")?;
            }
            _ => {}
        }
        Ok(())
    }

    fn into_update(
        mut self,
        mut withdrawn: Vec<IpNet>,
        announced: Vec<IpNet>,
        end_of_rib: Option<AfiSafi>,
    ) -> Update {
        let has_body = !announced.is_empty();
        let missing = |kind: u8| !self.seen.contains(&kind);
        if has_body && self.next_hop.is_none() {
            self.flaw = self.flaw.or(Some("no NEXT_HOP"));
        }
        if (has_body || self.reach.is_some()) && (missing(ORIGIN) || missing(AS_PATH)) {
            self.flaw = self.flaw.or(Some("a mandatory attribute is missing"));
        }
        let body = has_body.then(|| Reached {
            next_hop: IpAddr::V4(self.next_hop.unwrap_or(Ipv4Addr::UNSPECIFIED)),
            prefixes: announced,
        });
        let reach = self.reach.map(|(_, reached)| reached);
        let mut reached: Vec<Reached> = body.into_iter().chain(reach).collect();
        withdrawn.extend(self.unreach.into_iter().flat_map(|(_, gone)| gone));
        if self.flaw.is_some() {
            withdrawn.extend(reached.drain(..).flat_map(|reached| reached.prefixes));
        }
        Update {
            withdrawn,
            reached,
            path: self.path,
            end_of_rib,
            flaw: self.flaw,
        }
    }
}

fn one<'a>(reader: &mut Reader<'a>) -> Option<(u8, u8, &'a [u8])> {
    let (flags, kind) = (reader.u8()?, reader.u8()?);
    let value = if flags & EXTENDED != 0 {
        reader.long_block()
    } else {
        reader.short_block()
    };
    Some((flags, kind, value?))
}

/// Values of one length, at least one.
fn each<T, const N: usize>(value: &[u8], read: impl Fn([u8; N]) -> Option<T>) -> Option<Vec<T>> {
    let (chunks, rest) = value.as_chunks::<N>();
    let all = chunks
        .iter()
        .map(|chunk| read(*chunk))
        .collect::<Option<Vec<T>>>()?;
    Some(all).filter(|all| !all.is_empty() && rest.is_empty())
}

fn large(value: [u8; 12]) -> Option<LargeCommunity> {
    let mut reader = Reader(&value);
    Some(LargeCommunity([
        reader.u32()?,
        reader.u32()?,
        reader.u32()?,
    ]))
}

/// All AS numbers in order, whatever segments they are in.
fn as_path(mut reader: Reader<'_>, four_octets: bool) -> Option<Vec<u32>> {
    let mut path = Vec::new();
    while !reader.is_empty() {
        let (kind, count) = (reader.u8()?, reader.u8()?);
        // The other two are of confederations.
        if !(AS_SET..=4).contains(&kind) || count == 0 {
            return None;
        }
        for _ in 0..count {
            path.push(if four_octets {
                reader.u32()?
            } else {
                reader.u16()?.into()
            });
        }
    }
    Some(path)
}

/// Outer `None`: not to be understood. Inner `None`: of a family that we know nothing of.
fn reach(mut reader: Reader<'_>) -> Option<Option<(AfiSafi, Reached)>> {
    let (afi, safi) = (reader.u16()?, reader.u8()?);
    let next_hop = reader.short_block()?;
    let _reserved = reader.u8()?;
    let Some(family) = AfiSafi::from_wire(afi, safi) else {
        return Some(None);
    };
    let next_hop = self::next_hop(next_hop)?;
    let prefixes = prefixes(family, reader)?;
    Some(Some((family, Reached { next_hop, prefixes })))
}

/// The global one of IPv6, where the one of the link comes after it.
fn next_hop(octets: &[u8]) -> Option<IpAddr> {
    match octets.len() {
        4 => <[u8; 4]>::try_from(octets).ok().map(IpAddr::from),
        16 | 32 => octets
            .first_chunk::<16>()
            .map(|octets| IpAddr::V6(Ipv6Addr::from(*octets))),
        _ => None,
    }
}

fn unreach(mut reader: Reader<'_>) -> Option<Option<(AfiSafi, Vec<IpNet>)>> {
    let (afi, safi) = (reader.u16()?, reader.u8()?);
    let Some(family) = AfiSafi::from_wire(afi, safi) else {
        return Some(None);
    };
    Some(Some((family, prefixes(family, reader)?)))
}

fn prefixes(family: AfiSafi, mut reader: Reader<'_>) -> Option<Vec<IpNet>> {
    let mut all = Vec::new();
    while !reader.is_empty() {
        let length = reader.u8().filter(|length| *length <= family.bits())?;
        let octets = reader.take(usize::from(length).div_ceil(8))?;
        let mut whole = [0; 16];
        whole
            .iter_mut()
            .zip(octets)
            .for_each(|(to, from)| *to = *from);
        let address = match family {
            AfiSafi::Ipv4Unicast => IpAddr::from(*whole.first_chunk::<4>()?),
            AfiSafi::Ipv6Unicast => IpAddr::from(whole),
        };
        // What lies behind the prefix means nothing.
        all.push(IpNet::new(address, length).ok()?.trunc());
    }
    Some(all)
}
