//! Extended resources of Pods that are backed by a `DeviceClass` (KEP-5004): the claim that a scheduler makes for them when it places the
//! Pod. Until then no object says which devices the Pod waits for.

use std::collections::BTreeMap;

use dragoman_objects::{Class, Container, Name, Pod, ResourceClaim};
use dragoman_quantity::Quantity;
use serde_json::json;

/// The prefix of the name that every class has besides its `extendedResourceName`.
const IMPLICIT: &str = "deviceclass.resource.kubernetes.io/";

/// Whether a resource is an extended one: cpu, memory, hugepages and the like are not.
fn is_extended(resource: &str) -> bool {
    resource.contains('/') && (!resource.contains("kubernetes.io/") || resource.starts_with(IMPLICIT))
}

/// The extended resources that the containers of a Pod request, each with how many.
pub(crate) fn requested(pod: &Pod) -> BTreeMap<Name, i64> {
    let mut requested: BTreeMap<Name, i64> = BTreeMap::new();
    let is_sidecar = |container: &&Container| container.restart_policy.as_deref() == Some("Always");
    let sidecars = pod.spec.init_containers.iter().filter(is_sidecar);
    for (name, units) in sidecars.chain(&pod.spec.containers).flat_map(of_container) {
        let known = requested.entry(name).or_default();
        *known = known.saturating_add(units);
    }
    // An init container has ended before the others start, which use its devices.
    let init = pod.spec.init_containers.iter().filter(|container| !is_sidecar(container));
    for (name, units) in init.flat_map(of_container) {
        let known = requested.entry(name).or_default();
        *known = units.max(*known);
    }
    requested.retain(|_, units| *units > 0);
    requested
}

/// The extended resources that a container requests.
fn of_container(container: &Container) -> impl Iterator<Item = (Name, i64)> {
    let of = &container.resources;
    // The API server sets requests to limits.
    let limits = of.limits.iter().filter(|(name, _)| !of.requests.contains_key(&***name));
    let all = of.requests.iter().chain(limits).filter(|(name, _)| is_extended(name));
    all.map(|(name, amount)| {
        let units = amount.0.parse::<Quantity>().ok().and_then(|amount| amount.amount.units());
        // An amount that does not decode is some amount.
        (name.clone(), units.unwrap_or(1))
    })
}

/// The class of an extended resource.
pub(crate) fn class_of<'a>(resource: &str, classes: &'a [Class]) -> Option<&'a Class> {
    let is_it = |class: &&Class| {
        class.extended_resource_name.as_deref() == Some(resource)
            || resource.strip_prefix(IMPLICIT) == Some(&*class.name)
    };
    classes.iter().find(is_it)
}

/// The name of the claim that stands for the one that a scheduler will make.
pub(crate) fn claim_name(pod: &str) -> String {
    format!("extended-resources-of-{pod}")
}

/// The claim that a scheduler makes for a Pod; `None` if no class stands behind its extended resources. A resource for which
/// `has_plugin` holds is one of a device plugin.
pub fn claim_for(pod: &Pod, classes: &[Class], has_plugin: impl Fn(&str) -> bool) -> Option<ResourceClaim> {
    let requests: Vec<_> = requested(pod)
        .iter()
        .filter(|(resource, _)| !has_plugin(resource))
        .filter_map(|(resource, count)| {
            let class = class_of(resource, classes)?;
            // A request has the name of its resource, so that messages say it.
            let exactly =
                json!({"deviceClassName": *class.name, "allocationMode": "ExactCount", "count": count});
            Some(json!({"name": **resource, "exactly": exactly}))
        })
        .collect();
    if requests.is_empty() {
        return None;
    }
    let name = claim_name(&pod.metadata.name);
    let claim = json!({
        "metadata": {"namespace": *pod.metadata.namespace, "name": name, "uid": name,
            "creationTimestamp": pod.metadata.creation_timestamp.as_deref()},
        "spec": {"devices": {"requests": requests}},
    });
    serde_json::from_value(claim).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn pod(resources: &Value) -> Pod {
        let containers =
            json!([{"name": "main", "resources": resources}, {"name": "side", "resources": resources}]);
        let pod = json!({"metadata": {"namespace": "ml", "name": "p"}, "spec": {"containers": containers}});
        serde_json::from_value(pod).expect("a Pod")
    }

    fn class(name: &str, extended: &str) -> Class {
        Class { name: name.into(), extended_resource_name: Some(extended.into()), ..Class::default() }
    }

    #[test]
    fn the_claim_asks_for_the_class_behind_each_resource() {
        let pod = pod(&json!({
            "requests": {"cpu": "1", "hugepages-2Mi": "2Mi", "example.com/gpu": "2", "example.com/none": "1"},
            "limits": {"example.com/gpu": "2", "deviceclass.resource.kubernetes.io/nic": "1", "node.kubernetes.io/x": "1"},
        }));
        let names: Vec<(String, i64)> =
            requested(&pod).into_iter().map(|(name, of)| (name.to_string(), of)).collect();
        let expected =
            [("deviceclass.resource.kubernetes.io/nic", 2), ("example.com/gpu", 4), ("example.com/none", 2)];
        assert_eq!(names, expected.map(|(name, of)| (name.to_owned(), of)));
        let classes = [class("gpu", "example.com/gpu"), class("nic", "")];
        let claim = claim_for(&pod, &classes, |_| false).expect("a claim");
        let asked: Vec<(&str, i64)> = claim
            .spec
            .devices
            .requests
            .iter()
            .map(|request| {
                (&**request.class().expect("a class"), request.exactly.as_ref().expect("exactly").asked.count)
            })
            .collect();
        assert_eq!(asked, [("nic", 2), ("gpu", 4)]);
        assert_eq!(claim_for(&pod, &[class("other", "example.com/other")], |_| false), None);
        assert_eq!(claim_for(&pod, &classes, |_| true), None, "device plugins have them");
    }

    #[test]
    fn an_init_container_shares_the_devices_of_those_after_it() {
        let wants = |count: &str| json!({"requests": {"example.com/gpu": count}});
        let pod = |init: &str, sidecar: &str| {
            let init = json!([{"name": "init", "resources": wants(init)},
                {"name": "side", "restartPolicy": "Always", "resources": wants(sidecar)}]);
            let pod = json!({"spec": {"initContainers": init, "containers": [{"name": "main", "resources": wants("2")}]}});
            requested(&serde_json::from_value::<Pod>(pod).expect("a Pod")).into_values().collect::<Vec<_>>()
        };
        assert_eq!((pod("2", "0"), pod("5", "1"), pod("1", "1")), (vec![2], vec![5], vec![3]));
    }
}
