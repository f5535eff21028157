//! From flags, a file and what is known of the machine to a [`Config`], once. After that no code
//! reads flags.

mod arguments;
#[cfg(test)]
mod tests;

pub use arguments::{AuthMode, Duration as Span, Given, StatusAddress};

use crate::access::Access;
use crate::election::Settings;
use crate::forward::{ForwardSettings, HaproxySettings, Mode};
use crate::servers::health::Thresholds;
use ipnet::IpNet;
use portico_vrrp::{Auth, Keys, Version};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

const API_VERSION: &str = "portico.dev/v1";
const KIND: &str = "VipConfiguration";
/// Where status is served on the loopback address.
pub const STATUS_PORT: u16 = 10246;
const PASSWORD_BYTES: usize = 8;
/// How far clocks may be allowed to differ, as keepalived has it.
const AUTH_WINDOW: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));
/// Longer than what is in flight takes to end.
pub const DRAIN: Duration = Duration::from_secs(3);

/// What the daemon is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// One for each family.
    pub elections: Vec<Settings>,
    /// Where the keys are that adverts are signed with.
    pub auth_key_file: Option<PathBuf>,
    /// The virtual addresses, at most one for each family.
    pub addresses: Vec<IpAddr>,
    /// The port of the API server at the virtual addresses.
    pub port: u16,
    /// Addresses of this machine: an API server with one of them is its own.
    pub own_addresses: Vec<IpAddr>,
    /// The priority of this node while its API server is healthy.
    pub priority: u8,
    /// What is taken from the priority while its API server is not.
    pub priority_penalty: u8,
    /// How long after a take-over the owner of before is sent its connections.
    pub relay_for: Duration,
    /// How long one that was asked to stop goes on with its own.
    pub drain: Duration,
    /// How connections to the virtual addresses are forwarded.
    pub forward: ForwardSettings,
    /// How often the rules are compared with what they should be.
    pub check_every: Duration,
    /// How API servers are found and probed.
    pub servers: Servers,
    /// Where status, metrics and health are served; `None` for nowhere.
    pub status: Option<SocketAddr>,
}

/// How API servers are found and asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Servers {
    /// Servers that are always there, whatever the API says.
    pub fixed: Vec<SocketAddr>,
    /// The credentials for API servers.
    pub access: Access,
    /// The file with the servers that were found last.
    pub remembered: PathBuf,
    /// The time between two probes of a server.
    pub interval: Duration,
    /// How long one probe may take.
    pub timeout: Duration,
    /// How many answers in a row change a server's health.
    pub thresholds: Thresholds,
    /// The time between two reads of the list of servers.
    pub rediscover: Duration,
}

/// What is known of the machine before anything is read: its links and their addresses.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// The name of each link, with an address and its prefix length.
    pub addresses: Vec<(String, IpNet)>,
}

#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says what its variant means")]
pub enum ConfigError {
    #[error("{field}: {problem}")]
    Field {
        field: &'static str,
        problem: String,
    },
    #[error("cannot read {}: {problem}", path.display())]
    File { path: PathBuf, problem: String },
}

fn wrong<T>(field: &'static str, problem: impl Into<String>) -> Result<T, ConfigError> {
    Err(ConfigError::Field {
        field,
        problem: problem.into(),
    })
}

/// The settings in a configuration file.
pub fn read_file(path: &Path) -> Result<Given, ConfigError> {
    let bad = |problem: String| ConfigError::File {
        path: path.to_owned(),
        problem,
    };
    let text = std::fs::read_to_string(path).map_err(|error| bad(error.to_string()))?;
    parse(&text).map_err(bad)
}

fn parse(text: &str) -> Result<Given, String> {
    let document: serde_json::Value =
        serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
    let serde_json::Value::Object(mut fields) = document else {
        return Err(format!("it is no {KIND}"));
    };
    for (field, expected) in [("apiVersion", API_VERSION), ("kind", KIND)] {
        match fields.remove(field) {
            Some(value) if value == expected => {}
            value => {
                return Err(format!(
                    "{field} must be {expected}, not {}",
                    value.unwrap_or_default()
                ));
            }
        }
    }
    serde_json::from_value(fields.into()).map_err(|error| error.to_string())
}

