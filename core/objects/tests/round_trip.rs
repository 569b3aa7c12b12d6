//! Compares the slim types with the types of `k8s-openapi`: the fields that Dragoman reads are
//! equal, whatever other fields an object has.

#![expect(clippy::expect_used, reason = "a test: clippy knows only functions marked as such")]

use dragoman_objects as objects;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::resource::v1 as resource;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use proptest::prelude::*;
use serde_json::{Value, json};

fn name() -> impl Strategy<Value = String> {
    "[a-z][a-z0-9-]{0,12}"
}

fn maybe<T: std::fmt::Debug + Clone + 'static>(
    some: impl Strategy<Value = T> + 'static,
) -> BoxedStrategy<Option<T>> {
    prop::option::of(some).boxed()
}

prop_compose! {
    fn meta()(
        (name, uid, version) in (name(), name(), 0_u32..),
        namespace in maybe(name()),
        deleting in any::<bool>(),
        finalizers in maybe(prop::collection::vec(name(), 0..3)),
        labels in maybe(prop::collection::btree_map(name(), name(), 0..3)),
        entry in maybe(name()),
        owners in maybe(prop::collection::vec((name(), name(), any::<Option<bool>>()), 0..3)),
    ) -> ObjectMeta {
        let time = Time("2026-01-02T03:04:05Z".parse().expect("time"));
        let annotations = entry.map(|e| [("resource.kubernetes.io/pod-claim-name".to_owned(), e)].into());
        let mut controlled = false;
        let owner_references = owners.map(|owners| owners.into_iter().map(|(kind, name, controller)| {
            // The API server accepts at most one controller.
            let controller = controller.filter(|c| !c || !std::mem::replace(&mut controlled, true));
            OwnerReference { api_version: "v1".into(), kind, uid: format!("{name}-uid"), name, controller, block_owner_deletion: None }
        }).collect());
        ObjectMeta {
            name: Some(name), namespace, uid: Some(uid), resource_version: Some(version.to_string()),
            creation_timestamp: Some(time.clone()), deletion_timestamp: deleting.then_some(time),
            finalizers, labels, annotations, owner_references, ..ObjectMeta::default()
        }
    }
}

prop_compose! {
    fn pod()(
        metadata in meta(),
        node_name in maybe(name()),
        entries in maybe(prop::collection::vec((name(), maybe(name()), maybe(name())), 0..4)),
        group in maybe(maybe(name())),
        phase in maybe(prop::sample::select(vec!["Pending", "Running", "Succeeded", "Failed", "Unknown"])),
        statuses in maybe(prop::collection::vec((name(), maybe(name())), 0..4)),
        extended in maybe(name()),
    ) -> core::Pod {
        core::Pod {
            metadata,
            spec: Some(core::PodSpec {
                node_name,
                containers: vec![core::Container { name: "c".into(), ..core::Container::default() }],
                resource_claims: entries.map(|e| e.into_iter().map(|(name, resource_claim_name, resource_claim_template_name)| {
                    core::PodResourceClaim { name, resource_claim_name, resource_claim_template_name }
                }).collect()),
                scheduling_group: group.map(|pod_group_name| core::PodSchedulingGroup { pod_group_name }),
                ..core::PodSpec::default()
            }),
            status: Some(core::PodStatus {
                phase: phase.map(str::to_owned),
                resource_claim_statuses: statuses.map(|s| s.into_iter().map(|(name, resource_claim_name)| {
                    core::PodResourceClaimStatus { name, resource_claim_name }
                }).collect()),
                extended_resource_claim_status: extended.map(|resource_claim_name| core::PodExtendedResourceClaimStatus {
                    resource_claim_name, request_mappings: vec![],
                }),
                ..core::PodStatus::default()
            }),
        }
    }
}

prop_compose! {
    fn claim()(
        metadata in meta(),
        admin in prop::collection::vec(any::<Option<Option<bool>>>(), 0..3),
        allocated in any::<bool>(),
        consumers in maybe(prop::collection::vec((maybe(name()), name(), name(), name()), 0..4)),
        status in any::<bool>(),
    ) -> resource::ResourceClaim {
        let requests = admin.into_iter().enumerate().map(|(i, exactly)| resource::DeviceRequest {
            name: format!("r{i}"),
            exactly: exactly.map(|admin_access| resource::ExactDeviceRequest {
                admin_access, device_class_name: "class".into(), ..resource::ExactDeviceRequest::default()
            }),
            ..resource::DeviceRequest::default()
        }).collect();
        let devices = resource::DeviceClaim { requests: Some(requests), ..resource::DeviceClaim::default() };
        resource::ResourceClaim {
            metadata,
            spec: resource::ResourceClaimSpec { devices: Some(devices) },
            status: status.then(|| resource::ResourceClaimStatus {
                allocation: allocated.then(resource::AllocationResult::default),
                reserved_for: consumers.map(|c| c.into_iter().map(|(api_group, resource, name, uid)| {
                    resource::ResourceClaimConsumerReference { api_group, resource, name, uid }
                }).collect()),
                devices: None,
            }),
        }
    }
}

