//! Issuing certificates, and telling whether one that exists will still do.

use super::error::{Error, Result};
use super::subject;
use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, SerialNumber,
};
#[cfg(test)]
use std::fmt;
use std::net::IpAddr;
use time::OffsetDateTime;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

const DAY: i64 = 24 * 60 * 60;
const AUTHORITY_DAYS: i64 = 3650;
const LEAF_DAYS: i64 = 365;
/// A certificate with less than this left is replaced.
const RENEW_DAYS: i64 = 30;
/// Certificates start a little in the past, for clients whose clock is behind.
const BACKDATE: i64 = 60 * 60;

/// What a certificate is for.
#[derive(Clone, Debug)]
pub(super) enum Purpose {
    /// DNS names and addresses.
    Server(Vec<String>),
    Client {
        name: String,
        groups: Vec<String>,
    },
}

/// A new certificate with its key, PEM.
#[cfg(test)]
#[derive(Clone)]
pub(crate) struct Issued {
    pub certificate: String,
    pub key: String,
}

#[cfg(test)]
impl fmt::Debug for Issued {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Issued")
            .field("certificate", &self.certificate)
            .finish_non_exhaustive()
    }
}

/// The private CA.
#[derive(Debug)]
pub(crate) struct Issuer {
    issuer: rcgen::Issuer<'static, KeyPair>,
    pub certificate: String,
}

impl Issuer {
    pub(super) fn new(
        certificate: String,
        key: KeyPair,
    ) -> std::result::Result<Self, rcgen::Error> {
        Ok(Self {
            issuer: rcgen::Issuer::from_ca_cert_pem(&certificate, key)?,
            certificate,
        })
    }

    /// A client certificate: `name` becomes the user, `groups` its groups. A node is
    /// `system:node:NAME` in `system:nodes`.
    #[cfg(test)]
    pub(crate) fn client(&self, name: &str, groups: &[&str], now: Timestamp) -> Result<Issued> {
        let fail = |source| Error::Issue {
            subject: name.to_owned(),
            source,
        };
        let key = KeyPair::generate().map_err(fail)?;
        let groups = groups.iter().map(|group| (*group).to_owned()).collect();
        let certificate = self.sign(
            &Purpose::Client {
                name: name.to_owned(),
                groups,
            },
            &key,
            now,
        )?;
        Ok(Issued {
            certificate,
            key: key.serialize_pem(),
        })
    }

    pub(super) fn sign(&self, purpose: &Purpose, key: &KeyPair, now: Timestamp) -> Result<String> {
        let fail = |source| Error::Issue {
            subject: purpose.common_name().to_owned(),
            source,
        };
        let certificate = purpose
            .params(now)
            .map_err(fail)?
            .signed_by(key, &self.issuer)
            .map_err(fail)?;
        match purpose {
            Purpose::Server(_) => Ok(certificate.pem()),
            Purpose::Client { name, groups } => {
                subject::with_subject(certificate.der(), name, groups, self.issuer.key())
                    .map_err(fail)
            }
        }
    }
}

/// A self-signed CA certificate for `key`.
pub(super) fn authority(key: &KeyPair, now: Timestamp) -> Result<String> {
    let fail = |source| Error::Issue {
        subject: "portico-ca".to_owned(),
        source,
    };
    let mut params = base_params("portico-ca", AUTHORITY_DAYS, now).map_err(fail)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::CrlSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    Ok(params.self_signed(key).map_err(fail)?.pem())
}

impl Purpose {
    fn common_name(&self) -> &str {
        match self {
            Self::Server(_) => "kube-apiserver",
            Self::Client { name, .. } => name,
        }
    }

    fn params(&self, now: Timestamp) -> std::result::Result<CertificateParams, rcgen::Error> {
        let mut params = base_params(self.common_name(), LEAF_DAYS, now)?;
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::KeyEncipherment,
        ];
        match self {
            Self::Server(names) => {
                params.subject_alt_names = CertificateParams::new(names.clone())?.subject_alt_names;
                params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
            }
            Self::Client { .. } => {
                params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
            }
        }
        Ok(params)
    }
}

