use super::*;
use crate::iptables::names::MARTIANS;
use crate::iptables::read::Installed;
use crate::iptables::remove::removal;
use crate::iptables::repair::repair as repaired;
use portico_model::key::ObjectKey;
use portico_model::table::{
    Endpoint, Frontend, FrontendKind, LocalPods, Masquerade, NodePortAddresses, Outcome, PerFamily,
    Protocol,
};
use proptest::prelude::*;
use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr};

/// A kernel that checks as the real one does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Kernel {
    chains: BTreeMap<(Table, String), Vec<String>>,
}

const BUILT_IN: [(Table, &str); 7] = [
    (Table::Filter, "INPUT"),
    (Table::Filter, "FORWARD"),
    (Table::Filter, "OUTPUT"),
    (Table::Nat, "PREROUTING"),
    (Table::Nat, "INPUT"),
    (Table::Nat, "OUTPUT"),
    (Table::Nat, "POSTROUTING"),
];

impl Kernel {
    fn new() -> Self {
        Self {
            chains: BUILT_IN
                .into_iter()
                .map(|(table, name)| ((table, name.to_owned()), Vec::new()))
                .collect(),
        }
    }

    fn restore(&mut self, input: &str) {
        let mut table = Table::Filter;
        for line in input.lines() {
            match line.split_at(1) {
                ("*", name) => {
                    table = Table::ALL
                        .into_iter()
                        .find(|table| table.name() == name)
                        .unwrap()
                }
                (":", chain) => {
                    _ = self.chains.insert(
                        (table, chain.split(' ').next().unwrap().to_owned()),
                        Vec::new(),
                    )
                }
                _ if line == "COMMIT" => {}
                _ => self.command(table, line),
            }
        }
    }

    fn command(&mut self, table: Table, line: &str) {
        let mut words = line.splitn(3, ' ');
        let (command, chain) = (words.next().unwrap(), words.next().unwrap().to_owned());
        let rule = words.next().unwrap_or_default().to_owned();
        let builtin = [
            "ACCEPT",
            "DROP",
            "RETURN",
            "REJECT",
            "DNAT",
            "MASQUERADE",
            "MARK",
        ];
        if let Some(target) =
            super::super::read::target(&rule).filter(|target| !builtin.contains(target))
        {
            assert!(
                self.chains.contains_key(&(table, target.to_owned())),
                "there is no {target} for {line}"
            );
        }
        let found = self.chains.get_mut(&(table, chain.clone()));
        let rules = found.unwrap_or_else(|| panic!("there is no {chain} for {line}"));
        match command {
            "-A" => rules.push(rule),
            "-I" => rules.insert(0, rule),
            "-D" => {
                let position = rules.iter().position(|found| *found == rule);
                rules.remove(position.unwrap_or_else(|| panic!("no such rule: {line}")));
            }
            "-X" => {
                assert!(rules.is_empty(), "not empty: {line}");
                let leads = |rule: &String| super::super::read::target(rule) == Some(&chain);
                let mut others = self.chains.iter().filter(|((of, _), _)| *of == table);
                assert!(
                    !others.any(|(_, rules)| rules.iter().any(leads)),
                    "still used: {line}"
                );
                self.chains.remove(&(table, chain));
            }
            other => panic!("unknown command {other}"),
        }
    }

    fn save(&self) -> Installed {
        let mut text = String::new();
        for table in Table::ALL {
            let of_table = || {
                self.chains
                    .iter()
                    .filter(|((of, _), _)| *of == table)
                    .map(|((_, name), rules)| (name, rules))
            };
            writeln!(text, "*{}", table.name()).unwrap();
            for (name, _) in of_table() {
                let policy = if BUILT_IN.contains(&(table, name)) {
                    "ACCEPT"
                } else {
                    "-"
                };
                writeln!(text, ":{name} {policy} [0:0]").unwrap();
            }
            for (name, rules) in of_table() {
                rules
                    .iter()
                    .for_each(|rule| writeln!(text, "-A {name} {rule}").unwrap());
            }
            text.push_str("COMMIT\n");
        }
        Installed::parse(text.as_bytes()).unwrap()
    }

    /// The same, with the rules of chains that all share in no particular order, but for their
    /// ends.
    fn unordered(mut self, planner: &Planner<'_>) -> Self {
        for shared in Shared::ALL {
            let end = tail(shared, planner.rules, planner.family).len();
            if let Some(rules) = self
                .chains
                .get_mut(&(shared.table(), shared.name().to_owned()))
            {
                let body = rules.len() - end;
                rules[..body].sort();
            }
        }
        self
    }
}

