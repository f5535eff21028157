//! Looks at this machine. What can be tried is tried, in a network namespace of its own, so that
//! nothing here changes.

use super::facts::{Disk, Link, Machine, Rules, Tried};
use super::programs;
use portico_dataplane::netlink::{Messages, Socket, flags};
use portico_dataplane::nftables::{Nftables, Table};
use portico_dataplane::{ApplyError, Dataplane, iptables, ipvs, nftables};
use portico_model::index::{DetectLocal, Index, NodePortSetting, Settings};
use portico_model::table::Family;
use portico_netns::Testbed;
use portico_node::sysctl;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::{fs, io};

const SETTINGS: &[&str] = &[
    "net.ipv4.ip_forward",
    "net.ipv6.conf.all.forwarding",
    "net.ipv4.conf.all.rp_filter",
    "net.ipv4.conf.all.route_localnet",
    "net.bridge.bridge-nf-call-iptables",
    "net.netfilter.nf_conntrack_max",
    "net.netfilter.nf_conntrack_count",
    "net.netfilter.nf_conntrack_tcp_be_liberal",
    "net.core.somaxconn",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
];

/// The folder of the data directory where `portico node` keeps the last known objects.
const NODE_FOLDER: &str = "node";

pub(super) fn machine(data_dir: &Path) -> Machine {
    let [nftables, iptables, ipvs, conntrack] = tries();
    Machine {
        nftables,
        iptables,
        ipvs,
        conntrack,
        settings: settings(),
        cores: sysctl::cores(),
        programs: programs::running(),
        rules: rules(),
        forward_policy: forward_policy(),
        links: links().unwrap_or_default(),
        default_link: default_link(),
        disk: disk(data_dir),
    }
}

/// nftables, iptables, IPVS and the connection tracker, each used as `portico node` uses it.
fn tries() -> [Tried; 4] {
    let bed = Testbed::new().map_err(|error| error.to_string());
    let host = bed.as_ref().map_err(String::clone).and_then(|bed| {
        bed.host("doctor")
            .map_err(|error| format!("{error}: {}", error.source))
    });
    match host {
        Err(problem) => [(); 4].map(|()| Tried::Unknown(problem.clone())),
        Ok(host) => host.enter(|| {
            [
                tried(|| install(Nftables::open(Table::NODE)?)),
                tried(|| {
                    install(iptables::Iptables::new(iptables::Options {
                        variant: None,
                        liberal: false,
                    })?)
                }),
                tried(|| install(ipvs::Ipvs::open(&ipvs::Options::default())?)),
                tried(|| {
                    track().map_err(|source| ApplyError::Kernel {
                        doing: "listing flows".to_owned(),
                        source,
                    })
                }),
            ]
        }),
    }
}

fn tried(what: impl FnOnce() -> Result<(), ApplyError>) -> Tried {
    match what() {
        Ok(()) => Tried::Works,
        Err(error) => Tried::Fails(
            error
                .to_string()
                .lines()
                .next()
                .unwrap_or_default()
                .to_owned(),
        ),
    }
}

/// The rules that are there whatever Services there are.
fn install(mut dataplane: impl Dataplane) -> Result<(), ApplyError> {
    let settings = Settings {
        node_name: "doctor".into(),
        own_address: None,
        detect_local: DetectLocal::NodeCidr,
        node_ports: NodePortSetting::Primary,
        masquerade_all: false,
        masquerade_mark: 1 << 14,
        external_ips: true,
        load_balancer_ip_mode: true,
    };
    let mut index = Index::new(settings);
    index.take();
    dataplane.replace(index.table())?;
    dataplane.remove()
}

fn track() -> io::Result<()> {
    portico_dataplane::conntrack::Conntrack::open()?
        .translated()
        .map(drop)
}

fn settings() -> BTreeMap<String, String> {
    let read = |name: &&str| {
        let value = fs::read_to_string(format!("/proc/sys/{}", name.replace('.', "/"))).ok()?;
        Some(((**name).to_owned(), value.trim().to_owned()))
    };
    SETTINGS.iter().filter_map(read).collect()
}

fn rules() -> Rules {
    let table = |name: &str| {
        Family::BOTH
            .into_iter()
            .any(|family| nftables::has_table(family, name).unwrap_or(false))
    };
    Rules {
        portico_nftables: table("portico"),
        kube_proxy_nftables: table("kube-proxy"),
        iptables: iptables::present(),
        ipvs: ipvs::present(),
    }
}

