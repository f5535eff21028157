//! A plan, for people.

use super::Plan;
use super::forwarding::Effect;
use super::object::What;
use super::outside::Need;
use portico_view::text::few;
use std::fmt;

/// So many nodes are named.
const FEW: usize = 5;

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return writeln!(f, "Nothing would change.");
        }
        writeln!(f, "Objects:")?;
        for change in &self.objects {
            let sign = match change.what {
                What::Created => '+',
                What::Changed => '~',
                What::Deleted => '-',
                What::Same => ' ',
            };
            let note = if change.note.is_empty() {
                String::new()
            } else {
                format!(" ({})", change.note)
            };
            writeln!(f, "  {sign} {}{note}", change.object)?;
            change
                .fields
                .iter()
                .try_for_each(|field| writeln!(f, "      {field}"))?;
        }
        self.effects(f, "Rules of nodes", &self.forwarding.rules)?;
        needs(
            f,
            "Addresses and ports",
            &[('-', &self.outside.released), ('+', &self.outside.taken)],
        )?;
        self.effects(f, "Announcements", &self.forwarding.announcements)?;
        needs(f, "Load balancers", &[('!', &self.outside.balancers)])?;
        self.effects(f, "Connections that there are", &self.forwarding.flows)?;
        if !self.forwarding.problems.is_empty() {
            writeln!(f, "\nNodes could not use:")?;
            self.forwarding
                .problems
                .iter()
                .try_for_each(|problem| writeln!(f, "  ! {problem}"))?;
        }
        Ok(())
    }
}

impl Plan {
    fn effects(&self, f: &mut fmt::Formatter<'_>, title: &str, effects: &[Effect]) -> fmt::Result {
        if effects.is_empty() {
            return Ok(());
        }
        writeln!(f, "\n{title}:")?;
        for Effect {
            port,
            sign,
            what,
            nodes,
        } in effects
        {
            let place = match nodes.len() == self.nodes {
                true => "on every node".to_owned(),
                false => format!("on {}", few(nodes, FEW)),
            };
            writeln!(f, "  {sign} {port}: {what} ({place})")?;
        }
        Ok(())
    }
}

fn needs(f: &mut fmt::Formatter<'_>, title: &str, groups: &[(char, &Vec<Need>)]) -> fmt::Result {
    if groups.iter().all(|(_, needs)| needs.is_empty()) {
        return Ok(());
    }
    writeln!(f, "\n{title}:")?;
    for (sign, needs) in groups {
        needs
            .iter()
            .try_for_each(|need| writeln!(f, "  {sign} {}: {}", need.service, need.what))?;
    }
    Ok(())
}
