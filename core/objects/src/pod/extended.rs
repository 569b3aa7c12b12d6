//! Extended resources: what containers request beside cpu, memory, hugepages and the like. Device plugins publish them in the status of a
//! Node, or a DeviceClass stands behind them (KEP-5004).

use std::collections::BTreeMap;

use dragoman_quantity::Quantity;

use super::{Container, Pod};
use crate::{Class, Name, Node, ResourceList};

/// The prefix of the extended resource that every DeviceClass is, besides its `extendedResourceName`.
const IMPLICIT: &str = "deviceclass.resource.kubernetes.io/";

/// Whether a resource is an extended one.
fn is_extended(resource: &str) -> bool {
    resource.contains('/') && (!resource.contains("kubernetes.io/") || resource.starts_with(IMPLICIT))
}

/// The extended resources of a list, each with its number. An amount that does not decode is some amount.
fn extended(list: &ResourceList) -> impl Iterator<Item = (Name, i64)> + '_ {
    list.iter().filter(|(name, _)| is_extended(name)).map(|(name, amount)| {
        let units = amount.0.parse::<Quantity>().ok().and_then(|amount| amount.amount.units());
        (name.clone(), units.unwrap_or(1))
    })
}

impl Pod {
    /// Returns the extended resources that the containers of the Pod request, each with how many it takes of its node at most at a
    /// time.
    pub fn extended_resources(&self) -> BTreeMap<Name, i64> {
        let mut running: BTreeMap<Name, i64> = BTreeMap::new();
        let mut most: BTreeMap<Name, i64> = BTreeMap::new();
        let is_sidecar = |container: &Container| container.restart_policy.as_deref() == Some("Always");
        let all = self.spec.init_containers.iter().map(|container| (container, is_sidecar(container)));
        // An init container has ended before the next one starts; a sidecar goes on.
        for (container, goes_on) in all.chain(self.spec.containers.iter().map(|container| (container, true)))
        {
            for (name, units) in of_container(container) {
                let sum = running.get(&name).copied().unwrap_or_default().saturating_add(units);
                if goes_on {
                    running.insert(name.clone(), sum);
                }
                let known = most.entry(name).or_default();
                *known = sum.max(*known);
            }
        }
        most.retain(|_, units| *units > 0);
        most
    }
}

impl Class {
    /// Whether the class stands behind an extended resource: by its `extendedResourceName`, or by its own name.
    pub fn is_behind(&self, resource: &str) -> bool {
        self.extended_resource_name.as_deref() == Some(resource)
            || resource.strip_prefix(IMPLICIT) == Some(&*self.name)
    }
}

impl Node {
    /// Returns the extended resources that device plugins of the node publish, each with how many there are.
    pub fn extended_resources(&self) -> impl Iterator<Item = (Name, i64)> + '_ {
        extended(&self.status.allocatable).filter(|(_, units)| *units > 0)
    }
}

/// The extended resources that a container requests. The API server sets requests to limits; a manifest may lack them.
fn of_container(container: &Container) -> impl Iterator<Item = (Name, i64)> + '_ {
    let of = &container.resources;
    let limits = extended(&of.limits).filter(|(name, _)| !of.requests.contains_key(&**name));
    extended(&of.requests).chain(limits)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_init_container_shares_the_devices_of_those_after_it() {
        let wants = |count: &str| json!({"requests": {"example.com/gpu": count}});
        let side =
            |count: &str| json!({"name": "side", "restartPolicy": "Always", "resources": wants(count)});
        let init = |count: &str| json!({"name": "init", "resources": wants(count)});
        let takes = |before: &[serde_json::Value]| {
            let containers = json!([{"name": "main", "resources": wants("2")}]);
            let pod = json!({"spec": {"initContainers": before, "containers": containers}});
            let pod = serde_json::from_value::<Pod>(pod).expect("a Pod");
            pod.extended_resources().into_values().collect::<Vec<_>>()
        };
        assert_eq!(takes(&[init("2"), side("0")]), [2]);
        assert_eq!(takes(&[init("5"), side("1")]), [5]);
        assert_eq!(takes(&[init("1"), side("1")]), [3]);
        assert_eq!(takes(&[side("1"), init("2")]), [3], "the sidecar runs already");
        assert_eq!(takes(&[side("1"), init("4")]), [5]);
    }
}
