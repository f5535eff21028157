//! What happens to Services, and what it costs.

use super::cloud::{Call, Cloud};
use super::rig::{NEVER, Rig};
use portico_providers::Provider;
use serde_json::json;
use std::ops::Range;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cost {
    pub reads: usize,
    pub writes: usize,
    /// Further pages of lists: as many as the account has load balancers.
    pub pages: usize,
    /// Looks at what takes its time: as many as the cloud is slow.
    pub waits: usize,
}

pub(crate) const CHAPTERS: [&str; 8] = [
    "the first Service",
    "a Service more",
    "nothing of meaning changes",
    "a node joins",
    "a node leaves",
    "the controller starts again",
    "a port more",
    "delete, with two ports",
];

/// What a chapter cost all its Services together.
pub(crate) struct Told {
    pub chapter: &'static str,
    pub services: usize,
    pub cost: Cost,
    /// Reads and writes.
    pub expected: (usize, usize),
}

pub(crate) struct Story {
    rig: Rig,
    told: Vec<Told>,
    ensured: usize,
    moved: usize,
}

impl Story {
    /// With this many Services; all of them from the first to the last chapter.
    pub(crate) async fn whole(cloud: Cloud, services: usize) -> Vec<Told> {
        let mut story = Self::begin(cloud, services, 3).await;
        story.steady(services).await;
        story.nodes(services, 3).await;
        story.rig.restart().await;
        story.ensured = 0;
        story.ensure(5, services).await;
        let ports = json!([{"name": "http", "port": 80}, {"name": "more", "port": 81}]);
        for service in 0..services {
            story
                .rig
                .change(service, &json!({"spec": {"ports": ports}}))
                .await;
        }
        story.ensure(6, services).await;
        for service in 0..services {
            story.rig.delete(service).await;
        }
        story.rig.called(Call::Delete, services).await;
        story.tell(7, services);
        story.end().await
    }

    /// Many Services on many nodes, of which one joins.
    pub(crate) async fn many(cloud: Cloud, services: usize, nodes: usize) -> Vec<Told> {
        let mut story = Self::begin(cloud, services, nodes).await;
        story.nodes(services, nodes).await;
        story.end().await
    }

    async fn begin(cloud: Cloud, services: usize, nodes: usize) -> Self {
        let rig = Rig::start(cloud, nodes, NEVER).await;
        let mut story = Self {
            rig,
            told: Vec::new(),
            ensured: 0,
            moved: 0,
        };
        story.create(0, 0..1).await;
        story.create(1, 1..services).await;
        story
    }

    async fn create(&mut self, chapter: usize, services: Range<usize>) {
        let count = services.len();
        for service in services {
            self.rig.create(service).await;
        }
        self.ensured += count * (self.rig.cloud.tries - 1);
        self.ensure(chapter, count).await;
    }

    async fn steady(&mut self, services: usize) {
        self.rig.change_node(1).await;
        for service in 0..services {
            self.rig.move_endpoints(service).await;
        }
        // The provider is asked, as only it knows what has a meaning.
        for service in 0..services {
            let metadata = json!({"labels": {"example.com/team": "shop"}, "annotations": {"example.com/note": "y"}});
            self.rig
                .change(service, &json!({ "metadata": metadata }))
                .await;
        }
        self.ensure(2, services).await;
    }

    /// One more joins, and leaves.
    async fn nodes(&mut self, services: usize, nodes: usize) {
        for (chapter, after) in [(3, nodes + 1), (4, nodes)] {
            match chapter {
                3 => self.rig.join(nodes + 1).await,
                _ => self.rig.leave(nodes + 1).await,
            }
            self.moved += services;
            self.rig.know_nodes(services, after).await;
            if !self.rig.provider.abilities().uses_endpoints {
                self.rig.called(Call::UpdateNodes, self.moved).await;
            }
            self.tell(chapter, services);
        }
    }

    async fn ensure(&mut self, chapter: usize, services: usize) {
        self.ensured += services;
        self.rig.called(Call::Ensure, self.ensured).await;
        self.tell(chapter, services);
    }

    fn tell(&mut self, chapter: usize, services: usize) {
        let (each, shared) = (self.rig.cloud.each[chapter], self.rig.cloud.shared[chapter]);
        let expected = (each.0 * services + shared.0, each.1 * services + shared.1);
        let cost = self.rig.provider.take_cost();
        self.told.push(Told {
            chapter: CHAPTERS[chapter],
            services,
            cost,
            expected,
        });
    }

    async fn end(mut self) -> Vec<Told> {
        self.rig.stop().await;
        self.told
    }
}

impl Told {
    /// Waits and pages are the cloud's.
    pub(crate) fn is_expected(&self) -> bool {
        (self.cost.reads, self.cost.writes) == self.expected
    }
}
