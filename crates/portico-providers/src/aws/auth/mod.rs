//! Who asks: credentials from where the vendor's tools find them too (`chain`), fetched and kept
//! until shortly before they end (`fetch`), and requests signed with them (`sign`).

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

pub use chain::{Environment, Source};
pub use fetch::Fetcher;
pub use metadata::Metadata;
pub use sign::{Credentials, Scope, hash, sign};

/// Signs what is asked of one service in one region.
pub struct Signer {
    pub credentials: Arc<Fetcher>,
    pub region: String,
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
