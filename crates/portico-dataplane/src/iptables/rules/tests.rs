use super::*;
use portico_model::key::ObjectKey;
use portico_model::table::Protocol;
use std::sync::Arc;

fn key(family: Family) -> PortKey {
    let service = ObjectKey::new("ns1", "svc1");
    PortKey {
        service,
        port: "p80".into(),
        protocol: Protocol::Tcp,
        family,
    }
}

fn endpoint(address: &str, local: bool) -> Endpoint {
    Endpoint {
        address: address.parse().unwrap(),
        port: 80,
        local,
    }
}

fn frontend(
    kind: FrontendKind,
    address: Option<&str>,
    inside: Outcome,
    outside: Outcome,
    masquerade: Masquerade,
) -> Frontend {
    let port = if kind == FrontendKind::NodePort {
        3001
    } else {
        80
    };
    Frontend {
        kind,
        address: address.map(|a| a.parse().unwrap()),
        port,
        inside,
        outside,
        masquerade,
        sources: None,
    }
}

fn cluster_ip(outcome: Outcome) -> Frontend {
    frontend(
        FrontendKind::ClusterIp,
        Some("10.20.30.41"),
        outcome,
        outcome,
        Masquerade::UnlessPod,
    )
}

fn pods(networks: &[&str]) -> NodeRules {
    let mut rules = NodeRules {
        masquerade_mark: 0x4000,
        ..NodeRules::default()
    };
    rules.local_pods.v4 = LocalPods::Sources(networks.iter().map(|n| n.parse().unwrap()).collect());
    rules
}

/// The rules as `iptables-restore` would be given them, comments left out.
fn lines(port: &ServicePort, rules: &NodeRules, key: &PortKey) -> Vec<String> {
    let without_comment = |line: String| match line.split_once("-m comment --comment \"") {
        Some((before, rest)) => format!("{before}{}", rest.split_once("\" ").unwrap().1),
        None => line,
    };
    let wanted = port_rules(key, port, rules);
    let chains = wanted.chains.iter().flat_map(|c| {
        c.rules
            .iter()
            .map(|rule| format!("{} {} {rule}", c.table.name(), c.name))
    });
    let shared = wanted
        .shared
        .iter()
        .map(|(shared, rule)| format!("{} {} {rule}", shared.table().name(), shared.name()));
    shared.chain(chains).map(without_comment).collect()
}

fn assert_lines(port: &ServicePort, rules: &NodeRules, expected: &str) {
    let expected: Vec<&str> = expected
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    assert_eq!(
        lines(port, rules, &key(Family::V4)).join("\n"),
        expected.join("\n")
    );
}

#[test]
fn a_cluster_ip() {
    let cluster: Arc<[Endpoint]> =
        [endpoint("10.180.0.1", false), endpoint("10.180.0.2", true)].into();
    let port = ServicePort {
        frontends: vec![cluster_ip(Outcome::Cluster)],
        cluster,
        ..ServicePort::default()
    };
    assert_lines(
        &port,
        &pods(&["10.0.0.0/24"]),
        "nat KUBE-SERVICES -d 10.20.30.41/32 -p tcp -m tcp --dport 80 -j KUBE-SVC-XPGD46QRK7WJZT7O
         filter PORTICO-CLUSTER-IPS -d 10.20.30.41/32 -j REJECT --reject-with icmp-port-unreachable
         nat KUBE-SVC-XPGD46QRK7WJZT7O ! -s 10.0.0.0/24 -d 10.20.30.41/32 -p tcp -m tcp --dport 80 -j KUBE-MARK-MASQ
         nat KUBE-SVC-XPGD46QRK7WJZT7O -m statistic --mode random --probability 0.50000000000 -j KUBE-SEP-SXIVWICOYRO3J4NJ
         nat KUBE-SVC-XPGD46QRK7WJZT7O -j KUBE-SEP-LXVODXWDISEETFEF
         nat KUBE-SEP-SXIVWICOYRO3J4NJ -s 10.180.0.1/32 -j KUBE-MARK-MASQ
         nat KUBE-SEP-SXIVWICOYRO3J4NJ -p tcp -m tcp -j DNAT --to-destination 10.180.0.1:80
         nat KUBE-SEP-LXVODXWDISEETFEF -s 10.180.0.2/32 -j KUBE-MARK-MASQ
         nat KUBE-SEP-LXVODXWDISEETFEF -p tcp -m tcp -j DNAT --to-destination 10.180.0.2:80",
    );
}

