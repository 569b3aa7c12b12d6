//! Allocations, reduced to what the snapshot is asked about. A cluster has tens of thousands of them.

use std::collections::HashMap;
use std::sync::Arc;

use dragoman_objects::{Allocation, DeviceResult, NodeSelector};

/// The selectors that allocations share: nearly every allocation is for one node, and all for a node have
/// the same.
#[derive(Debug, Default)]
pub(super) struct Pins {
    by_node: HashMap<Arc<str>, Arc<NodeSelector>>,
    /// The number of nodes at which those without an allocation are forgotten.
    sweep_at: usize,
}

impl Pins {
    /// Reduces an allocation to its devices, the amounts of them that it has, and its nodes.
    pub(super) fn reduce(&mut self, allocation: &mut Allocation) {
        allocation.devices.config = Vec::new();
        for result in &mut allocation.devices.results {
            let whole = std::mem::take(result);
            let DeviceResult { driver, pool, device, admin_access, share_id, consumed_capacity, .. } = whole;
            *result = DeviceResult {
                driver,
                pool,
                device,
                admin_access,
                share_id,
                consumed_capacity,
                ..DeviceResult::default()
            };
        }
        let node = node_of(allocation).cloned();
        let Some((node, selector)) = node.zip(allocation.node_selector.as_mut()) else { return };
        if self.by_node.len() >= self.sweep_at {
            self.by_node.retain(|_, selector| Arc::strong_count(selector) > 1);
            self.sweep_at = (2 * self.by_node.len()).max(1024);
        }
        let known = self.by_node.entry(node).or_insert_with(|| Arc::clone(selector));
        if known == selector {
            *selector = Arc::clone(known);
        }
    }
}

/// The node of an allocation by name, if it names one.
pub(super) fn node_of(allocation: &Allocation) -> Option<&Arc<str>> {
    allocation.node_selector.as_ref()?.node()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn allocation(node: &str, zone: &str) -> Allocation {
        let decoded = serde_json::from_value(json!({
            "devices": {"results": [{"request": "gpu", "driver": "d", "pool": "p", "device": "x", "shareID": "s",
                "consumedCapacity": {"memory": "1Gi"}, "bindingConditions": ["c"]}],
                "config": [{"source": "FromClass", "requests": ["gpu"]}]},
            "nodeSelector": {"nodeSelectorTerms": [{
                "matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}],
                "matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]},
        }));
        decoded.expect("an allocation")
    }

    #[test]
    fn devices_amounts_and_nodes_stay() {
        let (mut pins, whole) = (Pins::default(), allocation("n", "a"));
        let mut reduced = whole.clone();
        pins.reduce(&mut reduced);
        let (was, is) = (&whole.devices.results[0], &reduced.devices.results[0]);
        assert_eq!((&was.driver, &was.pool, &was.device), (&is.driver, &is.pool, &is.device));
        assert_eq!((&was.share_id, &was.consumed_capacity), (&is.share_id, &is.consumed_capacity));
        assert_eq!(was.admin_access, is.admin_access);
        assert_eq!(whole.node_selector, reduced.node_selector);
        assert!(reduced.devices.config.is_empty() && is.binding_conditions.is_empty());
    }

    #[test]
    fn only_equal_selectors_are_shared() {
        let mut pins = Pins::default();
        let mut reduced = |node: &str, zone: &str| {
            let mut allocation = allocation(node, zone);
            pins.reduce(&mut allocation);
            allocation.node_selector.expect("a selector")
        };
        let first = reduced("n", "a");
        assert!(Arc::ptr_eq(&first, &reduced("n", "a")));
        assert_ne!(first, reduced("n", "b"));
        assert_ne!(first, reduced("m", "a"));
    }

    #[test]
    fn nodes_without_allocations_are_forgotten() {
        let mut pins = Pins::default();
        for number in 0..5_000 {
            pins.reduce(&mut allocation(&number.to_string(), "a"));
        }
        assert!(pins.by_node.len() <= 1024, "{}", pins.by_node.len());
    }
}
