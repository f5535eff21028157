//! Authentication: credentials from where the vendor's tools find them too (`chain`), fetched and
//! kept until shortly before they end (`fetch`), and requests signed with them (`sign`).

mod chain;
mod fetch;
mod metadata;
mod sign;

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::Request;
use jiff::Timestamp;

use crate::cloud::{Authorize, CallError};

pub(crate) use chain::Environment;
pub use chain::Source;
pub use fetch::Fetcher;
pub(crate) use metadata::Metadata;
pub use sign::Credentials;
pub(crate) use sign::{Scope, hash, sign};

/// Signs what is asked of one service in one region.
pub struct Signer {
    /// Has the credentials.
    pub credentials: Arc<Fetcher>,
    /// The region of the service.
    pub region: String,
    /// The name of the service in signatures.
    pub service: &'static str,
}

impl Authorize for Signer {
    fn authorize<'a>(
        &'a self,
        request: &'a mut Request<Bytes>,
    ) -> BoxFuture<'a, Result<(), CallError>> {
        Box::pin(async {
            let credentials = self.credentials.current().await?;
            let scope = Scope {
                region: &self.region,
                service: self.service,
            };
            sign(request, &credentials, scope, Timestamp::now());
            Ok(())
        })
    }

    fn renew(&self) -> bool {
        self.credentials.forget()
    }
}