const FEATURES: Features = Features {
    random_fully: true,
    drop_invalid: true,
};

fn node_rules() -> NodeRules {
    NodeRules {
        local_pods: PerFamily {
            v4: LocalPods::Sources(vec!["10.244.0.0/24".parse().unwrap()]),
            v6: LocalPods::Unknown,
        },
        node_ports: PerFamily {
            v4: NodePortAddresses::AllLocal { loopback: true },
            v6: NodePortAddresses::AllLocal { loopback: false },
        },
        route_localnet: true,
        service_cidrs: vec!["10.96.0.0/16".parse().unwrap()],
        dmz: PerFamily::default(),
        masquerade_mark: 0x4000,
        ..NodeRules::default()
    }
}

fn planner(rules: &NodeRules) -> Planner<'_> {
    Planner {
        rules,
        family: Family::V4,
        features: FEATURES,
    }
}

/// Repair the kernel; the number of lines that took, the inputs, and what differed.
fn repair(
    kernel: &mut Kernel,
    rules: &NodeRules,
    ports: &Ports,
    limit: usize,
) -> (usize, Vec<String>) {
    let mut lines = 0;
    let installed = kernel.save();
    let mut send = |run: &Run| {
        lines += run.lines();
        kernel.restore(&run.to_string());
        Ok::<(), Infallible>(())
    };
    let drift = repaired(
        planner(rules),
        installed,
        ports,
        &mut Sink::new(limit, &mut send),
    )
    .unwrap();
    (lines, drift.words())
}

fn change(
    kernel: &mut Kernel,
    rules: &NodeRules,
    ports: &mut Ports,
    wanted: Vec<(PortKey, Option<ServicePort>)>,
    limit: usize,
) {
    let mut changes = BTreeMap::new();
    for (key, after) in wanted {
        let after = after.map(Arc::new);
        let before = match &after {
            Some(port) => ports.insert(key.clone(), port.clone()),
            None => ports.remove(&key),
        };
        changes
            .entry(key.clone())
            .or_insert(Change {
                key,
                before,
                after: None,
            })
            .after = after;
    }
    let changes: Vec<Change> = changes
        .into_values()
        .filter(|change| change.before != change.after)
        .collect();
    let mut send = |run: &Run| {
        kernel.restore(&run.to_string());
        Ok::<(), Infallible>(())
    };
    planner(rules)
        .change(&changes, ports, &mut Sink::new(limit, &mut send))
        .unwrap();
}

fn key(number: u8) -> PortKey {
    let service = ObjectKey::new("ns", &format!("s{number}"));
    PortKey {
        service,
        port: "".into(),
        protocol: Protocol::Tcp,
        family: Family::V4,
    }
}

/// A port as the model would make it of these settings.
fn port(
    number: u8,
    endpoints: Vec<(u8, bool)>,
    external: bool,
    policy_local: bool,
    sources: bool,
    affinity: bool,
) -> ServicePort {
    let mut cluster: Vec<Endpoint> = endpoints
        .into_iter()
        .map(|(host, local)| Endpoint {
            address: IpAddr::from([10, 244, 0, host]),
            port: 80,
            local,
        })
        .collect();
    cluster.sort();
    cluster.dedup_by_key(|endpoint| endpoint.address);
    let local: Vec<Endpoint> = cluster
        .iter()
        .filter(|endpoint| endpoint.local)
        .copied()
        .collect();
    let inside = if cluster.is_empty() {
        Outcome::Reject
    } else {
        Outcome::Cluster
    };
    let outside = match (policy_local, cluster.is_empty(), local.is_empty()) {
        (false, _, _) | (_, true, _) => inside,
        (true, false, true) => Outcome::Drop,
        (true, false, false) => Outcome::Local,
    };
    let frontend = |kind, address: Option<Ipv4Addr>, port| Frontend {
        kind,
        address: address.map(IpAddr::V4),
        port,
        inside,
        outside: if kind == FrontendKind::ClusterIp {
            inside
        } else {
            outside
        },
        masquerade: match (kind, policy_local) {
            (FrontendKind::ClusterIp, _) => Masquerade::UnlessPod,
            (_, false) => Masquerade::Always,
            (_, true) => Masquerade::OnlyNode,
        },
        sources: (sources && kind == FrontendKind::LoadBalancerIp)
            .then(|| ["192.0.2.0/24".parse().unwrap()].into()),
    };
    let mut frontends = vec![frontend(
        FrontendKind::ClusterIp,
        Some(Ipv4Addr::new(10, 96, 0, number)),
        80,
    )];
    if external {
        frontends.push(frontend(
            FrontendKind::LoadBalancerIp,
            Some(Ipv4Addr::new(203, 0, 113, number)),
            80,
        ));
        frontends.push(frontend(
            FrontendKind::NodePort,
            None,
            30000 + u16::from(number),
        ));
    }
    let local = if frontends.iter().any(|f| f.outside == Outcome::Local) {
        local
    } else {
        Vec::new()
    };
    ServicePort {
        frontends,
        cluster: cluster.into(),
        local: local.into(),
        affinity: affinity.then_some(60),
        health_check: (external && policy_local).then(|| 32000 + u16::from(number)),
        ..ServicePort::default()
    }
}

