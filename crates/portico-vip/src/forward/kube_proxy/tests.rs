use super::rules::{Kind, Rules, Target, covers, has_endpoints, plan, rules, service_chain};
use super::{Route, ipvs};
use portico_model::table::Family;
use std::net::SocketAddr;

fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn route(frontend: &str, servers: &[&str]) -> Route {
    let frontends = addresses(&[frontend]);
    Route {
        family: Family::of(frontends[0].ip()),
        frontends,
        servers: addresses(servers),
        eligible: addresses(servers),
        all_healthy: true,
        cluster: None,
    }
}

const NOTE: &str = r#"-m comment --comment "portico vip beside kube-proxy (iptables)""#;
const NOTE_IPVS: &str = r#"-m comment --comment "portico vip beside kube-proxy (ipvs)""#;

#[test]
fn the_chain_of_the_api_server_is_the_one_that_everybody_knows() {
    assert_eq!(service_chain(Family::V4), "KUBE-SVC-NPX46M4PTMTKRN6Y");
}

#[test]
fn four_rules_beside_kube_proxy() {
    let seed = route(
        "172.16.64.58:6443",
        &["172.16.64.35:6443", "172.16.64.48:6443"],
    );
    let wanted = rules(Kind::Iptables, &seed, &Target::Service, true);
    let text = plan(Kind::Iptables, &Rules::default(), &wanted).unwrap();
    let rule = |hook: &str, target: &str| {
        format!("-I {hook} -d 172.16.64.58/32 -p tcp {NOTE} -m tcp --dport 6443 -j {target}\n")
    };
    let chain = "KUBE-SVC-NPX46M4PTMTKRN6Y";
    let expected: String = ["PREROUTING", "OUTPUT"]
        .map(|hook| rule(hook, chain) + &rule(hook, "KUBE-MARK-MASQ"))
        .concat();
    assert_eq!(
        text,
        format!("*nat\n{expected}COMMIT\n"),
        "the mark comes first in the end"
    );
    assert_eq!(plan(Kind::Iptables, &wanted, &wanted), None);
}

#[test]
fn beside_ipvs_the_cluster_ip_is_asked() {
    let seed = route("172.16.64.112:6443", &["172.16.64.35:6443"]);
    let target = Target::ClusterIp("10.244.255.1:443".parse().unwrap());
    let wanted = rules(Kind::Ipvs, &seed, &target, true);
    let rule = |target: &str| {
        format!("-d 172.16.64.112/32 -p tcp {NOTE_IPVS} -m tcp --dport 6443 -j {target}")
    };
    let expected = [
        rule("KUBE-MARK-MASQ"),
        rule("DNAT --to-destination 10.244.255.1:443"),
    ];
    assert_eq!(wanted.hooks, [expected.to_vec(), expected.to_vec(), vec![]]);
    assert_eq!(wanted.own, None);
}

#[test]
fn servers_share_connections_by_our_own_chain() {
    let three = route(
        "[fd00::58]:6443",
        &["[fd00::1]:6443", "[fd00::2]:6443", "[fd00::3]:6443"],
    );
    let wanted = rules(Kind::Iptables, &three, &Target::Servers, false);
    let to = |share: &str, server: &str| {
        format!("-p tcp {NOTE}{share} -j DNAT --to-destination {server}")
    };
    let random = |p: &str| format!(" -m statistic --mode random --probability {p}");
    let expected = [
        to(&random("0.33333333349"), "[fd00::1]:6443"),
        to(&random("0.50000000000"), "[fd00::2]:6443"),
        to("", "[fd00::3]:6443"),
    ];
    assert_eq!(wanted.own, Some(expected.to_vec()));
    let hook = format!("-d fd00::58/128 -p tcp {NOTE} -m tcp --dport 6443 -j PORTICO-VIP-IPTABLES");
    let translated = "-m conntrack --ctstate DNAT --ctorigdst fd00::58 --ctorigdstport 6443";
    let masquerade = format!("-p tcp {translated} {NOTE} -j MASQUERADE");
    assert_eq!(
        wanted.hooks,
        [vec![hook.clone()], vec![hook], vec![masquerade]]
    );
}

