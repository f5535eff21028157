//! Ports nobody listens on, and who owns which address and port in a cluster.

use std::collections::BTreeMap;
use std::net::TcpListener;

use serde_json::{Value, json};

use super::random::Random;
use super::{Client, at, items, text};

/// A port nobody listens on now. It lies below the range the kernel takes for outgoing
/// connections, so that nobody is given it before the server binds it.
pub(crate) fn free() -> u16 {
    let mut random = Random::seeded(Random::fresh_seed());
    loop {
        let port = 10_000 + random.below(20_000) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// What the Services in a list own: address or port to the names of its owners.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Owners {
    pub addresses: BTreeMap<String, Vec<String>>,
    pub ports: BTreeMap<u64, Vec<String>>,
    /// By port partition.
    pub partition_ports: BTreeMap<(String, u64), Vec<String>>,
}

impl Owners {
    pub(crate) fn of(services: &[Value]) -> Self {
        let mut owners = Self::default();
        for service in services
            .iter()
            .filter(|service| text(service, "spec.type") != "ExternalName")
        {
            owners.add(service);
        }
        owners
    }

    fn add(&mut self, service: &Value) {
        let name = format!(
            "{}/{}",
            text(service, "metadata.namespace"),
            text(service, "metadata.name")
        );
        let addresses = at(service, "spec.clusterIPs")
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str);
        for address in addresses.filter(|address| *address != "None") {
            self.addresses
                .entry(address.to_owned())
                .or_default()
                .push(name.clone());
        }
        let mut ports: Vec<_> = at(service, "spec.ports")
            .as_array()
            .into_iter()
            .flatten()
            .map(|port| &port["nodePort"])
            .chain([at(service, "spec.healthCheckNodePort")])
            .filter_map(Value::as_u64)
            .collect();
        ports.sort_unstable();
        ports.dedup(); // one Service may use a port for TCP and UDP
        let partition = at(service, "metadata.annotations")
            .get("portico.dev/port-partition")
            .and_then(Value::as_str);
        for port in ports {
            let owners = match partition {
                None => self.ports.entry(port).or_default(),
                Some(partition) => self
                    .partition_ports
                    .entry((partition.to_owned(), port))
                    .or_default(),
            };
            owners.push(name.clone());
        }
    }

    /// Everything that two Services own.
    pub(crate) fn twice(&self) -> Vec<String> {
        let addresses = self
            .addresses
            .iter()
            .filter(|(_, names)| names.len() > 1)
            .map(|pair| format!("{pair:?}"));
        let ports = self
            .ports
            .iter()
            .filter(|(_, names)| names.len() > 1)
            .map(|pair| format!("{pair:?}"));
        let partition_ports = self
            .partition_ports
            .iter()
            .filter(|(_, names)| names.len() > 1)
            .map(|pair| format!("{pair:?}"));
        addresses.chain(ports).chain(partition_ports).collect()
    }
}

/// Takes what `spec` asks for until there is none left, removes it all again, and returns how
/// often it went well.
async fn exhaust(client: &Client, spec: &Value, mut taken: impl FnMut(&Value)) -> usize {
    let mut made = 0;
    loop {
        let answer = client
            .create_service(&format!("fill-{made}"), spec.clone())
            .await;
        if answer.status != 201 {
            let refused = (400..500).contains(&answer.status) || super::rival().is_some();
            assert!(refused, "exhaustion: {} {}", answer.status, answer.text());
            break;
        }
        taken(&answer.json());
        made += 1;
    }
    for n in 0..made {
        client
            .delete(&format!("/api/v1/namespaces/default/services/fill-{n}"))
            .await
            .expect(200);
    }
    made
}

async fn owners(client: &Client) -> Owners {
    let list = client.get("/api/v1/services").await.expect(200);
    let owners = Owners::of(items(&list));
    assert_eq!(owners.twice(), Vec::<String>::new(), "owned twice");
    owners
}

/// Proves that the free node ports are exactly those no Service has, by taking them all.
pub(crate) async fn assert_no_port_leaked(client: &Client, range: std::ops::RangeInclusive<u64>) {
    let owners = owners(client).await;
    let used = owners
        .ports
        .keys()
        .filter(|port| range.contains(port))
        .count();
    let spec =
        json!({"type": "NodePort", "ipFamilyPolicy": "SingleStack", "ports": [{"port": 80}]});
    let made = exhaust(client, &spec, |service| {
        let port = at(service, "spec.ports.0.nodePort").as_u64().unwrap();
        assert!(range.contains(&port), "{port} is out of range");
        assert!(
            !owners.ports.contains_key(&port),
            "{port} was given away twice"
        );
    });
    assert_eq!(
        made.await,
        range.clone().count() - used,
        "free node ports; {used} are used"
    );
}

/// Proves the same of the cluster addresses of one family, of which there are `size`.
pub(crate) async fn assert_no_address_leaked(client: &Client, family: &str, size: usize) {
    let owners = owners(client).await;
    let used = owners
        .addresses
        .keys()
        .filter(|address| address.contains(':') == (family == "IPv6"))
        .count();
    let spec =
        json!({"ipFamilyPolicy": "SingleStack", "ipFamilies": [family], "ports": [{"port": 80}]});
    let made = exhaust(client, &spec, |service| {
        let address = text(service, "spec.clusterIP");
        assert!(
            !owners.addresses.contains_key(address),
            "{address} was given away twice"
        );
    });
    assert_eq!(
        made.await,
        size - used,
        "free {family} addresses; {used} are used"
    );
}
