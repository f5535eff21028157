//! How far Services are, by a watch of them.

use crate::common::{Client, Watch};
use serde::Deserialize;
use std::collections::HashSet;
use std::time::Duration;

/// Nothing takes longer.
const LIMIT: Duration = Duration::from_secs(600);

pub(crate) struct Progress {
    watch: Watch,
    addressed: HashSet<String>,
    programmed: HashSet<String>,
}

#[derive(Deserialize)]
struct Event {
    object: Service,
}

#[derive(Deserialize)]
struct Service {
    metadata: Metadata,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize)]
struct Metadata {
    #[serde(default)]
    name: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    load_balancer: Balancer,
    conditions: Vec<Condition>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Balancer {
    ingress: Vec<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
struct Condition {
    r#type: String,
    status: String,
}

impl Progress {
    pub(crate) async fn watch(client: &Client) -> Self {
        let watch = client
            .watch("/api/v1/namespaces/default/services?watch=1")
            .await;
        Self {
            watch,
            addressed: HashSet::new(),
            programmed: HashSet::new(),
        }
    }

    pub(crate) async fn all_addressed(&mut self, count: usize) {
        self.until(|progress| progress.addressed.len() >= count)
            .await;
    }

    pub(crate) async fn all_programmed(&mut self, count: usize) {
        self.until(|progress| progress.programmed.len() >= count)
            .await;
    }

    async fn until(&mut self, done: impl Fn(&Self) -> bool) {
        while !done(self) {
            let line = tokio::time::timeout(LIMIT, self.watch.line()).await;
            let line = line.unwrap_or_else(|_| {
                panic!(
                    "stuck at {} of {}",
                    self.programmed.len(),
                    self.addressed.len()
                )
            });
            let event: Event = serde_json::from_slice(&line.expect("the watch goes on")).unwrap();
            self.take(event.object);
        }
    }

    fn take(&mut self, service: Service) {
        let Service {
            metadata: Metadata { name },
            status,
        } = service;
        let live = status
            .conditions
            .iter()
            .any(|held| held.r#type == "Programmed" && held.status == "True");
        note(&mut self.programmed, &name, live);
        note(
            &mut self.addressed,
            &name,
            !status.load_balancer.ingress.is_empty(),
        );
    }
}

fn note(names: &mut HashSet<String>, name: &str, is: bool) {
    match is {
        true if !names.contains(name) => _ = names.insert(name.to_owned()),
        true => {}
        false => _ = names.remove(name),
    }
}