/// What was set, with defaults for the rest.
pub fn resolve(given: Given, surroundings: &Surroundings) -> Result<Config, ConfigError> {
    let addresses = given.addresses.clone().unwrap_or_default();
    if addresses.is_empty() {
        return wrong(
            "address",
            "give the virtual address, for example --address 172.16.64.58",
        );
    }
    let priority = given.priority.unwrap_or(100);
    let port = given.port.unwrap_or(6443);
    let elections = [true, false]
        .into_iter()
        .filter_map(|v4| {
            let family: Vec<IpAddr> = addresses
                .iter()
                .copied()
                .filter(|address| address.is_ipv4() == v4)
                .collect();
            (!family.is_empty()).then(|| election(&given, family, priority, surroundings))
        })
        .collect::<Result<Vec<_>, _>>()?;
    let span = |value: Option<Span>, default| value.map_or(default, |Span(value)| value);
    let interval = span(given.probe_interval, Duration::from_millis(500));
    if interval.is_zero() {
        return wrong("probeInterval", "it must be longer than 0s");
    }
    let mut own_addresses: Vec<IpAddr> = given.node_ips.clone().unwrap_or_default();
    own_addresses.extend(
        surroundings
            .addresses
            .iter()
            .map(|(_, network)| network.addr()),
    );
    own_addresses.retain(|address| !addresses.contains(address) && !address.is_loopback());
    let thresholds = Thresholds {
        healthy_after: given.healthy_after.unwrap_or(2),
        unhealthy_after: given.unhealthy_after.unwrap_or(1),
    };
    let timeout = span(given.probe_timeout, Duration::from_millis(400));
    let forward = ForwardSettings {
        haproxy: HaproxySettings {
            own_addresses: elections
                .iter()
                .map(|election| election.router.own)
                .collect(),
            check_interval: interval,
            check_timeout: timeout,
            healthy_after: thresholds.healthy_after,
            unhealthy_after: thresholds.unhealthy_after,
            ..haproxy(&given)
        },
        ..forward(&given)
    };
    Ok(Config {
        elections,
        auth_key_file: given.auth_key_file,
        own_addresses,
        priority,
        priority_penalty: given.priority_penalty.unwrap_or(50),
        relay_for: span(given.relay_for, Duration::from_secs(300)),
        drain: span(given.drain, DRAIN),
        forward,
        check_every: span(given.check_every, Duration::from_secs(5))
            .max(Duration::from_millis(100)),
        servers: Servers {
            fixed: given.api_servers.unwrap_or_default(),
            access: Access {
                kubeconfig: given.kubeconfig,
                ca: given.ca_file,
                server_name: given.tls_server_name,
            },
            remembered: given
                .data_dir
                .unwrap_or_else(|| "/var/lib/portico/vip".into())
                .join(format!("servers-{port}.json")),
            interval,
            timeout,
            thresholds,
            rediscover: span(given.discover_every, Duration::from_secs(2))
                .max(Duration::from_millis(100)),
        },
        status: given
            .status_address
            .unwrap_or(StatusAddress(Some(([127, 0, 0, 1], STATUS_PORT).into())))
            .0,
        addresses,
        port,
    })
}

fn forward(given: &Given) -> ForwardSettings {
    let default = ForwardSettings::default();
    ForwardSettings {
        mode: given.forward.unwrap_or(Mode::Auto),
        static_services: given
            .static_services
            .clone()
            .unwrap_or(default.static_services),
        ..default
    }
}

fn haproxy(given: &Given) -> HaproxySettings {
    let default = HaproxySettings::default();
    let words = |command: &String| command.split_whitespace().map(str::to_owned).collect();
    HaproxySettings {
        program: given.haproxy.clone().unwrap_or(default.program),
        folder: given.haproxy_dir.clone().unwrap_or(default.folder),
        port: given.haproxy_port.unwrap_or(default.port),
        ca_file: given.ca_file.clone(),
        reload: given.haproxy_reload_command.as_ref().map(words),
        ..default
    }
}

