//! A manifest of kube-vip becomes the configuration of `portico vip`, AddressPools and BgpPeers.
//! Pure.

mod pools;
mod routers;
#[cfg(test)]
mod tests;

use super::report::{Document, File, Remark};
use portico_vip::config::{Given, Span, StatusAddress};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

const VIP_USAGE: &str = "save as /etc/portico/vip.yaml on every node that has the address, and replace kube-vip's manifest by \
                         what `portico vip manifest --config /etc/portico/vip.yaml` prints";

/// What kube-vip is told by its environment. What was asked for is gone; what is left in the end
/// has no equivalent.
pub(super) struct Environment(BTreeMap<String, String>);

impl Environment {
    fn read(container: &Value) -> Self {
        let list = container
            .get("env")
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        let pair = |item: &Value| {
            let name = item.get("name")?.as_str()?.to_owned();
            let value = item.get("value").and_then(Value::as_str).map(str::to_owned);
            Some((
                name,
                value.unwrap_or_else(|| {
                    item.get("valueFrom")
                        .map(Value::to_string)
                        .unwrap_or_default()
                }),
            ))
        };
        Self(list.filter_map(pair).collect())
    }

    pub(super) fn take(&mut self, name: &str) -> Option<String> {
        self.0.remove(name).filter(|value| !value.is_empty())
    }

    pub(super) fn is_on(&mut self, name: &str) -> bool {
        self.take(name).is_some_and(|value| value == "true")
    }
}

/// Variables that are about what Portico does by itself, and how.
const BY_ITSELF: &[(&str, &str)] = &[
    (
        "vip_leaderelection",
        "the owner is elected by VRRP, without the API server",
    ),
    ("vip_leasename", "there is no Lease"),
    (
        "vip_leaseduration",
        "three intervals without an advert are a take-over: set `interval` (1s) instead",
    ),
    ("vip_renewdeadline", "see vip_leaseduration"),
    ("vip_retryperiod", "see vip_leaseduration"),
    ("vip_leaseannotations", "there is no Lease"),
    ("vip_nodename", "nodes know each other by their addresses"),
    (
        "vip_preserve_on_leadership_loss",
        "an owner that lost the election has no address",
    ),
    (
        "vip_arpRate",
        "the address is announced after a take-over and every minute: `announceEvery`",
    ),
    ("vip_loglevel", "PORTICO_LOG chooses what is logged"),
    ("cp_namespace", "there is no Lease"),
    ("cp_detect", "the address is one of its own"),
    ("kubernetes_addr", "API servers are found by the kubeconfig"),
    (
        "lb_enable",
        "the address is always forwarded to all API servers that are ready",
    ),
    ("lb_port", "it is `port`"),
    ("lb_fwdmethod", "packets are translated"),
    (
        "svc_election",
        "each address has its own owner, by hashing over the nodes",
    ),
    ("svc_leasename", "there is no Lease"),
    ("svc_namespace", "there is no Lease"),
    ("enable_endpoints", "EndpointSlices are used"),
    ("enable_endpointslices", "EndpointSlices are used"),
    (
        "enable_service_security",
        "ports that no Service has are never answered for by Services",
    ),
    (
        "backend_health_check_interval",
        "API servers are asked every 500ms: `probeInterval`",
    ),
    ("iptables_backend", "the variant that is in use is found"),
    (
        "lb_class_legacy_handling",
        "Services with another class are left alone",
    ),
];

pub(super) fn translate(mut documents: Vec<Value>) -> Vec<File> {
    // Pools come before what is said of how they are announced.
    documents
        .sort_by_key(|document| document.get("kind").and_then(Value::as_str) != Some("ConfigMap"));
    let mut objects = File {
        name: "objects.yaml".to_owned(),
        usage: "kubectl apply -f objects.yaml, with deploy/crds and deploy/rbac in place where \
                the API server is not Portico's"
            .to_owned(),
        ..File::default()
    };
    let mut files = Vec::new();
    for document in &documents {
        match document
            .get("kind")
            .and_then(Value::as_str)
            .unwrap_or_default()
        {
            "Pod" => files.extend(pod(
                document.get("spec").unwrap_or(&Value::Null),
                &mut objects,
            )),
            "DaemonSet" => files.extend(pod(
                document
                    .pointer("/spec/template/spec")
                    .unwrap_or(&Value::Null),
                &mut objects,
            )),
            "ConfigMap" => pools::translate(document, &mut objects),
            kind => objects.note(format!(
                "{kind} is not read: it has no settings of kube-vip"
            )),
        }
    }
    objects.check_objects();
    if !objects.documents.is_empty() || (files.is_empty() && !objects.remarks.is_empty()) {
        files.push(objects);
    } else if let Some(first) = files.first_mut() {
        first.remarks.extend(objects.remarks);
    }
    files
}

