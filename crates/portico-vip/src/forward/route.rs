//! What is wanted, by address family, and what of the node stands in its way.

use super::Wanted;
use crate::servers::{Server, eligible};
use portico_model::table::{Family, PerFamily};
use std::net::SocketAddr;

/// The part of what is wanted in one family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Route {
    pub family: Family,
    /// The virtual addresses with their port.
    pub frontends: Vec<SocketAddr>,
    /// All servers, sorted.
    pub servers: Vec<SocketAddr>,
    /// Those that get connections, sorted; never none.
    pub eligible: Vec<SocketAddr>,
    /// Every server answers.
    pub all_healthy: bool,
    /// The cluster IP of `default/kubernetes`, where it is known.
    pub cluster: Option<SocketAddr>,
}

impl Wanted {
    /// A family without a virtual address or without a server has none: clients of it are answered
    /// by the node's own API server, which is better than no answer.
    pub(super) fn route(&self, family: Family) -> Option<Route> {
        let is_ours = |address: &SocketAddr| Family::of(address.ip()) == family;
        let frontends: Vec<SocketAddr> = self
            .addresses
            .iter()
            .map(|address| SocketAddr::new(*address, self.port))
            .filter(is_ours)
            .collect();
        // A virtual address is not a server, even if the API says so: packets would be sent to
        // themselves.
        let is_server = |server: &&Server| {
            is_ours(&server.address) && !self.addresses.contains(&server.address.ip())
        };
        let servers: Vec<Server> = self.servers.iter().filter(is_server).cloned().collect();
        let route = Route {
            family,
            servers: sorted(servers.iter().map(|server| server.address)),
            eligible: sorted(eligible(&servers)),
            all_healthy: servers.iter().all(|server| server.healthy),
            cluster: self.cluster.iter().copied().find(is_ours),
            frontends,
        };
        (!route.frontends.is_empty() && !route.servers.is_empty()).then_some(route)
    }

    pub(super) fn routes(&self) -> impl Iterator<Item = Route> {
        Family::BOTH
            .into_iter()
            .filter_map(|family| self.route(family))
    }

    /// Those for connections that begin now.
    pub(super) fn open_routes(&self) -> impl Iterator<Item = Route> {
        self.routes().filter(|_| !self.closing)
    }

    /// Servers that get no connections, and whose connections lead nowhere. One that only is not
    /// ready goes on with those that it has.
    pub(super) fn gone(&self) -> Vec<SocketAddr> {
        let gone = |address: &SocketAddr| {
            self.servers
                .iter()
                .any(|server| server.address == *address && server.gone)
        };
        let out = |route: Route| {
            route
                .servers
                .into_iter()
                .filter(move |server| !route.eligible.contains(server))
        };
        self.routes().flat_map(out).filter(gone).collect()
    }
}

fn sorted(addresses: impl IntoIterator<Item = SocketAddr>) -> Vec<SocketAddr> {
    let mut addresses: Vec<SocketAddr> = addresses.into_iter().collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

/// Switches without which the node forwards no packets of other hosts.
const FORWARDING: PerFamily<&str> = PerFamily {
    v4: "/proc/sys/net/ipv4/ip_forward",
    v6: "/proc/sys/net/ipv6/conf/all/forwarding",
};

/// Nodes of a cluster forward IPv4 already; one that does not is made to. IPv6 is left as it is:
/// switching it on takes away the routes that the node learned from routers.
pub(super) fn let_packets_pass(route: &Route) {
    if route.family == Family::V4 && !forwards(Family::V4) {
        match std::fs::write(FORWARDING.get(Family::V4), "1") {
            Ok(()) => tracing::info!("switched net.ipv4.ip_forward on"),
            Err(error) => tracing::warn!(%error, "cannot switch net.ipv4.ip_forward on"),
        }
    }
}

fn forwards(family: Family) -> bool {
    std::fs::read_to_string(FORWARDING.get(family)).is_ok_and(|value| value.trim() != "0")
}

/// What keeps some from being forwarded.
pub(super) fn problems(wanted: &Wanted) -> Vec<String> {
    let unserved = wanted
        .addresses
        .iter()
        .filter(|address| wanted.route(Family::of(**address)).is_none());
    let unserved = unserved.map(|address| {
        format!(
            "no API server with an address like {address} is known: only the one of its owner \
             answers there"
        )
    });
    let closed = wanted
        .routes()
        .filter(|route| !forwards(route.family))
        .map(|route| {
            let name = FORWARDING
                .get(route.family)
                .trim_start_matches("/proc/sys/")
                .replace('/', ".");
            format!(
                "{name} is 0: what comes from elsewhere reaches only the API server of this node; \
                 set it to 1"
            )
        });
    unserved.chain(closed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(addresses: &[&str], servers: &[(&str, bool)], cluster: &[&str]) -> Wanted {
        let server = |(address, healthy): &(&str, bool)| Server {
            address: address.parse().unwrap(),
            healthy: *healthy,
            gone: !healthy,
        };
        Wanted {
            addresses: addresses
                .iter()
                .map(|address| address.parse().unwrap())
                .collect(),
            port: 6443,
            servers: servers.iter().map(server).collect(),
            cluster: cluster
                .iter()
                .map(|address| address.parse().unwrap())
                .collect(),
            closing: false,
        }
    }

    fn text(addresses: &[SocketAddr]) -> Vec<String> {
        addresses.iter().map(SocketAddr::to_string).collect()
    }

    #[test]
    fn families_are_apart() {
        let wanted = wanted(
            &["192.0.2.100", "2001:db8::100"],
            &[
                ("192.0.2.2:6443", true),
                ("192.0.2.1:6443", false),
                ("[2001:db8::1]:6443", false),
            ],
            &["10.96.0.1:443"],
        );
        let v4 = wanted.route(Family::V4).unwrap();
        assert_eq!(text(&v4.frontends), ["192.0.2.100:6443"]);
        assert_eq!(text(&v4.servers), ["192.0.2.1:6443", "192.0.2.2:6443"]);
        assert_eq!(text(&v4.eligible), ["192.0.2.2:6443"]);
        assert_eq!(
            (v4.all_healthy, v4.cluster),
            (false, "10.96.0.1:443".parse().ok())
        );
        let v6 = wanted.route(Family::V6).unwrap();
        assert_eq!(
            text(&v6.eligible),
            ["[2001:db8::1]:6443"],
            "the only one, though it does not answer"
        );
        assert_eq!(v6.cluster, None);
        assert_eq!(text(&wanted.gone()), ["192.0.2.1:6443"]);
    }

    #[test]
    fn who_closes_has_routes_for_what_is_open_only() {
        let mut wanted = wanted(&["192.0.2.100"], &[("192.0.2.1:6443", true)], &[]);
        assert!(wanted.open_routes().eq(wanted.routes()));
        wanted.closing = true;
        assert_eq!(
            (wanted.routes().count(), wanted.open_routes().count()),
            (1, 0)
        );
    }

    #[test]
    fn who_has_nobody_to_go_to_goes_nowhere() {
        let wanted = wanted(
            &["192.0.2.100", "2001:db8::100"],
            &[("192.0.2.1:6443", true), ("192.0.2.100:6443", true)],
            &[],
        );
        assert_eq!(
            text(&wanted.route(Family::V4).unwrap().servers),
            ["192.0.2.1:6443"],
            "an address is not its own server"
        );
        assert_eq!(wanted.route(Family::V6), None);
        assert!(
            problems(&wanted)
                .iter()
                .any(|problem| problem.contains("2001:db8::100"))
        );
    }
}
