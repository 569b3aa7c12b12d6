//! The report for people.

use super::report::{OfNode, OnNode, Report};

const HEAD: [&str; 8] =
    ["NODE", "RESOURCE", "ALLOCATABLE", "PODS", "MAPPING", "OVERHEAD", "RESERVED", "LEFT"];

/// A table of all nodes, and below it what is wrong and where waiting Pods would fit.
pub(super) fn render(report: &Report) -> String {
    let mut rows = vec![HEAD.map(str::to_owned)];
    report.nodes.iter().for_each(|node| rows.extend(self::rows(node)));
    let mut below = String::new();
    for node in &report.nodes {
        let parts = [
            ("violations", &node.violations),
            ("unaccounted", &node.unaccounted),
            ("notices", &node.notices),
        ];
        for (part, lines) in parts {
            lines.iter().for_each(|line| below += &format!("{}: {part}: {line}\n", node.name));
        }
    }
    for pod in &report.pending {
        for (node, answer) in &pod.nodes {
            below += &format!("{} on {node}: {}\n", pod.pod, in_words(answer));
        }
    }
    report.unreadable.iter().for_each(|line| below += &format!("unreadable: {line}\n"));
    let table = aligned(&rows);
    if below.is_empty() { table } else { format!("{table}\n{below}") }
}

fn rows(node: &OfNode) -> impl Iterator<Item = [String; 8]> {
    node.resources.iter().map(|(resource, of)| {
        let left = of.left.clone().unwrap_or_else(|| "unknown".to_owned());
        let cells = [&node.name, resource, &of.allocatable, &of.pods, &of.mapping, &of.overhead];
        let [name, resource, allocatable, pods, mapping, overhead] = cells.map(Clone::clone);
        [name, resource, allocatable, pods, mapping, overhead, of.reservations.clone(), left]
    })
}

fn aligned(rows: &[[String; 8]]) -> String {
    let mut widths = [0; 8];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.len().max(*width);
        }
    }
    let line = |row: &[String; 8]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

/// Whether a Pod fits on a node, and what stands in the way.
fn in_words(answer: &OnNode) -> String {
    let missing = answer
        .missing
        .iter()
        .map(|(resource, of)| format!("{} of {resource} is missing ({})", of.missing, of.held_by.join(", ")));
    let never = answer.never.iter().map(|(resource, has)| format!("the node has {has} of {resource}"));
    let unknown = (!answer.unknown.is_empty())
        .then(|| format!("it is unknown how much is left of {}", answer.unknown.join(", ")));
    let refused = (!answer.refused.is_empty()).then(|| answer.refused.join(", "));
    let all: Vec<String> = missing.chain(never).chain(unknown).chain(refused).collect();
    if all.is_empty() { "fits".to_owned() } else { all.join("; ") }
}
