//! Metrics of devices: how many there are, and what holds them.

use std::collections::BTreeMap;

use dragoman_machinery::metrics::Declare as _;
use dragoman_objects::Name;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::cluster::{Cluster, Devices, Supply};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DriverLabels {
    driver: String,
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PoolLabels {
    driver: String,
    pool: String,
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ClassLabel {
    device_class: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NamespaceLabel {
    claim_namespace: String,
}

/// The metrics.
pub(super) struct DeviceMetrics {
    drivers: Family<DriverLabels, Gauge>,
    pools: Family<PoolLabels, Gauge>,
    classes: Family<ClassLabel, Gauge>,
    namespaces: Family<NamespaceLabel, Gauge>,
    promised_twice: Gauge,
}

/// The most series of a family whose labels are names of objects. The rest is summed up: no tenant can add a series by
/// making a namespace.
const MOST: usize = 20;
/// The label of the rest: no object can have such a name.
const OTHERS: &str = "(others)";

impl DeviceMetrics {
    /// Registers the metrics.
    pub(super) fn register(registry: &mut Registry) -> Self {
        Self {
            drivers: registry.declare(
                "dragoman_devices",
                "Devices by driver and state: published, allocated (a claim holds it), reserved (for \
                 a consumer), idle (allocated and reserved for none), stranded (free, in a pool of \
                 which a claim holds another one)",
            ),
            pools: registry.declare("dragoman_pool_devices", "The same of every pool (--metrics-per-node)"),
            classes: registry.declare(
                "dragoman_class_devices",
                "Allocated devices by the DeviceClass that was asked for: the twenty with most, and the rest",
            ),
            namespaces: registry.declare(
                "dragoman_namespace_devices",
                "Allocated devices by the namespace of their claims: the twenty with most, and the rest",
            ),
            promised_twice: registry.declare(
                "dragoman_devices_promised_twice",
                "Devices, capacities and counters of which claims have more than there is, whether \
                 their Pods run or not",
            ),
        }
    }

    /// Counts the devices of the cluster and those promised twice; those of every pool where `per_pool` is set.
    pub(super) fn measure(&self, cluster: &Cluster, per_pool: bool) {
        let supply = Supply::of(cluster);
        self.drivers.clear();
        let drivers = supply.drivers();
        for (driver, of) in most(drivers.iter().map(|(driver, of)| (driver.as_ref(), *of)), |of| of.published)
        {
            for (state, count) in states(of) {
                self.drivers.get_or_create(&DriverLabels { driver: driver.clone(), state }).set(count);
            }
        }
        self.pools.clear();
        for ((driver, pool), of) in supply.pools.iter().filter(|_| per_pool) {
            for (state, count) in states(*of) {
                let labels = PoolLabels { driver: driver.to_string(), pool: pool.to_string(), state };
                self.pools.get_or_create(&labels).set(count);
            }
        }
        self.promised_twice.set(gauge(cluster.ledger().overdrawn().len()));
        self.classes.clear();
        for (device_class, count) in top(&supply.classes) {
            self.classes.get_or_create(&ClassLabel { device_class }).set(count);
        }
        self.namespaces.clear();
        for (claim_namespace, count) in top(&supply.namespaces) {
            self.namespaces.get_or_create(&NamespaceLabel { claim_namespace }).set(count);
        }
    }
}

fn top(counts: &BTreeMap<Name, usize>) -> Vec<(String, i64)> {
    let counts = counts
        .iter()
        .map(|(name, count)| (name.as_ref(), Devices { allocated: *count, ..Devices::default() }));
    most(counts, |of| of.allocated).into_iter().map(|(name, of)| (name, gauge(of.allocated))).collect()
}

/// The names with most devices, and the sum of all others under a name of its own.
fn most<'a>(
    counts: impl Iterator<Item = (&'a str, Devices)>,
    by: impl Fn(&Devices) -> usize,
) -> Vec<(String, Devices)> {
    let mut counts: Vec<(&str, Devices)> = counts.collect();
    counts.sort_by_key(|(name, of)| (std::cmp::Reverse(by(of)), *name));
    let rest = counts.split_off(counts.len().min(MOST));
    let others: Devices = rest.iter().map(|(_, of)| *of).sum();
    let others = (!rest.is_empty()).then_some((OTHERS, others));
    counts.into_iter().chain(others).map(|(name, of)| (name.to_owned(), of)).collect()
}

fn states(of: Devices) -> [(&'static str, i64); 5] {
    let Devices { published, allocated, reserved, stranded } = of;
    [
        ("published", gauge(published)),
        ("allocated", gauge(allocated)),
        ("reserved", gauge(reserved)),
        ("idle", gauge(allocated.saturating_sub(reserved))),
        ("stranded", gauge(stranded)),
    ]
}

fn gauge(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_is_summed_up() {
        let counts: BTreeMap<Name, usize> = (0..30).map(|n| (format!("ns-{n:02}").into(), n)).collect();
        let top = top(&counts);
        assert_eq!((top.len(), top.first().cloned()), (MOST + 1, Some(("ns-29".to_owned(), 29))));
        assert_eq!(top.last().cloned(), Some((OTHERS.to_owned(), (0..10).sum())));
    }
}