fn ports() -> Ports {
    let some = |number| {
        (
            key(number),
            Arc::new(port(
                number,
                vec![(number, true), (100, false)],
                true,
                true,
                true,
                false,
            )),
        )
    };
    (1..=3).map(some).collect()
}

type Settings = (u8, Option<(Vec<(u8, bool)>, bool, bool, bool, bool)>);

fn made((number, settings): Settings) -> (PortKey, Option<ServicePort>) {
    let port = settings.map(|(endpoints, external, local, sources, affinity)| {
        port(number, endpoints, external, local, sources, affinity)
    });
    (key(number), port)
}

fn settings() -> impl Strategy<Value = Settings> {
    let endpoints = prop::collection::vec((1u8..8, any::<bool>()), 0..5);
    (
        1u8..6,
        prop::option::weighted(
            0.8,
            (
                endpoints,
                any::<bool>(),
                any::<bool>(),
                any::<bool>(),
                any::<bool>(),
            ),
        ),
    )
}

proptest! {
    /// Whatever happens, in whatever pieces, ends where writing everything at once ends.
    #[test]
    fn changes_lead_where_a_fresh_start_leads(
        steps in prop::collection::vec(prop::collection::vec(settings(), 1..5), 1..6),
        limit in prop::sample::select(vec![1usize, 30, usize::MAX]),
    ) {
        let rules = node_rules();
        let (mut kernel, mut wanted) = (Kernel::new(), Ports::new());
        repair(&mut kernel, &rules, &wanted, usize::MAX);
        for step in steps {
            change(&mut kernel, &rules, &mut wanted, step.into_iter().map(made).collect(), limit);
            let mut fresh = Kernel::new();
            repair(&mut fresh, &rules, &wanted, limit);
            prop_assert_eq!(kernel.clone().unordered(&planner(&rules)), fresh.unordered(&planner(&rules)));
            let (lines, drift) = repair(&mut kernel, &rules, &wanted, limit);
            prop_assert_eq!((lines, drift), (0, vec![]));
        }
    }

    /// From any table to any other, also where rules of the node changed, and back to nothing.
    #[test]
    fn repair_leads_from_anything_to_anything(
        before in prop::collection::vec(settings(), 0..6),
        after in prop::collection::vec(settings(), 0..6),
        listed in any::<bool>(),
        limit in prop::sample::select(vec![1usize, 30, usize::MAX]),
    ) {
        let wanted = |all: Vec<Settings>| -> Ports {
            all.into_iter().map(made).filter_map(|(key, port)| Some((key, Arc::new(port?)))).collect()
        };
        let (old, mut new) = (node_rules(), node_rules());
        if listed {
            new.node_ports.v4 = NodePortAddresses::Listed(vec!["192.0.2.1".parse().unwrap()]);
            new.local_pods.v4 = LocalPods::Sources(vec!["10.1.0.0/24".parse().unwrap(), "10.2.0.0/24".parse().unwrap()]);
        }
        let mut kernel = Kernel::new();
        repair(&mut kernel, &old, &wanted(before), limit);
        let (after, mut fresh) = (wanted(after), Kernel::new());
        repair(&mut kernel, &new, &after, limit);
        repair(&mut fresh, &new, &after, limit);
        // The chain against martians may belong to another program by now; it stays.
        kernel.chains.retain(|(_, name), _| name != MARTIANS);
        fresh.chains.retain(|(_, name), _| name != MARTIANS);
        for kernel in [&mut kernel, &mut fresh] {
            kernel.chains.values_mut().for_each(|rules| rules.retain(|rule| !rule.ends_with(MARTIANS)));
        }
        prop_assert_eq!(kernel.clone().unordered(&planner(&new)), fresh.unordered(&planner(&new)));
        let installed = kernel.save();
        let mut send = |run: &Run| { kernel.restore(&run.to_string()); Ok::<(), Infallible>(()) };
        removal(&installed, &mut Sink::new(limit, &mut send)).unwrap();
        prop_assert_eq!(kernel, Kernel::new());
    }
}

