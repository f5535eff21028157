use proptest::prelude::*;

use super::*;
use crate::rackspace::api::Node;
use crate::rackspace::tests::lab::{config, service};

fn vip(id: u64) -> VirtualIp {
    VirtualIp {
        id,
        address: IpAddr::from([203, 0, 113, u8::try_from(id).unwrap()]),
        kind: "PUBLIC".to_owned(),
    }
}

/// As it should be for a port of the Service.
fn made(id: u64, wanted: &NewLoadBalancer, vips: &[VirtualIp]) -> LoadBalancer {
    let nodes = wanted.nodes.iter().zip(1000..);
    LoadBalancer {
        id,
        status: "ACTIVE".to_owned(),
        protocol: wanted.protocol.to_owned(),
        port: wanted.port,
        algorithm: wanted.settings.algorithm.clone(),
        timeout: wanted.settings.timeout,
        virtual_ips: vips.to_vec(),
        nodes: nodes
            .map(|(node, id)| Node {
                id,
                address: node.address.clone(),
                port: node.port,
            })
            .collect(),
        health_monitor: wanted.health_monitor.clone(),
        ..LoadBalancer::default()
    }
}

fn wanted(request: &Request) -> Wanted {
    Wanted::new(request, &config()).unwrap()
}

#[test]
fn what_is_as_it_should_be_needs_no_steps() {
    let request = service("a", &[80, 443]);
    let wanted = wanted(&request);
    let own: Vec<_> = wanted
        .balancers
        .iter()
        .zip(1..)
        .map(|(new, id)| made(id, new, &[vip(7)]))
        .collect();
    assert_eq!(plan(&wanted, &own, &[], &request).unwrap().steps, vec![]);
}

#[test]
fn another_port_shares_the_address_and_the_old_one_goes_last() {
    let (before, request) = (wanted(&service("a", &[80])), service("a", &[81]));
    let plan = plan(
        &wanted(&request),
        &[made(1, &before.balancers[0], &[vip(7)])],
        &[],
        &request,
    )
    .unwrap();
    assert_eq!(plan.addresses, [NewVirtualIp::Shared { id: 7 }]);
    assert!(
        matches!(&plan.steps[..], [Step::Create(new), Step::Delete(ids)] if new.port == 81 && ids == &[1])
    );
}

#[test]
fn more_than_a_batch_goes_in_batches() {
    let request = service("a", &[80]);
    let wanted = wanted(&request);
    let own: Vec<_> = (1..=12)
        .map(|id| made(id, &wanted.balancers[0], &[vip(7)]))
        .collect();
    let steps = plan(&wanted, &own, &[], &request).unwrap().steps;
    assert_eq!(
        steps,
        [Step::Delete((2..=11).collect()), Step::Delete(vec![12])]
    );
}

#[test]
fn the_steps_of_one_load_balancer_stand_together() {
    let request = service("a", &[80, 443]);
    let wanted = wanted(&request);
    let mut own: Vec<_> = wanted
        .balancers
        .iter()
        .zip(1..)
        .map(|(new, id)| made(id, new, &[vip(7)]))
        .collect();
    own.iter_mut()
        .for_each(|it| (it.timeout, it.health_monitor, it.nodes) = (1, None, Vec::new()));
    let targets: Vec<_> = plan(&wanted, &own, &[], &request)
        .unwrap()
        .steps
        .iter()
        .map(Step::target)
        .collect();
    assert_eq!(
        targets,
        [Some(1), Some(1), Some(1), Some(2), Some(2), Some(2)]
    );
}

proptest! {
    /// Whatever there is and is wanted: it becomes that, within bounds, and is never empty on the
    /// way unless it began or ends so.
    #[test]
    fn an_exchange_ends_right_and_stays_in_bounds(there in prop::collection::btree_set(0_u8..60, 0..=25), wanted in prop::collection::btree_set(0_u8..60, 0..=25)) {
        let numbered: Vec<(u64, u8)> = there.iter().map(|it| (100 + u64::from(*it), *it)).collect();
        let target: Vec<u8> = wanted.iter().copied().collect();
        let mut now = there.clone();
        for part in exchange(&numbered, &target, 25) {
            match part {
                Exchange::Add(items) => items.into_iter().for_each(|item| assert!(now.insert(item))),
                Exchange::Remove(ids) => {
                    prop_assert!(ids.len() <= BATCH);
                    ids.into_iter().for_each(|id| assert!(now.remove(&u8::try_from(id - 100).unwrap())));
                }
            }
            prop_assert!(now.len() <= 25);
            prop_assert!(!now.is_empty() || wanted.is_empty());
        }
        prop_assert_eq!(now, wanted);
    }
}
