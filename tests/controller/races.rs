//! Controllers with metal that are killed at every write, that follow each other, and that work at
//! the same time although they should not: no address is given twice, none is lost.

use crate::common::eventually;
use crate::cutter::{Cut, Cutter};
use crate::pools::{BLOCKS, control, run_metal};
use crate::rig::{Rig, Running};
use portico_client::lease::{LeaseOptions, lead};
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Duration;

/// A Service comes, gets a second family, and goes; the others keep what they have.
async fn story(rig: &Rig, name: &str) {
    rig.create_with(
        name,
        json!({"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4"]}),
    )
    .await;
    let first = rig.address(name).await;
    rig.change(
        name,
        json!({"spec": {"ipFamilyPolicy": "RequireDualStack"}}),
    )
    .await;
    eventually("it has both families", || async {
        (rig.addresses(name).await.len() == 2).then_some(())
    })
    .await;
    assert_eq!(rig.addresses(name).await[0], first);
    rig.delete(name).await;
    rig.is_gone(name).await;
    rig.books_balance().await;
}

async fn with_kills(rig: &Rig, cutter: &Cutter, name: &str, start: impl Fn() -> Running) {
    let mut running = start();
    let telling = story(rig, name);
    tokio::pin!(telling);
    loop {
        tokio::select! {
            () = &mut telling => return running.kill().await,
            () = cutter.tripped.notified() => {
                running.kill().await;
                running = start();
            }
        }
    }
}

#[tokio::test]
async fn killed_before_and_after_every_write() {
    let rig = Rig::start().await;
    rig.pool(
        "public",
        json!({"addresses": ["192.0.2.0/24", "2001:db8::/120"]}),
    )
    .await;
    let cutter = Cutter::start(rig.api.clone()).await;
    let client = kube::Client::try_from(kube::Config::new(cutter.url.parse().unwrap())).unwrap();
    let start = || run_metal(client.clone());
    let running = start();
    rig.create("steady").await;
    let steady = rig.address("steady").await;
    running.stop().await;
    // How many writes the story has when nothing goes wrong.
    cutter.cut(None);
    with_kills(&rig, &cutter, "web", start).await;
    let writes = cutter.writes();
    println!("{} writes: {writes:#?}", writes.len());
    assert!((7..=20).contains(&writes.len()), "{writes:?}");
    for number in 0..writes.len() {
        for cut in [Cut::Before(number), Cut::After(number)] {
            cutter.cut(Some(cut));
            let name = format!(
                "web-{number}-{}",
                if cut == Cut::Before(number) {
                    "before"
                } else {
                    "after"
                }
            );
            with_kills(&rig, &cutter, &name, start).await;
            assert_eq!(rig.addresses("steady").await.join(","), steady);
        }
    }
    assert_eq!(rig.claims().await.len(), 1, "only the steady one is left");
}

/// The same, with a Service whose block vanishes with it.
#[tokio::test]
async fn killed_at_every_write_with_a_block_of_its_own() {
    let rig = Rig::start().await;
    rig.pool(
        "public",
        json!({"addresses": ["192.0.2.0/24", "2001:db8::/120"]}),
    )
    .await;
    let cutter = Cutter::start(rig.api.clone()).await;
    let client = kube::Client::try_from(kube::Config::new(cutter.url.parse().unwrap())).unwrap();
    let start = || run_metal(client.clone());
    cutter.cut(None);
    with_kills(&rig, &cutter, "web", start).await;
    for number in 0..cutter.writes().len() {
        cutter.cut(Some(Cut::After(number)));
        with_kills(&rig, &cutter, &format!("web-{number}"), start).await;
    }
    // Also one that was emptied and not deleted goes with the next start.
    let _running = start();
    eventually("no block is left", || async {
        (rig.api.get(BLOCKS).await.expect(200)["items"] == json!([])).then_some(())
    })
    .await;
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("web-{number}")).collect()
}

async fn all_have_one_each(rig: &Rig, names: &[String]) {
    let mut seen = BTreeSet::new();
    for name in names {
        let address = rig.address(name).await;
        assert!(seen.insert(address.clone()), "{address} twice");
    }
    rig.books_balance().await;
    for name in names {
        assert!(
            seen.contains(&rig.addresses(name).await[0]),
            "{name} has moved"
        );
    }
}

/// What an election should rule out, and what must do no harm when it does not (a process that was
/// paused for a minute).
#[tokio::test]
async fn two_at_the_same_time() {
    let rig = Rig::start().await;
    rig.pool("public", json!({"addresses": ["192.0.2.0/25"]}))
        .await;
    let _one = rig.metal().await;
    let _two = rig.metal().await;
    let names = names(60);
    for name in &names {
        rig.create(name).await;
    }
    all_have_one_each(&rig, &names).await;
    let (gone, kept) = names.split_at(30);
    for name in gone {
        rig.delete(name).await;
    }
    for name in gone {
        rig.is_gone(name).await;
    }
    all_have_one_each(&rig, kept).await;
}

#[tokio::test]
async fn one_after_the_other() {
    let rig = Rig::start().await;
    rig.pool("public", json!({"addresses": ["192.0.2.0/25"]}))
        .await;
    let client = rig.kube().await;
    let candidate = |identity: String| {
        let client = client.clone();
        let lease = LeaseOptions {
            lease_duration: Duration::from_secs(1),
            renew_deadline: Duration::from_millis(700),
            retry_period: Duration::from_millis(100),
            ..LeaseOptions::new("kube-system", "portico-controller", &identity)
        };
        Running::new(move |stop| async move {
            lead(client.clone(), lease, stop, |stop| {
                control(client.clone(), stop)
            })
            .await;
        })
    };
    let names = names(40);
    let mut leader = candidate("0".to_owned());
    for (number, name) in names.iter().enumerate() {
        rig.create(name).await;
        if number % 10 == 5 {
            let next = candidate(number.to_string());
            leader.kill().await;
            leader = next;
        }
    }
    all_have_one_each(&rig, &names).await;
    leader.stop().await;
}
