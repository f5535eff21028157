//! An explanation as lines for people.

use super::{Candidate, Explanation, Origin, Packet, Verdict};
use std::fmt;
use std::net::SocketAddr;

impl fmt::Display for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let destination = SocketAddr::new(self.destination, self.port);
        write!(
            f,
            "{} {} -> {destination}",
            self.protocol.lower(),
            self.source
        )?;
        match &self.origin {
            Origin::Node => write!(f, ", from the node itself"),
            Origin::Interface(name) if name.is_empty() => Ok(()),
            Origin::Interface(name) => write!(f, ", through {name}"),
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.packet)?;
        self.steps
            .iter()
            .try_for_each(|step| writeln!(f, "  {step}"))?;
        write!(f, "{}", self.verdict)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node { name, address } => {
                writeln!(
                    f,
                    "sent to {name} ({address}) as it is, for an endpoint there"
                )
            }
            Self::Reject => writeln!(f, "rejected: the sender is told (ICMP port unreachable)"),
            Self::Drop => writeln!(f, "dropped"),
            Self::NotOurs { why } => writeln!(f, "not ours: {why}"),
            Self::Forward { candidates, .. } => {
                writeln!(
                    f,
                    "forwarded to {}",
                    if candidates.len() == 1 {
                        "the endpoint"
                    } else {
                        "one of"
                    }
                )?;
                candidates
                    .iter()
                    .try_for_each(|candidate| writeln!(f, "  {candidate}"))
            }
        }
    }
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let endpoint = SocketAddr::new(self.endpoint.address, self.endpoint.port);
        let place = if self.endpoint.local {
            " on this node"
        } else {
            ""
        };
        write!(
            f,
            "{endpoint}{place}, {}",
            if self.masquerade {
                "from the node's address"
            } else {
                "from the sender's address"
            }
        )
    }
}
