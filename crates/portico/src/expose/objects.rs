//! The objects that expose servers: a Service without a selector, and its EndpointSlices.

use portico_controller::health::{CHECK, Check, FAILING, LABEL};
use portico_model::objects::SERVICE_NAME;
use portico_model::table::Protocol;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// The manager of the fields that `expose` sets, and the value by which its slices are told apart.
pub(super) const MANAGER: &str = "portico-expose";
pub(super) const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
/// As many as the controllers of Kubernetes put into a slice.
const MOST_ENDPOINTS: usize = 100;

/// The label of Services that were made here, and its value.
pub(crate) fn made_here() -> (&'static str, &'static str) {
    ("app.kubernetes.io/managed-by", MANAGER)
}

/// The port of the Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Front {
    port: u16,
    protocol: Protocol,
}

impl FromStr for Front {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (port, protocol) = text.split_once('/').unwrap_or((text, "tcp"));
        let all = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp];
        let protocol = all
            .into_iter()
            .find(|known| known.lower() == protocol.to_lowercase());
        match (port.parse(), protocol) {
            (Ok(port), Some(protocol)) if port > 0 => Ok(Self { port, protocol }),
            _ => Err(
                "write a port from 1 to 65535, with /udp or /sctp behind it if it is not TCP"
                    .to_owned(),
            ),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Visibility {
    ClusterIp,
    NodePort,
    LoadBalancer,
}

/// What is wanted.
#[derive(Clone, Debug)]
pub(super) struct Exposed {
    pub namespace: String,
    pub name: String,
    pub front: Front,
    pub targets: Vec<SocketAddr>,
    pub check: Option<Check>,
    pub visibility: Visibility,
}

impl Exposed {
    pub(super) fn service(&self) -> Value {
        let (label, value) = made_here();
        let kind = match self.visibility {
            Visibility::ClusterIp => "ClusterIP",
            Visibility::NodePort => "NodePort",
            Visibility::LoadBalancer => "LoadBalancer",
        };
        let mut spec = json!({"type": kind, "ports": [{"port": self.front.port, "protocol": self.protocol()}]});
        let families = match (self.has(SocketAddr::is_ipv4), self.has(SocketAddr::is_ipv6)) {
            (true, true) => json!({"ipFamilyPolicy": "PreferDualStack"}),
            (false, true) => json!({"ipFamilies": ["IPv6"]}),
            _ => json!({"ipFamilies": ["IPv4"]}),
        };
        merge(&mut spec, families);
        json!({"apiVersion": "v1", "kind": "Service", "spec": spec,
            "metadata": {"name": self.name, "namespace": self.namespace, "labels": {label: value}}})
    }

    /// Endpoints that are there already stay as ready as they were found; others wait for their
    /// first check.
    pub(super) fn slices(&self, before: &[Value]) -> Vec<Value> {
        let mut groups: BTreeMap<(bool, u16), Vec<IpAddr>> = BTreeMap::new();
        for target in &self.targets {
            groups
                .entry((target.is_ipv6(), target.port()))
                .or_default()
                .push(target.ip());
        }
        let mut slices = Vec::new();
        for ((v6, port), mut addresses) in groups {
            addresses.sort();
            addresses.dedup();
            for (at, part) in addresses.chunks(MOST_ENDPOINTS).enumerate() {
                slices.push(self.slice(before, v6, port, at, part));
            }
        }
        slices
    }

    fn slice(
        &self,
        before: &[Value],
        v6: bool,
        port: u16,
        at: usize,
        addresses: &[IpAddr],
    ) -> Value {
        let family = if v6 { "ipv6" } else { "ipv4" };
        let number = if at == 0 {
            String::new()
        } else {
            format!("-{}", at + 1)
        };
        let name = format!("{}-{family}-{port}{number}", self.name);
        let known = known(before, port);
        let ready = |address: &IpAddr| match self.check {
            Some(_) => known.get(address).copied().unwrap_or(false),
            None => true,
        };
        let endpoints: Vec<Value> = addresses
            .iter()
            .map(|address| {
                let ready = ready(address);
                json!({"addresses": [address.to_string()], "conditions": {"ready": ready, "serving": ready}})
            })
            .collect();
        let (mut labels, mut annotations) = (
            json!({SERVICE_NAME: self.name, MANAGED_BY: MANAGER}),
            Map::new(),
        );
        if let Some(check) = &self.check {
            merge(&mut labels, json!({LABEL: "true"}));
            annotations.insert(CHECK.to_owned(), check.to_string().into());
            let same = before.iter().find(|slice| self::name(slice) == name);
            let failing = same.map(|slice| slice["metadata"]["annotations"][FAILING].clone());
            annotations.extend(
                failing
                    .filter(Value::is_string)
                    .map(|failing| (FAILING.to_owned(), failing)),
            );
        }
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": if v6 { "IPv6" } else { "IPv4" },
            "metadata": {"name": name, "namespace": self.namespace, "labels": labels, "annotations": annotations},
            "ports": [{"name": "", "port": port, "protocol": self.protocol()}],
            "endpoints": endpoints,
        })
    }

    fn protocol(&self) -> String {
        self.front.protocol.lower().to_uppercase()
    }

    fn has(&self, family: impl Fn(&SocketAddr) -> bool) -> bool {
        self.targets.iter().any(family)
    }
}

