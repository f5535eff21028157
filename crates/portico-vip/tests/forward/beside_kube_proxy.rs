//! Beside the rules that kube-proxy installs in iptables mode. Portico's own iptables dataplane
//! stands in for it: it has the same chains.

use crate::lab::{Daemons, Lab, PORT, alone, cluster_ip, go_all_the_way, master, run, wanted};
use portico_dataplane::Dataplane;
use portico_dataplane::iptables::{Iptables, Options, Variant};
use portico_model::key::ObjectKey;
use portico_model::table::{
    Endpoint, Family, ForwardingTable, Frontend, FrontendKind, Masquerade, NodeRules, Outcome,
    PortKey, Protocol, ServicePort,
};
use portico_testbed::Host;
use portico_vip::forward::{ForwardSettings, Forwarding, Mode};
use std::sync::Arc;

const CHAIN: &str = "KUBE-SVC-NPX46M4PTMTKRN6Y";
const OWN: &str = "PORTICO-VIP-IPTABLES";

/// `default/kubernetes` with these masters behind it.
fn kubernetes(masters: &[usize]) -> ForwardingTable {
    let port = |family: Family| {
        let v6 = family == Family::V6;
        let endpoint = |n: &usize| Endpoint {
            address: master(*n, v6),
            port: PORT,
            local: false,
        };
        let frontend = Frontend {
            kind: FrontendKind::ClusterIp,
            address: Some(cluster_ip(v6).ip()),
            port: cluster_ip(v6).port(),
            inside: Outcome::Cluster,
            outside: Outcome::Cluster,
            masquerade: Masquerade::Always,
            sources: None,
        };
        let service = ObjectKey::new("default", "kubernetes");
        let key = PortKey {
            service,
            port: "https".into(),
            protocol: Protocol::Tcp,
            family,
        };
        let cluster: Vec<Endpoint> = masters.iter().map(endpoint).collect();
        let port = ServicePort {
            frontends: vec![frontend],
            cluster: cluster.into(),
            ..ServicePort::default()
        };
        (key, Arc::new(port))
    };
    let rules = NodeRules {
        masquerade_mark: 0x4000,
        ..NodeRules::default()
    };
    ForwardingTable::new(rules, Family::BOTH.map(port).into_iter().collect())
}

/// kube-proxy on each master.
struct KubeProxies<'a>(Vec<(&'a Host, Iptables)>);

impl<'a> KubeProxies<'a> {
    fn start(lab: &'a Lab, variant: Variant) -> Self {
        let open = |host: &'a Host| {
            (
                host,
                host.enter(|| {
                    Iptables::new(Options {
                        variant: Some(variant),
                        liberal: false,
                    })
                    .unwrap()
                }),
            )
        };
        let mut proxies = KubeProxies(lab.masters.iter().map(open).collect());
        proxies.sync(&[1, 2, 3]);
        proxies
    }

    fn sync(&mut self, masters: &[usize]) {
        for (host, proxy) in &mut self.0 {
            host.enter(|| proxy.replace(&kubernetes(masters))).unwrap();
        }
    }

    fn stop(mut self) {
        for (host, proxy) in &mut self.0 {
            host.enter(|| proxy.remove()).unwrap();
        }
    }
}

fn nat(host: &Host, variant: Variant) -> String {
    let infix = if variant == Variant::Nft {
        "nft"
    } else {
        "legacy"
    };
    run(host, &format!("iptables-{infix}-save -t nat"))
        + &run(host, &format!("ip6tables-{infix}-save -t nat"))
}

/// The targets of our rules in a chain of the owner.
fn jumps(lab: &Lab, variant: Variant, chain: &str) -> Vec<String> {
    let nat = nat(lab.owner(), variant);
    let ours = nat
        .lines()
        .filter(|line| line.starts_with(&format!("-A {chain} ")) && line.contains("portico vip"));
    ours.map(|line| line.split("-j ").nth(1).unwrap().to_owned())
        .collect()
}

async fn all_the_way(variant: Variant) {
    let lab = Lab::new();
    let _proxies = KubeProxies::start(&lab, variant);
    let before = nat(lab.owner(), variant);
    let mut daemons = Daemons::new(&lab, |_| alone());
    let applied = daemons.apply(&wanted(&[1, 2, 3]));
    assert_eq!(applied.mode, Mode::Iptables, "{}", applied.why);
    for chain in ["PREROUTING", "OUTPUT"] {
        let both = ["KUBE-MARK-MASQ", CHAIN, "KUBE-MARK-MASQ", CHAIN];
        assert_eq!(jumps(&lab, variant, chain), both, "{chain}, IPv4 and IPv6");
    }
    daemons.apply(&wanted(&[1, 3]));
    assert_eq!(
        jumps(&lab, variant, "PREROUTING"),
        ["KUBE-MARK-MASQ", OWN, "KUBE-MARK-MASQ", OWN]
    );
    assert_eq!(jumps(&lab, variant, OWN).len(), 4);
    daemons.apply(&wanted(&[1, 2, 3]));
    assert_eq!(
        jumps(&lab, variant, "OUTPUT"),
        ["KUBE-MARK-MASQ", CHAIN, "KUBE-MARK-MASQ", CHAIN]
    );
    go_all_the_way(&lab, &mut daemons).await;
    assert!(
        daemons
            .rules()
            .iter()
            .any(|rule| rule.contains("-A PREROUTING -d 172.16.64.58/32 -p tcp"))
    );
    daemons.remove();
    assert_eq!(
        without_counters(&nat(lab.owner(), variant)),
        without_counters(&before)
    );
}

