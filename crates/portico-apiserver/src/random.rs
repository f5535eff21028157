//! Random values: uids and picks.

use ring::rand::{SecureRandom, SystemRandom};

fn bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    // The system's source fails only before it is seeded at boot; the clock then still keeps values
    // apart.
    if SystemRandom::new().fill(&mut bytes).is_err() {
        let nanos = jiff::Timestamp::now().as_nanosecond().to_le_bytes();
        bytes
            .iter_mut()
            .zip(nanos.iter().cycle())
            .for_each(|(byte, nano)| *byte = *nano);
    }
    bytes
}

pub(crate) fn number() -> u64 {
    u64::from_le_bytes(bytes())
}

/// A version 4 UUID.
pub(crate) fn uuid() -> String {
    let mut b: [u8; 16] = bytes();
    b[6] = b[6] & 0x0f | 0x40;
    b[8] = b[8] & 0x3f | 0x80;
    let (high, low) = b.split_at(8);
    let number = |bytes: &[u8]| bytes.iter().fold(0, |n, byte| n << 8 | u64::from(*byte));
    let (high, low) = (number(high), number(low));
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        high >> 32,
        high >> 16 & 0xffff,
        high & 0xffff,
        low >> 48,
        low & 0xffff_ffff_ffff
    )
}
