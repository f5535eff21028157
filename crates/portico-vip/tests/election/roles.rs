//! Who owns the address, and when it moves.

use crate::segment::*;
use crate::timeline::Timeline;
use portico_vrrp::{Reason, Role};
use std::time::Duration;

#[tokio::test]
async fn the_better_of_two_owns_the_address_in_every_dialect() {
    for dialect in DIALECTS {
        let segment = Segment::new(2);
        let timeline = Timeline::watch(&segment.hosts, dialect.addresses()[0]);
        let worse = dialect.start(&segment, 1, 100);
        let better = dialect.start(&segment, 2, 200);
        until_role(&better, Role::Owner).await;
        until_role(&worse, Role::Standby).await;
        timeline.wait_for(&[1], PATIENCE);
        let seen = until(worse.state(), "heard", |state| state.owner == Some(dialect.own(2))).await;
        assert_eq!(
            seen.peers.iter().map(|peer| (peer.address, peer.priority)).collect::<Vec<_>>(),
            [(dialect.own(2), 200)]
        );
        assert_eq!(seen.counters.adverts_ignored, Default::default(), "{dialect:?}");

        for address in dialect.addresses() {
            let shown = shown(&segment.hosts[1], "eth0", &address.to_string());
            assert!(shown.contains("deprecated"), "{dialect:?}: {shown}");
            assert!(shown.contains("valid_lft") && !shown.contains("valid_lft forever"), "{dialect:?}: {shown}");
        }

        // The other one takes over when this one goes at once.
        drop(better);
        assert_eq!(timeline.holders(), [] as [usize; 0], "{dialect:?}: it is gone as soon as the owner is");
        let state = until_role(&worse, Role::Owner).await;
        assert_eq!(state.transitions.last().unwrap().reason, Reason::OwnerLeft(dialect.own(2)));
        timeline.wait_for(&[0], PATIENCE);
        let (overlap, _) = timeline.longest_overlap_and_gap();
        assert!(overlap < Duration::from_millis(50), "{dialect:?}: {overlap:?} {timeline:?}");
    }
}
