//! The kinds of the Kubernetes API that Dragoman touches, and their paths.

/// A kind at one group version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Kind {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// Version, for example `v1`.
    pub version: &'static str,
    /// Plural resource name, as RBAC and paths spell it.
    pub plural: &'static str,
    /// `kind` of an object.
    pub kind: &'static str,
}

/// `v1` Pod.
pub const POD: Kind = Kind { group: "", version: "v1", plural: "pods", kind: "Pod" };
/// `resource.k8s.io/v1` ResourceClaim.
pub const RESOURCE_CLAIM: Kind =
    Kind { group: "resource.k8s.io", version: "v1", plural: "resourceclaims", kind: "ResourceClaim" };
/// `resource.k8s.io/v1` ResourceClaimTemplate.
pub const RESOURCE_CLAIM_TEMPLATE: Kind = Kind {
    group: "resource.k8s.io",
    version: "v1",
    plural: "resourceclaimtemplates",
    kind: "ResourceClaimTemplate",
};
/// `coordination.k8s.io/v1` Lease.
pub const LEASE: Kind = Kind { group: "coordination.k8s.io", version: "v1", plural: "leases", kind: "Lease" };
/// `events.k8s.io/v1` Event.
pub const EVENT: Kind = Kind { group: "events.k8s.io", version: "v1", plural: "events", kind: "Event" };
/// `scheduling.k8s.io` PodGroup, newest version first: 1.37 serves `v1beta1`,
/// 1.36 `v1alpha2`. The two have the same fields as far as we read them.
pub const POD_GROUPS: [Kind; 2] = [pod_group("v1beta1"), pod_group("v1alpha2")];

const fn pod_group(version: &'static str) -> Kind {
    Kind { group: "scheduling.k8s.io", version, plural: "podgroups", kind: "PodGroup" }
}

impl Kind {
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

    /// Path of the collection in one namespace.
    pub fn collection_path(&self, namespace: &str) -> String {
        format!("{}/namespaces/{namespace}/{}", self.version_path(), self.plural)
    }

    /// Path of one object, or of a subresource of it.
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
