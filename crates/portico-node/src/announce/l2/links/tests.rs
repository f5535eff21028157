use super::*;

fn link(name: &str, last: u8, networks: &[&str], v4: bool, v6: bool) -> (u32, Link) {
    let networks = networks
        .iter()
        .map(|network| network.parse().unwrap())
        .collect();
    let link = Link {
        name: name.into(),
        mac: [2, 0, 0, 0, 0, last],
        networks,
        has_default: [v4, v6],
    };
    (last.into(), link)
}

fn links() -> Links {
    Links(BTreeMap::from([
        link("eth0", 1, &["10.0.0.5/24", "fd00::5/64"], true, true),
        link("eth1", 2, &["192.168.7.5/24"], false, false),
        link("veth3", 3, &[], false, false),
    ]))
}

fn chosen(address: &str, interfaces: &[&str]) -> Vec<u32> {
    let share = Share {
        nodes: None,
        interfaces: interfaces.iter().map(ToString::to_string).collect(),
    };
    links()
        .of(address.parse().unwrap(), &share)
        .into_iter()
        .map(|(link, _)| link)
        .collect()
}

#[test]
fn an_address_is_announced_where_its_network_is() {
    assert_eq!(chosen("192.168.7.100", &[]), [2]);
    assert_eq!(chosen("10.0.0.100", &[]), [1]);
    assert_eq!(chosen("fd00::100", &[]), [1]);
    assert_eq!(chosen("203.0.113.1", &[]), [1], "by the default route");
    assert_eq!(chosen("2001:db8::1", &[]), [1]);
}

#[test]
fn or_where_it_is_asked_for() {
    assert_eq!(chosen("192.168.7.100", &["eth0"]), [1]);
    assert_eq!(chosen("192.168.7.100", &["eth*"]), [1, 2]);
    assert_eq!(chosen("192.168.7.100", &["*1", "veth3"]), [2, 3]);
    assert_eq!(chosen("192.168.7.100", &["bond0"]), Vec::<u32>::new());
}

#[test]
fn what_cannot_be_met_is_told_by_the_same_number_everywhere() {
    let address: IpAddr = "10.0.0.100".parse().unwrap();
    let missing = Share {
        nodes: None,
        interfaces: ["bond0".to_owned()].into(),
    };
    let needs = BTreeMap::from(
        [(address, missing.clone()), (address, Share::default())]
            .map(|(address, share)| (need(address, &share), (address, share))),
    );
    assert_eq!(links().lacks(&needs), [need(address, &missing)]);
    assert_eq!(Links::default().lacks(&needs).len(), 2);
    let neighbour = "10.0.0.7".parse().unwrap();
    assert_eq!(need(address, &missing), need(neighbour, &missing));
    assert_ne!(
        need(address, &missing),
        need("fd00::1".parse().unwrap(), &missing)
    );
}

#[test]
fn patterns() {
    for (pattern, name, is) in [
        ("eth0", "eth0", true),
        ("eth0", "eth01", false),
        ("*", "", true),
        ("e*0", "eth0", true),
        ("e*1", "eth0", false),
        ("**h*", "eth0", true),
    ] {
        assert_eq!(matches(pattern, name), is, "{pattern} {name}");
    }
}
