//! Lists of OpenStack's services, whose next page is behind a link.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::octavia::take;
use crate::cloud::{Call, CallError, Client, Page, all_pages};

#[derive(Deserialize)]
struct Link {
    rel: String,
    href: String,
}

/// All that is under `name`, from all pages.
pub(super) async fn list<T: DeserializeOwned>(
    client: &Client,
    operation: &'static str,
    url: String,
    name: &'static str,
) -> Result<Vec<T>, CallError> {
    all_pages(|next: Option<String>| {
        let url = next.unwrap_or_else(|| url.clone());
        async move {
            let mut answer: Value = client.send(Call::get(operation, url)).await?.json()?;
            let links = answer[format!("{name}_links")].take();
            let links: Vec<Link> = serde_json::from_value(links).unwrap_or_default();
            let next = links
                .into_iter()
                .find(|link| link.rel == "next")
                .map(|link| link.href);
            Ok(Page {
                items: take(answer, name)?,
                next,
            })
        }
    })
    .await
}
