//! Addresses and ports that a change takes and gives back, and the calls of load-balancer providers
//! that follow. Pure.

use super::world::{Changes, Kind, World};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeSet;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct Need {
    /// `shop/web`
    pub service: String,
    pub what: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Outside {
    pub taken: Vec<Need>,
    pub released: Vec<Need>,
    /// Calls of providers.
    pub balancers: Vec<Need>,
}

/// What a provider looks at.
const OF_BALANCER: [&str; 8] = [
    "/spec/ports",
    "/spec/externalTrafficPolicy",
    "/spec/healthCheckNodePort",
    "/spec/loadBalancerSourceRanges",
    "/spec/loadBalancerIP",
    "/spec/sessionAffinity",
    "/spec/sessionAffinityConfig",
    "/metadata/annotations",
];

pub(super) fn diff(before: &World, changes: &Changes) -> Outside {
    let mut outside = Outside::default();
    for (kind, name, after) in changes {
        match kind {
            Kind::Service => {
                outside.service(
                    &name.to_string(),
                    before.get(Kind::Service, name),
                    after.as_ref(),
                );
            }
            Kind::Node => outside.node(
                &name.name,
                before,
                before.get(Kind::Node, name).is_some(),
                after.is_some(),
            ),
            _ => {}
        }
    }
    outside
}

impl Outside {
    fn service(&mut self, service: &str, before: Option<&Value>, after: Option<&Value>) {
        let (had, has) = (claims(before), claims(after));
        let need = |what: &String| Need {
            service: service.to_owned(),
            what: what.clone(),
        };
        self.released.extend(had.difference(&has).map(need));
        self.taken.extend(has.difference(&had).map(need));
        let provider = |one: Option<&Value>| one.filter(|one| is_balancer(one)).map(provider);
        let call = |verb: &str, of: &str| Need {
            service: service.to_owned(),
            what: format!("{verb} by {of}"),
        };
        match (provider(before), provider(after)) {
            (None, Some(new)) => {
                self.balancers.push(call("a load balancer is made", &new));
                self.taken.push(Need {
                    service: service.to_owned(),
                    what: wish(after),
                });
            }
            (Some(old), None) => self
                .balancers
                .push(call("the load balancer is deleted", &old)),
            (Some(old), Some(new)) if old != new => {
                self.balancers
                    .push(call("the load balancer is deleted", &old));
                self.balancers.push(call("a load balancer is made", &new));
            }
            (Some(old), Some(_))
                if OF_BALANCER
                    .iter()
                    .any(|at| pointer(before, at) != pointer(after, at)) =>
            {
                self.balancers
                    .push(call("the load balancer is changed", &old));
            }
            _ => {}
        }
    }

    /// Load balancers lead to nodes.
    fn node(&mut self, node: &str, before: &World, was: bool, is: bool) {
        if was == is {
            return;
        }
        let verb = if is {
            "leads also to"
        } else {
            "no longer leads to"
        };
        for service in before
            .of(Kind::Service)
            .filter(|service| is_balancer(service))
        {
            let text = |field: &str| service["metadata"][field].as_str().unwrap_or_default();
            let name = format!("{}/{}", text("namespace"), text("name"));
            self.balancers.push(Need {
                service: name,
                what: format!("the load balancer {verb} node {node}"),
            });
        }
    }
}

fn pointer<'a>(object: Option<&'a Value>, at: &str) -> &'a Value {
    object
        .and_then(|object| object.pointer(at))
        .unwrap_or(&Value::Null)
}

fn is_balancer(service: &Value) -> bool {
    service["spec"]["type"] == "LoadBalancer"
}

/// The provider that makes the load balancer, by the Service's class.
fn provider(service: &Value) -> String {
    match service["spec"]["loadBalancerClass"].as_str() {
        None => "the provider of Services without a class".to_owned(),
        Some(class) => match class.strip_prefix("portico.dev/") {
            Some(provider) => format!("provider {provider}"),
            None => format!("whoever serves class {class}"),
        },
    }
}

/// What a new load balancer will take.
fn wish(service: Option<&Value>) -> String {
    match pointer(service, "/spec/loadBalancerIP")
        .as_str()
        .filter(|address| !address.is_empty())
    {
        Some(address) => format!("the load-balancer address {address}, which it asks for"),
        None => "a load-balancer address of the provider's choice".to_owned(),
    }
}

