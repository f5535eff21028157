//! What an update means where it says little: values that the server assigned are kept, values that
//! lost their meaning with a change of type are dropped unless the client changed them too.

use super::types::*;
use crate::gates::Gates;
use std::collections::{BTreeMap, BTreeSet};

/// Clients may leave out the addresses that were assigned for them.
pub fn keep_assigned_addresses(new: &mut ServiceSpec, old: &ServiceSpec) {
    if old.has_cluster_ip() && new.has_cluster_ip() {
        if new.cluster_ip.is_empty() {
            new.cluster_ip.clone_from(&old.cluster_ip);
        }
        if new.cluster_ips.is_empty() {
            new.cluster_ips.clone_from(&old.cluster_ips);
        }
    }
}

/// Clients may leave out node ports (known by the name of their port) and the health-check port
/// that were assigned for them.
pub fn keep_assigned_ports(new: &mut ServiceSpec, old: &ServiceSpec) {
    if old.assigns_node_ports() && new.assigns_node_ports() {
        keep_node_ports(new, old);
    }
    // Under KEP-4144 leaving the port out is how it is given up, once assignment is off.
    if old.needs_health_check()
        && new.assigns_health_check_port()
        && new.health_check_node_port == 0
    {
        new.health_check_node_port = old.health_check_node_port;
    }
}

fn keep_node_ports(new: &mut ServiceSpec, old: &ServiceSpec) {
    let in_both: BTreeSet<i32> = &node_ports(old) & &node_ports(new);
    let by_name: BTreeMap<&str, i32> = old
        .ports
        .iter()
        .map(|port| (port.name.as_str(), port.node_port))
        .collect();
    for port in new.ports.iter_mut().filter(|port| port.node_port == 0) {
        if let Some(kept) = by_name
            .get(port.name.as_str())
            .filter(|kept| !in_both.contains(kept))
        {
            port.node_port = *kept;
        }
    }
}

/// The node ports that the ports name.
pub fn node_ports(spec: &ServiceSpec) -> BTreeSet<i32> {
    spec.ports
        .iter()
        .map(|port| port.node_port)
        .filter(|&port| port != 0)
        .collect()
}

/// Bring `clusterIP` and `clusterIPs` in line for clients that know only the first.
pub fn align_cluster_ips(new: &mut ServiceSpec, old: Option<&ServiceSpec>) {
    let Some(old) = old else {
        if !new.cluster_ip.is_empty() && new.cluster_ips.is_empty() {
            new.cluster_ips = vec![new.cluster_ip.clone()];
        }
        return;
    };
    if new.cluster_ip == old.cluster_ip {
        if new.cluster_ips.is_empty() {
            new.cluster_ips.clone_from(&old.cluster_ips);
        }
    } else if new.cluster_ips == old.cluster_ips {
        // The first one was changed or cleared alone: an address in the list follows it.
        new.cluster_ips = Some(new.cluster_ip.clone())
            .filter(|ip| !ip.is_empty())
            .into_iter()
            .collect();
    }
}

/// Drop what belongs to a type or policy that the Service had and has no more. A value that the
/// client changed in the same breath stays, for validation to refuse.
pub fn drop_outlived(new: &mut Service, old: &Service) {
    let (spec, was) = (&mut new.spec, &old.spec);
    if was.has_cluster_ip() && !spec.has_cluster_ip() {
        drop_addresses(spec, was);
    }
    if was.has_node_ports()
        && !spec.has_node_ports()
        && node_ports(was).is_superset(&node_ports(spec))
    {
        spec.ports.iter_mut().for_each(|port| port.node_port = 0);
    }
    if was.needs_health_check() && !spec.needs_health_check() {
        drop_health_check(spec, was);
    }
    if was.is_load_balancer() && !spec.is_load_balancer() {
        drop_same(
            &mut spec.allocate_load_balancer_node_ports,
            &was.allocate_load_balancer_node_ports,
        );
        drop_same(
            &mut spec.allocate_load_balancer_hc_node_port,
            &was.allocate_load_balancer_hc_node_port,
        );
        drop_same(&mut spec.load_balancer_class, &was.load_balancer_class);
    }
    if was.is_externally_accessible()
        && !spec.is_externally_accessible()
        && spec.external_traffic_policy == was.external_traffic_policy
    {
        spec.external_traffic_policy.clear();
    }
    if !spec.is_load_balancer() {
        new.status.load_balancer = LoadBalancerStatus::default();
    }
}

fn drop_same<T: PartialEq>(new: &mut Option<T>, old: &Option<T>) {
    if new == old {
        *new = None;
    }
}

fn drop_addresses(spec: &mut ServiceSpec, was: &ServiceSpec) {
    if spec.cluster_ip == was.cluster_ip && spec.cluster_ips == was.cluster_ips {
        spec.cluster_ip.clear();
        spec.cluster_ips.clear();
    }
    if spec.ip_families == was.ip_families {
        spec.ip_families.clear();
    }
    drop_same(&mut spec.ip_family_policy, &was.ip_family_policy);
}

fn drop_health_check(spec: &mut ServiceSpec, was: &ServiceSpec) {
    if spec.health_check_node_port == was.health_check_node_port {
        spec.health_check_node_port = 0;
    }
    // The default goes with what it was the default for; a false that a client wrote stays for the
    // next time.
    if spec.allocate_load_balancer_hc_node_port == Some(true) {
        drop_same(
            &mut spec.allocate_load_balancer_hc_node_port,
            &was.allocate_load_balancer_hc_node_port,
        );
    }
}

/// An ExternalName has no traffic inside the cluster to steer: a good policy is not kept, a bad one
/// is left to be refused.
pub fn drop_unused_internal_policy(spec: &mut ServiceSpec) {
    if spec.is_external_name()
        && matches!(
            spec.internal_traffic_policy.as_deref(),
            Some(CLUSTER | LOCAL)
        )
    {
        spec.internal_traffic_policy = None;
    }
}

/// A field whose gate is off cannot come into use; a Service that has it keeps it and may change
/// it.
pub fn drop_disabled(new: &mut ServiceSpec, old: Option<&ServiceSpec>, gates: &Gates) {
    let in_use = old.is_some_and(|old| old.allocate_load_balancer_hc_node_port.is_some());
    if !gates.service_lb_health_check_node_port_control && !in_use {
        new.allocate_load_balancer_hc_node_port = None;
    }
}

/// The same for the status.
pub fn drop_disabled_status(new: &mut ServiceStatus, old: &ServiceStatus, gates: &Gates) {
    let in_use = old
        .load_balancer
        .ingress
        .iter()
        .any(|point| point.ip_mode.is_some());
    if !gates.load_balancer_ip_mode && !in_use {
        new.load_balancer
            .ingress
            .iter_mut()
            .for_each(|point| point.ip_mode = None);
    }
}