fn election(
    given: &Given,
    addresses: Vec<IpAddr>,
    priority: u8,
    around: &Surroundings,
) -> Result<Settings, ConfigError> {
    let Some(&first) = addresses.first() else {
        return wrong("address", "there is none");
    };
    let (interface, own) = place(given, first, &addresses, around)?;
    let version = match given.vrrp_version {
        None | Some(3) => Version::V3,
        Some(2) => Version::V2,
        Some(other) => {
            return wrong(
                "vrrpVersion",
                format!("{other} is no version of VRRP: 2 or 3"),
            );
        }
    };
    let span = |value: Option<Span>, default| value.map_or(default, |Span(value)| value);
    let peers = given.unicast_peers.iter().flatten().copied();
    let router = portico_vrrp::Config {
        version,
        vrid: match given.virtual_router_id {
            Some(vrid) => vrid,
            None => router_id(first)?,
        },
        own,
        priority,
        interval: span(given.interval, Duration::from_secs(1)),
        preempt: given.preempt.unwrap_or(true),
        preempt_delay: span(given.preempt_delay, Duration::ZERO),
        password: given
            .password_file
            .as_deref()
            .map(read_password)
            .transpose()?,
        least_hops: given
            .least_hop_limit
            .unwrap_or(portico_vrrp::Config::usual_least_hops(own)),
        // The list may be the same on all nodes.
        peers: peers
            .filter(|peer| peer.is_ipv4() == first.is_ipv4() && *peer != own)
            .collect(),
        addresses,
    };
    if let Err(unfit) = router.check() {
        return wrong(field_of(&unfit), unfit.to_string());
    }
    let auth = auth(given, router.sent_interval())?;
    if auth.is_some() && router.password.is_some() {
        return wrong(
            "passwordFile",
            "adverts that are signed have no password: give authKeyFile alone",
        );
    }
    let whole = if first.is_ipv4() { 32 } else { 128 };
    let prefix = given
        .prefix
        .unwrap_or_else(|| usual_prefix(first, own, &interface, around).unwrap_or(whole));
    if prefix > whole {
        return wrong(
            "prefix",
            format!("{prefix} is more than the {whole} bits of {first}"),
        );
    }
    let announce_every = span(given.announce_every, Duration::from_secs(60));
    Ok(Settings {
        router,
        auth,
        interface,
        prefix,
        announcements: given.announcements.unwrap_or(5),
        announcement_gap: span(given.announcement_gap, Duration::from_millis(200)),
        announce_every: (!announce_every.is_zero()).then_some(announce_every),
        virtual_mac: given.virtual_mac.unwrap_or(false),
    })
}

/// The prefix length of our own address, where it is in the same network: then the kernel takes
/// ours as the source of connections from this node to the virtual one, and they outlive its loss.
/// IPv6 takes the virtual one in any case.
fn usual_prefix(
    address: IpAddr,
    own: IpAddr,
    interface: &str,
    around: &Surroundings,
) -> Option<u8> {
    let mut ours = around
        .addresses
        .iter()
        .filter(|(link, network)| link == interface && network.addr() == own);
    ours.find(|(_, network)| own.is_ipv4() && network.contains(&address))
        .map(|(_, network)| network.prefix_len())
}

/// The last byte of the address plus one, so that clusters in one network do not meet.
fn router_id(address: IpAddr) -> Result<u8, ConfigError> {
    let last = match address {
        IpAddr::V4(address) => address.octets()[3],
        IpAddr::V6(address) => address.octets()[15],
    };
    match last.checked_add(1) {
        Some(id) => Ok(id),
        None => wrong(
            "address",
            format!(
                "{address} ends in 255, and the id of a virtual router is the last byte plus one and at most 255: \
                 take another address, or give --virtual-router-id"
            ),
        ),
    }
}

