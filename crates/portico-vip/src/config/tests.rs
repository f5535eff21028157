use super::*;

fn around() -> Surroundings {
    let at = |link: &str, network: &str| (link.to_owned(), network.parse().unwrap());
    Surroundings {
        addresses: vec![
            at("lo", "127.0.0.1/8"),
            at("eth0", "172.16.64.35/24"),
            at("eth0", "fd00:16::35/64"),
            at("eth0", "fe80::35/64"),
            at("cni0", "10.244.1.1/24"),
        ],
    }
}

fn given(yaml: &str) -> Result<Given, String> {
    parse(&format!(
        "apiVersion: portico.dev/v1\nkind: VipConfiguration\n{yaml}"
    ))
}

fn config(yaml: &str) -> Result<Config, String> {
    resolve(given(yaml).unwrap(), &around()).map_err(|error| error.to_string())
}

#[test]
fn an_address_is_enough() {
    let config = config("addresses: [172.16.64.58]").unwrap();
    let [election] = &config.elections[..] else {
        panic!("{config:?}")
    };
    assert_eq!(election.interface, "eth0");
    assert_eq!(
        election.router.own,
        "172.16.64.35".parse::<IpAddr>().unwrap()
    );
    assert_eq!(election.router.vrid, 59);
    assert_eq!(
        (election.prefix, election.router.version),
        (24, Version::V3)
    );
    assert_eq!(config.port, 6443);
    assert!(
        config
            .own_addresses
            .contains(&"172.16.64.35".parse().unwrap())
    );
    assert!(!config.own_addresses.contains(&"127.0.0.1".parse().unwrap()));
}

#[test]
fn each_family_has_a_router() {
    let config = config("addresses: [172.16.64.0, 'fd00:16::ff01']\ninterval: 100ms").unwrap();
    let found: Vec<_> = config
        .elections
        .iter()
        .map(|e| (e.router.own.to_string(), e.router.vrid, e.prefix))
        .collect();
    assert_eq!(
        found,
        [
            ("172.16.64.35".to_owned(), 1, 24),
            ("fd00:16::35".to_owned(), 2, 128)
        ]
    );
}

#[test]
fn a_flag_goes_before_the_file() {
    let file = given("addresses: [172.16.64.58]\npriority: 10\nport: 7443").unwrap();
    let flags = Given {
        priority: Some(200),
        ..Given::default()
    };
    let config = resolve(flags.or(file), &around()).unwrap();
    assert_eq!((config.priority, config.port), (200, 7443));
}

#[test]
fn haproxy_listens_where_the_node_speaks() {
    let yaml = "addresses: [172.16.64.58, 'fd00:16::58']\nforward: haproxy\nhaproxyPort: 7000\nprobeInterval: 1s\n\
                haproxyReloadCommand: systemctl reload haproxy\ncaFile: /ca.crt";
    let haproxy = config(yaml).unwrap().forward.haproxy;
    let own: Vec<String> = haproxy
        .own_addresses
        .iter()
        .map(IpAddr::to_string)
        .collect();
    assert_eq!(own, ["172.16.64.35", "fd00:16::35"]);
    assert_eq!(
        (haproxy.port, haproxy.check_interval),
        (7000, Duration::from_secs(1))
    );
    assert_eq!(haproxy.reload.unwrap(), ["systemctl", "reload", "haproxy"]);
    assert_eq!(haproxy.ca_file, Some("/ca.crt".into()));
}

#[test]
fn unicast_peers_may_be_the_same_list_everywhere() {
    let config = config(
        "addresses: [172.16.64.58]\nunicastPeers: [172.16.64.35, 172.16.64.48, 'fd00:16::48']",
    )
    .unwrap();
    assert_eq!(
        config.elections[0].router.peers,
        ["172.16.64.48".parse::<IpAddr>().unwrap()]
    );
}

#[test]
fn a_link_that_is_not_there_yet_is_waited_for() {
    let config =
        config("addresses: [172.17.0.9]\ninterface: bond0\nnodeIps: [172.17.0.2]").unwrap();
    assert_eq!(config.elections[0].interface, "bond0");
    assert_eq!(
        config.elections[0].router.own,
        "172.17.0.2".parse::<IpAddr>().unwrap()
    );
}