/// There and back in one input each, and the chain goes when nothing leads to it.
#[test]
fn a_change_is_one_input() {
    let two = route("192.0.2.100:6443", &["192.0.2.1:6443", "192.0.2.2:6443"]);
    let by_service = rules(Kind::Iptables, &two, &Target::Service, true);
    let one = Route {
        eligible: addresses(&["192.0.2.2:6443"]),
        all_healthy: false,
        ..two.clone()
    };
    let by_us = rules(Kind::Iptables, &one, &Target::Servers, true);
    let there = plan(Kind::Iptables, &by_service, &by_us).unwrap();
    let words = |text: &str| -> Vec<String> {
        let brief = |line: &str| {
            let mut words = line.split(' ');
            let first = words.next().unwrap_or_default().to_owned();
            format!(
                "{first} {} {}",
                words.next().unwrap_or_default(),
                words.next_back().unwrap_or_default()
            )
        };
        text.lines()
            .filter(|line| line.starts_with([':', '-']))
            .map(brief)
            .collect()
    };
    assert_eq!(
        words(&there),
        [
            ":PORTICO-VIP-IPTABLES - [0:0]",
            "-A PORTICO-VIP-IPTABLES 192.0.2.2:6443",
            "-D PREROUTING KUBE-MARK-MASQ",
            "-D PREROUTING KUBE-SVC-NPX46M4PTMTKRN6Y",
            "-I PREROUTING PORTICO-VIP-IPTABLES",
            "-I PREROUTING KUBE-MARK-MASQ",
            "-D OUTPUT KUBE-MARK-MASQ",
            "-D OUTPUT KUBE-SVC-NPX46M4PTMTKRN6Y",
            "-I OUTPUT PORTICO-VIP-IPTABLES",
            "-I OUTPUT KUBE-MARK-MASQ",
        ]
    );
    let back = plan(Kind::Iptables, &by_us, &by_service).unwrap();
    assert_eq!(
        words(&back)[8..],
        [":PORTICO-VIP-IPTABLES - [0:0]", "-X PORTICO-VIP-IPTABLES "]
    );
    let other = Route {
        eligible: addresses(&["192.0.2.1:6443"]),
        ..one
    };
    let moved = plan(
        Kind::Iptables,
        &by_us,
        &rules(Kind::Iptables, &other, &Target::Servers, true),
    )
    .unwrap();
    assert_eq!(
        words(&moved),
        [
            ":PORTICO-VIP-IPTABLES - [0:0]",
            "-A PORTICO-VIP-IPTABLES 192.0.2.1:6443"
        ]
    );
}

/// The seed's own chains.
#[test]
fn a_chain_covers_exactly_the_servers_that_it_leads_to() {
    let servers = addresses(&["172.16.64.125:6443", "172.16.64.35:6443"]);
    let of = |names: &[&str]| -> Vec<String> {
        let rule = |name: &&str| {
            format!("-m statistic --mode random --probability 0.50000000000 -j {name}")
        };
        let masquerade =
            "! -s 10.0.0.0/8 -d 10.244.255.1/32 -p tcp -m tcp --dport 443 -j KUBE-MARK-MASQ"
                .to_owned();
        [masquerade]
            .into_iter()
            .chain(names.iter().map(rule))
            .collect()
    };
    // As kube-proxy names them.
    let (a, b) = ("KUBE-SEP-UOR5H5XFFSPBYWEL", "KUBE-SEP-PEGOOV5MNLZTC5EZ");
    assert!(
        covers(&of(&[a]), &servers[..1], Family::V4),
        "the name that the seed shows"
    );
    assert!(!covers(&of(&[a]), &servers, Family::V4));
    assert!(!covers(&of(&[a, b]), &servers[..1], Family::V4));
    assert!(!covers(&of(&[]), &[], Family::V4) || !has_endpoints(&of(&[])));
    assert!(has_endpoints(&of(&[b])) && !has_endpoints(&of(&[])));
}

const IP_VS: &str = "IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port Scheduler Flags
  -> RemoteAddress:Port Forward Weight ActiveConn InActConn
TCP  0AF4FF01:01BB rr
  -> AC104030:192B      Masq    1      0          0
  -> AC104023:192B      Masq    1      2          0
  -> AC104024:192B      Masq    0      2          0
UDP  0AF4FF0A:0035 rr
TCP  [fd00:0010:0000:0000:0000:0000:0000:0001]:01BB rr
  -> [fd00:0064:0000:0000:0000:0000:0000:0031]:192B      Masq    1      0          0
";

#[test]
fn ipvs_covers_exactly_its_servers() {
    for (address, servers, covered) in [
        (
            "10.244.255.1:443",
            vec!["172.16.64.35:6443", "172.16.64.48:6443"],
            true,
        ),
        ("10.244.255.1:443", vec!["172.16.64.35:6443"], false),
        (
            "10.244.255.1:443",
            vec![
                "172.16.64.35:6443",
                "172.16.64.36:6443",
                "172.16.64.48:6443",
            ],
            false,
        ),
        (
            "10.244.255.1:6443",
            vec!["172.16.64.35:6443", "172.16.64.48:6443"],
            false,
        ),
        ("[fd00:10::1]:443", vec!["[fd00:64::31]:6443"], true),
        ("10.244.255.10:53", vec![], false),
    ] {
        assert_eq!(
            ipvs::covers(IP_VS, address.parse().unwrap(), &addresses(&servers)),
            covered,
            "{address} {servers:?}"
        );
    }
}
