//! The report for people.

use crate::report::{OfNode, OfPod, OnNode, Report, Shortage};

const HEAD: [&str; 8] =
    ["NODE", "RESOURCE", "ALLOCATABLE", "PODS", "MAPPING", "OVERHEAD", "RESERVED", "LEFT"];

/// A table of all nodes, and below it what is wrong and where waiting Pods would fit.
/// Without `nearest`, a waiting Pod has a line for every node.
pub fn render(report: &Report, nearest: bool) -> String {
    let mut rows = vec![HEAD.map(str::to_owned)];
    report.nodes.iter().for_each(|node| rows.extend(self::rows(node)));
    let mut below = String::new();
    for node in &report.nodes {
        let parts = [
            ("overcommitted", &node.overcommitted),
            ("violations", &node.violations),
            ("unaccounted", &node.unaccounted),
            ("notices", &node.notices),
        ];
        for (part, lines) in parts {
            lines.iter().for_each(|line| below += &format!("{}: {part}: {line}\n", node.name));
        }
    }
    report.pending.iter().for_each(|pod| below += &of_pod(pod, nearest));
    report.unreadable.iter().for_each(|line| below += &format!("unreadable: {line}\n"));
    report.notes.iter().for_each(|line| below += &format!("note: {line}\n"));
    let table = if report.nodes.is_empty() { "no node is to be shown\n".to_owned() } else { columns(&rows) };
    let summary = if report.of_nodes > FEW { summary(report) + "\n" } else { String::new() };
    if below.is_empty() { summary + &table } else { format!("{summary}{table}\n{below}") }
}

/// The number of nodes that one can see at a glance.
const FEW: usize = 3;

/// Returns the totals that a reader of a long table looks for.
fn summary(report: &Report) -> String {
    let count = |is: fn(&OfNode) -> bool| report.nodes.iter().filter(|node| is(node)).count();
    let overcommitted = count(OfNode::is_overcommitted);
    let unknown = count(|node| !node.unaccounted.is_empty());
    let mut text = format!(
        "{} of {} nodes: {overcommitted} overcommitted, {unknown} with facts that are not known\n",
        report.nodes.len(),
        report.of_nodes
    );
    if !report.pending.is_empty() {
        let fits = |pod: &&OfPod| pod.nodes.values().any(|node| node.fits == Some(true));
        let fit = report.pending.iter().filter(fits).count();
        text += &format!("{} waiting Pods: {fit} fit on a node\n", report.pending.len());
    }
    text
}

/// Where a waiting Pod fits; of many nodes the nearest ones only, if `nearest` says so.
fn of_pod(pod: &OfPod, nearest: bool) -> String {
    let line = |(node, answer): (&String, &OnNode)| format!("{} on {node}: {}\n", pod.pod, in_words(answer));
    let unseen = if pod.not_looked_at.is_empty() {
        String::new()
    } else {
        format!("{}: not looked at: {}\n", pod.pod, pod.not_looked_at.join(", "))
    };
    if !nearest || pod.nodes.len() <= FEW {
        return pod.nodes.iter().map(line).collect::<String>() + &unseen;
    }
    let fits = pod.nodes.values().filter(|node| node.fits == Some(true)).count();
    let mut nodes: Vec<_> = pod.nodes.iter().collect();
    // A stable sort: of two nodes alike the one whose name is first.
    nodes.sort_by_key(|(_, answer)| answer.obstacles());
    let lines: String = nodes.into_iter().take(FEW).map(line).collect();
    format!("{}: fits on {fits} of {} nodes; the nearest:\n{lines}{unseen}", pod.pod, pod.nodes.len())
}

fn rows(node: &OfNode) -> impl Iterator<Item = [String; 8]> {
    node.resources.iter().map(|(resource, of)| {
        let left = of.left.as_ref().map_or("unknown", |left| &left.0);
        let amounts = [&of.allocatable, &of.pods, &of.mapping, &of.overhead, &of.reservations];
        let [allocatable, pods, mapping, overhead, reserved] = amounts.map(|amount| &*amount.0);
        [&node.name, resource, allocatable, pods, mapping, overhead, reserved, left].map(str::to_owned)
    })
}

/// Whether a Pod fits on a node, and what stands in the way.
fn in_words(answer: &OnNode) -> String {
    let missing = answer.missing.iter().map(|(resource, of)| {
        let Shortage { missing, needed, left, held_by } = of;
        let holders = held_by.join(", ");
        format!("{} of {resource} is missing ({} needed, {} left; {holders})", missing.0, needed.0, left.0)
    });
    let never = answer.never.iter().map(|(resource, has)| format!("the node has {} of {resource}", has.0));
    let unknown = (!answer.unknown.is_empty())
        .then(|| format!("it is unknown how much is left of {}", answer.unknown.join(", ")));
    let unaccounted =
        (!answer.unaccounted.is_empty()).then(|| format!("it is unknown: {}", answer.unaccounted.join(", ")));
    let refused = (!answer.refused.is_empty()).then(|| answer.refused.join(", "));
    let all: Vec<String> = missing.chain(never).chain(unknown).chain(refused).chain(unaccounted).collect();
    match (all.is_empty(), answer.devices.is_empty()) {
        (true, true) => "fits".to_owned(),
        (true, false) => format!("fits, with {}", answer.devices.join(", ")),
        _ => all.join("; "),
    }
}

/// Aligns the columns of a table, as kubectl does.
pub fn columns<const N: usize>(rows: &[[String; N]]) -> String {
    let mut widths = [0; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}
