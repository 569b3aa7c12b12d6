//! `v1` Pod.

mod affinity;
mod extended;

pub use affinity::{
    Affinity, NodeAffinity, PodAffinity, PodAffinityTerm, PreferredTerm, TopologySpreadConstraint,
};

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, DerefMut};

use serde::{Deserialize, Deserializer};

use super::known::known;
use super::{
    AdditionalNodeAllocatableResources, Condition, Meta, Name, NativeResourceClaimStatus,
    NodeAllocatableResourceClaimStatus, ResourceList, Tolerated, Toleration, is_present, or_default,
};

/// A Pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Pod {
    /// `metadata`.
    pub metadata: Meta,
    /// `spec`.
    #[serde(deserialize_with = "or_default")]
    pub spec: PodSpec,
    /// `status`.
    #[serde(deserialize_with = "or_default")]
    pub status: PodStatus,
}

/// `spec` of a Pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    /// `nodeName`; empty while unscheduled.
    #[serde(deserialize_with = "or_default")]
    pub node_name: Name,
    /// `priority`.
    #[serde(deserialize_with = "or_default")]
    pub priority: i32,
    /// `resourceClaims`.
    pub resource_claims: ClaimEntries,
    /// `schedulingGroup`.
    #[serde(deserialize_with = "or_default")]
    pub scheduling_group: SchedulingGroup,
    /// `schedulingGates`.
    #[serde(deserialize_with = "or_default")]
    pub scheduling_gates: Vec<Named>,
    /// `tolerations`.
    #[serde(deserialize_with = "or_default")]
    pub tolerations: Vec<Toleration>,
    /// `nodeSelector`.
    #[serde(deserialize_with = "or_default")]
    pub node_selector: BTreeMap<Name, Name>,
    /// `affinity`.
    #[serde(deserialize_with = "affinity::read")]
    pub affinity: Affinity,
    /// `hostNetwork`: the Pod uses the network of its node.
    #[serde(deserialize_with = "or_default")]
    pub host_network: bool,
    /// `topologySpreadConstraints`.
    pub topology_spread_constraints: Tolerated<Vec<TopologySpreadConstraint>>,
    /// `volumes`.
    pub volumes: Tolerated<Vec<Volume>>,
    /// `containers`.
    #[serde(deserialize_with = "or_default")]
    pub containers: Vec<Container>,
    /// `initContainers`.
    #[serde(deserialize_with = "or_default")]
    pub init_containers: Vec<Container>,
    /// `resources`: the requests and limits of the Pod as a whole.
    pub resources: Option<ResourceRequirements>,
    /// `overhead`: the cost of the RuntimeClass.
    #[serde(deserialize_with = "or_default")]
    pub overhead: ResourceList,
}

/// `spec.schedulingGroup` of a Pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SchedulingGroup {
    /// `podGroupName`.
    pub pod_group_name: Option<Name>,
}

/// An entry of a list whose entries have a name: `spec.schedulingGates`, and `resources.claims` of a
/// container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Hash)]
#[serde(default)]
pub struct Named {
    /// `name`.
    #[serde(deserialize_with = "or_default")]
    pub name: Name,
}

/// An entry of `spec.containers` or `spec.initContainers`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Container {
    /// `name`.
    #[serde(deserialize_with = "or_default")]
    pub name: Name,
    /// `resources`.
    #[serde(deserialize_with = "or_default")]
    pub resources: ResourceRequirements,
    /// `restartPolicy`; `Always` makes an init container a sidecar.
    pub restart_policy: Option<Name>,
    /// `ports`.
    pub ports: Tolerated<Vec<ContainerPort>>,
}

/// An entry of `ports` of a container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerPort {
    /// `containerPort`.
    #[serde(deserialize_with = "or_default")]
    pub container_port: u16,
    /// `hostPort`; zero for none.
    #[serde(deserialize_with = "or_default")]
    pub host_port: u16,
    /// `hostIP`; empty for every address.
    #[serde(rename = "hostIP", deserialize_with = "or_default")]
    pub host_ip: Name,
    /// `protocol`; empty for TCP.
    #[serde(deserialize_with = "or_default")]
    pub protocol: Name,
}

