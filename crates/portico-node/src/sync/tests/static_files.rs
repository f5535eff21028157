//! Services in files on the node, beside those of the API server.

use super::*;
use portico_model::table::PortKey;

fn static_file(file: &str, version: Option<&str>, objects: Vec<Object>, gone: Vec<Name>) -> Input {
    let version = version.map(str::to_owned);
    Input::Static(static_services::Change {
        file: file.to_owned(),
        version,
        objects,
        gone,
    })
}

/// As a file has them: with external addresses alone.
fn static_objects(endpoints: &[&str]) -> Vec<Object> {
    let mut objects = [service("vip", ""), slice("vip", endpoints)];
    for object in &mut objects {
        let metadata = match object {
            Object::Service(service) => {
                service.spec.external_ips = vec!["192.0.2.100".to_owned()];
                &mut service.metadata
            }
            Object::Slice(slice) => &mut slice.metadata,
            _ => unreachable!(),
        };
        metadata.namespace = "static:vip.yaml/default".to_owned();
        metadata.creation_timestamp = Some("0001-01-01T00:00:00Z".to_owned());
    }
    objects.into()
}

fn told(follow_ups: Vec<FollowUp>) -> Vec<InForce> {
    let static_services = |follow_up| match follow_up {
        FollowUp::StaticServices(in_force) => Some(in_force),
        _ => None,
    };
    follow_ups.into_iter().filter_map(static_services).collect()
}

fn in_force(version: &str) -> InForce {
    InForce::from([("vip.yaml".to_owned(), version.to_owned())])
}

#[test]
fn static_services_are_served_beside_others_and_survive_their_lists() {
    let mut rig = Rig::installed();
    rig.take(static_file(
        "vip.yaml",
        Some("1"),
        static_objects(&["10.1.0.1", "10.1.0.2"]),
        vec![],
    ));
    assert_eq!(told(rig.step()), [in_force("1")]);
    assert_eq!(rig.kernel.calls(), [Call::Apply(1)]);
    rig.take(Input::Listed(Kind::Service, HashSet::new()));
    rig.take(Input::Listed(Kind::Slice, HashSet::new()));
    assert_eq!(told(rig.step()), []);
    assert!(rig.is_in_sync());
    let ports = || {
        rig.kernel
            .0
            .lock()
            .unwrap()
            .ports
            .keys()
            .map(PortKey::to_string)
            .collect::<Vec<_>>()
    };
    assert_eq!(ports(), ["static:vip.yaml/default/vip"]);
    let gone = static_objects(&[]).iter().map(Object::name).collect();
    rig.syncer
        .take(static_file("vip.yaml", None, vec![], gone), rig.now);
    assert_eq!(told(rig.syncer.step(rig.now)), [InForce::new()]);
    assert_eq!(ports(), [""; 0]);
}

#[test]
fn static_services_are_told_when_they_are_in_the_kernel() {
    let mut rig = Rig::installed();
    rig.kernel.fail(&[true, true]);
    rig.take(static_file(
        "vip.yaml",
        Some("1"),
        static_objects(&["10.1.0.1"]),
        vec![],
    ));
    assert_eq!(told(rig.step()), []);
    rig.take(static_file(
        "vip.yaml",
        Some("2"),
        static_objects(&["10.1.0.2"]),
        vec![],
    ));
    assert_eq!(told(rig.step()), []);
    assert_eq!(told(rig.wake()), [in_force("2")]);
    assert!(rig.is_in_sync());
}

/// The API server may be behind one of them.
#[test]
fn static_services_need_no_api_server_on_an_empty_node() {
    let mut rig = Rig::new();
    rig.take(static_file(
        "vip.yaml",
        Some("1"),
        static_objects(&["10.1.0.1"]),
        vec![],
    ));
    assert_eq!(told(rig.step()), [in_force("1")]);
    assert_eq!(rig.kernel.calls(), [Call::Replace(1)]);
    rig.take(Input::First(vec![service("kubernetes", "10.0.0.1")]));
    rig.take(static_file(
        "vip.yaml",
        Some("2"),
        static_objects(&["10.1.0.2"]),
        vec![],
    ));
    assert_eq!(told(rig.step()), [in_force("2")]);
    assert_eq!(rig.kernel.calls(), [Call::Replace(2)]);
    rig.apply(service("kubernetes", "10.0.0.1"));
    assert_eq!(told(rig.lists_are_done()), []);
    assert_eq!(rig.kernel.calls(), [Call::Replace(2)]);
    assert!(rig.is_in_sync());
}

/// What an earlier process left is more than what a file has: it stays until the rest is known.
#[test]
fn static_services_wait_on_a_node_that_forwards_already() {
    let mut rig = Rig::new();
    rig.kernel.0.lock().unwrap().installed_before = true;
    rig.take(static_file(
        "vip.yaml",
        Some("1"),
        static_objects(&["10.1.0.1"]),
        vec![],
    ));
    assert_eq!(told(rig.step()), []);
    assert_eq!(rig.kernel.calls(), []);
    rig.take(Input::Remembered(vec![service("a", "10.0.0.1")]));
    assert_eq!(told(rig.step()), [in_force("1")]);
    assert_eq!(rig.kernel.calls(), [Call::Replace(2)]);
}

/// An object cannot take the control plane's address by naming it.
#[test]
fn an_address_of_a_static_service_is_its_own() {
    let mut rig = Rig::installed();
    let Object::Service(mut thief) = service("thief", "10.0.0.7") else {
        unreachable!()
    };
    thief.spec.external_ips = vec!["192.0.2.100".to_owned()];
    thief.metadata.creation_timestamp = Some("2020-01-01T00:00:00Z".to_owned());
    rig.apply(Object::Service(thief));
    rig.apply(slice("thief", &["10.1.0.66"]));
    rig.step();
    rig.take(static_file(
        "vip.yaml",
        Some("1"),
        static_objects(&["10.1.0.1"]),
        vec![],
    ));
    rig.step();
    let kernel = rig.kernel.0.lock().unwrap();
    let owners = kernel.ports.iter().filter(|(_, port)| {
        port.frontends
            .iter()
            .any(|frontend| frontend.address == Some("192.0.2.100".parse().unwrap()))
    });
    assert_eq!(
        owners.map(|(key, _)| key.to_string()).collect::<Vec<_>>(),
        ["static:vip.yaml/default/vip"]
    );
}
