//! What the signatures of adverts are computed with.

use portico_vrrp::HmacSha256;
use ring::hmac;

#[derive(Clone, Copy, Debug)]
pub struct Ring;

impl HmacSha256 for Ring {
    fn hmac(&self, key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
        let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, key));
        parts.iter().for_each(|part| context.update(part));
        let mut digest = [0; 32];
        digest
            .iter_mut()
            .zip(context.sign().as_ref())
            .for_each(|(place, byte)| *place = *byte);
        digest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use portico_vrrp::{Advert, Auth, Keys, Mode, Signer};
    use std::net::IpAddr;
    use std::time::Duration;

    /// Adverts that keepalived 2.4.3 signed, with their senders, and the moment of its clock (a
    /// fraction of 2^16).
    const KEEPALIVEDS: [(&str, &str, (u64, u64)); 2] = [
        (
            "192.0.2.7",
            "313b96010019d3d8c000023a010700006aff689438780000d8ad3431c34d8243dd46cb72d70685eb",
            (0x6aff_6894, 0x3878),
        ),
        (
            "fe80::7",
            "313b96010019ffff20010db8000000000000000000000058010700006aff6894484c0000\
             0a483cdec6260195f941d498feb3fdd7",
            (0x6aff_6894, 0x484c),
        ),
    ];
    const TRAILER: usize = 28;

    fn bytes(hex: &str) -> Vec<u8> {
        let pairs = hex.as_bytes().chunks(2);
        pairs
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect()
    }

    fn signer() -> Signer<Ring> {
        let auth = Auth {
            keys: Keys::parse("7 0123456789abcdef0123456789abcdef").unwrap(),
            mode: Mode::Enforce,
            window: Duration::from_secs(5),
        };
        Signer::new(auth, Ring)
    }

    #[test]
    fn what_keepalived_signs_is_proven_and_what_we_sign_is_the_same() {
        for (from, packet, (seconds, fraction)) in KEEPALIVEDS {
            let (from, packet): (IpAddr, _) = (from.parse().unwrap(), bytes(packet));
            let to = portico_vrrp::packet::group(from);
            let nanos = (fraction * 1_000_000_000).div_ceil(1 << 16);
            let clock = Duration::new(seconds, u32::try_from(nanos).unwrap());
            let proven = signer().verify(&packet, from, to, clock).unwrap();
            let advert = Advert::decode(&proven, from, to).unwrap();
            assert_eq!((advert.vrid, advert.priority), (59, 150));

            let body = packet[..packet.len() - TRAILER].to_vec();
            let signed = signer().sign(body, from, to, clock);
            assert_eq!(signed[..6], packet[..6]);
            assert_eq!(signed[8..], packet[8..], "all but the checksum");
        }
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// RFC 4231, test case 2, in two parts.
    #[test]
    fn it_is_hmac_with_sha_256() {
        let digest = Ring.hmac(b"Jefe", &[b"what do ya want ", b"for nothing?"]);
        assert_eq!(
            hex(&digest),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
    }
}
