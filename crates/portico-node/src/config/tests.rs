use super::*;
use clap::{Args, Command, FromArgMatches};
use ipnet::IpNet;
use portico_model::index::{DetectLocal, NodePortSetting};
use serde_json::json;

fn arguments(words: &[&str]) -> Arguments {
    let command = Arguments::augment_args(Command::new("node"));
    let matches = command
        .try_get_matches_from([&["node"], words].concat())
        .unwrap();
    Arguments::from_arg_matches(&matches).unwrap()
}

fn surroundings() -> Surroundings {
    Surroundings {
        node_name: None,
        hostname: "Machine\n".to_owned(),
    }
}

fn with_flags(words: &[&str]) -> Result<Loaded, ConfigError> {
    interpret(&arguments(words), None, &surroundings()).map(without_usual_warning)
}

/// Most of these tests do not say where pods are, which is told.
fn without_usual_warning(mut loaded: Loaded) -> Loaded {
    loaded
        .warnings
        .retain(|warning| !warning.contains("pods cannot be told from others"));
    loaded
}

fn with_file(fields: Value, words: &[&str]) -> Result<Loaded, ConfigError> {
    let mut tree = json!({ "apiVersion": API_VERSION, "kind": KIND, "mode": "nftables" });
    tree.as_object_mut()
        .unwrap()
        .extend(fields.as_object().unwrap().clone());
    let file = (
        PathBuf::from("config.yaml"),
        serde_json::to_string_pretty(&tree).unwrap(),
    );
    interpret(&arguments(words), Some(file), &surroundings()).map(without_usual_warning)
}

fn network(text: &str) -> IpNet {
    text.parse().unwrap()
}

#[test]
fn defaults_are_those_of_kube_proxy_but_for_the_mode() {
    let config = with_flags(&[]).unwrap().config;
    assert_eq!(config.mode, Mode::Nftables);
    assert_eq!(config.settings.node_name.as_ref(), "machine");
    assert_eq!(
        config.settings.detect_local,
        DetectLocal::ClusterCidr(Vec::new())
    );
    assert_eq!(config.settings.node_ports, NodePortSetting::Node);
    assert_eq!(config.settings.masquerade_mark, 0x4000);
    assert_eq!(config.healthz, Some("0.0.0.0:10256".parse().unwrap()));
    assert_eq!(config.metrics, Some("127.0.0.1:10249".parse().unwrap()));
    assert_eq!(config.sync_period, Duration::from_secs(30));
    assert_eq!(config.sysctls.conntrack_max_per_core, 32768);
    assert_eq!(
        config.sysctls.tcp_established_timeout,
        Duration::from_secs(86_400)
    );
    assert_eq!(
        (config.settings.own_address, config.oom_score_adj),
        (None, -999)
    );
}

/// The same settings, once with flags and once in a file.
#[test]
fn flags_and_file_mean_the_same() {
    let file = json!({
        "clientConnection": {"kubeconfig": "/kubeconfig"}, "hostnameOverride": "Node1", "mode": "iptables",
        "clusterCIDR": "10.244.0.0/16,fd00:10:244::/56", "detectLocalMode": "ClusterCIDR",
        "nodePortAddresses": ["172.30.0.0/24", "fd00:30::/64"],
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s",
                      "tcpBeLiberal": true, "udpTimeout": "25s", "udpStreamTimeout": "100s"},
        "iptables": {"syncPeriod": "1s", "masqueradeAll": true, "localhostNodePorts": false},
        "healthzBindAddress": "0.0.0.0:1", "metricsBindAddress": "[::]:2", "bindAddress": "172.30.0.11"});
    let flags = [
        "--kubeconfig=/kubeconfig",
        "--hostname-override=Node1",
        "--proxy-mode=iptables",
        "--cluster-cidr=10.244.0.0/16,fd00:10:244::/56",
        "--detect-local-mode=ClusterCIDR",
        "--nodeport-addresses=172.30.0.0/24,fd00:30::/64",
        "--conntrack-max-per-core=0",
        "--conntrack-min=0",
        "--conntrack-tcp-timeout-established=0s",
        "--conntrack-tcp-timeout-close-wait=0s",
        "--conntrack-tcp-be-liberal=true",
        "--conntrack-udp-timeout=25s",
        "--conntrack-udp-timeout-stream=100s",
        "--iptables-sync-period=1s",
        "--masquerade-all",
        "--iptables-localhost-nodeports=false",
        "--healthz-bind-address=0.0.0.0:1",
        "--metrics-bind-address=[::]:2",
        "--bind-address=172.30.0.11",
    ];
    let mut from_file = with_file(file, &[]).unwrap().config;
    let mut from_flags = with_flags(&flags).unwrap().config;
    assert_eq!(from_file.settings.node_name.as_ref(), "node1");
    assert_eq!(
        from_file.sysctls.udp_stream_timeout,
        Duration::from_secs(100)
    );
    assert_eq!(
        from_file.settings.own_address,
        Some("172.30.0.11".parse().unwrap())
    );
    (from_file.file, from_file.resolved, from_flags.resolved) = (None, Value::Null, Value::Null);
    assert_eq!(from_file, from_flags);
}

