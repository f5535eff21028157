//! What a Service wants of the cloud: what a load balancer is to be, what it is to become, and what
//! it is to the world. Pure.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::api::{Firewall, HealthCheck, LoadBalancer, Rule, Spec};
use super::options::{INTERNAL, NETWORK, Options, PREFIX};
use crate::cloud::refused;
use crate::{
    Balancer, Family, Host, Ingress, IpMode, Node, Port, Protocol, ProviderError, Request,
};

const ID: &str = "digitalocean://";
const AGAIN: &str = "delete and create the Service to change it";

/// What a Service asks for, with all that is needed to say what follows from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub droplets: BTreeSet<u64>,
    request: Request,
    options: Options,
    /// Its id, found by now.
    certificate: Option<String>,
    vpc: Option<String>,
}

impl Wanted {
    /// `certificate` is the id for `options.certificate`.
    pub(super) fn new(
        request: &Request,
        options: Options,
        certificate: Option<String>,
        vpc: Option<&str>,
    ) -> Result<Self, ProviderError> {
        check(request, &options)?;
        let (request, vpc) = (request.clone(), vpc.map(str::to_owned));
        Ok(Self {
            droplets: droplets(&request)?,
            request,
            options,
            certificate,
            vpc,
        })
    }

    /// The specification of a load balancer that does not exist yet.
    pub(super) fn made(&self) -> Result<Spec, ProviderError> {
        let kind = self.options.new_kind();
        let network = self
            .options
            .network
            .clone()
            .unwrap_or_else(|| "EXTERNAL".to_owned());
        let spec = self.spec(kind)?;
        Ok(Spec {
            vpc_uuid: self.vpc.clone(),
            network_stack: Some(
                if self.has_ipv6(kind) {
                    "DUALSTACK"
                } else {
                    "IPV4"
                }
                .to_owned(),
            ),
            network: Some(network),
            kind: Some(kind.to_owned()),
            ..spec
        })
    }

    /// What one that exists has to become; `None` if it is as it should be. What the Service does
    /// not speak of stays.
    pub(super) fn change(&self, found: &LoadBalancer) -> Result<Option<Spec>, ProviderError> {
        self.check_unchangeable(found)?;
        let (old, spec) = (&found.spec, self.spec(self.kind(found))?);
        let spec = Spec {
            size_unit: spec.size_unit.or(old.size_unit),
            http_idle_timeout_seconds: spec
                .http_idle_timeout_seconds
                .or(old.http_idle_timeout_seconds),
            vpc_uuid: old.vpc_uuid.clone(),
            project_id: old.project_id.clone(),
            tls_cipher_policy: old.tls_cipher_policy.clone(),
            kind: old.kind.clone(),
            network: old.network.clone(),
            network_stack: old.network_stack.clone(),
            health_check: HealthCheck {
                path: spec
                    .health_check
                    .path
                    .or_else(|| old.health_check.path.clone()),
                ..spec.health_check
            },
            ..spec
        };
        let mut seen = old.clone();
        // Not every answer tells it, and not every Service asks for it.
        let (told, asked) = (
            &mut seen.health_check.proxy_protocol,
            spec.health_check.proxy_protocol,
        );
        if told.is_none() || asked.is_none() {
            *told = asked;
        }
        Ok((seen != spec).then_some(spec))
    }

    /// The load balancer as the Service's status shows it. One that is not ready has no address
    /// yet, unless the status has it already.
    pub(super) fn status(&self, found: &LoadBalancer) -> Balancer {
        let mode = if self.alters_traffic(found) {
            IpMode::Proxy
        } else {
            IpMode::Vip
        };
        let fits =
            |address: &IpAddr| address.is_ipv4() || self.request.families.contains(&Family::V6);
        let addresses = [&found.ip, &found.ipv6]
            .into_iter()
            .filter_map(|text| text.parse().ok())
            .filter(fits);
        let mut ingress: Vec<Ingress> = match &self.options.hostname {
            Some(name) => vec![Ingress {
                host: Host::Name(name.clone()),
                mode: IpMode::Vip,
            }],
            None => addresses
                .map(|address| Ingress {
                    host: Host::Ip(address),
                    mode,
                })
                .collect(),
        };
        if found.is_ready() {
            return Balancer {
                ingress,
                pending: None,
            };
        }
        ingress.retain(|new| {
            self.request
                .ingress
                .iter()
                .any(|known| known.host == new.host)
        });
        Balancer {
            ingress,
            pending: Some(format!("{found} is {}", found.status)),
        }
    }

    /// Whether what goes past the balancer would miss something that it adds or takes away.
    fn alters_traffic(&self, found: &LoadBalancer) -> bool {
        let plain = |rule: &Rule| {
            ["tcp", "udp"].contains(&rule.entry_protocol.as_str()) || rule.tls_passthrough
        };
        found.spec.enable_proxy_protocol || !found.spec.forwarding_rules.iter().all(plain)
    }

