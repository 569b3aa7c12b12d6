//! Extended resources that are backed by device classes, and the claims that the scheduler creates for them.

use std::collections::BTreeSet;

use dragoman_quantity::Quantity;
use serde_json::{Value, json};

use crate::api::meta;

/// The prefix of the implicit resource name of every class, which it has besides its `extendedResourceName`.
const IMPLICIT: &str = "deviceclass.resource.kubernetes.io/";

/// The request of one container for one class.
struct Request<'a> {
    container: &'a str,
    resource: &'a str,
    class: &'a str,
    count: u64,
    name: String,
}

fn requests<'a>(pod: &'a Value, classes: &'a [&'a Value]) -> Vec<Request<'a>> {
    let class_of = |resource: &str| {
        let named = |class: &&&Value| {
            class["spec"]["extendedResourceName"] == resource
                || resource.strip_prefix(IMPLICIT) == Some(meta::text(class, "name"))
        };
        classes.iter().find(named).map(|class| meta::text(class, "name"))
    };
    let containers =
        meta::items(&pod["spec"]["initContainers"]).chain(meta::items(&pod["spec"]["containers"]));
    let of_container = |(number, container): (usize, &'a Value)| {
        let amounts = &container["resources"]["requests"];
        let resources: BTreeSet<&'a str> =
            amounts.as_object().into_iter().flatten().map(|(resource, _)| &**resource).collect();
        let wanted = resources.into_iter().filter_map(|resource| {
            let class = class_of(resource)?;
            let amount = amounts[resource].as_str()?.parse::<Quantity>().ok()?.amount;
            let count = u64::try_from(amount.units()?).ok().filter(|count| *count > 0)?;
            Some((resource, class, count))
        });
        wanted
            .enumerate()
            .map(|(place, (resource, class, count))| Request {
                container: container["name"].as_str().unwrap_or_default(),
                resource,
                class,
                count,
                name: format!("container-{number}-request-{place}"),
            })
            .collect::<Vec<_>>()
    };
    containers.enumerate().flat_map(of_container).collect()
}

/// Returns the claim to create for the extended resources of a Pod, or `None` if it requests none.
pub(super) fn claim_for(pod: &Value, classes: &[&Value]) -> Option<Value> {
    let requests = requests(pod, classes);
    let request = |request: &Request<'_>| {
        json!({"name": request.name, "exactly": {
            "deviceClassName": request.class, "allocationMode": "ExactCount", "count": request.count,
        }})
    };
    let owner = json!({
        "apiVersion": "v1", "kind": "Pod", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"],
        "controller": true, "blockOwnerDeletion": true,
    });
    (!requests.is_empty()).then(|| {
        json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {
                "namespace": pod["metadata"]["namespace"],
                "generateName": format!("{}-extended-resources-", meta::text(pod, "name")),
                "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
                "ownerReferences": [owner],
            },
            "spec": {"devices": {"requests": requests.iter().map(request).collect::<Vec<_>>()}},
        })
    })
}

/// Returns the name of the claim for extended resources in the status of a Pod.
pub(super) fn made(pod: &Value) -> Option<&str> {
    pod["status"]["extendedResourceClaimStatus"]["resourceClaimName"].as_str()
}

/// Returns the patch of a Pod's status that names the claim.
pub(super) fn naming(pod: &Value, classes: &[&Value], claim: &str) -> Value {
    let mapping = |request: &Request<'_>| json!({"containerName": request.container, "resourceName": request.resource, "requestName": request.name});
    let mappings: Vec<Value> = requests(pod, classes).iter().map(mapping).collect();
    json!({
        "metadata": {"uid": pod["metadata"]["uid"]},
        "status": {"extendedResourceClaimStatus": {"resourceClaimName": claim, "requestMappings": mappings}},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_request_classes_by_their_names() {
        let named = json!({"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": "example.com/gpu"}});
        let plain = json!({"metadata": {"name": "nic"}, "spec": {}});
        let container = |amounts: Value| json!({"name": "c", "resources": {"requests": amounts}});
        let pod = json!({
            "metadata": {"name": "pod", "namespace": "ns", "uid": "u"},
            "spec": {
                "initContainers": [container(json!({"cpu": "1"}))],
                "containers": [container(json!({
                    "example.com/gpu": "2", "deviceclass.resource.kubernetes.io/nic": "1", "example.com/other": "1",
                }))],
            },
        });
        let claim = claim_for(&pod, &[&named, &plain]).expect("claim");
        let requests: Vec<_> = meta::items(&claim["spec"]["devices"]["requests"])
            .map(|request| {
                (
                    request["name"].clone(),
                    request["exactly"]["deviceClassName"].clone(),
                    request["exactly"]["count"].clone(),
                )
            })
            .collect();
        assert_eq!(
            requests,
            [
                (json!("container-1-request-0"), json!("nic"), json!(1)),
                (json!("container-1-request-1"), json!("gpu"), json!(2)),
            ]
        );
        assert!(claim_for(&pod, &[]).is_none());
    }
}
