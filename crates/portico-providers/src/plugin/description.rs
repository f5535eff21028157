//! What people have to know of the provider.

use crate::description::Description;

pub(crate) const DESCRIPTION: Description = Description {
    name: "plugin:SOCKET",
    summary: "Another program makes them, which serves a small gRPC contract on a unix socket; \
              `portico controller check-plugin` tells whether it does so rightly.",
    balancers: "what the plugin makes",
    protocols: "what the plugin takes",
    families: "what the plugin takes",
    local: "by the plugin",
    source_ranges: "by the plugin",
    affinity: "by the plugin",
    status: "`ip` or `hostname`, `ipMode` as it says",
    annotations: &[],
    limits: &["A call may take 120 s, and a message 4 MiB."],
    page: Some("plugins.md"),
};
