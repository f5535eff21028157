//! Takes everything out that is ours or kube-proxy's, in both variants and families, and nothing
//! else.

use super::fixed::MARTIAN_RULE;
use super::names::{MARTIANS, Table, depth, is_ours};
use super::plan::{Run, Sink};
use super::read::{Installed, meaning, target};
use super::run::{Programs, Variant};
use crate::ApplyError;
use portico_model::table::Family;

/// Whether there is anything to remove. Cheap, so it may be asked at every start.
pub fn present() -> bool {
    installed_variants().any(|programs| {
        Family::BOTH
            .iter()
            .any(|family| is_there(&programs, *family))
    })
}

fn is_there(programs: &Programs, family: Family) -> bool {
    programs.has_table(family, "nat") && programs.has_chain(family, super::names::SERVICES)
}

/// Remove what is in the variant that this node does not use: what it did before, or kube-proxy.
/// Says whether there was anything. The caller says which one it uses: finding it out again could
/// give another answer, and remove the rules in use.
pub fn remove_unused_variant(used: Variant) -> Result<bool, ApplyError> {
    let mut found = false;
    for programs in installed_variants().filter(|programs| programs.variant != used) {
        for family in Family::BOTH
            .into_iter()
            .filter(|family| is_there(&programs, *family))
        {
            remove_from(&programs, family)?;
            found = true;
        }
    }
    Ok(found)
}

/// Remove all rules of iptables mode, and the fixed ones of IPVS mode, by whichever process they
/// were installed.
pub fn remove_all_iptables() -> Result<(), ApplyError> {
    let mut result = Ok(());
    for programs in installed_variants() {
        for family in Family::BOTH
            .into_iter()
            .filter(|family| programs.has_tables(*family))
        {
            // One family that is not there does not keep the other's rules.
            result = result.and(remove_from(&programs, family));
        }
    }
    result
}

fn installed_variants() -> impl Iterator<Item = Programs> {
    [Variant::Nft, Variant::Legacy]
        .into_iter()
        .filter_map(Programs::find)
}

fn remove_from(programs: &Programs, family: Family) -> Result<(), ApplyError> {
    let installed = programs.save(family)?;
    let mut send = |run: &Run| programs.restore(family, &run.to_string());
    removal(
        &installed,
        &mut Sink::new(super::split_after(programs.variant), &mut send),
    )
}

/// Unhook, then delete. A chain that other programs' rules lead to stays, empty.
pub(super) fn removal<E>(installed: &Installed, sink: &mut Sink<'_, E>) -> Result<(), E> {
    let mut gone = Vec::new();
    for table in Table::ALL {
        let found = installed.table(table);
        let martians = table == Table::Filter && martians_are_ours(installed);
        let goes = |name: &str| is_ours(name) || (martians && name == MARTIANS);
        for (chain, rules) in &found.hooks {
            for rule in rules.iter().filter(|rule| target(rule).is_some_and(goes)) {
                sink.run().delete(table, chain, rule);
            }
        }
        let names = found
            .ports
            .keys()
            .map(AsRef::as_ref)
            .chain(found.others.keys().map(String::as_str));
        gone.extend(
            names
                .filter(|name| goes(name))
                .map(|name| (depth(name), table, name)),
        );
    }
    gone.sort_unstable();
    for (_, table, name) in gone {
        match installed.table(table).used_by_others.contains(name) {
            true => sink.run().declare(table, name),
            false => sink.run().remove(table, name),
        }
        sink.may_split()?;
    }
    sink.finish()
}

/// kubelet makes the same chain, and keeps it.
fn martians_are_ours(installed: &Installed) -> bool {
    let only_our_rule = |rules: &Vec<String>| {
        rules
            .iter()
            .all(|rule| meaning(rule) == meaning(MARTIAN_RULE))
    };
    !installed.kubelet
        && installed
            .filter
            .others
            .get(MARTIANS)
            .is_some_and(only_our_rule)
}
