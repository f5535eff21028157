//! BgpPeers and a real router: BIRD, to which every node announces.

use crate::rig::{FAR, NODES, Rig, service, slices};
use portico_testbed::Route;
use serde_json::json;
use std::collections::BTreeSet;
use std::fs;
use std::net::IpAddr;
use std::process::Command;
use std::time::{Duration, Instant};

const OUR_AS: u32 = 64512;
const ROUTER_AS: u32 = 64513;
const EXCLUDE: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// The host `cp` becomes a router, behind which `client2` finds the addresses.
fn start_bird(rig: &mut Rig) {
    let cp = rig.host("cp");
    for setting in [
        "net/ipv4/ip_forward",
        "net/ipv6/conf/all/forwarding",
        "net/ipv4/fib_multipath_hash_policy",
    ] {
        cp.sysctl(setting, "1").unwrap();
    }
    cp.sysctl("net/ipv6/fib_multipath_hash_policy", "1")
        .unwrap();
    let client = rig.host("client2");
    client.route(Route::to(FAR[0]).via("172.30.0.2")).unwrap();
    client.route(Route::to(FAR[1]).via("fd00:30::2")).unwrap();
    cp.route(Route::to("198.51.100.0/24").link("eth0")).unwrap();
    cp.route(Route::to("2001:db8:51::/64").link("eth0"))
        .unwrap();
    let mut text = format!(
        "log \"{0}/bird.log\" all;\nrouter id 172.30.0.2;\nprotocol device {{}}\n\
         protocol kernel {{ ipv4 {{ import none; export all; }}; merge paths on; }}\n\
         protocol kernel {{ ipv6 {{ import none; export all; }}; merge paths on; }}\n\
         template bgp node {{ local as {ROUTER_AS}; passive; hold time 3; error wait time 1,2;\n\
         ipv4 {{ import all; export none; }}; ipv6 {{ import all; export none; }}; }}\n",
        rig.dir.path().display()
    );
    for node in NODES {
        let address = rig.cluster.addresses.of(node, "ip").unwrap();
        text += &format!("protocol bgp {node} from node {{ neighbor {address} as {OUR_AS}; }}\n");
    }
    let path = |name: &str| rig.dir.path().join(name).display().to_string();
    fs::write(path("bird.conf"), text).unwrap();
    let mut command = Command::new("bird");
    command.args([
        "-f",
        "-c",
        &path("bird.conf"),
        "-s",
        &path("bird.ctl"),
        "-P",
        &path("bird.pid"),
    ]);
    rig.run("cp", command, "bird");
}

/// The nodes that the router sends an address's packets to, by its kernel.
fn next_hops(rig: &Rig, address: IpAddr) -> BTreeSet<String> {
    let mut command = Command::new("ip");
    command.args([
        if address.is_ipv4() { "-4" } else { "-6" },
        "route",
        "show",
        &address.to_string(),
    ]);
    let text = rig.host("cp").run(command, "").unwrap();
    let words: Vec<&str> = text.split_whitespace().collect();
    let hops = words
        .windows(2)
        .filter(|pair| pair[0] == "via")
        .filter_map(|pair| pair[1].parse().ok());
    hops.filter_map(|hop| rig.cluster.addresses.owner(hop).map(str::to_owned))
        .collect()
}

fn wait_for_hops(rig: &Rig, addresses: &[IpAddr], nodes: &[&str]) {
    let wanted: BTreeSet<String> = nodes.iter().map(|node| (*node).to_owned()).collect();
    for address in addresses {
        rig.wait_until(
            &format!("the router has {address} from {nodes:?}"),
            || match next_hops(rig, *address) {
                hops if hops == wanted => Ok(()),
                hops => Err(hops),
            },
        );
    }
}

#[test]
fn a_router_spreads_over_the_nodes_that_announce() {
    let mut rig = Rig::start();
    start_bird(&mut rig);
    rig.pool("far", &FAR, &["BGP"]);
    rig.apply(&[json!({"apiVersion": "portico.dev/v1", "kind": "BgpPeer", "metadata": {"name": "tor"},
        "spec": {"myASN": OUR_AS, "peerASN": ROUTER_AS, "peerAddress": "172.30.0.2", "holdTime": "3s", "connectTime": "1s"}})]);
    rig.apply(&service("web", "Cluster", &["pod1-1"]));
    let web = rig.addresses("web");
    wait_for_hops(&rig, &web, &NODES);
    let message = rig.wait_for_condition("web", "Announced");
    assert!(
        message.contains("BGP") && NODES.iter().all(|node| message.contains(node)),
        "{message}"
    );
    for address in &web {
        rig.wait_for_answer("client2", *address);
        assert_eq!(
            rig.entries("client2", *address, 60),
            NODES.map(str::to_owned).into(),
            "{address}"
        );
    }

    // With Local, only nodes with endpoints, also when these move; the server sees who asks.
    rig.apply(&service("near", "Local", &["pod1-1", "pod2-1"]));
    let near = rig.addresses("near");
    wait_for_hops(&rig, &near, &["node1", "node2"]);
    for address in &near {
        rig.wait_for_answer("client2", *address);
        assert_eq!(
            rig.entries("client2", *address, 20),
            ["client2".to_owned()].into()
        );
    }
    rig.apply(&slices("near", &["pod3-1"]));
    wait_for_hops(&rig, &near, &["node3"]);
    assert_eq!(rig.wait_for_answer("client2", near[0]).host, "pod3-1");
    rig.apply(&slices("near", &[]));
    wait_for_hops(&rig, &near, &[]);

    // A node that load balancers shall not use takes its routes back, and announces again when it
    // may.
    rig.kubectl(&["label", "node", "node2", &format!("{EXCLUDE}=")], "");
    wait_for_hops(&rig, &web, &["node1", "node3"]);
    rig.kubectl(&["label", "node", "node2", &format!("{EXCLUDE}-")], "");
    wait_for_hops(&rig, &web, &NODES);

    // A restart of the daemon takes nothing back; its death does.
    rig.node("node3").terminate(Duration::from_secs(5));
    rig.start_node("node3");
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(4) {
        assert_eq!(
            next_hops(&rig, web[0]),
            NODES.map(str::to_owned).into(),
            "{:?} into a restart",
            began.elapsed()
        );
    }
    rig.cluster.unplug("node3").unwrap();
    wait_for_hops(&rig, &web, &["node1", "node2"]);
}
