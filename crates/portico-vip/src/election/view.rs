//! What there is to know of the host: the link and our own address on it. Kept up to date from what
//! the kernel tells.

use super::ready::readable;
use super::rtnetlink::{self, GROUP_LINK, GROUP_V4_ADDRESS, GROUP_V6_ADDRESS, Held, Link};
use portico_dataplane::netlink::{Message, Socket};
use std::io;
use std::net::IpAddr;
use tokio::io::unix::AsyncFd;

/// Something that the kernel told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Link {
        link: Link,
        present: bool,
    },
    Address {
        held: Held,
        present: bool,
    },
    /// So much happened that some of it was not told.
    Lost,
}

/// The link by its name, and whether our own address is on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct View {
    interface: String,
    own: IpAddr,
    link: Option<Link>,
    has_own: bool,
}

impl View {
    /// Nothing is there yet.
    pub(super) fn new(interface: &str, own: IpAddr) -> Self {
        Self {
            interface: interface.to_owned(),
            own,
            link: None,
            has_own: false,
        }
    }

    /// Asks the kernel.
    pub(super) fn read(&mut self, kernel: &mut Socket) -> io::Result<()> {
        self.link = match kernel.query(&rtnetlink::get_link(&self.interface), |message| {
            rtnetlink::link(&message)
        }) {
            Ok(links) => links
                .into_iter()
                .map(|(link, _)| link)
                .find(|link| link.name == self.interface),
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => None,
            Err(error) => return Err(error),
        };
        let addresses = kernel.query(&rtnetlink::get_addresses(self.own), |message| {
            rtnetlink::address(&message)
        })?;
        self.has_own = addresses
            .iter()
            .any(|(held, _)| self.is_own(held) && held.usable);
        Ok(())
    }

    /// Takes note; `true` if the kernel has to be asked, because this does not say everything.
    pub(super) fn apply(&mut self, event: &Event) -> bool {
        match event {
            Event::Lost => true,
            Event::Address { held, present } => {
                if self.is_own(held) {
                    self.has_own = *present && held.usable;
                }
                false
            }
            Event::Link {
                link,
                present: true,
            } if link.name == self.interface => {
                let is_other = self
                    .link
                    .as_ref()
                    .is_none_or(|known| known.index != link.index);
                self.link = Some(link.clone());
                is_other
            }
            Event::Link { link, .. } => {
                if self
                    .link
                    .as_ref()
                    .is_some_and(|known| known.index == link.index)
                {
                    (self.link, self.has_own) = (None, false);
                }
                false
            }
        }
    }

    /// The link, if we can take part through it; otherwise why not, for people.
    pub(super) fn usable(&self) -> Result<&Link, String> {
        match &self.link {
            None => Err(format!("there is no link {}", self.interface)),
            Some(link) if !link.running => {
                Err(format!("{} is down or has no carrier", self.interface))
            }
            Some(_) if !self.has_own => Err(format!("{} is not on {}", self.own, self.interface)),
            Some(link) => Ok(link),
        }
    }

    /// This is the link, or was until now.
    pub(super) fn concerns(&self, link: &Link) -> bool {
        link.name == self.interface
            || self
                .link
                .as_ref()
                .is_some_and(|known| known.index == link.index)
    }

    fn is_own(&self, held: &Held) -> bool {
        held.address == self.own
            && self
                .link
                .as_ref()
                .is_some_and(|link| link.index == held.link)
    }
}

/// Tells what happens to links and addresses. Belongs to the network namespace of the thread that
/// opened it.
pub(super) struct Watch(AsyncFd<Socket>);

impl Watch {
    /// From here on no change is missed, but for those that this port made. To be called in an
    /// async runtime.
    pub(super) fn open(except: u32) -> io::Result<Self> {
        let socket = Socket::open(libc::NETLINK_ROUTE)?;
        socket.ignore_sender(except)?;
        for group in [GROUP_LINK, GROUP_V4_ADDRESS, GROUP_V6_ADDRESS] {
            socket.join(group)?;
        }
        readable(socket).map(Watch)
    }

    /// What happened of all that is `wanted`. Nothing is lost if it is dropped half way.
    pub(super) async fn next(&mut self, wanted: impl Fn(&Event) -> bool) -> io::Result<Vec<Event>> {
        let mut ready = self.0.readable_mut().await?;
        let mut events = Vec::new();
        loop {
            let read = ready
                .get_inner_mut()
                .notifications(|message| events.extend(event(&message).filter(&wanted)));
            match read {
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                    events.push(Event::Lost)
                }
                read => {
                    ready.clear_ready();
                    return read.map(|()| events);
                }
            }
        }
    }
}

fn event(message: &Message) -> Option<Event> {
    let link = rtnetlink::link(message).map(|(link, present)| Event::Link { link, present });
    link.or_else(|| {
        rtnetlink::address(message).map(|(held, present)| Event::Address { held, present })
    })
}

#[cfg(test)]
mod tests;
