//! The virtual addresses on a link of this host: putting them there, for a time, and taking them
//! off.

use super::rtnetlink;
use portico_dataplane::netlink::{Messages, Socket};
use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// The time limit for what takes a tenth of a millisecond on a host that has nothing else to do.
/// The others wait for our advert meanwhile.
const LONGEST_WAIT: Duration = Duration::from_millis(50);

/// Takes the addresses off when it is dropped. Belongs to the network namespace of the thread that
/// opened it.
pub(super) struct Hold {
    kernel: Socket,
    addresses: Vec<IpAddr>,
    prefix: u8,
    /// The link that has them or is to have them.
    link: Option<u32>,
    held: bool,
}

impl Hold {
    pub(super) fn open(addresses: Vec<IpAddr>, prefix: u8) -> io::Result<Self> {
        Ok(Self {
            kernel: Socket::open(libc::NETLINK_ROUTE)?,
            addresses,
            prefix,
            link: None,
            held: false,
        })
    }

    /// The port by which the kernel names this socket in notifications.
    pub(super) fn port(&self) -> u32 {
        self.kernel.port()
    }

    pub(super) fn link(&self) -> Option<u32> {
        self.link
    }

    /// Where the addresses go from now on; from where they are they are taken off.
    pub(super) fn place(&mut self, link: Option<u32>) {
        if self.link != link {
            self.give_up();
            self.link = link;
        }
    }

    /// Takes off what an earlier process left on this link, and returns the addresses that another
    /// program added, which stay: they have neither a lifetime nor our protocol number. Fails if we
    /// may not change addresses at all.
    pub(super) fn clean(&mut self, link: u32) -> io::Result<Vec<IpAddr>> {
        let Some(&first) = self.addresses.first() else {
            return Ok(Vec::new());
        };
        let all = self
            .kernel
            .query(&rtnetlink::get_addresses(first), |message| {
                rtnetlink::address(&message)
            })?;
        let (mut request, mut foreign) = (Messages::new(), Vec::new());
        for (held, _) in all {
            match held.link == link && self.addresses.contains(&held.address) {
                true if held.ours => {
                    rtnetlink::drop_address(&mut request, link, (held.address, held.prefix))
                }
                true => foreign.push(held.address),
                false => {}
            }
        }
        for &address in self
            .addresses
            .iter()
            .filter(|address| !foreign.contains(address))
        {
            rtnetlink::drop_address(&mut request, link, (address, self.prefix));
        }
        drop_all(&mut self.kernel, &request)?;
        Ok(foreign)
    }

    /// The kernel takes them off by itself after `lifetime`, unless this comes again.
    pub(super) fn take(&mut self, lifetime: Duration) -> io::Result<()> {
        let link = self.link.ok_or(io::ErrorKind::NotFound)?;
        let mut request = Messages::new();
        for &address in &self.addresses {
            rtnetlink::hold_address(&mut request, link, (address, self.prefix), lifetime);
        }
        let is_new = !std::mem::replace(&mut self.held, true);
        self.kernel.exchange(&request)?.into_result()?;
        if is_new {
            self.wait_until_they_answer(link);
        }
        Ok(())
    }

    /// An IPv6 address is there at once, but what comes to it is taken for ours only when a worker
    /// of the kernel has been there. A host that is told too early that we have it would send
    /// packets that are dropped.
    fn wait_until_they_answer(&mut self, link: u32) {
        let deadline = Instant::now() + LONGEST_WAIT;
        for &address in self.addresses.iter().filter(|address| address.is_ipv6()) {
            let request = rtnetlink::get_route(link, address);
            let is_local = |kernel: &mut Socket| {
                kernel.query(&request, |message| rtnetlink::is_local(&message))
            };
            // Until it is, there may be no way at all.
            while !is_local(&mut self.kernel).is_ok_and(|found| found == [true])
                && Instant::now() < deadline
            {
                std::thread::sleep(Duration::from_micros(50));
            }
        }
    }

    /// An error is for people only: the kernel will take them off.
    pub(super) fn give_up(&mut self) {
        if let Err(error) = self.try_give_up() {
            tracing::error!(%error, addresses = ?self.addresses, "the addresses could not be taken off; the kernel will do it");
        }
    }

    fn try_give_up(&mut self) -> io::Result<()> {
        let Some(link) = self.link.filter(|_| self.held) else {
            return Ok(());
        };
        let mut request = Messages::new();
        for &address in &self.addresses {
            rtnetlink::drop_address(&mut request, link, (address, self.prefix));
        }
        drop_all(&mut self.kernel, &request)?;
        self.held = false;
        Ok(())
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.give_up();
    }
}

/// What is not there, or on a link that is not there any more, is gone as wanted.
fn drop_all(kernel: &mut Socket, request: &Messages) -> io::Result<()> {
    if request.is_empty() {
        return Ok(());
    }
    let mut replies = kernel.exchange(request)?;
    let gone = |error: &io::Error| {
        matches!(
            error.raw_os_error(),
            Some(libc::EADDRNOTAVAIL | libc::ENODEV)
        )
    };
    replies.refused.retain(|refusal| !gone(&refusal.error));
    replies.into_result().map(drop)
}
