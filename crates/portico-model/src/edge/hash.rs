//! The slot of a connection, as the kernel computes it: Jenkins' hash (`lookup3`) over the client's
//! address and port, scaled to the number of slots (`jhash` of nftables).

use super::SLOTS;
use std::net::IpAddr;

/// The same on all nodes, in all versions: another one would move every connection.
pub const SEED: u32 = 0x706f_7274;

/// The port is left out where all connections of a client have the same slot.
pub fn slot(client: IpAddr, port: Option<u16>) -> u16 {
    // Each part of the key takes whole registers of four bytes.
    let mut words = match client {
        IpAddr::V4(address) => vec![address.to_bits().to_be()],
        IpAddr::V6(address) => {
            let bits = address.to_bits();
            [96, 64, 32, 0]
                .map(|from| ((bits >> from) as u32).to_be())
                .to_vec()
        }
    };
    words.extend(port.map(|port| {
        let [high, low] = port.to_be_bytes();
        u32::from_ne_bytes([high, low, 0, 0])
    }));
    let scaled = u64::from(jenkins(&words)) * u64::from(SLOTS);
    (scaled >> 32) as u16
}

fn jenkins(words: &[u32]) -> u32 {
    const START: u32 = 0xdead_beef;
    let length = words.len() as u32 * 4;
    let start = START.wrapping_add(length).wrapping_add(SEED);
    let mut state = [start; 3];
    let mut rest = words;
    while let [a, b, c, more @ ..] = rest {
        if more.is_empty() {
            break;
        }
        state = add(state, [*a, *b, *c]);
        state = mix(state);
        rest = more;
    }
    let word = |at: usize| rest.get(at).copied().unwrap_or_default();
    finish(add(state, [word(0), word(1), word(2)]))
}

fn add([a, b, c]: [u32; 3], [x, y, z]: [u32; 3]) -> [u32; 3] {
    [a.wrapping_add(x), b.wrapping_add(y), c.wrapping_add(z)]
}

fn mix([mut a, mut b, mut c]: [u32; 3]) -> [u32; 3] {
    a = a.wrapping_sub(c) ^ c.rotate_left(4);
    c = c.wrapping_add(b);
    b = b.wrapping_sub(a) ^ a.rotate_left(6);
    a = a.wrapping_add(c);
    c = c.wrapping_sub(b) ^ b.rotate_left(8);
    b = b.wrapping_add(a);
    a = a.wrapping_sub(c) ^ c.rotate_left(16);
    c = c.wrapping_add(b);
    b = b.wrapping_sub(a) ^ a.rotate_left(19);
    a = a.wrapping_add(c);
    c = c.wrapping_sub(b) ^ b.rotate_left(4);
    b = b.wrapping_add(a);
    [a, b, c]
}

fn finish([mut a, mut b, mut c]: [u32; 3]) -> u32 {
    c = (c ^ b).wrapping_sub(b.rotate_left(14));
    a = (a ^ c).wrapping_sub(c.rotate_left(11));
    b = (b ^ a).wrapping_sub(a.rotate_left(25));
    c = (c ^ b).wrapping_sub(b.rotate_left(16));
    a = (a ^ c).wrapping_sub(c.rotate_left(4));
    b = (b ^ a).wrapping_sub(a.rotate_left(14));
    (c ^ b).wrapping_sub(b.rotate_left(24))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_spread_over_all_slots() {
        let mut hits = vec![0u32; usize::from(SLOTS)];
        for port in 0..u16::MAX {
            hits[usize::from(slot([192, 0, 2, 7].into(), Some(port)))] += 1;
        }
        let mean = u32::from(u16::MAX) / u32::from(SLOTS);
        assert!(hits.iter().all(|hits| (mean / 2..mean * 2).contains(hits)));
    }

    #[test]
    fn the_port_counts_only_where_it_is_given() {
        let client: IpAddr = "2001:db8::7".parse().unwrap();
        assert_eq!(slot(client, None), slot(client, None));
        let with_port = (1..100).map(|port| slot(client, Some(port)));
        assert!(with_port.collect::<std::collections::BTreeSet<_>>().len() > 50);
    }
}
