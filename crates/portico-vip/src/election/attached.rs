//! Everything that is open on the link while we take part through it.

use super::adverts::Adverts;
use super::rtnetlink::Link;
use super::virtual_link::{self, VirtualLink};
use super::wire::{self, Mac, Wire};
use super::{ElectionError, Settings};
use std::io;
use std::net::IpAddr;

pub(super) struct Attached {
    link: Link,
    pub adverts: Adverts,
    pub wire: Wire,
    virtual_link: Option<VirtualLink>,
    /// What an owner would have if it took the hardware address of the virtual router.
    virtual_mac: Mac,
}

impl Attached {
    /// To be called in an async runtime.
    pub(super) fn open(settings: &Settings, link: &Link) -> Result<Self, ElectionError> {
        let config = &settings.router;
        let v4 = config.own.is_ipv4();
        let adverts =
            Adverts::open(config, &link.name, link.index).map_err(ElectionError::doing(
                format!("open sockets for VRRP on {} (needs CAP_NET_RAW)", link.name),
            ))?;
        let wire = Wire::open(link.index, &config.addresses).map_err(ElectionError::doing(
            format!("open sockets for ARP on {} (needs CAP_NET_RAW)", link.name),
        ))?;
        let virtual_link = settings
            .virtual_mac
            .then(|| VirtualLink::create(link, config.vrid, v4))
            .transpose();
        let virtual_link = virtual_link.map_err(ElectionError::doing(format!(
            "make the link {}",
            virtual_link::name(config.vrid, v4)
        )))?;
        if v4 && settings.prefix < 32 {
            // Without this the kernel removes all secondary addresses of a network with the first
            // one: the host's own address with a virtual one.
            let _ = std::fs::write(
                format!("/proc/sys/net/ipv4/conf/{}/promote_secondaries", link.name),
                "1",
            );
        }
        let virtual_mac = virtual_link::mac(config.vrid, v4);
        Ok(Self {
            link: link.clone(),
            adverts,
            wire,
            virtual_link,
            virtual_mac,
        })
    }

    /// The link that is to have the addresses.
    pub(super) fn holder(&self) -> u32 {
        self.virtual_link
            .as_ref()
            .map_or(self.link.index, |link| link.index)
    }

    pub(super) fn is_on(&self, link: &Link) -> bool {
        (self.link.index, self.link.mac) == (link.index, link.mac)
    }

    /// A hardware address of this host, or one that any member of the virtual router may have.
    pub(super) fn is_ours(&self, mac: Mac) -> bool {
        mac == self.link.mac || mac == self.virtual_mac
    }

    /// Before the addresses come.
    pub(super) fn enliven(&mut self, own: IpAddr) -> io::Result<()> {
        match &mut self.virtual_link {
            Some(link) if !link.is_up() => {
                link.set_up(true)?;
                self.adverts.send_through(own, &link.name, link.index)
            }
            _ => Ok(()),
        }
    }

    /// Sends packets through the own link again and sets the virtual one down, once the addresses
    /// are gone.
    pub(super) fn calm(&mut self) {
        self.adverts.send_through_own_link();
        if let Some(Err(error)) = self.virtual_link.as_mut().map(|link| link.set_up(false)) {
            tracing::warn!(%error, "the virtual link cannot be set down");
        }
    }

    /// How many packets that took.
    pub(super) fn announce(&self, addresses: &[IpAddr]) -> u64 {
        let mac = self
            .virtual_link
            .as_ref()
            .map_or(self.link.mac, |link| link.mac);
        let frames = addresses
            .iter()
            .flat_map(|address| wire::announcements(mac, *address));
        frames.filter(|frame| self.send(frame)).count() as u64
    }

    pub(super) fn probe(&self, addresses: &[IpAddr]) {
        for address in addresses {
            self.send(&wire::probe(self.link.mac, *address));
        }
    }

    /// On a link without hardware addresses nothing has to be announced.
    fn send(&self, frame: &[u8]) -> bool {
        if self.link.mac == Mac::default() {
            return false;
        }
        let sent = self.wire.send(frame);
        if let Err(error) = &sent {
            tracing::warn!(%error, link = self.link.name, "an announcement or probe cannot be sent");
        }
        sent.is_ok()
    }
}
