//! Follows what is shown at the API server: lists once, then watches.

use super::fleet::{Kind, News};
use futures_util::stream::{BoxStream, SelectAll, select_all};
use futures_util::{StreamExt, stream};
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use portico_model::report;
use serde_json::Value;

/// What the API server says, from now on.
pub fn follow(client: &Client) -> SelectAll<BoxStream<'static, News>> {
    select_all(Kind::ALL.map(|kind| news(client.clone(), kind)))
}

fn news(client: Client, kind: Kind) -> BoxStream<'static, News> {
    let (group, name) = match kind {
        Kind::Service => ("", "Service"),
        Kind::Slice => ("discovery.k8s.io", "EndpointSlice"),
        Kind::Node => ("", "Node"),
        Kind::Report => ("coordination.k8s.io", "Lease"),
    };
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", name));
    let config = watcher::Config::default();
    let (api, config) = match kind {
        Kind::Report => (
            Api::namespaced_with(client, report::NAMESPACE, &resource),
            config.labels(report::LABEL),
        ),
        _ => (Api::<DynamicObject>::all_with(client, &resource), config),
    };
    let object = |object: &DynamicObject| serde_json::to_value(object).unwrap_or(Value::Null);
    let read = move |event: watcher::Result<Event<DynamicObject>>| match event {
        Ok(Event::Init) => News::Begin(kind),
        Ok(Event::InitApply(found) | Event::Apply(found)) => News::There(kind, object(&found)),
        Ok(Event::Delete(found)) => News::Gone(kind, object(&found)),
        Ok(Event::InitDone) => News::End(kind),
        Err(error) => News::Failed(error.to_string()),
    };
    watcher(api, config)
        .default_backoff()
        .map(read)
        .chain(stream::pending())
        .boxed()
}