#[test]
fn what_is_wrong_is_named_with_the_way_out() {
    let table = [
        ("port: 1", "address: give the virtual address"),
        ("addresses: [172.16.64.255]", "ends in 255"),
        ("addresses: [172.16.64.255]", "--virtual-router-id"),
        (
            "addresses: [192.0.2.1]",
            "interface: no link of this machine is in the network of 192.0.2.1",
        ),
        (
            "addresses: [172.16.64.58]\ninterface: eth7",
            "interface: eth7 has no address",
        ),
        (
            "addresses: [172.16.64.58]\nnodeIps: [172.16.64.99]",
            "no link of this machine has 172.16.64.99",
        ),
        (
            "addresses: [172.16.64.58]\npriority: 255",
            "priority: a priority is 1 to 254",
        ),
        (
            "addresses: [172.16.64.58]\nvrrpVersion: 4",
            "vrrpVersion: 4 is no version",
        ),
        (
            "addresses: [172.16.64.58]\nvrrpVersion: 2\ninterval: 100ms",
            "interval: an interval of 100ms",
        ),
        (
            "addresses: ['fd00:16::1']\nvrrpVersion: 2",
            "vrrpVersion: version 2 of VRRP is for IPv4 only",
        ),
        (
            "addresses: [172.16.64.58]\nprefix: 33",
            "prefix: 33 is more than the 32 bits",
        ),
        (
            "addresses: [172.16.64.58]\nprobeInterval: 0s",
            "probeInterval: it must be longer",
        ),
    ];
    for (yaml, problem) in table {
        let error = config(yaml).unwrap_err();
        assert!(error.contains(problem), "{yaml}: {error}");
    }
    assert!(config("addresses: [172.16.64.255]\nvirtualRouterId: 7").is_ok());
}

#[test]
fn a_file_that_makes_no_sense_is_refused() {
    for (yaml, problem) in [
        ("addres: 1.2.3.4", "unknown field `addres`"),
        ("addresses: [1.2.3]", "invalid IP address"),
        (
            "interval: fast",
            "\"fast\" is not a duration: write it like",
        ),
        ("forward: magic", "unknown variant `magic`"),
        ("statusAddress: here", "not an address"),
    ] {
        let error = given(yaml).unwrap_err();
        assert!(error.contains(problem), "{yaml}: {error}");
    }
    assert!(
        parse("kind: VipConfiguration")
            .unwrap_err()
            .contains("apiVersion must be portico.dev/v1")
    );
    assert!(parse("[1]").unwrap_err().contains("no VipConfiguration"));
}

#[test]
fn a_password_is_short() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "secret\n").unwrap();
    assert_eq!(read_password(file.path()).unwrap(), *b"secret\0\0");
    std::fs::write(file.path(), "123456789").unwrap();
    assert!(
        read_password(file.path())
            .unwrap_err()
            .to_string()
            .contains("at most 8 bytes")
    );
}

#[test]
fn keys_come_from_a_file_and_only_with_what_they_need() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().display();
    let password = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(password.path(), "word").unwrap();
    let secret = "0123456789abcdef0123456789abcdef";
    std::fs::write(file.path(), format!("3 {secret}\n")).unwrap();
    let yaml = format!("addresses: [172.16.64.58]\nauthKeyFile: {path}\n");
    let settings = config(&yaml).unwrap().elections.remove(0);
    let auth = settings.auth.clone().unwrap();
    assert_eq!(auth.mode, portico_vrrp::Mode::Enforce);
    assert_eq!(auth.window, Duration::from_secs(5));
    assert!(!format!("{settings:?}").contains(secret));
    let slow = config(&format!("{yaml}interval: 10s\nauthMode: receive-only\n")).unwrap();
    let auth = slow.elections[0].auth.clone().unwrap();
    assert_eq!(auth.window, Duration::from_secs(30));
    assert_eq!(auth.mode, portico_vrrp::Mode::ReceiveOnly);
    for (more, problem) in [
        (
            "authWindow: 10m",
            "authWindow: 10m0s is too short or too long",
        ),
        (
            &format!(
                "vrrpVersion: 2\npasswordFile: {}",
                password.path().display()
            ),
            "passwordFile: adverts that are signed have no password",
        ),
    ] {
        let error = config(&format!("{yaml}{more}\n")).unwrap_err();
        assert!(error.contains(problem), "{more}: {error}");
    }
    let error = config("addresses: [172.16.64.58]\nauthMode: enforce").unwrap_err();
    assert!(error.contains("authKeyFile: it is needed"), "{error}");
    std::fs::write(file.path(), "3 short").unwrap();
    let error = config(&yaml).unwrap_err();
    assert!(
        error.contains("a key has 32 to 64 bytes") && !error.contains("3 short"),
        "{error}"
    );
}
