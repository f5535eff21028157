//! Virtual servers and their destinations, as the generic netlink subsystem `IPVS` has them.

use super::{address, family_number, octets, protocol};
use crate::ipvs::server::{At, DECIDED, Destination, Settings};
use crate::netlink::generic::HEADER;
use crate::netlink::{Attribute, Message, Messages, flags};
use portico_model::table::Family;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

pub const SUBSYSTEM: &str = "IPVS";
const VERSION: u8 = 1;

/// Commands.
const NEW_SERVICE: u8 = 1;
const SET_SERVICE: u8 = 2;
const DEL_SERVICE: u8 = 3;
const GET_SERVICE: u8 = 4;
const NEW_DESTINATION: u8 = 5;
const SET_DESTINATION: u8 = 6;
const DEL_DESTINATION: u8 = 7;
const GET_DESTINATION: u8 = 8;
const SET_CONFIG: u8 = 12;

/// Of a command.
const SERVICE: u16 = 1;
const DESTINATION: u16 = 2;
const TIMEOUT_TCP: u16 = 4;
const TIMEOUT_TCP_FIN: u16 = 5;
const TIMEOUT_UDP: u16 = 6;

/// Of a service.
const FAMILY: u16 = 1;
const PROTOCOL: u16 = 2;
const ADDRESS: u16 = 3;
const PORT: u16 = 4;
const MARK: u16 = 5;
const SCHEDULER: u16 = 6;
const FLAGS: u16 = 7;
const TIMEOUT: u16 = 8;
const NETMASK: u16 = 9;

/// Of a destination.
const DESTINATION_ADDRESS: u16 = 1;
const DESTINATION_PORT: u16 = 2;
const METHOD: u16 = 3;
const WEIGHT: u16 = 4;
const UPPER_LIMIT: u16 = 5;
const LOWER_LIMIT: u16 = 6;
const ACTIVE: u16 = 7;
const INACTIVE: u16 = 8;
const DESTINATION_FAMILY: u16 = 11;

/// Packets are translated, as opposed to tunnelled or routed.
const TRANSLATE: u32 = 0;

/// Writes requests for the subsystem, whose number the kernel chose.
#[derive(Clone, Copy)]
pub struct Requests {
    pub subsystem: u16,
}

impl Requests {
    fn request(self, m: &mut Messages, command: u8, flags: u16, body: impl FnOnce(&mut Messages)) {
        m.message(self.subsystem, flags, |m| {
            m.raw(&[command, VERSION, 0, 0]);
            body(m);
        });
    }

    pub fn add_server(self, m: &mut Messages, at: At, settings: &Settings) {
        self.request(m, NEW_SERVICE, 0, |m| server(m, at, Some(settings)));
    }

    pub fn edit_server(self, m: &mut Messages, at: At, settings: &Settings) {
        self.request(m, SET_SERVICE, 0, |m| server(m, at, Some(settings)));
    }

    pub fn delete_server(self, m: &mut Messages, at: At) {
        self.request(m, DEL_SERVICE, 0, |m| server(m, at, None));
    }

    pub fn list_servers(self) -> Messages {
        let mut m = Messages::new();
        self.request(&mut m, GET_SERVICE, flags::DUMP, |_| {});
        m
    }

    pub fn add_destination(self, m: &mut Messages, at: At, endpoint: SocketAddr) {
        self.request(m, NEW_DESTINATION, 0, |m| {
            server(m, at, None);
            destination(m, endpoint, Some(1));
        });
    }

    pub fn weigh(self, m: &mut Messages, at: At, endpoint: SocketAddr, weight: u32) {
        self.request(m, SET_DESTINATION, 0, |m| {
            server(m, at, None);
            destination(m, endpoint, Some(weight));
        });
    }

    pub fn delete_destination(self, m: &mut Messages, at: At, endpoint: SocketAddr) {
        self.request(m, DEL_DESTINATION, 0, |m| {
            server(m, at, None);
            destination(m, endpoint, None);
        });
    }

    pub fn list_destinations(self, at: At) -> Messages {
        let mut m = Messages::new();
        self.request(&mut m, GET_DESTINATION, flags::DUMP, |m| {
            server(m, at, None)
        });
        m
    }

    /// Zero leaves a timeout as it is.
    pub fn timeouts(self, m: &mut Messages, tcp: Duration, tcp_fin: Duration, udp: Duration) {
        self.request(m, SET_CONFIG, 0, |m| {
            for (kind, timeout) in [
                (TIMEOUT_TCP, tcp),
                (TIMEOUT_TCP_FIN, tcp_fin),
                (TIMEOUT_UDP, udp),
            ] {
                m.put_u32(kind, u32::try_from(timeout.as_secs()).unwrap_or(u32::MAX));
            }
        });
    }

