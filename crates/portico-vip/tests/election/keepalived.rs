//! Elections against the real keepalived (Debian's `keepalived`), in every dialect and both ways.

use crate::segment::*;
use crate::timeline::Timeline;
use portico_testbed::{Host, Process};
use portico_vrrp::{Reason, Role, Version};
use std::fs::{self, File};
use std::process::Command;
use tempfile::TempDir;

/// A keepalived that takes part, and ends with this.
struct Keepalived {
    process: Process,
    folder: TempDir,
}

impl Keepalived {
    fn start(host: &Host, number: usize, dialect: Dialect, priority: u8) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        fs::write(path("conf"), configuration(number, dialect, priority)).unwrap();
        let mut command = Command::new("keepalived");
        command.args([
            "--dont-fork",
            "--log-console",
            "--log-detail",
            "--vrrp",
            "--use-file",
            &path("conf"),
        ]);
        command.args(["--pid", &path("pid"), "--vrrp_pid", &path("vrrp.pid")]);
        let log = File::create(path("log")).unwrap();
        command.stdout(log.try_clone().unwrap()).stderr(log);
        let process = host
            .spawn(command)
            .expect("keepalived starts (Debian's package `keepalived`, see `make deps`)");
        Self { process, folder }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    /// It found nothing wrong with what we sent.
    fn is_content(&self) {
        let log = self.log();
        let complaints = [
            "bogus",
            "invalid",
            "mismatch",
            "incorrect",
            "expected",
            "Unknown",
            "error",
        ];
        assert!(
            !complaints.iter().any(|complaint| log.contains(complaint)),
            "{log}"
        );
    }

    fn kill(&mut self) {
        self.process.kill();
    }

    fn terminate(&mut self) {
        self.process.terminate(PATIENCE);
    }
}

fn configuration(number: usize, dialect: Dialect, priority: u8) -> String {
    let version = if dialect.version == Version::V2 { 2 } else { 3 };
    let interval = dialect.interval().as_secs_f32();
    let own = dialect.own(number);
    let talk = match dialect.unicast {
        false => format!("mcast_src_ip {own}"),
        true => format!(
            "unicast_src_ip {own}\n unicast_peer {{\n {}\n }}",
            dialect.own(3 - number)
        ),
    };
    let addresses: Vec<_> = dialect
        .addresses()
        .iter()
        .map(ToString::to_string)
        .collect();
    format!(
        "global_defs {{\n vrrp_version {version}\n vrrp_garp_master_delay 0\n}}\n\
         vrrp_instance portico {{\n state BACKUP\n interface eth0\n virtual_router_id {VRID}\n priority {priority}\n \
         advert_int {interval}\n {talk}\n virtual_ipaddress {{\n {}\n }}\n}}\n",
        addresses.join("\n ")
    )
}

const KEEPALIVED: usize = 0;
const PORTICO: usize = 1;

/// keepalived is on host 1, Portico on host 2.
async fn it_yields_to_us(dialect: Dialect) {
    let segment = Segment::new(2);
    let timeline = Timeline::watch(&segment.hosts, dialect.addresses()[0]);
    let keepalived = Keepalived::start(&segment.hosts[0], 1, dialect, 100);
    timeline.wait_for(&[KEEPALIVED], PATIENCE);

    let portico = dialect.start(&segment, 2, 150);
    let state = until_role(&portico, Role::Owner).await;
    assert_eq!(
        state.transitions.last().unwrap().reason,
        Reason::Preempted(dialect.own(1))
    );
    assert_eq!(state.counters.adverts_ignored, Default::default());
    timeline.wait_for(&[PORTICO], PATIENCE);

    portico.release().await;
    timeline.wait_for(&[KEEPALIVED], PATIENCE);
    keepalived.is_content();
    short_hand_overs(&timeline, dialect);
}

async fn we_yield_to_it(dialect: Dialect) {
    let segment = Segment::new(2);
    let timeline = Timeline::watch(&segment.hosts, dialect.addresses()[0]);
    let portico = dialect.start(&segment, 2, 100);
    until_role(&portico, Role::Owner).await;

    let mut keepalived = Keepalived::start(&segment.hosts[0], 1, dialect, 150);
    let state = until_role(&portico, Role::Standby).await;
    let outranked = Reason::Outranked {
        by: dialect.own(1),
        priority: 150,
    };
    assert_eq!(state.transitions.last().unwrap().reason, outranked);
    timeline.wait_for(&[KEEPALIVED], PATIENCE);
    short_hand_overs(&timeline, dialect);

    keepalived.terminate();
    let state = until_role(&portico, Role::Owner).await;
    assert_eq!(
        state.transitions.last().unwrap().reason,
        Reason::OwnerLeft(dialect.own(1))
    );
    assert_eq!(state.counters.adverts_ignored, Default::default());
    timeline.wait_for(&[PORTICO], PATIENCE);
    let (overlap, _) = timeline.longest_overlap_and_gap();
    assert!(
        overlap < HAND_OVER,
        "{dialect:?}: {overlap:?} of both: {timeline:?}"
    );
    keepalived.is_content();
}

fn short_hand_overs(timeline: &Timeline, dialect: Dialect) {
    let (overlap, gap) = timeline.longest_overlap_and_gap();
    assert!(
        overlap < HAND_OVER && gap < HAND_OVER,
        "{dialect:?}: {overlap:?} of both, {gap:?} of none: {timeline:?}"
    );
}

macro_rules! in_every_dialect {
    ($($name:ident: $number:literal),*) => {$(
        mod $name {
            use super::*;

            #[tokio::test]
            async fn it_yields_to_us() {
                super::it_yields_to_us(DIALECTS[$number]).await;
            }

            #[tokio::test]
            async fn we_yield_to_it() {
                super::we_yield_to_it(DIALECTS[$number]).await;
            }
        }
    )*};
}

in_every_dialect!(v3: 0, v3_unicast: 1, v3_ipv6: 2, v3_ipv6_unicast: 3, v2: 4, v2_unicast: 5);

/// A keepalived that is killed leaves its address behind for good: there is no way to have one
/// owner then, but one to know.
#[tokio::test]
async fn what_a_killed_keepalived_leaves_is_noticed() {
    let segment = Segment::new(2);
    let timeline = Timeline::watch(&segment.hosts, V4.parse().unwrap());
    let portico = MULTICAST.start(&segment, 2, 100);
    let mut keepalived = Keepalived::start(&segment.hosts[0], 1, MULTICAST, 150);
    timeline.wait_for(&[KEEPALIVED], PATIENCE);
    until_role(&portico, Role::Standby).await;
    keepalived.kill();
    let state = until_role(&portico, Role::Owner).await;
    assert_eq!(
        state.transitions.last().unwrap().reason,
        Reason::OwnerSilent {
            last: Some(MULTICAST.own(1))
        }
    );
    assert_eq!(
        state.conflict.map(|(_, conflict)| conflict.address),
        Some(V4.parse().unwrap())
    );
    timeline.wait_for(&[KEEPALIVED, PORTICO], PATIENCE);
}
