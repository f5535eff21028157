use super::*;
use portico_model::edge::EdgeNode;

const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

fn node(number: u8) -> IpAddr {
    [10, 0, 0, number].into()
}

/// The first slots are of these nodes (0 is this one, 9 one without a way), the rest of this one.
fn edge(first: &[u8]) -> Edge {
    let edge_node = |number: u8| EdgeNode {
        name: format!("node-{number}").into(),
        endpoints: 1,
        way: match number {
            0 => Way::Here,
            9 => Way::None,
            number => Way::Neighbour(node(number)),
        },
    };
    let mut slots = vec![0; usize::from(SLOTS)];
    for (slot, node) in slots.iter_mut().zip(first) {
        *slot = u16::from(*node);
    }
    Edge {
        addresses: [ADDRESS].into(),
        by_address: false,
        nodes: (0..10).map(edge_node).collect(),
        slots: slots.into(),
    }
}

#[test]
fn a_slot_that_comes_remembers_who_had_it() {
    let old = edge(&[1, 2, 0, 9, 0]);
    let known = Before::from([(2, node(5)), (4, node(6))]);
    let new = edge(&[0, 3, 0, 0, 1]);
    let now = before(Some(&old), &known, &Found::default(), Some(&new));
    let expected = [(0, node(1)), (2, node(5)), (4, node(6))];
    assert_eq!(now, Before::from(expected));
    assert!(before(Some(&old), &known, &Found::default(), None).is_empty());
}

#[test]
fn what_an_earlier_process_left_is_taken_over() {
    let found = Found {
        nodes: BTreeMap::from([
            (0, node(1)),
            (1, Ipv4Addr::UNSPECIFIED.into()),
            (3, node(2)),
        ]),
        before: Before::from([(2, node(5))]),
    };
    let now = before(None, &Before::new(), &found, Some(&edge(&[0, 0, 0, 1])));
    assert_eq!(now, Before::from([(0, node(1)), (2, node(5))]));
}

#[test]
fn own_slots_have_no_element_and_those_without_a_way_no_address() {
    let mut elements = Vec::new();
    let before = Before::from([(4, node(6))]);
    slot_elements(3, &edge(&[1, 0, 9]), &before, &mut elements);
    let slot = |slot, node| Element::EdgeSlot {
        pool: 6,
        slot,
        node,
    };
    let expected = [
        slot(0, node(1)),
        slot(2, Ipv4Addr::UNSPECIFIED.into()),
        Element::EdgeBefore {
            pool: 6,
            slot: 4,
            node: node(6),
        },
    ];
    assert_eq!(elements, expected);
}
