//! The kinds of the Kubernetes API that Dragoman touches, and their paths.

use crate::lease::Lease;
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use dragoman_crds::crdgen::{GROUP, VERSION};
use dragoman_crds::device_footprint::DeviceFootprint;
use dragoman_crds::driver_owner::DriverOwner;
use dragoman_crds::node_allocatable_dra_claim_state::NodeAllocatableDRAClaimState;
use dragoman_objects::{
    DeviceClass, DeviceTaintRule, Node, Object, PersistentVolume, PersistentVolumeClaim, Pod, PodGroup,
    ResourceClaim, ResourceClaimTemplate, ResourceSlice, StorageClass,
};

/// Where objects of a kind live.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// Beside the namespaces: Nodes, ResourceSlices.
    Cluster,
    /// In a namespace each.
    Namespaced,
}

/// A kind at one group version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Kind {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// Version, for example `v1`.
    pub version: &'static str,
    /// Plural resource name, as RBAC and paths spell it.
    pub plural: &'static str,
    /// `kind` of an object.
    pub kind: &'static str,
    /// Where its objects live.
    pub scope: Scope,
}

const fn namespaced(
    group: &'static str,
    version: &'static str,
    plural: &'static str,
    kind: &'static str,
) -> Kind {
    Kind { group, version, plural, kind, scope: Scope::Namespaced }
}

const fn cluster(
    group: &'static str,
    version: &'static str,
    plural: &'static str,
    kind: &'static str,
) -> Kind {
    Kind { group, version, plural, kind, scope: Scope::Cluster }
}

const fn admission(plural: &'static str, kind: &'static str) -> Kind {
    cluster("admissionregistration.k8s.io", "v1", plural, kind)
}

/// `v1` Pod.
pub const POD: Kind = namespaced("", "v1", "pods", "Pod");
/// `v1` Namespace.
pub const NAMESPACE: Kind = cluster("", "v1", "namespaces", "Namespace");
/// `rbac.authorization.k8s.io/v1` Role.
pub const ROLE: Kind = namespaced("rbac.authorization.k8s.io", "v1", "roles", "Role");
/// `rbac.authorization.k8s.io/v1` `RoleBinding`.
pub const ROLE_BINDING: Kind = namespaced("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding");
/// `v1` Node.
pub const NODE: Kind = cluster("", "v1", "nodes", "Node");
/// `resource.k8s.io/v1` ResourceClaim.
pub const RESOURCE_CLAIM: Kind = namespaced("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim");
/// `resource.k8s.io/v1` ResourceClaimTemplate.
pub const RESOURCE_CLAIM_TEMPLATE: Kind =
    namespaced("resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate");
/// `resource.k8s.io` ResourceSlice, newest version first. Dragoman reads the same fields of each;
/// in `v1beta1` those of a device are under `basic`.
pub const RESOURCE_SLICES: [Kind; 3] = [
    cluster("resource.k8s.io", "v1", "resourceslices", "ResourceSlice"),
    cluster("resource.k8s.io", "v1beta2", "resourceslices", "ResourceSlice"),
    cluster("resource.k8s.io", "v1beta1", "resourceslices", "ResourceSlice"),
];
/// `resource.k8s.io/v1` DeviceClass.
pub const DEVICE_CLASS: Kind = cluster("resource.k8s.io", "v1", "deviceclasses", "DeviceClass");
/// `resource.k8s.io` DeviceTaintRule, newest version first, with the same fields as far as Dragoman reads
/// them.
pub const DEVICE_TAINT_RULES: [Kind; 3] = [
    cluster("resource.k8s.io", "v1", "devicetaintrules", "DeviceTaintRule"),
    cluster("resource.k8s.io", "v1beta2", "devicetaintrules", "DeviceTaintRule"),
    cluster("resource.k8s.io", "v1alpha3", "devicetaintrules", "DeviceTaintRule"),
];
/// `v1` PersistentVolumeClaim.
pub const PERSISTENT_VOLUME_CLAIM: Kind =
    namespaced("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim");
