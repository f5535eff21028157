//! The link with the hardware address of the virtual router (RFC 9568, section 7.3), which has the
//! addresses in place of the host's own link. The hardware address of the address stays the same,
//! whichever node owns it.
//!
//! It is up only while we own the address: a standby would only drop what a switch floods to all
//! ports. After a crash the link stays without its addresses, and the next start removes it.

use super::rtnetlink::{self, Link};
use super::wire::Mac;
use portico_dataplane::netlink::Socket;
use std::fs;
use std::io;

const SETTINGS: &[(&str, &str, &str)] = &[
    ("ipv4", "arp_ignore", "1"),
    ("ipv4", "rp_filter", "2"),
    ("ipv6", "addr_gen_mode", "1"),
    ("ipv6", "accept_ra", "0"),
];
const PARENT_SETTINGS: &[(&str, &str)] = &[("arp_ignore", "1"), ("arp_announce", "2")];

pub(super) struct VirtualLink {
    kernel: Socket,
    pub name: String,
    pub index: u32,
    pub mac: Mac,
    up: bool,
    /// What settings of the parent were before.
    before: Vec<(String, String)>,
}

/// `00:00:5e:00:01:vrid`, or `…:02:…` for IPv6.
pub(super) fn mac(vrid: u8, v4: bool) -> Mac {
    [0, 0, 0x5e, 0, if v4 { 1 } else { 2 }, vrid]
}

pub(super) fn name(vrid: u8, v4: bool) -> String {
    format!("vrrp{}.{vrid}", if v4 { "" } else { "6" })
}

impl VirtualLink {
    /// A new one, down, after one that an earlier process left was removed.
    pub(super) fn create(parent: &Link, vrid: u8, v4: bool) -> io::Result<Self> {
        let (name, mac) = (name(vrid, v4), mac(vrid, v4));
        let mut kernel = Socket::open(libc::NETLINK_ROUTE)?;
        match find(&mut kernel, &name)? {
            Some(old) if old.mac == mac => drop(
                kernel
                    .exchange(&rtnetlink::delete_link(old.index))?
                    .into_result()?,
            ),
            Some(_) => {
                return Err(io::Error::new(
                    io::ErrorKind::AlreadyExists,
                    format!("{name} is somebody else's"),
                ));
            }
            None => {}
        }
        kernel
            .exchange(&rtnetlink::new_macvlan(&name, parent.index, mac))?
            .into_result()?;
        let link = find(&mut kernel, &name)?.ok_or(io::ErrorKind::NotFound)?;
        let mut made = Self {
            kernel,
            name,
            index: link.index,
            mac,
            up: false,
            before: Vec::new(),
        };
        made.settle(&parent.name)?;
        Ok(made)
    }

    pub(super) fn is_up(&self) -> bool {
        self.up
    }

    pub(super) fn set_up(&mut self, up: bool) -> io::Result<()> {
        if self.up != up {
            self.kernel
                .exchange(&rtnetlink::set_up(self.index, up))?
                .into_result()?;
            self.up = up;
        }
        Ok(())
    }

    /// Sets both links of one wire to speak and to answer for their own addresses only. What comes
    /// in here and is answered through the parent is right, and the link needs no addresses but
    /// those it is given.
    fn settle(&mut self, parent: &str) -> io::Result<()> {
        for (family, setting, value) in SETTINGS {
            match write(&path(family, &self.name, setting), value) {
                // A host without IPv6.
                Err(error) if error.kind() == io::ErrorKind::NotFound && *family == "ipv6" => {}
                done => done?,
            }
        }
        for (setting, value) in PARENT_SETTINGS {
            let path = path("ipv4", parent, setting);
            let before = fs::read_to_string(&path)?.trim().to_owned();
            if before.as_str() < *value {
                write(&path, value)?;
                self.before.push((path, before));
            }
        }
        Ok(())
    }
}

impl Drop for VirtualLink {
    fn drop(&mut self) {
        let removed = self
            .kernel
            .exchange(&rtnetlink::delete_link(self.index))
            .and_then(|replies| replies.into_result());
        match removed {
            Err(error) if error.raw_os_error() != Some(libc::ENODEV) => {
                tracing::warn!(%error, link = self.name, "the link could not be removed");
            }
            _ => {}
        }
        for (path, value) in &self.before {
            let _ = fs::write(path, value); // it goes with its link
        }
    }
}

fn write(path: &str, value: &str) -> io::Result<()> {
    fs::write(path, value)
        .map_err(|error| io::Error::new(error.kind(), format!("write {value} to {path}: {error}")))
}

fn path(family: &str, link: &str, setting: &str) -> String {
    format!("/proc/sys/net/{family}/conf/{link}/{setting}")
}

fn find(kernel: &mut Socket, name: &str) -> io::Result<Option<Link>> {
    match kernel.query(&rtnetlink::get_link(name), |message| {
        rtnetlink::link(&message)
    }) {
        Ok(links) => Ok(links
            .into_iter()
            .map(|(link, _)| link)
            .find(|link| link.name == name)),
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
        Err(error) => Err(error),
    }
}
