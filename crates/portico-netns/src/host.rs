//! A host: a network namespace with a name, and the bed that hosts are made in.

use crate::Result;
use crate::namespace::Namespace;
use crate::netlink::Netlink;
use std::fs;
use std::io;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex};
use tokio::runtime::{Builder, Handle, Runtime};

/// What every host starts with: addresses that work at once, no routes from advertisements or
/// redirects, no limit on ICMP errors, and queues that hold a burst of test traffic.
const SETTINGS: &[(&str, &str)] = &[
    ("net/ipv6/conf/all/accept_dad", "0"),
    ("net/ipv6/conf/default/accept_dad", "0"),
    ("net/ipv6/conf/default/dad_transmits", "0"),
    ("net/ipv6/conf/default/accept_ra", "0"),
    ("net/ipv6/conf/all/accept_redirects", "0"),
    ("net/ipv6/conf/default/accept_redirects", "0"),
    ("net/ipv4/conf/all/accept_redirects", "0"),
    ("net/ipv4/conf/default/accept_redirects", "0"),
    ("net/ipv4/conf/all/send_redirects", "0"),
    ("net/ipv4/conf/default/send_redirects", "0"),
    ("net/ipv4/conf/all/rp_filter", "0"),
    ("net/ipv4/conf/default/rp_filter", "0"),
    ("net/bridge/bridge-nf-call-iptables", "0"),
    ("net/bridge/bridge-nf-call-ip6tables", "0"),
    ("net/bridge/bridge-nf-call-arptables", "0"),
    ("net/ipv4/icmp_ratelimit", "0"),
    ("net/ipv6/icmp/ratelimit", "0"),
    ("net/ipv4/icmp_msgs_per_sec", "100000"),
    ("net/ipv4/icmp_msgs_burst", "100000"),
    ("net/core/somaxconn", "4096"),
    ("net/ipv4/tcp_syncookies", "0"),
    ("net/ipv4/tcp_max_syn_backlog", "8192"),
];

/// Hosts, which live as long as their bed, and the thread that serves in all of them.
pub struct Testbed {
    hosts: Mutex<Vec<Host>>,
    servers: Option<Runtime>,
    handle: Handle,
}

impl Testbed {
    /// An empty testbed. Its hosts end with it.
    pub fn new() -> io::Result<Self> {
        let servers = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("testbed")
            .enable_all()
            .build()?;
        Ok(Self {
            hosts: Mutex::default(),
            handle: servers.handle().clone(),
            servers: Some(servers),
        })
    }

    /// A new host, alone in its namespace, with `lo` up.
    pub fn host(&self, name: &str) -> Result<Host> {
        let made = Namespace::new().and_then(|namespace| {
            let inside = namespace.enter()?;
            let netlink = Netlink::new(libc::NETLINK_ROUTE)?;
            for (setting, value) in SETTINGS {
                // Some are not in every kernel; a host without them is as good.
                let _ = fs::write(format!("/proc/sys/{setting}"), value);
            }
            drop(inside);
            Ok((namespace, netlink))
        });
        let (namespace, netlink) = made.map_err(|source| crate::Error {
            host: name.to_owned(),
            doing: "make the network namespace".to_owned(),
            source,
        })?;
        let host = Host(Arc::new(Inner {
            name: name.to_owned(),
            namespace,
            netlink,
            servers: self.handle.clone(),
        }));
        host.link_up("lo")?;
        if let Ok(mut hosts) = self.hosts.lock() {
            hosts.push(host.clone());
        }
        Ok(host)
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        if let Some(servers) = self.servers.take() {
            servers.shutdown_background();
        }
    }
}

/// A network namespace; clones are the same one.
#[derive(Clone)]
pub struct Host(Arc<Inner>);

struct Inner {
    name: String,
    namespace: Namespace,
    netlink: Netlink,
    servers: Handle,
}

impl Host {
    /// The name of the host, which is unique in its testbed.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Runs this on the calling thread while it is inside the host: sockets that it makes belong
    /// there for good, programs that it starts run there. Hosts can be entered from within others.
    pub fn enter<T>(&self, run: impl FnOnce() -> T) -> T {
        let _inside = self
            .0
            .namespace
            .enter()
            .expect("a namespace that is held open can be entered");
        run()
    }

    /// The namespace, for programs that want its file descriptor.
    pub fn namespace_fd(&self) -> RawFd {
        self.0.namespace.fd()
    }

    pub(crate) fn netlink(&self) -> &Netlink {
        &self.0.netlink
    }

    /// The runtime for servers inside the host.
    pub fn servers(&self) -> &Handle {
        &self.0.servers
    }
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
