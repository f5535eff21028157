//! How the store's revisions follow from etcd's. They are the same until a backup is restored: then
//! the store's are ahead, so that they go on where they were and no client takes an old one for a
//! new one. By how much is in the head's value.

use super::txn::HEAD;
use crate::{OpenError, Revision};

/// The newest format. The one before had no offset, and is what is written where there is none.
const FORMAT: u64 = 2;
const FORMAT_WITHOUT_OFFSET: u64 = 1;
/// The head's value while a backup is being restored, followed by the floor of revisions.
const RESTORING: &str = "restoring";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Clock {
    offset: u64,
}

impl Clock {
    /// The clock that shows at least `floor` when etcd is at `revision`.
    pub(super) fn at_least(floor: Revision, revision: i64) -> Self {
        Self {
            offset: floor.saturating_sub(unsigned(revision)),
        }
    }

    /// Reads the value of a prefix's head.
    pub(super) fn read(prefix: &str, head: &[u8]) -> Result<Self, OpenError> {
        let text = String::from_utf8_lossy(head);
        let mut words = text.split(' ');
        let format = words.next().unwrap_or_default();
        let number = words.next().and_then(|number| number.parse().ok());
        let unknown = |reason: String| OpenError::Option {
            option: "prefix",
            reason,
        };
        if format == RESTORING {
            return Err(unknown(format!(
                "a backup was being restored to {prefix} and that did not end: run portico restore \
                 again"
            )));
        }
        match (format.parse(), number) {
            (Ok(FORMAT_WITHOUT_OFFSET), None) => Ok(Self::default()),
            (Ok(FORMAT), Some(offset)) => Ok(Self { offset }),
            (Ok(found), _) if found > FORMAT => Err(OpenError::Newer {
                place: format!("the etcd prefix {prefix}"),
                found,
                known: FORMAT,
            }),
            _ => Err(unknown(format!(
                "{prefix}{HEAD} is not Portico's: choose another prefix"
            ))),
        }
    }

    /// What the head says.
    pub(super) fn head(self) -> String {
        match self.offset {
            0 => FORMAT_WITHOUT_OFFSET.to_string(),
            offset => format!("{FORMAT} {offset}"),
        }
    }

    /// etcd counts in signed numbers that are never negative; 0 stands for no revision.
    pub(super) fn revision(self, number: i64) -> Revision {
        match unsigned(number) {
            0 => 0,
            number => number.saturating_add(self.offset),
        }
    }

    pub(super) fn wire(self, revision: Revision) -> i64 {
        i64::try_from(revision.saturating_sub(self.offset)).unwrap_or(i64::MAX)
    }
}

/// What the head says while a backup is restored, and what a restore that died left there.
pub(super) fn restoring(floor: Revision) -> String {
    format!("{RESTORING} {floor}")
}

pub(super) fn floor_of_restoring(head: &[u8]) -> Option<Revision> {
    let text = std::str::from_utf8(head).ok()?;
    text.strip_prefix(RESTORING)?.trim().parse().ok()
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_what_its_head_says() {
        for clock in [Clock::default(), Clock::at_least(5_000, 17)] {
            assert_eq!(Clock::read("/p/", clock.head().as_bytes()).unwrap(), clock);
            assert_eq!(clock.wire(clock.revision(17)), 17);
            assert_eq!((clock.revision(0), clock.wire(0)), (0, 0));
        }
        assert_eq!(Clock::at_least(5_000, 17).revision(17), 5_000);
        for wrong in ["", "0", "2", "1 5", "x", "restoring 7"] {
            let read = Clock::read("/p/", wrong.as_bytes());
            assert!(matches!(read, Err(OpenError::Option { .. })), "{wrong:?}");
        }
        let newer = Clock::read("/p/", b"3 1 2");
        assert!(matches!(newer, Err(OpenError::Newer { found: 3, .. })));
        assert_eq!(floor_of_restoring(restoring(7).as_bytes()), Some(7));
    }
}