fn base_params(
    name: &str,
    days: i64,
    now: Timestamp,
) -> std::result::Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = at(now.as_second() - BACKDATE);
    params.not_after = at(now.as_second() + days * DAY);
    params.serial_number = Some(serial()?);
    Ok(params)
}

/// 127 random bits: positive, as serial numbers must be.
fn serial() -> std::result::Result<SerialNumber, rcgen::Error> {
    let mut bytes = [0u8; 16];
    ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut bytes)
        .map_err(|_| rcgen::Error::RingUnspecified)?;
    bytes[0] = (bytes[0] & 0x7f) | 1;
    Ok(SerialNumber::from_slice(&bytes))
}

fn at(second: i64) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(second).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

/// Will this certificate still do: issued by `authority` for `key` and `purpose`, with time left?
pub(super) fn still_good(
    pem: &str,
    authority: &str,
    key: &KeyPair,
    purpose: &Purpose,
    now: Timestamp,
) -> bool {
    let (Some(der), Some(authority)) = (first_der(pem), first_der(authority)) else {
        return false;
    };
    let (Ok((_, found)), Ok((_, authority))) = (
        X509Certificate::from_der(&der),
        X509Certificate::from_der(&authority),
    ) else {
        return false;
    };
    found.validity().not_before.timestamp() <= now.as_second()
        && found.validity().not_after.timestamp() - now.as_second() > RENEW_DAYS * DAY
        && found.verify_signature(Some(authority.public_key())).is_ok()
        && has_key(&found, key)
        && match purpose {
            Purpose::Server(names) => names
                .iter()
                .all(|name| alternative_names(&found).contains(name)),
            Purpose::Client { .. } => true,
        }
}

/// Does the first certificate of a PEM text carry the public half of `key`?
pub(super) fn is_for_key(pem: &str, key: &KeyPair) -> bool {
    let Some(der) = first_der(pem) else {
        return false;
    };
    X509Certificate::from_der(&der).is_ok_and(|(_, found)| has_key(&found, key))
}

fn has_key(certificate: &X509Certificate<'_>, key: &KeyPair) -> bool {
    certificate.public_key().subject_public_key.data == rcgen::PublicKeyData::der_bytes(key)
}

/// When the first certificate of a PEM text begins and ends, in seconds since 1970.
pub(super) fn validity(pem: &str) -> Option<(i64, i64)> {
    let der = first_der(pem)?;
    let (_, found) = X509Certificate::from_der(&der).ok()?;
    let validity = found.validity();
    Some((
        validity.not_before.timestamp(),
        validity.not_after.timestamp(),
    ))
}

/// The DNS names of the first certificate of a PEM text.
pub(super) fn dns_names(pem: &str) -> Vec<String> {
    let Some(der) = first_der(pem) else {
        return Vec::new();
    };
    match X509Certificate::from_der(&der) {
        Ok((_, found)) => alternative_names(&found)
            .into_iter()
            .filter(|name| name.parse::<IpAddr>().is_err())
            .collect(),
        Err(_) => Vec::new(),
    }
}

fn alternative_names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let Ok(Some(extension)) = certificate.subject_alternative_name() else {
        return Vec::new();
    };
    let text = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => <[u8; 4]>::try_from(*bytes)
            .map(IpAddr::from)
            .or_else(|_| <[u8; 16]>::try_from(*bytes).map(IpAddr::from))
            .ok()
            .map(|address| address.to_string()),
        _ => None,
    };
    extension
        .value
        .general_names
        .iter()
        .filter_map(text)
        .collect()
}

fn first_der(pem: &str) -> Option<Vec<u8>> {
    use rustls::pki_types::{CertificateDer, pem::PemObject};
    CertificateDer::pem_slice_iter(pem.as_bytes())
        .next()?
        .ok()
        .map(|der| der.to_vec())
}
