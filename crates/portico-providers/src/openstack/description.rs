//! What people have to know of the provider.

use crate::description::Description;

pub(crate) const DESCRIPTION: Description = Description {
    name: "openstack",
    summary: "Load balancers of Octavia with floating IPs of Neutron.",
    balancers: "Octavia (amphora, ovn and others)",
    protocols: "TCP, UDP, SCTP, mixed",
    families: "IPv4 (floating or internal), IPv6, both",
    local: "HTTP monitor at the health check node port",
    source_ranges: "allowed CIDRs of listeners",
    affinity: "`SOURCE_IP` of pools",
    status: "`ip`, `ipMode: VIP` or `Proxy`",
    annotations: &[
        (
            "service.beta.kubernetes.io/openstack-internal-load-balancer",
            "`true`: no floating IP, only the address in its subnet.",
        ),
        (
            "loadbalancer.openstack.org/proxy-protocol",
            "`true` or `v1`, or `v2`: the client's address goes ahead of its bytes (TCP).",
        ),
        (
            "loadbalancer.openstack.org/x-forwarded-for",
            "`true`: HTTP listeners that add the client's address.",
        ),
        (
            "loadbalancer.openstack.org/default-tls-container-ref",
            "A certificate in Barbican: listeners that terminate TLS.",
        ),
        (
            "loadbalancer.openstack.org/lb-method",
            "`ROUND_ROBIN`, `LEAST_CONNECTIONS`, `SOURCE_IP` or `SOURCE_IP_PORT`.",
        ),
        (
            "loadbalancer.openstack.org/connection-limit",
            "Connections of each listener; -1 is no limit.",
        ),
        (
            "loadbalancer.openstack.org/timeout-client-data",
            "Milliseconds; also `timeout-member-connect`, `timeout-member-data` and \
             `timeout-tcp-inspect`.",
        ),
        (
            "loadbalancer.openstack.org/enable-health-monitor",
            "`true` or `false`: whether nodes are asked for their health.",
        ),
        (
            "loadbalancer.openstack.org/health-monitor-delay",
            "Seconds; also `health-monitor-timeout`, `health-monitor-max-retries` and \
             `health-monitor-max-retries-down`.",
        ),
        (
            "loadbalancer.openstack.org/class",
            "A `[LoadBalancerClass]` of cloud.conf, whose networks come before annotations.",
        ),
        (
            "loadbalancer.openstack.org/subnet-id",
            "Where its own address is from; also `network-id`, `port-id`, and `member-subnet-id` \
             for the nodes.",
        ),
        (
            "loadbalancer.openstack.org/floating-network-id",
            "Where its floating IP is from; also `floating-subnet-id`.",
        ),
        (
            "loadbalancer.openstack.org/keep-floatingip",
            "`true`: the floating IP outlives the Service.",
        ),
        (
            "loadbalancer.openstack.org/flavor-id",
            "Octavia's flavor; also `availability-zone`. Only for a new one.",
        ),
        (
            "loadbalancer.openstack.org/hostname",
            "A name for the status in place of addresses.",
        ),
    ],
    limits: &[
        "`ipMode` is `Proxy` with the PROXY protocol, `X-Forwarded-For` or TLS, which what goes \
         past the balancer would lose.",
        "Octavia's API 2.12 or newer (2.16 for UDP, 2.26 for both IP families).",
        "The driver `ovn` has no source ranges, PROXY protocol, TLS or HTTP monitors: nodes are \
         asked by connecting to the node port.",
        "Subnet, port, flavor and zone of a load balancer are those it was created with.",
    ],
    page: Some("openstack.md"),
};