/// `v1` PersistentVolume.
pub const PERSISTENT_VOLUME: Kind = cluster("", "v1", "persistentvolumes", "PersistentVolume");
/// `storage.k8s.io/v1` StorageClass.
pub const STORAGE_CLASS: Kind = cluster("storage.k8s.io", "v1", "storageclasses", "StorageClass");
/// `admissionregistration.k8s.io/v1` policies in CEL, and what binds them.
pub const ADMISSION_POLICIES: [Kind; 4] = [
    admission("mutatingadmissionpolicies", "MutatingAdmissionPolicy"),
    admission("mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding"),
    admission("validatingadmissionpolicies", "ValidatingAdmissionPolicy"),
    admission("validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding"),
];
/// `dragoman.dev/v1alpha1` NodeAllocatableDRAClaimState.
pub const NODE_ALLOCATABLE_DRA_CLAIM_STATE: Kind =
    cluster(GROUP, VERSION, "nodeallocatabledraclaimstates", "NodeAllocatableDRAClaimState");
/// `dragoman.dev/v1alpha1` ClaimGate.
pub const CLAIM_GATE: Kind = cluster(GROUP, VERSION, "claimgates", "ClaimGate");
/// `dragoman.dev/v1alpha1` DriverOwner.
pub const DRIVER_OWNER: Kind = cluster(GROUP, VERSION, "driverowners", "DriverOwner");
/// `dragoman.dev/v1alpha1` DeviceFootprint.
pub const DEVICE_FOOTPRINT: Kind = cluster(GROUP, VERSION, "devicefootprints", "DeviceFootprint");
/// `apps/v1` Deployment.
pub const DEPLOYMENT: Kind = namespaced("apps", "v1", "deployments", "Deployment");
/// `coordination.k8s.io/v1` Lease.
pub const LEASE: Kind = namespaced("coordination.k8s.io", "v1", "leases", "Lease");
/// `events.k8s.io/v1` Event.
pub const EVENT: Kind = namespaced("events.k8s.io", "v1", "events", "Event");
/// `authorization.k8s.io/v1` `SelfSubjectAccessReview`.
pub const SELF_SUBJECT_ACCESS_REVIEW: Kind =
    cluster("authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview");
/// `authentication.k8s.io/v1` `SelfSubjectReview`.
pub const SELF_SUBJECT_REVIEW: Kind =
    cluster("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview");
/// `authorization.k8s.io/v1` `SubjectAccessReview`.
pub const SUBJECT_ACCESS_REVIEW: Kind =
    cluster("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview");
/// `authentication.k8s.io/v1` `TokenReview`.
pub const TOKEN_REVIEW: Kind = cluster("authentication.k8s.io", "v1", "tokenreviews", "TokenReview");
/// `scheduling.k8s.io` PodGroup, newest version first: 1.37 serves `v1beta1`,
/// 1.36 `v1alpha2`. The two have the same fields as far as Dragoman reads them.
pub const POD_GROUPS: [Kind; 2] = [
    namespaced("scheduling.k8s.io", "v1beta1", "podgroups", "PodGroup"),
    namespaced("scheduling.k8s.io", "v1alpha2", "podgroups", "PodGroup"),
];

/// A type of objects that can be watched.
pub trait Watchable: Object + Send + 'static {
    /// The versions in which an API server may serve the kind, newest first. They must have the
    /// same fields as far as the type reads them.
    const KINDS: &'static [Kind];
    /// The newest version.
    #[expect(clippy::indexing_slicing, reason = "evaluated by the compiler")]
    const NEWEST: Kind = Self::KINDS[0];
    /// Whether a process does nothing while it may not list the kind. What another kind lacks narrows the controllers that keep it.
    const NEEDED: bool = false;
}

impl Watchable for Pod {
    const KINDS: &'static [Kind] = &[POD];
    const NEEDED: bool = true;
}

impl Watchable for Node {
    const KINDS: &'static [Kind] = &[NODE];
    const NEEDED: bool = true;
}

impl Watchable for ResourceClaim {
    const KINDS: &'static [Kind] = &[RESOURCE_CLAIM];
    const NEEDED: bool = true;
}