#[test]
fn local_detection() {
    let table = [
        (
            json!({"detectLocalMode": "NodeCIDR"}),
            DetectLocal::NodeCidr,
        ),
        (
            json!({"detectLocalMode": ""}),
            DetectLocal::ClusterCidr(Vec::new()),
        ),
        (
            json!({"clusterCIDR": "10.1.2.3/16"}),
            DetectLocal::ClusterCidr(vec![network("10.1.0.0/16")]),
        ),
        (
            json!({"detectLocalMode": "BridgeInterface", "detectLocal": {"bridgeInterface": "cni0"}}),
            DetectLocal::Bridge("cni0".into()),
        ),
        (
            json!({"detectLocalMode": "InterfaceNamePrefix", "detectLocal": {"interfaceNamePrefix": "veth"}}),
            DetectLocal::InterfacePrefix("veth".into()),
        ),
    ];
    for (fields, wanted) in table {
        assert_eq!(
            with_file(fields.clone(), &[])
                .unwrap()
                .config
                .settings
                .detect_local,
            wanted,
            "{fields}"
        );
    }
}

#[test]
fn it_is_told_when_pods_cannot_be_told() {
    let warnings = |words: &[&str]| {
        interpret(&arguments(words), None, &surroundings())
            .unwrap()
            .warnings
    };
    let told = [
        "--detect-local-mode is ClusterCIDR, but --cluster-cidr is not given: pods cannot be told \
         from others",
    ];
    assert_eq!(warnings(&[]), told);
    assert_eq!(
        warnings(&["--cluster-cidr=10.0.0.0/8"]),
        Vec::<String>::new()
    );
    assert_eq!(
        warnings(&["--detect-local-mode=NodeCIDR"]),
        Vec::<String>::new()
    );
}

#[test]
fn node_port_addresses_follow_the_mode() {
    let open = |networks: &[&str], loopback| NodePortSetting::Networks {
        networks: networks.iter().map(|text| network(text)).collect(),
        loopback,
    };
    let closed = json!({"localhostNodePorts": false});
    let table = [
        (json!({"mode": "nftables"}), NodePortSetting::Primary, false),
        (
            json!({"mode": "ipvs", "nodePortAddresses": ["node"]}),
            NodePortSetting::Node,
            false,
        ),
        (json!({"mode": "iptables"}), open(&[], true), true),
        (
            json!({"mode": "iptables", "iptables": closed}),
            open(&[], false),
            false,
        ),
        (
            json!({"mode": "iptables", "nodePortAddresses": ["primary"]}),
            NodePortSetting::Primary,
            false,
        ),
        (
            json!({"mode": "nftables", "nodePortAddresses": ["0.0.0.0/0"]}),
            open(&["0.0.0.0/0"], false),
            false,
        ),
        (
            json!({"mode": "iptables", "nodePortAddresses": ["0.0.0.0/0"]}),
            open(&["0.0.0.0/0"], true),
            true,
        ),
        (
            json!({"mode": "iptables", "nodePortAddresses": ["fd00::/8"]}),
            open(&["fd00::/8"], true),
            true,
        ),
        (
            json!({"mode": "iptables", "nodePortAddresses": ["10.0.0.0/8", "::1/128"]}),
            open(&["10.0.0.0/8", "::1/128"], true),
            false,
        ),
        (
            json!({"mode": "iptables", "nodePortAddresses": ["127.0.0.0/8"]}),
            open(&["127.0.0.0/8"], true),
            true,
        ),
        (
            json!({"mode": "iptables", "nodePortAddresses": ["127.0.0.0/8"], "iptables": closed}),
            open(&["127.0.0.0/8"], false),
            false,
        ),
        (json!({"mode": "ipvs"}), open(&[], false), false),
    ];
    for (fields, wanted, loopback) in table {
        let config = with_file(fields.clone(), &[]).unwrap().config;
        assert_eq!(
            (
                config.settings.node_ports,
                config.sysctls.loopback_node_ports
            ),
            (wanted, loopback),
            "{fields}"
        );
    }
}

