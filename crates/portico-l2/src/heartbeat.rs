//! What nodes tell each other, as bytes. The driver authenticates them by a tag that it puts behind
//! each; nothing here checks the sender.
//!
//! ```text
//! 0   "PL2" 1              magic and version
//! 4   flags                1: ready, 2: leaves, 4: echo is there, 8: view is there
//! 5   number of lacks, of hardware addresses, 1 byte each; 7: zero
//! 8   from, to, incarnation, stamp, echoed incarnation, echoed stamp, view since: 8 bytes each
//! 64  lacks: 8 bytes each, hardware addresses: 6 bytes each, view: 8 bytes each up to the end
//! ```

use crate::frame::{Mac, chunk};
use crate::rank::NodeId;

/// The most links that one heartbeat can say to lack.
pub const MOST_LACKS: usize = 64;
/// The most hardware addresses in one heartbeat.
pub const MOST_MACS: usize = 16;
/// The most nodes in one view.
pub const MOST_MEMBERS: usize = 1024;
/// The most bytes that [`Heartbeat::emit`] makes.
pub const LONGEST: usize = HEADER + 8 * MOST_LACKS + 6 * MOST_MACS + 8 * MOST_MEMBERS;

const MAGIC: [u8; 4] = *b"PL2\x01";
const HEADER: usize = 64;
const READY: u8 = 1;
const LEAVES: u8 = 2;
const ECHO: u8 = 4;
const VIEW: u8 = 8;

/// One word from one node to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// The sender.
    pub from: NodeId,
    /// The receiver.
    pub to: NodeId,
    /// The number of the sender's process, greater than that of any before on its node.
    pub incarnation: u64,
    /// When it was sent, on the sender's clock, in microseconds: no two of an incarnation have the
    /// same.
    pub stamp: u64,
    /// The latest that the sender has heard from us.
    pub echo: Option<Echo>,
    /// It knows what there is to share out, and can have its part.
    pub ready: bool,
    /// It gives up what it has, and goes.
    pub leaves: bool,
    /// Links that it does not have, as hashes of how they are asked for: it cannot have addresses
    /// that need them.
    pub lacks: Vec<u64>,
    /// The hardware addresses of the sender's links.
    pub macs: Vec<Mac>,
    /// The stamp of the first heartbeat that told the present view.
    pub view_since: u64,
    /// The nodes among which the sender shares out addresses, sorted. `None` when the sender knows
    /// that the receiver has it already.
    pub view: Option<Vec<NodeId>>,
}

/// A heartbeat, by its sender's incarnation and stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo {
    /// The process that sent it.
    pub incarnation: u64,
    /// When it was sent, on the sender's clock, in microseconds.
    pub stamp: u64,
}

/// Why bytes are not a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// It does not begin with the magic number and a known version.
    #[error("not a heartbeat of a version that is known")]
    Magic,
    /// It has this many bytes, and its counts say otherwise.
    #[error("{0} bytes, which is too short or too long for what it says to have")]
    Length(usize),
    /// The members of its view are not in order.
    #[error("a view that is not sorted")]
    Unsorted,
}

impl Heartbeat {
    /// What there is too much of is left out.
    pub fn emit(&self) -> Vec<u8> {
        let (lacks, macs) = (first(&self.lacks, MOST_LACKS), first(&self.macs, MOST_MACS));
        let view = self.view.as_deref().map(|view| first(view, MOST_MEMBERS));
        let flag = |is: bool, flag: u8| if is { flag } else { 0 };
        let flags = flag(self.ready, READY)
            | flag(self.leaves, LEAVES)
            | flag(self.echo.is_some(), ECHO)
            | flag(view.is_some(), VIEW);
        let mut bytes = Vec::with_capacity(
            LONGEST.min(HEADER + 8 * (lacks.len() + macs.len() + view.map_or(0, <[_]>::len))),
        );
        bytes.extend(MAGIC);
        bytes.extend([flags, lacks.len() as u8, macs.len() as u8, 0]); // both are limited
        let echo = self.echo.unwrap_or(Echo {
            incarnation: 0,
            stamp: 0,
        });
        let (from, to) = (self.from.0, self.to.0);
        for number in [
            from,
            to,
            self.incarnation,
            self.stamp,
            echo.incarnation,
            echo.stamp,
            self.view_since,
        ] {
            bytes.extend(number.to_be_bytes());
        }
        bytes.extend(lacks.iter().flat_map(|lack| lack.to_be_bytes()));
        bytes.extend(macs.iter().flatten());
        bytes.extend(
            view.unwrap_or_default()
                .iter()
                .flat_map(|node| node.0.to_be_bytes()),
        );
        bytes
    }

    /// Reads a heartbeat. Every length is checked.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let length = Malformed::Length(bytes.len());
        if !bytes.starts_with(&MAGIC) {
            return Err(Malformed::Magic);
        }
        let (header, rest) = bytes.split_at_checked(HEADER).ok_or(length)?;
        let &[_, _, _, _, flags, lacks, macs, _, ..] = header else {
            return Err(length);
        };
        let (lacks, macs) = (usize::from(lacks), usize::from(macs));
        let number = |at: usize| {
            chunk(header, 8 + 8 * at)
                .map(u64::from_be_bytes)
                .ok_or(length)
        };
        if lacks > MOST_LACKS || macs > MOST_MACS {
            return Err(length);
        }
        let (lacks, rest) = rest.split_at_checked(8 * lacks).ok_or(length)?;
        let (macs, view) = rest.split_at_checked(6 * macs).ok_or(length)?;
        let has_view = flags & VIEW != 0;
        if view.len() % 8 != 0 || view.len() > 8 * MOST_MEMBERS || (!has_view && !view.is_empty()) {
            return Err(length);
        }
        let numbers = |bytes: &[u8]| {
            bytes
                .as_chunks::<8>()
                .0
                .iter()
                .map(|bytes| u64::from_be_bytes(*bytes))
                .collect()
        };
        let view: Vec<u64> = numbers(view);
        if !view.is_sorted_by(|one, next| one < next) {
            return Err(Malformed::Unsorted);
        }
        let echo = Echo {
            incarnation: number(4)?,
            stamp: number(5)?,
        };
        Ok(Self {
            from: NodeId(number(0)?),
            to: NodeId(number(1)?),
            incarnation: number(2)?,
            stamp: number(3)?,
            echo: (flags & ECHO != 0).then_some(echo),
            ready: flags & READY != 0,
            leaves: flags & LEAVES != 0,
            lacks: numbers(lacks),
            macs: macs.as_chunks::<6>().0.to_vec(),
            view_since: number(6)?,
            view: has_view.then(|| view.into_iter().map(NodeId).collect()),
        })
    }
}

fn first<T>(of: &[T], most: usize) -> &[T] {
    of.get(..most).unwrap_or(of)
}

#[cfg(test)]
mod tests;
