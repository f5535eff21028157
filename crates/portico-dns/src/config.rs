//! The flags of `portico dns`, and what they mean together.

use crate::facts::AddressKind;
use crate::index;
use crate::zone::names::{OriginError, host_name};
use crate::zone::{self, Origin};
use clap::{ArgAction, Args, ValueEnum};
use hickory_proto::rr::Name;
use ipnet::IpNet;
use portico_model::checks::{self, Range};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

const DNS_PORT: u16 = 53;
/// What the zone makes names in itself.
const OWN: [&str; 3] = ["svc", "lb", "node"];

#[derive(Args, Clone, Debug)]
#[command(rename_all = "kebab-case")]
#[expect(
    missing_docs,
    reason = "a doc comment would replace the help of the command"
)]
pub struct Arguments {
    /// The zone to answer for, such as `k8s.example.com`.
    #[arg(long, value_name = "NAME")]
    zone: String,
    /// Addresses to answer at, by UDP and TCP; the port is 53 if none is given [default: every
    /// address].
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',', value_parser = with_port)]
    listen: Vec<SocketAddr>,
    /// How to reach the API server [default: $KUBECONFIG, ~/.kube/config or the pod's own].
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Seconds that an answer may be kept.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(..=i64::from(i32::MAX)))]
    ttl: u32,
    /// Seconds that it may be remembered that there is nothing.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(..=i64::from(i32::MAX)))]
    negative_ttl: u32,
    /// A server of the zone, the primary first: `ns1.k8s.example.com=192.0.2.53`, once for each
    /// address; outside the zone without one [default: ns.ZONE with the addresses of --listen].
    #[arg(long, value_name = "NAME[=IP]", value_delimiter = ',', value_parser = server)]
    ns: Vec<(Name, Option<IpAddr>)>,
    /// Who answers for the zone: a mail address, with a dot for the @ or without [default:
    /// hostmaster.ZONE].
    #[arg(long, value_name = "MAIL")]
    hostmaster: Option<String>,
    /// Who may transfer the whole zone.
    #[arg(long, value_name = "IP|CIDR", value_delimiter = ',', value_parser = network)]
    allow_transfer: Vec<IpNet>,
    /// Keys (TSIG) of which a transfer has to be signed by one, as `tsig-keygen` prints them;
    /// without --allow-transfer from anywhere.
    #[arg(long, value_name = "FILE")]
    transfer_key_file: Option<PathBuf>,
    /// Who is told of changes [default: the single addresses of --allow-transfer].
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',', value_parser = with_port)]
    notify: Vec<SocketAddr>,
    /// Answers by UDP that a network (/24, /56) gets in a second; 0 is without a limit.
    #[arg(long, value_name = "COUNT", default_value_t = 1000)]
    rate_limit: u32,
    /// Connections by TCP at a time.
    #[arg(long, value_name = "COUNT", default_value_t = 256, value_parser = clap::value_parser!(u16).range(1..))]
    tcp_connections: u16,
    /// Where nodes say whether they are fit, unless they tell another port themselves.
    #[arg(long, value_name = "PORT", default_value_t = 10256, value_parser = clap::value_parser!(u16).range(1..))]
    node_healthz_port: u16,
    /// Time between two probes of a node.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = duration)]
    probe_interval: Duration,
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration)]
    probe_timeout: Duration,
    /// Good answers in a row after which a node is given again.
    #[arg(long, value_name = "COUNT", default_value_t = 2)]
    healthy_threshold: u32,
    /// Bad answers in a row after which it is no longer given.
    #[arg(long, value_name = "COUNT", default_value_t = 2)]
    unhealthy_threshold: u32,
    /// Probes in flight at a time.
    #[arg(long, value_name = "COUNT", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..))]
    probe_concurrency: u16,
    /// The addresses of nodes that are given: of each family those of the first kind that a node
    /// has.
    #[arg(
        long,
        value_name = "KINDS",
        value_delimiter = ',',
        default_value = "ExternalIP,InternalIP"
    )]
    node_addresses: Vec<Kind>,
    /// The addresses at which nodes are probed, likewise [default: the first that is given for a
    /// node].
    #[arg(long, value_name = "KINDS", value_delimiter = ',')]
    probe_addresses: Vec<Kind>,
    /// Which addresses of nodes may be probed: networks, and `cluster` for whatever address a Node
    /// has. Loopback, link-local and metadata addresses are only probed where a range of their own
    /// is listed.
    #[arg(
        long,
        value_name = "RANGES",
        default_value = "cluster",
        value_delimiter = ','
    )]
    health_check_ranges: Vec<Range>,
    /// Also give Services that are only there inside the cluster, with their cluster IPs.
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, require_equals = true,
        default_missing_value = "true", action = ArgAction::Set)]
    cluster_services: bool,
    /// Where metrics, readiness and the state of nodes are served; `none` is nowhere.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:10253")]
    metrics_bind_address: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    #[value(name = "ExternalIP")]
    External,
    #[value(name = "InternalIP")]
    Internal,
}

