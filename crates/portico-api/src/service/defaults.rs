//! What is filled in where a request says nothing. Address families are not here: they depend on
//! the cluster and on the stored object, and are settled during allocation.

use super::types::*;
use crate::gates::Gates;

/// Three hours.
const AFFINITY_TIMEOUT_SECONDS: i32 = 10800;

pub(crate) fn set(service: &mut Service, gates: &Gates) {
    let spec = &mut service.spec;
    affinity(spec);
    if spec.type_.is_empty() {
        spec.type_ = CLUSTER_IP.to_owned();
    }
    spec.ports.iter_mut().for_each(port);
    policies(spec);
    if spec.is_load_balancer() {
        spec.allocate_load_balancer_node_ports.get_or_insert(true);
        if gates.load_balancer_ip_mode {
            ip_modes(&mut service.status);
        }
    }
    // The switch of KEP-4144 is true by default, and is shown where it has a meaning: nothing but a
    // LoadBalancer with local traffic has a health-check port.
    if gates.service_lb_health_check_node_port_control && spec.needs_health_check() {
        spec.allocate_load_balancer_hc_node_port.get_or_insert(true);
    }
}

fn affinity(spec: &mut ServiceSpec) {
    if spec.session_affinity.is_empty() {
        spec.session_affinity = NONE.to_owned();
    }
    if spec.session_affinity == NONE {
        spec.session_affinity_config = None;
    }
    if spec.session_affinity == CLIENT_IP {
        let config = spec
            .session_affinity_config
            .get_or_insert_default()
            .client_ip
            .get_or_insert_default();
        config
            .timeout_seconds
            .get_or_insert(AFFINITY_TIMEOUT_SECONDS);
    }
}

fn port(port: &mut ServicePort) {
    if port.protocol.is_empty() {
        port.protocol = "TCP".to_owned();
    }
    if port.target_port == IntOrString::Int(0)
        || port.target_port == IntOrString::String(String::new())
    {
        port.target_port = IntOrString::Int(port.port);
    }
}

fn policies(spec: &mut ServiceSpec) {
    if spec.is_externally_accessible() && spec.external_traffic_policy.is_empty() {
        spec.external_traffic_policy = CLUSTER.to_owned();
    }
    if spec.has_node_ports() || spec.type_ == CLUSTER_IP {
        spec.internal_traffic_policy
            .get_or_insert_with(|| CLUSTER.to_owned());
    }
}

/// An address without a mode is a VIP (KEP-1860). True if one was filled in.
pub(crate) fn ip_modes(status: &mut ServiceStatus) -> bool {
    let without = status
        .load_balancer
        .ingress
        .iter_mut()
        .filter(|point| !point.ip.is_empty() && point.ip_mode.is_none());
    without
        .map(|point| point.ip_mode = Some(VIP.to_owned()))
        .count()
        > 0
}
