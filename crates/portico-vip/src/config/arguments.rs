//! What can be set, by flags and by a file: the same names, and a flag goes before the file.

use crate::forward::Mode;
use portico_model::duration;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

/// A duration as people write it: `500ms`, `1s`, `2m30s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Duration(pub std::time::Duration);

impl FromStr for Duration {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        duration::parse(text)
            .map(Duration)
            .ok_or_else(|| "write it like 500ms, 1s or 2m30s".to_owned())
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&duration::print(self.0))
    }
}

impl Serialize for Duration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse()
            .map_err(|hint| serde::de::Error::custom(format!("{text:?} is not a duration: {hint}")))
    }
}

/// Declares the settings once: a flag and a field of the file for each, and how two sets become
/// one.
macro_rules! settings {
    ($($(#[$attribute:meta])* $name:ident: $kind:ty,)*) => {
        /// What was set; what is `None` has a default.
        #[derive(Clone, Debug, Default, PartialEq, clap::Args, Serialize, Deserialize)]
        #[serde(rename_all = "camelCase", deny_unknown_fields)]
        pub struct Given {
            $($(#[$attribute])* #[serde(default, skip_serializing_if = "Option::is_none")] pub $name: Option<$kind>,)*
        }

        impl Given {
            /// These, and those of `other` where there is none.
            pub fn or(self, other: Given) -> Given {
                Given { $($name: self.$name.or(other.$name),)* }
            }
        }
    };
}

settings! {
    /// The virtual address; one of each family at most can be given (repeat it, or separate by
    /// commas).
    #[arg(long = "address", value_name = "IP", value_delimiter = ',')]
    addresses: Vec<IpAddr>,
    /// The port on which the API servers are reached there [default: 6443]
    #[arg(long)]
    port: u16,
    /// The link that has the address [default: the one whose network it is in]
    #[arg(long)]
    interface: String,
    /// Prefix length with which the address is added [default: that of the node's own in its
    /// network; 32, or 128 for IPv6]
    #[arg(long)]
    prefix: u8,
    /// The addresses of this node from which it speaks to the others [default: those on the
    /// interface]
    #[arg(long = "node-ip", value_name = "IP", value_delimiter = ',')]
    node_ips: Vec<IpAddr>,
    /// 1 to 255 [default: the last byte of the address plus one]
    #[arg(long)]
    virtual_router_id: u8,
    /// Version of VRRP: 2 or 3 [default: 3]
    #[arg(long)]
    vrrp_version: u8,
    /// The highest owns the address: 1 to 254 [default: 100]
    #[arg(long)]
    priority: u8,
    /// By how much the priority falls while the API server of this node is not ready [default: 50]
    #[arg(long)]
    priority_penalty: u8,
    /// Between two adverts of the owner; three of them missing are a take-over [default: 1s]
    #[arg(long, value_name = "DURATION")]
    interval: Duration,
    /// Take over from an owner with a lower priority [default: true]
    #[arg(long, num_args = 0..=1, default_missing_value = "true")]
    preempt: bool,
    /// For how long to wait before that [default: 0s]
    #[arg(long, value_name = "DURATION")]
    preempt_delay: Duration,
    /// The other nodes, for networks without multicast [default: none, multicast is used]
    #[arg(long = "unicast-peer", value_name = "IP", value_delimiter = ',')]
    unicast_peers: Vec<IpAddr>,
    /// The least hop limit of their adverts: 255, less one for each router on the way [default: 255,
    /// and with IPv6 any, since keepalived does not set it there]
    #[arg(long)]
    least_hop_limit: u8,
    /// A file with keys that adverts are signed with (HMAC-SHA256, as keepalived's auth_hmac): one a
    /// line, its number and `hex:` with 64 digits or more; the first one signs, all are accepted. It
    /// is read again when it changes [default: adverts are not signed]
    #[arg(long, value_name = "FILE")]
    auth_key_file: PathBuf,
    /// What is done with keys: `enforce` signs and drops what is not signed, `permissive` signs,
    /// `receive-only` only verifies what is signed [default: enforce]
    #[arg(long, value_enum)]
    auth_mode: AuthMode,
    /// How far the clocks of the nodes may differ, 1s to 5m [default: three intervals, at least 5s]
    #[arg(long, value_name = "DURATION")]
    auth_window: Duration,
    /// A file with the simple password that VRRP 2 can have, at most 8 bytes [default: none]
    #[arg(long, value_name = "FILE")]
    password_file: PathBuf,
    /// Own the address with the hardware address of the virtual router, on a link of its own
    /// [default: false]
    #[arg(long, num_args = 0..=1, default_missing_value = "true")]
    virtual_mac: bool,
    /// How often the address is announced after a take-over [default: 5]
    #[arg(long)]
    announcements: u32,
    /// How far apart [default: 200ms]
    #[arg(long, value_name = "DURATION")]
    announcement_gap: Duration,
    /// Announce it again so often while it is owned; 0s for never [default: 1m]
    #[arg(long, value_name = "DURATION")]
    announce_every: Duration,
    /// For how long after a take-over connections that the owner before has are sent there; 0s for
    /// not at all [default: 5m]
    #[arg(long, value_name = "DURATION")]
    relay_for: Duration,
    /// For how long one that was asked to stop goes on with its connections when another has the
    /// address [default: 3s]
    #[arg(long, value_name = "DURATION")]
    drain: Duration,
    /// How the address is forwarded to the API servers [default: auto]
    #[arg(long, value_enum)]
    forward: Mode,
    /// Where HAProxy listens on this node, in that mode [default: 16443]
    #[arg(long)]
    haproxy_port: u16,
    /// The HAProxy to run [default: haproxy]
    #[arg(long, value_name = "PATH")]
    haproxy: PathBuf,
    /// Where its configuration and its socket are [default: /run/portico/haproxy]
    #[arg(long, value_name = "DIRECTORY")]
    haproxy_dir: PathBuf,
    /// Do not run HAProxy: somebody else does, and takes a new configuration when this command is
    /// run
    #[arg(long, value_name = "COMMAND")]
    haproxy_reload_command: String,
    /// Where the node daemon of this node looks for static Services [default:
    /// /run/portico/services]
    #[arg(long, value_name = "DIRECTORY")]
    static_services: PathBuf,
    /// API servers that are there whatever is found (ADDRESS:PORT)
    #[arg(long = "api-server", value_name = "ADDRESS:PORT", value_delimiter = ',')]
    api_servers: Vec<SocketAddr>,
    /// Credentials to find the API servers with; without it they are only those that were given
    #[arg(long, value_name = "FILE")]
    kubeconfig: PathBuf,
    /// Who signed the certificates of the API servers [default: as in the kubeconfig, or
    /// /etc/kubernetes/pki/ca.crt]
    #[arg(long, value_name = "FILE")]
    ca_file: PathBuf,
    /// The name in their certificates [default: their address]
    #[arg(long, value_name = "NAME")]
    tls_server_name: String,
    /// Between two probes of an API server [default: 500ms]
    #[arg(long, value_name = "DURATION")]
    probe_interval: Duration,
    /// For its answer [default: 400ms]
    #[arg(long, value_name = "DURATION")]
    probe_timeout: Duration,
    /// Good probes until it is used again [default: 2]
    #[arg(long)]
    healthy_after: u32,
    /// Bad probes until it is not used any more [default: 1]
    #[arg(long)]
    unhealthy_after: u32,
    /// Between two looks at which API servers there are [default: 2s]
    #[arg(long, value_name = "DURATION")]
    discover_every: Duration,
    /// Between two looks at whether the rules are still there [default: 5s]
    #[arg(long, value_name = "DURATION")]
    check_every: Duration,
    /// Where status and metrics are served; none to serve none [default: 127.0.0.1:10246]
    #[arg(long, value_name = "ADDRESS:PORT")]
    status_address: StatusAddress,
    /// Where the API servers are remembered for a start at which none answers [default:
    /// /var/lib/portico/vip]
    #[arg(long, value_name = "DIRECTORY")]
    data_dir: PathBuf,
}

/// What is done with keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "a doc comment would become help text")]
pub enum AuthMode {
    Enforce,
    Permissive,
    ReceiveOnly,
}

impl From<AuthMode> for portico_vrrp::Mode {
    fn from(mode: AuthMode) -> Self {
        match mode {
            AuthMode::Enforce => Self::Enforce,
            AuthMode::Permissive => Self::Permissive,
            AuthMode::ReceiveOnly => Self::ReceiveOnly,
        }
    }
}

/// Where status is served, or that it is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusAddress(pub Option<SocketAddr>);

impl FromStr for StatusAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "none" => Ok(Self(None)),
            _ => text
                .parse()
                .map(|address| Self(Some(address)))
                .map_err(|_| "write it like 127.0.0.1:10246, or none".to_owned()),
        }
    }
}

impl Serialize for StatusAddress {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Some(address) => serializer.collect_str(&address),
            None => serializer.serialize_str("none"),
        }
    }
}

impl<'de> Deserialize<'de> for StatusAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse()
            .map_err(|hint| serde::de::Error::custom(format!("{text:?} is not an address: {hint}")))
    }
}
