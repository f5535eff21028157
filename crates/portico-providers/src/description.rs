//! What people have to know of a provider before they choose it. docs/providers.md is made of it (a
//! test compares them; after a change,
//! `PORTICO_WRITE_DOCS=1 cargo test -p portico-controller --lib description` writes it anew).

use std::fmt::Write as _;

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

const INTRODUCTION: &str = "# Providers

Where load balancers come from is chosen by `portico controller --cloud-provider NAME`. All of them are made, watched and removed
by the same controller (docs/controller.md); this is what differs. The page is made from the code.

";

/// All of docs/providers.md.
pub fn render(descriptions: &[&Description]) -> String {
    let mut text = INTRODUCTION.to_owned();
    text.push_str(
        "| | load balancers | protocols | addresses | `Local` | source ranges | affinity | \
         status |\n",
    );
    text.push_str("|---|---|---|---|---|---|---|---|\n");
    for it in descriptions {
        let cells = [
            it.balancers,
            it.protocols,
            it.families,
            it.local,
            it.source_ranges,
            it.affinity,
            it.status,
        ]
        .join(" | ");
        _ = writeln!(text, "| [`{}`](#{}) | {cells} |", it.name, anchor(it.name));
    }
    descriptions.iter().for_each(|it| section(&mut text, it));
    text
}

fn section(text: &mut String, it: &Description) {
    _ = write!(text, "\n## {}\n\n{}", it.name, it.summary);
    if let Some(page) = it.page {
        _ = write!(text, " See [{page}]({page}).");
    }
    text.push('\n');
    if !it.annotations.is_empty() {
        text.push_str("\n| annotation | meaning |\n|---|---|\n");
        for (name, meaning) in it.annotations {
            _ = writeln!(text, "| `{name}` | {meaning} |");
        }
    }
    if !it.limits.is_empty() {
        text.push('\n');
        it.limits
            .iter()
            .for_each(|limit| _ = writeln!(text, "- {limit}"));
    }
}

/// As GitHub makes it of a heading.
fn anchor(name: &str) -> String {
    let kept = name
        .chars()
        .filter(|letter| letter.is_alphanumeric() || *letter == '-');
    kept.collect::<String>().to_lowercase()
}

#[cfg(test)]
mod tests;
