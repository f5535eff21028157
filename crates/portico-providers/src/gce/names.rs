//! What everything is called: names follow from the Service's uid or the cluster's id, so that
//! everything is found again. They are those of the other controllers of Kubernetes for this cloud,
//! whose load balancers are taken over as they are.

use serde_json::json;

use crate::Request;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Names {
    /// The name of the address, the forwarding rule, the target pool, and the health check of a
    /// `Local` Service.
    pub balancer: String,
    pub firewall: String,
    /// Lets the health checkers in to the port of [`Names::balancer`]'s check.
    pub own_firewall: String,
    /// The name of the health check that all Services with policy `Cluster` share.
    pub shared_check: String,
    pub shared_firewall: String,
}

impl Names {
    pub(super) fn new(balancer: &str, cluster_id: &str) -> Self {
        Self {
            balancer: balancer.to_owned(),
            firewall: format!("k8s-fw-{balancer}"),
            own_firewall: format!("k8s-{balancer}-http-hc"),
            shared_check: format!("k8s-{cluster_id}-node"),
            shared_firewall: format!("k8s-{cluster_id}-node-http-hc"),
        }
    }
}

/// Descriptions, for people and other programs.
pub(super) fn of_service(request: &Request) -> String {
    json!({"kubernetes.io/service-name": request.service.to_string()}).to_string()
}

pub(super) fn of_firewall(request: &Request, address: &str) -> String {
    json!({"kubernetes.io/service-name": request.service.to_string(), "kubernetes.io/service-ip": address}).to_string()
}

pub(super) fn of_cluster(cluster_id: &str) -> String {
    json!({"kubernetes.io/cluster-id": cluster_id}).to_string()
}