/// What is meant by the flags.
#[derive(Clone, Debug)]
pub struct Config {
    /// The kubeconfig; `None` for the pod's own credentials.
    pub kubeconfig: Option<PathBuf>,
    /// The addresses to answer on.
    pub listen: Vec<Listen>,
    /// The name of the zone, its name servers and its times.
    pub zone: zone::Settings,
    /// Which names there are.
    pub index: index::Settings,
    /// How the addresses of nodes are probed.
    pub checks: checks::Settings,
    /// In flight.
    pub most_probes: usize,
    /// How long one probe may take.
    pub probe_timeout: Duration,
    /// Clients that may transfer the zone.
    pub allow_transfer: Vec<IpNet>,
    /// The file with the keys of transfers; `None` where they need none.
    pub transfer_keys: Option<PathBuf>,
    /// Servers that are told of changes.
    pub notify: Vec<SocketAddr>,
    /// Answers a second to one network by UDP; 0 for no limit.
    pub rate_limit: u32,
    /// The most TCP connections at a time.
    pub tcp_connections: usize,
    /// Where metrics and health are served; `None` for nowhere.
    pub metrics: Option<SocketAddr>,
}

/// An address to answer on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listen {
    /// The address and port.
    pub address: SocketAddr,
    /// Go on without it where the machine does not have its family.
    pub optional: bool,
}

