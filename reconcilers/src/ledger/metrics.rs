//! Metrics of the ledger: sums over the cluster, and those of every node where that is asked for.
//!
//! Resources are those that some Node has: a Pod cannot add a series.

use std::collections::BTreeMap;

use dragoman_accounting::ledger::fit::Headroom;
use dragoman_accounting::ledger::{Bucket, NodeLedger};
use dragoman_accounting::resource::Resource;
use dragoman_machinery::metrics::{Declare as _, FloatGauge};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::devices::DeviceMetrics;
use super::pod_devices::PodDeviceMetrics;
use crate::cluster::Cluster;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    resource: String,
    part: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NodeLabels {
    node: String,
    resource: String,
    part: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    state: &'static str,
}

/// The metrics.
pub(super) struct LedgerMetrics {
    amounts: Family<Labels, FloatGauge>,
    of_nodes: Family<NodeLabels, FloatGauge>,
    nodes: Family<StateLabels, Gauge>,
    unaccounted: Gauge,
    devices: DeviceMetrics,
    pub(super) pod_devices: PodDeviceMetrics,
    /// The age of the oldest change of a ledger that is not published.
    pub(super) oldest_unpublished: Gauge,
    /// Statuses that were published.
    pub(super) published: Counter,
}

/// The parts of an account.
const PARTS: [(&str, Bucket); 4] = [
    ("pods", Bucket::Pods),
    ("mapping", Bucket::Mapping),
    ("overhead", Bucket::Overhead),
    ("reserved", Bucket::Reservation),
];

impl LedgerMetrics {
    /// Registers the metrics.
    pub(super) fn register(registry: &mut Registry) -> Self {
        Self {
            amounts: registry.declare(
                "dragoman_ledger_amount",
                "What nodes have and what is taken from them: cpu in cores, the rest in bytes",
            ),
            of_nodes: registry
                .declare("dragoman_ledger_node_amount", "The same of every node (--metrics-per-node)"),
            nodes: registry.declare("dragoman_ledger_nodes", "Nodes by what is known of them"),
            unaccounted: registry.declare(
                "dragoman_ledger_unaccounted_facts",
                "Facts about Pods, claims, devices and nodes that are missing or cannot be read",
            ),
            oldest_unpublished: registry.declare(
                "dragoman_ledger_oldest_unpublished_change_seconds",
                "Age of the oldest change of a node's ledger that is not published yet",
            ),
            published: registry.declare("dragoman_ledger_published", "Ledgers of nodes written"),
            devices: DeviceMetrics::register(registry),
            pod_devices: PodDeviceMetrics::register(registry),
        }
    }

    /// Computes the gauges from the ledger.
    pub(super) fn measure(&self, cluster: &Cluster, per_node: bool) {
        let mut sums: BTreeMap<(Resource, &'static str), f64> = BTreeMap::new();
        let (mut overcommitted, mut unknown, mut all, mut facts) = (0, 0, 0, 0);
        self.of_nodes.clear();
        // A node that only Pods name is no node.
        let nodes = cluster.ledger().nodes().filter(|(name, _)| cluster.nodes.get("", name).is_some());
        for (name, node) in nodes {
            all += 1;
            overcommitted += i64::from(is_overcommitted(node));
            let unaccounted = node.unaccounted().count();
            unknown += i64::from(unaccounted > 0);
            facts += i64::try_from(unaccounted).unwrap_or(i64::MAX);
            for resource in node.resources().into_iter().filter(|of| node.allocatable(*of) > 0) {
                for (part, amount) in parts(node, resource) {
                    *sums.entry((resource, part)).or_default() += amount;
                    if per_node {
                        let labels =
                            NodeLabels { node: name.to_string(), resource: resource.to_string(), part };
                        self.of_nodes.get_or_create(&labels).set(amount);
                    }
                }
            }
        }
        // A resource that no node has any more disappears.
        self.amounts.clear();
        for ((resource, part), amount) in sums {
            self.amounts.get_or_create(&Labels { resource: resource.to_string(), part }).set(amount);
        }
        for (state, count) in [("all", all), ("overcommitted", overcommitted), ("unaccounted", unknown)] {
            self.nodes.get_or_create(&StateLabels { state }).set(count);
        }
        self.unaccounted.set(facts);
        self.devices.measure(cluster, per_node);
    }
}

fn is_overcommitted(node: &NodeLedger) -> bool {
    node.resources().into_iter().any(|of| node.short_by(of).is_some())
}

/// The amounts of one resource, in cores or bytes. What is left may be below zero.
fn parts(node: &NodeLedger, resource: Resource) -> impl Iterator<Item = (&'static str, f64)> + '_ {
    #[expect(clippy::cast_precision_loss, reason = "a gauge")]
    let in_units = move |count: i128| {
        let per_unit = if resource == Resource::Cpu { 1000.0 } else { 1.0 };
        count as f64 / per_unit
    };
    let taken = PARTS.into_iter().map(move |(part, bucket)| (part, in_units(node.charged(bucket, resource))));
    let left = match node.headroom(resource) {
        Headroom::Left(left) => Some(("left", in_units(left))),
        Headroom::Unknown => None,
    };
    [("allocatable", in_units(node.allocatable(resource).into()))].into_iter().chain(taken).chain(left)
}
