//! How the kernel differs from a table, for one frontend: what would be repaired, told instead of
//! sent. Pure.

use super::names::Shared;
use super::plan::{Planner, Run, Sink};
use super::read::{Installed, Words, fingerprint, meaning};
use super::repair::repair;
use super::rules::{Chain, PortRules, port_rules};
use crate::Differences;
use portico_model::table::{ForwardingTable, FrontendKey};
use std::convert::Infallible;

pub(super) fn differences(
    planner: Planner<'_>,
    installed: Installed,
    table: &ForwardingTable,
    frontend: &FrontendKey,
) -> Differences {
    let of_frontend = of_frontend(planner, &installed, table, frontend);
    let mut unsent = |_: &Run| Ok::<(), Infallible>(());
    let Ok(drift) = repair(
        planner,
        installed,
        &table.ports.to_tree(),
        &mut Sink::new(usize::MAX, &mut unsent),
    );
    let (of_all, of_ports) = drift.parts();
    Differences {
        of_others: of_ports.saturating_sub(of_frontend.len()),
        of_frontend,
        of_all,
    }
}

fn of_frontend(
    planner: Planner<'_>,
    installed: &Installed,
    table: &ForwardingTable,
    frontend: &FrontendKey,
) -> Vec<String> {
    let wanted = match table.find(frontend) {
        Some((key, port, _)) => port_rules(key, port, planner.rules),
        None => PortRules::default(),
    };
    let mut words: Vec<String> = wanted
        .chains
        .iter()
        .filter_map(|chain| of_chain(installed, chain))
        .collect();
    for shared in Shared::ALL {
        let of_shared = wanted
            .shared
            .iter()
            .filter(|(chain, _)| *chain == shared)
            .map(|(_, rule)| rule.as_str());
        words.extend(of_shared_chain(
            installed,
            shared,
            of_shared.collect(),
            frontend,
        ));
    }
    words
}

fn of_chain(installed: &Installed, chain: &Chain) -> Option<String> {
    let found = installed.table(chain.table).ports.get(chain.name.as_str());
    let how = match found {
        Some(found) if *found == fingerprint(&chain.rules) => return None,
        Some(_) => "has other rules",
        None => "is missing",
    };
    let endpoint = chain
        .rules
        .iter()
        .find_map(|rule| after(rule, "--to-destination"));
    let endpoint = endpoint
        .map(|endpoint| format!(" of endpoint {endpoint}"))
        .unwrap_or_default();
    Some(format!(
        "{} chain {}{endpoint} {how}",
        chain.table.name(),
        chain.name
    ))
}

/// Rules in a chain that all ports share: those that lead from the frontend to the port's own
/// chains, or end its packets.
fn of_shared_chain(
    installed: &Installed,
    shared: Shared,
    wanted: Vec<&str>,
    frontend: &FrontendKey,
) -> Vec<String> {
    // That the chain itself is missing is said elsewhere.
    let Some(found) = installed.table(shared.table()).others.get(shared.name()) else {
        return Vec::new();
    };
    let chain = format!("{} chain {}", shared.table().name(), shared.name());
    let has = |rules: &[u64], rule: &str| rules.contains(&meaning(rule));
    let (found_meanings, wanted_meanings): (Vec<u64>, Vec<u64>) = (
        found.iter().map(|rule| meaning(rule)).collect(),
        wanted.iter().map(|rule| meaning(rule)).collect(),
    );
    let of_frontend = |rule: &&str| is_of(rule, frontend);
    let missing = wanted
        .iter()
        .copied()
        .filter(of_frontend)
        .filter(|rule| !has(&found_meanings, rule));
    let surplus = found
        .iter()
        .map(String::as_str)
        .filter(of_frontend)
        .filter(|rule| !has(&wanted_meanings, rule));
    let missing = missing.map(|rule| format!("{chain} lacks the rule {rule}"));
    let surplus =
        surplus.map(|rule| format!("{chain} has the rule {rule}, which the table does not"));
    missing.chain(surplus).collect()
}

/// Whether a rule is about the frontend.
fn is_of(rule: &str, frontend: &FrontendKey) -> bool {
    let address = after(rule, "-d").map(|text| text.split('/').next().unwrap_or_default());
    let same_address = address.map(str::parse) == frontend.address.map(Ok);
    same_address
        && after(rule, "--dport") == Some(frontend.port.to_string().as_str())
        && after(rule, "-p") == Some(frontend.protocol.lower())
}

/// The word after this one.
fn after<'a>(rule: &'a str, word: &str) -> Option<&'a str> {
    let mut words = Words(rule);
    words.find(|found| *found == word)?;
    words.next()
}

#[cfg(test)]
mod tests;
