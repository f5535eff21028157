//! The configuration of HAProxy as text: the same for the same table, with no free text in it that
//! comes from users, only from the administrator.

use std::fmt::Write;
use std::net::SocketAddr;
use std::time::Duration;

use portico_model::hash;

use super::desired::{Balance, Check, Options, ProxyProtocol};
use super::settings::Settings;
use super::table::{SECTION, Site, Table};

/// A section without any use but to have a name: what of the configuration cannot be changed while
/// HAProxy runs, as a number.
pub(super) const GENERATION: &str = "portico_generation_";
/// HAProxy takes 64 words in a line.
const RANGES_IN_A_LINE: usize = 32;
/// Clients remembered for a Service with session affinity.
const STICKY_CLIENTS: &str = "200k";

/// A configuration, and the number of what needs a reload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rendered {
    pub text: String,
    pub generation: u64,
}

pub(super) fn render(table: &Table, settings: &Settings) -> Rendered {
    let generation = generation(table, settings);
    let mut text = head(settings);
    // Writing to a string cannot fail.
    _ = write!(
        text,
        "\nbackend {GENERATION}{generation:016x} from portico\n"
    );
    for site in table.sites.values() {
        sections(&mut text, site, settings, true);
    }
    Rendered { text, generation }
}

/// Servers come and go while HAProxy runs; all else makes another generation.
pub(super) fn generation(table: &Table, settings: &Settings) -> u64 {
    let mut text = head(settings);
    for site in table.sites.values() {
        sections(&mut text, site, settings, false);
    }
    hash::stable(text.as_bytes())
}

fn head(settings: &Settings) -> String {
    format!(
        "# Written by portico controller; changes are lost.
global
    hard-stop-after {}
    localpeer portico
    server-state-file {}
{}
# A worker hands the clients that stay at their server to the next one.
peers {SECTION}peers
    bind unix@{} mode 600
    server portico

defaults portico
    mode tcp
    option dontlognull
    option clitcpka
    option srvtcpka
    option redispatch 1
    retries 3
    timeout connect {}
    timeout check {}
    load-server-state-from-file global
{}",
        milliseconds(settings.drain_timeout),
        settings.state_path().display(),
        indented(&settings.global),
        settings.peers_path().display(),
        milliseconds(settings.connect_timeout),
        milliseconds(settings.health_check.timeout),
        indented(&settings.defaults),
    )
}

fn indented(lines: &str) -> String {
    lines
        .lines()
        .map(|line| format!("    {}\n", line.trim()))
        .collect()
}

fn sections(text: &mut String, site: &Site, settings: &Settings, with_servers: bool) {
    for (port, servers) in &site.ports {
        _ = write!(
            text,
            "\n# {}/{}\nlisten {} from portico\n",
            site.namespace,
            site.name,
            site.section(*port)
        );
        for address in &site.addresses {
            _ = writeln!(text, "    bind {}", SocketAddr::new(*address, *port));
        }
        options(text, &site.options);
        for server in servers.iter().filter(|_| with_servers) {
            let arguments = server_arguments(&site.options, settings);
            _ = writeln!(
                text,
                "    server {} {server} {arguments}",
                server_name(server)
            );
        }
        // An argument that every server has is part of what cannot be changed.
        _ = writeln!(
            text,
            "    # servers: {}",
            server_arguments(&site.options, settings)
        );
    }
}

fn options(text: &mut String, options: &Options) {
    let ranges: Vec<String> = options
        .source_ranges
        .iter()
        .map(ToString::to_string)
        .collect();
    for some in ranges.chunks(RANGES_IN_A_LINE) {
        _ = writeln!(text, "    acl allowed src {}", some.join(" "));
    }
    if !ranges.is_empty() {
        _ = writeln!(text, "    tcp-request connection reject if !allowed");
    }
    _ = writeln!(
        text,
        "    balance {}",
        match options.balance {
            Balance::LeastConnections => "leastconn",
            Balance::RoundRobin => "roundrobin",
            Balance::Random => "random",
        }
    );
    let idle = milliseconds(options.idle);
    _ = write!(
        text,
        "    timeout client {idle}\n    timeout server {idle}\n"
    );
    if let Some(seconds) = options.affinity {
        _ = writeln!(
            text,
            "    stick-table type ipv6 size {STICKY_CLIENTS} expire {seconds}s peers \
             {SECTION}peers\n    stick on src"
        );
    }
    if let Check::Healthz(_) = options.check {
        text.push_str(
            "    option httpchk\n    http-check send meth GET uri /healthz ver HTTP/1.1 hdr \
             Host portico\n",
        );
        text.push_str("    http-check expect status 200\n");
    }
}

/// What HAProxy calls a server: by its address, so that no table of names is needed. It allows no
/// brackets.
pub(super) fn server_name(server: &SocketAddr) -> String {
    format!("{}_{}", server.ip(), server.port())
}

/// What stands after a server's address, here and where it is added while HAProxy runs.
pub(super) fn server_arguments(options: &Options, settings: &Settings) -> String {
    let checks = &settings.health_check;
    let port = match options.check {
        Check::Healthz(port) => format!(" port {port}"),
        Check::Connect => String::new(),
    };
    let proxy = match options.proxy {
        Some(ProxyProtocol::V1) => " send-proxy",
        Some(ProxyProtocol::V2) => " send-proxy-v2",
        None => "",
    };
    let (interval, doubtful) = (
        milliseconds(checks.interval),
        milliseconds(checks.interval / 4),
    );
    format!(
        "check{port} inter {interval} fastinter {doubtful} rise {} fall {}{proxy}",
        checks.rise, checks.fall
    )
}

fn milliseconds(duration: Duration) -> String {
    format!("{}ms", duration.as_millis().max(1))
}

#[cfg(test)]
mod tests;