#[test]
fn the_section_of_the_mode_counts() {
    let fields = json!({"mode": "iptables", "iptables": {"masqueradeAll": false, "masqueradeBit": 15, "syncPeriod": "5s"},
                        "nftables": {"masqueradeAll": true, "masqueradeBit": 16, "syncPeriod": "6s"}});
    let config = with_file(fields, &[]).unwrap().config;
    assert!(!config.settings.masquerade_all);
    assert_eq!(config.settings.masquerade_mark, 1 << 15);
    assert_eq!(config.sync_period, Duration::from_secs(5));
}

#[test]
fn ipvs() {
    let fields = json!({"mode": "ipvs", "iptables": {"masqueradeAll": true, "masqueradeBit": 15, "syncPeriod": "5s"},
                        "ipvs": {"syncPeriod": "6s", "scheduler": "wlc", "strictARP": true, "excludeCIDRs": ["10.1.2.3/16"],
                                 "tcpTimeout": "1m", "tcpFinTimeout": "2s", "udpTimeout": "0s"}});
    let from_file = with_file(fields, &[]).unwrap().config;
    let flags = [
        "--proxy-mode=ipvs",
        "--masquerade-all",
        "--iptables-masquerade-bit=15",
        "--ipvs-sync-period=6s",
        "--ipvs-scheduler=wlc",
        "--ipvs-strict-arp",
        "--ipvs-exclude-cidrs=10.1.0.0/16",
        "--ipvs-tcp-timeout=60s",
        "--ipvs-tcpfin-timeout=2s",
    ];
    let from_flags = with_flags(&flags).unwrap().config;
    for config in [from_file, from_flags] {
        assert_eq!(config.mode, Mode::Ipvs);
        assert!(
            config.settings.masquerade_all,
            "as kube-proxy, from the section of iptables"
        );
        assert_eq!(config.settings.masquerade_mark, 1 << 15);
        assert_eq!(
            config.settings.node_ports,
            NodePortSetting::Networks {
                networks: Vec::new(),
                loopback: false
            }
        );
        assert_eq!(config.sync_period, Duration::from_secs(6));
        let expected = Ipvs {
            scheduler: "wlc".into(),
            excluded: vec!["10.1.0.0/16".parse().unwrap()],
            strict_arp: true,
            tcp_timeout: Duration::from_secs(60),
            tcp_fin_timeout: Duration::from_secs(2),
            udp_timeout: Duration::ZERO,
        };
        assert_eq!(config.ipvs, expected);
    }
    let loaded = with_flags(&[
        "--proxy-mode=ipvs",
        "--nodeport-addresses=127.0.0.0/8",
        "--cluster-cidr=10.0.0.0/8",
    ])
    .unwrap();
    assert_eq!(loaded.config.ipvs.scheduler, "rr");
    assert!(
        loaded.warnings[0].contains("in ipvs mode node ports do not answer on loopback"),
        "{:?}",
        loaded.warnings
    );
}

