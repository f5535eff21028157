//! Which packets take part in the election, and what is wrong with the others.

use super::Config;
use crate::auth::Unproven;
use crate::packet::{self, Advert, HOPS, Malformed, Version};
use std::net::IpAddr;
use std::time::Duration;

/// Why a packet was ignored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each message says what its variant means")]
pub enum Refused {
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error(transparent)]
    Unproven(#[from] Unproven),
    #[error("hop limit {0} instead of {1}: it comes from another link")]
    Hops(u8, u8),
    #[error("sent to {0}, which is not how this virtual router talks")]
    Destination(IpAddr),
    #[error("sent by nobody we know")]
    UnknownPeer,
    #[error("sent from our own address: somebody else has it, or the link returns our packets")]
    OwnAddress,
    #[error("version {0:?} of VRRP, ours is another")]
    Version(Version),
    #[error("virtual router {0}, which is not ours")]
    OtherRouter(u8),
    #[error("the password is missing, wrong, or not expected")]
    Password,
    #[error("an interval of {0:?}, where version 2 wants everybody to have the same")]
    Interval(Duration),
    #[error("our virtual router id with none of our addresses: {0:?}")]
    OtherAddresses(Vec<IpAddr>),
}

impl Refused {
    /// Whether only a stranger or a forger sends such an advert, and never an honest router with
    /// other settings.
    pub fn is_strangers(&self) -> bool {
        matches!(
            self,
            Self::Unproven(_) | Self::Hops(..) | Self::UnknownPeer | Self::OwnAddress
        )
    }

    /// One word, to count by.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Malformed(Malformed::Length { .. }) => "length",
            Self::Malformed(Malformed::Version(_) | Malformed::Family) | Self::Version(_) => {
                "version"
            }
            Self::Malformed(Malformed::Type(_)) => "type",
            Self::Malformed(Malformed::Checksum(_)) => "checksum",
            Self::Malformed(Malformed::Authentication(_)) | Self::Password => "authentication",
            Self::Malformed(Malformed::Interval) | Self::Interval(_) => "interval",
            Self::Malformed(Malformed::NoAddress) | Self::OtherAddresses(_) => "addresses",
            Self::Unproven(Unproven::Unsigned) => "unsigned",
            Self::Unproven(Unproven::Kind) => "signature-kind",
            Self::Unproven(Unproven::UnknownKey(_)) => "unknown-key",
            Self::Unproven(Unproven::Wrong) => "wrong-signature",
            Self::Unproven(Unproven::Stale(_)) => "stale",
            Self::Unproven(Unproven::Replayed) => "replayed",
            Self::Hops(..) => "hops",
            Self::Destination(_) => "destination",
            Self::UnknownPeer => "peer",
            Self::OwnAddress => "own-address",
            Self::OtherRouter(_) => "router-id",
        }
    }
}

/// Whether a packet comes from where an advert may come from, whatever is in it. What this refuses
/// need not be looked into, nor its signature be computed.
pub fn screen(config: &Config, from: IpAddr, to: IpAddr, hops: u8) -> Result<(), Refused> {
    let unicast = !config.peers.is_empty();
    if unicast && !config.peers.contains(&from) {
        return Err(Refused::UnknownPeer);
    }
    if from == config.own {
        return Err(Refused::OwnAddress);
    }
    if unicast == to.is_multicast() || (!unicast && to != packet::group(config.own)) {
        return Err(Refused::Destination(to));
    }
    let least = if unicast { config.least_hops } else { HOPS };
    if hops < least {
        return Err(Refused::Hops(hops, least));
    }
    Ok(())
}

/// The advert in a packet, if it is for us. A router that shares only some of the addresses takes
/// part: two owners of those would be worse. One that shares none has the same id by accident, and
/// the two do not disturb each other.
pub(super) fn accept(
    config: &Config,
    from: IpAddr,
    to: IpAddr,
    hops: u8,
    payload: &[u8],
) -> Result<Advert, Refused> {
    screen(config, from, to, hops)?;
    let advert = Advert::decode(payload, from, to)?;
    if advert.vrid != config.vrid {
        return Err(Refused::OtherRouter(advert.vrid));
    }
    if advert.version != config.version {
        return Err(Refused::Version(advert.version));
    }
    let password = config.password.filter(|_| config.version == Version::V2);
    if advert.password != password {
        return Err(Refused::Password);
    }
    if advert.version == Version::V2 && advert.interval != config.sent_interval() {
        return Err(Refused::Interval(advert.interval));
    }
    if !advert
        .addresses
        .iter()
        .any(|address| config.addresses.contains(address))
    {
        return Err(Refused::OtherAddresses(advert.addresses));
    }
    Ok(advert)
}