pub(super) fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// The endpoints of slices, each with its port, and whether it is ready.
pub(super) fn endpoints(slices: &[Value]) -> Vec<(String, bool)> {
    let items = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let each = |slice: &Value| -> Vec<(String, bool)> {
        let port = slice["ports"][0]["port"]
            .as_u64()
            .and_then(|port| u16::try_from(port).ok())
            .unwrap_or_default();
        let show = |endpoint: &Value| {
            let address: IpAddr = endpoint["addresses"][0].as_str()?.parse().ok()?;
            Some((
                SocketAddr::new(address, port).to_string(),
                endpoint["conditions"]["ready"] == true,
            ))
        };
        items(&slice["endpoints"]).iter().filter_map(show).collect()
    };
    slices.iter().flat_map(each).collect()
}

/// How ready each address was found at a port.
fn known(before: &[Value], port: u16) -> BTreeMap<IpAddr, bool> {
    let same_port: Vec<Value> = before
        .iter()
        .filter(|slice| slice["ports"][0]["port"] == port)
        .cloned()
        .collect();
    let parsed = endpoints(&same_port).into_iter();
    parsed
        .filter_map(|(address, ready)| Some((address.parse::<SocketAddr>().ok()?.ip(), ready)))
        .collect()
}

fn merge(into: &mut Value, more: Value) {
    if let (Some(into), Value::Object(more)) = (into.as_object_mut(), more) {
        into.extend(more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exposed(targets: &[&str], check: Option<&str>) -> Exposed {
        Exposed {
            namespace: "default".into(),
            name: "web".into(),
            front: "80".parse().unwrap(),
            targets: targets
                .iter()
                .map(|target| target.parse().unwrap())
                .collect(),
            check: check.map(|check| check.parse().unwrap()),
            visibility: Visibility::NodePort,
        }
    }

    #[test]
    fn a_slice_for_each_family_and_port() {
        let wanted = exposed(
            &[
                "10.0.0.6:80",
                "10.0.0.5:80",
                "[2001:db8::1]:80",
                "10.0.0.5:81",
                "10.0.0.5:80",
            ],
            None,
        );
        let slices = wanted.slices(&[]);
        let names: Vec<&str> = slices.iter().map(name).collect();
        assert_eq!(names, ["web-ipv4-80", "web-ipv4-81", "web-ipv6-80"]);
        let all: Vec<String> = endpoints(&slices)
            .into_iter()
            .map(|(address, _)| address)
            .collect();
        assert_eq!(
            all,
            [
                "10.0.0.5:80",
                "10.0.0.6:80",
                "10.0.0.5:81",
                "[2001:db8::1]:80"
            ]
        );
        assert_eq!(
            wanted.service()["spec"]["ipFamilyPolicy"],
            "PreferDualStack"
        );
        assert_eq!(wanted.service()["spec"]["type"], "NodePort");
    }

    #[test]
    fn many_endpoints_are_several_slices() {
        let targets: Vec<String> = (0..250)
            .map(|at| format!("10.0.{}.{}:80", at / 200, at % 200 + 1))
            .collect();
        let targets: Vec<&str> = targets.iter().map(String::as_str).collect();
        let slices = exposed(&targets, None).slices(&[]);
        assert_eq!(
            slices.iter().map(name).collect::<Vec<_>>(),
            ["web-ipv4-80", "web-ipv4-80-2", "web-ipv4-80-3"]
        );
    }

    #[test]
    fn what_is_checked_begins_unready_and_what_is_known_stays() {
        let unchecked = exposed(&["10.0.0.5:80"], None).slices(&[]);
        assert!(endpoints(&unchecked)[0].1);
        let mut before = exposed(&["10.0.0.5:80"], Some("tcp")).slices(&[]);
        assert!(!endpoints(&before)[0].1);
        before[0]["endpoints"][0]["conditions"]["ready"] = true.into();
        let after = exposed(&["10.0.0.5:80", "10.0.0.6:80"], Some("http:/ fall=1")).slices(&before);
        let ready: Vec<bool> = endpoints(&after)
            .into_iter()
            .map(|(_, ready)| ready)
            .collect();
        assert_eq!(ready, [true, false]);
        assert_eq!(
            after[0]["metadata"]["annotations"][CHECK],
            "http:/ interval=5s timeout=2s rise=2 fall=1"
        );
        assert_eq!(after[0]["metadata"]["labels"][LABEL], "true");
    }

    #[test]
    fn ports_with_their_protocol() {
        assert_eq!(
            "53/udp".parse(),
            Ok(Front {
                port: 53,
                protocol: Protocol::Udp
            })
        );
        for wrong in ["0", "70000", "http", "80/icmp", ""] {
            assert!(
                wrong.parse::<Front>().unwrap_err().contains("1 to 65535"),
                "{wrong}"
            );
        }
    }
}
