//! The configuration of HAProxy, as text. Pure.

use super::HaproxySettings;
use crate::forward::route::Route;
use portico_model::table::Family;
use std::fmt::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

/// The section with health checks, and the one that is used while no server passes them.
pub(super) const SECTIONS: [&str; 2] = ["apiservers", "unchecked"];

/// Connections that an earlier worker still has are ended after this long.
const HARD_STOP: &str = "10m";

/// One server as it is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub address: SocketAddr,
    /// We know that it is out.
    pub disabled: bool,
}

/// What HAProxy calls a server; it allows no brackets.
pub(super) fn name(server: &SocketAddr) -> String {
    format!("{}_{}", server.ip(), server.port())
}

/// Everything that HAProxy is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Config<'a> {
    pub settings: &'a HaproxySettings,
    /// Where it listens.
    pub listen: Vec<SocketAddr>,
    pub targets: Vec<Target>,
}

impl<'a> Config<'a> {
    pub(super) fn new(settings: &'a HaproxySettings, routes: &[Route]) -> Self {
        let listen = routes
            .iter()
            .filter_map(|route| settings.listen_on(route.family))
            .collect();
        let targets = routes.iter().flat_map(|route| {
            let target = |address: &SocketAddr| Target {
                address: *address,
                disabled: !route.eligible.contains(address),
            };
            route.servers.iter().map(target)
        });
        Config {
            settings,
            listen,
            targets: targets.collect(),
        }
    }

    /// The same with all servers in: two configurations with the same do not need a reload to
    /// become one another.
    pub(super) fn with_all(&self) -> Self {
        let enabled = |target: &Target| Target {
            disabled: false,
            ..*target
        };
        Config {
            targets: self.targets.iter().map(enabled).collect(),
            ..self.clone()
        }
    }

    pub(super) fn text(&self, socket: &Path) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        _ = write!(
            text,
            "# Written by portico vip; changes are lost.
global
    log stdout format raw daemon notice
    stats socket {} mode 600 level admin expose-fd listeners
    hard-stop-after {HARD_STOP}

# A watch may be silent for long; keep-alives find out who is gone.
defaults
    mode tcp
    log global
    option dontlognull
    option clitcpka
    option srvtcpka
    timeout connect 1s
    timeout client 1d
    timeout server 1d
    timeout queue 5s
    timeout check {}
    retries 3
    option redispatch 1
    balance leastconn
",
            socket.display(),
            milliseconds(self.settings.check_timeout),
        );
        let [checked, unchecked] = SECTIONS;
        _ = write!(text, "\nlisten {checked}\n");
        self.listen
            .iter()
            .for_each(|address| _ = writeln!(text, "    bind {address}"));
        _ = write!(
            text,
            "    use_backend {unchecked} if {{ nbsrv({checked}) eq 0 }}
    option httpchk
    http-check send meth GET uri /readyz ver HTTP/1.1 hdr Host kubernetes
    http-check expect status 200
    default-server check check-ssl {} inter {} fall {} rise {}
",
            self.verify(),
            milliseconds(self.settings.check_interval),
            self.settings.unhealthy_after.max(1),
            self.settings.healthy_after.max(1),
        );
        self.servers(&mut text);
        _ = write!(text, "\nbackend {unchecked}\n");
        self.servers(&mut text);
        text
    }

    fn verify(&self) -> String {
        match &self.settings.ca_file {
            Some(path) => format!("verify required ca-file {}", quoted(path)),
            None => "verify none".to_owned(),
        }
    }

    fn servers(&self, text: &mut String) {
        for target in &self.targets {
            let state = if target.disabled { " disabled" } else { "" };
            _ = writeln!(
                text,
                "    server {} {}{state}",
                name(&target.address),
                target.address
            );
        }
    }
}

fn milliseconds(duration: Duration) -> String {
    format!("{}ms", duration.as_millis().max(1))
}

/// HAProxy takes a word in double quotes as it is, but for these characters.
fn quoted(path: &Path) -> String {
    let escaped = path
        .display()
        .to_string()
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('$', "\\$");
    format!("\"{escaped}\"")
}

impl HaproxySettings {
    /// The place at which HAProxy listens for a family.
    pub(super) fn listen_on(&self, family: Family) -> Option<SocketAddr> {
        let own = self
            .own_addresses
            .iter()
            .find(|address| Family::of(**address) == family)?;
        Some(SocketAddr::new(*own, self.port))
    }
}