/// An entry of `spec.volumes`, as far as a scheduler asks for it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Volume {
    /// `name`.
    #[serde(deserialize_with = "or_default")]
    pub name: Name,
    /// `persistentVolumeClaim`.
    pub persistent_volume_claim: Option<VolumeClaimSource>,
    /// Whether there is an `ephemeral` volume, which brings a claim of its own.
    #[serde(deserialize_with = "is_present")]
    pub ephemeral: bool,
}

/// `persistentVolumeClaim` of a volume.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeClaimSource {
    /// `claimName`.
    #[serde(deserialize_with = "or_default")]
    pub claim_name: Name,
}

/// `resources` of a container, of a Pod, or of a status.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Hash)]
#[serde(default)]
pub struct ResourceRequirements {
    /// `requests`.
    #[serde(deserialize_with = "or_default")]
    pub requests: ResourceList,
    /// `limits`.
    #[serde(deserialize_with = "or_default")]
    pub limits: ResourceList,
    /// `claims`: the entries of `spec.resourceClaims` that the container names.
    #[serde(deserialize_with = "or_default")]
    pub claims: Vec<Named>,
}

impl Pod {
    /// Sets the requests of containers that have only limits, as the API server does when it stores a Pod. A manifest lacks them.
    pub fn complete_requests(&mut self) {
        for container in self.spec.init_containers.iter_mut().chain(&mut self.spec.containers) {
            let ResourceRequirements { requests, limits, .. } = &mut container.resources;
            for (resource, limit) in limits.iter() {
                requests.entry(resource.clone()).or_insert_with(|| limit.clone());
            }
        }
    }
}

/// `spec.resourceClaims`, of a Pod or of a PodGroup: the first [`MOST`](Self::MOST) entries. A tenant may write 20 000 into one Pod, and
/// each claim that is made for it would cost every reader all of them. Of more entries than that, those count once that name the same claim.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClaimEntries {
    entries: Vec<ClaimEntry>,
    /// Number of the entries after these.
    pub left_out: usize,
}

impl ClaimEntries {
    /// The most entries that are read.
    pub const MOST: usize = 256;
}

impl<'de> Deserialize<'de> for ClaimEntries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut entries = Option::<Vec<ClaimEntry>>::deserialize(deserializer)?.unwrap_or_default();
        if entries.len() > Self::MOST {
            // The same claim again hides no other one.
            let mut named = BTreeSet::new();
            entries.retain(|entry| {
                entry.resource_claim_name.as_ref().is_none_or(|claim| named.insert(claim.clone()))
            });
        }
        let left_out = entries.len().saturating_sub(Self::MOST);
        entries.truncate(Self::MOST);
        if left_out > 0 {
            entries.shrink_to_fit();
        }
        Ok(Self { entries, left_out })
    }
}

impl Deref for ClaimEntries {
    type Target = [ClaimEntry];

    fn deref(&self) -> &Self::Target {
        &self.entries
    }
}

impl DerefMut for ClaimEntries {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.entries
    }
}

impl<'a> IntoIterator for &'a ClaimEntries {
    type Item = &'a ClaimEntry;
    type IntoIter = std::slice::Iter<'a, ClaimEntry>;

    fn into_iter(self) -> Self::IntoIter {
        self.entries.iter()
    }
}

/// An entry of `spec.resourceClaims`, of a Pod or of a PodGroup.
///
/// Every version known today sets exactly one of the two references. An entry with neither comes
/// from a later API.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimEntry {
    /// `name` of the entry, unique in its Pod.
    #[serde(deserialize_with = "or_default")]
    pub name: Name,
    /// `resourceClaimName`: an existing claim.
    pub resource_claim_name: Option<Name>,
    /// `resourceClaimTemplateName`: the claim template from which a claim is generated.
    pub resource_claim_template_name: Option<Name>,
}

impl ClaimEntry {
    /// Whether an entry of a Pod stands for one of its PodGroup's entries: it has the same name and the same reference. The claim
    /// is that of the PodGroup then, for which it is reserved once (KEP-5729).
    pub fn is_of_group(&self, entries: &[Self]) -> bool {
        let is_known = self.resource_claim_name.is_some() != self.resource_claim_template_name.is_some();
        is_known && entries.contains(self)
    }
}

