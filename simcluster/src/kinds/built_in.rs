//! The built-in resources of a profile.

use super::{Profile, Resource};

/// Group version, kind, plural, short names, scope (`n` for namespaced, `c` for cluster), subresources.
type Row = (&'static str, &'static str, &'static str, &'static [&'static str], char, &'static [&'static str]);

const ROWS: &[Row] = &[
    ("v1", "ConfigMap", "configmaps", &["cm"], 'n', &[]),
    ("v1", "Event", "events", &["ev"], 'n', &[]),
    ("v1", "Namespace", "namespaces", &["ns"], 'c', &["finalize", "status"]),
    ("v1", "Node", "nodes", &["no"], 'c', &["status"]),
    ("v1", "PersistentVolume", "persistentvolumes", &["pv"], 'c', &["status"]),
    ("v1", "PersistentVolumeClaim", "persistentvolumeclaims", &["pvc"], 'n', &["status"]),
    ("v1", "Pod", "pods", &["po"], 'n', &["binding", "resize", "status"]),
    ("v1", "ReplicationController", "replicationcontrollers", &["rc"], 'n', &["status"]),
    ("v1", "ResourceQuota", "resourcequotas", &["quota"], 'n', &["status"]),
    ("v1", "Secret", "secrets", &[], 'n', &[]),
    ("v1", "Service", "services", &["svc"], 'n', &["status"]),
    ("v1", "ServiceAccount", "serviceaccounts", &["sa"], 'n', &["token"]),
    ("apps/v1", "Deployment", "deployments", &["deploy"], 'n', &["status"]),
    ("apps/v1", "ReplicaSet", "replicasets", &["rs"], 'n', &["status"]),
    ("apps/v1", "StatefulSet", "statefulsets", &["sts"], 'n', &["status"]),
    ("coordination.k8s.io/v1", "Lease", "leases", &[], 'n', &[]),
    ("events.k8s.io/v1", "Event", "events", &["ev"], 'n', &[]),
    ("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies", &["netpol"], 'n', &[]),
    ("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets", &["pdb"], 'n', &["status"]),
    ("rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles", &[], 'c', &[]),
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "clusterrolebindings", &[], 'c', &[]),
    ("rbac.authorization.k8s.io/v1", "Role", "roles", &[], 'n', &[]),
    ("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings", &[], 'n', &[]),
    ("storage.k8s.io/v1", "CSIDriver", "csidrivers", &[], 'c', &[]),
    ("storage.k8s.io/v1", "CSINode", "csinodes", &[], 'c', &[]),
    ("storage.k8s.io/v1", "CSIStorageCapacity", "csistoragecapacities", &[], 'n', &[]),
    ("storage.k8s.io/v1", "StorageClass", "storageclasses", &["sc"], 'c', &[]),
    ("storage.k8s.io/v1", "VolumeAttachment", "volumeattachments", &[], 'c', &["status"]),
    ("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses", &["pc"], 'c', &[]),
    (
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        &["crd", "crds"],
        'c',
        &["status"],
    ),
    ("resource.k8s.io/v1", "DeviceClass", "deviceclasses", &[], 'c', &[]),
    ("resource.k8s.io/v1", "ResourceClaim", "resourceclaims", &[], 'n', &["status"]),
    ("resource.k8s.io/v1", "ResourceClaimTemplate", "resourceclaimtemplates", &[], 'n', &[]),
    ("resource.k8s.io/v1", "ResourceSlice", "resourceslices", &[], 'c', &[]),
];

/// Reviews are not stored: they can only be created.
const REVIEWS: &[(&str, &str, &str)] = &[
    ("authorization.k8s.io/v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews"),
    ("authorization.k8s.io/v1", "SelfSubjectRulesReview", "selfsubjectrulesreviews"),
    ("authentication.k8s.io/v1", "SelfSubjectReview", "selfsubjectreviews"),
];

/// Returns the built-in resources that a profile serves.
pub(crate) fn built_in(profile: &Profile) -> Vec<Resource> {
    let mut all: Vec<Resource> = ROWS.iter().map(|row| resource(*row, &[])).collect();
    let review = |(group, kind, plural): &(&'static str, &'static str, &'static str)| {
        resource((group, kind, plural, &[], 'c', &[]), &["create"])
    };
    all.extend(REVIEWS.iter().map(review));
    match profile.pod_groups() {
        Some("v1alpha2") => all.push(pod_groups("scheduling.k8s.io/v1alpha2")),
        Some(_) => all.push(pod_groups("scheduling.k8s.io/v1beta1")),
        None => {}
    }
    if profile.minor >= 37 {
        let row: Row = ("resource.k8s.io/v1", "DeviceTaintRule", "devicetaintrules", &[], 'c', &["status"]);
        all.push(resource(row, &[]));
    }
    all
}

fn pod_groups(version: &'static str) -> Resource {
    resource((version, "PodGroup", "podgroups", &[], 'n', &["status"]), &[])
}

fn resource((version, kind, plural, short, place, subresources): Row, verbs: &[&str]) -> Resource {
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    Resource {
        group: group.to_owned(),
        version: version.to_owned(),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
        singular: kind.to_lowercase(),
        short: owned(short),
        namespaced: place == 'n',
        subresources: owned(subresources),
        verbs: owned(verbs),
    }
}