/// Nothing where there is no iptables, or no table of its. Saving makes none, unlike listing.
fn forward_policy() -> Option<String> {
    let output = Command::new("iptables-save")
        .args(["-t", "filter"])
        .stdin(Stdio::null())
        .output()
        .ok()?;
    policy(&String::from_utf8_lossy(&output.stdout))
}

fn policy(rules: &str) -> Option<String> {
    let line = rules
        .lines()
        .find_map(|line| line.strip_prefix(":FORWARD "))?;
    line.split_whitespace().next().map(str::to_owned)
}

fn links() -> io::Result<Vec<Link>> {
    const HEADER: usize = 16;
    let mut request = Messages::new();
    request.message(libc::RTM_GETLINK, flags::DUMP, |m| m.raw(&[0; HEADER]));
    Socket::open(libc::NETLINK_ROUTE)?.query(&request, |message| {
        let attribute = |kind| message.attributes(HEADER).find_kind(kind);
        let about = attribute(libc::IFLA_LINKINFO)
            .and_then(|about| about.nested().find_kind(libc::IFLA_INFO_KIND));
        let flags = portico_dataplane::link::chunk::<4>(message.payload, 8)
            .map(u32::from_ne_bytes)
            .unwrap_or_default();
        Some(Link {
            name: attribute(libc::IFLA_IFNAME)?.text()?.to_owned(),
            kind: about
                .and_then(|kind| kind.text().map(str::to_owned))
                .unwrap_or_default(),
            mtu: attribute(libc::IFLA_MTU)?.u32()?,
            up: flags & 1 != 0,
        })
    })
}

fn default_link() -> Option<String> {
    route(&fs::read_to_string("/proc/thread-self/net/route").ok()?)
}

/// The link of the route to everywhere.
fn route(table: &str) -> Option<String> {
    let mut lines = table
        .lines()
        .skip(1)
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    lines
        .find(|words| words.get(1) == Some(&"00000000") && words.get(7) == Some(&"00000000"))
        .map(|words| words[0].to_owned())
}

/// The disk that the node's folder is on, or will be. In a pod that alone may be mounted for
/// writing, and the folder around it belongs to the image.
fn disk(data_dir: &Path) -> Option<Disk> {
    let own = data_dir.join(NODE_FOLDER);
    let folder = match own.exists() {
        true => own.as_path(),
        false => data_dir,
    };
    let there = folder.ancestors().find(|path| path.exists())?;
    let output = Command::new("stat")
        .args(["-f", "-c", "%a %S"])
        .arg(there)
        .stdin(Stdio::null())
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut numbers = text
        .split_whitespace()
        .filter_map(|number| number.parse::<u64>().ok());
    let free = numbers.next()?.saturating_mul(numbers.next()?);
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    Some(Disk {
        path: folder.display().to_string(),
        free,
        read_only: is_read_only(&mounts, there),
    })
}

/// Whether the innermost mount that has the path says so.
fn is_read_only(mounts: &str, path: &Path) -> bool {
    let lines = mounts
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    let holding = lines.filter(|words| words.get(1).is_some_and(|at| path.starts_with(at)));
    let innermost = holding.max_by_key(|words| words[1].len());
    innermost.is_some_and(|words| {
        words
            .get(3)
            .is_some_and(|options| options.split(',').any(|option| option == "ro"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_kernel_are_read() {
        assert_eq!(
            policy(
                "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD DROP [12:700]\n-A FORWARD -j DOCKER-USER\n"
            )
            .as_deref(),
            Some("DROP")
        );
        let table = "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU\neth1 0000FEA9 0 1 0 \
                     0 0 0000FFFF 0\neth0 00000000 0102 3 0 0 0 00000000 0\n";
        assert_eq!(route(table).as_deref(), Some("eth0"));
        let mounts = "/dev/a / ext4 ro,x 0 0\n/dev/b /var ext4 rw 0 0\n";
        assert!(
            !is_read_only(mounts, Path::new("/var/lib")) && is_read_only(mounts, Path::new("/etc"))
        );
    }

    #[test]
    fn every_machine_has_a_loopback() {
        assert!(
            links()
                .unwrap()
                .iter()
                .any(|link| link.name == "lo" && link.mtu > 0)
        );
    }
}
