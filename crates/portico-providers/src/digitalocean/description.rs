//! What people have to know of the provider.

use super::options::DISOWN;
use crate::description::Description;

pub(crate) const DESCRIPTION: Description = Description {
    name: super::NAME,
    summary: "Load balancers of DigitalOcean: regional ones, which connect to node ports, or \
              network ones, which pass packets on.",
    balancers: "`REGIONAL`, `REGIONAL_NETWORK`; external or internal",
    protocols: "TCP, UDP, mixed; HTTP, HTTPS, HTTP/2, HTTP/3",
    families: "IPv4, both",
    local: "HTTP check at the health check node port",
    source_ranges: "firewall of the load balancer",
    affinity: "refused; cookies for HTTP",
    status: "`ip`, `ipMode: VIP` or `Proxy`",
    annotations: &[
        (
            "service.beta.kubernetes.io/do-loadbalancer-name",
            "What its name begins with; the Service's own part comes after a dash.",
        ),
        (
            "service.beta.kubernetes.io/do-loadbalancer-protocol",
            "`tcp` (default), `http`, `https` or `http2`, for all TCP ports that no list names.",
        ),
        (
            "service.beta.kubernetes.io/do-loadbalancer-http-ports",
            "Ports with HTTP, with commas between; also `tls-ports` and `http2-ports`, and one \
             `http3-port`.",
        ),
        (
            "service.beta.kubernetes.io/do-loadbalancer-certificate-id",
            "TLS ends at the load balancer; `certificate-name` in its place follows renewals. \
             Without lists of ports, at 443.",
        ),
        (
            "service.beta.kubernetes.io/do-loadbalancer-tls-passthrough",
            "`true`: TLS goes through to the endpoints.",
        ),
        (
            "service.beta.kubernetes.io/do-loadbalancer-enable-proxy-protocol",
            "`true`: the client's address goes ahead of its bytes (`ipMode: Proxy`).",
        ),
        (
            "service.beta.kubernetes.io/do-loadbalancer-redirect-http-to-https",
            "`true`; also `enable-backend-keepalive` and `disable-lets-encrypt-dns-records`.",
        ),
        (
            "service.beta.kubernetes.io/do-loadbalancer-sticky-sessions-type",
            "`cookies`, with `sticky-sessions-cookie-name` and `sticky-sessions-cookie-ttl` \
             (seconds).",
        ),
        (
            "service.beta.kubernetes.io/do-loadbalancer-http-idle-timeout-seconds",
            "30 to 600.",
        ),
        (
            "service.beta.kubernetes.io/do-loadbalancer-size-unit",
            "1 to 100: nodes of the load balancer. Without it, the size stays what it is.",
        ),
        (
            "service.beta.kubernetes.io/do-loadbalancer-type",
            "`REGIONAL` (default) or `REGIONAL_NETWORK`. Only for a new one.",
        ),
        (
            "service.beta.kubernetes.io/do-loadbalancer-network",
            "`EXTERNAL` (default) or `INTERNAL`. Only for a new one.",
        ),
        (
            "service.beta.kubernetes.io/do-loadbalancer-allow-rules",
            "`ip:192.0.2.1,cidr:198.51.100.0/24`, where the Service has no source ranges; also \
             `deny-rules`.",
        ),
        (
            "service.beta.kubernetes.io/do-loadbalancer-healthcheck-check-interval-seconds",
            "3 to 300; also `healthcheck-response-timeout-seconds`, and \
             `healthcheck-unhealthy-threshold` and `healthcheck-healthy-threshold` (2 to 10).",
        ),
        (
            "service.beta.kubernetes.io/do-loadbalancer-override-health-check",
            "Anything: `healthcheck-port` (of the Service), `healthcheck-protocol` (`tcp`, \
             `http`, `https`) and `healthcheck-path` count.",
        ),
        (
            "service.beta.kubernetes.io/do-loadbalancer-hostname",
            "A name for the status, in place of the addresses.",
        ),
        (
            DISOWN,
            "`true`: the load balancer is another's, and is neither changed nor deleted.",
        ),
    ],
    limits: &[
        "No SCTP, no `sessionAffinity: ClientIP`, no `loadBalancerIP`; a Service with IPv6 alone \
         is refused.",
        "Health checks ask by TCP or HTTP; UDP ports are checked by the nodes' HTTP answers too.",
        "`externalTrafficPolicy: Local` needs a health-check node port.",
        "Type, network, VPC and IP families of a load balancer cannot change; its size can once \
         an hour.",
        "5000 requests an hour for an account: with more than 500 load balancers, a longer \
         `--resync-period` than 10 minutes is needed.",
    ],
    page: Some("digitalocean.md"),
};
