//! As much of SCTP as an INIT and its answer, so that it can be spoken over raw sockets on kernels
//! without SCTP.

pub(crate) const NUMBER: i32 = 132;
pub(crate) const INIT: u8 = 1;
pub(crate) const INIT_ACK: u8 = 2;
pub(crate) const ABORT: u8 = 6;
const STATE_COOKIE: u16 = 7;

/// A packet with one chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    pub source: u16,
    pub destination: u16,
    /// The initiate tag of the one it is sent to.
    pub verification: u32,
    pub chunk: u8,
    /// The initiate tag of an INIT or INIT ACK.
    pub tag: u32,
    /// The state cookie of an INIT ACK.
    pub cookie: Vec<u8>,
}

impl Packet {
    pub(crate) fn emit(&self) -> Vec<u8> {
        let mut body = Vec::new();
        if self.chunk != ABORT {
            body.extend(self.tag.to_be_bytes());
            body.extend(65535_u32.to_be_bytes()); // receiver window
            body.extend([0, 1, 0, 1, 0, 0, 0, 1]); // streams out and in, first sequence number
        }
        if !self.cookie.is_empty() {
            body.extend(STATE_COOKIE.to_be_bytes());
            body.extend((4 + self.cookie.len() as u16).to_be_bytes());
            body.extend(&self.cookie);
            body.resize(body.len().next_multiple_of(4), 0);
        }
        let mut packet = Vec::new();
        packet.extend(self.source.to_be_bytes());
        packet.extend(self.destination.to_be_bytes());
        packet.extend(self.verification.to_be_bytes());
        packet.extend([0; 4]);
        packet.extend([self.chunk, 0]);
        packet.extend((4 + body.len() as u16).to_be_bytes());
        packet.extend(body);
        let checksum = crc32c(&packet);
        packet[8..12].copy_from_slice(&checksum.to_le_bytes());
        packet
    }

    /// The first chunk of a packet; none where it is too short.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let short = |at: usize| Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?));
        let long = |at: usize| Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?));
        let chunk = *bytes.get(12)?;
        let mut packet = Self {
            source: short(0)?,
            destination: short(2)?,
            verification: long(4)?,
            chunk,
            tag: 0,
            cookie: Vec::new(),
        };
        if chunk == INIT || chunk == INIT_ACK {
            packet.tag = long(16)?;
            let mut at = 32;
            while let (Some(kind), Some(length @ 4..)) = (short(at), short(at + 2)) {
                let end = at + usize::from(length);
                if kind == STATE_COOKIE {
                    packet.cookie = bytes.get(at + 4..end)?.to_vec();
                }
                at = end.next_multiple_of(4);
            }
        }
        Some(packet)
    }
}

/// What a raw IPv4 socket hands over begins with the IP header; an IPv6 one leaves it out.
pub(crate) fn payload(bytes: &[u8], v4: bool) -> &[u8] {
    let header = if v4 {
        bytes.first().map_or(0, |first| usize::from(first & 15) * 4)
    } else {
        0
    };
    bytes.get(header..).unwrap_or_default()
}

fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            if crc & 1 == 1 {
                crc >> 1 ^ 0x82f6_3b78
            } else {
                crc >> 1
            }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_is_castagnoli() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn packets_come_back_as_they_were() {
        let init = Packet {
            source: 1,
            destination: 2,
            verification: 0,
            chunk: INIT,
            tag: 9,
            cookie: vec![],
        };
        let answer = Packet {
            chunk: INIT_ACK,
            verification: 9,
            cookie: b"hello".to_vec(),
            ..init.clone()
        };
        let abort = Packet {
            chunk: ABORT,
            tag: 0,
            ..init.clone()
        };
        for packet in [init, answer, abort] {
            let bytes = packet.emit();
            assert_eq!(Packet::parse(&bytes).as_ref(), Some(&packet));
            for end in 0..12 {
                assert_eq!(Packet::parse(&bytes[..end]), None);
            }
        }
    }
}