#[test]
fn what_is_wrong_is_named() {
    let table: &[(Value, &str)] = &[
        (
            json!({"mode": "ipvs", "ipvs": {"scheduler": "random"}}),
            "ipvs.scheduler: \"random\" is not known; use one of rr, wrr",
        ),
        (
            json!({"mode": "ipvs", "ipvs": {"excludeCIDRs": ["10.0.0.1"]}}),
            "ipvs.excludeCIDRs",
        ),
        (
            json!({"mode": "userspace"}),
            "mode: \"userspace\" is not known; use nftables, iptables or ipvs",
        ),
        (
            json!({"clusterCIDR": "10.0.0.0"}),
            "clusterCIDR: \"10.0.0.0\" is not a network",
        ),
        (
            json!({"clusterCIDR": "10.0.0.0/8,11.0.0.0/8"}),
            "one of IPv4 and one of IPv6",
        ),
        (
            json!({"detectLocalMode": "Bridge"}),
            "detectLocalMode: \"Bridge\" is not known",
        ),
        (
            json!({"detectLocalMode": "BridgeInterface"}),
            "detectLocal.bridgeInterface: must be given",
        ),
        (
            json!({"nodePortAddresses": ["primary", "10.0.0.0/8"]}),
            "nodePortAddresses: `primary` and `node` stand",
        ),
        (
            json!({"nodePortAddresses": 5}),
            "nodePortAddresses: is not a list",
        ),
        (
            json!({"nftables": {"masqueradeBit": 32}}),
            "nftables.masqueradeBit: 32 is not a number from 0 to 31",
        ),
        (
            json!({"nftables": {"syncPeriod": "fast"}}),
            "nftables.syncPeriod: \"fast\" is not a duration",
        ),
        (
            json!({"conntrack": {"tcpEstablishedTimeout": "-5s"}}),
            "conntrack.tcpEstablishedTimeout: \"-5s\"",
        ),
        (
            json!({"conntrack": {"min": -1}}),
            "conntrack.min: -1 is not a number",
        ),
        (
            json!({"healthzBindAddress": "here"}),
            "healthzBindAddress: \"here\" is not an address",
        ),
        (
            json!({"oomScoreAdj": 2000}),
            "oomScoreAdj: 2000 is not a number from -1000 to 1000",
        ),
        (
            json!({"bindAddress": "node1"}),
            "bindAddress: \"node1\" is not an IP address",
        ),
    ];
    for (fields, message) in table {
        let error = with_file(fields.clone(), &[]).unwrap_err().to_string();
        assert!(error.contains(message), "{fields}: {error}");
    }
    let error = with_flags(&["--iptables-masquerade-bit=40", "--cluster-cidr=x"])
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("--iptables-masquerade-bit: \"40\"")
            && error.contains("--cluster-cidr: \"x\""),
        "{error}"
    );
}

#[test]
fn unknown_fields_are_told_with_their_line() {
    let text = format!(
        "apiVersion: {API_VERSION}\nkind: {KIND}\nconntrack:\n  maxPerCore: 1\n  maxPerCode: \
         1\nwinkernel: {{}}\nnew: {{a: 1}}\nmode: nftables\n"
    );
    let loaded = without_usual_warning(
        interpret(&arguments(&[]), Some(("c".into(), text)), &surroundings()).unwrap(),
    );
    let expected = [
        "conntrack.maxPerCode (line 5): there is no such field",
        "new (line 7): there is no such field",
    ];
    assert_eq!(loaded.warnings.len(), 2, "{:?}", loaded.warnings);
    for (warning, expected) in loaded.warnings.iter().zip(expected) {
        assert!(warning.starts_with(expected), "{warning}");
    }
    assert_eq!(loaded.config.sysctls.conntrack_max_per_core, 1);
}

#[test]
fn a_file_must_say_what_it_is() {
    for text in [
        "mode: nftables\n",
        "kind: KubeProxyConfiguration\napiVersion: v1\n",
        ": {",
        "[]",
        "",
    ] {
        let file = Some((PathBuf::from("c"), text.to_owned()));
        assert!(
            matches!(
                interpret(&arguments(&[]), file, &surroundings()),
                Err(ConfigError::Decode { .. })
            ),
            "{text:?}"
        );
    }
}

