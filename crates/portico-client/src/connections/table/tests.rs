use super::*;

const LIMITS: Limits = Limits {
    all: 6,
    strangers: 4,
    of_one_peer: 2,
    of_one_identity: 3,
    first_request: Duration::from_secs(10),
    idle: Duration::from_secs(30),
};

/// A table whose connections are closed by their number, and a clock of seconds.
struct Rig {
    table: Table<u64>,
    start: Instant,
    count: u64,
}

impl Rig {
    fn new() -> Self {
        Self {
            table: Table::new(LIMITS),
            start: Instant::now(),
            count: 0,
        }
    }

    fn at(&self, second: u64) -> Instant {
        self.start + Duration::from_secs(second)
    }

    /// The id of the new connection, and which one ended for it.
    fn enter(&mut self, peer: u8, second: u64) -> Result<(Id, Option<u64>), Reason> {
        self.count += 1;
        let (count, now) = (self.count, self.at(second));
        let (id, ended) = self.table.enter([10, 0, 0, peer].into(), count, now)?;
        Ok((id, ended.map(|(closer, _)| closer)))
    }

    fn begin(&mut self, id: Id, identity: Option<&str>) -> Option<u64> {
        self.table.begin(id, identity)
    }

    fn overdue(&mut self, second: u64) -> Vec<(u64, Reason)> {
        let mut due = self.table.overdue(self.at(second));
        due.sort_by_key(|(closer, _)| *closer);
        due
    }
}

#[test]
fn one_address_loses_its_own_oldest() {
    let mut rig = Rig::new();
    let (first, _) = rig.enter(1, 0).unwrap();
    rig.enter(1, 1).unwrap();
    rig.enter(2, 0).unwrap();
    assert_eq!(rig.enter(1, 2).unwrap().1, Some(1));
    assert_eq!(rig.table.leave(first), None, "it was forgotten already");
    assert_eq!(rig.enter(1, 3).unwrap().1, Some(2));
}

#[test]
fn many_addresses_lose_the_oldest_of_all() {
    let mut rig = Rig::new();
    for (peer, second) in [(1, 5), (2, 3), (3, 4), (4, 6)] {
        rig.enter(peer, second).unwrap();
    }
    assert_eq!(rig.enter(5, 7).unwrap().1, Some(2));
    assert_eq!(rig.enter(6, 8).unwrap().1, Some(3));
    assert_eq!(rig.table.strangers(), 4);
}

#[test]
fn a_request_under_way_is_never_ended_for_room() {
    let mut rig = Rig::new();
    let (first, _) = rig.enter(1, 0).unwrap();
    let (second, _) = rig.enter(1, 1).unwrap();
    rig.begin(first, None);
    assert_eq!(rig.enter(1, 2).unwrap().1, Some(2));
    assert!(rig.table.leave(second).is_none());
    let (third, _) = (first + 2, ());
    rig.begin(third, None);
    assert_eq!(rig.enter(1, 3), Err(Reason::Peer));
    rig.table.end(first, None, rig.at(4));
    assert_eq!(rig.enter(1, 5).unwrap().1, Some(1));
}

#[test]
fn who_says_who_it_is_makes_room_for_strangers() {
    let mut rig = Rig::new();
    for peer in [1, 1] {
        let (id, _) = rig.enter(peer, 0).unwrap();
        assert_eq!(rig.begin(id, Some("ann")), None);
        rig.table.end(id, None, rig.at(1));
    }
    assert_eq!(rig.table.strangers(), 0);
    assert_eq!(rig.enter(1, 2).unwrap().1, None);
    assert_eq!(rig.enter(1, 2).unwrap().1, None);
}

#[test]
fn one_identity_loses_its_own_oldest() {
    let mut rig = Rig::new();
    for second in 0..3 {
        let (id, _) = rig.enter(1, second).unwrap();
        assert_eq!(rig.begin(id, Some("ann")), None);
        rig.table.end(id, None, rig.at(second));
    }
    let (id, _) = rig.enter(1, 4).unwrap();
    assert_eq!(rig.begin(id, Some("ann")), Some(1));
}

#[test]
fn one_identity_that_is_busy_on_all_gets_no_more() {
    let mut rig = Rig::new();
    for closer in 1..=4 {
        let (id, _) = rig.enter(1, 0).unwrap();
        let ended = rig.begin(id, Some("ann"));
        assert_eq!(ended, (closer == 4).then_some(4));
    }
    assert_eq!(rig.table.count(), 3);
}

#[test]
fn a_full_server_ends_strangers_before_others() {
    let mut rig = Rig::new();
    for name in ["ann", "bob", "eve", "joe"] {
        let (id, _) = rig.enter(1, 0).unwrap();
        rig.begin(id, Some(name));
        rig.table.end(id, None, rig.at(1));
    }
    rig.enter(2, 5).unwrap();
    rig.enter(3, 6).unwrap();
    assert_eq!(rig.enter(4, 7).unwrap().1, Some(5));
    assert_eq!(rig.enter(5, 8).unwrap().1, Some(6));
    let (id, _) = rig.enter(6, 9).unwrap();
    rig.begin(id, None);
    assert_eq!(rig.table.count(), 6);
}

#[test]
fn silence_ends() {
    let mut rig = Rig::new();
    let (asked, _) = rig.enter(1, 0).unwrap();
    rig.enter(2, 0).unwrap();
    let (known, _) = rig.enter(3, 0).unwrap();
    let (busy, _) = rig.enter(4, 0).unwrap();
    rig.begin(busy, None);
    for (id, identity) in [(asked, None), (known, Some("ann"))] {
        rig.begin(id, identity);
        rig.table.end(id, None, rig.at(1));
    }
    assert_eq!(rig.overdue(9), []);
    assert_eq!(rig.overdue(10), [(2, Reason::Silent)]);
    assert_eq!(rig.overdue(31), [(1, Reason::Silent)]);
    assert_eq!(rig.overdue(1000), [], "quiet watches and clients stay");
    assert_eq!(rig.table.count(), 2);
}

#[test]
fn an_answer_that_nobody_takes_ends_its_connection() {
    let mut rig = Rig::new();
    let (id, _) = rig.enter(1, 0).unwrap();
    rig.begin(id, Some("ann"));
    rig.begin(id, Some("ann"));
    let soon = rig.table.sending(id, rig.at(20));
    rig.table.sending(id, rig.at(60));
    rig.table.end(id, soon, rig.at(10));
    assert_eq!(rig.overdue(59), []);
    assert_eq!(rig.overdue(60), [(1, Reason::Stalled)]);
    assert_eq!(rig.table.count(), 0);
}