fn without_counters(save: &str) -> Vec<String> {
    let mut lines: Vec<String> = save
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split(" [").next().unwrap_or_default().to_owned())
        .collect();
    lines.sort();
    lines
}

#[tokio::test(flavor = "multi_thread")]
async fn packets_beside_kube_proxy_with_nf_tables() {
    all_the_way(Variant::Nft).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn packets_beside_kube_proxy_with_legacy_tables() {
    all_the_way(Variant::Legacy).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_stay_where_others_change_theirs() {
    let lab = Lab::new();
    let mut proxies = KubeProxies::start(&lab, Variant::Nft);
    let mut daemons = Daemons::new(&lab, |_| alone());
    daemons.apply(&wanted(&[1, 2, 3]));
    let targets = |chain: &str| jumps(&lab, Variant::Nft, chain);
    let good = ["KUBE-MARK-MASQ", CHAIN, "KUBE-MARK-MASQ", CHAIN];

    proxies.sync(&[1, 2, 3]);
    assert_eq!(targets("PREROUTING"), good, "kube-proxy leaves them");
    let untouched = || run(lab.owner(), "nft -s -a list ruleset");
    let before = untouched();
    daemons.apply(&wanted(&[1, 2, 3]));
    assert_eq!(untouched(), before, "what is right is not touched");

    run(lab.owner(), "iptables -t nat -F PREROUTING");
    run(lab.owner(), "iptables -t nat -F OUTPUT");
    daemons.apply(&wanted(&[1, 2, 3]));
    assert_eq!(targets("PREROUTING"), good, "put back");
    assert_eq!(targets("OUTPUT"), good, "put back");

    proxies.sync(&[1, 2]);
    daemons.apply(&wanted(&[1, 2, 3]));
    assert_eq!(
        targets("PREROUTING"),
        ["KUBE-MARK-MASQ", OWN, "KUBE-MARK-MASQ", OWN],
        "kube-proxy lacks one"
    );
    lab.check(&[1, 2, 3], "kube-proxy lacks one").await;
    proxies.sync(&[1, 2, 3]);
    daemons.apply(&wanted(&[1, 2, 3]));
    assert_eq!(targets("PREROUTING"), good, "it has them all again");
    lab.check(&[1, 2, 3], "it has them all again").await;
}

/// kube-proxy removes the chain of a Service that has lost its last endpoint, which it cannot while
/// somebody else leads there.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_leads_to_a_chain_that_may_have_to_go() {
    let lab = Lab::new();
    let mut proxies = KubeProxies::start(&lab, Variant::Nft);
    proxies.sync(&[1]);
    let mut daemons = Daemons::new(&lab, |_| alone());
    let mut one = wanted(&[1]);
    one.servers.retain(|server| server.healthy);
    assert_eq!(daemons.apply(&one).mode, Mode::Iptables);
    assert_eq!(
        jumps(&lab, Variant::Nft, "PREROUTING"),
        ["KUBE-MARK-MASQ", OWN, "KUBE-MARK-MASQ", OWN]
    );
    lab.check(&[1], "a single server").await;
}

/// kube-proxy comes later, or goes: the way changes, and nobody notices.
#[tokio::test(flavor = "multi_thread")]
async fn the_way_follows_what_is_on_the_node() {
    let lab = Lab::new();
    let mut daemons = Daemons::new(&lab, |_| alone());
    let all = wanted(&[1, 2, 3]);
    assert_eq!(daemons.apply(&all).mode, Mode::Direct);
    let proxies = KubeProxies::start(&lab, Variant::Nft);
    assert_eq!(daemons.apply(&all).mode, Mode::Iptables);
    assert!(!run(lab.owner(), "nft list tables").contains("portico-vip"));
    lab.check(&[1, 2, 3], "beside kube-proxy").await;
    proxies.stop();
    assert_eq!(daemons.apply(&all).mode, Mode::Direct);
    assert!(!nat(lab.owner(), Variant::Nft).contains("portico vip"));
    lab.check(&[1, 2, 3], "alone again").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_kube_proxy_iptables_forwards_all_the_same() {
    let lab = Lab::new();
    let settings = |_| ForwardSettings {
        mode: Mode::Iptables,
        ..alone()
    };
    let mut daemons = Daemons::new(&lab, settings);
    go_all_the_way(&lab, &mut daemons).await;
    drop(daemons);
    // After a crash.
    lab.owner()
        .enter(|| Forwarding::new(settings(1)).remove())
        .unwrap();
    assert!(!nat(lab.owner(), Variant::Nft).contains("portico"));
}