#[test]
fn a_cluster_ip_for_some_pods() {
    let port = |outcome| ServicePort {
        frontends: vec![Frontend {
            sources: Some(["10.0.0.5/32".parse().unwrap()].into()),
            ..cluster_ip(outcome)
        }],
        cluster: match outcome {
            Outcome::Cluster => [endpoint("10.180.0.1", false)].into(),
            _ => Arc::default(),
        },
        ..ServicePort::default()
    };
    let nobody = "filter PORTICO-CLUSTER-IPS -d 10.20.30.41/32 -j REJECT --reject-with icmp-port-unreachable";
    assert_lines(
        &port(Outcome::Cluster),
        &pods(&["10.0.0.0/24"]),
        &format!("nat KUBE-SERVICES -d 10.20.30.41/32 -p tcp -m tcp --dport 80 -j KUBE-FW-XPGD46QRK7WJZT7O
         filter KUBE-PROXY-FIREWALL -d 10.20.30.41/32 -p tcp -m tcp --dport 80 -j DROP
         {nobody}
         nat KUBE-FW-XPGD46QRK7WJZT7O -s 10.0.0.5/32 -j KUBE-SVC-XPGD46QRK7WJZT7O
         nat KUBE-SVC-XPGD46QRK7WJZT7O ! -s 10.0.0.0/24 -d 10.20.30.41/32 -p tcp -m tcp --dport 80 -j KUBE-MARK-MASQ
         nat KUBE-SVC-XPGD46QRK7WJZT7O -j KUBE-SEP-SXIVWICOYRO3J4NJ
         nat KUBE-SEP-SXIVWICOYRO3J4NJ -s 10.180.0.1/32 -j KUBE-MARK-MASQ
         nat KUBE-SEP-SXIVWICOYRO3J4NJ -p tcp -m tcp -j DNAT --to-destination 10.180.0.1:80"),
    );
    assert_lines(
        &port(Outcome::Reject),
        &pods(&["10.0.0.0/24"]),
        &format!("filter KUBE-PROXY-FIREWALL -d 10.20.30.41/32 -p tcp -m tcp --dport 80 -j KUBE-FW-XPGD46QRK7WJZT7O
         filter KUBE-EXTERNAL-SERVICES -d 10.20.30.41/32 -p tcp -m tcp --dport 80 -j REJECT --reject-with icmp-port-unreachable
         {nobody}
         filter KUBE-FW-XPGD46QRK7WJZT7O -s 10.0.0.5/32 -j RETURN
         filter KUBE-FW-XPGD46QRK7WJZT7O -j DROP"),
    );
}

#[test]
fn a_cluster_ip_that_some_of_the_dmz_may_use() {
    let mut rules = pods(&["10.0.0.0/24"]);
    let port = ServicePort {
        frontends: vec![cluster_ip(Outcome::Cluster)],
        cluster: [endpoint("10.180.0.1", false)].into(),
        dmz: ["10.0.0.5".parse().unwrap()].into(),
        ..ServicePort::default()
    };
    let of_dmz = |rules: &NodeRules| {
        let mut lines = lines(&port, rules, &key(Family::V4));
        lines.retain(|line| line.contains("DMZ"));
        lines
    };
    assert_eq!(of_dmz(&rules), Vec::<String>::new());
    rules.dmz.v4 = DmzPods::Listed(vec!["10.0.0.5".parse().unwrap()]);
    assert_eq!(
        of_dmz(&rules),
        [
            "filter PORTICO-DMZ -s 10.0.0.5/32 -p tcp -m conntrack --ctorigdst 10.20.30.41 --ctorigdstport 80 -j RETURN",
            "filter PORTICO-CLOSED-TO-DMZ -m conntrack --ctorigdst 10.20.30.41 -j DROP",
        ]
    );
}

#[test]
fn who_is_masqueraded() {
    let of = |masquerade, rules: &NodeRules| {
        let frontends = vec![Frontend {
            masquerade,
            ..cluster_ip(Outcome::Cluster)
        }];
        let port = ServicePort {
            frontends,
            cluster: [endpoint("10.180.0.1", false)].into(),
            ..ServicePort::default()
        };
        let in_chain = |line: &String| line.starts_with("nat KUBE-SVC") && line.contains("MASQ");
        let lines = lines(&port, rules, &key(Family::V4));
        let found: Vec<String> = lines.into_iter().filter(in_chain).collect();
        found
            .join("\n")
            .replace("nat KUBE-SVC-XPGD46QRK7WJZT7O ", "")
            .replace("-p tcp -m tcp --dport 80 ", "")
            .replace("-d 10.20.30.41/32 ", "")
    };
    let with = |local_pods| NodeRules {
        local_pods: portico_model::table::PerFamily {
            v4: local_pods,
            v6: LocalPods::Unknown,
        },
        ..NodeRules::default()
    };
    let one = pods(&["10.0.0.7/24"]);
    assert_eq!(
        of(Masquerade::UnlessPod, &one),
        "! -s 10.0.0.0/24 -j KUBE-MARK-MASQ"
    );
    assert_eq!(
        of(
            Masquerade::UnlessPod,
            &pods(&["10.0.0.0/24", "10.1.0.0/24"])
        ),
        "-j PORTICO-MASQ-UNLESS-POD"
    );
    assert_eq!(of(Masquerade::UnlessPod, &pods(&["0.0.0.0/0"])), "");
    assert_eq!(
        of(
            Masquerade::UnlessPod,
            &with(LocalPods::Interface("cni0".into()))
        ),
        "! -i cni0 -j KUBE-MARK-MASQ"
    );
    assert_eq!(
        of(
            Masquerade::UnlessPod,
            &with(LocalPods::InterfacePrefix("veth".into()))
        ),
        "! -i veth+ -j KUBE-MARK-MASQ"
    );
    assert_eq!(
        of(Masquerade::UnlessPod, &with(LocalPods::Unknown)),
        "-j KUBE-MARK-MASQ"
    );
    assert_eq!(of(Masquerade::Always, &one), "-j KUBE-MARK-MASQ");
    assert_eq!(
        of(Masquerade::OnlyNode, &one),
        "-m addrtype --src-type LOCAL -j KUBE-MARK-MASQ"
    );
    assert_eq!(of(Masquerade::Never, &one), "");
}

#[test]
fn a_local_external_policy() {
    let external = |kind, address| {
        frontend(
            kind,
            address,
            Outcome::Cluster,
            Outcome::Local,
            Masquerade::OnlyNode,
        )
    };
    let mut balancer = external(FrontendKind::LoadBalancerIp, Some("1.2.3.4"));
    balancer.sources = Some(["203.0.113.0/25".parse().unwrap()].into());
    let port = ServicePort {
        frontends: vec![
            external(FrontendKind::ExternalIp, Some("192.168.99.11")),
            balancer,
            external(FrontendKind::NodePort, None),
        ],
        cluster: [endpoint("10.180.0.1", false), endpoint("10.180.0.2", true)].into(),
        local: [endpoint("10.180.0.2", true)].into(),
        health_check: Some(32000),
        ..ServicePort::default()
    };
    let found = lines(&port, &pods(&["10.0.0.0/8"]), &key(Family::V4));
    let interesting: Vec<String> = found
        .into_iter()
        .filter(|line| !line.contains("SEP"))
        .collect();
    let expected = "filter KUBE-NODEPORTS -p tcp -m tcp --dport 32000 -j ACCEPT
nat KUBE-SERVICES -d 192.168.99.11/32 -p tcp -m tcp --dport 80 -j KUBE-EXT-XPGD46QRK7WJZT7O
nat KUBE-SERVICES -d 1.2.3.4/32 -p tcp -m tcp --dport 80 -j KUBE-FW-XPGD46QRK7WJZT7O
filter KUBE-PROXY-FIREWALL -d 1.2.3.4/32 -p tcp -m tcp --dport 80 -j DROP
nat KUBE-NODEPORTS -p tcp -m tcp --dport 3001 -j KUBE-EXT-XPGD46QRK7WJZT7O
nat KUBE-EXT-XPGD46QRK7WJZT7O -s 10.0.0.0/8 -j KUBE-SVC-XPGD46QRK7WJZT7O
nat KUBE-EXT-XPGD46QRK7WJZT7O -m addrtype --src-type LOCAL -j KUBE-MARK-MASQ
nat KUBE-EXT-XPGD46QRK7WJZT7O -m addrtype --src-type LOCAL -j KUBE-SVC-XPGD46QRK7WJZT7O
nat KUBE-EXT-XPGD46QRK7WJZT7O -j KUBE-SVL-XPGD46QRK7WJZT7O
nat KUBE-FW-XPGD46QRK7WJZT7O -s 203.0.113.0/25 -j KUBE-EXT-XPGD46QRK7WJZT7O";
    assert_eq!(interesting.join("\n"), expected);
}

#[test]
fn nobody_serves() {
    let mut balancer = frontend(
        FrontendKind::LoadBalancerIp,
        Some("1.2.3.4"),
        Outcome::Reject,
        Outcome::Reject,
        Masquerade::Always,
    );
    balancer.sources = Some(["203.0.113.0/25".parse().unwrap()].into());
    let node_port = frontend(
        FrontendKind::NodePort,
        None,
        Outcome::Reject,
        Outcome::Reject,
        Masquerade::Always,
    );
    let port = ServicePort {
        frontends: vec![cluster_ip(Outcome::Reject), balancer, node_port],
        ..ServicePort::default()
    };
    assert_lines(
        &port,
        &pods(&["10.0.0.0/8"]),
        "filter KUBE-EXTERNAL-SERVICES -d 10.20.30.41/32 -p tcp -m tcp --dport 80 -j REJECT --reject-with icmp-port-unreachable
         filter PORTICO-CLUSTER-IPS -d 10.20.30.41/32 -j REJECT --reject-with icmp-port-unreachable
         filter KUBE-PROXY-FIREWALL -d 1.2.3.4/32 -p tcp -m tcp --dport 80 -j KUBE-FW-XPGD46QRK7WJZT7O
         filter KUBE-EXTERNAL-SERVICES -d 1.2.3.4/32 -p tcp -m tcp --dport 80 -j REJECT --reject-with icmp-port-unreachable
         filter PORTICO-NODE-PORTS -p tcp -m tcp --dport 3001 -j REJECT --reject-with icmp-port-unreachable
         filter KUBE-FW-XPGD46QRK7WJZT7O -s 203.0.113.0/25 -j RETURN
         filter KUBE-FW-XPGD46QRK7WJZT7O -j DROP",
    );
}

#[test]
fn nobody_on_this_node_serves() {
    let external = frontend(
        FrontendKind::ExternalIp,
        Some("192.168.99.11"),
        Outcome::Cluster,
        Outcome::Drop,
        Masquerade::OnlyNode,
    );
    let port = ServicePort {
        frontends: vec![external],
        cluster: [endpoint("10.180.0.1", false)].into(),
        ..ServicePort::default()
    };
    let found = lines(&port, &pods(&["10.0.0.0/8"]), &key(Family::V4));
    assert!(
        found.contains(
            &"filter KUBE-EXTERNAL-SERVICES -d 192.168.99.11/32 -p tcp -m tcp --dport 80 -j DROP"
                .to_owned()
        ),
        "{found:#?}"
    );
    assert!(
        !found.iter().any(|line| line.contains("KUBE-SVL")),
        "{found:#?}"
    );
    assert!(found.contains(
        &"nat KUBE-EXT-XPGD46QRK7WJZT7O -m addrtype --src-type LOCAL -j KUBE-SVC-XPGD46QRK7WJZT7O".to_owned()
    ));
}

#[test]
fn affinity_in_ipv6() {
    let mut port = ServicePort {
        frontends: vec![frontend(
            FrontendKind::ClusterIp,
            Some("fd00::41"),
            Outcome::Cluster,
            Outcome::Cluster,
            Masquerade::Never,
        )],
        cluster: [endpoint("fd00::1", false)].into(),
        affinity: Some(10800),
        ..ServicePort::default()
    };
    let found = lines(&port, &NodeRules::default(), &key(Family::V6));
    let chain = found
        .iter()
        .find_map(|line| line.strip_prefix("nat KUBE-SEP-"))
        .unwrap()
        .split(' ')
        .next()
        .unwrap()
        .to_owned();
    let mask = "--mask ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff --rsource";
    assert_eq!(
        found[2..].join("\n"),
        format!(
            "nat KUBE-SVC-XPGD46QRK7WJZT7O -m recent --rcheck --seconds 10800 --reap --name KUBE-SEP-{chain} {mask} -j KUBE-SEP-{chain}
nat KUBE-SVC-XPGD46QRK7WJZT7O -j KUBE-SEP-{chain}
nat KUBE-SEP-{chain} -s fd00::1/128 -j KUBE-MARK-MASQ
nat KUBE-SEP-{chain} -p tcp -m recent --set --name KUBE-SEP-{chain} {mask} -m tcp -j DNAT --to-destination [fd00::1]:80"
        )
    );
    port.affinity = None;
    assert!(
        lines(&port, &NodeRules::default(), &key(Family::V6))
            .iter()
            .all(|line| !line.contains("recent"))
    );
}

#[test]
fn probabilities_are_printed_as_the_kernel_keeps_them() {
    assert_eq!(probability(2), "0.50000000000");
    assert_eq!(probability(3), "0.33333333349");
    assert_eq!(probability(1000), "0.00100000016");
}

/// A rule is one line, its comment is one word in quotes, and nothing else comes from a name.
#[test]
fn hostile_names_stay_in_their_comment() {
    for name in crate::testing::hostile_names() {
        let (hostile, port) = crate::testing::hostile(&name, 1);
        let mut plain = hostile.clone();
        plain.service = ObjectKey::new("ns", "name");
        let written = |key: &PortKey| -> Vec<String> {
            let rules = port_rules(key, &port, &pods(&["10.0.0.0/8"]));
            let chains = rules.chains.iter().flat_map(|chain| chain.rules.clone());
            let shared = rules.shared.iter().map(|(_, rule)| rule.clone());
            shared.chain(chains).collect()
        };
        // Chains are named by hashes of names, which differ.
        let without = |rule: &String| -> String {
            let parts: Vec<&str> = rule.split('"').collect();
            assert!(
                parts.len() == 3 || parts.len() == 1,
                "{name:?} broke out: {rule}"
            );
            assert!(
                rule.bytes().all(|byte| (b' '..=b'~').contains(&byte)),
                "{rule:?}"
            );
            let comment = parts.get(1).copied().unwrap_or_default();
            assert!(comment.len() <= 255 && !comment.contains('\\'), "{rule:?}");
            let outside = [parts.first(), parts.get(2)].map(|part| *part.unwrap_or(&""));
            let words = outside.join(" ");
            let words = words.split(' ').map(|word| match word.len() {
                24 | 25 if word.starts_with("KUBE-") => &word[..8],
                _ => word,
            });
            words.collect::<Vec<_>>().join(" ")
        };
        let rules = written(&hostile);
        assert!(rules.len() > 10);
        assert_eq!(
            rules.iter().map(without).collect::<Vec<_>>(),
            written(&plain).iter().map(without).collect::<Vec<_>>(),
            "{name:?}"
        );
    }
}