#[test]
fn a_file_without_a_mode_was_written_for_iptables() {
    let section = json!({"masqueradeAll": true, "masqueradeBit": 15, "syncPeriod": "1m", "localhostNodePorts": null});
    let zero = json!({"masqueradeAll": false, "masqueradeBit": null, "minSyncPeriod": "0s", "syncPeriod": "0s"});
    let loaded = with_file(
        json!({"mode": "", "iptables": section, "nftables": zero}),
        &[],
    )
    .unwrap();
    let settings = &loaded.config.settings;
    assert_eq!(
        (loaded.config.mode, settings.masquerade_all),
        (Mode::Nftables, true)
    );
    assert_eq!(
        (settings.masquerade_mark, loaded.config.sync_period),
        (1 << 15, Duration::from_secs(60))
    );
    assert!(
        loaded.warnings[0].starts_with("mode is not set"),
        "{:?}",
        loaded.warnings
    );
    assert_eq!(loaded.config.resolved["nftables"]["masqueradeBit"], 15);
    for (rule, fields, warned) in [
        (
            "it says the mode",
            json!({"mode": "nftables", "iptables": section}),
            false,
        ),
        (
            "it says it for nftables",
            json!({"mode": "", "iptables": section, "nftables": {"masqueradeBit": 14}}),
            true,
        ),
        (
            "it says nothing",
            json!({"mode": null, "iptables": zero, "nftables": zero}),
            true,
        ),
    ] {
        let loaded = with_file(fields, &[]).unwrap();
        let unset = loaded
            .warnings
            .iter()
            .filter(|warning| warning.starts_with("mode is not set"))
            .count();
        assert_eq!(
            (loaded.warnings.len(), unset),
            (usize::from(warned), usize::from(warned)),
            "{rule}"
        );
        assert!(!loaded.config.settings.masquerade_all, "{rule}");
        assert!(
            loaded
                .warnings
                .iter()
                .all(|warning| !warning.contains("what is said")),
            "{rule}"
        );
    }
    let first_bit = with_file(json!({"mode": "", "iptables": {"masqueradeBit": 0}}), &[]).unwrap();
    assert_eq!(first_bit.config.settings.masquerade_mark, 1);
}

#[test]
fn what_is_wrong_with_the_section_of_another_mode_is_told() {
    let fields = json!({"mode": "iptables", "nftables": {"masqueradeBit": 40}, "ipvs": {"excludeCIDRs": ["10.96.0.1"], "scheduler": "x"}});
    let loaded = with_file(fields, &[]).unwrap();
    assert_eq!(loaded.warnings.len(), 3, "{:?}", loaded.warnings);
    assert!(
        loaded.warnings[0].contains("nftables.masqueradeBit: 40"),
        "{:?}",
        loaded.warnings
    );
    for wrong in [
        json!({"mode": "nftables", "nftables": {"masqueradeBit": 40}}),
        json!({"mode": "ipvs", "ipvs": {"scheduler": "x"}}),
        json!({"mode": "nftables", "iptables": {"masqueradeBit": 40}}),
    ] {
        assert!(with_file(wrong, &[]).is_err());
    }
}

#[test]
fn the_mode_of_load_balancers_has_its_gate() {
    for (gates, enabled) in [
        ("LoadBalancerIPMode=false", false),
        ("AllBeta=false", false),
        ("AllBeta=false,LoadBalancerIPMode=true", true),
        ("AllowServiceExternalIPs=true", true),
    ] {
        let flag = format!("--feature-gates={gates}");
        let loaded = with_flags(&["--cluster-cidr=10.0.0.0/8", &flag]).unwrap();
        assert_eq!(loaded.warnings, [""; 0]);
        assert_eq!(
            loaded.config.settings.load_balancer_ip_mode, enabled,
            "{gates}"
        );
        let written = loaded.config.resolved["featureGates"]
            .get("LoadBalancerIPMode")
            .is_some();
        assert_eq!(written, gates.contains("LoadBalancerIPMode"), "{gates}");
    }
}

#[test]
fn feature_gates_mean_something() {
    for off in [
        with_flags(&[
            "--cluster-cidr=10.0.0.0/8",
            "--feature-gates=AllowServiceExternalIPs=F,",
        ]),
        with_file(
            json!({"clusterCIDR": "10.0.0.0/8", "featureGates": {"AllowServiceExternalIPs": false}}),
            &[],
        ),
    ] {
        let loaded = off.unwrap();
        assert!(
            !loaded.config.settings.external_ips && loaded.warnings.is_empty(),
            "{:?}",
            loaded.warnings
        );
    }
    let others = with_flags(&[
        "--cluster-cidr=10.0.0.0/8",
        "--feature-gates=AllAlpha=true,Other",
    ])
    .unwrap();
    assert!(others.config.settings.external_ips);
    let told = [
        "featureGates.AllAlpha: there is no such feature gate here; it is ignored",
        "featureGates.Other: there is no such feature gate here; it is ignored",
    ];
    assert_eq!(others.warnings, told);
    assert!(with_flags(&["--feature-gates=AllowServiceExternalIPs"]).is_err());
}

