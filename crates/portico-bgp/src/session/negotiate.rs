//! What we say of ourselves, what the peer says of itself, and what follows for the session.

use super::{Config, NextHops, Reason, Time};
use crate::family::{AfiSafi, PerFamily};
use crate::message::{Capability, GracefulRestart, Notification, Open, code};
use std::net::Ipv4Addr;
use std::time::Duration;

/// What both can do, and the clocks that follow from it.
#[derive(Clone, Debug)]
pub(super) struct Agreed {
    pub four_octets: bool,
    pub families: PerFamily<bool>,
    /// By family; `None` where we cannot be reached.
    pub next_hops: PerFamily<Option<std::net::IpAddr>>,
    hold: Option<Duration>,
    keepalive: Duration,
    /// The session is over if nothing is heard until then.
    hold_until: Time,
    speak_at: Time,
}

/// Our introduction.
pub(super) fn open(config: &Config, next_hops: &NextHops, restarted: bool) -> Open {
    let mut capabilities: Vec<Capability> = AfiSafi::BOTH.map(Capability::Multiprotocol).to_vec();
    capabilities.extend([
        Capability::RouteRefresh,
        Capability::FourOctetAs(config.local_as),
    ]);
    if next_hops.own.v6.is_some() {
        capabilities.push(Capability::Ipv4ByIpv6);
    }
    if let Some(time) = config.restart_time {
        // A session begins when the rules are in the kernel: what the peer still sends us is
        // forwarded, whatever was before.
        let families = AfiSafi::BOTH.map(|family| (family, true)).to_vec();
        capabilities.push(Capability::GracefulRestart(GracefulRestart {
            restarted,
            time,
            families,
        }));
    }
    Open {
        asn: config.local_as,
        hold_time: config.hold_time,
        router_id: config.router_id,
        capabilities,
    }
}

/// What follows from the peer's introduction, or why it will not do.
pub(super) fn agree(
    config: &Config,
    next_hops: NextHops,
    open: &Open,
    now: Time,
) -> Result<Agreed, (Reason, Notification)> {
    let refuse = |subcode| Notification::new(code::OPEN, subcode);
    if open.asn != config.peer_as {
        return Err((
            Reason::OtherAs {
                expected: config.peer_as,
                found: open.asn,
            },
            refuse(2),
        ));
    }
    if config.is_internal() && open.router_id == config.router_id {
        return Err((Reason::SameRouterId(open.router_id), refuse(3)));
    }
    if open.router_id == Ipv4Addr::UNSPECIFIED {
        return Err((Reason::Refusing(refuse(3)), refuse(3)));
    }
    if matches!(open.hold_time, 1 | 2) {
        return Err((Reason::Refusing(refuse(6)), refuse(6)));
    }
    let has = |wanted: &Capability| open.capabilities.contains(wanted);
    let multiprotocol = open.capabilities.iter().any(|capability| match capability {
        Capability::Multiprotocol(_) => true,
        // Of a family that we do not know, but it names what it wants.
        Capability::Other { code, .. } => *code == 1,
        _ => false,
    });
    let families = PerFamily {
        v4: !multiprotocol || has(&Capability::Multiprotocol(AfiSafi::Ipv4Unicast)),
        v6: has(&Capability::Multiprotocol(AfiSafi::Ipv6Unicast)),
    };
    let four_octets = open
        .capabilities
        .iter()
        .any(|capability| matches!(capability, Capability::FourOctetAs(_)));
    let by_v6 = has(&Capability::Ipv4ByIpv6);
    let next_hops = PerFamily {
        v4: next_hops.choose(AfiSafi::Ipv4Unicast, by_v6),
        v6: next_hops.choose(AfiSafi::Ipv6Unicast, by_v6),
    };
    let hold = Duration::from_secs(config.hold_time.min(open.hold_time).into());
    let keepalive = keepalive(config, hold);
    let mut agreed = Agreed {
        four_octets,
        families,
        next_hops,
        hold: Some(hold).filter(|hold| !hold.is_zero()),
        keepalive,
        hold_until: now,
        speak_at: now,
    };
    agreed.heard(now);
    agreed.spoke(now);
    Ok(agreed)
}

/// Three words in a hold time, or more if so configured.
fn keepalive(config: &Config, hold: Duration) -> Duration {
    let third = hold / 3;
    let wanted = config
        .keepalive_time
        .map(|seconds| Duration::from_secs(seconds.into()));
    wanted
        .filter(|wanted| !wanted.is_zero())
        .unwrap_or(third)
        .min(third)
}

impl Agreed {
    pub(super) fn deadline(&self) -> Option<Time> {
        self.hold.map(|_| self.hold_until.min(self.speak_at))
    }

    pub(super) fn heard(&mut self, now: Time) {
        self.hold_until = now + self.hold.unwrap_or_default();
    }

    pub(super) fn spoke(&mut self, now: Time) {
        self.speak_at = now + self.keepalive;
    }

    pub(super) fn is_silent(&self, now: Time) -> bool {
        self.hold.is_some() && now >= self.hold_until
    }

    /// Routes of a family can be told.
    pub(super) fn can_tell(&self, family: AfiSafi) -> bool {
        *self.families.get(family) && self.next_hops.get(family).is_some()
    }
}
