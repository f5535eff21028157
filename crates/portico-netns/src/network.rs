//! What a host's network is made of: links, addresses, routes, rules and settings, set by netlink
//! and `/proc/sys`.

use crate::host::Host;
use crate::netlink::{CREATE, Message, Netlink, attribute};
use crate::{Error, Result};
use ipnet::IpNet;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};

const UP: u32 = libc::IFF_UP as u32;
/// The operational state in which packets pass.
const OPERATIONAL: u8 = libc::IF_OPER_UP as u8;
// Numbers of the kernel's headers that libc does not have.
const IFLA_BR_FORWARD_DELAY: u16 = 1;
const VETH_INFO_PEER: u16 = 1;
const FRA_IIFNAME: u16 = 3;
const FRA_PRIORITY: u16 = 6;
const FRA_FWMARK: u16 = 10;
const FRA_TABLE: u16 = 15;
const IPCTNL_MSG_CT_DELETE: u16 = 2;
const CONNTRACK_DELETE: u16 = (libc::NFNL_SUBSYS_CTNETLINK as u16) << 8 | IPCTNL_MSG_CT_DELETE;

/// A route: `Route::to("10.0.0.0/8").via("172.30.0.1")`.
#[derive(Clone, Debug)]
pub struct Route<'a> {
    to: &'a str,
    via: Option<&'a str>,
    link: Option<&'a str>,
    table: u32,
    kind: u8,
}

impl<'a> Route<'a> {
    /// `default` and `default6` are everything.
    pub fn to(to: &'a str) -> Self {
        Route {
            to,
            via: None,
            link: None,
            table: libc::RT_TABLE_MAIN as u32,
            kind: libc::RTN_UNICAST,
        }
    }

    /// Goes through this gateway.
    pub fn via(self, gateway: &'a str) -> Self {
        Route {
            via: Some(gateway),
            ..self
        }
    }

    /// Goes out by this link.
    pub fn link(self, name: &'a str) -> Self {
        Route {
            link: Some(name),
            ..self
        }
    }

    /// Is in this routing table instead of the main one.
    pub fn table(self, table: u32) -> Self {
        Route { table, ..self }
    }

    /// The addresses become the host's own.
    pub fn local(self) -> Self {
        Route {
            kind: libc::RTN_LOCAL,
            link: Some("lo"),
            ..self
        }
    }
}

/// A rule that picks a routing table, in both families.
#[derive(Clone, Debug)]
pub struct Rule<'a> {
    /// Packets with this mark.
    pub mark: Option<u32>,
    /// Packets that came in through this link.
    pub input: Option<&'a str>,
    /// The routing table that it leads to.
    pub table: u32,
    /// Its place among the rules; the lowest is first.
    pub priority: u32,
}

impl Host {
    /// Sets a link up.
    pub fn link_up(&self, name: &str) -> Result<()> {
        let message = Message::new(libc::RTM_NEWLINK, 0)
            .fixed(&link_header(UP))
            .text(libc::IFLA_IFNAME, name);
        self.request(format!("set {name} up"), message)
    }

    /// Sets a link down, like a pulled cable: the other end loses its carrier.
    pub fn link_down(&self, name: &str) -> Result<()> {
        let mut header = link_header(UP);
        header[8..12].copy_from_slice(&0_u32.to_ne_bytes());
        let message = Message::new(libc::RTM_NEWLINK, 0)
            .fixed(&header)
            .text(libc::IFLA_IFNAME, name);
        self.request(format!("set {name} down"), message)
    }

    /// Gives a link this hardware address.
    pub fn link_mac(&self, name: &str, mac: [u8; 6]) -> Result<()> {
        let message = Message::new(libc::RTM_NEWLINK, 0)
            .fixed(&link_header(0))
            .text(libc::IFLA_IFNAME, name);
        self.request(
            format!("set the MAC of {name}"),
            message.attribute(libc::IFLA_ADDRESS, &mac),
        )
    }

    /// A bridge, up.
    pub fn bridge(&self, name: &str) -> Result<()> {
        let message = Message::new(libc::RTM_NEWLINK, CREATE)
            .fixed(&link_header(UP))
            .text(libc::IFLA_IFNAME, name)
            .nested(libc::IFLA_LINKINFO, |info| {
                info.text(libc::IFLA_INFO_KIND, "bridge")
                    .nested(libc::IFLA_INFO_DATA, |data| {
                        data.number(IFLA_BR_FORWARD_DELAY, 0)
                    })
            });
        self.request(format!("make the bridge {name}"), message)
    }

