//! Clouds whose login answers with a token and with where their services are.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;

use super::auth::{Token, TokenSource};
use super::error::CallError;

pub(crate) trait LogIn: Send + Sync {
    /// Where services are.
    type Place: Clone + Send + Sync;

    fn log_in(&self) -> BoxFuture<'_, Result<(Token, Self::Place), CallError>>;
}

/// Logs in when a token or the place is first asked for, and keeps both. Clones share what they
/// know: one is a [`TokenSource`].
pub(crate) struct Login<L: LogIn>(Arc<Inner<L>>);

struct Inner<L: LogIn> {
    log_in: L,
    known: Mutex<Known<L::Place>>,
}

struct Known<P> {
    place: Option<P>,
    /// The token that came with the catalog, until a call uses it.
    token: Option<Token>,
}

impl<L: LogIn> Login<L> {
    pub(crate) fn new(log_in: L) -> Self {
        Self(Arc::new(Inner {
            log_in,
            known: Mutex::new(Known {
                place: None,
                token: None,
            }),
        }))
    }

    pub(crate) async fn place(&self) -> Result<L::Place, CallError> {
        if let Some(place) = &self.known().place {
            return Ok(place.clone());
        }
        let (token, place) = self.0.log_in.log_in().await?;
        *self.known() = Known {
            place: Some(place.clone()),
            token: Some(token),
        };
        Ok(place)
    }

    fn known(&self) -> MutexGuard<'_, Known<L::Place>> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<L: LogIn> Clone for Login<L> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<L: LogIn> TokenSource for Login<L> {
    fn fetch(&self) -> BoxFuture<'_, Result<Token, CallError>> {
        Box::pin(async {
            if let Some(token) = self.known().token.take() {
                return Ok(token);
            }
            let (token, place) = self.0.log_in.log_in().await?;
            self.known().place = Some(place);
            Ok(token)
        })
    }
}