    /// A server that no packet finds, to see whether the kernel has a scheduler.
    pub fn add_probe(self, m: &mut Messages, scheduler: &str) {
        self.request(m, NEW_SERVICE, 0, |m| probe(m, Some(scheduler)));
    }

    pub fn delete_probe(self, m: &mut Messages) {
        self.request(m, DEL_SERVICE, 0, |m| probe(m, None));
    }
}

fn server(m: &mut Messages, at: At, settings: Option<&Settings>) {
    m.nested(SERVICE, |m| {
        m.put_u16(FAMILY, family_number(at.family()).into());
        m.put_u16(PROTOCOL, at.protocol.number().into());
        m.put(ADDRESS, &sixteen(at.address));
        m.put_u16_be(PORT, at.port);
        if let Some(settings) = settings {
            put_settings(
                m,
                at.family(),
                &settings.scheduler,
                settings.flags,
                settings.timeout,
            );
        }
    });
}

/// Marks are the administrator's; this one spells `PRTC`.
fn probe(m: &mut Messages, scheduler: Option<&str>) {
    m.nested(SERVICE, |m| {
        m.put_u16(FAMILY, family_number(Family::V4).into());
        m.put_u32(MARK, 0x5052_5443);
        if let Some(scheduler) = scheduler {
            put_settings(m, Family::V4, scheduler, 0, 0);
        }
    });
}

fn put_settings(m: &mut Messages, family: Family, scheduler: &str, flags: u32, timeout: u32) {
    m.put_str(SCHEDULER, scheduler);
    // What they are, and which of them are meant.
    m.put(
        FLAGS,
        &[flags.to_ne_bytes(), u32::MAX.to_ne_bytes()].concat(),
    );
    m.put_u32(TIMEOUT, timeout);
    // Each address is a client of its own: a mask for IPv4, a length for IPv6.
    m.put_u32(NETMASK, if family == Family::V4 { u32::MAX } else { 128 });
}

fn destination(m: &mut Messages, endpoint: SocketAddr, weight: Option<u32>) {
    m.nested(DESTINATION, |m| {
        m.put(DESTINATION_ADDRESS, &sixteen(endpoint.ip()));
        m.put_u16_be(DESTINATION_PORT, endpoint.port());
        m.put_u16(
            DESTINATION_FAMILY,
            family_number(Family::of(endpoint.ip())).into(),
        );
        if let Some(weight) = weight {
            m.put_u32(METHOD, TRANSLATE);
            m.put_u32(WEIGHT, weight);
            m.put_u32(UPPER_LIMIT, 0);
            m.put_u32(LOWER_LIMIT, 0);
        }
    });
}

/// An address of either family has the same length.
fn sixteen(address: IpAddr) -> Vec<u8> {
    let mut bytes = octets(address);
    bytes.resize(16, 0);
    bytes
}

/// `None` for what is found by a mark instead of an address, which is nothing of ours.
pub fn parse_server(message: &Message) -> Option<(At, Settings)> {
    let server = message.attributes(HEADER).find_kind(SERVICE)?;
    let find = |kind| server.nested().find_kind(kind);
    let family = u8::try_from(find(FAMILY)?.u16()?).ok()?;
    let at = At {
        address: address(family, find(ADDRESS)?.data)?,
        port: find(PORT)?.u16_be()?,
        protocol: protocol(u8::try_from(find(PROTOCOL)?.u16()?).ok()?)?,
    };
    let flags = find(FLAGS)?.u32()? & DECIDED;
    let persistent = flags & 1 != 0;
    let timeout = find(TIMEOUT)?
        .u32()
        .filter(|_| persistent)
        .unwrap_or_default();
    Some((
        at,
        Settings {
            scheduler: find(SCHEDULER)?.text()?.into(),
            flags,
            timeout,
        },
    ))
}

/// Kernels before 3.18 do not say of which family an endpoint is: of the server's.
pub fn parse_destination(message: &Message, family: Family) -> Option<Destination> {
    let destination = message.attributes(HEADER).find_kind(DESTINATION)?;
    let find = |kind| destination.nested().find_kind(kind);
    let number = |attribute: Option<Attribute>| attribute.and_then(|attribute| attribute.u32());
    let told = find(DESTINATION_FAMILY).and_then(|family| family.u16());
    let family = told
        .and_then(|family| u8::try_from(family).ok())
        .unwrap_or(family_number(family));
    let ip = address(family, find(DESTINATION_ADDRESS)?.data)?;
    Some(Destination {
        at: SocketAddr::new(ip, find(DESTINATION_PORT)?.u16_be()?),
        weight: number(find(WEIGHT))?,
        active: number(find(ACTIVE)).unwrap_or_default(),
        inactive: number(find(INACTIVE)).unwrap_or_default(),
    })
}
