//! Settings of the ledger controller.

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use super::controller::Options;
use super::pod_devices::{AttributeLabel, attribute_labels};

/// Settings of the controller, in flags, variables or a file.
#[derive(Debug, Clone, Default, Args, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[group(skip)]
pub struct Settings {
    /// Nodes whose ledger is published: those with claims, or all [default: with-claims].
    #[arg(long, value_enum)]
    ledger_nodes: Option<LedgerNodes>,
    /// Serve what is taken from every node as metrics, not the sums of the cluster alone.
    #[arg(long, num_args = 0..=1, default_missing_value = "true")]
    metrics_per_node: Option<bool>,
    /// Serve a series for each device of each Pod on a node as metrics, ten thousand at most.
    #[arg(long, num_args = 0..=1, default_missing_value = "true")]
    pod_device_info: Option<bool>,
    /// Attributes of devices that these series have as labels, separated by commas, for example uuid.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pod_device_attributes: Option<Vec<Box<str>>>,
}

/// The nodes whose ledger is published.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum LedgerNodes {
    /// Nodes from which a claim takes something.
    WithClaims,
    /// All nodes.
    All,
}

impl Settings {
    /// The options of the controller.
    ///
    /// # Errors
    /// Names the setting that is wrong.
    pub fn options(self) -> Result<Options, String> {
        Ok(Options {
            all_nodes: self.ledger_nodes == Some(LedgerNodes::All),
            metrics_per_node: self.metrics_per_node.unwrap_or(false),
            pod_devices: pod_devices(self.pod_device_info, self.pod_device_attributes)?,
        })
    }
}

/// Returns the labels of attributes that the metric of devices of Pods has, if it is served.
///
/// # Errors
/// An attribute is wrong, or there are some and the metric is not served.
fn pod_devices(
    is_served: Option<bool>,
    attributes: Option<Vec<Box<str>>>,
) -> Result<Option<Vec<AttributeLabel>>, String> {
    if is_served == Some(true) {
        let labels = attribute_labels(&attributes.unwrap_or_default());
        return labels.map(Some).map_err(|why| format!("--pod-device-attributes: {why}"));
    }
    match attributes {
        Some(_) => Err("--pod-device-attributes: needs --pod-device-info".to_owned()),
        None => Ok(None),
    }
}