    fn kind<'a>(&'a self, found: &'a LoadBalancer) -> &'a str {
        found
            .spec
            .kind
            .as_deref()
            .unwrap_or(self.options.new_kind())
    }

    /// What it was created with.
    fn check_unchangeable(&self, found: &LoadBalancer) -> Result<(), ProviderError> {
        let pairs = [
            ("type", &self.options.kind, &found.spec.kind),
            ("network", &self.options.network, &found.spec.network),
        ];
        for (name, wanted, has) in pairs {
            if let (Some(wanted), Some(has)) = (wanted, has)
                && wanted != has
            {
                return Err(refused(
                    "CannotChange",
                    format!("{found} has the {name} {has}, not {wanted}: {AGAIN}"),
                ));
            }
        }
        let has_ipv6 = found.spec.network_stack.as_deref() == Some("DUALSTACK");
        if self.request.require_all_families
            && self.request.families.contains(&Family::V6)
            && !has_ipv6
        {
            return Err(refused(
                "CannotChange",
                format!("{found} has no IPv6 address: {AGAIN}"),
            ));
        }
        Ok(())
    }

    /// Packets that are passed through want nodes of both families.
    fn has_ipv6(&self, kind: &str) -> bool {
        let has = |node: &Node| node.addresses.iter().any(IpAddr::is_ipv6);
        let possible = self.options.network.as_deref() != Some(INTERNAL);
        let served = kind != NETWORK || self.request.nodes.iter().all(has);
        possible && served && self.request.families.contains(&Family::V6)
    }

    fn spec(&self, kind: &str) -> Result<Spec, ProviderError> {
        let (options, request) = (&self.options, &self.request);
        if kind == NETWORK && (options.proxy || options.redirect || options.sticky.kind != "none") {
            let message = format!(
                "{NETWORK} load balancers pass packets on as they are: no PROXY, redirects or \
                 cookies"
            );
            return Err(refused("NotSupported", message));
        }
        let rules = request
            .ports
            .iter()
            .map(|port| self.rule(port, kind))
            .collect::<Result<BTreeSet<Rule>, _>>()?;
        Ok(Spec {
            name: name(request, options),
            forwarding_rules: rules.into_iter().chain(self.http3()?).collect(),
            health_check: self.health_check()?,
            droplet_ids: self.droplets.clone(),
            firewall: firewall(request, options),
            sticky_sessions: options.sticky.clone(),
            redirect_http_to_https: options.redirect,
            enable_proxy_protocol: options.proxy,
            enable_backend_keepalive: options.keepalive,
            disable_lets_encrypt_dns_records: options.no_dns_records,
            http_idle_timeout_seconds: options.idle_timeout,
            size_unit: options.size_unit,
            ..Spec::default()
        })
    }

    fn rule(&self, port: &Port, kind: &str) -> Result<Rule, ProviderError> {
        let protocol = match port.protocol {
            Protocol::Tcp => self
                .options
                .protocols
                .get(&port.port)
                .copied()
                .unwrap_or(&self.options.protocol),
            Protocol::Udp => "udp",
            Protocol::Sctp => {
                let message = format!(
                    "port {}: the cloud's load balancers carry TCP and UDP, not SCTP",
                    port.port
                );
                return Err(refused("ProtocolNotSupported", message));
            }
        };
        let plain = Rule {
            entry_protocol: protocol.to_owned(),
            entry_port: port.port,
            target_protocol: protocol.to_owned(),
            // Packets that are passed through keep their port.
            target_port: if kind == NETWORK {
                port.port
            } else {
                port.node_port
            },
            ..Rule::default()
        };
        if plain.target_port == 0 {
            let message = format!(
                "port {} has no node port: set allocateLoadBalancerNodePorts to true",
                port.port
            );
            return Err(refused("NodePortNeeded", message));
        }
        if kind == NETWORK && !["tcp", "udp"].contains(&protocol) {
            let message = format!(
                "port {}: {NETWORK} load balancers know TCP and UDP, not {protocol}",
                port.port
            );
            return Err(refused("NotSupported", message));
        }
        match (protocol, &self.certificate) {
            ("tcp" | "udp" | "http", _) => Ok(plain),
            _ if self.options.passthrough => Ok(Rule {
                tls_passthrough: true,
                ..plain
            }),
            (_, Some(id)) => Ok(Rule {
                certificate_id: id.clone(),
                target_protocol: "http".to_owned(),
                ..plain
            }),
            (_, None) => {
                let ways = "certificate-id, certificate-name or tls-passthrough";
                let message = format!(
                    "port {} has {protocol}, which needs the annotation {PREFIX}{ways}",
                    port.port
                );
                Err(refused("CertificateNeeded", message))
            }
        }
    }