    /// A cable: `name` here and `peer_name` in `peer`, both up.
    pub fn cable(&self, name: &str, peer: &Self, peer_name: &str) -> Result<()> {
        let message = Message::new(libc::RTM_NEWLINK, CREATE)
            .fixed(&link_header(0))
            .text(libc::IFLA_IFNAME, name)
            .nested(libc::IFLA_LINKINFO, |info| {
                info.text(libc::IFLA_INFO_KIND, "veth")
                    .nested(libc::IFLA_INFO_DATA, |data| {
                        data.nested(VETH_INFO_PEER, |end| {
                            end.fixed(&link_header(0))
                                .text(libc::IFLA_IFNAME, peer_name)
                                .number(libc::IFLA_NET_NS_FD, peer.namespace_fd() as u32)
                        })
                    })
            });
        self.request(
            format!("make the cable {name} to {peer_name} of {}", peer.name()),
            message,
        )?;
        self.link_up(name)?;
        peer.link_up(peer_name)?;
        self.wait_until_it_carries(name)?;
        peer.wait_until_it_carries(peer_name)
    }

    /// Plugs a link into a bridge of this host.
    pub fn plug(&self, link: &str, bridge: &str) -> Result<()> {
        self.plug_without_waiting(link, bridge)?;
        self.wait_until_it_carries(bridge)
    }

    fn plug_without_waiting(&self, link: &str, bridge: &str) -> Result<()> {
        let (master, _) = self.link(bridge)?;
        let message = Message::new(libc::RTM_NEWLINK, 0)
            .fixed(&link_header(UP))
            .text(libc::IFLA_IFNAME, link)
            .number(libc::IFLA_MASTER, master);
        self.request(format!("plug {link} into {bridge}"), message)
    }

    /// A cable from this host's `name` to a port of the switch's bridge.
    pub fn cable_to_switch(
        &self,
        name: &str,
        switch: &Self,
        port: &str,
        bridge: &str,
    ) -> Result<()> {
        self.cable_to_silent_switch(name, switch, port, bridge)?;
        switch.wait_until_it_carries(bridge)
    }

    /// The same for a bridge that may not carry yet: older kernels take up to a second until they
    /// say that it does.
    pub fn cable_to_silent_switch(
        &self,
        name: &str,
        switch: &Self,
        port: &str,
        bridge: &str,
    ) -> Result<()> {
        switch.cable(port, self, name)?;
        switch.plug_without_waiting(port, bridge)
    }

    /// Gives a link an address with the length of its network: `10.0.0.1/24`. It can be used at
    /// once.
    pub fn address(&self, link: &str, address: &str) -> Result<()> {
        let message = self.address_message(libc::RTM_NEWADDR, CREATE, link, address, false)?;
        self.request(format!("add {address} to {link}"), message)
    }

    /// An address that answers but is not chosen as a source by itself.
    pub fn secondary_address(&self, link: &str, address: &str) -> Result<()> {
        let message = self.address_message(libc::RTM_NEWADDR, CREATE, link, address, true)?;
        self.request(format!("add {address} to {link}"), message)
    }

    /// Takes an address with its prefix length from a link.
    pub fn remove_address(&self, link: &str, address: &str) -> Result<()> {
        let message = self.address_message(libc::RTM_DELADDR, 0, link, address, false)?;
        self.request(format!("remove {address} from {link}"), message)
    }

    /// Adds a route.
    pub fn route(&self, route: Route) -> Result<()> {
        let network = self.network(route.to)?;
        let scope = match (route.kind, route.via) {
            (libc::RTN_LOCAL, _) => libc::RT_SCOPE_HOST,
            (_, None) if network.addr().is_ipv4() => libc::RT_SCOPE_LINK,
            _ => libc::RT_SCOPE_UNIVERSE,
        };
        let header = [
            family(network.addr()),
            network.prefix_len(),
            0,
            0,
            0,
            libc::RTPROT_STATIC,
            scope,
            route.kind,
        ];
        let mut message = Message::new(libc::RTM_NEWROUTE, CREATE)
            .fixed(&header)
            .fixed(&[0; 4])
            .attribute(libc::RTA_DST, &octets(network.addr()))
            .number(libc::RTA_TABLE, route.table);
        if let Some(gateway) = route.via {
            message = message.attribute(libc::RTA_GATEWAY, &octets(self.network(gateway)?.addr()));
        }
        if let Some(link) = route.link {
            message = message.number(libc::RTA_OIF, self.link(link)?.0);
        }
        self.request(format!("add {route:?}"), message)
    }

    /// Adds the rule for IPv4 and for IPv6.
    pub fn rule(&self, rule: Rule) -> Result<()> {
        for family in [libc::AF_INET, libc::AF_INET6] {
            let header = [
                family as u8,
                0,
                0,
                0,
                0,
                0,
                0,
                libc::RTN_UNICAST,
                0,
                0,
                0,
                0,
            ];
            let mut message = Message::new(libc::RTM_NEWRULE, CREATE)
                .fixed(&header)
                .number(FRA_TABLE, rule.table)
                .number(FRA_PRIORITY, rule.priority);
            if let Some(mark) = rule.mark {
                message = message.number(FRA_FWMARK, mark);
            }
            if let Some(link) = rule.input {
                message = message.text(FRA_IIFNAME, link);
            }
            self.request(format!("add {rule:?}"), message)?;
        }
        Ok(())
    }

