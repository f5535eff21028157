//! Virtual servers and their destinations, as the generic netlink subsystem `IPVS` has them.

use super::{address, family_number, octets, protocol};
use crate::ipvs::server::{At, DECIDED, Destination, Settings};
use crate::netlink::generic::HEADER;
use crate::netlink::uapi::*;
use crate::netlink::{Attribute, Message, Messages, flags};
use portico_model::table::Family;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

pub(crate) const SUBSYSTEM: &str = "IPVS";

/// Writes requests for the subsystem, whose number the kernel chose.
#[derive(Clone, Copy)]
pub(crate) struct Requests {
    pub subsystem: u16,
}

impl Requests {
    fn request(self, m: &mut Messages, command: u8, flags: u16, body: impl FnOnce(&mut Messages)) {
        m.message(self.subsystem, flags, |m| {
            m.raw(&[command, IPVS_GENL_VERSION, 0, 0]);
            body(m);
        });
    }

    pub(crate) fn add_server(self, m: &mut Messages, at: At, settings: &Settings) {
        self.request(m, IPVS_CMD_NEW_SERVICE, 0, |m| {
            server(m, at, Some(settings))
        });
    }

    pub(crate) fn edit_server(self, m: &mut Messages, at: At, settings: &Settings) {
        self.request(m, IPVS_CMD_SET_SERVICE, 0, |m| {
            server(m, at, Some(settings))
        });
    }

    pub(crate) fn delete_server(self, m: &mut Messages, at: At) {
        self.request(m, IPVS_CMD_DEL_SERVICE, 0, |m| server(m, at, None));
    }

    pub(crate) fn list_servers(self) -> Messages {
        let mut m = Messages::new();
        self.request(&mut m, IPVS_CMD_GET_SERVICE, flags::DUMP, |_| {});
        m
    }

    pub(crate) fn add_destination(self, m: &mut Messages, at: At, endpoint: SocketAddr) {
        self.request(m, IPVS_CMD_NEW_DEST, 0, |m| {
            server(m, at, None);
            destination(m, endpoint, Some(1));
        });
    }

    pub(crate) fn weigh(self, m: &mut Messages, at: At, endpoint: SocketAddr, weight: u32) {
        self.request(m, IPVS_CMD_SET_DEST, 0, |m| {
            server(m, at, None);
            destination(m, endpoint, Some(weight));
        });
    }

    pub(crate) fn delete_destination(self, m: &mut Messages, at: At, endpoint: SocketAddr) {
        self.request(m, IPVS_CMD_DEL_DEST, 0, |m| {
            server(m, at, None);
            destination(m, endpoint, None);
        });
    }

    pub(crate) fn list_destinations(self, at: At) -> Messages {
        let mut m = Messages::new();
        self.request(&mut m, IPVS_CMD_GET_DEST, flags::DUMP, |m| {
            server(m, at, None)
        });
        m
    }

    /// Zero leaves a timeout as it is.
    pub(crate) fn timeouts(
        self,
        m: &mut Messages,
        tcp: Duration,
        tcp_fin: Duration,
        udp: Duration,
    ) {
        self.request(m, IPVS_CMD_SET_CONFIG, 0, |m| {
            for (kind, timeout) in [
                (IPVS_CMD_ATTR_TIMEOUT_TCP, tcp),
                (IPVS_CMD_ATTR_TIMEOUT_TCP_FIN, tcp_fin),
                (IPVS_CMD_ATTR_TIMEOUT_UDP, udp),
            ] {
                m.put_u32(kind, u32::try_from(timeout.as_secs()).unwrap_or(u32::MAX));
            }
        });
    }

    /// A server that no packet finds, to see whether the kernel has a scheduler.
    pub(crate) fn add_probe(self, m: &mut Messages, scheduler: &str) {
        self.request(m, IPVS_CMD_NEW_SERVICE, 0, |m| probe(m, Some(scheduler)));
    }

    pub(crate) fn delete_probe(self, m: &mut Messages) {
        self.request(m, IPVS_CMD_DEL_SERVICE, 0, |m| probe(m, None));
    }
}

