//! What was found, without an opinion. Everything that [`super::judge`] needs and nothing that has
//! to be asked.

pub(super) use super::programs::{Program, Role};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Which way the node forwards, or will.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Mode {
    #[default]
    Nftables,
    Iptables,
    Ipvs,
}

impl Mode {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Nftables => "nftables",
            Self::Iptables => "iptables",
            Self::Ipvs => "ipvs",
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    pub mode: Mode,
    pub node_ports: (u16, u16),
    pub machine: Option<Machine>,
    /// What `portico vip` on this machine says, or why it could not be asked; nothing where it does
    /// not run.
    pub vip: Option<Result<portico_vip::status::Status, String>>,
    /// Or why it could not be asked.
    pub cluster: Option<Result<Cluster, String>>,
}

/// What became of trying something.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Tried {
    #[default]
    Works,
    Fails(String),
    /// It was not tried, and why.
    Unknown(String),
}

/// This machine, as far as forwarding depends on it.
#[derive(Clone, Debug, Default)]
pub(super) struct Machine {
    pub nftables: Tried,
    pub iptables: Tried,
    pub ipvs: Tried,
    pub conntrack: Tried,
    /// By their names with dots; what the kernel does not have is missing.
    pub settings: BTreeMap<String, String>,
    pub cores: usize,
    /// Programs in this network namespace.
    pub programs: Vec<Program>,
    pub rules: Rules,
    /// What happens to packets that pass through and no rule of iptables is for.
    pub forward_policy: Option<String>,
    pub links: Vec<Link>,
    /// Where packets go that no other route is for.
    pub default_link: Option<String>,
    pub disk: Option<Disk>,
}

/// The programs whose rules are installed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Rules {
    pub portico_nftables: bool,
    pub kube_proxy_nftables: bool,
    /// kube-proxy's, or ours in that mode: the chains are the same.
    pub iptables: bool,
    pub ipvs: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Link {
    pub name: String,
    /// `bridge`, `vxlan`, …; empty for hardware.
    pub kind: String,
    pub mtu: u32,
    pub up: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Disk {
    pub path: String,
    pub free: u64,
    pub read_only: bool,
}

/// The cluster, as far as it can be seen from here.
#[derive(Clone, Debug, Default)]
pub(super) struct Cluster {
    /// By how many seconds the API server's clock is ahead of ours.
    pub ahead: Option<i64>,
    pub nodes: Vec<Node>,
}

#[derive(Clone, Debug)]
pub(super) struct Node {
    pub name: String,
    pub healthz: Option<SocketAddr>,
    /// The code of its answer, or why there is none.
    pub answer: Result<u16, String>,
    /// Whether it has told what it serves, within the time that it has for that; or why that cannot
    /// be known.
    pub reports: Result<bool, String>,
    pub trouble: String,
}
