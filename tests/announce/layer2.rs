//! Layer 2: one node answers for an address, and another one when it cannot.

use crate::rig::{NEAR, NODES, Rig, condition, service, slices};
use portico_model::pools::AddressRange;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::IpAddr;
use std::process::Command;
use std::time::{Duration, Instant};

const ASPECTS: [&str; 4] = ["Allocated", "Programmed", "Announced", "Reachable"];
/// What people would call an outage; how long it takes is measured by a benchmark.
const MOST: Duration = Duration::from_secs(10);

/// A cluster with a pool that is announced at layer 2.
fn start() -> Rig {
    let rig = Rig::start();
    rig.pool("near", &NEAR, &["Layer2"]);
    rig
}

/// A Service with an endpoint on each node, which answers.
fn serve(rig: &Rig, name: &str) -> Vec<IpAddr> {
    rig.apply(&service(name, "Cluster", &["pod1-1", "pod2-1", "pod3-1"]));
    let addresses = rig.addresses(name);
    addresses
        .iter()
        .for_each(|address| drop(rig.wait_for_answer("client", *address)));
    addresses
}

/// Who answers for an address, once it answers.
fn owner(rig: &Rig, address: IpAddr) -> &'static str {
    rig.wait_for_answer("client", address);
    rig.owner("client", address)
        .unwrap_or_else(|| panic!("nobody has {address}"))
}

fn wait_for_owner(rig: &Rig, address: IpAddr, is_right: impl Fn(&str) -> bool) -> &'static str {
    let mut found = "";
    rig.wait_until(&format!("somebody else answers for {address}"), || {
        let answer = rig.ask("client", address);
        found = rig.owner("client", address).unwrap_or_default();
        if answer.is_ok() && is_right(found) {
            Ok(())
        } else {
            Err((answer, found))
        }
    });
    found
}

#[test]
fn from_kubectl_apply_to_an_answer() {
    let mut rig = start();
    let mut watch = Command::new("kubectl");
    watch
        .env("KUBECONFIG", rig.dir.path().join("kubeconfig"))
        .args(["get", "services", "--watch", "-o", "json"]);
    rig.run("cp", watch, "watch");
    rig.apply(&service("web", "Cluster", &["pod1-1", "pod2-1"]));
    let addresses = rig.addresses("web");
    let pool = NEAR.map(|network| network.parse::<AddressRange>().unwrap());
    assert!(
        addresses
            .iter()
            .all(|address| pool.iter().any(|network| network.contains(*address))),
        "{addresses:?}"
    );
    ASPECTS
        .iter()
        .for_each(|aspect| drop(rig.wait_for_condition("web", aspect)));
    assert_eq!(
        rig.wait_for_condition("web", "Programmed"),
        "live on 3 of 3 nodes"
    );
    for address in addresses {
        let seen = rig.wait_for_answer("client", address);
        assert!(["pod1-1", "pod2-1"].contains(&seen.host.as_str()), "{seen}");
        assert_eq!(
            rig.entries("client", address, 20),
            [owner(&rig, address).to_owned()].into()
        );
    }
    in_order(&rig);
}

/// What a watch showed: no condition was true before those that it follows from.
fn in_order(rig: &Rig) {
    let mut versions = vec![];
    let first_true = |versions: &[Value], aspect: &str| {
        let is_true = |version: &Value| {
            condition(version, aspect).is_some_and(|found| found["status"] == "True")
        };
        versions.iter().position(is_true)
    };
    rig.wait_until("the watch has shown everything", || {
        let log = fs::read_to_string(rig.dir.path().join("watch.log")).unwrap();
        let seen = serde_json::Deserializer::from_str(&log)
            .into_iter::<Value>()
            .map_while(Result::ok);
        versions = seen
            .filter(|object| object["metadata"]["name"] == "web")
            .collect();
        let missing: Vec<_> = ASPECTS
            .iter()
            .filter(|aspect| first_true(&versions, aspect).is_none())
            .collect();
        if missing.is_empty() {
            Ok(())
        } else {
            Err(format!("{missing:?}"))
        }
    });
    let order = ASPECTS.map(|aspect| first_true(&versions, aspect));
    println!("{ASPECTS:?} were first true in versions {order:?}");
    assert!(
        order.is_sorted(),
        "{ASPECTS:?} were first true in versions {order:?}"
    );
    let time = |aspect: &str| {
        condition(versions.last()?, aspect)?["lastTransitionTime"]
            .as_str()
            .map(str::to_owned)
    };
    let times = ASPECTS.map(time);
    assert!(
        times.is_sorted() && times.iter().all(Option::is_some),
        "{times:?}"
    );
}

