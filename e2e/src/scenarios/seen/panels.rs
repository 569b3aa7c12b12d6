//! The panels of the dashboards, on a Prometheus in which everything happened.

use anyhow::Context as _;
use serde_json::Value;

use crate::prometheus::Prometheus;
use crate::world::Bench;

/// Longer than all incidents take.
const SECONDS: i64 = 4 * 3600;

/// The queries of all panels, as Grafana sends them, each with the title of its panel.
pub(super) fn queries(bench: &Bench) -> anyhow::Result<Vec<(String, String)>> {
    let directory = bench.repository.join("config/monitoring/dashboards");
    let mut queries = Vec::new();
    for file in std::fs::read_dir(&directory).with_context(|| directory.display().to_string())? {
        let text = std::fs::read_to_string(file?.path()).context("dashboard")?;
        let dashboard: Value = serde_json::from_str(&text)?;
        for panel in dashboard["panels"].as_array().context("panels")? {
            for target in panel["targets"].as_array().into_iter().flatten() {
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                // The recording rules have a range of ten minutes, which are seconds here.
                let query = text(&target["expr"]).replace("$__rate_interval", "10s");
                queries.push((text(&panel["title"]), query));
            }
        }
    }
    Ok(queries)
}

/// The queries that never had a result.
pub(super) async fn empty(bench: &Bench, prometheus: &Prometheus) -> anyhow::Result<Vec<String>> {
    let mut empty = Vec::new();
    for (title, query) in queries(bench)? {
        if !prometheus.had(&query, SECONDS).await? {
            empty.push(format!("{title}: {query}"));
        }
    }
    Ok(empty)
}

/// Returns the queries that had no result in either of two clusters.
pub(super) fn common(one: &[String], other: &[String]) -> Vec<String> {
    one.iter().filter(|query| other.contains(query)).cloned().collect()
}
