//! The life of a Service, step by step. Each step begins by ensuring what it needs, so that one
//! that fails spoils no other.

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, try_join};

use super::Support;
use super::life::{Stop, Tester, Verdict, difference, fail};
use super::sample;
use crate::{Family, Host, Protocol, Request};

pub(super) struct Planned {
    pub name: &'static str,
    pub work: for<'a> fn(&'a Tester<'a>) -> BoxFuture<'a, Verdict>,
    /// Without it there is nothing to try the others on.
    pub vital: bool,
    /// It cleans up, whatever came before.
    pub always: bool,
}

const fn step(
    name: &'static str,
    work: for<'a> fn(&'a Tester<'a>) -> BoxFuture<'a, Verdict>,
) -> Planned {
    Planned {
        name,
        work,
        vital: false,
        always: false,
    }
}

pub(super) const STEPS: &[Planned] = &[
    step("delete what is not there", |t| delete_absent(t).boxed()),
    step("describe what is not there", |t| describe_absent(t).boxed()),
    Planned {
        vital: true,
        ..step("ensure", |t| ensure(t).boxed())
    },
    step("describe agrees with ensure", |t| describe(t).boxed()),
    step("a node is added and removed", |t| nodes(t, 3).boxed()),
    step("all nodes go and come back", |t| nodes(t, 0).boxed()),
    step("a port is added, changed and removed", |t| ports(t).boxed()),
    step("policy Local and back to Cluster", |t| policy(t).boxed()),
    step("source ranges are set, changed and cleared", |t| {
        source_ranges(t).boxed()
    }),
    step("session affinity is set, changed and cleared", |t| {
        affinity(t).boxed()
    }),
    step("UDP", |t| udp(t).boxed()),
    step("TCP and UDP in one Service", |t| mixed_protocols(t).boxed()),
    step("IPv6", |t| ipv6(t).boxed()),
    step("both IP families", |t| dual_stack(t).boxed()),
    step("several Services at once", |t| at_once(t).boxed()),
    step("a Service is deleted and created again", |t| {
        recreated(t).boxed()
    }),
    Planned {
        always: true,
        ..step("delete", |t| delete(t).boxed())
    },
    Planned {
        always: true,
        ..step("nothing is left", |t| nothing_left(t).boxed())
    },
];

/// The Service that most steps change.
fn base(t: &Tester<'_>) -> Request {
    sample::service(t.case, 1)
}

async fn delete_absent(t: &Tester<'_>) -> Verdict {
    t.delete(&base(t)).await?;
    t.expect_owned(&[], "something is there before the first Service")
        .await
}

async fn describe_absent(t: &Tester<'_>) -> Verdict {
    match t.describe(&base(t)).await? {
        None => Ok(()),
        Some(found) => fail(format!("there is {found:?}")),
    }
}

async fn ensure(t: &Tester<'_>) -> Verdict {
    let balancer = t.ensure(&base(t)).await?;
    if balancer.ingress.is_empty() {
        return fail("it is complete and has no address");
    }
    t.expect_change(&[], "ensure").await?;
    t.expect_nodes(&base(t)).await
}

async fn describe(t: &Tester<'_>) -> Verdict {
    let request = base(t);
    let balancer = t.ensure(&request).await?;
    let before = t.owned().await?;
    t.expect_described(&request, &balancer).await?;
    t.expect_owned(&before, "describe changed what there is")
        .await
}

/// Goes from two nodes to another number of them, and back.
async fn nodes(t: &Tester<'_>, count: usize) -> Verdict {
    let abilities = t.provider.abilities();
    if !abilities.uses_nodes && !abilities.uses_endpoints {
        return Err(Stop::Skipped(
            "the provider uses neither nodes nor endpoints".to_owned(),
        ));
    }
    let request = base(t);
    let balancer = t.ensure(&request).await?;
    let before = t.owned().await?;
    let other = sample::on_nodes(t.case, request.clone(), count);
    t.update(&other).await?;
    t.expect_change(&before, "other nodes").await?;
    t.expect_nodes(&other).await?;
    t.expect_described(&other, &balancer).await?;
    t.update(&request).await?;
    t.expect_described(&request, &balancer).await?;
    t.expect_owned(
        &before,
        "the same nodes as before are not the same as before",
    )
    .await
}

async fn ports(t: &Tester<'_>) -> Verdict {
    let request = base(t);
    let added = sample::with_port(request.clone(), "more", Protocol::Tcp);
    let changed = sample::with_other_node_port(added.clone());
    let programs = !t.provider.abilities().announced_by_nodes;
    let support = if programs {
        Support::Full
    } else {
        Support::Ignored
    };
    t.there_and_back(&request, std::slice::from_ref(&added), &support)
        .await?;
    let support = if programs {
        t.case.can.node_ports.clone()
    } else {
        Support::Ignored
    };
    t.there_and_back(&added, &[changed], &support).await
}

async fn policy(t: &Tester<'_>) -> Verdict {
    t.there_and_back(&base(t), &[sample::local(base(t))], &t.case.can.local)
        .await
}

async fn source_ranges(t: &Tester<'_>) -> Verdict {
    let one = sample::from(base(t), &["192.0.2.0/24"]);
    let other = sample::from(base(t), &["198.51.100.0/24", "203.0.113.7/32"]);
    t.there_and_back(&base(t), &[one, other], &t.case.can.source_ranges)
        .await
}

