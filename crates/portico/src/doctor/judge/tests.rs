use super::super::facts::*;
use super::*;

/// A machine with nothing to complain about.
fn healthy() -> Machine {
    let settings = [
        ("net.ipv4.ip_forward", "1"),
        ("net.ipv6.conf.all.forwarding", "1"),
        ("net.ipv4.conf.all.rp_filter", "2"),
        ("net.ipv4.conf.all.route_localnet", "0"),
        ("net.bridge.bridge-nf-call-iptables", "1"),
        ("net.netfilter.nf_conntrack_max", "262144"),
        ("net.netfilter.nf_conntrack_count", "10"),
        ("net.netfilter.nf_conntrack_tcp_be_liberal", "0"),
        ("net.core.somaxconn", "4096"),
        ("net.ipv4.ip_local_port_range", "32768\t60999"),
        ("net.ipv4.ip_local_reserved_ports", ""),
    ];
    let link = |name: &str, kind: &str, mtu| Link {
        name: name.into(),
        kind: kind.into(),
        mtu,
        up: true,
    };
    Machine {
        settings: settings
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect(),
        cores: 4,
        forward_policy: Some("ACCEPT".into()),
        links: vec![
            link("lo", "", 65536),
            link("eth0", "", 1500),
            link("cni0", "bridge", 1500),
            link("flannel.1", "vxlan", 1450),
        ],
        default_link: Some("eth0".into()),
        disk: Some(Disk {
            path: "/var/lib/portico".into(),
            free: 10 << 30,
            read_only: false,
        }),
        programs: vec![Program {
            role: Role::PorticoNode,
            process: 7,
            open_files: Some(1 << 20),
        }],
        ..Machine::default()
    }
}

fn diagnose(machine: Machine) -> Diagnosis {
    Diagnosis::of(&Facts {
        node_ports: (30000, 32767),
        machine: Some(machine),
        ..Facts::default()
    })
}

#[test]
fn nothing_is_wrong_with_a_healthy_machine() {
    let diagnosis = diagnose(healthy());
    assert!(
        diagnosis
            .findings
            .iter()
            .all(|finding| finding.severity == Severity::Good),
        "{diagnosis}"
    );
    assert!(!diagnosis.is_broken());
    assert!(diagnosis.to_string().ends_with(&format!(
        "0 broken, 0 to look at, {} good\n",
        diagnosis.findings.len()
    )));
}

fn set(machine: &mut Machine, name: &str, value: &str) {
    machine.settings.insert(name.to_owned(), value.to_owned());
}