#[test]
fn a_plan_prints_as_what_is_sent() {
    let mut run = Run::default();
    run.write(&Chain {
        table: Table::Nat,
        name: "KUBE-SVC-A".into(),
        rules: vec!["-j KUBE-SEP-B".into()],
    });
    run.insert(Table::Nat, "KUBE-SERVICES", "-d 10.96.0.1/32 -j KUBE-SVC-A");
    run.remove(Table::Nat, "KUBE-SEP-C");
    let expected = "*nat\n:KUBE-SVC-A - [0:0]\n:KUBE-SEP-C - [0:0]\n-A KUBE-SVC-A -j KUBE-SEP-B\n\
                    -I KUBE-SERVICES -d 10.96.0.1/32 -j KUBE-SVC-A\n-X KUBE-SEP-C\nCOMMIT\n";
    assert_eq!(run.to_string(), expected);
}

#[test]
fn an_endpoint_that_moves_touches_its_own_chains_only() {
    let rules = node_rules();
    let before = Arc::new(port(
        1,
        vec![(1, true), (2, true)],
        false,
        false,
        false,
        false,
    ));
    let after = Arc::new(port(
        1,
        vec![(1, true), (3, true)],
        false,
        false,
        false,
        false,
    ));
    let ports = Ports::from([(key(1), after.clone())]);
    let mut sent = Vec::new();
    let mut send = |run: &Run| {
        sent.push(run.to_string());
        Ok::<(), Infallible>(())
    };
    let changes = [Change {
        key: key(1),
        before: Some(before),
        after: Some(after),
    }];
    planner(&rules)
        .change(&changes, &ports, &mut Sink::new(usize::MAX, &mut send))
        .unwrap();
    let [text] = sent.as_slice() else {
        panic!("{sent:?}")
    };
    assert!(
        !text.contains("*filter") && !text.contains("KUBE-SERVICES"),
        "{text}"
    );
    assert_eq!(text.matches("-A KUBE-SVC").count(), 3, "{text}");
    assert_eq!(text.matches("-X KUBE-SEP").count(), 1, "{text}");
    assert_eq!(text.matches("-A KUBE-SEP").count(), 2, "{text}");
}

#[test]
fn the_api_server_and_dns_do_not_wait_for_the_rest() {
    let rules = node_rules();
    let mut dns = key(7);
    dns.service.namespace = "kube-system".into();
    let one = |number: u16| {
        let mut key = key(1);
        key.port = format!("p{number}").into();
        let mut port = port(1, vec![(1, true)], false, false, false, false);
        port.frontends[0].port = number;
        (key, Arc::new(port))
    };
    let mut all: Ports = (1..=400).map(one).collect();
    all.insert(
        dns.clone(),
        Arc::new(port(7, vec![(7, true)], false, false, false, false)),
    );
    let (mut kernel, mut sent) = (Kernel::new(), Vec::new());
    let installed = kernel.save();
    let mut send = |run: &Run| {
        kernel.restore(&run.to_string());
        sent.push(run.to_string());
        Ok::<(), Infallible>(())
    };
    repaired(
        planner(&rules),
        installed,
        &all,
        &mut Sink::new(usize::MAX, &mut send),
    )
    .unwrap();
    let [first, second] = sent.as_slice() else {
        panic!("{} runs", sent.len())
    };
    assert!(
        first.contains("-I PREROUTING") && first.contains("-I KUBE-SERVICES -d 10.96.0.7/32"),
        "{first}"
    );
    assert!(first.lines().count() < 60 && second.lines().count() > 2000);
    assert_eq!(repair(&mut kernel, &rules, &all, usize::MAX), (0, vec![]));
}

