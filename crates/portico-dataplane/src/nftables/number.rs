//! The number that goes with a packet from rule to rule:
//! `treatment (2 bits) | class (11 bits) | pool (19 bits)`.
//!
//! A member's own number, for session affinity, has the same shape:
//! `3 | index of the member | pool`.

const POOL_BITS: u32 = 19;
const TREATMENT_BIT: u32 = 30;

pub(super) const POOL_MASK: u32 = (1 << POOL_BITS) - 1;
pub(super) const CLASS_MASK: u32 = 0x7ff << POOL_BITS;
pub(super) const TREATMENT_MASK: u32 = 3 << TREATMENT_BIT;
/// In the number of a port at the edge: clients are told apart by their address alone.
pub(super) const BY_ADDRESS: u32 = 1 << TREATMENT_BIT;
/// The whole number of a packet from outside whose slot this node has. No pool has the number 0.
pub(super) const OWN_SLOT: u32 = TREATMENT_MASK;
/// Both pools of a port.
pub(super) const PAIR_MASK: u32 = POOL_MASK & !1;

/// Classes that can be told apart.
pub(super) const CLASSES: usize = 1 << (TREATMENT_BIT - POOL_BITS);
/// Members that a pair of pools with session affinity can have.
pub(super) const MEMBERS: usize = CLASSES;
/// Ports (in one family) that can be told apart.
pub(super) const PAIRS: usize = 1 << (POOL_BITS - 1);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Number(pub u32);

/// Which sources are masqueraded, and which pool each source gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum Treatment {
    /// All but pods of this node are masqueraded.
    Internal = 0,
    /// All are masqueraded.
    External = 1,
    /// The node's own are masqueraded; only they and pods are given this pool, others the one that
    /// `local-pools` names.
    ExternalLocal = 2,
    /// None are masqueraded.
    Plain = 3,
}

impl Treatment {
    pub const ALL: [Self; 4] = [
        Self::Internal,
        Self::External,
        Self::ExternalLocal,
        Self::Plain,
    ];

    pub fn chain(self) -> &'static str {
        match self {
            Self::Internal => "internal",
            Self::External => "external",
            Self::ExternalLocal => "external-local",
            Self::Plain => "plain",
        }
    }

    pub fn bits(self) -> u32 {
        (self as u32) << TREATMENT_BIT
    }
}

impl Number {
    pub fn new(treatment: Treatment, class: u32, pool: u32) -> Self {
        Self(treatment.bits() | Self::class(class).0 | pool & POOL_MASK)
    }

    /// The key of a class.
    pub fn class(class: u32) -> Self {
        Self(class << POOL_BITS & CLASS_MASK)
    }

    pub fn member(index: u32, pool: u32) -> Self {
        Self::new(Treatment::Plain, index, pool)
    }

    pub fn pool(self) -> u32 {
        self.0 & POOL_MASK
    }

    /// The index of a class, or of a member.
    pub fn index(self) -> u32 {
        (self.0 & CLASS_MASK) >> POOL_BITS
    }

    pub fn treatment(self) -> Treatment {
        match self.0 >> TREATMENT_BIT {
            0 => Treatment::Internal,
            1 => Treatment::External,
            2 => Treatment::ExternalLocal,
            _ => Treatment::Plain,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_come_back() {
        for treatment in Treatment::ALL {
            let number = Number::new(treatment, 2047, 524_287);
            assert_eq!(
                (number.treatment(), number.index(), number.pool()),
                (treatment, 2047, 524_287)
            );
        }
        assert_eq!(
            Number::new(Treatment::External, 10, 6).0,
            0x4000_0000 | 10 << 19 | 6
        );
        assert_eq!(TREATMENT_MASK ^ CLASS_MASK ^ POOL_MASK, u32::MAX);
        assert_eq!(PAIRS * 2 - 1, POOL_MASK as usize);
    }
}