fn pod(spec: &Value, objects: &mut File) -> Option<File> {
    let containers = spec
        .get("containers")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    let is_ours = |container: &&Value| container.get("env").is_some();
    let Some(container) = containers.clone().find(is_ours) else {
        objects.warn(
            "the pod has no container with `env`: only manifests with environment variables \
             are read",
        );
        return None;
    };
    let mut environment = Environment::read(container);
    let mut remarks = Vec::new();
    let (arp, bgp) = (
        environment.is_on("vip_arp"),
        environment.is_on("bgp_enable"),
    );
    let (control_plane, services) = (
        environment.is_on("cp_enable"),
        environment.is_on("svc_enable"),
    );
    let given = vip(&mut environment, spec, container, &mut remarks);
    let routers = routers::read(&mut environment, objects, bgp);
    if services {
        service_side(&mut environment, (arp, bgp), objects);
    }
    by_itself(&mut environment, &mut remarks);
    let left = environment.0.into_iter();
    remarks.extend(
        left.map(|(name, value)| Remark::Warning(format!("{name}: {value:?} has no equivalent"))),
    );
    objects.documents.extend(routers);
    if !control_plane {
        objects.remarks.extend(remarks);
        return None;
    }
    if bgp && !arp {
        remarks.push(Remark::Warning(
            "kube-vip announces the control plane's address by BGP; `portico vip` holds it at \
             layer 2, so the nodes have to share a network"
                .to_owned(),
        ));
    }
    let mut content = json!({"apiVersion": "portico.dev/v1", "kind": "VipConfiguration"});
    if let (Value::Object(all), Ok(Value::Object(settings))) =
        (&mut content, serde_json::to_value(&given))
    {
        all.extend(settings);
    }
    let documents = vec![Document { remarks, content }];
    Some(File {
        name: "vip.yaml".to_owned(),
        usage: VIP_USAGE.to_owned(),
        documents,
        ..File::default()
    })
}

fn vip(
    environment: &mut Environment,
    spec: &Value,
    container: &Value,
    remarks: &mut Vec<Remark>,
) -> Given {
    let mut given = Given {
        interface: environment.take("vip_interface"),
        ..Given::default()
    };
    let written = [environment.take("address"), environment.take("vip_address")]
        .into_iter()
        .flatten();
    for address in written.flat_map(|list| {
        list.split(',')
            .map(|one| one.trim().to_owned())
            .collect::<Vec<_>>()
    }) {
        match address.parse::<IpAddr>() {
            Ok(address) => given.addresses.get_or_insert_default().push(address),
            Err(_) => remarks.push(Remark::Warning(format!(
                "address: {address:?} is a name: give the address that it stands for"
            ))),
        }
    }
    if given.addresses.is_none() {
        remarks.push(Remark::Warning(
            "there is no address: give `addresses`".to_owned(),
        ));
    }
    given.port = environment.take("port").and_then(|port| port.parse().ok());
    let prefixes = [environment.take("vip_cidr"), environment.take("vip_subnet")]
        .into_iter()
        .flatten();
    for text in prefixes {
        match text.trim_start_matches('/').parse() {
            Ok(prefix) => given.prefix = Some(prefix),
            Err(_) => remarks.push(Remark::Note(format!(
                "prefix {text:?} is left out: the usual one is taken"
            ))),
        }
    }
    if let Some(text) = environment.take("prometheus_server") {
        let written = if text.starts_with(':') {
            format!("0.0.0.0{text}")
        } else {
            text.clone()
        };
        match written.parse() {
            Ok(address) => given.status_address = Some(StatusAddress(Some(address))),
            Err(_) => remarks.push(Remark::Warning(format!(
                "prometheus_server: {text:?} is no address with a port"
            ))),
        }
    }
    if let Some(rate) = environment
        .take("vip_arpRate")
        .and_then(|text| text.parse().ok())
    {
        given.announce_every = Some(Span(Duration::from_millis(rate)));
    }
    given.kubeconfig = Some(kubeconfig(environment, spec, container, remarks).into());
    given
}

/// Where the kubeconfig is on the node: kube-vip knows the path in its container.
fn kubeconfig(
    environment: &mut Environment,
    spec: &Value,
    container: &Value,
    remarks: &mut Vec<Remark>,
) -> String {
    let inside = environment
        .take("k8s_config_file")
        .unwrap_or_else(|| "/etc/kubernetes/admin.conf".to_owned());
    let list = |value: &Value, key: &str| {
        value
            .get(key)
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default()
    };
    let text = |value: &Value, path: &str| {
        value
            .pointer(path)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let mounts = list(container, "volumeMounts");
    let mount = mounts
        .iter()
        .find(|mount| text(mount, "/mountPath") == inside)
        .map(|mount| text(mount, "/name"));
    let volumes = list(spec, "volumes");
    let volume = volumes
        .iter()
        .find(|volume| Some(text(volume, "/name")) == mount);
    match volume
        .map(|volume| text(volume, "/hostPath/path"))
        .filter(|path| !path.is_empty())
    {
        Some(path) => path,
        None => {
            remarks.push(Remark::Note(format!(
                "kubeconfig: no volume has {inside}; it is taken for a path on the node"
            )));
            inside
        }
    }
}

/// What kube-vip does for Services of type LoadBalancer.
fn service_side(environment: &mut Environment, (arp, bgp): (bool, bool), objects: &mut File) {
    let ways: Vec<&str> = [("Layer2", arp), ("BGP", bgp)]
        .into_iter()
        .filter(|way| way.1)
        .map(|way| way.0)
        .collect();
    objects.note(format!(
        "svc_enable: `portico controller --cloud-provider=metal` gives Services addresses of \
         AddressPools and `portico node` announces them ({}). Addresses that statuses show are \
         kept if a pool has them",
        ways.join(", ")
    ));
    let links = environment.take("vip_servicesinterface");
    let named = environment.take("lb_class_name");
    let only = environment
        .is_on("lb_class_only")
        .then(|| "kube-vip.io/kube-vip-class".to_owned());
    if let Some(class) = named.or(only) {
        objects.note(format!(
            "only Services of one class are served: `portico controller --load-balancer-class \
             {class}` does so too"
        ));
    }
    pools::announce(objects, &ways, links.as_deref());
}

fn by_itself(environment: &mut Environment, remarks: &mut Vec<Remark>) {
    for (name, why) in BY_ITSELF {
        if let Some(value) = environment.take(name) {
            remarks.push(Remark::Note(format!("{name}: {value:?}: {why}")));
        }
    }
}
