//! The dashboards of Grafana, from one definition of their panels.

mod devices;
mod operations;

use anyhow::Context as _;
use serde_json::{Value, json};

/// A dashboard: its file, what Grafana knows it by, and its rows.
struct Dashboard {
    file: &'static str,
    title: &'static str,
    description: &'static str,
    rows: &'static [Row],
}

/// A row of panels under a title.
struct Row {
    title: &'static str,
    panels: &'static [Panel],
}

/// A panel. Stats show the last value, others how it went.
struct Panel {
    title: &'static str,
    /// Description of the panel for its reader.
    description: &'static str,
    unit: &'static str,
    is_stat: bool,
    /// Queries of the panel, each after the name of its series in terms of the labels.
    queries: &'static [(&'static str, &'static str)],
}

const fn series(
    title: &'static str,
    description: &'static str,
    unit: &'static str,
    queries: &'static [(&'static str, &'static str)],
) -> Panel {
    Panel { title, description, unit, is_stat: false, queries }
}

const fn stat(
    title: &'static str,
    description: &'static str,
    unit: &'static str,
    queries: &'static [(&'static str, &'static str)],
) -> Panel {
    Panel { title, description, unit, is_stat: true, queries }
}

const DASHBOARDS: &[&Dashboard] = &[&operations::DASHBOARD, &devices::DASHBOARD];

/// The width of Grafana's grid.
const WIDTH: usize = 24;

/// The dashboards: their files under `config/monitoring`, and the text of each.
///
/// # Errors
/// A dashboard is no JSON, which would be a defect of `serde_json`.
pub(crate) fn files() -> anyhow::Result<Vec<(String, String)>> {
    let written = |dashboard: &&Dashboard| {
        let text = serde_json::to_string_pretty(&dashboard.json()).context("dashboard")?;
        Ok((format!("dashboards/{}.json", dashboard.file), text + "\n"))
    };
    DASHBOARDS.iter().map(written).collect()
}

impl Dashboard {
    fn json(&self) -> Value {
        let mut panels: Vec<Value> = Vec::new();
        let mut top = 0;
        for row in self.rows {
            let place = json!({"h": 1, "w": WIDTH, "x": 0, "y": top});
            panels.push(json!({"type": "row", "title": row.title, "collapsed": false, "gridPos": place,
                "id": panels.len() + 1, "panels": []}));
            top += 1;
            let (width, height) = row.size();
            let in_line = WIDTH / width;
            for (number, panel) in row.panels.iter().enumerate() {
                let (x, y) = (number % in_line * width, top + number / in_line * height);
                let place = json!({"h": height, "w": width, "x": x, "y": y});
                panels.push(panel.json(panels.len() + 1, &place));
            }
            top += row.panels.len().div_ceil(in_line) * height;
        }
        json!({
            "uid": format!("dragoman-{}", self.file),
            "title": self.title,
            "description": self.description,
            "tags": ["dragoman", "kubernetes"],
            "schemaVersion": 39,
            "editable": false,
            "graphTooltip": 1,
            "refresh": "1m",
            "time": {"from": "now-3h", "to": "now"},
            "templating": {"list": [{"name": "datasource", "label": "Data source", "type": "datasource",
                "query": "prometheus", "current": {}, "hide": 0}]},
            "panels": panels,
        })
    }
}

impl Row {
    /// The width and height of its panels: stats are small.
    fn size(&self) -> (usize, usize) {
        if self.panels.iter().all(|panel| panel.is_stat) { (4, 4) } else { (8, 8) }
    }
}

impl Panel {
    fn json(&self, id: usize, place: &Value) -> Value {
        let source = json!({"type": "prometheus", "uid": "${datasource}"});
        let target = |(number, (legend, query)): (usize, &(&str, &str))| {
            let letter = char::from(b'A' + u8::try_from(number).unwrap_or(25));
            json!({"refId": letter.to_string(), "datasource": source, "expr": query, "legendFormat": legend,
                "instant": self.is_stat, "range": !self.is_stat})
        };
        let targets: Vec<Value> = self.queries.iter().enumerate().map(target).collect();
        let options = if self.is_stat {
            json!({"reduceOptions": {"calcs": ["lastNotNull"]}, "textMode": "value_and_name", "graphMode": "none"})
        } else {
            json!({"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}})
        };
        json!({
            "id": id,
            "type": if self.is_stat { "stat" } else { "timeseries" },
            "title": self.title,
            "description": self.description,
            "datasource": source,
            "gridPos": place,
            "fieldConfig": {"defaults": {"unit": self.unit, "min": 0}, "overrides": []},
            "options": options,
            "targets": targets,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panels_do_not_cover_each_other_and_say_what_they_show() {
        for dashboard in DASHBOARDS {
            let json = dashboard.json();
            let mut taken = std::collections::BTreeSet::new();
            for panel in json["panels"].as_array().expect("panels") {
                let at = |name: &str| panel["gridPos"][name].as_u64().expect("a number");
                for x in at("x")..at("x") + at("w") {
                    for y in at("y")..at("y") + at("h") {
                        assert!(x < 24 && taken.insert((x, y)), "{}", panel["title"]);
                    }
                }
            }
            for panel in dashboard.rows.iter().flat_map(|row| row.panels) {
                assert!(!panel.description.is_empty() && !panel.unit.is_empty() && !panel.queries.is_empty());
                for (legend, query) in panel.queries {
                    assert!(!legend.is_empty(), "{query}");
                    assert!(!query.contains("rate(") || query.contains("[$__rate_interval]"), "{query}");
                }
            }
        }
    }
}
