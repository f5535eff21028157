//! A look at a node from another process on it: which program forwards there, and how its kernel
//! differs from a table. Reads, and changes nothing. Everything is about the network namespace of
//! the calling thread.

use crate::addresses;
use crate::config::{Arguments, Config, ConfigError, Mode, Surroundings, interpret};
use crate::dataplanes;
use ipnet::IpNet;
use portico_dataplane::ApplyError;
pub use portico_dataplane::{Differences, FoundEdge};
use portico_model::table::{Family, ForwardingTable, FrontendKey};
use serde_json::{Value, json};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

/// Where the daemon tells its configuration, unless it was told otherwise.
const DAEMON: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 10249);
const PATIENCE: Duration = Duration::from_secs(5);
/// More than a configuration has.
const LONGEST: u64 = 1 << 20;

/// The addresses of the node's interfaces.
pub fn addresses() -> io::Result<Vec<IpAddr>> {
    addresses::list_now()
}

/// The configuration of the daemon that runs here; `None` if none answers.
pub fn daemon() -> Option<Config> {
    let answer = get("/configz").ok()?;
    let tree: Value = serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()?;
    configuration(tree.get("kubeproxy.config.k8s.io")?).ok()
}

fn get(path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&DAEMON, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {DAEMON}\r\nConnection: close\r\n\r\n"
    )?;
    let mut answer = String::new();
    stream.take(LONGEST).read_to_string(&mut answer)?;
    Ok(answer)
}

/// What a caller knows of how a daemon was started, where none runs that could be asked.
pub struct Known<'a> {
    /// The name of the node.
    pub node: &'a str,
    /// The dataplane that is asked about.
    pub mode: Mode,
    /// The networks of pods; where empty, those of the Node object.
    pub cluster_cidr: &'a [IpNet],
    /// Whether all traffic to cluster IPs is masqueraded.
    pub masquerade_all: bool,
}

/// The configuration that such a daemon would have.
pub fn assumed(known: &Known<'_>) -> Result<Config, ConfigError> {
    let networks: Vec<String> = known.cluster_cidr.iter().map(IpNet::to_string).collect();
    let detect = if networks.is_empty() {
        "NodeCIDR"
    } else {
        "ClusterCIDR"
    };
    // In ipvs mode it is the section of iptables that counts.
    let section = json!({"masqueradeAll": known.masquerade_all});
    configuration(&json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration",
        "hostnameOverride": known.node, "mode": known.mode.name(),
        "detectLocalMode": detect, "clusterCIDR": networks.join(","),
        "nftables": section, "iptables": section,
    }))
}

fn configuration(tree: &Value) -> Result<Config, ConfigError> {
    let file = Some(("configz".into(), tree.to_string()));
    interpret(&Arguments::default(), file, &Surroundings::default()).map(|loaded| loaded.config)
}

/// The mode whose rules are in the kernel, with the daemon or without.
pub fn installed() -> Result<Option<Mode>, ApplyError> {
    dataplanes::installed()
}

/// How the kernel differs from what the table says.
pub fn compare(
    config: &Config,
    table: &ForwardingTable,
    frontend: &FrontendKey,
) -> Result<Differences, ApplyError> {
    dataplanes::compare(config, table, frontend)
}

/// The edge as it is in the kernel, if it is there.
pub fn edge(config: &Config) -> Result<Option<FoundEdge>, ApplyError> {
    dataplanes::edge(config)
}

/// Other people's rules that packets may meet before or after ours, in words.
pub fn in_the_way(mode: Mode, family: Family) -> Vec<String> {
    dataplanes::in_the_way(mode, family)
}

#[cfg(test)]
mod tests {
    use super::*;
    use portico_model::index::DetectLocal;

    #[test]
    fn what_is_assumed_is_what_a_daemon_would_do() {
        let network: IpNet = "10.244.0.0/16".parse().unwrap();
        let known = Known {
            node: "n1",
            mode: Mode::Ipvs,
            cluster_cidr: &[network],
            masquerade_all: true,
        };
        let config = assumed(&known).unwrap();
        assert_eq!(
            (config.mode, &*config.settings.node_name),
            (Mode::Ipvs, "n1")
        );
        assert_eq!(
            config.settings.detect_local,
            DetectLocal::ClusterCidr(vec![network])
        );
        assert!(config.settings.masquerade_all);
        let known = Known {
            cluster_cidr: &[],
            masquerade_all: false,
            mode: Mode::Nftables,
            ..known
        };
        let config = assumed(&known).unwrap();
        assert_eq!(config.settings.detect_local, DetectLocal::NodeCidr);
        assert_eq!(
            configuration(&config.resolved).unwrap().settings,
            config.settings,
            "as it tells it"
        );
    }
}