impl Watchable for ResourceClaimTemplate {
    const KINDS: &'static [Kind] = &[RESOURCE_CLAIM_TEMPLATE];
    const NEEDED: bool = true;
}

impl Watchable for ResourceSlice {
    const KINDS: &'static [Kind] = &RESOURCE_SLICES;
}

impl Watchable for PodGroup {
    const KINDS: &'static [Kind] = &POD_GROUPS;
}

impl Watchable for DeviceClass {
    const KINDS: &'static [Kind] = &[DEVICE_CLASS];
}

impl Watchable for DeviceTaintRule {
    const KINDS: &'static [Kind] = &DEVICE_TAINT_RULES;
}

impl Watchable for PersistentVolumeClaim {
    const KINDS: &'static [Kind] = &[PERSISTENT_VOLUME_CLAIM];
}

impl Watchable for PersistentVolume {
    const KINDS: &'static [Kind] = &[PERSISTENT_VOLUME];
}

impl Watchable for StorageClass {
    const KINDS: &'static [Kind] = &[STORAGE_CLASS];
}

impl Watchable for DriverOwner {
    const KINDS: &'static [Kind] = &[DRIVER_OWNER];
}

impl Watchable for DeviceFootprint {
    const KINDS: &'static [Kind] = &[DEVICE_FOOTPRINT];
}

impl Watchable for NodeAllocatableDRAClaimState {
    const KINDS: &'static [Kind] = &[NODE_ALLOCATABLE_DRA_CLAIM_STATE];
}

impl Watchable for Lease {
    const KINDS: &'static [Kind] = &[LEASE];
}

impl Kind {
    /// Whether the kind is one of Dragoman's own, which a cluster serves once its definition has been applied.
    pub fn is_own(self) -> bool {
        self.group == GROUP
    }

    /// Whether both are the same resource, in whichever version.
    pub fn is(self, other: Self) -> bool {
        (self.group, self.plural) == (other.group, other.plural)
    }

    /// The same resource in another version. Each version is remembered for the life of the process:
    /// an API server serves few.
    #[must_use]
    pub fn in_version(self, version: &str) -> Self {
        static KNOWN: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let version = known.get(version).copied().unwrap_or_else(|| {
            let version: &'static str = version.to_owned().leak();
            known.insert(version);
            version
        });
        Self { version, ..self }
    }

    /// `apiVersion` of an object, for example `resource.k8s.io/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Path of the group version, for example `/apis/resource.k8s.io/v1`.
    pub fn version_path(&self) -> String {
        if self.group.is_empty() {
            format!("/api/{}", self.version)
        } else {
            format!("/apis/{}/{}", self.group, self.version)
        }
    }

    /// Path of the collection over all namespaces.
    pub fn all_path(&self) -> String {
        format!("{}/{}", self.version_path(), self.plural)
    }

    /// Path of the collection in one namespace; that of the cluster for cluster-scoped kinds,
    /// whatever `namespace` says.
    pub fn collection_path(&self, namespace: &str) -> String {
        match self.scope {
            Scope::Cluster => self.all_path(),
            Scope::Namespaced => format!("{}/namespaces/{namespace}/{}", self.version_path(), self.plural),
        }
    }

    /// Path of one object, or of a subresource of it; `namespace` counts for namespaced kinds only.
    pub fn object_path(&self, namespace: &str, name: &str, subresource: Option<&str>) -> String {
        let collection = self.collection_path(namespace);
        match subresource {
            Some(subresource) => format!("{collection}/{name}/{subresource}"),
            None => format!("{collection}/{name}"),
        }
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.group.is_empty() {
            f.write_str(self.plural)
        } else {
            write!(f, "{}.{}", self.plural, self.group)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_a_namespace_where_the_kind_has_one() {
        assert_eq!(POD.object_path("a", "b", Some("status")), "/api/v1/namespaces/a/pods/b/status");
        assert_eq!(NODE.object_path("", "n", None), "/api/v1/nodes/n");
        assert_eq!(RESOURCE_SLICES[0].collection_path("ignored"), "/apis/resource.k8s.io/v1/resourceslices");
    }
}
