//! The provider in words.

use super::super::description::Description;

pub(crate) const DESCRIPTION: Description = Description {
    name: "haproxy",
    summary: "A HAProxy on the controller's own machine, which follows the API through its socket \
              without ending a connection.",
    balancers: "sections of one HAProxy",
    protocols: "TCP",
    families: "IPv4, IPv6, both",
    local: "nodes with endpoints, asked at their health-check port",
    source_ranges: "by HAProxy",
    affinity: "by HAProxy, also over reloads",
    status: "`ip` (or `hostname`), `ipMode: Proxy`",
    annotations: &[
        (
            "portico.dev/proxy-protocol",
            "`v1` or `v2`: endpoints are told who the client is in a header of the PROXY protocol.",
        ),
        (
            "portico.dev/targets",
            "`nodes` (their node ports) or `endpoints`, for a HAProxy that reaches them.",
        ),
        (
            "portico.dev/balance",
            "`leastconn` (unless it is given), `roundrobin` or `random`.",
        ),
        (
            "portico.dev/idle-timeout",
            "After how long without a byte a connection is ended, `1s` to `24h`.",
        ),
        (
            "portico.dev/addresses",
            "Which of HAProxy's addresses it is to have. Also as `spec.loadBalancerIP`.",
        ),
    ],
    limits: &[
        "UDP and SCTP are refused: HAProxy forwards TCP.",
        "Services share addresses, so that a port can be had once for each of them.",
        "A new port, source range or option is a reload; connections that are open stay with the \
         worker that has them, for `drainTimeout` at most.",
    ],
    page: Some("haproxy.md"),
};
