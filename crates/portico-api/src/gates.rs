//! Feature gates: `--feature-gates=Name=bool,...`.

/// Which features are on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gates {
    /// KEP-4144: `spec.allocateLoadBalancerHCNodePort`.
    pub service_lb_health_check_node_port_control: bool,
    /// KEP-1860: `status.loadBalancer.ingress[].ipMode`.
    pub load_balancer_ip_mode: bool,
}

impl Default for Gates {
    fn default() -> Self {
        Self { service_lb_health_check_node_port_control: true, load_balancer_ip_mode: true }
    }
}
