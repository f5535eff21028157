//! What people and programs are told of a kernel.

use super::*;
use portico_model::explain::{Origin, Packet, explain};
use portico_model::report::Behind;
use portico_model::table::{Endpoint, ForwardingTable, Protocol};

fn told(kernel: Kernel) -> Answered {
    let packet = Packet {
        origin: Origin::Node,
        source: "192.0.2.1".parse().unwrap(),
        source_port: None,
        destination: "10.96.0.1".parse().unwrap(),
        port: 80,
        protocol: Protocol::Tcp,
        local: [].into(),
    };
    let explanation = explain(&ForwardingTable::default(), &packet);
    Answered {
        node: "n1".into(),
        explanation,
        homes: BTreeMap::new(),
        kernel: Some(kernel),
    }
}

fn seen(daemon: bool, of_frontend: &[&str]) -> Seen {
    let of_frontend = of_frontend.iter().map(|text| (*text).to_owned()).collect();
    Seen {
        mode: "nftables",
        daemon,
        differences: Differences {
            of_frontend,
            ..Differences::default()
        },
        ..Seen::default()
    }
}

#[test]
fn agreement_is_said_in_a_line() {
    let text = told(Kernel::Seen(seen(true, &[]))).to_string();
    assert!(text.ends_with("the kernel agrees (nftables)\n"), "{text}");
    let text = told(Kernel::Seen(seen(false, &[]))).to_string();
    assert!(
        text.contains("agrees") && text.contains("does not answer on n1"),
        "{text}"
    );
}

#[test]
fn a_difference_comes_with_its_cause_and_the_way_out() {
    let text = told(Kernel::Seen(seen(false, &["the set endpoints lacks X"]))).to_string();
    assert!(
        text.contains("differs from the table (nftables):\n  the set endpoints lacks X\n"),
        "{text}"
    );
    assert!(text.contains("start it"), "{text}");
    let behind = vec![Behind {
        service: "default/web".into(),
        reason: "its address is another's".into(),
    }];
    let report = NodeReport {
        behind,
        trouble: "no memory".into(),
        ..NodeReport::default()
    };
    let kernel =
        Kernel::Seen(seen(true, &["the set endpoints lacks X"])).with_report(Some(&report));
    let text = told(kernel).to_string();
    assert!(
        text.contains("is behind: no memory; default/web: its address is another's"),
        "{text}"
    );
}

#[test]
fn other_nodes_are_the_next_hops() {
    let mut answer = told(Kernel::NotSeen(String::new()));
    let endpoint = |last: u8, local| Endpoint {
        address: [10, 0, 0, last].into(),
        port: 80,
        local,
    };
    let candidates = [
        endpoint(1, true),
        endpoint(2, false),
        endpoint(3, false),
        endpoint(4, false),
    ];
    let candidates = candidates
        .map(|endpoint| Candidate {
            endpoint,
            masquerade: false,
        })
        .to_vec();
    answer.explanation.verdict = Verdict::Forward {
        candidates,
        affinity: None,
    };
    let homes = [(1, "n1"), (2, "n2"), (3, "n2")];
    answer.homes = homes
        .map(|(last, home)| (IpAddr::from([10, 0, 0, last]), home.to_owned()))
        .into();
    let text = answer.to_string();
    assert!(
        text.contains("then to n2 for 10.0.0.2:80, 10.0.0.3:80\n") && !text.contains("then to n1"),
        "{text}"
    );
    assert_eq!(
        serde_json::to_value(&answer).unwrap()["verdict"]["candidates"][1]["node"],
        "n2"
    );
}

#[test]
fn who_did_not_look_says_so() {
    let answer = told(Kernel::NotSeen("run this on n1 as root".into()));
    assert!(
        answer
            .to_string()
            .contains("the kernel was not looked at: run this on n1"),
        "{answer}"
    );
    let tree = serde_json::to_value(&answer).unwrap();
    assert_eq!(tree["kernel"]["looked"], false);
    assert_eq!(tree["packet"]["destination"], "10.96.0.1:80");
    assert_eq!(tree["verdict"]["kind"], "notOurs");
}