/// Each illness alone, with what is said of it.
#[test]
fn every_illness_has_its_cure() {
    type Illness = fn(&mut Machine);
    let table: &[(Illness, Severity, &str, &str)] = &[
        (
            |m| set(m, "net.ipv4.ip_forward", "0"),
            Severity::Broken,
            "nothing is forwarded",
            "sysctl -w net.ipv4.ip_forward=1",
        ),
        (
            |m| set(m, "net.ipv4.conf.all.rp_filter", "1"),
            Severity::Warning,
            "strict",
            "rp_filter=2",
        ),
        (
            |m| set(m, "net.ipv4.conf.all.route_localnet", "1"),
            Severity::Warning,
            "127.0.0.1",
            "route_localnet=0",
        ),
        (
            |m| set(m, "net.core.somaxconn", "128"),
            Severity::Note,
            "128",
            "somaxconn=4096",
        ),
        (
            |m| set(m, "net.netfilter.nf_conntrack_max", "65536"),
            Severity::Note,
            "raises it to 131072",
            "nf_conntrack_max=131072",
        ),
        (
            |m| set(m, "net.netfilter.nf_conntrack_count", "250000"),
            Severity::Broken,
            "250000 of 262144",
            "nf_conntrack_max=524288",
        ),
        (
            |m| set(m, "net.netfilter.nf_conntrack_count", "200000"),
            Severity::Warning,
            "200000 of 262144",
            "nf_conntrack_max=",
        ),
        (
            |m| set(m, "net.ipv4.ip_local_port_range", "1024 65535"),
            Severity::Warning,
            "30000 may be taken",
            "ip_local_reserved_ports=30000-32767",
        ),
        (
            |m| drop(m.settings.remove("net.bridge.bridge-nf-call-iptables")),
            Severity::Warning,
            "same bridge (cni0)",
            "modprobe br_netfilter",
        ),
        (
            |m| m.nftables = Tried::Fails("Operation not supported".into()),
            Severity::Broken,
            "not supported",
            "modprobe nf_tables",
        ),
        (
            |m| m.ipvs = Tried::Fails("no IPVS".into()),
            Severity::Note,
            "no IPVS",
            "modprobe -a ip_vs",
        ),
        (
            |m| m.conntrack = Tried::Unknown("only root may".into()),
            Severity::Note,
            "not tried: only root may",
            "sudo",
        ),
        (
            |m| {
                m.programs.push(Program {
                    role: Role::KubeProxy,
                    process: 9,
                    open_files: None,
                })
            },
            Severity::Broken,
            "undo each other's rules",
            "daemonset kube-proxy",
        ),
        (
            |m| {
                m.programs.push(Program {
                    role: Role::PorticoNode,
                    process: 9,
                    open_files: None,
                })
            },
            Severity::Broken,
            "runs 2 times",
            "keep one",
        ),
        (
            |m| m.programs[0].role = Role::KubeProxy,
            Severity::Warning,
            "kube-proxy runs (process 7)",
            "daemonset kube-proxy",
        ),
        (
            |m| {
                m.programs.push(Program {
                    role: Role::Firewalld,
                    process: 9,
                    open_files: None,
                })
            },
            Severity::Warning,
            "firewalld runs",
            "firewall-cmd",
        ),
        (
            |m| m.programs[0].open_files = Some(1024),
            Severity::Warning,
            "may open 1024",
            "prlimit --pid 7",
        ),
        (
            |m| (m.programs, m.rules.portico_nftables) = (Vec::new(), true),
            Severity::Note,
            "nobody keeps them up to date",
            "portico cleanup",
        ),
        (
            |m| m.rules.iptables = true,
            Severity::Warning,
            "iptables chains are left",
            "portico cleanup",
        ),
        (
            |m| m.forward_policy = Some("DROP".into()),
            Severity::Broken,
            "policy of FORWARD is DROP",
            "iptables -P FORWARD ACCEPT",
        ),
        (
            |m| m.links[3].mtu = 1500,
            Severity::Warning,
            "flannel.1 (1500)",
            "ip link set flannel.1 mtu 1450",
        ),
        (
            |m| m.links[2].mtu = 9000,
            Severity::Warning,
            "cni0 (9000)",
            "ip link set cni0 mtu 1500",
        ),
        (
            |m| m.disk.as_mut().unwrap().free = 5 << 20,
            Severity::Broken,
            "5 MB free",
            "du -xh",
        ),
        (
            |m| m.disk.as_mut().unwrap().read_only = true,
            Severity::Broken,
            "read-only",
            "remount,rw",
        ),
    ];
    for (illness, severity, found, fix) in table {
        let mut machine = healthy();
        illness(&mut machine);
        let diagnosis = diagnose(machine);
        let first = &diagnosis.findings[0];
        assert_eq!(first.severity, *severity, "{found}: {diagnosis}");
        assert!(
            first.found.contains(found) && first.fix.as_deref().unwrap_or_default().contains(fix),
            "{found}: {first:?}"
        );
        assert_eq!(diagnosis.is_broken(), *severity == Severity::Broken);
        assert_eq!(
            diagnosis
                .findings
                .iter()
                .filter(|finding| finding.severity != Severity::Good)
                .count(),
            1,
            "{diagnosis}"
        );
    }
}

#[test]
fn reserved_ports_are_no_overlap() {
    let mut machine = healthy();
    set(&mut machine, "net.ipv4.ip_local_port_range", "1024 65535");
    set(
        &mut machine,
        "net.ipv4.ip_local_reserved_ports",
        "8080,30000-32767",
    );
    assert!(
        diagnose(machine)
            .findings
            .iter()
            .all(|finding| finding.severity == Severity::Good)
    );
}

#[test]
fn what_a_mode_needs_depends_on_the_mode() {
    let mut machine = healthy();
    machine.ipvs = Tried::Fails("no".into());
    machine.rules = Rules {
        iptables: true,
        ipvs: true,
        ..Rules::default()
    };
    let facts = Facts {
        mode: Mode::Ipvs,
        node_ports: (30000, 32767),
        machine: Some(machine),
        ..Facts::default()
    };
    let diagnosis = Diagnosis::of(&facts);
    assert_eq!(diagnosis.findings[0].check, "kernel: ipvs");
    assert_eq!(
        diagnosis.count(Severity::Warning),
        0,
        "its own rules are no leftovers: {diagnosis}"
    );
}

