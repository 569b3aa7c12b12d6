//! The figures of all sides.

use std::collections::BTreeMap;

use super::watch::Clock;
use dragoman_e2e::control_plane::Entry;
use dragoman_e2e::usage::Usage;

/// The figures of one side.
pub(super) struct Column {
    name: &'static str,
    rows: Vec<Figure>,
}

/// A figure with its values, one for each run.
struct Figure {
    row: String,
    decimals: usize,
    values: Vec<f64>,
}

impl Figure {
    /// The median, with the range if the values differ.
    fn text(&self) -> String {
        let decimals = self.decimals;
        let mut values = self.values.clone();
        values.sort_by(f64::total_cmp);
        let middle = values.len() / 2;
        let median = match values.get(middle.saturating_sub(1)..=middle) {
            Some([below, above]) if values.len().is_multiple_of(2) => f64::midpoint(*below, *above),
            _ => values.get(middle).copied().unwrap_or_default(),
        };
        let text = |value: Option<&f64>| format!("{:.decimals$}", value.copied().unwrap_or_default());
        let (least, most) = (text(values.first()), text(values.last()));
        if least == most { least } else { format!("{median:.decimals$} ({least}–{most})") }
    }
}

impl Column {
    pub(super) fn new(name: &'static str) -> Self {
        Self { name, rows: Vec::new() }
    }

    /// Adds and prints a figure with this number of decimals.
    pub(super) fn figure(&mut self, row: &str, value: f64, decimals: usize) {
        println!("{}: {row} = {value:.decimals$}", self.name);
        self.rows.push(Figure { row: row.to_owned(), decimals, values: vec![value] });
    }

    /// Adds how long claims took to come and to go, and Pods to be bound.
    pub(super) fn latencies(&mut self, clock: &Clock) {
        let [born, bound, gone] = clock.latencies();
        let all = [("creation to claim", born), ("creation to binding", bound), ("done to claim gone", gone)];
        for (name, mut latencies) in all {
            latencies.sort();
            for (label, part) in [("p50", 50), ("p99", 99)] {
                let at = latencies.get((latencies.len() * part / 100).min(latencies.len().saturating_sub(1)));
                self.figure(&format!("{name} {label}, ms"), at.map_or(0.0, |d| d.as_secs_f64() * 1e3), 0);
            }
        }
    }

    /// Adds the figures of another run.
    pub(super) fn merge(&mut self, further: Self) {
        for figure in further.rows {
            match self.rows.iter_mut().find(|known| known.row == figure.row) {
                Some(known) => known.values.extend(figure.values),
                None => self.rows.push(figure),
            }
        }
    }

    /// Adds the CPU time of each process per life.
    pub(super) fn cpu(&mut self, before: &[(&str, Usage)], after: &[(&str, Usage)], lives: f64) {
        for ((name, before), (_, after)) in before.iter().zip(after) {
            let spent = after.cpu.saturating_sub(before.cpu).as_secs_f64() * 1e3 / lives;
            self.figure(&format!("cpu of {name} per life, ms"), spent, 2);
        }
    }

    /// Adds the CPU time of the claim controller for a burst, and its memory after it.
    pub(super) fn controller(
        &mut self,
        name: &str,
        before: &[(&str, Usage)],
        after: &[(&str, Usage)],
        pods: f64,
    ) {
        let of = |usages: &[(&str, Usage)]| usages.iter().find(|(n, _)| *n == name).map(|(_, usage)| *usage);
        if let (Some(before), Some(after)) = (of(before), of(after)) {
            let spent = after.cpu.saturating_sub(before.cpu).as_secs_f64() * 1e3 / pods;
            self.figure("cpu of the controller per gated Pod, ms", spent, 2);
            #[expect(clippy::cast_precision_loss, reason = "kilobytes")]
            self.figure("resident memory with them, MiB", after.resident as f64 / 1024.0, 1);
        }
    }

    /// Adds the API writes per life, by party.
    pub(super) fn writes(&mut self, entries: &[Entry], lives: f64) {
        let mut parties: BTreeMap<&str, u32> = BTreeMap::new();
        let mut refused = 0;
        let relevant = |e: &&Entry| e.party() != "test" && e.object_ref.resource != "serviceaccounts";
        for entry in entries.iter().filter(relevant) {
            if entry.response_status.code < 300 {
                *parties.entry(entry.party()).or_default() += 1;
            } else {
                refused += 1;
            }
        }
        let mut each: BTreeMap<&str, u32> = BTreeMap::new();
        for entry in entries.iter().filter(relevant).filter(|e| e.response_status.code < 300) {
            *each.entry(life(&entry.object_ref.name)).or_default() += 1;
        }
        each.remove("");
        let total: u32 = parties.values().sum();
        self.figure("API writes per life", f64::from(total) / lives, 2);
        let most = each.values().max().copied().unwrap_or(0);
        self.figure("API writes of the most expensive life", f64::from(most), 0);
        self.figure("  refused attempts of all", f64::from(refused) / lives, 2);
        for (party, count) in parties {
            self.figure(&format!("  by {party}"), f64::from(count) / lives, 2);
        }
    }
}

/// The number of the Pod that an object belongs to: `7` for `pod-7`, for its claim
/// `pod-7-gpu-…` and for its Event `pod-7.…`.
fn life(name: &str) -> &str {
    let number = name.strip_prefix("pod-").unwrap_or_default();
    number.split(['-', '.']).next().unwrap_or_default()
}

/// The columns as a Markdown table; a dash where a side was not measured.
pub(super) fn table(columns: &[Column]) -> String {
    let mut rows: Vec<&str> = Vec::new();
    for figure in columns.iter().flat_map(|c| &c.rows) {
        if !rows.contains(&figure.row.as_str()) {
            rows.push(&figure.row);
        }
    }
    let names = columns.iter().map(|c| c.name).collect::<Vec<_>>().join(" | ");
    let mut text = format!("\n| | {names} |\n|---|{}\n", "---:|".repeat(columns.len()));
    for row in rows {
        let value = |c: &Column| c.rows.iter().find(|f| f.row == row).map_or("–".to_owned(), Figure::text);
        let values = columns.iter().map(value).collect::<Vec<_>>().join(" | ");
        text.push_str(&format!("| {row} | {values} |\n"));
    }
    text
}
