//! What there is to announce is told when the kernel serves it, and not before.

use super::*;
use portico_model::objects::Ingress;

fn announcing() -> Rig {
    let (kernel, ended, now) = (Fake::default(), FakeFlows::default(), Instant::now());
    let parts = Parts {
        announcing: true,
        ..parts(&kernel, &ended, now)
    };
    Rig {
        syncer: Syncer::new(parts, now),
        kernel,
        ended,
        now,
    }
}

fn balanced(name: &str, address: &str) -> Object {
    let Object::Service(mut service) = service(name, "10.0.0.1") else {
        unreachable!()
    };
    service.status.load_balancer.ingress = vec![Ingress {
        ip: address.to_owned(),
        ip_mode: None,
    }];
    Object::Service(service)
}

/// The addresses that are told to be announceable.
fn told(follow_ups: Vec<FollowUp>) -> Option<Vec<String>> {
    let announceables = follow_ups
        .into_iter()
        .find_map(|follow_up| match follow_up {
            FollowUp::Announceables(changes) => Some(changes),
            _ => None,
        })?;
    let address = |(_, now): (
        ObjectKey,
        Option<Arc<portico_model::announce::Announceable>>,
    )| { now.map_or("none".to_owned(), |now| now.addresses[0].to_string()) };
    Some(announceables.into_iter().map(address).collect())
}

#[test]
fn the_first_is_told_with_the_first_table() {
    let mut rig = announcing();
    rig.apply(balanced("a", "192.0.2.1"));
    assert_eq!(told(rig.step()), None);
    assert_eq!(
        told(rig.lists_are_done()),
        Some(vec!["192.0.2.1".to_owned()])
    );
    assert_eq!(told(rig.step()), None);
    assert_eq!(
        told(announcing().lists_are_done()),
        Some(vec![]),
        "that there is nothing is told too"
    );
    assert_eq!(
        told(Rig::new().lists_are_done()),
        None,
        "nobody wants to know"
    );
}

#[test]
fn what_the_kernel_does_not_have_is_not_announced() {
    let mut rig = announcing();
    rig.lists_are_done();
    rig.kernel.fail(&[true, true, true]);
    rig.apply(balanced("a", "192.0.2.1"));
    assert_eq!(told(rig.step()), None);
    rig.apply(balanced("a", "192.0.2.2"));
    assert_eq!(told(rig.wake()), None);
    assert_eq!(told(rig.wake()), Some(vec!["192.0.2.2".to_owned()]));
    rig.take(Input::Delete(service("a", "").name(), rig.now));
    assert_eq!(told(rig.step()), Some(vec!["none".to_owned()]));
}
