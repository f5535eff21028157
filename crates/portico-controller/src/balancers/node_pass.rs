//! How long it takes until every load balancer that a change of nodes concerns knows of it.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use portico_model::key::ObjectKey;

/// The Services that have still to be told. A change that comes before all are done belongs to the
/// same pass.
#[derive(Debug, Default)]
pub(super) struct NodePass {
    since: Option<Instant>,
    left: HashSet<ObjectKey>,
}

impl NodePass {
    pub(super) fn begin(&mut self, services: Vec<ObjectKey>, now: Instant) {
        self.left.extend(services);
        if !self.left.is_empty() {
            self.since.get_or_insert(now);
        }
    }

    /// A Service is done, or gone. How long the pass took, if it was the last.
    pub(super) fn done(&mut self, service: &ObjectKey, now: Instant) -> Option<Duration> {
        let last = self.left.remove(service) && self.left.is_empty();
        last.then(|| self.since.take())
            .flatten()
            .map(|since| now.duration_since(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_ends_with_its_last_service() {
        let [a, b] = ["a", "b"].map(|name| ObjectKey::new("shop", name));
        let (mut pass, now) = (NodePass::default(), Instant::now());
        let after = |seconds| now + Duration::from_secs(seconds);
        assert_eq!(pass.done(&a, now), None);
        pass.begin(vec![a.clone()], now);
        pass.begin(vec![a.clone(), b.clone()], after(1));
        assert_eq!(pass.done(&a, after(2)), None);
        assert_eq!(pass.done(&b, after(3)), Some(Duration::from_secs(3)));
        assert_eq!(pass.done(&b, after(4)), None);
    }
}
