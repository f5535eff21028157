//! Authentication, which is added to each try of a call right before it is sent.

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::Request;
use http::header::{AUTHORIZATION, HeaderName, HeaderValue};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Deserializer};
use tokio::sync::Mutex;

use super::error::{CallError, Problem};

/// Adds credentials to requests.
pub trait Authorize: Send + Sync {
    /// Adds what proves the identity to a request that is about to be sent.
    fn authorize<'a>(
        &'a self,
        request: &'a mut Request<Bytes>,
    ) -> BoxFuture<'a, Result<(), CallError>>;

    /// The server did not accept what was added. Says whether it is worth trying with something
    /// new.
    fn renew(&self) -> bool {
        false
    }
}

/// For servers without authentication.
pub struct Anonymous;

impl Authorize for Anonymous {
    fn authorize<'a>(
        &'a self,
        _request: &'a mut Request<Bytes>,
    ) -> BoxFuture<'a, Result<(), CallError>> {
        Box::pin(async { Ok(()) })
    }
}

/// A token as it goes into a request.
#[derive(Clone, Debug)]
pub enum Header {
    /// `Authorization: Bearer ...`
    Bearer,
    /// A header of this name with the token as its value.
    Named(HeaderName),
}

impl Header {
    /// Adds the token to a request; its value is marked as sensitive.
    pub fn add(&self, token: &SecretString, request: &mut Request<Bytes>) -> Result<(), CallError> {
        let (name, value) = match self {
            Self::Bearer => (
                AUTHORIZATION,
                HeaderValue::try_from(format!("Bearer {}", token.expose_secret())),
            ),
            Self::Named(name) => (name.clone(), HeaderValue::try_from(token.expose_secret())),
        };
        // The error would show the value.
        let bad = |_| {
            CallError::new(
                "token",
                Problem::Credentials("the token is no text of one line".to_owned()),
            )
        };
        let mut value = value.map_err(bad)?;
        value.set_sensitive(true);
        request.headers_mut().insert(name, value);
        Ok(())
    }
}

/// A token that does not change.
pub struct Fixed {
    /// The header that has it.
    pub header: Header,
    /// The token.
    pub token: SecretString,
}

impl Authorize for Fixed {
    fn authorize<'a>(
        &'a self,
        request: &'a mut Request<Bytes>,
    ) -> BoxFuture<'a, Result<(), CallError>> {
        Box::pin(async { self.header.add(&self.token, request) })
    }
}

/// Deserializes a field with a secret: `#[serde(deserialize_with = "secret")]`.
pub(crate) fn secret<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SecretString, D::Error> {
    String::deserialize(deserializer).map(SecretString::from)
}

/// Where tokens come from.
pub(crate) trait TokenSource: Send + Sync {
    fn fetch(&self) -> BoxFuture<'_, Result<Token, CallError>>;
}

#[derive(Clone, Debug)]
pub(crate) struct Token {
    pub secret: SecretString,
    pub lifetime: Duration,
}

/// Tokens that end: fetched by the first that needs one while the others wait for it, and again
/// before it ends.
pub(crate) struct Tokens<S> {
    source: S,
    header: Header,
    current: Mutex<Option<(SecretString, Instant)>>,
}

impl<S: TokenSource> Tokens<S> {
    pub(crate) fn new(source: S, header: Header) -> Self {
        Self {
            source,
            header,
            current: Mutex::new(None),
        }
    }

    async fn token(&self) -> Result<SecretString, CallError> {
        let mut current = self.current.lock().await;
        if let Some((secret, until)) = &*current
            && Instant::now() < *until
        {
            return Ok(secret.clone());
        }
        let token = self.source.fetch().await?;
        *current = Some((
            token.secret.clone(),
            Instant::now() + usable(token.lifetime),
        ));
        Ok(token.secret)
    }
}

/// A token is not used in its last minutes: a request may take some, and clocks differ.
fn usable(lifetime: Duration) -> Duration {
    lifetime.saturating_sub(Duration::from_secs(300).min(lifetime / 5))
}

impl<S: TokenSource> Authorize for Tokens<S> {
    fn authorize<'a>(
        &'a self,
        request: &'a mut Request<Bytes>,
    ) -> BoxFuture<'a, Result<(), CallError>> {
        Box::pin(async {
            let token = self.token().await?;
            self.header.add(&token, request)
        })
    }

    fn renew(&self) -> bool {
        // The holder of the lock is fetching a new one already.
        if let Ok(mut current) = self.current.try_lock() {
            *current = None;
        }
        true
    }
}
