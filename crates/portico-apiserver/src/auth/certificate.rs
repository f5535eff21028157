//! The user a client certificate stands for: common name, and one group per organisation.
//!
//! Whether the certificate was issued by the right CA is settled in the TLS handshake. Its dates
//! are looked at again for each request, since a connection may live longer than the certificate it
//! was opened with.

use super::user::{CREDENTIAL_ID, User};
use jiff::Timestamp;
use x509_parser::prelude::{AttributeTypeAndValue, FromDer, X509Certificate};

/// Subject attribute with the user's uid.
const UID_ATTRIBUTE: &str = "1.3.6.1.4.1.57683.2";

/// A client certificate, read once per connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientCertificate {
    user: User,
    not_before: i64,
    not_after: i64,
}

/// Why a client certificate does not name a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    #[error("the client certificate cannot be read")]
    Unreadable,
    #[error("the client certificate has no common name")]
    Nameless,
    #[error("the client certificate is not valid at this time")]
    NotValidNow,
}

impl ClientCertificate {
    /// Read the DER of the client's own certificate, the first of its chain.
    pub(crate) fn parse(der: &[u8]) -> Result<Self, Error> {
        let (_, certificate) = X509Certificate::from_der(der).map_err(|_| Error::Unreadable)?;
        let subject = certificate.subject();
        let user = User {
            // The last one counts where there are several, as in Go.
            name: texts(subject.iter_common_name())?.pop().unwrap_or_default(),
            uid: texts(
                subject
                    .iter_attributes()
                    .filter(|a| a.attr_type().to_id_string() == UID_ATTRIBUTE),
            )?
            .pop()
            .unwrap_or_default(),
            groups: texts(subject.iter_organization())?,
            extra: [(CREDENTIAL_ID.to_owned(), vec![fingerprint(der)])].into(),
        };
        if user.name.is_empty() {
            return Err(Error::Nameless);
        }
        let validity = certificate.validity();
        let (not_before, not_after) = (
            validity.not_before.timestamp(),
            validity.not_after.timestamp(),
        );
        Ok(Self {
            user,
            not_before,
            not_after,
        })
    }

    pub(crate) fn user(&self, now: Timestamp) -> Result<&User, Error> {
        let valid = (self.not_before..=self.not_after).contains(&now.as_second());
        if valid {
            Ok(&self.user)
        } else {
            Err(Error::NotValidNow)
        }
    }
}

fn texts<'a>(
    attributes: impl Iterator<Item = &'a AttributeTypeAndValue<'a>>,
) -> Result<Vec<String>, Error> {
    attributes
        .map(|attribute| {
            attribute
                .as_str()
                .map(str::to_owned)
                .map_err(|_| Error::Unreadable)
        })
        .collect()
}

fn fingerprint(der: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, der);
    digest
        .as_ref()
        .iter()
        .fold("X509SHA256=".to_owned(), |text, byte| {
            format!("{text}{byte:02x}")
        })
}
