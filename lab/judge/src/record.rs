//! A record of a control plane: what happened to its objects, in the order of the API server.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, BufWriter, Write as _};
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use dragoman_simcluster::HistoryStep;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::promises::{Cluster, Cpus, key};
use crate::report::Report;

/// The kind `DeviceTaintRule` in a record.
pub const RULES: &str = "devicetaintrules.resource.k8s.io";

/// An event of a watch.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Event {
    /// When it came.
    pub at: Timestamp,
    /// `plural.group`, or `plural` in the core group.
    pub resource: String,
    /// Whether the object was deleted.
    pub deleted: bool,
    /// The object as it is or was; its resourceVersion is that of the change.
    pub object: Value,
}

impl Event {
    /// The resourceVersion: the order of the API server.
    pub fn version(&self) -> u64 {
        self.object["metadata"]["resourceVersion"]
            .as_str()
            .and_then(|text| text.parse().ok())
            .unwrap_or_default()
    }
}

/// Writes events to a file, a line each.
///
/// # Errors
/// The file cannot be written.
pub fn write(events: &[Event], file: &Path) -> anyhow::Result<()> {
    let mut out = BufWriter::new(File::create(file).with_context(|| file.display().to_string())?);
    for event in events {
        serde_json::to_writer(&mut out, event)?;
        out.write_all(b"\n")?;
    }
    Ok(out.flush()?)
}

/// Reads events from a file.
///
/// # Errors
/// The file cannot be read, or a line of it is no event.
pub fn read(file: &Path) -> anyhow::Result<Vec<Event>> {
    let lines = BufReader::new(File::open(file).with_context(|| file.display().to_string())?).lines();
    lines.map(|line| Ok(serde_json::from_str(&line?)?)).collect()
}

/// Replays events, and judges each.
pub fn judge(events: &[Event], cpus: Cpus) -> Report {
    let (mut cluster, mut report) = (Cluster::new(cpus), Report::default());
    let mut known: BTreeMap<(String, String), Arc<Value>> = BTreeMap::new();
    for event in events {
        let place = (event.resource.clone(), key(&event.object));
        let before = known.remove(&place);
        let after = (!event.deleted).then(|| Arc::new(event.object.clone()));
        if let Some(after) = &after {
            known.insert(place, Arc::clone(after));
        }
        let step = HistoryStep { at: event.at, resource: event.resource.clone(), before, after };
        report.broken.extend(cluster.take(&step));
        report.take(&step, &cluster);
    }
    if let Some(last) = events.last() {
        report.end(last.at);
    }
    report
}