#[test]
fn the_cluster_is_judged_node_by_node() {
    let node = |name: &str, answer, reports| Node {
        name: name.into(),
        healthz: None,
        answer,
        reports,
        trouble: String::new(),
    };
    let sick = Node {
        trouble: "no nftables".into(),
        ..node("n4", Ok(200), Ok(true))
    };
    let nodes = vec![
        node("n1", Ok(200), Ok(true)),
        node("n2", Ok(503), Ok(true)),
        node("n3", Err("timed out".into()), Ok(false)),
        sick,
        node("n5", Ok(200), Ok(false)),
        node("n6", Ok(200), Err("leases is forbidden".to_owned())),
    ];
    let of = |ahead| Facts {
        cluster: Some(Ok(Cluster {
            ahead: Some(ahead),
            nodes: nodes.clone(),
        })),
        ..Facts::default()
    };
    let diagnosis = Diagnosis::of(&of(2));
    let text = diagnosis.to_string();
    for line in [
        "node n2   not fit",
        "node n3   its health is not told: timed out",
        "node n4   cannot install: no nftables",
        "node n5   healthy, and does not report",
        "node n6   healthy; whether it reports cannot be told, because the Leases",
        "node n1   healthy",
        "clock     2 s behind",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    assert_eq!(
        Diagnosis::of(&of(-10))
            .findings
            .iter()
            .find(|f| f.check == "clock")
            .unwrap()
            .found,
        "10 s ahead of the API server's"
    );
    assert_eq!(Diagnosis::of(&of(100)).count(Severity::Broken), 4);
    let away = Facts {
        cluster: Some(Err("connection refused".into())),
        ..Facts::default()
    };
    assert!(Diagnosis::of(&away).is_broken());
}

#[test]
fn strangers_at_the_control_planes_address_are_told() {
    let status = |more: serde_json::Value| {
        let mut router = serde_json::json!({
            "addresses": ["192.0.2.1"], "interface": "eth0", "own": "192.0.2.2", "virtualRouterId": 2,
            "vrrpVersion": 3, "role": "owner", "priority": 100, "transitions": [], "counters": {},
            "peers": [{"address": "192.0.2.3", "priority": 50, "lastHeard": "2026-01-01T00:00:00Z"}],
            "adverts": "signed", "advertsIgnored": {},
        });
        for (name, value) in more.as_object().unwrap() {
            router[name] = value.clone();
        }
        let status = serde_json::json!({"port": 6443, "routers": [router], "servers": [],
            "forwarding": {"mode": "direct", "why": "", "problems": [], "rules": []}});
        let vip = serde_json::from_value(status).unwrap();
        let facts = Facts {
            vip: Some(Ok(vip)),
            ..Facts::default()
        };
        Diagnosis::of(&facts).findings[0].clone()
    };
    let quiet = status(serde_json::json!({}));
    assert_eq!(quiet.severity, Severity::Good, "{quiet:?}");
    let open = status(serde_json::json!({"adverts": "of anybody on the link"}));
    assert_eq!(open.severity, Severity::Note);
    assert!(open.fix.unwrap().contains("--auth-key-file"));
    let taken = status(serde_json::json!({"peers": [
        {"address": "192.0.2.66", "priority": 255, "lastHeard": "2026-01-01T00:00:00Z"}]}));
    assert_eq!(taken.severity, Severity::Broken);
    assert!(
        taken
            .found
            .contains("192.0.2.66 claims it with priority 255")
    );
    let attacked = status(serde_json::json!({
        "strangers": {"unsigned": 40, "stale": 2},
        "stranger": {"at": "2026-01-01T00:00:00Z", "from": "192.0.2.66", "why": "it is not signed"}}));
    assert_eq!(attacked.severity, Severity::Warning);
    assert!(
        attacked
            .found
            .starts_with("42 adverts of strangers were dropped (stale 2, unsigned 40)"),
        "{attacked:?}"
    );
    let facts = Facts {
        vip: Some(Err("127.0.0.1:10246: refused".into())),
        ..Facts::default()
    };
    let silent = &Diagnosis::of(&facts).findings[0];
    assert_eq!(silent.severity, Severity::Warning);
}
