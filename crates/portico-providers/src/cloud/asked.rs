//! What people ask for in the same way of every cloud.

use std::net::IpAddr;

use crate::{ProviderError, Request};

/// `spec.loadBalancerIP`, if there is one.
pub(crate) fn requested_ip(request: &Request) -> Result<Option<IpAddr>, ProviderError> {
    let parse = |text: &String| {
        let message = format!("loadBalancerIP {text:?} is no address");
        text.parse().map_err(|_| ProviderError::Refused {
            reason: "InvalidAddress",
            message,
        })
    };
    request
        .requested_ip
        .as_ref()
        .filter(|text| !text.is_empty())
        .map(parse)
        .transpose()
}
