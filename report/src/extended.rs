//! Extended resources of Pods that are backed by a `DeviceClass` (KEP-5004): the claim that a scheduler makes for them when it places the
//! Pod. Until then no object says which devices the Pod waits for.

use dragoman_objects::{Class, Pod, ResourceClaim};
use serde_json::json;

/// The class of an extended resource.
pub(crate) fn class_of<'a>(resource: &str, classes: &'a [Class]) -> Option<&'a Class> {
    classes.iter().find(|class| class.is_behind(resource))
}

/// The name of the claim that stands for the one that a scheduler will make.
pub(crate) fn claim_name(pod: &str) -> String {
    format!("extended-resources-of-{pod}")
}

/// The claim that a scheduler makes for a Pod; `None` if no class stands behind its extended resources. A resource for which
/// `has_plugin` holds is one of a device plugin.
pub fn claim_for(pod: &Pod, classes: &[Class], has_plugin: impl Fn(&str) -> bool) -> Option<ResourceClaim> {
    let requests: Vec<_> = pod
        .extended_resources()
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
            pod.extended_resources().into_iter().map(|(name, of)| (name.to_string(), of)).collect();
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
}