    /// Beside TLS on the same port, by UDP.
    fn http3(&self) -> Result<Option<Rule>, ProviderError> {
        let Some(number) = self.options.http3 else {
            return Ok(None);
        };
        let port = self
            .request
            .ports
            .iter()
            .find(|port| port.port == number && port.protocol == Protocol::Tcp);
        let (Some(port), Some(id)) = (port, &self.certificate) else {
            let message = format!(
                "{PREFIX}http3-port: {number} needs a TCP port of that number, and a certificate"
            );
            return Err(refused("InvalidAnnotation", message));
        };
        Ok(Some(Rule {
            entry_protocol: "http3".to_owned(),
            entry_port: number,
            target_protocol: "http".to_owned(),
            target_port: port.node_port,
            certificate_id: id.clone(),
            tls_passthrough: false,
        }))
    }

    /// What the Service chose; else where nodes answer for it (`Local`) or for themselves. These
    /// answers know no PROXY.
    fn health_check(&self) -> Result<HealthCheck, ProviderError> {
        let check = self.options.check.clone();
        if !check.protocol.is_empty() {
            return Ok(check);
        }
        let Some(asked) = &self.request.health_check else {
            let message = "externalTrafficPolicy: Local needs a health-check node port: set \
                           allocateLoadBalancerHCNodePort to true, or use Cluster";
            return Err(refused("HealthCheckPortNeeded", message));
        };
        let proxy_protocol = self.options.proxy.then_some(false);
        let (port, path) = (asked.port, Some(asked.path.clone()));
        Ok(HealthCheck {
            protocol: "http".to_owned(),
            port,
            path,
            proxy_protocol,
            ..check
        })
    }
}

/// Whether a load balancer belongs to the Service, by its name alone: the vendor has no other mark.
pub(super) fn is_ours(name: &str, request: &Request) -> bool {
    name.strip_suffix(&request.balancer_name)
        .is_some_and(|label| label.is_empty() || label.ends_with('-'))
}

/// What the Service would be called, with what is certain at the end.
fn name(request: &Request, options: &Options) -> String {
    let label = options
        .name
        .as_ref()
        .map(|name| format!("{name}-"))
        .unwrap_or_default();
    format!("{label}{}", request.balancer_name)
}

fn check(request: &Request, options: &Options) -> Result<(), ProviderError> {
    let has_v6 = request.families.contains(&Family::V6);
    if has_v6 && !request.families.contains(&Family::V4) {
        let message = "load balancers send to nodes over IPv4, where an IPv6 Service does not answer: \
                       use both families";
        return Err(refused("IPv6NotSupported", message));
    }
    if has_v6 && request.require_all_families && options.network.as_deref() == Some(INTERNAL) {
        let message = "an internal load balancer has no IPv6: use ipFamilyPolicy: SingleStack or \
                       PreferDualStack";
        return Err(refused("IPv6NotSupported", message));
    }
    if request.affinity.is_some() {
        let message = format!(
            "the cloud's load balancers do not keep clients by address: use sessionAffinity: None, and for HTTP the \
             annotation {PREFIX}sticky-sessions-type: cookies"
        );
        return Err(refused("AffinityNotSupported", message));
    }
    if request.ports.is_empty() {
        return Err(refused("NoPorts", "a load balancer needs a port"));
    }
    let has = |text: &str| {
        request
            .ingress
            .iter()
            .any(|it| matches!(it.host, Host::Ip(ip) if ip.to_string() == text))
    };
    match request.requested_ip.as_deref() {
        Some(text) if !text.is_empty() && !has(text) => {
            let message =
                format!("loadBalancerIP {text}: the cloud chooses addresses itself, take it away");
            Err(refused("AddressNotSupported", message))
        }
        _ => Ok(()),
    }
}

/// Nodes that have no id yet get no traffic yet; if none has one, that is an error.
pub(super) fn droplets(request: &Request) -> Result<BTreeSet<u64>, ProviderError> {
    let id = |node: &Node| node.provider_id.strip_prefix(ID)?.parse().ok();
    let droplets: BTreeSet<u64> = request.nodes.iter().filter_map(id).collect();
    match request.nodes.first() {
        Some(node) if droplets.is_empty() => {
            let message = format!(
                "no node is known to be a droplet: {} has spec.providerID {:?}, not {ID}ID",
                node.name, node.provider_id
            );
            Err(refused("NoDroplets", message))
        }
        _ => Ok(droplets),
    }
}

/// Ranges of the spec come before rules of annotations.
fn firewall(request: &Request, options: &Options) -> Firewall {
    let ranges = request
        .source_ranges
        .iter()
        .map(|range| format!("cidr:{}", range.trunc()));
    let allow = if request.source_ranges.is_empty() {
        options.allow.clone()
    } else {
        ranges.collect()
    };
    Firewall {
        allow,
        deny: options.deny.clone(),
    }
}

#[cfg(test)]
mod tests;
