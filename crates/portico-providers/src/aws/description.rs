//! What people have to know of the provider.

use crate::description::Description;

pub(crate) const DESCRIPTION: Description = Description {
    name: "aws",
    summary: "Network Load Balancers, or classic ones, in Amazon's cloud; instances are targets, \
              and their node ports are open to the balancer alone.",
    balancers: "network (default), classic",
    protocols: "TCP, UDP, both on one port; classic: TCP",
    families: "IPv4",
    local: "HTTP check on the Service's health-check node port",
    source_ranges: "by the balancer's security group",
    affinity: "network: source address; classic: refused",
    status: "`hostname`",
    annotations: &[
        (
            "service.beta.kubernetes.io/aws-load-balancer-type",
            "`nlb` (as without it) or `classic`; `external` and `nlb-ip` leave the Service to \
             another controller. Not to be changed later.",
        ),
        (
            "service.beta.kubernetes.io/aws-load-balancer-internal",
            "`true`: only inside the VPC. Not to be changed later.",
        ),
        (
            "service.beta.kubernetes.io/aws-load-balancer-subnets",
            "Ids or `Name` tags of subnets, with commas between. Read when the balancer is made.",
        ),
        (
            "service.beta.kubernetes.io/aws-load-balancer-eip-allocations",
            "Elastic addresses, one for each subnet (network). Read when the balancer is made.",
        ),
        (
            "service.beta.kubernetes.io/aws-load-balancer-proxy-protocol",
            "`*`: connections to nodes begin with who the client is (PROXY protocol; network: \
             version 2, classic: version 1).",
        ),
        (
            "service.beta.kubernetes.io/aws-load-balancer-cross-zone-load-balancing-enabled",
            "`true`: every zone of the balancer sends to the nodes of all zones.",
        ),
        (
            "service.beta.kubernetes.io/aws-load-balancer-additional-resource-tags",
            "`key=value,key=value`: tags for everything that is made.",
        ),
        (
            "service.beta.kubernetes.io/aws-load-balancer-healthcheck-interval",
            "Seconds from 5 to 300; 10 without it. Another one makes new target groups.",
        ),
        (
            "service.beta.kubernetes.io/aws-load-balancer-healthcheck-timeout",
            "Seconds from 2 to 60, less than the interval; 5 without it.",
        ),
        (
            "service.beta.kubernetes.io/aws-load-balancer-healthcheck-healthy-threshold",
            "Answers that make a node healthy, from 2 to 10; 2 without it.",
        ),
        (
            "service.beta.kubernetes.io/aws-load-balancer-healthcheck-unhealthy-threshold",
            "Answers that make a node unhealthy, from 2 to 10; 2 without it.",
        ),
        (
            "service.beta.kubernetes.io/aws-load-balancer-connection-draining-enabled",
            "`true`: connections to a node that goes may end (classic), within \
             `…-connection-draining-timeout` seconds, 300 without it.",
        ),
        (
            "service.beta.kubernetes.io/aws-load-balancer-connection-idle-timeout",
            "Seconds after which a connection without traffic is closed (classic), from 1 to \
             4000; 60 without it.",
        ),
    ],
    limits: &[
        "A network load balancer has at most 50 listeners, a classic one 100.",
        "No TLS at the balancer, no IPv6, no `loadBalancerIP`.",
        "Each Service takes a rule for each port and one for health in the security group of the \
         nodes: the vendor's quota is 60 by default.",
    ],
    page: Some("aws.md"),
};