    /// Writes below `/proc/sys`: `net/ipv4/ip_forward`.
    pub fn sysctl(&self, name: &str, value: &str) -> Result<()> {
        let write = || fs::write(format!("/proc/sys/{name}"), value);
        self.enter(write)
            .map_err(self.failed(format!("set {name} to {value}")))
    }

    /// The value of a setting, as `net/ipv4/ip_forward`.
    pub fn read_sysctl(&self, name: &str) -> Result<String> {
        let read = || fs::read_to_string(format!("/proc/sys/{name}"));
        let text = self
            .enter(read)
            .map_err(self.failed(format!("read {name}")))?;
        Ok(text.trim().to_owned())
    }

    /// Forgets every connection that the host tracks.
    pub fn forget_connections(&self) -> Result<()> {
        let flush = Message::new(CONNTRACK_DELETE, 0).fixed(&[libc::AF_UNSPEC as u8, 0, 0, 0]);
        let netlink = self.enter(|| Netlink::new(libc::NETLINK_NETFILTER));
        let done = netlink.and_then(|netlink| netlink.request(flush));
        done.map(drop).map_err(self.failed("forget connections"))
    }

    fn address_message(
        &self,
        kind: u16,
        flags: u16,
        link: &str,
        address: &str,
        secondary: bool,
    ) -> Result<Message> {
        let network = self.network(address)?;
        let address = octets(network.addr());
        let no_duplicate_detection = if network.addr().is_ipv6() {
            libc::IFA_F_NODAD as u8
        } else {
            0
        };
        let index = self.link(link)?.0.to_ne_bytes();
        let mut message = Message::new(kind, flags)
            .fixed(&[
                family(network.addr()),
                network.prefix_len(),
                no_duplicate_detection,
                0,
            ])
            .fixed(&index)
            .attribute(libc::IFA_LOCAL, &address)
            .attribute(libc::IFA_ADDRESS, &address);
        if secondary && network.addr().is_ipv6() {
            // Preferred for no time, valid for ever.
            let lifetimes = [0, u32::MAX, 0, 0].map(u32::to_ne_bytes).concat();
            message = message.attribute(libc::IFA_CACHEINFO, &lifetimes);
        }
        Ok(message)
    }

    /// Waits until the link carries packets. Before that the kernel drops what is sent, and a
    /// bridge leaves the port out.
    pub fn wait_until_it_carries(&self, name: &str) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(10);
        while self.link(name)?.1 != OPERATIONAL {
            if Instant::now() > deadline {
                return Err(self.failed(format!("wait until {name} carries"))(
                    io::ErrorKind::TimedOut.into(),
                ));
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        Ok(())
    }

    /// The number and the operational state of a link.
    fn link(&self, name: &str) -> Result<(u32, u8)> {
        let message = Message::new(libc::RTM_GETLINK, 0)
            .fixed(&link_header(0))
            .text(libc::IFLA_IFNAME, name);
        let answer = self
            .netlink()
            .request(message)
            .map_err(self.failed(format!("find {name}")))?;
        let index = answer
            .get(4..8)
            .and_then(|bytes| bytes.first_chunk())
            .map(|&bytes| u32::from_ne_bytes(bytes));
        let state = answer
            .get(16..)
            .and_then(|bytes| attribute(bytes, libc::IFLA_OPERSTATE)?.first().copied());
        let odd = || {
            self.failed(format!("find {name}"))(io::Error::other(
                "the kernel's answer is too short",
            ))
        };
        Ok((index.ok_or_else(odd)?, state.unwrap_or_default()))
    }

    /// A network, or an address as the network of itself.
    fn network(&self, text: &str) -> Result<IpNet> {
        let text = match text {
            "default" => "0.0.0.0/0",
            "default6" => "::/0",
            text => text,
        };
        let network = text
            .parse()
            .or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
        network.map_err(|_| {
            self.failed(format!("{text} is no network"))(io::ErrorKind::InvalidInput.into())
        })
    }

    fn request(&self, doing: String, message: Message) -> Result<()> {
        self.netlink()
            .request(message)
            .map(drop)
            .map_err(self.failed(doing))
    }

    /// Turns what the system said into an error of this host.
    pub fn failed(&self, doing: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        let (host, doing) = (self.name().to_owned(), doing.into());
        move |source| Error {
            host,
            doing,
            source,
        }
    }
}

fn link_header(flags: u32) -> [u8; 16] {
    let mut header = [0; 16];
    header[8..12].copy_from_slice(&flags.to_ne_bytes());
    header[12..].copy_from_slice(&flags.to_ne_bytes()); // which flags are meant
    header
}

fn family(address: IpAddr) -> u8 {
    (if address.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    }) as u8
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}
