//! What people have to know of a provider before they choose it. docs/providers.md is made of it (a
//! test compares them; after a change,
//! `PORTICO_WRITE_DOCS=1 cargo test -p portico-providers --lib description` writes it anew).

/// A provider in words: short, for the cells of a table, where not said otherwise.
#[derive(Clone, Copy, Debug)]
pub struct Description {
    /// As in `--cloud-provider`.
    pub name: &'static str,
    /// What makes and carries the load balancers, in a sentence.
    pub summary: &'static str,
    /// Kinds of load balancer.
    pub balancers: &'static str,
    pub protocols: &'static str,
    pub families: &'static str,
    /// How `externalTrafficPolicy: Local` is done.
    pub local: &'static str,
    pub source_ranges: &'static str,
    /// `sessionAffinity: ClientIP`
    pub affinity: &'static str,
    /// What it writes to `status.loadBalancer.ingress`.
    pub status: &'static str,
    /// Annotations of Services with their meaning, in a sentence.
    pub annotations: &'static [(&'static str, &'static str)],
    /// What it cannot do, and bounds, a sentence each.
    pub limits: &'static [&'static str],
    /// The page about it, beside docs/providers.md.
    pub page: Option<&'static str>,
}

#[cfg(test)]
mod tests;