async fn affinity(t: &Tester<'_>) -> Verdict {
    let changes = [
        sample::sticky(base(t), 10_800),
        sample::sticky(base(t), 600),
    ];
    // Not every balancer has a setting for this time.
    t.there_and_back(&base(t), &changes[..1], &t.case.can.affinity)
        .await?;
    let ignored = if t.case.can.affinity == Support::Full {
        Support::Ignored
    } else {
        t.case.can.affinity.clone()
    };
    t.there_and_back(&base(t), &changes, &ignored).await
}

async fn udp(t: &Tester<'_>) -> Verdict {
    alone(
        t,
        sample::only_udp(sample::service(t.case, 4)),
        &t.case.can.udp,
        &[],
    )
    .await
}

async fn mixed_protocols(t: &Tester<'_>) -> Verdict {
    let request = sample::with_port(sample::service(t.case, 5), "dns", Protocol::Udp);
    alone(t, request, &t.case.can.mixed_protocols, &[]).await
}

async fn ipv6(t: &Tester<'_>) -> Verdict {
    let families = [Family::V6];
    alone(
        t,
        sample::in_families(sample::service(t.case, 6), &families),
        &t.case.can.ipv6,
        &families,
    )
    .await
}

async fn dual_stack(t: &Tester<'_>) -> Verdict {
    let families = [Family::V4, Family::V6];
    let request = Request {
        require_all_families: true,
        ..sample::service(t.case, 7)
    };
    alone(
        t,
        sample::in_families(request, &families),
        &t.case.can.dual_stack,
        &families,
    )
    .await
}

/// A Service that comes and goes beside the other.
async fn alone(
    t: &Tester<'_>,
    request: Request,
    support: &Support,
    families: &[Family],
) -> Verdict {
    if let Support::Untested(reason) = support {
        return Err(Stop::Skipped(reason.clone()));
    }
    let before = t.owned().await?;
    if *support == Support::Refused {
        t.expect_refusal(&request, &before).await?;
    } else {
        let balancer = t.ensure(&request).await?;
        t.expect_described(&request, &balancer).await?;
        t.expect_change(&before, "ensure").await?;
        let has = |family| {
            balancer.ingress.iter().any(|ingress| match &ingress.host {
                Host::Ip(address) => Family::of(*address) == family,
                Host::Name(_) => true,
            })
        };
        if let Some(missing) = families.iter().find(|family| !has(**family)) {
            return fail(format!(
                "there is no {missing:?} address in {:?}",
                balancer.ingress
            ));
        }
    }
    t.delete(&request).await?;
    t.expect_owned(&before, "delete left something").await
}

/// Two come while the nodes of a third change, and go while they change back.
async fn at_once(t: &Tester<'_>) -> Verdict {
    let (first, second) = (
        base(t),
        sample::on_nodes(t.case, sample::service(t.case, 2), 1),
    );
    let third = sample::service(t.case, 3);
    let balancer = t.ensure(&first).await?;
    let before = t.owned().await?;
    let more = sample::on_nodes(t.case, first.clone(), 3);
    let ((), (two, three)) = try_join(
        t.move_nodes(&more),
        try_join(t.settle(&second), t.settle(&third)),
    )
    .await?;
    for (request, balancer) in [(&first, &balancer), (&second, &two), (&third, &three)] {
        t.expect_described(request, balancer).await?;
    }
    let all = t.owned().await?;
    for request in [&more, &second, &third] {
        t.settle(request).await?;
        t.expect_owned(
            &all,
            "what was made for one Service is not right for another",
        )
        .await?;
    }
    try_join(
        t.move_nodes(&first),
        try_join(t.delete(&second), t.delete(&third)),
    )
    .await?;
    t.expect_described(&first, &balancer).await?;
    for request in [&second, &third] {
        if let Some(found) = t.describe(request).await? {
            return fail(format!("{} still has {found:?}", request.service));
        }
    }
    t.expect_owned(
        &before,
        "others that came and went left something, or took something",
    )
    .await
}

async fn recreated(t: &Tester<'_>) -> Verdict {
    let (old, new) = (sample::service(t.case, 8), sample::recreated(t.case, 8));
    let empty = t.owned().await?;
    t.ensure(&old).await?;
    t.delete(&old).await?;
    let balancer = t.ensure(&new).await?;
    let before = t.owned().await?;
    t.delete(&old).await?;
    t.expect_owned(
        &before,
        "to delete the old one took something from the new one",
    )
    .await?;
    t.expect_described(&new, &balancer).await?;
    if let Some(found) = t.describe(&old).await? {
        return fail(format!("the one that was deleted has {found:?}"));
    }
    t.delete(&new).await?;
    t.expect_owned(&empty, "delete left something").await
}

/// Deletes a Service as late as can be: it has no ports any more.
async fn delete(t: &Tester<'_>) -> Verdict {
    let request = base(t);
    t.delete(&Request {
        ports: Vec::new(),
        endpoints: Vec::new(),
        nodes: Vec::new(),
        ..request.clone()
    })
    .await?;
    match t.describe(&request).await? {
        None => Ok(()),
        Some(found) => fail(format!("there is still {found:?}")),
    }
}

async fn nothing_left(t: &Tester<'_>) -> Verdict {
    if t.world.is_none() {
        return Err(Stop::Skipped("what exists cannot be seen".to_owned()));
    }
    let left = t.owned().await?;
    if left.is_empty() {
        Ok(())
    } else {
        fail(difference(&[], &left))
    }
}
