//! What was counted, as a table.

use super::story::Told;

/// Of one cloud.
pub fn print(title: &str, told: &[Told]) {
    println!("\n{title:44}{:>10}{:>10}{:>10}{:>16}{:>16}", "reads", "writes", "looks", "reads each", "writes each");
    for Told { chapter, services, cost, .. } in told {
        let each = |count: usize| {
            let each = count as f64 / (*services).max(1) as f64;
            if each.fract() == 0.0 { format!("{each}") } else { format!("{each:.2}") }
        };
        println!(
            "{:44}{:>10}{:>10}{:>10}{:>16}{:>16}",
            format!("{chapter} ({services})"),
            cost.reads,
            cost.writes,
            cost.waits,
            each(cost.reads),
            each(cost.writes)
        );
    }
}

/// A line for each chapter that cost something else.
pub fn surprises(name: &str, told: &[Told]) -> Vec<String> {
    let line = |it: &Told| format!("{name}, {}: {:?}, and not {:?}", it.chapter, it.cost, it.expected);
    told.iter().filter(|it| !it.is_expected()).map(line).collect()
}
