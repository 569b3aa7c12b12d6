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
        let mut requested: BTreeMap<Name, i64> = BTreeMap::new();
        let is_sidecar = |container: &&Container| container.restart_policy.as_deref() == Some("Always");
        let sidecars = self.spec.init_containers.iter().filter(is_sidecar);
        for (name, units) in sidecars.chain(&self.spec.containers).flat_map(of_container) {
            let known = requested.entry(name).or_default();
            *known = known.saturating_add(units);
        }
        // An init container has ended before the others start, which use its devices.
        let init = self.spec.init_containers.iter().filter(|container| !is_sidecar(container));
        for (name, units) in init.flat_map(of_container) {
            let known = requested.entry(name).or_default();
            *known = units.max(*known);
        }
        requested.retain(|_, units| *units > 0);
        requested
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
        let pod = |init: &str, sidecar: &str| {
            let init = json!([{"name": "init", "resources": wants(init)},
                {"name": "side", "restartPolicy": "Always", "resources": wants(sidecar)}]);
            let pod = json!({"spec": {"initContainers": init, "containers": [{"name": "main", "resources": wants("2")}]}});
            serde_json::from_value::<Pod>(pod)
                .expect("a Pod")
                .extended_resources()
                .into_values()
                .collect::<Vec<_>>()
        };
        assert_eq!((pod("2", "0"), pod("5", "1"), pod("1", "1")), (vec![2], vec![5], vec![3]));
    }
}
