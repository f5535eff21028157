use super::*;
use portico_model::table::{DmzPods, LocalPods, PerFamily};

fn rules(pods: &[&str]) -> NodeRules {
    let pods = LocalPods::Sources(pods.iter().map(|text| text.parse().unwrap()).collect());
    NodeRules {
        local_pods: PerFamily {
            v4: pods,
            v6: LocalPods::InterfacePrefix("cali".into()),
        },
        service_cidrs: vec![
            "10.96.0.0/16".parse().unwrap(),
            "fd00:10:96::/112".parse().unwrap(),
        ],
        masquerade_mark: 0x4000,
        ..NodeRules::default()
    }
}

fn written(rules: &NodeRules, family: Family) -> String {
    let chains = chains(
        rules,
        family,
        Features {
            random_fully: true,
            drop_invalid: true,
        },
    );
    let lines = |chain: &Chain| -> Vec<String> {
        chain
            .rules
            .iter()
            .map(|rule| format!("{} {} {rule}\n", chain.table.name(), chain.name))
            .collect()
    };
    chains.iter().flat_map(lines).collect()
}

#[test]
fn the_rules() {
    let expected = "\
mangle KUBE-SOURCE-RANGES-FIREWALL -m set --match-set KUBE-LOAD-BALANCER-SOURCE-CIDR dst,dst,src -j RETURN
mangle KUBE-SOURCE-RANGES-FIREWALL -j DROP
mangle PORTICO-OUTSIDE -s 10.244.0.0/16 -j RETURN
mangle PORTICO-OUTSIDE -m addrtype --src-type LOCAL -j RETURN
mangle PORTICO-OUTSIDE -j DROP
mangle KUBE-PROXY-FIREWALL -m addrtype ! --dst-type LOCAL -j RETURN
mangle KUBE-PROXY-FIREWALL -m set --match-set PORTICO-LEAVING dst -j DROP
mangle KUBE-PROXY-FIREWALL -m set --match-set KUBE-LOAD-BALANCER-FW dst,dst -j KUBE-SOURCE-RANGES-FIREWALL
mangle KUBE-PROXY-FIREWALL -m set --match-set PORTICO-DROPPED-OUTSIDE dst,dst -j PORTICO-OUTSIDE
nat KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000
nat PORTICO-INSIDE -s 10.244.0.0/16 -j NETMAP --to 240.0.0.0/4
nat PORTICO-INSIDE -m addrtype --src-type LOCAL -j NETMAP --to 240.0.0.0/4
nat KUBE-NODE-PORT -m set --match-set KUBE-NODE-PORT dst,dst -j KUBE-MARK-MASQ
nat KUBE-NODE-PORT ! -s 10.244.0.0/16 -m set --match-set KUBE-NODE-PORT-LOCAL dst,dst -m addrtype --src-type LOCAL -j KUBE-MARK-MASQ
nat KUBE-SERVICES -m addrtype ! --dst-type LOCAL -j RETURN
nat KUBE-SERVICES -m set --match-set KUBE-IPVS-IPS src -j KUBE-MARK-MASQ
nat KUBE-SERVICES ! -s 10.244.0.0/16 -m set --match-set KUBE-CLUSTER-IP dst,dst -j KUBE-MARK-MASQ
nat KUBE-SERVICES -m set --match-set KUBE-EXTERNAL-IP dst,dst -j KUBE-MARK-MASQ
nat KUBE-SERVICES ! -s 10.244.0.0/16 -m set --match-set KUBE-EXTERNAL-IP-LOCAL dst,dst -m addrtype --src-type LOCAL -j KUBE-MARK-MASQ
nat KUBE-SERVICES -m set --match-set KUBE-LOAD-BALANCER dst,dst -j KUBE-MARK-MASQ
nat KUBE-SERVICES ! -s 10.244.0.0/16 -m set --match-set KUBE-LOAD-BALANCER-LOCAL dst,dst -m addrtype --src-type LOCAL -j KUBE-MARK-MASQ
nat KUBE-SERVICES -j KUBE-NODE-PORT
nat KUBE-SERVICES -m set --match-set PORTICO-INSIDE dst,dst -j PORTICO-INSIDE
nat KUBE-POSTROUTING -m set --match-set KUBE-LOOP-BACK dst,dst,src -j MASQUERADE
nat KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
nat KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0
nat KUBE-POSTROUTING -m comment --comment \"kubernetes service traffic requiring SNAT\" -j MASQUERADE --random-fully
filter KUBE-FORWARD -m comment --comment \"kubernetes forwarding rules\" -m mark --mark 0x4000/0x4000 -j ACCEPT
filter KUBE-FORWARD -m comment --comment \"kubernetes forwarding conntrack rule\" -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
filter KUBE-IPVS-FILTER -m set ! --match-set KUBE-IPVS-IPS dst -j RETURN
filter KUBE-IPVS-FILTER -m set --match-set KUBE-CLUSTER-IP dst,dst -j RETURN
filter KUBE-IPVS-FILTER -m set --match-set KUBE-EXTERNAL-IP dst,dst -j RETURN
filter KUBE-IPVS-FILTER -m set --match-set KUBE-EXTERNAL-IP-LOCAL dst,dst -j RETURN
filter KUBE-IPVS-FILTER -m set --match-set KUBE-LOAD-BALANCER dst,dst -j RETURN
filter KUBE-IPVS-FILTER -m set --match-set KUBE-LOAD-BALANCER-LOCAL dst,dst -j RETURN
filter KUBE-IPVS-FILTER -m set --match-set PORTICO-PLAIN dst,dst -j RETURN
filter KUBE-IPVS-FILTER -p tcp -m set --match-set KUBE-HEALTH-CHECK-NODE-PORT dst -j RETURN
filter KUBE-IPVS-FILTER -d 240.0.0.0/4 -m conntrack --ctstate DNAT -j RETURN
filter KUBE-IPVS-FILTER -j REJECT --reject-with icmp-port-unreachable
filter KUBE-NODE-PORT -p tcp -m set --match-set KUBE-HEALTH-CHECK-NODE-PORT dst -j ACCEPT
filter PORTICO-CLUSTER-IPS -d 10.96.0.0/16 -j DROP
";
    let found = written(&rules(&["10.244.0.0/16"]), Family::V4);
    for (found, expected) in found.lines().zip(expected.lines()) {
        assert_eq!(found, expected);
    }
    assert_eq!(found.lines().count(), expected.lines().count());
}

