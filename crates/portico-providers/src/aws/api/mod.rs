//! The vendor's three services, each call a short method: EC2 for networks and security groups
//! (`ec2`), load balancing version 2 for Network Load Balancers (`network`), and version 1 for
//! classic ones (`classic`).

pub(crate) mod classic;
pub(crate) mod ec2;
pub(crate) mod network;
mod query;
mod xml;

use std::sync::Arc;

use http::StatusCode;

use crate::cloud::{CallError, Client, Dialect, Page, Reply, all_pages};

pub use query::Query;
pub use xml::Xml;

/// How errors of these services are written.
pub const DIALECT: Dialect = Dialect {
    read: xml::error,
    is_throttled,
};

fn is_throttled(_: StatusCode, code: &str) -> bool {
    const CODES: [&str; 6] = [
        "Throttling",
        "ThrottlingException",
        "ThrottledException",
        "RequestThrottled",
        "RequestLimitExceeded",
        "TooManyRequestsException",
    ];
    CODES.contains(&code)
}

/// One version of one service.
pub struct Service {
    /// Makes and counts the calls.
    pub client: Arc<Client>,
    /// The address of the service.
    pub url: String,
    /// The version of the API.
    pub version: &'static str,
}

impl Service {
    /// Makes one call.
    pub async fn ask(&self, query: Query) -> Result<Reply, CallError> {
        self.client.send(query.call(&self.url, self.version)).await
    }

    /// All elements of a list that comes in pages, each page asked for with `next` of the one
    /// before.
    async fn list<T>(
        &self,
        query: impl Fn() -> Query,
        paging: Paging,
        item: impl Fn(Xml<'_>) -> T,
    ) -> Result<Vec<T>, CallError> {
        let page = |next: Option<String>| {
            let query = query().set_some(paging.ask, next);
            async {
                let reply = self.ask(query).await?;
                Xml::read(&reply, |xml| Page {
                    items: xml.all(paging.list).map(&item).collect(),
                    next: xml
                        .find(paging.next)
                        .map(Xml::own_text)
                        .filter(|next| !next.is_empty()),
                })
            }
        };
        all_pages(page).await
    }
}

/// Where a list is in an answer, and how the next page is asked for.
#[derive(Clone, Copy)]
struct Paging {
    list: &'static str,
    next: &'static str,
    ask: &'static str,
}

impl Paging {
    const fn ec2(list: &'static str) -> Self {
        Self {
            list,
            next: "nextToken",
            ask: "NextToken",
        }
    }

    const fn elb(list: &'static str) -> Self {
        Self {
            list,
            next: "NextMarker",
            ask: "Marker",
        }
    }
}

/// The services that a provider needs.
pub struct Api {
    /// Networks, instances and security groups.
    pub ec2: Service,
    /// Network Load Balancers.
    pub network: Service,
    /// Classic load balancers.
    pub classic: Service,
}

/// What has one of these codes is not there, which is no failure.
fn unless<T>(codes: &[&str], result: Result<T, CallError>) -> Result<Option<T>, CallError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if codes.iter().any(|code| error.is_code(code)) => Ok(None),
        Err(error) => Err(error),
    }
}