#[test]
fn what_has_no_effect_is_told_once() {
    let zero = json!({"clientConnection": {"qps": 0, "burst": 0, "contentType": ""}, "ipvs": {"syncPeriod": "30s"},
                      "nftables": {"minSyncPeriod": "0s"}, "featureGates": {}, "winkernel": {"enableDSR": false}});
    assert_eq!(with_file(zero, &[]).unwrap().warnings, Vec::<String>::new());
    let windows = json!({"winkernel": {"enableDSR": true}});
    assert_eq!(
        with_file(windows, &[]).unwrap().warnings,
        ["set without effect: winkernel (it is for Windows)"]
    );
    let loaded = with_flags(&[
        "--kube-api-qps=50",
        "--profiling",
        "--ipvs-min-sync-period=1s",
        "--boot-id-file=x",
    ])
    .unwrap();
    let [warning] = loaded.warnings.as_slice() else {
        panic!("{:?}", loaded.warnings)
    };
    for name in [
        "--kube-api-qps",
        "--profiling",
        "--ipvs-min-sync-period (changes are installed at once)",
        "--boot-id-file",
    ] {
        assert!(warning.contains(name), "{warning}");
    }
}

#[test]
fn beside_a_file_few_flags_count() {
    let words = [
        "--config=c",
        "--hostname-override=other",
        "--proxy-mode=iptables",
        "--v=4",
        "--cleanup",
        "--master=http://m",
    ];
    let loaded = with_file(
        json!({"hostnameOverride": "node1", "mode": "nftables"}),
        &words,
    )
    .unwrap();
    assert_eq!(loaded.config.settings.node_name.as_ref(), "other");
    assert_eq!(loaded.config.mode, Mode::Nftables);
    assert_eq!(loaded.config.logging.verbosity, 4);
    assert_eq!(loaded.config.api.server.as_deref(), Some("http://m"));
    assert_eq!(loaded.task, Task::Cleanup);
    assert_eq!(
        loaded.warnings,
        ["beside --config these flags do not count: --proxy-mode"]
    );
}

#[test]
fn names_of_the_node() {
    let name = |words: &[&str], node_name: Option<&str>, hostname: &str| {
        let surroundings = Surroundings {
            node_name: node_name.map(str::to_owned),
            hostname: hostname.to_owned(),
        };
        interpret(&arguments(words), None, &surroundings)
            .map(|loaded| loaded.config.settings.node_name.to_string())
    };
    assert_eq!(
        name(&["--hostname-override= Flag "], Some("env"), "host").unwrap(),
        "flag"
    );
    assert_eq!(name(&[], Some("Env"), "host").unwrap(), "env");
    assert_eq!(name(&[], Some(""), "Host.Domain\n").unwrap(), "host.domain");
    assert!(name(&[], None, "\n").is_err());
}

#[test]
fn addresses_to_listen_on() {
    let healthz = |words: &[&str]| {
        with_flags(words)
            .unwrap()
            .config
            .healthz
            .map(|address| address.to_string())
    };
    let table: &[(&[&str], Option<&str>)] = &[
        (&["--healthz-bind-address="], None),
        (&["--healthz-port=0"], None),
        (&["--healthz-port=99"], Some("0.0.0.0:99")),
        (&["--healthz-bind-address=10.0.0.1"], Some("10.0.0.1:10256")),
        (&["--healthz-bind-address=::1"], Some("[::1]:10256")),
        (&["--bind-address=::"], Some("[::]:10256")),
    ];
    for (words, wanted) in table {
        assert_eq!(healthz(words).as_deref(), *wanted, "{words:?}");
    }
    let empty = with_file(
        json!({"healthzBindAddress": "", "metricsBindAddress": ""}),
        &[],
    )
    .unwrap()
    .config;
    assert_eq!(empty.healthz, Some("0.0.0.0:10256".parse().unwrap()));
    assert_eq!(empty.metrics, Some("127.0.0.1:10249".parse().unwrap()));
}

