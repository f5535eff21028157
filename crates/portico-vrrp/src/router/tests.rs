use super::*;
use crate::packet::Version;

const MS: Duration = Duration::from_millis(1);

fn config(last: u8, priority: u8) -> Config {
    Config {
        version: Version::V3,
        vrid: 59,
        addresses: vec!["172.16.64.58".parse().unwrap()],
        own: IpAddr::from([172, 16, 64, last]),
        priority,
        interval: 100 * MS,
        preempt: true,
        preempt_delay: Duration::ZERO,
        password: None,
        peers: vec![],
    }
}

fn sent(out: &[Output]) -> Option<Vec<u8>> {
    out.iter().find_map(|output| match output {
        Output::Send(payload) => Some(payload.clone()),
        _ => None,
    })
}

#[test]
fn two_nodes_one_owner() {
    let (mut a, mut b) = (Router::new(config(1, 200)), Router::new(config(2, 100)));
    let mut now = Duration::from_secs(1);
    assert_eq!(a.handle(now, Input::Start), [Output::Drop, Output::Became(Role::Standby, Reason::Started)]);
    b.handle(now, Input::Start);
    now = a.deadline().unwrap();
    assert_eq!(a.handle(now, Input::Tick), [Output::Probe]);
    now = a.deadline().unwrap();
    let out = a.handle(now, Input::Tick);
    let payload = sent(&out).unwrap();
    assert_eq!(
        out,
        [
            Output::Take { lifetime: Duration::from_secs(1) },
            Output::Send(payload.clone()),
            Output::Announce,
            Output::Became(Role::Owner, Reason::OwnerSilent { last: None })
        ]
    );
    let heard =
        |payload| Input::Packet { from: config(1, 0).own, to: packet::group(config(1, 0).own), hops: 255, payload };
    assert!(matches!(b.handle(now, heard(&payload))[..], [Output::Heard { .. }]));
    let payload = sent(&a.handle(now, Input::Release)).unwrap();
    assert_eq!(a.role(), Role::Owner);
    b.handle(now, heard(&payload));
    now = b.deadline().unwrap();
    let out = b.handle(now, Input::Tick);
    assert_eq!(out.last(), Some(&Output::Became(Role::Owner, Reason::OwnerLeft(config(1, 0).own))));
    let payload = sent(&out).unwrap();
    let to = packet::group(config(1, 0).own);
    let out = a.handle(now, Input::Packet { from: config(2, 0).own, to, hops: 255, payload: &payload });
    assert_eq!(out[1..], [Output::Drop, Output::Became(Role::Stopped, Reason::Asked), Output::Released]);
}