#[test]
fn pods_in_several_networks() {
    let found = written(&rules(&["10.244.0.0/16", "10.245.0.0/16"]), Family::V4);
    for line in [
        "nat KUBE-SERVICES -m set --match-set KUBE-CLUSTER-IP dst,dst -j PORTICO-MASQ-UNLESS-POD",
        "nat PORTICO-MASQ-UNLESS-POD -s 10.245.0.0/16 -j RETURN",
        "nat PORTICO-INSIDE -s 10.245.0.0/16 -j NETMAP --to 240.0.0.0/4",
        "mangle PORTICO-OUTSIDE -s 10.245.0.0/16 -j RETURN",
    ] {
        assert!(found.contains(line), "{line}\n{found}");
    }
}

#[test]
fn pods_in_the_dmz() {
    let addresses = |all: &[&str]| all.iter().map(|own| own.parse().unwrap()).collect();
    let mut rules = rules(&[]);
    let without = written(&rules, Family::V4);
    assert!(!without.contains("DMZ"), "{without}");
    rules.dmz.v4 = DmzPods::Listed(addresses(&["10.244.0.5", "10.244.0.6"]));
    let closed =
        "mangle PORTICO-DMZ -m set --match-set KUBE-LOAD-BALANCER-SOURCE-CIDR dst,dst,src -j RETURN
mangle PORTICO-DMZ -j DROP";
    let first =
        "mangle PORTICO-FROM-DMZ -m set ! --match-set PORTICO-CLUSTER-ADDRESSES dst -j RETURN\n";
    let found = written(&rules, Family::V4);
    for lines in [
        format!(
            "{first}mangle PORTICO-FROM-DMZ -s 10.244.0.5/32 -j PORTICO-DMZ
mangle PORTICO-FROM-DMZ -s 10.244.0.6/32 -j PORTICO-DMZ"
        ),
        closed.to_owned(),
    ] {
        assert!(found.contains(&lines), "{lines}\n{found}");
    }
    assert!(!written(&rules, Family::V6).contains("DMZ"));
    rules.dmz.v4 = DmzPods::AllBut(addresses(&["10.244.0.5"]));
    let found = written(&rules, Family::V4);
    let lines = format!(
        "{first}mangle PORTICO-FROM-DMZ -m addrtype --src-type LOCAL -j RETURN
mangle PORTICO-FROM-DMZ -s 10.244.0.5/32 -j RETURN
mangle PORTICO-FROM-DMZ -j PORTICO-DMZ"
    );
    assert!(found.contains(&lines), "{lines}\n{found}");
}

#[test]
fn the_other_family_has_its_own_sets_and_networks() {
    let found = written(&rules(&[]), Family::V6);
    for line in [
        "nat KUBE-SERVICES ! -i cali+ -m set --match-set KUBE-6-CLUSTER-IP dst,dst -j \
         KUBE-MARK-MASQ",
        "nat PORTICO-INSIDE -i cali+ -j NETMAP --to fc00::/8",
        "filter KUBE-IPVS-FILTER -j REJECT --reject-with icmp6-port-unreachable",
        "filter PORTICO-CLUSTER-IPS -d fd00:10:96::/112 -j DROP",
    ] {
        assert!(found.contains(line), "{line}\n{found}");
    }
    assert!(!found.contains("KUBE-CLUSTER-IP "), "{found}");
}

#[test]
fn every_chain_is_known_to_be_ours_and_every_hook_leads_to_one() {
    let chains = chains(
        &rules(&[]),
        Family::V4,
        Features {
            random_fully: true,
            drop_invalid: true,
        },
    );
    for chain in &chains {
        assert!(
            crate::iptables::names::is_ours(&chain.name),
            "{}",
            chain.name
        );
    }
    for hook in hooks() {
        for rule in &hook.rules {
            let target = crate::iptables::read::target(rule).unwrap();
            assert!(
                chains
                    .iter()
                    .any(|chain| (chain.table, chain.name.as_str()) == (hook.table, target)),
                "{rule}"
            );
        }
    }
}
