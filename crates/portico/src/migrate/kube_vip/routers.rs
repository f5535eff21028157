//! Routers that kube-vip speaks BGP with become BgpPeers. Pure.

use super::super::report::{Document, File, Remark, object_name, password_secret};
use super::Environment;
use serde_json::{Map, Value, json};

/// Reads a BgpPeer for each router; none, and no variable is read, where BGP is off.
pub(super) fn read(environment: &mut Environment, file: &mut File, enabled: bool) -> Vec<Document> {
    if !enabled {
        return Vec::new();
    }
    let own = environment
        .take("bgp_as")
        .unwrap_or_else(|| "65000".to_owned());
    let mut common = Map::new();
    let id = environment.take("bgp_routerid");
    let pairs = [
        ("routerID", id),
        ("sourceAddress", environment.take("bgp_sourceip")),
    ];
    for (key, value) in pairs
        .into_iter()
        .filter_map(|(key, value)| Some((key, value?)))
    {
        common.insert(key.to_owned(), value.into());
    }
    for (variable, key) in [
        ("bgp_hold_time", "holdTime"),
        ("bgp_keepalive_interval", "keepaliveTime"),
    ] {
        if let Some(seconds) = environment.take(variable) {
            common.insert(key.to_owned(), format!("{seconds}s").into());
        }
    }
    for (variable, meaning) in [
        (
            "bgp_routerinterface",
            "the identifier is the node's IPv4 address unless routerID is given",
        ),
        (
            "bgp_sourceif",
            "the source address is chosen by the routing table unless sourceAddress is given",
        ),
    ] {
        if let Some(link) = environment.take(variable) {
            file.note(format!("{variable}: {link}: {meaning}"));
        }
    }
    let mut out = Vec::new();
    for router in routers(environment) {
        out.extend(router.finish(&own, common.clone(), file));
    }
    if out.is_empty() {
        file.warn("bgp_enable: there are no routers (bgp_peers, bgp_peeraddress)");
    }
    out
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Router {
    address: String,
    asn: String,
    password: String,
    multi_hop: bool,
}

fn routers(environment: &mut Environment) -> Vec<Router> {
    let list = environment.take("bgp_peers").unwrap_or_default();
    let mut out: Vec<Router> = list
        .split(',')
        .filter(|text| !text.trim().is_empty())
        .map(|text| router(text.trim()))
        .collect();
    let single = Router {
        address: environment.take("bgp_peeraddress").unwrap_or_default(),
        asn: environment.take("bgp_peeras").unwrap_or_default(),
        password: environment.take("bgp_peerpass").unwrap_or_default(),
        multi_hop: environment.is_on("bgp_multihop"),
    };
    if !single.address.is_empty() {
        out.push(single);
    }
    out
}

/// `ADDRESS:AS:PASSWORD:MULTIHOP`, an IPv6 address in brackets.
fn router(text: &str) -> Router {
    let (address, rest) = match text.strip_prefix('[').and_then(|text| text.split_once(']')) {
        Some((address, rest)) => (address, rest.trim_start_matches(':')),
        None => text.split_once(':').unwrap_or((text, "")),
    };
    let mut parts = rest.split(':');
    let mut next = || parts.next().unwrap_or_default().to_owned();
    Router {
        address: address.to_owned(),
        asn: next(),
        password: next(),
        multi_hop: next().starts_with("true"),
    }
}

impl Router {
    fn finish(self, own: &str, mut spec: Map<String, Value>, file: &mut File) -> Vec<Document> {
        let (Ok(my_asn), Ok(peer_asn)) = (own.parse::<u32>(), self.asn.parse::<u32>()) else {
            file.warn(format!(
                "the router {} is left out: {own:?} or {:?} is no AS number",
                self.address, self.asn
            ));
            return Vec::new();
        };
        let name = object_name(&format!("router-{}", self.address.replace([':', '.'], "-")));
        spec.insert("myASN".to_owned(), my_asn.into());
        spec.insert("peerASN".to_owned(), peer_asn.into());
        spec.insert("peerAddress".to_owned(), self.address.into());
        let mut remarks = Vec::new();
        match (self.multi_hop, my_asn == peer_asn) {
            (true, false) => drop(spec.insert("ebgpMultiHop".to_owned(), true.into())),
            (true, true) => remarks.push(Remark::Note(
                "multihop is left out: an internal session may have any number of hops".to_owned(),
            )),
            _ => {}
        }
        let mut out = Vec::new();
        if !self.password.is_empty() {
            let secret = format!("portico-bgp-{name}");
            spec.insert("passwordSecret".to_owned(), json!({"name": secret}));
            out.push(password_secret(&secret, &self.password));
        }
        let content = json!({"apiVersion": "portico.dev/v1", "kind": "BgpPeer", "metadata": {"name": name}, "spec": spec});
        out.push(Document { remarks, content });
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_router_in_one_word() {
        let router_of = |address: &str, asn: &str, password: &str, multi_hop| Router {
            address: address.into(),
            asn: asn.into(),
            password: password.into(),
            multi_hop,
        };
        assert_eq!(
            router("192.0.2.1:65001::false"),
            router_of("192.0.2.1", "65001", "", false)
        );
        assert_eq!(
            router("192.0.2.1:65001:secret:true"),
            router_of("192.0.2.1", "65001", "secret", true)
        );
        assert_eq!(
            router("[2001:db8::1]:65001"),
            router_of("2001:db8::1", "65001", "", false)
        );
    }
}