#[test]
fn a_chain_that_loses_many_rules_is_written_anew() {
    let rules = node_rules();
    let one = |number| {
        (
            key(number),
            Arc::new(port(
                number,
                vec![(number, true)],
                true,
                false,
                false,
                false,
            )),
        )
    };
    let (all, few): (Ports, Ports) = ((0..200).map(one).collect(), (150..200).map(one).collect());
    let (mut kernel, mut fresh) = (Kernel::new(), Kernel::new());
    repair(&mut fresh, &rules, &few, usize::MAX);
    let fresh = fresh.unordered(&planner(&rules));
    // By a change, and by finding it so.
    repair(&mut kernel, &rules, &all, usize::MAX);
    let mut repaired = kernel.clone();
    let gone = (0..150).map(|number| (key(number), None)).collect();
    change(&mut kernel, &rules, &mut all.clone(), gone, usize::MAX);
    assert_eq!(kernel.unordered(&planner(&rules)), fresh);
    let (lines, drift) = repair(&mut repaired, &rules, &few, usize::MAX);
    assert!(
        drift.contains(&"nat chain KUBE-SERVICES had 300 rules too many".to_owned()),
        "{drift:?}"
    );
    assert_eq!(repaired.unordered(&planner(&rules)), fresh);
    // Three long chains with 200 rules left in them, and 150 chains of services, externals and
    // endpoints to remove.
    assert!(lines < 210 + 3 * 150 * 2, "{lines}");
}

#[test]
fn drift_is_repaired_and_told() {
    let (rules, ports) = (node_rules(), ports());
    let mut kernel = Kernel::new();
    repair(&mut kernel, &rules, &ports, usize::MAX);
    let whole = kernel.clone();
    type Damage = fn(&mut Kernel);
    let damages: [(&str, Damage, &str); 7] = [
        (
            "everything is gone",
            |kernel| *kernel = Kernel::new(),
            "nat chain KUBE-SERVICES was missing",
        ),
        (
            "a hook is gone",
            |kernel| kernel.rules("nat", "PREROUTING").clear(),
            "nat chain PREROUTING did not lead to ours as it should",
        ),
        (
            "hooks changed places",
            |kernel| kernel.rules("filter", "FORWARD").reverse(),
            "filter chain FORWARD did not lead to ours as it should",
        ),
        (
            "a rule is gone",
            |kernel| drop(kernel.rules("nat", "KUBE-SERVICES").remove(0)),
            "nat chain KUBE-SERVICES lacked 1 rules",
        ),
        (
            "the end is not the end",
            |kernel| kernel.rules("nat", "KUBE-SERVICES").rotate_right(1),
            "nat chain KUBE-SERVICES did not end as it should",
        ),
        (
            "a foreign rule",
            |kernel| {
                kernel
                    .rules("nat", "KUBE-NODEPORTS")
                    .insert(1, "-j ACCEPT".into())
            },
            "nat chain KUBE-NODEPORTS had 1 rules too many",
        ),
        (
            "a fixed chain was emptied",
            |kernel| kernel.rules("nat", "KUBE-POSTROUTING").clear(),
            "nat chain KUBE-POSTROUTING had other rules",
        ),
    ];
    for (what, damage, told) in damages {
        damage(&mut kernel);
        let (_, drift) = repair(&mut kernel, &rules, &ports, usize::MAX);
        assert!(drift.iter().any(|words| words == told), "{what}: {drift:?}");
        assert_eq!(
            kernel.clone().unordered(&planner(&rules)),
            whole.clone().unordered(&planner(&rules)),
            "{what}"
        );
    }
}

impl Kernel {
    fn rules(&mut self, table: &str, chain: &str) -> &mut Vec<String> {
        let table = Table::ALL
            .into_iter()
            .find(|of| of.name() == table)
            .unwrap();
        self.chains.get_mut(&(table, chain.to_owned())).unwrap()
    }
}

#[test]
fn a_chain_that_others_use_stays_and_foreign_rules_do_too() {
    let (rules, ports) = (node_rules(), ports());
    let mut kernel = Kernel::new();
    kernel
        .chains
        .insert((Table::Nat, "CNI-HOSTPORT".into()), Vec::new());
    kernel
        .rules("nat", "PREROUTING")
        .push("-j CNI-HOSTPORT".into());
    let foreign = kernel.clone();
    repair(&mut kernel, &rules, &ports, usize::MAX);
    kernel
        .rules("nat", "CNI-HOSTPORT")
        .push("-s 10.1.1.1/32 -j KUBE-MARK-MASQ".into());
    let installed = kernel.save();
    let mut send = |run: &Run| {
        kernel.restore(&run.to_string());
        Ok::<(), Infallible>(())
    };
    removal(&installed, &mut Sink::new(usize::MAX, &mut send)).unwrap();
    assert_eq!(
        kernel.chains.remove(&(Table::Nat, "KUBE-MARK-MASQ".into())),
        Some(Vec::new())
    );
    kernel.rules("nat", "CNI-HOSTPORT").clear();
    assert_eq!(kernel, foreign);
}
