use super::*;

const HOUR: Duration = Duration::from_secs(3_600);

/// kube-proxy's defaults.
fn defaults() -> Settings {
    Settings {
        conntrack_max_per_core: 32_768,
        conntrack_min: 131_072,
        tcp_established_timeout: 24 * HOUR,
        tcp_close_wait_timeout: HOUR,
        ..Settings::default()
    }
}

fn names(wanted: &[Setting]) -> Vec<(&'static str, u64)> {
    wanted
        .iter()
        .map(|setting| (setting.path.rsplit('/').next().unwrap(), setting.value))
        .collect()
}

#[test]
fn the_limit_of_connections_grows_with_the_cores_within_bounds() {
    // per core, at least, cores: wanted
    let cases = [
        (32_768, 131_072, 1, Some(131_072)),
        (32_768, 131_072, 4, Some(131_072)),
        (32_768, 131_072, 5, Some(163_840)),
        (32_768, 131_072, 32, Some(1 << 20)),
        (32_768, 131_072, 33, Some(1 << 20)),
        (u32::MAX, 0, usize::MAX, Some(1 << 20)),
        (1, 2 << 20, 1, Some(2 << 20)),
        (0, 131_072, 8, None),
        (32_768, 0, 2, Some(65_536)),
    ];
    for (per_core, min, cores, expected) in cases {
        let settings = Settings {
            conntrack_max_per_core: per_core,
            conntrack_min: min,
            ..Settings::default()
        };
        let wanted = wanted(&settings, cores);
        let expected: Vec<(&str, u64)> = expected.map_or(vec![], |most| {
            vec![("nf_conntrack_max", most), ("hashsize", most / 4)]
        });
        assert_eq!(
            names(&wanted),
            expected,
            "{per_core} x {cores}, at least {min}"
        );
    }
}

#[test]
fn only_what_was_decided_is_set() {
    assert_eq!(wanted(&Settings::default(), 8), []);
    let names_of = |settings: Settings| {
        names(&wanted(&settings, 2))
            .into_iter()
            .skip(2)
            .collect::<Vec<_>>()
    };
    let timeouts = [
        ("nf_conntrack_tcp_timeout_established", 86_400),
        ("nf_conntrack_tcp_timeout_close_wait", 3_600),
    ];
    assert_eq!(names_of(defaults()), timeouts);
    let all = Settings {
        tcp_be_liberal: true,
        udp_timeout: Duration::from_millis(30_900),
        udp_stream_timeout: Duration::from_millis(999),
        loopback_node_ports: true,
        ..defaults()
    };
    let more = [
        ("nf_conntrack_udp_timeout", 30),
        ("nf_conntrack_tcp_be_liberal", 1),
        ("route_localnet", 1),
    ];
    assert_eq!(names_of(all), [&timeouts[..], &more].concat());
    let forwarding = Settings {
        forward: true,
        ..Settings::default()
    };
    assert_eq!(names(&wanted(&forwarding, 8)), [("ip_forward", 1)]);
}

#[test]
fn writes_what_differs_lowers_no_limit_and_goes_on_after_a_refusal() {
    let root = tempfile::tempdir().unwrap();
    let file = |name: &str| root.path().join(name);
    let content = |name: &str| fs::read_to_string(file(name)).unwrap();
    for (name, text) in [
        ("large", "500\n"),
        ("small", "10\n"),
        ("same", "7\n"),
        ("other", "9\n"),
        ("odd", "x\n"),
    ] {
        fs::write(file(name), text).unwrap();
    }
    let wanted = [
        Setting::at_least("large", 100),
        Setting::at_least("small", 100),
        Setting::exactly("missing", 1),
        Setting::exactly("odd", 1),
        Setting::exactly("same", 7),
        Setting::exactly("other", 7),
    ];
    let outcomes = apply(root.path(), &wanted);
    use Outcome::{AlreadyRight, Refused, Written};
    assert!(
        matches!(
            outcomes[..],
            [
                AlreadyRight,
                Written,
                Refused(_),
                Refused(_),
                AlreadyRight,
                Written
            ]
        ),
        "{outcomes:?}"
    );
    assert_eq!(content("large"), "500\n");
    assert_eq!(content("small"), "100");
    assert_eq!(content("same"), "7\n", "not written again");
    assert_eq!(content("other"), "7");
    assert!(!file("missing").exists());
}

#[test]
fn cores_are_counted_as_the_kernel_lists_them() {
    let cases = [
        ("0\n", 1),
        ("0-3\n", 4),
        ("0-3,8,10-11\n", 7),
        ("", 0),
        ("x", 0),
        ("3-0", 0),
        ("0-18446744073709551615", 0),
    ];
    for (list, expected) in cases {
        assert_eq!(count(list), expected, "{list:?}");
    }
    assert!(cores() > 0);
}

#[test]
fn a_namespace_of_its_own_takes_what_it_may() {
    crate::testing::own_network();
    let settings = Settings {
        loopback_node_ports: true,
        ..defaults()
    };
    let wanted = wanted(&settings, 1);
    let outcomes = apply(Path::new("/"), &wanted);
    assert!(
        matches!(outcomes.last(), Some(Outcome::Written)),
        "{outcomes:?}"
    );
    assert_eq!(read(&Path::new("/").join(ROUTE_LOCALNET)).unwrap(), 1);
}
