//! What the page is told: every view of the fleet once, and from then on those that changed. Pure.

use jiff::Timestamp;
use portico_view::{EndpointView, Fleet};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// Views by name, with what they were when the page was last told.
#[derive(Default)]
pub(super) struct Changes {
    services: Views,
    nodes: Views,
    endpoints: Views,
    trouble: Option<String>,
    told: bool,
}

type Views = BTreeMap<String, Value>;

/// A line for the page: views that are new or changed; `null` for those that are gone.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Line {
    pub services: Views,
    pub nodes: Views,
    /// The endpoints of each Service, by its name.
    pub endpoints: Views,
    /// Why what is shown may be old.
    pub trouble: Option<String>,
}

impl Changes {
    /// `None` where nothing changed since the last line.
    pub(super) fn next(
        &mut self,
        fleet: &Fleet,
        trouble: Option<&str>,
        clock: Timestamp,
    ) -> Option<Line> {
        let services = fleet.services(clock).into_iter();
        let services = services.map(|view| (format!("{}/{}", view.namespace, view.name), view));
        let nodes = fleet.nodes(clock).into_iter();
        let nodes = nodes.map(|view| (view.name.clone(), view));
        let line = Line {
            services: changed(&mut self.services, views(services)),
            nodes: changed(&mut self.nodes, views(nodes)),
            endpoints: changed(&mut self.endpoints, views(by_service(fleet).into_iter())),
            trouble: trouble.map(str::to_owned),
        };
        let nothing = line.services.is_empty()
            && line.nodes.is_empty()
            && line.endpoints.is_empty()
            && line.trouble == self.trouble
            && self.told;
        self.told = true;
        self.trouble.clone_from(&line.trouble);
        (!nothing).then_some(line)
    }
}

fn by_service(fleet: &Fleet) -> BTreeMap<String, Vec<EndpointView>> {
    let mut all: BTreeMap<String, Vec<EndpointView>> = BTreeMap::new();
    for endpoint in fleet.endpoints() {
        let service = format!("{}/{}", endpoint.namespace, endpoint.service);
        all.entry(service).or_default().push(endpoint);
    }
    all
}

fn views<T: Serialize>(all: impl Iterator<Item = (String, T)>) -> Views {
    all.map(|(name, view)| (name, serde_json::to_value(view).unwrap_or_default()))
        .collect()
}

/// What is new, changed or gone; `known` is brought up to date.
fn changed(known: &mut Views, now: Views) -> Views {
    let gone = known.keys().filter(|name| !now.contains_key(*name));
    let mut all: Views = gone.map(|name| (name.clone(), Value::Null)).collect();
    let new = now
        .iter()
        .filter(|(name, view)| known.get(*name) != Some(*view));
    all.extend(new.map(|(name, view)| (name.clone(), view.clone())));
    *known = now;
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Service;
    use portico_view::Object;
    use serde_json::json;

    fn service(name: &str, port: u16) -> Object {
        let object = json!({"metadata": {"namespace": "shop", "name": name},
            "spec": {"type": "ClusterIP", "ports": [{"port": port}]}});
        serde_json::from_value::<Service>(object).unwrap().into()
    }

    #[test]
    fn the_page_is_told_what_changed_and_what_is_gone() {
        let (mut fleet, mut changes) = (Fleet::default(), Changes::default());
        let mut next = |fleet: &Fleet, trouble| changes.next(fleet, trouble, Timestamp::UNIX_EPOCH);
        assert!(next(&fleet, None).is_some(), "an empty fleet is told once");
        assert_eq!(next(&fleet, None), None);
        fleet.apply(service("web", 80), Timestamp::UNIX_EPOCH);
        fleet.apply(service("db", 5432), Timestamp::UNIX_EPOCH);
        assert_eq!(next(&fleet, None).unwrap().services.len(), 2);
        fleet.apply(service("web", 81), Timestamp::UNIX_EPOCH);
        fleet.delete(&service("db", 5432));
        let line = next(&fleet, None).unwrap();
        assert_eq!(line.services["shop/db"], Value::Null);
        assert_eq!(line.services["shop/web"]["ports"], json!(["81/tcp"]));
        assert!(next(&fleet, Some("away")).is_some_and(|line| line.services.is_empty()));
        assert_eq!(next(&fleet, Some("away")), None);
        assert_eq!(next(&fleet, None).unwrap().trouble, None);
    }
}
