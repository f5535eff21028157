//! Health-check node ports tell of endpoints that the kernel leads to.

use super::*;

fn balanced() -> Object {
    let Object::Service(mut service) = service("a", "10.0.0.1") else {
        unreachable!()
    };
    service.spec.type_ = "LoadBalancer".to_owned();
    service.spec.external_traffic_policy = "Local".to_owned();
    service.spec.health_check_node_port = 32000;
    Object::Service(service)
}

fn here(addresses: &[&str]) -> Object {
    let Object::Slice(mut slice) = slice("a", addresses) else {
        unreachable!()
    };
    slice
        .endpoints
        .iter_mut()
        .flatten()
        .for_each(|endpoint| endpoint.node_name = Some("node1".into()));
    Object::Slice(slice)
}

/// How many endpoints are told of; `None` for a port that is to be closed.
fn told(follow_ups: Vec<FollowUp>) -> Option<Vec<Option<u32>>> {
    follow_ups
        .into_iter()
        .find_map(|follow_up| match follow_up {
            FollowUp::HealthChecks(checks) => Some(
                checks
                    .into_iter()
                    .map(|(_, now)| Some(now?.ready.v4))
                    .collect(),
            ),
            _ => None,
        })
}

#[test]
fn endpoints_count_when_the_first_table_is_installed() {
    let mut rig = Rig::new();
    rig.apply(balanced());
    assert_eq!(
        told(rig.step()),
        Some(vec![Some(0)]),
        "there is nothing here yet"
    );
    rig.apply(here(&["10.1.0.1"]));
    assert_eq!(told(rig.step()), None);
    rig.kernel.fail(&[true]);
    assert_eq!(told(rig.lists_are_done()), None);
    assert_eq!(told(rig.wake()), Some(vec![Some(1)]));
    assert_eq!(told(rig.step()), None, "once");
}

#[test]
fn endpoints_that_are_gone_are_told_at_once_and_new_ones_when_the_kernel_has_them() {
    let mut rig = Rig::new();
    rig.apply(balanced());
    assert_eq!(told(rig.lists_are_done()), Some(vec![Some(0)]));
    rig.kernel.fail(&[true, true, true, true]);
    rig.apply(here(&["10.1.0.1"]));
    assert_eq!(told(rig.step()), None);
    rig.apply(here(&[]));
    assert_eq!(told(rig.step()), Some(vec![Some(0)]));
    rig.apply(here(&["10.1.0.1", "10.1.0.2"]));
    assert_eq!(told(rig.wake()), None);
    assert_eq!(told(rig.wake()), None);
    assert_eq!(told(rig.wake()), Some(vec![Some(2)]));
    rig.take(Input::Delete(balanced().name(), rig.now));
    assert_eq!(told(rig.step()), Some(vec![None]));
}
