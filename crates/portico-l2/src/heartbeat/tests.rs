use super::*;
use proptest::prelude::*;

fn any_heartbeat() -> impl Strategy<Value = Heartbeat> {
    let numbers = any::<[u64; 5]>();
    let echo = proptest::option::of(any::<(u64, u64)>());
    let flags = any::<(bool, bool)>();
    let lacks = proptest::collection::vec(any::<u64>(), 0..=MOST_LACKS);
    let macs = proptest::collection::vec(any::<Mac>(), 0..=MOST_MACS);
    let view = proptest::option::of(proptest::collection::btree_set(any::<u64>(), 0..100));
    (numbers, echo, flags, lacks, macs, view).prop_map(
        |(numbers, echo, (ready, leaves), lacks, macs, view)| {
            let [from, to, incarnation, stamp, view_since] = numbers;
            Heartbeat {
                from: NodeId(from),
                to: NodeId(to),
                incarnation,
                stamp,
                echo: echo.map(|(incarnation, stamp)| Echo { incarnation, stamp }),
                ready,
                leaves,
                lacks,
                macs,
                view_since,
                view: view.map(|view| view.into_iter().map(NodeId).collect()),
            }
        },
    )
}

proptest! {
    #[test]
    fn what_is_sent_is_what_is_heard(heartbeat in any_heartbeat()) {
        let bytes = heartbeat.emit();
        prop_assert!(bytes.len() <= LONGEST);
        prop_assert_eq!(Heartbeat::parse(&bytes), Ok(heartbeat));
    }

    #[test]
    fn random_bytes_are_refused_without_harm(bytes in proptest::collection::vec(any::<u8>(), 0..300), magic: bool) {
        let bytes = if magic { [&MAGIC, bytes.as_slice()].concat() } else { bytes };
        if let Ok(heartbeat) = Heartbeat::parse(&bytes) {
            let again = Heartbeat::parse(&heartbeat.emit());
            prop_assert_eq!(again, Ok(heartbeat));
        }
    }

    #[test]
    fn a_heartbeat_that_was_cut_is_none(heartbeat in any_heartbeat(), cut in 1..8_usize) {
        let bytes = heartbeat.emit();
        prop_assert!(Heartbeat::parse(&bytes[..bytes.len() - cut]).is_err());
    }
}

#[test]
fn there_is_never_too_much_of_it() {
    let many = Heartbeat {
        from: NodeId(1),
        to: NodeId(2),
        incarnation: 3,
        stamp: 4,
        echo: None,
        ready: true,
        leaves: false,
        lacks: vec![7; 5000],
        macs: vec![[2; 6]; 5000],
        view_since: 0,
        view: Some((0..5000).map(NodeId).collect()),
    };
    assert_eq!(many.emit().len(), LONGEST);
    assert!(Heartbeat::parse(&many.emit()).is_ok());
}

#[test]
fn a_view_is_sorted_and_has_nobody_twice() {
    let mut bytes = vec![];
    bytes.extend(MAGIC);
    bytes.extend([VIEW, 0, 0, 0]);
    bytes.extend([0; 56]);
    bytes.extend([0; 16]);
    assert_eq!(Heartbeat::parse(&bytes), Err(Malformed::Unsorted));
}
