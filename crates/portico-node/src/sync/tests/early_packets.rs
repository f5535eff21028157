use super::*;
use portico_model::table::{FrontendKey, Protocol};

#[derive(Clone, Default)]
struct FakeDoor(Arc<Mutex<Vec<(u32, Answer)>>>);

impl Door for FakeDoor {
    fn answer(&self, answers: Vec<(u32, Answer)>) {
        self.0.lock().unwrap().extend(answers);
    }
}

impl FakeDoor {
    fn answers(&self) -> Vec<(u32, Answer)> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// With a Service at 10.0.0.1.
fn rig() -> (Rig, FakeDoor) {
    let (mut rig, door) = (Rig::installed(), FakeDoor::default());
    rig.syncer.parts.door = Some(Box::new(door.clone()));
    (rig, door)
}

fn early_packet(id: u32, to: &str) -> Input {
    let address = Some(to.parse().unwrap());
    Input::Early(EarlyPacket {
        id,
        to: FrontendKey {
            family: Family::V4,
            address,
            port: 80,
            protocol: Protocol::Tcp,
        },
    })
}

#[test]
fn who_came_early_looks_again_when_its_service_is_installed() {
    let (mut rig, door) = rig();
    rig.take(early_packet(1, "10.0.0.2"));
    rig.take(early_packet(2, "10.0.0.3"));
    rig.step();
    assert_eq!(door.answers(), []);
    rig.apply(service("b", "10.0.0.2"));
    rig.apply(slice("b", &["10.1.0.2"]));
    rig.step();
    assert_eq!(door.answers(), [(1, Answer::Again)]);
    rig.wake();
    assert_eq!(door.answers(), [(2, Answer::On)], "it came for nothing");
}

#[test]
fn who_was_overtaken_by_its_service_looks_again_at_once() {
    let (mut rig, door) = rig();
    rig.take(early_packet(7, "10.0.0.1"));
    rig.step();
    assert_eq!(door.answers(), [(7, Answer::Again)]);
}

#[test]
fn what_could_not_be_installed_is_waited_for() {
    let (mut rig, door) = rig();
    rig.kernel.fail(&[true, true]);
    rig.take(early_packet(1, "10.0.0.2"));
    rig.apply(service("b", "10.0.0.2"));
    rig.apply(slice("b", &["10.1.0.2"]));
    rig.step();
    assert_eq!(door.answers(), []);
    // When it is tried again is up to chance, and may be after the packet has gone on.
    rig.syncer.comparison.broken(rig.now);
    rig.step();
    assert_eq!(door.answers(), [(1, Answer::Again)]);
}

#[test]
fn who_came_for_a_service_that_nobody_serves_goes_on() {
    let (mut rig, door) = rig();
    rig.take(early_packet(1, "10.0.0.2"));
    rig.apply(service("b", "10.0.0.2"));
    rig.step();
    assert_eq!(door.answers(), [(1, Answer::On)]);
}

#[test]
fn who_came_before_a_service_that_not_everybody_may_use_has_to_come_again() {
    let (mut rig, door) = rig();
    rig.take(early_packet(1, "10.0.0.2"));
    rig.apply(narrow(service("b", "10.0.0.2")));
    rig.apply(slice("b", &["10.1.0.2"]));
    rig.step();
    assert_eq!(door.answers(), [(1, Answer::Drop)]);
    // A pod in the DMZ may have sent it.
    let Object::Pod(mut pod) = pod("one", "10.1.0.1") else {
        panic!("no Pod")
    };
    let dmz = portico_model::objects::DMZ.to_owned();
    pod.metadata.labels.insert(dmz, String::new());
    rig.apply(Object::Pod(pod));
    rig.take(early_packet(2, "10.0.0.3"));
    rig.apply(service("c", "10.0.0.3"));
    rig.apply(slice("c", &["10.1.0.3"]));
    rig.step();
    rig.wake();
    assert_eq!(door.answers(), [(2, Answer::Drop)]);
}
