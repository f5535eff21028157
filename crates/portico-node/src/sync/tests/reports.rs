//! What is told of how far the kernel is.

use super::*;
use portico_model::partitions::{PORT_PARTITION, PortPartition};

impl Rig {
    fn reach(&mut self, services: u64, slices: u64) {
        self.take(Input::Reached(Kind::Service, services));
        self.take(Input::Reached(Kind::Slice, slices));
    }

    fn told(&self) -> Option<Installed> {
        self.syncer.parts.report.borrow().clone()
    }

    fn versions(&self) -> Option<(u64, u64)> {
        self.told().map(|told| (told.services, told.slices))
    }
}

#[test]
fn what_is_installed_is_told_also_where_nothing_had_to_be_done() {
    let mut rig = Rig::new();
    rig.apply(service("a", "10.0.0.1"));
    rig.reach(5, 6);
    rig.step();
    assert_eq!(rig.told(), None, "nothing is installed yet");
    rig.lists_are_done();
    assert_eq!(rig.versions(), Some((5, 6)));
    rig.reach(7, 8);
    rig.step();
    assert_eq!(rig.versions(), Some((7, 8)), "a bookmark");
}

#[test]
fn only_what_somebody_waits_for_is_told_at_once() {
    let mut rig = Rig::installed();
    let mut told = rig.syncer.parts.report.subscribe();
    rig.reach(5, 6);
    rig.step();
    assert!(told.has_changed().unwrap(), "the first");
    told.mark_unchanged();
    rig.apply(service("b", "10.0.0.2"));
    rig.reach(7, 8);
    rig.step();
    assert!(!told.has_changed().unwrap());
    assert_eq!(
        rig.versions(),
        Some((7, 8)),
        "it is there for the next renewal"
    );
    let Object::Service(mut balanced) = service("c", "10.0.0.3") else {
        panic!()
    };
    balanced.spec.type_ = "LoadBalancer".to_owned();
    rig.apply(Object::Service(balanced));
    rig.step();
    assert!(!told.has_changed().unwrap(), "its version comes after it");
    rig.reach(9, 8);
    rig.step();
    assert!(told.has_changed().unwrap());
}

#[test]
fn what_cannot_be_installed_is_not_told_to_be() {
    let mut rig = Rig::installed();
    rig.reach(5, 6);
    rig.step();
    rig.kernel.fail(&[true, true]);
    rig.apply(service("b", "10.0.0.2"));
    rig.reach(7, 8);
    rig.step();
    let told = rig.told().unwrap();
    assert_eq!((told.services, told.slices), (5, 6));
    assert!(!told.trouble.is_empty());
    rig.wake();
    let told = rig.told().unwrap();
    assert_eq!(
        (told.services, told.slices, told.trouble.as_str()),
        (7, 8, "")
    );
}

#[test]
fn a_service_whose_address_another_has_is_behind_until_it_has_it() {
    let mut rig = Rig::installed();
    rig.reach(5, 6);
    rig.apply(service("b", "10.0.0.1"));
    rig.step();
    let told = rig.told().unwrap();
    let behind: Vec<&str> = told
        .behind
        .iter()
        .map(|behind| behind.service.as_str())
        .collect();
    assert_eq!(
        (behind.as_slice(), told.more_behind),
        (&["default/b"][..], 0)
    );
    assert!(told.behind[0].reason.contains("10.0.0.1"), "{told:?}");
    rig.take(Input::Delete(service("a", "").name(), rig.now));
    rig.step();
    rig.wake();
    assert_eq!(rig.told().unwrap().behind, []);
}

#[test]
fn a_service_whose_partition_is_missing_is_behind_until_it_is_there() {
    let mut rig = Rig::installed();
    rig.reach(5, 6);
    rig.step();
    let Object::Service(mut public) = service("b", "10.0.0.2") else {
        panic!()
    };
    public.spec.type_ = "NodePort".to_owned();
    public.spec.ports[0].node_port = 30080;
    public
        .metadata
        .annotations
        .insert(PORT_PARTITION.to_owned(), "left".to_owned());
    rig.apply(Object::Service(public));
    rig.step();
    rig.wake();
    let told = rig.told().unwrap();
    assert_eq!(told.behind.len(), 1, "{told:?}");
    assert!(told.behind[0].reason.contains("PortPartition"), "{told:?}");
    // Also on a node that has no address in it.
    let mut partition = PortPartition::default();
    partition.metadata.name = "left".to_owned();
    partition.spec.addresses = vec!["192.0.2.0/24".to_owned()];
    rig.apply(Object::Partition(Box::new(partition)));
    rig.step();
    rig.wake();
    let told = rig.told().unwrap();
    assert_eq!((told.behind, told.partitions), (vec![], vec![]));
}
