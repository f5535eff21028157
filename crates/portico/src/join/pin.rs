//! The CA of an API server of which only the hash is known: a server is accepted if its certificate
//! is signed by a CA with that hash. Nothing secret is sent before that is certain.

use anyhow::{Context, bail};
use portico_client::tls::any_certificate;
use rustls::ClientConnection;
use rustls::pki_types::ServerName;
use std::fmt;
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(10);
const PREFIX: &str = "sha256:";

/// SHA-256 of a certificate.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Hash([u8; 32]);

impl Hash {
    pub(super) fn of(certificate: &[u8]) -> Self {
        let digest = ring::digest::digest(&ring::digest::SHA256, certificate);
        let mut bytes = [0; 32];
        bytes
            .iter_mut()
            .zip(digest.as_ref())
            .for_each(|(byte, found)| *byte = *found);
        Self(bytes)
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PREFIX)?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl FromStr for Hash {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!("write {PREFIX} and 64 hexadecimal digits, as portico token create prints it")
        };
        let digits = text
            .strip_prefix(PREFIX)
            .filter(|digits| digits.len() == 64 && digits.is_ascii())
            .ok_or_else(wrong)?;
        let mut bytes = [0; 32];
        for (byte, two) in bytes.iter_mut().zip(digits.as_bytes().chunks(2)) {
            let two = std::str::from_utf8(two).map_err(|_| wrong())?;
            *byte = u8::from_str_radix(two, 16).map_err(|_| wrong())?;
        }
        Ok(Self(bytes))
    }
}

/// What was found out about the server.
#[derive(Debug)]
pub(super) struct Pinned {
    /// The CA, DER.
    pub authority: Vec<u8>,
    /// This machine's address, as it is used towards the server.
    pub own: IpAddr,
}

/// The CA with this hash. Its certificate is among those that the server presents.
pub(super) fn find(url: &http::Uri, wanted: Hash) -> anyhow::Result<Pinned> {
    let host = url
        .host()
        .context("the URL names no host: write https://ADDRESS:6443")?
        .trim_matches(['[', ']'])
        .to_owned();
    if url.scheme_str() != Some("https") {
        bail!("the URL must begin with https://");
    }
    let (chain, own) = presented(&host, url.port_u16().unwrap_or(443))?;
    match chain
        .into_iter()
        .find(|certificate| Hash::of(certificate) == wanted)
    {
        Some(authority) => Ok(Pinned { authority, own }),
        None => bail!(
            "the API server at {host} is not the one that --ca-hash names: none of its certificates has that hash; \
             nothing was sent to it. Compare with what portico token create prints there"
        ),
    }
}

/// The certificates that a server presents, whatever they are, and the address that it was asked
/// from.
fn presented(host: &str, port: u16) -> anyhow::Result<(Vec<Vec<u8>>, IpAddr)> {
    let mut stream = connect(host, port)
        .with_context(|| format!("cannot reach the API server at {host}:{port}"))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let own = stream.local_addr()?.ip();
    let name = ServerName::try_from(host.to_owned())
        .with_context(|| format!("{host} is no name of a server"))?;
    let mut connection = ClientConnection::new(Arc::new(any_certificate()?), name)?;
    while connection.is_handshaking() {
        connection
            .complete_io(&mut stream)
            .with_context(|| format!("{host}:{port} does not speak TLS"))?;
    }
    // Only the handshake has been sent by now; the certificate is judged before any request is
    // sent.
    let seen = connection.peer_certificates().unwrap_or_default();
    let seen = seen
        .iter()
        .map(|certificate| certificate.to_vec())
        .collect();
    Ok((seen, own))
}

fn connect(host: &str, port: u16) -> std::io::Result<TcpStream> {
    let mut last = std::io::Error::other("it has no address");
    let addresses: Vec<SocketAddr> = (host, port).to_socket_addrs()?.collect();
    for address in addresses {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_read_as_they_are_written() {
        let hash = Hash::of(b"a certificate");
        assert_eq!(hash.to_string().parse(), Ok(hash));
        assert_eq!(hash.to_string().len(), 7 + 64);
        for wrong in [
            "",
            "sha256:",
            "sha256:12",
            &hash.to_string()[7..],
            &format!("{hash}0"),
            &format!("sha256:{}", "x".repeat(64)),
        ] {
            assert!(wrong.parse::<Hash>().is_err(), "{wrong}");
        }
    }
}