/// `status` of a Pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    /// `phase`.
    #[serde(deserialize_with = "or_default")]
    pub phase: Name,
    /// `message`.
    #[serde(deserialize_with = "or_default")]
    pub message: Name,
    /// `nominatedNodeName`.
    #[serde(deserialize_with = "or_default")]
    pub nominated_node_name: Name,
    /// `resourceClaimStatuses`.
    #[serde(deserialize_with = "or_default")]
    pub resource_claim_statuses: Vec<ClaimEntryStatus>,
    /// `extendedResourceClaimStatus`.
    pub extended_resource_claim_status: Option<ExtendedResourceClaimStatus>,
    /// `conditions`.
    #[serde(deserialize_with = "or_default")]
    pub conditions: Vec<Condition>,
    /// `containerStatuses`.
    #[serde(deserialize_with = "or_default")]
    pub container_statuses: Vec<ContainerStatus>,
    /// `initContainerStatuses`.
    #[serde(deserialize_with = "or_default")]
    pub init_container_statuses: Vec<ContainerStatus>,
    /// `allocatedResources`: what the kubelet has granted the Pod as a whole.
    pub allocated_resources: Option<ResourceList>,
    /// `resources`: what is in force for the Pod as a whole.
    pub resources: Option<ResourceRequirements>,
    /// `nativeResourceClaimStatus`, the draft of KEP-5517.
    pub native_resource_claim_status: Tolerated<Vec<NativeResourceClaimStatus>>,
    /// `nodeAllocatableResourceClaimStatuses`, Kubernetes 1.36 and 1.37.
    #[serde(deserialize_with = "known")]
    pub node_allocatable_resource_claim_statuses: Tolerated<Vec<NodeAllocatableResourceClaimStatus>>,
    /// `additionalNodeAllocatableResources`, Kubernetes 1.38.
    #[serde(deserialize_with = "known")]
    pub additional_node_allocatable_resources: Tolerated<Vec<AdditionalNodeAllocatableResources>>,
}

/// An entry of `status.containerStatuses` or `status.initContainerStatuses`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Hash)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerStatus {
    /// `name` of the container.
    #[serde(deserialize_with = "or_default")]
    pub name: Name,
    /// `allocatedResources`: what the kubelet has granted.
    pub allocated_resources: Option<ResourceList>,
    /// `resources`: what is in force.
    pub resources: Option<ResourceRequirements>,
}

/// An entry of `status.resourceClaimStatuses`, of a Pod or of a PodGroup.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimEntryStatus {
    /// `name` of the entry of `spec.resourceClaims`.
    #[serde(deserialize_with = "or_default")]
    pub name: Name,
    /// `resourceClaimName`; absent means that no claim is needed.
    pub resource_claim_name: Option<Name>,
}

/// `status.extendedResourceClaimStatus` of a Pod (KEP-5004).
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExtendedResourceClaimStatus {
    /// `resourceClaimName`.
    #[serde(deserialize_with = "or_default")]
    pub resource_claim_name: Name,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn entries_beyond_the_most_are_counted_and_not_read() {
        let of = |entries: usize| {
            let entries: Vec<_> = (0..entries).map(|number| json!({"name": number.to_string()})).collect();
            let pod: Pod =
                serde_json::from_value(json!({"spec": {"resourceClaims": entries}})).expect("a Pod");
            (pod.spec.resource_claims.len(), pod.spec.resource_claims.left_out)
        };
        assert_eq!(of(ClaimEntries::MOST), (256, 0));
        assert_eq!(of(20_000), (256, 19_744));
        let mut same: Vec<_> =
            (0..1_100).map(|of| json!({"name": format!("e{of}"), "resourceClaimName": "cheap"})).collect();
        same.push(json!({"name": "last", "resourceClaimName": "dear"}));
        let pod: Pod = serde_json::from_value(json!({"spec": {"resourceClaims": same}})).expect("a Pod");
        let names: Vec<_> =
            pod.spec.resource_claims.iter().map(|of| of.resource_claim_name.as_deref()).collect();
        assert_eq!((names, pod.spec.resource_claims.left_out), (vec![Some("cheap"), Some("dear")], 0));
        let none: Pod = serde_json::from_value(json!({"spec": {"resourceClaims": null}})).expect("a Pod");
        assert!(none.spec.resource_claims.is_empty());
    }
}