fn server(m: &mut Messages, at: At, settings: Option<&Settings>) {
    m.nested(IPVS_CMD_ATTR_SERVICE, |m| {
        m.put_u16(IPVS_SVC_ATTR_AF, family_number(at.family()).into());
        m.put_u16(IPVS_SVC_ATTR_PROTOCOL, at.protocol.number().into());
        m.put(IPVS_SVC_ATTR_ADDR, &sixteen(at.address));
        m.put_u16_be(IPVS_SVC_ATTR_PORT, at.port);
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
    m.nested(IPVS_CMD_ATTR_SERVICE, |m| {
        m.put_u16(IPVS_SVC_ATTR_AF, family_number(Family::V4).into());
        m.put_u32(IPVS_SVC_ATTR_FWMARK, 0x5052_5443);
        if let Some(scheduler) = scheduler {
            put_settings(m, Family::V4, scheduler, 0, 0);
        }
    });
}

fn put_settings(m: &mut Messages, family: Family, scheduler: &str, flags: u32, timeout: u32) {
    m.put_str(IPVS_SVC_ATTR_SCHED_NAME, scheduler);
    // What they are, and which of them are meant.
    m.put(
        IPVS_SVC_ATTR_FLAGS,
        &[flags.to_ne_bytes(), u32::MAX.to_ne_bytes()].concat(),
    );
    m.put_u32(IPVS_SVC_ATTR_TIMEOUT, timeout);
    // Each address is a client of its own: a mask for IPv4, a length for IPv6.
    m.put_u32(
        IPVS_SVC_ATTR_NETMASK,
        if family == Family::V4 { u32::MAX } else { 128 },
    );
}

fn destination(m: &mut Messages, endpoint: SocketAddr, weight: Option<u32>) {
    m.nested(IPVS_CMD_ATTR_DEST, |m| {
        m.put(IPVS_DEST_ATTR_ADDR, &sixteen(endpoint.ip()));
        m.put_u16_be(IPVS_DEST_ATTR_PORT, endpoint.port());
        m.put_u16(
            IPVS_DEST_ATTR_ADDR_FAMILY,
            family_number(Family::of(endpoint.ip())).into(),
        );
        if let Some(weight) = weight {
            // Packets are translated, as opposed to tunnelled or routed.
            m.put_u32(IPVS_DEST_ATTR_FWD_METHOD, IP_VS_CONN_F_MASQ);
            m.put_u32(IPVS_DEST_ATTR_WEIGHT, weight);
            m.put_u32(IPVS_DEST_ATTR_U_THRESH, 0);
            m.put_u32(IPVS_DEST_ATTR_L_THRESH, 0);
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
pub(crate) fn parse_server(message: &Message) -> Option<(At, Settings)> {
    let server = message
        .attributes(HEADER)
        .find_kind(IPVS_CMD_ATTR_SERVICE)?;
    let find = |kind| server.nested().find_kind(kind);
    let family = u8::try_from(find(IPVS_SVC_ATTR_AF)?.u16()?).ok()?;
    let at = At {
        address: address(family, find(IPVS_SVC_ATTR_ADDR)?.data)?,
        port: find(IPVS_SVC_ATTR_PORT)?.u16_be()?,
        protocol: protocol(u8::try_from(find(IPVS_SVC_ATTR_PROTOCOL)?.u16()?).ok()?)?,
    };
    let flags = find(IPVS_SVC_ATTR_FLAGS)?.u32()? & DECIDED;
    let persistent = flags & IP_VS_SVC_F_PERSISTENT != 0;
    let timeout = find(IPVS_SVC_ATTR_TIMEOUT)?
        .u32()
        .filter(|_| persistent)
        .unwrap_or_default();
    Some((
        at,
        Settings {
            scheduler: find(IPVS_SVC_ATTR_SCHED_NAME)?.text()?.into(),
            flags,
            timeout,
        },
    ))
}

/// Kernels before 3.18 do not say of which family an endpoint is: of the server's.
pub(crate) fn parse_destination(message: &Message, family: Family) -> Option<Destination> {
    let destination = message.attributes(HEADER).find_kind(IPVS_CMD_ATTR_DEST)?;
    let find = |kind| destination.nested().find_kind(kind);
    let number = |attribute: Option<Attribute>| attribute.and_then(|attribute| attribute.u32());
    let told = find(IPVS_DEST_ATTR_ADDR_FAMILY).and_then(|family| family.u16());
    let family = told
        .and_then(|family| u8::try_from(family).ok())
        .unwrap_or(family_number(family));
    let ip = address(family, find(IPVS_DEST_ATTR_ADDR)?.data)?;
    Some(Destination {
        at: SocketAddr::new(ip, find(IPVS_DEST_ATTR_PORT)?.u16_be()?),
        weight: number(find(IPVS_DEST_ATTR_WEIGHT))?,
        active: number(find(IPVS_DEST_ATTR_ACTIVE_CONNS)).unwrap_or_default(),
        inactive: number(find(IPVS_DEST_ATTR_INACT_CONNS)).unwrap_or_default(),
    })
}
