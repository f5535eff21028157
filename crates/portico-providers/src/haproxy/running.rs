//! What a running HAProxy has, read from what it prints.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::render::GENERATION;
use super::table::SECTION;

/// A server as HAProxy has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Server {
    pub address: SocketAddr,
    /// It gets connections, as far as the administrator goes.
    pub enabled: bool,
    /// And as far as its health goes.
    pub up: bool,
}

/// Sections of Portico with their servers by name; others are not looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Running {
    /// The process that answers: a later one has forgotten what this one was told.
    pub worker: u32,
    pub generation: Option<u64>,
    pub sections: BTreeMap<String, BTreeMap<String, Server>>,
}

impl Running {
    /// Reads the output of `show backend` and `show servers state`.
    pub(super) fn parse(worker: u32, names: &str, states: &str) -> Self {
        let ours = |line: &&str| line.starts_with(SECTION);
        let mut running = Self {
            worker,
            ..Self::default()
        };
        for name in names.lines().map(str::trim).filter(ours) {
            match name.strip_prefix(GENERATION) {
                Some(number) => running.generation = u64::from_str_radix(number, 16).ok(),
                None => _ = running.sections.entry(name.to_owned()).or_default(),
            }
        }
        for (section, name, server) in states.lines().filter_map(parse_server) {
            running
                .sections
                .entry(section.to_owned())
                .or_default()
                .insert(name.to_owned(), server);
        }
        running
    }
}

/// Columns: the section's number and name, the server's number, name, address, health and state;
/// the port is the 19th.
fn parse_server(line: &str) -> Option<(&str, &str, Server)> {
    let words: Vec<&str> = line.split(' ').collect();
    let section = words.get(1).filter(|name| name.starts_with(SECTION))?;
    let port = words.get(18)?.parse().ok()?;
    let address = SocketAddr::new(words.get(4)?.parse().ok()?, port);
    let (up, enabled) = (*words.get(5)? != "0", *words.get(6)? == "0");
    Some((
        section,
        words.get(3)?,
        Server {
            address,
            enabled,
            up,
        },
    ))
}

/// The part of `show servers state` that the next worker begins with: the health of the servers
/// that are in use. Servers that are being drained here are not to be drained there.
pub(super) fn worth_keeping(states: &str) -> String {
    let keep = |line: &&str| {
        let unknown = !line.contains(SECTION);
        unknown || parse_server(line).is_some_and(|(_, _, server)| server.enabled)
    };
    let lines = states
        .lines()
        .map(str::trim_end)
        .filter(|line| !line.is_empty());
    lines.filter(keep).map(|line| format!("{line}\n")).collect()
}

/// The newest worker, and how often the master has loaded a configuration anew, from `show proc`.
pub(super) fn parse_processes(text: &str) -> Option<(u32, u64)> {
    let mut master = None;
    let mut current = true;
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let (Some(first), kind, reloads) = (words.next(), words.next(), words.next()) else {
            continue;
        };
        match (first.parse::<u32>(), kind) {
            (Ok(_), Some("master")) => master = reloads?.parse().ok(),
            (Ok(worker), Some("worker")) if current => return Some((worker, master?)),
            // `# old workers` follow.
            (Err(_), Some("old")) => current = false,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests;
