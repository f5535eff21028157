//! From credentials to a user: client certificate, token file, join token, service-account token,
//! anonymous.

use super::certificate::{self, ClientCertificate};
use super::join;
use super::service_account::{self, Authenticated, Objects, Tokens};
use super::token_file::TokenFile;
use super::user::User;
use jiff::Timestamp;
use portico_api::status::ApiError;
use std::fmt;
use std::sync::Arc;

/// The credentials that a request carries.
#[derive(Clone, Copy, Default)]
pub(crate) struct Credentials<'a> {
    /// As read when the connection was opened. A certificate without a user name is a wrong
    /// credential, not none.
    pub certificate: Option<&'a Result<ClientCertificate, certificate::Error>>,
    /// The `Authorization` header; bytes, since it may be anything.
    pub authorization: Option<&'a [u8]>,
}

impl fmt::Debug for Credentials<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("certificate", &self.certificate)
            .field("authorization", &self.authorization.map(|_| "..."))
            .finish()
    }
}

/// Knows all the ways a user can be recognised.
pub(crate) struct Authenticator {
    pub token_file: Option<TokenFile>,
    pub tokens: Option<Tokens>,
    /// Audiences that mean this server, the same that `tokens` has; at least one.
    pub audiences: Vec<String>,
    pub objects: Arc<dyn Objects>,
    /// The token of the server's own clients, made anew at each start, and their user.
    pub own: Option<(String, User)>,
    /// Whether a request without credentials may come in, as `system:anonymous`.
    pub anonymous: bool,
}

impl fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authenticator")
            .field("token_file", &self.token_file)
            .field("tokens", &self.tokens)
            .field("anonymous", &self.anonymous)
            .finish_non_exhaustive()
    }
}

impl Authenticator {
    /// The user of a request. Wrong credentials are refused even where none would do.
    pub(crate) fn authenticate(
        &self,
        credentials: &Credentials<'_>,
        now: Timestamp,
    ) -> Result<User, ApiError> {
        self.recognise(credentials, now)
            .map(User::authenticated)
            .map_err(|why| {
                tracing::debug!(%why, "request not authenticated");
                ApiError::unauthorized()
            })
    }

    /// The user of a token for these audiences, or for this server if there are none; or why it
    /// does not count.
    pub(crate) fn token(
        &self,
        token: &str,
        audiences: &[String],
        now: Timestamp,
    ) -> Result<Authenticated, String> {
        if let Some((_, user)) = self.own.as_ref().filter(|(own, _)| same_secret(own, token)) {
            return Ok(Authenticated {
                user: user.clone().authenticated(),
                audiences: audiences.to_vec(),
            });
        }
        if let Some(user) = self.token_file.as_ref().and_then(|file| file.user(token)) {
            // Tokens of the file are for this server alone.
            let wanted = |own: &&String| audiences.is_empty() || audiences.contains(own);
            let common: Vec<String> = self.audiences.iter().filter(wanted).cloned().collect();
            if common.is_empty() {
                return Err("invalid bearer token".to_owned());
            }
            return Ok(Authenticated {
                user: user.clone().authenticated(),
                audiences: common,
            });
        }
        if let Some(user) =
            join::authenticate(token, self.objects.as_ref(), now).filter(|_| audiences.is_empty())
        {
            return Ok(Authenticated {
                user: user.authenticated(),
                audiences: self.audiences.clone(),
            });
        }
        let tokens = self
            .tokens
            .as_ref()
            .filter(|tokens| tokens.claims_to_be_ours(token));
        let tokens = tokens.ok_or_else(|| "invalid bearer token".to_owned())?;
        let found = tokens
            .authenticate(token, audiences, self.objects.as_ref(), now)
            .map_err(|error: service_account::Error| format!("[invalid bearer token, {error}]"))?;
        Ok(Authenticated {
            user: found.user.authenticated(),
            ..found
        })
    }

    fn recognise(&self, credentials: &Credentials<'_>, now: Timestamp) -> Result<User, String> {
        if let Some(certificate) = credentials.certificate {
            let user = certificate
                .as_ref()
                .map_err(|error| *error)
                .and_then(|certificate| certificate.user(now));
            return user.cloned().map_err(|error| error.to_string());
        }
        match credentials.authorization {
            Some(header) if !header.is_empty() => {
                let token = bearer(header).ok_or("the Authorization header is no bearer token")?;
                self.token(token, &[], now).map(|found| found.user)
            }
            _ if self.anonymous => Ok(User::anonymous()),
            _ => Err("no credentials, and anonymous requests are off".to_owned()),
        }
    }
}

/// Compares digests, so that the time taken says nothing about where two secrets differ.
pub(super) fn same_secret(one: &str, other: &str) -> bool {
    let digest = |text: &str| ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    digest(one).as_ref() == digest(other).as_ref()
}

/// The token of `Bearer TOKEN`.
fn bearer(header: &[u8]) -> Option<&str> {
    let (scheme, token) = std::str::from_utf8(header).ok()?.trim().split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests;