#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says what its variant means")]
pub enum ConfigError {
    #[error("--zone: {0}")]
    Zone(#[from] OriginError),
    #[error("--ns: {0} is in the zone and needs its address: --ns {0}=192.0.2.53")]
    NoAddress(String),
    #[error("--ns: {0} is outside the zone, its address has to be there and not here")]
    OutsideAddress(String),
    #[error("--ns: {0} is where Services and nodes have their names")]
    Taken(String),
    #[error("--hostmaster: {0} is not a mail address")]
    Hostmaster(String),
    #[error("--metrics-bind-address: {0} is neither an address with a port nor `none`")]
    Metrics(String),
    #[error("--probe-interval and --probe-timeout have to be longer than nothing")]
    Interval,
}

impl Arguments {
    /// Checks the flags, and fills in what they leave open.
    pub fn resolve(self) -> Result<Config, ConfigError> {
        let origin = Origin::new(&self.zone)?;
        let listen = listen(&self.listen);
        if self.probe_interval.is_zero() || self.probe_timeout.is_zero() {
            return Err(ConfigError::Interval);
        }
        let metrics = match self.metrics_bind_address.as_str() {
            "none" => None,
            text => Some(
                text.parse()
                    .map_err(|_| ConfigError::Metrics(text.to_owned()))?,
            ),
        };
        let single = self
            .allow_transfer
            .iter()
            .filter(|net| net.prefix_len() == net.max_prefix_len());
        let single = single
            .map(|net| SocketAddr::new(net.addr(), DNS_PORT))
            .collect();
        let kinds = |kinds: &[Kind]| kinds.iter().map(|kind| kind.meaning()).collect();
        Ok(Config {
            zone: zone::Settings {
                servers: servers(&origin, &self.ns, &listen)?,
                hostmaster: hostmaster(&origin, self.hostmaster.as_deref())?,
                ttl: self.ttl,
                negative_ttl: self.negative_ttl,
                origin: origin.clone(),
            },
            index: index::Settings {
                origin,
                given: kinds(&self.node_addresses),
                probed: kinds(&self.probe_addresses),
                ranges: self.health_check_ranges.into(),
                healthz_port: self.node_healthz_port,
                cluster_services: self.cluster_services,
            },
            checks: checks::Settings {
                interval: self.probe_interval,
                healthy_after: self.healthy_threshold,
                unhealthy_after: self.unhealthy_threshold,
            },
            most_probes: usize::from(self.probe_concurrency),
            kubeconfig: self.kubeconfig,
            listen,
            probe_timeout: self.probe_timeout,
            notify: if self.notify.is_empty() {
                single
            } else {
                self.notify
            },
            allow_transfer: self.allow_transfer,
            transfer_keys: self.transfer_key_file,
            rate_limit: self.rate_limit,
            tcp_connections: usize::from(self.tcp_connections),
            metrics,
        })
    }
}

impl Kind {
    fn meaning(self) -> AddressKind {
        match self {
            Self::External => AddressKind::External,
            Self::Internal => AddressKind::Internal,
        }
    }
}

fn listen(given: &[SocketAddr]) -> Vec<Listen> {
    if !given.is_empty() {
        return given
            .iter()
            .map(|address| Listen {
                address: *address,
                optional: false,
            })
            .collect();
    }
    let everywhere = [
        IpAddr::from(Ipv4Addr::UNSPECIFIED),
        Ipv6Addr::UNSPECIFIED.into(),
    ];
    everywhere
        .map(|ip| Listen {
            address: SocketAddr::new(ip, DNS_PORT),
            optional: ip.is_ipv6(),
        })
        .to_vec()
}

type Servers = Vec<(Name, Vec<IpAddr>)>;

fn servers(
    origin: &Origin,
    given: &[(Name, Option<IpAddr>)],
    listen: &[Listen],
) -> Result<Servers, ConfigError> {
    let mut servers: Servers = Vec::new();
    for (name, address) in given {
        let asked = origin.find(name);
        let last = asked
            .as_ref()
            .and_then(|asked| zone::names::labels(asked.key()).last());
        if last.is_some_and(|label| OWN.iter().any(|own| own.as_bytes() == label)) {
            return Err(ConfigError::Taken(name.to_ascii()));
        }
        match (asked.is_some(), address) {
            (true, None) => return Err(ConfigError::NoAddress(name.to_ascii())),
            (false, Some(_)) => return Err(ConfigError::OutsideAddress(name.to_ascii())),
            _ => {}
        }
        match servers.iter_mut().find(|(known, _)| known == name) {
            Some((_, addresses)) => addresses.extend(*address),
            None => servers.push((name.clone(), address.iter().copied().collect())),
        }
    }
    if servers.is_empty() {
        let addresses = listen
            .iter()
            .map(|listen| listen.address.ip())
            .filter(|ip| !ip.is_unspecified())
            .collect();
        servers.extend(
            origin
                .name()
                .prepend_label("ns")
                .ok()
                .map(|name| (name, addresses)),
        );
    }
    Ok(servers)
}

fn hostmaster(origin: &Origin, given: Option<&str>) -> Result<Name, ConfigError> {
    let text = given.map_or_else(
        || format!("hostmaster.{}", origin.name().to_ascii()),
        str::to_owned,
    );
    let bad = || ConfigError::Hostmaster(text.clone());
    let Some((user, domain)) = text.split_once('@') else {
        return host_name(&text).ok_or_else(bad);
    };
    // The user is one label, whatever dots it has.
    let domain = host_name(domain).ok_or_else(bad)?;
    domain.prepend_label(user.as_bytes()).map_err(|_| bad())
}

fn with_port(text: &str) -> Result<SocketAddr, String> {
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    let bad = |_| format!("{text} is not an IP address, with or without a port");
    text.parse()
        .or_else(|_| bare.parse().map(|ip| SocketAddr::new(ip, DNS_PORT)))
        .map_err(bad)
}

fn network(text: &str) -> Result<IpNet, String> {
    let bad = |_| format!("{text} is neither an IP address nor a CIDR");
    text.parse()
        .or_else(|_| text.parse::<IpAddr>().map(IpNet::from))
        .map_err(bad)
}

fn server(text: &str) -> Result<(Name, Option<IpAddr>), String> {
    let (name, address) = match text.split_once('=') {
        None => (text, None),
        Some((name, address)) => (
            name,
            Some(
                address
                    .parse()
                    .map_err(|_| format!("{address} is not an IP address"))?,
            ),
        ),
    };
    Ok((
        host_name(name).ok_or_else(|| format!("{name} is not the name of a server"))?,
        address,
    ))
}

fn duration(text: &str) -> Result<Duration, String> {
    portico_model::duration::parse(text)
        .ok_or_else(|| format!("{text} is not a duration such as 5s or 500ms"))
}

#[cfg(test)]
mod tests;