/// Adds fields that a later version or another writer may add.
fn noise(mut object: Value) -> Value {
    for pointer in ["", "/metadata", "/spec", "/status"] {
        if let Some(Value::Object(map)) = object.pointer_mut(pointer) {
            map.insert("fromTheFuture".to_owned(), json!({"deep": [1, "x", null, {"y": 2.5}]}));
        }
    }
    if let Some(Value::Object(map)) = object.pointer_mut("/metadata") {
        map.insert("managedFields".to_owned(), json!([{"manager": "m", "fieldsV1": {"f:spec": {}}}]));
        map.insert("selfLink".to_owned(), Value::Null);
    }
    object
}

fn slim<T: serde::de::DeserializeOwned>(full: &impl serde::Serialize) -> T {
    let object = noise(serde_json::to_value(full).expect("full object"));
    serde_json::from_str(&object.to_string()).expect("slim object")
}

fn text(value: Option<&String>) -> &str {
    value.map_or("", String::as_str)
}

fn same_meta(slim: &objects::Meta, full: &ObjectMeta) {
    assert_eq!(&*slim.name, text(full.name.as_ref()));
    assert_eq!(&*slim.namespace, text(full.namespace.as_ref()));
    assert_eq!(&*slim.uid, text(full.uid.as_ref()));
    assert_eq!(&*slim.resource_version, text(full.resource_version.as_ref()));
    assert_eq!(slim.deleting, full.deletion_timestamp.is_some());
    assert_eq!(slim.creation_timestamp.as_deref(), Some("2026-01-02T03:04:05Z"));
    let finalizers: Vec<&str> = slim.finalizers.iter().map(|f| &**f).collect();
    assert_eq!(finalizers, full.finalizers.as_deref().unwrap_or_default());
    let entry = full.annotations.as_ref().and_then(|a| a.get(objects::annotation::POD_CLAIM_NAME));
    assert_eq!(
        slim.annotation("resource.kubernetes.io/pod-claim-name").map(|name| &**name),
        entry.map(String::as_str)
    );
    let controller = full.owner_references.iter().flatten().find(|o| o.controller == Some(true));
    assert_eq!(slim.controller.as_ref().map(|o| &*o.uid), controller.map(|o| o.uid.as_str()));
    assert_eq!(slim.controller.as_ref().map(|o| &*o.kind), controller.map(|o| o.kind.as_str()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn pods(full in pod()) {
        let slim: objects::Pod = slim(&full);
        same_meta(&slim.metadata, &full.metadata);
        let spec = full.spec.expect("spec");
        let status = full.status.expect("status");
        assert_eq!(&*slim.spec.node_name, text(spec.node_name.as_ref()));
        assert_eq!(&*slim.status.phase, text(status.phase.as_ref()));
        let group = spec.scheduling_group.and_then(|g| g.pod_group_name);
        assert_eq!(slim.spec.scheduling_group.pod_group_name.as_deref(), group.as_deref());
        let entries = spec.resource_claims.unwrap_or_default();
        assert_eq!(slim.spec.resource_claims.len(), entries.len());
        for (slim, full) in slim.spec.resource_claims.iter().zip(&entries) {
            assert_eq!(&*slim.name, full.name);
            assert_eq!(slim.resource_claim_name.as_deref(), full.resource_claim_name.as_deref());
            assert_eq!(slim.resource_claim_template_name.as_deref(), full.resource_claim_template_name.as_deref());
        }
        let statuses = status.resource_claim_statuses.unwrap_or_default();
        assert_eq!(slim.status.resource_claim_statuses.len(), statuses.len());
        for (slim, full) in slim.status.resource_claim_statuses.iter().zip(&statuses) {
            assert_eq!(&*slim.name, full.name);
            assert_eq!(slim.resource_claim_name.as_deref(), full.resource_claim_name.as_deref());
        }
        let extended = status.extended_resource_claim_status.map(|s| s.resource_claim_name);
        let read = slim.status.extended_resource_claim_status.map(|s| s.resource_claim_name.to_string());
        assert_eq!(read, extended);
    }

    #[test]
    fn claims(full in claim()) {
        let slim: objects::ResourceClaim = slim(&full);
        same_meta(&slim.metadata, &full.metadata);
        let requests = full.spec.devices.and_then(|d| d.requests).unwrap_or_default();
        let admin = requests.iter().any(|r| r.exactly.as_ref().is_some_and(|e| e.admin_access == Some(true)));
        assert_eq!(slim.admin_access(), admin);
        let status = full.status.unwrap_or_default();
        assert_eq!(slim.status.allocation.is_some(), status.allocation.is_some());
        let consumers = status.reserved_for.unwrap_or_default();
        assert_eq!(slim.status.reserved_for.len(), consumers.len());
        for (slim, full) in slim.status.reserved_for.iter().zip(&consumers) {
            assert_eq!(&*slim.api_group, text(full.api_group.as_ref()));
            assert_eq!((&*slim.resource, &*slim.name, &*slim.uid), (&*full.resource, &*full.name, &*full.uid));
        }
    }
}

#[test]
fn null_is_absent_everywhere() {
    let pod: objects::Pod = serde_json::from_value(json!({
        "metadata": {"name": "p", "uid": "u", "finalizers": null, "annotations": null, "ownerReferences": null, "deletionTimestamp": null},
        "spec": {"nodeName": null, "resourceClaims": null, "schedulingGroup": null},
        "status": null,
    })).expect("pod");
    assert!(!pod.metadata.deleting && pod.spec.resource_claims.is_empty());
    let claim: objects::ResourceClaim = serde_json::from_value(json!({
        "metadata": {"name": "c"}, "spec": {"devices": {"requests": null}}, "status": {"allocation": null, "reservedFor": null},
    })).expect("claim");
    assert!(claim.status.allocation.is_none() && claim.status.reserved_for.is_empty());
}

#[test]
fn a_field_of_an_unknown_shape_leaves_its_object_readable() {
    let pod: objects::Pod = serde_json::from_value(json!({
        "metadata": {"namespace": "ns", "name": "p"}, "spec": {"nodeName": "n"},
        "status": {"phase": "Running", "nodeAllocatableResourceClaimStatuses": {"of": "a later version"}},
    }))
    .expect("pod");
    assert_eq!(&*pod.status.phase, "Running");
    let claim: objects::ResourceClaim = serde_json::from_value(json!({
        "metadata": {"name": "c"}, "status": {"allocation": {"devices": {"results": "later"}}, "reservedFor": [{"uid": "u"}]},
    }))
    .expect("claim");
    assert!(claim.status.allocation.is_some() && claim.status.reserved_for.len() == 1);
    let why = claim.decoded_allocation().expect_err("its devices are not known");
    assert!(why.starts_with("status.allocation: "), "{why}");
}

/// Quotas, admission and the life of a claim do not depend on what its requests ask for in detail.
#[test]
fn a_claim_whose_requests_do_not_decode_says_its_classes_and_admin_access() {
    let read = |devices: Value| -> objects::ResourceClaim {
        let claim = json!({"metadata": {"name": "c"}, "spec": {"devices": devices}, "status": {"reservedFor": [{"uid": "u"}]}});
        serde_json::from_str(&claim.to_string()).expect("claim")
    };
    let exactly = |more: Value| {
        let mut exactly = json!({"deviceClassName": "gpu", "adminAccess": true});
        exactly.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
        json!([{"name": "r", "exactly": exactly}, {"name": "s", "firstAvailable": [{"name": "t", "deviceClassName": "big", "later": 1}]}])
    };
    for (more, beside) in [
        (json!({}), json!({"constraints": "later"})),
        (json!({"selectors": [{"later": {}}]}), json!({})),
        (json!({"count": "many"}), json!({})),
    ] {
        let mut devices = json!({"requests": exactly(more)});
        devices.as_object_mut().expect("an object").extend(beside.as_object().cloned().unwrap_or_default());
        let claim = read(devices);
        assert!(claim.admin_access() && claim.status.reserved_for.len() == 1);
        assert_eq!(claim.class_of("r").map(|class| &**class), Some("gpu"));
        assert_eq!(claim.class_of("s/t").map(|class| &**class), Some("big"));
        let unread = claim.spec.devices.requests.iter().any(|request| request.unreadable.is_some());
        assert!(unread || claim.spec.devices.unreadable.is_some());
    }
}

#[test]
fn a_template_keeps_its_payload_to_the_letter() {
    let text = r#"{"metadata":{"name":"t"},"spec":{"metadata":{"labels":{"a":"b"},"x":1},"spec":{"devices":{"y": [1.50]}}}}"#;
    let template: objects::ResourceClaimTemplate = serde_json::from_str(text).expect("template");
    assert_eq!(template.spec.spec.expect("spec").get(), r#"{"devices":{"y": [1.50]}}"#);
    assert_eq!(template.spec.metadata.expect("metadata").get(), r#"{"labels":{"a":"b"},"x":1}"#);
}
