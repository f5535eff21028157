//! What people have to know of the provider.

use super::wanted::{ELSEWHERE, KIND, TIER};
use crate::description::Description;

pub(crate) const DESCRIPTION: Description = Description {
    name: super::NAME,
    summary: "Google Compute Engine: a forwarding rule to a target pool of instances, with \
              firewalls and HTTP health checks of the nodes.",
    balancers: "external passthrough, by target pools",
    protocols: "TCP or UDP",
    families: "IPv4",
    local: "health check of its own",
    source_ranges: "firewall",
    affinity: "`CLIENT_IP`, without time",
    status: "`ip`, `ipMode: VIP`",
    annotations: &[
        (
            TIER,
            "`Premium` (default) or `Standard`: the network tier of the address.",
        ),
        (
            KIND[0],
            "`Internal` is refused, also as `cloud.google.com/load-balancer-type`.",
        ),
        (
            ELSEWHERE,
            "`enabled`: another controller makes the load balancer, and this one leaves it alone.",
        ),
    ],
    limits: &[
        "One protocol for a load balancer: TCP and UDP want two Services with the same \
         `loadBalancerIP`.",
        "`loadBalancerIP` has to be an address that is reserved in the region.",
        "No SCTP, no IPv6, no internal load balancers.",
        "`externalTrafficPolicy: Local` needs a health-check node port.",
    ],
    page: Some("gce.md"),
};
