//! What the fields of the configuration mean.

use super::document::Document;
use super::{
    API_VERSION, Announce, ApiAccess, Arguments, Config, DataDir, Ipvs, KIND, Logging, Mode,
    Surroundings,
};
use crate::sysctl;
use ipnet::IpNet;
use portico_model::index::{DetectLocal, NodePortSetting, Settings};
use portico_model::static_services;
use serde_json::Value;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

const DEFAULT_DATA_DIR: &str = "/var/lib/portico/node";
const HEALTHZ_PORT: u16 = 10256;
const METRICS_PORT: u16 = 10249;
const ANNOUNCE_PORT: u16 = 10262;
const SYNC_PERIOD: Duration = Duration::from_secs(30);
const HOUR: Duration = Duration::from_secs(3600);

/// What is wrong is kept in the document; what comes back is of use only if nothing is.
pub(super) fn read(
    document: &mut Document,
    arguments: &Arguments,
    file: bool,
    surroundings: &Surroundings,
) -> Config {
    document.text("apiVersion", API_VERSION);
    document.text("kind", KIND);
    let mode = mode(document);
    let own_address = own_address(document);
    // What is wrong with the section of another mode is no reason not to start; kube-proxy looks at
    // that of iptables always.
    let nftables = document.leniently(mode != Mode::Nftables, |document| {
        section(document, Mode::Nftables)
    });
    let iptables = section(document, Mode::Iptables);
    let (ipvs, ipvs_period) = document.leniently(mode != Mode::Ipvs, ipvs);
    let section = match mode {
        Mode::Nftables => nftables,
        Mode::Iptables => iptables,
        // As with kube-proxy, whose own section says nothing about masquerading.
        Mode::Ipvs => Section {
            sync_period: ipvs_period,
            ..iptables
        },
    };
    let kubeconfig = document.text("clientConnection.kubeconfig", "");
    let (wildcard, localhost): (IpAddr, IpAddr) = match own_address {
        IpAddr::V4(_) => (Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(_) => (Ipv6Addr::UNSPECIFIED.into(), Ipv6Addr::LOCALHOST.into()),
    };
    let settings = Settings {
        node_name: node_name(document, surroundings).into(),
        own_address: Some(own_address).filter(|address| !address.is_unspecified()),
        detect_local: detect_local(document),
        node_ports: node_ports(document, mode, file),
        masquerade_all: section.masquerade_all,
        masquerade_mark: section.masquerade_mark,
        external_ips: document.switch("featureGates.AllowServiceExternalIPs", true),
        load_balancer_ip_mode: load_balancer_ip_mode(document),
    };
    Config {
        mode,
        sysctls: sysctls(document, &settings.node_ports),
        settings,
        ipvs,
        api: ApiAccess {
            kubeconfig: Some(kubeconfig)
                .filter(|path| !path.is_empty())
                .map(PathBuf::from),
            server: arguments
                .text("master")
                .filter(|url| !url.is_empty())
                .map(str::to_owned),
        },
        healthz: listen(
            document,
            arguments,
            "healthz",
            SocketAddr::new(wildcard, HEALTHZ_PORT),
            file,
        ),
        metrics: listen(
            document,
            arguments,
            "metrics",
            SocketAddr::new(localhost, METRICS_PORT),
            file,
        ),
        bind_hard_fail: document.switch("bindAddressHardFail", false),
        sync_period: section.sync_period,
        oom_score_adj: i32::try_from(document.number("oomScoreAdj", -1000..=1000, -999))
            .unwrap_or_default(),
        data_dir: match arguments.text("data-dir") {
            None => DataDir::Default(DEFAULT_DATA_DIR.into()),
            Some("") => DataDir::None,
            Some(path) => DataDir::Given(path.into()),
        },
        static_services: match arguments
            .text("static-services")
            .unwrap_or(static_services::FOLDER)
        {
            "" => None,
            path => Some(path.into()),
        },
        announce: announce(document, arguments),
        edge: edge(document, arguments),
        count_connections: arguments.switch("count-connections"),
        logging: logging(document),
        file: None,
        resolved: Value::Null,
    }
}

/// A file without a mode was written for a kube-proxy that uses iptables then. What it says of
/// masquerading and of how often to compare is meant all the same. Says whether there was anything.
pub(super) fn adopt_iptables(document: &mut Document) -> bool {
    const FIELDS: [&str; 3] = ["masqueradeAll", "masqueradeBit", "syncPeriod"];
    let [from, to] =
        ["iptables", "nftables"].map(|section| FIELDS.map(|field| format!("{section}.{field}")));
    if to.iter().any(|field| document.says(field)) {
        return false;
    }
    // Zero is a bit like any other.
    let is_meant =
        |from: &String| document.says(from) || (from.ends_with("Bit") && document.has(from));
    let said: Vec<_> = from
        .iter()
        .zip(&to)
        .filter(|(from, _)| is_meant(from))
        .collect();
    said.iter().for_each(|(from, to)| document.copy(from, to));
    !said.is_empty()
}

fn mode(document: &mut Document) -> Mode {
    match document.text("mode", Mode::Nftables.name()).as_str() {
        "nftables" => return Mode::Nftables,
        "iptables" => return Mode::Iptables,
        "ipvs" => return Mode::Ipvs,
        other => document.problem(
            "mode",
            format!("{other:?} is not known; use nftables, iptables or ipvs"),
        ),
    }
    Mode::Nftables
}

/// The section of a mode.
struct Section {
    masquerade_all: bool,
    masquerade_mark: u32,
    sync_period: Duration,
}

fn section(document: &mut Document, mode: Mode) -> Section {
    let path = |field: &str| format!("{}.{field}", mode.name());
    let bit = document.number(&path("masqueradeBit"), 0..=31, 14);
    Section {
        masquerade_all: document.switch(&path("masqueradeAll"), false),
        masquerade_mark: 1 << bit,
        sync_period: document.period(&path("syncPeriod"), SYNC_PERIOD),
    }
}

/// What the kernel may have as modules `ip_vs_…`.
const SCHEDULERS: [&str; 14] = [
    "rr", "wrr", "lc", "wlc", "sh", "dh", "sed", "nq", "mh", "lblc", "lblcr", "fo", "ovf", "twos",
];

/// The section of ipvs mode, and how often it is compared.
fn ipvs(document: &mut Document) -> (Ipvs, Duration) {
    let scheduler = document.text("ipvs.scheduler", "rr");
    if !SCHEDULERS.contains(&scheduler.as_str()) {
        document.problem(
            "ipvs.scheduler",
            format!(
                "{scheduler:?} is not known; use one of {}",
                SCHEDULERS.join(", ")
            ),
        );
    }
    let excluded = document.list("ipvs.excludeCIDRs");
    let texts: Vec<&str> = excluded.iter().map(String::as_str).collect();
    let ipvs = Ipvs {
        scheduler,
        excluded: networks(document, "ipvs.excludeCIDRs", &texts),
        strict_arp: document.switch("ipvs.strictARP", false),
        tcp_timeout: document.duration("ipvs.tcpTimeout", Duration::ZERO),
        tcp_fin_timeout: document.duration("ipvs.tcpFinTimeout", Duration::ZERO),
        udp_timeout: document.duration("ipvs.udpTimeout", Duration::ZERO),
    };
    (ipvs, document.period("ipvs.syncPeriod", SYNC_PERIOD))
}

fn own_address(document: &mut Document) -> IpAddr {
    let text = document.text("bindAddress", "0.0.0.0");
    text.parse().unwrap_or_else(|_| {
        document.problem("bindAddress", format!("{text:?} is not an IP address"));
        Ipv4Addr::UNSPECIFIED.into()
    })
}

/// `--healthz-port` and `--metrics-port` are older than the addresses; they count only without a
/// file.
fn listen(
    document: &mut Document,
    arguments: &Arguments,
    what: &str,
    mut default: SocketAddr,
    file: bool,
) -> Option<SocketAddr> {
    let (field, flag) = (format!("{what}BindAddress"), format!("{what}-port"));
    if let Some(text) = arguments.text(&flag).filter(|_| !file) {
        match text.parse() {
            Ok(port) => default.set_port(port),
            Err(_) => document.problem(&field, format!("--{flag}={text} is not a port")),
        }
    }
    document
        .socket(&field, default, !file)
        .filter(|_| default.port() != 0)
}

fn node_name(document: &mut Document, surroundings: &Surroundings) -> String {
    let given = document.text("hostnameOverride", "");
    let from_environment = surroundings.node_name.as_deref().unwrap_or_default();
    let candidates = [
        given.trim(),
        from_environment.trim(),
        surroundings.hostname.trim(),
    ];
    let name = candidates.into_iter().find(|name| !name.is_empty());
    if name.is_none() {
        document.problem(
            "hostnameOverride",
            "this machine has no hostname: give the name of its Node",
        );
    }
    name.unwrap_or_default().to_lowercase()
}

fn detect_local(document: &mut Document) -> DetectLocal {
    let cluster = document.text("clusterCIDR", "");
    let bridge = document.text("detectLocal.bridgeInterface", "");
    let prefix = document.text("detectLocal.interfaceNamePrefix", "");
    match document.text("detectLocalMode", "ClusterCIDR").as_str() {
        "NodeCIDR" => DetectLocal::NodeCidr,
        "BridgeInterface" => {
            DetectLocal::Bridge(required(document, "detectLocal.bridgeInterface", bridge))
        }
        "InterfaceNamePrefix" => DetectLocal::InterfacePrefix(required(
            document,
            "detectLocal.interfaceNamePrefix",
            prefix,
        )),
        "ClusterCIDR" => DetectLocal::ClusterCidr(cluster_networks(document, &cluster)),
        other => {
            let known = "ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix";
            document.problem(
                "detectLocalMode",
                format!("{other:?} is not known; use {known}"),
            );
            DetectLocal::NodeCidr
        }
    }
}

fn required(document: &mut Document, path: &str, name: String) -> Arc<str> {
    if name.is_empty() {
        document.problem(path, "must be given with this detectLocalMode");
    }
    name.into()
}

/// One network, or one of each family.
fn cluster_networks(document: &mut Document, text: &str) -> Vec<IpNet> {
    let texts: Vec<&str> = text
        .split(',')
        .map(str::trim)
        .filter(|text| !text.is_empty())
        .collect();
    let networks = networks(document, "clusterCIDR", &texts);
    let v4 = networks
        .iter()
        .filter(|network| network.addr().is_ipv4())
        .count();
    if v4 > 1 || networks.len() - v4 > 1 {
        document.problem(
            "clusterCIDR",
            format!("{text:?} must be one network, or one of IPv4 and one of IPv6"),
        );
    }
    networks
}

fn networks(document: &mut Document, path: &str, texts: &[&str]) -> Vec<IpNet> {
    let mut networks = Vec::new();
    for text in texts {
        match text.parse::<IpNet>() {
            Ok(network) => networks.push(network.trunc()),
            Err(_) => document.problem(
                path,
                format!("{text:?} is not a network: write it like 10.244.0.0/16"),
            ),
        }
    }
    networks
}

/// Where nothing is given the default follows the mode. A file was written for kube-proxy, whose
/// default in nftables mode is the primary address. Otherwise a public Service answers at every
/// address that the Node has.
fn node_ports(document: &mut Document, mode: Mode, file: bool) -> NodePortSetting {
    let localhost = document.switch("iptables.localhostNodePorts", true);
    let given = document.list("nodePortAddresses");
    let texts: Vec<&str> = given.iter().map(String::as_str).collect();
    match (texts.as_slice(), mode) {
        ([], Mode::Nftables) if file => NodePortSetting::Primary,
        ([], Mode::Nftables) => {
            document.resolve_to("nodePortAddresses", "node");
            NodePortSetting::Node
        }
        (["node"], _) => NodePortSetting::Node,
        (["primary"], _) => NodePortSetting::Primary,
        (texts, _) if texts.contains(&"primary") || texts.contains(&"node") => {
            document.problem(
                "nodePortAddresses",
                "`primary` and `node` stand alone: neither can be combined with networks",
            );
            NodePortSetting::Primary
        }
        (texts, mode) => NodePortSetting::Networks {
            networks: networks(document, "nodePortAddresses", texts),
            loopback: localhost && mode == Mode::Iptables,
        },
    }
}

/// Not among the defaults that are written out: newer kube-proxies refuse gates that they have
/// outgrown.
fn load_balancer_ip_mode(document: &mut Document) -> bool {
    let mut enabled = true;
    for gate in ["featureGates.AllBeta", "featureGates.LoadBalancerIPMode"] {
        if document.has(gate) {
            enabled = document.switch(gate, enabled);
        }
    }
    enabled
}

fn sysctls(document: &mut Document, node_ports: &NodePortSetting) -> sysctl::Settings {
    let mut limit = |path: &str, default: i64| {
        u32::try_from(document.number(path, 0..=i64::from(i32::MAX), default)).unwrap_or_default()
    };
    let (max_per_core, min) = (
        limit("conntrack.maxPerCore", 32 << 10),
        limit("conntrack.min", 128 << 10),
    );
    sysctl::Settings {
        conntrack_max_per_core: max_per_core,
        conntrack_min: min,
        tcp_established_timeout: document.duration("conntrack.tcpEstablishedTimeout", 24 * HOUR),
        tcp_close_wait_timeout: document.duration("conntrack.tcpCloseWaitTimeout", HOUR),
        tcp_be_liberal: document.switch("conntrack.tcpBeLiberal", false),
        udp_timeout: document.duration("conntrack.udpTimeout", Duration::ZERO),
        udp_stream_timeout: document.duration("conntrack.udpStreamTimeout", Duration::ZERO),
        forward: true,
        loopback_node_ports: node_ports.include_loopback(),
    }
}

/// kube-proxy's configuration has no fields for this, so the flags count beside a file too.
fn announce(document: &mut Document, arguments: &Arguments) -> Announce {
    let enabled = match arguments.text("announce").unwrap_or("auto") {
        "auto" => true,
        "off" => false,
        other => {
            document.problem(
                "--announce",
                format!("{other:?} is not known; use auto or off"),
            );
            false
        }
    };
    let port = arguments
        .text("announce-port")
        .map_or(Some(ANNOUNCE_PORT), |text| text.parse().ok());
    let port = port.filter(|port| *port != 0).unwrap_or_else(|| {
        document.problem("--announce-port", "is not a port from 1 to 65535");
        ANNOUNCE_PORT
    });
    let key_file = arguments
        .text("announce-key-file")
        .filter(|path| !path.is_empty());
    Announce {
        enabled,
        key_file: key_file.map(PathBuf::from),
        port,
    }
}

fn edge(document: &mut Document, arguments: &Arguments) -> bool {
    match arguments.text("edge").unwrap_or("off") {
        "auto" => true,
        "off" => false,
        other => {
            document.problem("--edge", format!("{other:?} is not known; use auto or off"));
            false
        }
    }
}

fn logging(document: &mut Document) -> Logging {
    let verbosity = u32::try_from(document.number("logging.verbosity", 0..=i64::from(u32::MAX), 0))
        .unwrap_or_default();
    let json = match document.text("logging.format", "text").as_str() {
        "text" => false,
        "json" => true,
        other => {
            document.problem(
                "logging.format",
                format!("{other:?} is not known; use text or json"),
            );
            false
        }
    };
    Logging { verbosity, json }
}
