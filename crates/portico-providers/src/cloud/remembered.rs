//! What a provider saw or made last, for each Service, so that a change costs the calls that change
//! something and no others (design/0018).
//!
//! Memory is a short cut and nothing else: all of it could be read again. It is kept only after a
//! success, is taken out while a call uses it (one that fails or is dropped half-way leaves
//! nothing), and is empty after a start. A call that fails from memory is made once more from a
//! full look before the error is reported.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tracing::debug;

use crate::ProviderError;

/// What a call goes out from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Basis<T> {
    /// This program has not dealt with the Service yet. Another may have: a Service with an
    /// address, or a name that is taken, means a look.
    New,
    /// What the last call left.
    Last(T),
    /// Nothing is known: everything is read.
    Look,
}

/// By a key that no other Service has or had
/// ([`Request::balancer_name`](crate::Request)).
#[derive(Debug)]
pub(crate) struct Remembered<T> {
    /// `None` where the last call failed, or is under way.
    services: Mutex<BTreeMap<String, Option<T>>>,
}

impl<T> Default for Remembered<T> {
    fn default() -> Self {
        Self {
            services: Mutex::default(),
        }
    }
}

impl<T> Remembered<T> {
    /// Make a load balancer, or change it: `work` gives what there is afterwards, and its answer.
    pub(crate) async fn make<R, F>(
        &self,
        key: &str,
        work: impl Fn(Basis<T>) -> F,
    ) -> Result<R, ProviderError>
    where
        F: Future<Output = Result<(T, R), ProviderError>>,
    {
        let (now, answer) = self.attempt(key, work).await?;
        self.services().insert(key.to_owned(), Some(now));
        Ok(answer)
    }

    /// Delete everything of a Service, and what is known of it.
    pub(crate) async fn delete<F>(
        &self,
        key: &str,
        work: impl Fn(Basis<T>) -> F,
    ) -> Result<(), ProviderError>
    where
        F: Future<Output = Result<(), ProviderError>>,
    {
        self.attempt(key, work).await?;
        self.services().remove(key);
        Ok(())
    }

    /// The next call for the Service looks at everything.
    pub(crate) fn forget(&self, key: &str) {
        if let Some(last) = self.services().get_mut(key) {
            *last = None;
        }
    }

    /// Changes what the last call left, where a part of it does not hold any more.
    pub(crate) fn change(&self, key: &str, change: impl FnOnce(&mut T)) {
        if let Some(Some(last)) = self.services().get_mut(key) {
            change(last);
        }
    }

    /// What the last call left, for a look at it.
    pub(crate) fn last(&self, key: &str) -> Option<T>
    where
        T: Clone,
    {
        self.services().get(key).cloned().flatten()
    }

    /// How many Services there are.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.services().len()
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.services().is_empty()
    }

    async fn attempt<R, F>(
        &self,
        key: &str,
        work: impl Fn(Basis<T>) -> F,
    ) -> Result<R, ProviderError>
    where
        F: Future<Output = Result<R, ProviderError>>,
    {
        let basis = match self.services().insert(key.to_owned(), None) {
            Some(Some(last)) => Basis::Last(last),
            Some(None) => Basis::Look,
            None => Basis::New,
        };
        let looks = matches!(basis, Basis::Look);
        match work(basis).await {
            // A cloud that asks to wait is not sent more reads now.
            Err(error) if !looks && !matches!(error, ProviderError::RetryAfter { .. }) => {
                debug!(key, %error, "looking at everything again");
                work(Basis::Look).await
            }
            done => done,
        }
    }

    fn services(&self) -> MutexGuard<'_, BTreeMap<String, Option<T>>> {
        self.services.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
