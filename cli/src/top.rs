//! A live screen: what devices there are, the pools with the fewest free ones, and the Pods that wait longest.

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde::Serialize;

use crate::print::{Screen, print};
use crate::source::Source;
use dragoman_report::facts::Facts;
use dragoman_report::lists::{self, Cell, Table};

/// The rows of a table: a person reads no more at once.
const ROWS: usize = 15;
/// Looks take at most a tenth of the time, so that many screens do not keep the API server of a large cluster busy …
const SHARE: u32 = 10;
/// … but a screen is not older than this.
const LONGEST: Duration = Duration::from_secs(60);
/// Clears a terminal.
const CLEAR: &str = "\u{1b}[H\u{1b}[2J";

/// Content of the screen.
#[derive(Debug, Serialize)]
pub(crate) struct Look {
    pub(crate) devices: Devices,
    /// The pools that are incomplete or have the fewest free devices.
    pub(crate) pools: Table,
    /// The number of Pods that wait with claims; absent if Pods cannot be read.
    pub(crate) waiting: Option<usize>,
    /// Those that wait longest.
    pub(crate) pods: Table,
}

/// The devices of all pools; absent is what cannot be read.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Devices {
    pub(crate) pools: Option<usize>,
    pub(crate) total: Option<u64>,
    pub(crate) free: Option<u64>,
}

/// Shows pools and waiting Pods until it is interrupted. Returns whether anything could be read.
///
/// # Errors
/// Standard output is closed.
pub(crate) async fn run(
    source: &Source,
    namespace: Option<&str>,
    screen: &Screen,
    interval: u64,
    once: bool,
) -> anyhow::Result<bool> {
    let place = namespace.map_or_else(|| "--all-namespaces".to_owned(), |name| format!("--namespace {name}"));
    loop {
        let began = Instant::now();
        let (supply, waiting) = (source.devices().await, source.waiting(namespace).await);
        let look = Look::of(&supply, &waiting, Timestamp::now());
        let took = began.elapsed();
        if !once && !screen.is_structured() && std::io::stdout().is_terminal() {
            print(CLEAR)?;
        }
        let pause = pause(Duration::from_secs(interval), took);
        look.show(screen, &place)?;
        // A program reads one document.
        if once || screen.is_structured() {
            return Ok(look.devices.pools.is_some() || look.waiting.is_some());
        }
        print(&format!("\n{:.0}; the next look comes {}s later\n", Timestamp::now(), pause.as_secs()))?;
        tokio::time::sleep(pause).await;
    }
}

/// The time until the next look.
fn pause(interval: Duration, took: Duration) -> Duration {
    interval.max((took * (SHARE - 1)).min(LONGEST))
}

impl Look {
    /// The first rows of the tables, and how many there are.
    fn of(supply: &Facts, waiting: &Facts, now: Timestamp) -> Self {
        let (pools, pods) = (lists::pools(supply), lists::waiting(waiting, now));
        let is_read = !supply.lacks("resourceslices");
        let number = |row: &Vec<Cell>, field| pools.cell(row, field).and_then(|cell| cell.value.as_u64());
        let sum = |field| {
            let all = pools.rows.iter().map(|row| number(row, field)).sum::<Option<u64>>();
            all.filter(|_| is_read)
        };
        let free = sum("free").filter(|_| !supply.lacks("resourceclaims"));
        let devices = Devices { pools: is_read.then_some(pools.rows.len()), total: sum("total"), free };
        let mut first: Vec<_> = pools.rows.iter().collect();
        let is_ready = |row: &Vec<Cell>| pools.cell(row, "state").is_some_and(|state| state.shown == "Ready");
        first.sort_by_key(|row| (is_ready(row), number(row, "free")));
        let rows = first.into_iter().take(ROWS).cloned().collect();
        let waiting = (!waiting.lacks("pods")).then_some(pods.rows.len());
        let pools = Table { rows, ..pools };
        let pods = Table { rows: pods.rows.into_iter().take(ROWS).collect(), ..pods };
        Self { devices, pools, waiting, pods }
    }

    /// `place`: the flag for the namespaces of the Pods.
    fn show(&self, screen: &Screen, place: &str) -> anyhow::Result<()> {
        if let Some(text) = screen.structured(self)? {
            return print(&text);
        }
        let or_unknown = |number: Option<usize>| number.map_or_else(|| "?".to_owned(), |of| of.to_string());
        let Devices { pools, total, free } = self.devices;
        let [total, free] = [total, free].map(|of| or_unknown(of.and_then(|of| usize::try_from(of).ok())));
        let plural = if pools == Some(1) { "pool" } else { "pools" };
        print(&format!("Devices: {total} in {} {plural}, {free} free\n\n", or_unknown(pools)))?;
        screen.table(&self.pools, "no driver publishes devices")?;
        print(&rest(pools.unwrap_or_default(), &self.pools, "kubectl dra pools"))?;
        print(&format!("\nPods that wait with claims: {}\n\n", or_unknown(self.waiting)))?;
        if !self.pods.rows.is_empty() || !self.pods.lacks.is_empty() {
            screen.table(&self.pods, "")?;
        }
        let pods = self.waiting.unwrap_or_default();
        let command = format!("kubectl get pods {place} --field-selector status.phase=Pending");
        print(&rest(pods, &self.pods, &command))
    }
}

