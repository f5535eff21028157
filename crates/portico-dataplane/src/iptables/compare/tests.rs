use super::super::fixed::Features;
use super::*;
use crate::testing::{port, table, web};
use portico_model::table::Family;

const FEATURES: Features = Features {
    random_fully: true,
    drop_invalid: true,
};

fn planner(table: &ForwardingTable) -> Planner<'_> {
    Planner {
        rules: &table.rules,
        family: Family::V4,
        features: FEATURES,
    }
}

/// What `iptables-save` prints once the table is installed.
fn saved(table: &ForwardingTable) -> String {
    let mut text = String::new();
    let mut send = |run: &Run| {
        text += &run.to_string();
        Ok::<(), Infallible>(())
    };
    let Ok(_) = repair(
        planner(table),
        Installed::default(),
        &table.ports.to_tree(),
        &mut Sink::new(usize::MAX, &mut send),
    );
    // Rules of the kernel's own chains are inserted in reverse, at the beginning.
    let (mut hooks, mut rest) = (String::new(), String::new());
    for line in text.lines() {
        match line.strip_prefix("-I ") {
            Some(rule) => hooks = format!("-A {rule}\n{hooks}"),
            None if line == "COMMIT" => rest += &std::mem::take(&mut hooks),
            None => rest += &format!("{line}\n"),
        }
    }
    let chains = [
        ":PREROUTING ACCEPT",
        ":INPUT ACCEPT",
        ":FORWARD ACCEPT",
        ":OUTPUT ACCEPT",
        ":POSTROUTING ACCEPT",
    ];
    let declared = chains.join(" [0:0]\n") + " [0:0]\n";
    let declared_in = |table: &str| format!("*{table}\n{declared}");
    ["filter", "nat", "mangle"]
        .iter()
        .fold(rest, |text, table| {
            text.replace(&format!("*{table}\n"), &declared_in(table))
        })
}

fn compared(text: &str, table: &ForwardingTable) -> Differences {
    differences(
        planner(table),
        Installed::parse(text.as_bytes()).unwrap(),
        table,
        &web(),
    )
}

fn both() -> ForwardingTable {
    table(vec![port("web", 1, &[1, 2]), port("other", 2, &[3])])
}

/// The text without the lines that have this in them.
fn without(text: &str, what: &str) -> String {
    text.lines()
        .filter(|line| !line.contains(what))
        .map(|line| format!("{line}\n"))
        .collect()
}

#[test]
fn what_nobody_touched_agrees() {
    assert_eq!(compared(&saved(&both()), &both()), Differences::default());
}

#[test]
fn what_is_missing_is_named() {
    let saved = saved(&both());
    let lost = compared(
        &without(&saved, "--to-destination 10.244.0.2:8080"),
        &both(),
    );
    assert_eq!(lost.of_frontend.len(), 1, "{lost:?}");
    let words = &lost.of_frontend[0];
    assert!(
        words.contains("of endpoint 10.244.0.2:8080 has other rules"),
        "{words}"
    );
    let lost = compared(&without(&saved, "-d 10.96.0.1/32"), &both());
    let words = lost.of_frontend.join("\n");
    assert!(
        words.contains("nat chain KUBE-SERVICES lacks the rule -d 10.96.0.1/32"),
        "{words}"
    );
    let others = compared(
        &without(&saved, "--to-destination 10.244.0.3:8080"),
        &both(),
    );
    assert_eq!(
        others,
        Differences {
            of_others: 1,
            ..Differences::default()
        }
    );
}

#[test]
fn what_others_do_to_all_is_everybodys() {
    let unhooked = compared(&without(&saved(&both()), "-A PREROUTING"), &both());
    assert_eq!(
        unhooked.of_all,
        ["nat chain PREROUTING did not lead to ours as it should"]
    );
    assert!(unhooked.of_frontend.is_empty(), "{unhooked:?}");
}

#[test]
fn a_rule_in_the_way_is_named() {
    let in_the_way = "-A KUBE-SERVICES -d 10.96.0.1/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination \
                      192.0.2.9:1\n";
    let first = "-A KUBE-SERVICES -d 10.96.0.2/32";
    let text = saved(&both()).replacen(first, &format!("{in_the_way}{first}"), 1);
    let told = compared(&text, &both());
    assert_eq!(told.of_frontend.len(), 1, "{told:?}");
    assert!(
        told.of_frontend[0].contains("192.0.2.9:1, which the table does not"),
        "{told:?}"
    );
}
