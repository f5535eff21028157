//! A session that stands: what the peer has been told, and what comes next.

use super::negotiate::Agreed;
use super::rib::Rib;
use super::{Config, Time};
use crate::family::{AfiSafi, PerFamily};
use crate::message::{self, Path};
use crate::routes::{Attributes, DEFAULT_PREFERENCE};

#[derive(Clone, Debug)]
pub(super) struct Established {
    pub agreed: Agreed,
    pub since: Time,
    /// Families of which it has been said that everything is told.
    ended: PerFamily<bool>,
}

impl Established {
    pub(super) fn begin(now: Time, agreed: Agreed, rib: &mut Rib) -> Self {
        rib.begin(PerFamily {
            v4: agreed.can_tell(AfiSafi::Ipv4Unicast),
            v6: agreed.can_tell(AfiSafi::Ipv6Unicast),
        });
        Self {
            agreed,
            since: now,
            ended: PerFamily::default(),
        }
    }

    /// The peer wants to hear everything again.
    pub(super) fn refresh(&mut self, family: AfiSafi, rib: &mut Rib) {
        if self.agreed.can_tell(family) {
            rib.again(family);
        }
    }

    /// The next message: routes that went, routes that came, then the ends of the first telling.
    pub(super) fn next(&mut self, config: &Config, rib: &mut Rib) -> Option<Vec<u8>> {
        let agreed = &self.agreed;
        let message = rib.tell(|family, attributes, prefixes| {
            let next_hop = *agreed.next_hops.get(family);
            match (attributes, next_hop) {
                (Some(attributes), Some(next_hop)) => message::announce(
                    family,
                    next_hop,
                    &path(config, attributes),
                    agreed.four_octets,
                    prefixes,
                ),
                _ => message::withdraw(family, prefixes),
            }
        });
        message.or_else(|| self.end_of_rib())
    }

    fn end_of_rib(&mut self) -> Option<Vec<u8>> {
        let open =
            |family: &AfiSafi| *self.agreed.families.get(*family) && !*self.ended.get(*family);
        let family = AfiSafi::BOTH.into_iter().find(open)?;
        *self.ended.get_mut(family) = true;
        Some(message::end_of_rib(family))
    }

    /// All routes of the first telling are on their way.
    pub(super) fn is_told(&self) -> bool {
        AfiSafi::BOTH
            .iter()
            .all(|family| !*self.agreed.families.get(*family) || *self.ended.get(*family))
    }

    /// What of the routes cannot be told, and why.
    pub(super) fn trouble(&self, rib: &Rib) -> String {
        let untold = |family: AfiSafi| {
            let count = rib.wanted(family);
            let routes = format!(
                "{count} {family} {}",
                if count == 1 { "route is" } else { "routes are" }
            );
            match (
                self.agreed.families.get(family),
                self.agreed.next_hops.get(family),
            ) {
                _ if count == 0 => None,
                (false, _) => Some(format!(
                    "{routes} not announced: the router takes no {family} on this session"
                )),
                (true, None) => Some(format!(
                    "{routes} not announced: the link to the router has no {family} address"
                )),
                (true, Some(_)) => None,
            }
        };
        AfiSafi::BOTH
            .into_iter()
            .filter_map(untold)
            .collect::<Vec<_>>()
            .join("; ")
    }
}

fn path(config: &Config, attributes: &Attributes) -> Path {
    let communities = attributes.communities.clone();
    match config.is_internal() {
        true => {
            let preference = attributes.local_preference.unwrap_or(DEFAULT_PREFERENCE);
            Path {
                as_path: vec![],
                local_preference: Some(preference),
                communities,
            }
        }
        false => Path {
            as_path: vec![config.local_as],
            local_preference: None,
            communities,
        },
    }
}