/// Says how many rows are not shown, and names the command that shows them.
fn rest(all: usize, shown: &Table, command: &str) -> String {
    match all.saturating_sub(shown.rows.len()) {
        0 => String::new(),
        more => format!("and {more} more (`{command}`)\n"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn facts(objects: &[serde_json::Value]) -> Facts {
        let mut facts = Facts::default();
        let list = json!({"kind": "List", "items": objects});
        facts.take_file(std::path::Path::new("f"), &list.to_string()).expect("objects");
        facts
    }

    fn slice(node: usize, slices: i64) -> serde_json::Value {
        json!({"kind": "ResourceSlice", "metadata": {"name": format!("s-{node:04}")}, "spec": {
            "driver": "d", "nodeName": format!("node-{node:04}"),
            "pool": {"name": format!("p-{node:04}"), "generation": 1, "resourceSliceCount": slices},
            "devices": [{"name": "a"}, {"name": "b"}]}})
    }

    fn pod(number: usize) -> serde_json::Value {
        json!({"kind": "Pod", "metadata": {"namespace": "ml", "name": format!("p-{number}"), "uid": format!("u-{number}"),
            "creationTimestamp": format!("2026-01-01T{:02}:{:02}:00Z", number / 60 % 24, number % 60)},
            "spec": {"resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}]}, "status": {"phase": "Pending",
            "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}})
    }

    #[test]
    fn a_large_cluster_fits_on_the_screen() {
        let mut objects: Vec<_> = (0..5000).map(|node| slice(node, 1)).chain((0..1440).map(pod)).collect();
        // Two pools stand out: one lacks a slice, of one a device is taken.
        objects[4000] = slice(4000, 2);
        objects.push(json!({"kind": "ResourceClaim", "metadata": {"namespace": "ml", "name": "c"}, "spec": {}, "status": {
            "allocation": {"devices": {"results": [{"request": "r", "driver": "d", "pool": "p-3000", "device": "a"}]}}}}));
        let facts = facts(&objects);
        let now = "2026-01-02T00:00:00Z".parse().expect("a time");
        let look = Look::of(&facts, &facts, now);
        let devices = Devices { pools: Some(5000), total: Some(10_000), free: Some(9_997) };
        assert_eq!(look.devices, devices, "of an incomplete pool nothing can be had");
        let pools: Vec<&str> = look.pools.rows.iter().map(|row| &*row[1].shown).collect();
        assert_eq!((pools.len(), pools[0], pools[1], pools[2]), (ROWS, "p-4000", "p-3000", "p-0000"));
        assert_eq!((look.waiting, look.pods.rows.len()), (Some(1440), ROWS));
        let oldest: Vec<&str> = look.pods.rows[0].iter().map(|cell| &*cell.shown).collect();
        assert_eq!(oldest, ["ml", "p-0", "24h", "Unschedulable"]);
    }

    #[test]
    fn nothing_is_counted_that_could_not_be_read() {
        let look = |forbidden: &[&str]| {
            let mut facts = facts(&[slice(0, 1)]);
            forbidden.iter().for_each(|resource| facts.forbid(None, (*resource).to_owned()));
            if forbidden.contains(&"resourceslices.resource.k8s.io") {
                facts.cluster.slices.clear();
            }
            Look::of(&facts, &facts, Timestamp::UNIX_EPOCH)
        };
        let all = look(&[]);
        assert_eq!(
            (all.waiting, all.devices),
            (Some(0), Devices { pools: Some(1), total: Some(2), free: Some(2) })
        );
        let without = look(&["pods", "resourceclaims.resource.k8s.io"]);
        assert_eq!((without.waiting, without.devices), (None, Devices { free: None, ..all.devices }));
        assert_eq!(look(&["resourceslices.resource.k8s.io"]).devices, Devices::default());
    }

    #[test]
    fn a_look_that_takes_long_makes_the_next_one_later() {
        let seconds = Duration::from_secs;
        assert_eq!(pause(seconds(2), seconds(0)), seconds(2));
        assert_eq!(pause(seconds(2), seconds(3)), seconds(27));
        assert_eq!(pause(seconds(2), seconds(60)), seconds(60));
        assert_eq!(pause(seconds(300), seconds(60)), seconds(300));
    }
}
