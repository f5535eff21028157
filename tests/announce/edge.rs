//! The consistent edge: open connections when the way to an address moves between nodes.

use crate::rig::{NEAR, NODES, PORT, Rig, service};
use std::io::{self, BufRead, BufReader, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

const CONNECTIONS: usize = 30;
/// For an answer that does not come; longer than it takes to notice that a node is gone.
const PATIENCE: Duration = Duration::from_secs(10);

/// A cluster with the edge and a pool that is announced on layer 2.
fn start() -> Rig {
    let mut rig = Rig::with_apiserver();
    let controller = rig.controller("metal");
    rig.run("cp", controller, "controller");
    NODES
        .iter()
        .for_each(|name| rig.start_node_with(name, &["--edge=auto"]));
    rig.pool("near", &NEAR, &["Layer2"]);
    rig
}

/// A Service with an endpoint on each node, as soon as all nodes know who has which slot.
fn serve(rig: &Rig) -> Vec<IpAddr> {
    rig.apply(&service("web", "Cluster", &["pod1-1", "pod2-1", "pod3-1"]));
    let addresses = rig.addresses("web");
    addresses
        .iter()
        .for_each(|address| drop(rig.wait_for_answer("client", *address)));
    wait_for_slots(rig);
    addresses
}

fn wait_for_slots(rig: &Rig) {
    for (node, family) in NODES.iter().flat_map(|node| [(node, "ip"), (node, "ip6")]) {
        rig.wait_until(&format!("{node} knows its neighbours ({family})"), || {
            let mut nft = Command::new("nft");
            nft.args(["list", "map", family, "portico", "edge-slots"]);
            let listed = rig.host(node).run(nft, "").unwrap_or_default();
            // Without a way to a node its slots have no address.
            let none = listed.contains(": 0.0.0.0") || listed.contains(": ::");
            if listed.contains("elements") && !none {
                Ok(())
            } else {
                Err(listed.chars().take(200).collect::<String>())
            }
        });
    }
}

/// From now on the client sends packets for an address to this node, whoever answers for it.
fn way(rig: &Rig, address: IpAddr, node: &str) {
    let mut show = Command::new("ip");
    show.args(["-brief", "link", "show", "eth0"]);
    let shown = rig.host(node).run(show, "").unwrap();
    let mac = shown.split_whitespace().nth(2).unwrap().to_owned();
    let mut neighbour = Command::new("ip");
    let address = address.to_string();
    neighbour.args(["neigh", "replace", &address, "lladdr", &mac]);
    neighbour.args(["dev", "eth0", "nud", "permanent"]);
    rig.host("client").run(neighbour, "").unwrap();
}

/// The client finds out by itself again.
fn no_way(rig: &Rig, address: IpAddr) {
    let mut neighbour = Command::new("ip");
    neighbour.args(["neigh", "del", &address.to_string(), "dev", "eth0"]);
    rig.host("client").run(neighbour, "").unwrap();
}

struct Connection {
    stream: BufReader<TcpStream>,
    /// What it answered first: its name, and whom it saw.
    answer: String,
}

impl Connection {
    fn open(rig: &Rig, address: IpAddr) -> Self {
        let to = SocketAddr::new(address, PORT);
        let connect = || TcpStream::connect_timeout(&to, PATIENCE).unwrap();
        let stream = rig.host("client").enter(connect);
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut connection = Self {
            stream: BufReader::new(stream),
            answer: String::new(),
        };
        connection.answer = connection.line().unwrap();
        connection
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        Ok(line)
    }

    fn ask(&mut self) -> io::Result<()> {
        self.stream.get_mut().write_all(b"\n")?;
        let answer = self.line()?;
        match answer == self.answer {
            true => Ok(()),
            false => Err(io::Error::other(answer)),
        }
    }
}

fn open(rig: &Rig, address: IpAddr) -> Vec<Connection> {
    (0..CONNECTIONS)
        .map(|_| Connection::open(rig, address))
        .collect()
}

/// How many died, or were answered by another pod, with another way before each request.
fn dead_while_the_way_moves(
    rig: &Rig,
    address: IpAddr,
    connections: &mut Vec<Connection>,
    moves: usize,
) -> usize {
    let before = connections.len();
    for round in 0..moves {
        way(rig, address, NODES[round % NODES.len()]);
        connections.retain_mut(|connection| connection.ask().is_ok());
    }
    before - connections.len()
}

/// `portico explain` on the first node names the node that serves a connection, and the kernel has
/// it so.
fn explain(rig: &Rig, address: IpAddr, connection: &Connection) {
    let from = connection.stream.get_ref().local_addr().unwrap();
    let mut explain = Command::new(env!("CARGO_BIN_EXE_portico"));
    explain
        .args(["explain", "--node=node1", "--from", &from.ip().to_string()])
        .args(["--to", &SocketAddr::new(address, PORT).to_string()])
        .arg(format!("--source-port={}", from.port()))
        .arg(format!("--kubeconfig={}", rig.path("kubeconfig").display()));
    let said = rig.host("node1").run(explain, "").unwrap();
    let pod = connection.answer.split('-').next().unwrap();
    let node = match pod.trim_start_matches("pod") {
        "1" => "is this node's".to_owned(),
        number => format!("sent to node{number} "),
    };
    assert!(said.contains(&node), "no {node:?} in {said}");
    assert!(said.contains("the kernel agrees"), "{said}");
}

#[test]
fn connections_outlive_the_way_daemons_and_a_node() {
    let mut rig = start();
    let addresses = serve(&rig);
    let mut all: Vec<_> = addresses
        .iter()
        .map(|address| (*address, open(&rig, *address)))
        .collect();
    let client = rig
        .cluster
        .addresses
        .of("client", "ip")
        .unwrap()
        .to_string();
    let saw_client = |connection: &Connection| connection.answer.contains(&format!(" {client}:"));
    assert!(all[0].1.iter().all(saw_client), "{}", all[0].1[0].answer);
    for (address, connections) in &mut all {
        let dead = dead_while_the_way_moves(&rig, *address, connections, 100);
        assert_eq!(dead, 0, "{address}: the way moves");
    }

    for (address, connections) in &all {
        let explained = connections.iter().take(6);
        explained.for_each(|connection| explain(&rig, *address, connection));
    }

    // All daemons are killed and started again, while connections are used.
    for name in NODES {
        rig.node(name).kill();
        for (address, connections) in &mut all {
            let dead = dead_while_the_way_moves(&rig, *address, connections, 6);
            assert_eq!(dead, 0, "{address}: the daemon of {name} is gone");
        }
        rig.start_node_with(name, &["--edge=auto"]);
        for (address, connections) in &mut all {
            let dead = dead_while_the_way_moves(&rig, *address, connections, 60);
            assert_eq!(dead, 0, "{address}: the daemon of {name} starts");
        }
    }
    wait_for_slots(&rig);

    // Without it they die, and a Service can be left out.
    rig.kubectl(&["annotate", "service", "web", "portico.dev/edge=off"], "");
    rig.wait_until("the Service is left out", || {
        let mut nft = Command::new("nft");
        nft.args(["list", "map", "ip", "portico", "edge-slots"]);
        let listed = rig.host("node3").run(nft, "").unwrap();
        if listed.contains("elements") {
            Err(())
        } else {
            Ok(())
        }
    });
    let address = addresses[0];
    way(&rig, address, NODES[0]);
    let mut without = open(&rig, address);
    let dead = dead_while_the_way_moves(&rig, address, &mut without, 9);
    assert!(dead > CONNECTIONS / 2, "{dead} of {CONNECTIONS} died");
}

#[test]
fn connections_to_other_nodes_outlive_the_owner_of_the_address() {
    let rig = start();
    let address = serve(&rig)[0];
    let owner = rig.owner("client", address).unwrap();
    let mut connections = open(&rig, address);
    let on_owner = format!("pod{}-", owner.trim_start_matches("node"));
    let is_elsewhere = |connection: &Connection| !connection.answer.starts_with(&on_owner);
    let elsewhere = connections.iter().filter(|one| is_elsewhere(one)).count();
    assert!(elsewhere > 0 && elsewhere < CONNECTIONS, "all nodes serve");
    rig.cluster.unplug(owner).unwrap();
    connections.retain(is_elsewhere);
    let dead = connections
        .iter_mut()
        .filter_map(|connection| connection.ask().err())
        .collect::<Vec<_>>();
    assert!(
        dead.is_empty(),
        "{} of {elsewhere} died: {dead:?}",
        dead.len()
    );
    let now = rig.owner("client", address);
    assert!(
        now.is_some_and(|now| now != owner),
        "{now:?} answers for it now"
    );
    no_way(&rig, address);
    connections.iter_mut().for_each(|one| one.ask().unwrap());
}
