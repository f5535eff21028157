use super::*;

#[test]
fn versions_of_nodes() {
    let table = [
        ("v1.36.4", Some(true)),
        ("v1.7.2", Some(true)),
        ("v1.7.10-gke.3", Some(true)),
        ("1.8.0+build", Some(true)),
        ("v1.7.1", Some(false)),
        ("v1.6.99", Some(false)),
        ("v1.8", None),
        ("", None),
        ("vX.Y.Z", None),
    ];
    for (version, expected) in table {
        let node = Node {
            version: version.to_owned(),
            ..Node::default()
        };
        assert_eq!(has_healthz(&node), expected, "{version:?}");
    }
}

#[test]
fn ports_of_a_firewall_are_merged() {
    assert_eq!(
        merge([443, 80, 81, 82, 8080].into_iter()),
        ["80-82", "443", "8080"]
    );
    assert_eq!(merge((1000..1200).step_by(1)), ["1000-1199"]);
    assert_eq!(merge([65534, 65535].into_iter()), ["65534-65535"]);
}

#[test]
fn instances_of_nodes() {
    let node = |id: &str, zone: &str, name: &str| Node {
        provider_id: id.into(),
        zone: zone.into(),
        name: name.into(),
        ..Node::default()
    };
    let instance = |node: &Node| super::instance(node).map(|it| format!("{}/{}", it.zone, it.name));
    assert_eq!(
        instance(&node("gce://shop/europe-west1-b/vm-1", "", "n")).as_deref(),
        Some("europe-west1-b/vm-1")
    );
    assert_eq!(
        instance(&node("", "europe-west1-c", "n")).as_deref(),
        Some("europe-west1-c/n")
    );
    assert_eq!(instance(&node("aws:///zone/i-1", "", "n")), None);
    let link =
        "https://www.googleapis.com/compute/v1/projects/shop/zones/europe-west1-b/instances/vm-1";
    let parsed = InstanceRef::parse(link).unwrap();
    assert_eq!(
        (parsed.zone.as_str(), parsed.name.as_str()),
        ("europe-west1-b", "vm-1")
    );
}

#[test]
fn the_longest_fitting_tag_of_each_instance() {
    let tags = |tags: &[&str]| tags.iter().map(ToString::to_string).collect::<Vec<_>>();
    let instances = [
        ("gke-a-1".to_owned(), tags(&["gke", "gke-a", "web"])),
        ("gke-b-1".to_owned(), tags(&["gke-b"])),
    ];
    assert_eq!(tags_of(&instances.into()).unwrap(), ["gke-a", "gke-b"]);
    assert!(tags_of(&[("x".to_owned(), tags(&["web"]))].into()).is_err());
    assert_eq!(tags_of(&BTreeMap::new()).unwrap(), Vec::<String>::new());
}