#[test]
fn local_keeps_the_source_and_attracts_only_where_endpoints_are() {
    let rig = start();
    rig.apply(&service("web", "Local", &["pod2-1"]));
    let addresses = rig.addresses("web");
    let check = |pod: &str, node: &str| {
        for address in &addresses {
            wait_for_owner(&rig, *address, |owner| owner == node);
            let seen = rig.wait_for_answer("client", *address);
            assert_eq!(
                (
                    seen.host.as_str(),
                    rig.cluster.addresses.owner(seen.source.ip())
                ),
                (pod, Some("client"))
            );
        }
    };
    check("pod2-1", "node2");
    rig.apply(&slices("web", &["pod3-2"]));
    check("pod3-2", "node3");
    rig.apply(&slices("web", &[]));
    rig.wait_until("nobody answers", || {
        match rig.ask("client2", addresses[0]) {
            Err(_) => Ok(()),
            Ok(seen) => Err(seen),
        }
    });
    rig.apply(&slices("web", &["pod1-1"]));
    check("pod1-1", "node1");
}

/// Does something to the owner of an address, and waits for another one: the longest time without
/// an answer meanwhile.
fn outage(
    rig: &mut Rig,
    address: IpAddr,
    what: &str,
    hurt: impl FnOnce(&mut Rig, &str),
) -> &'static str {
    let old = owner(rig, address);
    hurt(rig, old);
    let began = Instant::now();
    let (mut last, mut longest) = (began, Duration::ZERO);
    let new = loop {
        assert!(
            began.elapsed() < MOST,
            "{what}: nobody took {address} over from {old}\n{}",
            rig.logs()
        );
        if rig
            .ask_within(Duration::from_millis(50), "client", address)
            .is_ok()
        {
            longest = longest.max(last.elapsed());
            last = Instant::now();
            match rig.owner("client", address) {
                Some(new) if new != old => break new,
                _ => {}
            }
        }
    };
    println!(
        "{what} {old}: {address} is {new}'s after {:?}; the longest silence was {longest:?}",
        began.elapsed()
    );
    old
}

#[test]
fn another_node_answers_when_the_owner_cannot() {
    let mut rig = start();
    for (name, family) in [("web", 0), ("six", 1)] {
        let address = serve(&rig, name)[family];
        let killed = outage(&mut rig, address, "killed", |rig, node| {
            _ = rig.node(node).kill()
        });
        rig.start_node(killed);
        wait_for_owner(&rig, address, |owner| owner == killed);
        let paused = outage(&mut rig, address, "paused", |rig, node| {
            rig.node(node).signal(libc::SIGSTOP)
        });
        rig.node(paused).signal(libc::SIGCONT);
        wait_for_owner(&rig, address, |owner| owner == paused);
        let unplugged = outage(&mut rig, address, "unplugged", |rig, node| {
            rig.cluster.unplug(node).unwrap()
        });
        rig.cluster.plug_in(unplugged).unwrap();
        wait_for_owner(&rig, address, |owner| owner == unplugged);
        let stopped = outage(&mut rig, address, "stopped", |rig, node| {
            _ = rig.node(node).terminate(MOST)
        });
        rig.start_node(stopped);
        wait_for_owner(&rig, address, |owner| owner == stopped);
    }
}

#[test]
fn a_node_that_returns_takes_back_its_share_alone() {
    let mut rig = start();
    let names: Vec<String> = (0..8).map(|number| format!("web{number}")).collect();
    let addresses: Vec<IpAddr> = names.iter().flat_map(|name| serve(&rig, name)).collect();
    let owners = |rig: &Rig| -> BTreeMap<IpAddr, &'static str> {
        addresses
            .iter()
            .map(|address| (*address, owner(rig, *address)))
            .collect()
    };
    let before = owners(&rig);
    let all: BTreeSet<&str> = before.values().copied().collect();
    assert_eq!(all, NODES.into(), "16 addresses are spread over all nodes");
    rig.node("node2").kill();
    let moved = || {
        addresses
            .iter()
            .filter(|address| before[*address] == "node2")
    };
    moved().for_each(|address| _ = wait_for_owner(&rig, *address, |owner| owner != "node2"));
    let stayed = |now: &BTreeMap<IpAddr, &str>| {
        before
            .iter()
            .all(|(address, owner)| *owner == "node2" || now[address] == *owner)
    };
    assert!(stayed(&owners(&rig)), "what others had is still theirs");
    rig.start_node("node2");
    moved().for_each(|address| _ = wait_for_owner(&rig, *address, |owner| owner == "node2"));
    assert_eq!(owners(&rig), before);
}

#[test]
fn an_excluded_node_hands_over_at_once() {
    let rig = start();
    let address = serve(&rig, "web")[0];
    let old = owner(&rig, address);
    let exclude = "node.kubernetes.io/exclude-from-external-load-balancers";
    rig.kubectl(&["label", "node", old, &format!("{exclude}=")], "");
    wait_for_owner(&rig, address, |owner| owner != old);
    rig.kubectl(&["label", "node", old, &format!("{exclude}-")], "");
    wait_for_owner(&rig, address, |owner| owner == old);
}
