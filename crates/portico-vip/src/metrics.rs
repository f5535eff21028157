//! A status as metrics. They are made when they are asked for: all that counts is counted
//! elsewhere.

use crate::status::{Attempt, Status};
use portico_client::metrics::Show;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

type Labels = Vec<(&'static str, String)>;

pub(crate) fn text(status: &Status, attempt: &Attempt) -> String {
    let mut registry = Registry::with_prefix("portico_vip");
    routers(&mut registry, status);
    let healthy = gauges(
        &mut registry,
        "server_healthy",
        "Whether an API server gets connections",
    );
    for server in &status.servers {
        let labels = vec![("server", server.address.to_string())];
        healthy.get_or_create(&labels).set(server.healthy.into());
    }
    let forwarding = gauges(
        &mut registry,
        "forwarding",
        "1 for the way in which the address is forwarded",
    );
    forwarding
        .get_or_create(&vec![("mode", status.forwarding.mode.clone())])
        .set(1);
    let problems = gauges(
        &mut registry,
        "forwarding_problems",
        "What keeps some from being forwarded",
    );
    problems
        .get_or_create(&vec![])
        .set(status.forwarding.problems.len() as i64);
    let errors = counters(
        &mut registry,
        "forwarding_errors",
        "Attempts to forward that failed",
    );
    errors.get_or_create(&vec![]).inc_by(attempt.errors);
    portico_client::metrics::text(&registry)
}

fn routers(registry: &mut Registry, status: &Status) {
    let owner = gauges(registry, "owner", "Whether this node has the address");
    let priority = gauges(registry, "priority", "The priority of this node");
    let conflict = gauges(
        registry,
        "trouble",
        "Whether this node cannot take part in the election",
    );
    let ignored = counters(registry, "adverts_ignored", "Adverts that did not count");
    let strangers = counters(
        registry,
        "stranger_adverts",
        "Adverts that were dropped because their sender has no business here: unsigned, wrongly \
         signed, replayed, not of a peer, or from another link",
    );
    let mut families: Vec<(String, Family<Labels, Counter>)> = Vec::new();
    for router in &status.routers {
        let address = router
            .addresses
            .first()
            .map(ToString::to_string)
            .unwrap_or_default();
        let labels = vec![("address", address.clone())];
        owner
            .get_or_create(&labels)
            .set((router.role == "owner").into());
        priority.get_or_create(&labels).set(router.priority.into());
        conflict
            .get_or_create(&labels)
            .set(router.trouble.is_some().into());
        for (why, count) in &router.adverts_ignored {
            let labels = vec![("address", address.clone()), ("reason", why.clone())];
            ignored.get_or_create(&labels).inc_by(*count);
        }
        for (why, count) in &router.strangers {
            let labels = vec![("address", address.clone()), ("reason", why.clone())];
            strangers.get_or_create(&labels).inc_by(*count);
        }
        for (name, count) in &router.counters {
            let known = families.iter().position(|(family, _)| family == name);
            let index = known.unwrap_or_else(|| {
                let family = counters(registry, name, meaning(name));
                families.push((name.clone(), family));
                families.len() - 1
            });
            if let Some((_, family)) = families.get(index) {
                family.get_or_create(&labels).inc_by(*count);
            }
        }
    }
}

/// What the counters of an election count.
fn meaning(counter: &str) -> &'static str {
    match counter {
        "adverts_sent" => "Adverts of this node",
        "adverts_received" => "Adverts of others",
        "send_errors" => "Packets that could not be sent",
        "transitions" => "Changes of this node's role",
        "became_owner" => "Times this node took the address",
        "conflicts" => "Times somebody else used the address",
        "announcements" => "Announcements of the address to the network",
        "restored" => "Times the address was gone from the link and put back",
        _ => "How often this happened since the start",
    }
}

fn gauges(registry: &mut Registry, name: &str, help: &str) -> Family<Labels, Gauge> {
    let family = Family::default();
    registry.show(name, help, family.clone());
    family
}

fn counters(registry: &mut Registry, name: &str, help: &str) -> Family<Labels, Counter> {
    let family = Family::default();
    registry.show(name, help, family.clone());
    family
}