/// What there is only one of: addresses and node ports.
fn claims(service: Option<&Value>) -> BTreeSet<String> {
    let list = |at: &str| pointer(service, at).as_array().cloned().unwrap_or_default();
    let mut all = BTreeSet::new();
    let addresses = list("/spec/clusterIPs");
    let given = addresses
        .iter()
        .filter_map(Value::as_str)
        .filter(|address| *address != "None");
    all.extend(given.map(|address| format!("cluster IP {address}")));
    for port in list("/spec/ports") {
        let protocol = port["protocol"].as_str().unwrap_or("TCP").to_lowercase();
        all.extend(
            port["nodePort"]
                .as_u64()
                .filter(|port| *port > 0)
                .map(|port| format!("node port {port}/{protocol}")),
        );
    }
    let health = pointer(service, "/spec/healthCheckNodePort")
        .as_u64()
        .filter(|port| *port > 0);
    all.extend(health.map(|port| format!("health-check node port {port}")));
    if service.is_some_and(is_balancer) {
        for ingress in list("/status/loadBalancer/ingress") {
            let address = ingress["ip"].as_str().or(ingress["hostname"].as_str());
            all.extend(address.map(|address| format!("load-balancer address {address}")));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use portico_model::key::ObjectKey;
    use serde_json::json;

    fn service(more: Value) -> Value {
        let mut spec = json!({"type": "ClusterIP", "clusterIPs": ["10.96.0.1"], "ports": [{"port": 80, "protocol": "TCP"}]});
        spec.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        json!({"metadata": {"name": "web", "namespace": "shop"}, "spec": spec,
            "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.10"}]}}})
    }

    fn told(before: Option<Value>, after: Option<Value>) -> Vec<String> {
        let mut world = World::default();
        before
            .into_iter()
            .for_each(|before| world.insert(Kind::Service, before));
        let outside = diff(
            &world,
            &vec![(Kind::Service, ObjectKey::new("shop", "web"), after)],
        );
        let signed = |sign: &str, needs: &[Need]| -> Vec<String> {
            needs
                .iter()
                .map(|need| format!("{sign} {} {}", need.service, need.what))
                .collect()
        };
        [
            signed("+", &outside.taken),
            signed("-", &outside.released),
            signed("!", &outside.balancers),
        ]
        .concat()
    }

    #[test]
    fn addresses_and_ports_are_taken_and_given_back() {
        let public = json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30080, "protocol": "TCP"}]});
        assert_eq!(
            told(None, Some(service(json!({})))),
            ["+ shop/web cluster IP 10.96.0.1"]
        );
        assert_eq!(
            told(Some(service(json!({}))), Some(service(public.clone()))),
            ["+ shop/web node port 30080/tcp"]
        );
        assert_eq!(
            told(Some(service(public)), None),
            [
                "- shop/web cluster IP 10.96.0.1",
                "- shop/web node port 30080/tcp"
            ]
        );
        assert_eq!(told(None, None), Vec::<String>::new());
    }

    #[test]
    fn load_balancers_are_made_changed_moved_and_deleted() {
        let plain = || Some(service(json!({})));
        let balancer = |more: Value| {
            let mut spec = json!({"type": "LoadBalancer"});
            spec.as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            Some(service(spec))
        };
        let made = told(
            plain(),
            balancer(
                json!({"loadBalancerClass": "portico.dev/aws", "loadBalancerIP": "192.0.2.9"}),
            ),
        );
        assert!(
            made.contains(&"! shop/web a load balancer is made by provider aws".to_owned()),
            "{made:?}"
        );
        assert!(
            made.contains(
                &"+ shop/web the load-balancer address 192.0.2.9, which it asks for".to_owned()
            ),
            "{made:?}"
        );
        assert_eq!(
            told(
                balancer(json!({})),
                balancer(json!({"externalTrafficPolicy": "Local"}))
            ),
            ["! shop/web the load balancer is changed by the provider of Services without a class"]
        );
        assert_eq!(
            told(
                balancer(json!({})),
                balancer(json!({"internalTrafficPolicy": "Local"}))
            ),
            Vec::<String>::new()
        );
        assert_eq!(
            told(balancer(json!({})), plain()),
            [
                "- shop/web load-balancer address 192.0.2.10",
                "! shop/web the load balancer is deleted by the provider of Services without a \
                 class"
            ]
        );
    }

    #[test]
    fn a_node_that_goes_is_taken_from_load_balancers() {
        let mut world = World::default();
        world.insert(Kind::Service, service(json!({"type": "LoadBalancer"})));
        world.insert(Kind::Node, json!({"metadata": {"name": "n1"}}));
        let outside = diff(&world, &vec![(Kind::Node, ObjectKey::new("", "n1"), None)]);
        assert_eq!(
            outside.balancers[0].what,
            "the load balancer no longer leads to node n1"
        );
    }
}
