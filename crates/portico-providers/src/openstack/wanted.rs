//! What a Service wants of Octavia: names, and a listener with its pool for each port. Pure.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::config::MonitorTimes;
use super::octavia::{Listener, Member, Monitor, NewListener, NewPool, Persistence, Pool};
use super::options::{Options, refused};
use crate::{Family, Node, Port, Protocol, ProviderError, Request};

/// Octavia's bound of names.
const LONGEST: usize = 255;

/// The name for people, as the cloud controller of OpenStack writes it. Searches use the tag.
pub(super) fn name(request: &Request) -> String {
    cut(format!(
        "kube_service_{}_{}_{}",
        request.cluster, request.service.namespace, request.service.name
    ))
}

/// The tag of everything that belongs to a Service. It has the uid, so that a Service that is
/// created again has another one.
pub(super) fn tag(request: &Request) -> &str {
    &request.balancer_name
}

pub(super) fn listeners(
    request: &Request,
    options: &Options,
    member_subnet: Option<&str>,
) -> Result<Vec<NewListener>, ProviderError> {
    request
        .ports
        .iter()
        .map(|port| listener(request, options, member_subnet, port))
        .collect()
}

fn listener(
    request: &Request,
    options: &Options,
    member_subnet: Option<&str>,
    port: &Port,
) -> Result<NewListener, ProviderError> {
    if port.node_port == 0 {
        let message = format!(
            "port {} has no node port to send to: allow allocateLoadBalancerNodePorts",
            port.port
        );
        return Err(refused("NoNodePort", message));
    }
    let (protocol, pool_protocol) = protocols(port.protocol, options);
    let key = format!("{}_{}", port.protocol, port.port).to_lowercase();
    let name = |what: String| cut(format!("{what}_{}", name(request)));
    let tags = vec![tag(request).to_owned()];
    let timeout = |at: usize| options.timeouts.map(|timeouts| timeouts[at]);
    let pool_name = name(format!("pool_{key}_{}", pool_protocol.to_lowercase()));
    Ok(NewListener {
        spec: Listener {
            name: name(format!("listener_{key}")),
            protocol: protocol.to_owned(),
            protocol_port: port.port,
            connection_limit: options.connection_limit,
            timeout_client_data: timeout(0),
            timeout_member_connect: timeout(1),
            timeout_member_data: timeout(2),
            timeout_tcp_inspect: timeout(3),
            allowed_cidrs: (!options.is_ovn).then(|| allowed(request)),
            insert_headers: headers(protocol, options),
            default_tls_container_ref: (protocol == "TERMINATED_HTTPS")
                .then(|| options.tls_container.clone())
                .flatten(),
            default_pool_id: None,
            tags: tags.clone(),
        },
        default_pool: NewPool {
            spec: Pool {
                name: pool_name,
                protocol: pool_protocol.to_owned(),
                lb_algorithm: options.method.clone(),
                session_persistence: persistence(request, port.protocol),
                tags: tags.clone(),
            },
            members: members(request, options, port, member_subnet),
            healthmonitor: options.monitor.map(|times| {
                monitor(
                    request,
                    options,
                    port.protocol,
                    times,
                    name(format!("monitor_{key}")),
                    tags,
                )
            }),
        },
    })
}

/// The protocols of the listener and of its pool.
fn protocols(protocol: Protocol, options: &Options) -> (&'static str, &'static str) {
    match protocol {
        Protocol::Udp => ("UDP", "UDP"),
        Protocol::Sctp => ("SCTP", "SCTP"),
        Protocol::Tcp => match (options.tls_container.is_some(), options.forwarded_for) {
            (true, _) => ("TERMINATED_HTTPS", options.proxy.unwrap_or("HTTP")),
            (false, true) => ("HTTP", "HTTP"),
            (false, false) => ("TCP", options.proxy.unwrap_or("TCP")),
        },
    }
}

fn headers(protocol: &str, options: &Options) -> Option<BTreeMap<String, String>> {
    let wants = options.forwarded_for && ["HTTP", "TERMINATED_HTTPS"].contains(&protocol);
    wants.then(|| BTreeMap::from([("X-Forwarded-For".to_owned(), "true".to_owned())]))
}

/// Only ranges of families that it has: Octavia refuses others.
fn allowed(request: &Request) -> Vec<String> {
    let everywhere = |family: &Family| match family {
        Family::V4 => "0.0.0.0/0".to_owned(),
        Family::V6 => "::/0".to_owned(),
    };
    if request.source_ranges.is_empty() {
        return request.families.iter().map(everywhere).collect();
    }
    let ranges = request
        .source_ranges
        .iter()
        .filter(|range| request.families.contains(&Family::of(range.addr())));
    let mut ranges: Vec<String> = ranges.map(|range| range.trunc().to_string()).collect();
    ranges.sort();
    ranges.dedup();
    ranges
}

fn persistence(request: &Request, protocol: Protocol) -> Option<Persistence> {
    let seconds = request.affinity?;
    let persistence_timeout = (protocol != Protocol::Tcp).then_some(seconds);
    Some(Persistence {
        kind: "SOURCE_IP".to_owned(),
        persistence_timeout,
    })
}

/// Sorted, so that they can be compared.
pub(super) fn members(
    request: &Request,
    options: &Options,
    port: &Port,
    subnet: Option<&str>,
) -> Vec<Member> {
    let monitor_port = options
        .monitor
        .and_then(|_| http_check(request, options))
        .map(|check| check.port);
    let member = |node: &Node| {
        Some(Member {
            name: cut(node.name.clone()),
            address: address(node, request)?,
            protocol_port: port.node_port,
            monitor_port,
            subnet_id: subnet.map(str::to_owned),
        })
    };
    let mut members: Vec<Member> = request.nodes.iter().filter_map(member).collect();
    members.sort();
    members.dedup_by_key(|member| member.address);
    members
}

/// Members have one family, the first: balancers with both translate.
fn address(node: &Node, request: &Request) -> Option<IpAddr> {
    let family = request.families.first().copied().unwrap_or(Family::V4);
    node.addresses
        .iter()
        .copied()
        .find(|address| Family::of(*address) == family)
}

fn http_check<'a>(request: &'a Request, options: &Options) -> Option<&'a crate::HealthCheck> {
    request.health_check.as_ref().filter(|_| !options.is_ovn)
}

/// Nodes answer over HTTP for themselves (policy Cluster) and for the Service (Local), at ports
/// that members name. Where that cannot be asked, whether the port takes connections is the next
/// best thing: a node without local endpoints does not.
fn monitor(
    request: &Request,
    options: &Options,
    protocol: Protocol,
    times: MonitorTimes,
    name: String,
    tags: Vec<String>,
) -> Monitor {
    let http = http_check(request, options);
    let kind = match (http.is_some(), protocol) {
        (true, _) => "HTTP",
        (false, Protocol::Tcp) => "TCP",
        (false, Protocol::Udp) => "UDP-CONNECT",
        (false, Protocol::Sctp) => "SCTP",
    };
    Monitor {
        name,
        kind: kind.to_owned(),
        delay: times.delay,
        timeout: times.timeout,
        max_retries: times.up_after,
        max_retries_down: times.down_after,
        http_method: http.map(|_| "GET".to_owned()),
        url_path: http.map(|check| check.path.clone()),
        expected_codes: http.map(|_| "200".to_owned()),
        tags,
    }
}

fn cut(text: String) -> String {
    text.chars().take(LONGEST).collect()
}

#[cfg(test)]
mod tests;