fn field_of(unfit: &portico_vrrp::router::Unfit) -> &'static str {
    use portico_vrrp::router::Unfit;
    match unfit {
        Unfit::Vrid => "virtualRouterId",
        Unfit::Priority(_) => "priority",
        Unfit::Addresses(_) | Unfit::Family { .. } => "address",
        Unfit::Version2 => "vrrpVersion",
        Unfit::Interval(_) => "interval",
        Unfit::Password => "passwordFile",
        Unfit::Peer(_) => "unicastPeers",
    }
}

/// The link, and our own address on it: as given, or the one in whose network the virtual address
/// is.
fn place(
    given: &Given,
    virtual_address: IpAddr,
    addresses: &[IpAddr],
    around: &Surroundings,
) -> Result<(String, IpAddr), ConfigError> {
    let same_family = |address: &IpAddr| address.is_ipv4() == virtual_address.is_ipv4();
    let own = given.node_ips.iter().flatten().copied().find(same_family);
    let candidates = around.addresses.iter().filter(|(link, network)| {
        given
            .interface
            .as_ref()
            .is_none_or(|interface| interface == link)
            && same_family(&network.addr())
            && !addresses.contains(&network.addr())
            && own.is_none_or(|own| own == network.addr())
    });
    // The nearest network; addresses that only count on the link are a last resort for IPv6, where
    // VRRP is sent from them.
    let near = |network: &IpNet| network.contains(&virtual_address);
    let found = candidates.max_by_key(|(_, network)| (near(network), network.prefix_len()));
    match (found, &given.interface, own) {
        (_, Some(interface), Some(own)) => Ok((interface.clone(), own)),
        (Some((link, network)), Some(_), None) => Ok((link.clone(), network.addr())),
        (Some((link, network)), None, _) if own.is_some() || near(network) => {
            Ok((link.clone(), network.addr()))
        }
        (None, Some(interface), None) => wrong(
            "interface",
            format!(
                "{interface} has no address of the family of {virtual_address} yet: give \
                 --node-ip to wait for it"
            ),
        ),
        (None, None, Some(own)) => wrong(
            "nodeIPs",
            format!("no link of this machine has {own}: give --interface to wait for it"),
        ),
        _ => wrong(
            "interface",
            format!(
                "no link of this machine is in the network of {virtual_address}: give --interface"
            ),
        ),
    }
}

fn auth(given: &Given, interval: Duration) -> Result<Option<Auth>, ConfigError> {
    let Some(path) = &given.auth_key_file else {
        return match (given.auth_mode, given.auth_window) {
            (None, None) => Ok(None),
            _ => wrong(
                "authKeyFile",
                "it is needed where authMode or authWindow are given",
            ),
        };
    };
    let window = match given.auth_window {
        None => Auth::usual_window(interval),
        Some(Span(window)) if (AUTH_WINDOW.0..=AUTH_WINDOW.1).contains(&window) => window,
        Some(window) => {
            return wrong(
                "authWindow",
                format!("{window} is too short or too long: 1s to 5m are possible"),
            );
        }
    };
    Ok(Some(Auth {
        keys: read_keys(path)?,
        mode: given.auth_mode.unwrap_or(AuthMode::Enforce).into(),
        window,
    }))
}

/// The keys in a file. What is wrong is told without what is in it.
pub fn read_keys(path: &Path) -> Result<Keys, ConfigError> {
    let bad = |problem: String| ConfigError::File {
        path: path.to_owned(),
        problem,
    };
    let text = std::fs::read_to_string(path).map_err(|error| bad(error.to_string()))?;
    Keys::parse(&text).map_err(|error| bad(error.to_string()))
}

fn read_password(path: &Path) -> Result<[u8; PASSWORD_BYTES], ConfigError> {
    let bad = |problem: String| ConfigError::File {
        path: path.to_owned(),
        problem,
    };
    let text = std::fs::read(path).map_err(|error| bad(error.to_string()))?;
    let text = text.trim_ascii_end();
    let mut password = [0; PASSWORD_BYTES];
    match password.get_mut(..text.len()) {
        Some(start) => start.copy_from_slice(text),
        None => {
            return Err(bad(format!(
                "a password of VRRP has at most {PASSWORD_BYTES} bytes"
            )));
        }
    }
    Ok(password)
}
