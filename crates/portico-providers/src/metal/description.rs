//! What people have to know of the provider.

use crate::description::Description;

pub(crate) const DESCRIPTION: Description = Description {
    name: "metal",
    summary: "Addresses out of AddressPools, which Portico's own nodes announce at layer 2 or by \
              BGP: no cloud and no other program is needed.",
    balancers: "the nodes themselves",
    protocols: "TCP, UDP, SCTP",
    families: "IPv4, IPv6, both",
    local: "only nodes with endpoints announce",
    source_ranges: "by the nodes",
    affinity: "by the nodes",
    status: "`ip`, `ipMode: VIP`",
    annotations: &[
        (
            "portico.dev/addresses",
            "Addresses it is to have, at most one of a family. Also as \
             `metallb.io/loadBalancerIPs`, `kube-vip.io/loadbalancerIPs`, or \
             `spec.loadBalancerIP`.",
        ),
        (
            "portico.dev/address-pool",
            "The pool its addresses are to come from. Also as `metallb.io/address-pool`.",
        ),
        (
            "portico.dev/allow-shared-ip",
            "Services with the same value may share an address if their ports differ. Also as \
             `metallb.io/allow-shared-ip`.",
        ),
    ],
    limits: &["Layer 2: one node at a time carries an address."],
    page: None,
};
