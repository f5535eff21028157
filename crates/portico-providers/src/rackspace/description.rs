//! What people have to know of the provider.

use super::wanted::{ALGORITHM, INTERNAL, TIMEOUT};
use crate::description::Description;

pub(crate) const DESCRIPTION: Description = Description {
    name: super::NAME,
    summary: "Rackspace Cloud Load Balancers: one for each port of a Service, which share its \
              address.",
    balancers: "proxies of TCP and UDP, one for each port",
    protocols: "TCP, UDP, mixed",
    families: "IPv4, IPv6, both; IPv4 on ServiceNet",
    local: "only nodes with endpoints",
    source_ranges: "access list",
    affinity: "`SOURCE_IP`, without time",
    status: "`ip`, `ipMode: Proxy`",
    annotations: &[
        (
            INTERNAL,
            "`true`: an address of ServiceNet, which only machines of the region reach.",
        ),
        (
            ALGORITHM,
            "`RANDOM` (default), `ROUND_ROBIN` or `LEAST_CONNECTIONS`.",
        ),
        (
            TIMEOUT,
            "Seconds after which an idle connection ends: 1 to 120, 30 by default.",
        ),
    ],
    limits: &[
        "25 nodes in a load balancer, and 25 load balancers in an account, if the vendor has not \
         raised it (`node-limit`).",
        "100 source ranges.",
        "Nodes are asked for their health at the node port, by a connection (TCP only): the cloud \
         can ask nowhere else.",
        "Pods see the load balancer as the client: the cloud connects to nodes from addresses of \
         its own.",
        "`loadBalancerIP` has to be an address that a load balancer of the account has already, \
         which is then shared.",
        "The families and the kind of address of a Service cannot be changed. No SCTP.",
    ],
    page: Some("rackspace.md"),
};