#[test]
fn flags_are_spelled_as_kube_proxy_allows() {
    let given = arguments(&[
        "-v=2",
        "--v",
        "3",
        "--cleanup=F",
        "--nodeport-addresses",
        "a,b",
        "--nodeport-addresses=c",
    ]);
    assert_eq!(given.text("v"), Some("3"));
    assert!(!given.switch("cleanup"));
    assert_eq!(given.tree()["nodePortAddresses"], json!(["a", "b", "c"]));
    assert_eq!(
        arguments(&["--oom-score-adj", "-998"]).text("oom-score-adj"),
        Some("-998")
    );
}

#[test]
fn the_resolved_configuration_resolves_to_itself() {
    let first = with_flags(&[
        "--cluster-cidr=10.0.0.0/8",
        "--conntrack-udp-timeout=90s",
        "--masquerade-all",
    ])
    .unwrap();
    let text = serde_saphyr::to_string(&first.config.resolved).unwrap();
    let again = interpret(&arguments(&[]), Some(("c".into(), text)), &surroundings()).unwrap();
    assert_eq!(again.warnings, Vec::<String>::new());
    assert_eq!(again.config.resolved, first.config.resolved);
    assert_eq!(again.config.settings, first.config.settings);
}

/// Every flag that `kube-proxy --help` of v1.36 lists.
#[test]
fn no_flag_of_kube_proxy_is_missing() {
    let names = "bind-address bind-address-hard-fail boot-id-file cleanup cluster-cidr config config-sync-period
        conntrack-max-per-core conntrack-min conntrack-tcp-be-liberal conntrack-tcp-timeout-close-wait
        conntrack-tcp-timeout-established conntrack-udp-timeout conntrack-udp-timeout-stream detect-local-mode feature-gates
        healthz-bind-address healthz-port hostname-override init-only iptables-localhost-nodeports iptables-masquerade-bit
        iptables-min-sync-period iptables-sync-period ipvs-exclude-cidrs ipvs-min-sync-period ipvs-scheduler ipvs-strict-arp
        ipvs-sync-period ipvs-tcp-timeout ipvs-tcpfin-timeout ipvs-udp-timeout kube-api-burst kube-api-content-type kube-api-qps
        kubeconfig log-flush-frequency log-json-info-buffer-size log-json-split-stream log-text-info-buffer-size
        log-text-split-stream logging-format machine-id-file masquerade-all master metrics-bind-address metrics-port
        nodeport-addresses oom-score-adj pod-bridge-interface pod-interface-name-prefix profiling proxy-mode
        show-hidden-metrics-for-version v vmodule write-config-to";
    for name in names.split_whitespace() {
        assert!(flags::FLAGS.iter().any(|flag| flag.name == name), "{name}");
    }
}

#[test]
fn announcing_has_flags_that_count_beside_a_file() {
    let announce =
        |loaded: Result<Loaded, ConfigError>| loaded.map(|loaded| loaded.config.announce);
    let expected = Announce {
        enabled: true,
        key_file: None,
        port: 10262,
    };
    assert_eq!(announce(with_flags(&[])).unwrap(), expected);
    let words = [
        "--announce=off",
        "--announce-key-file=/etc/key",
        "--announce-port=4000",
    ];
    let expected = Announce {
        enabled: false,
        key_file: Some("/etc/key".into()),
        port: 4000,
    };
    let loaded = with_file(json!({}), &words).unwrap();
    assert_eq!(
        (loaded.config.announce, loaded.warnings),
        (expected, vec![])
    );
    for (word, problem) in [
        (
            "--announce=on",
            "--announce: \"on\" is not known; use auto or off",
        ),
        (
            "--announce-port=0",
            "--announce-port: is not a port from 1 to 65535",
        ),
        (
            "--announce-port=much",
            "--announce-port: is not a port from 1 to 65535",
        ),
    ] {
        assert_eq!(
            announce(with_flags(&[word])).unwrap_err().to_string(),
            problem
        );
    }
}

#[test]
fn the_edge_is_off_unless_it_is_asked_for() {
    let edge = |words: &[&str]| with_flags(words).map(|loaded| loaded.config.edge);
    assert!(!edge(&[]).unwrap() && !edge(&["--edge=off"]).unwrap());
    assert!(edge(&["--edge=auto"]).unwrap());
    let problem = edge(&["--edge=on"]).unwrap_err().to_string();
    assert_eq!(problem, "--edge: \"on\" is not known; use auto or off");
}
