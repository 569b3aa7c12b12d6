//! `v1` Pod.

use std::collections::BTreeMap;

use dragoman_accounting::amounts::ResourceList;
use dragoman_accounting::wire::pod_status::{
    AdditionalNodeAllocatableResources, NativeResourceClaimStatus, NodeAllocatableResourceClaimStatus,
};
use serde::{Deserialize, Deserializer, de};
use serde_json::Value;

use super::{Condition, Meta, Name, Tolerated, or_default};

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
    #[serde(deserialize_with = "or_default")]
    pub resource_claims: Vec<ClaimEntry>,
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
    #[serde(deserialize_with = "affinity")]
    pub affinity: Affinity,
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

/// `spec.affinity` of a Pod, as far as a patch has to know what is there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Affinity {
    /// `nodeAffinity`.
    pub node_affinity: Option<NodeAffinity>,
    /// Whether the field is there at all.
    #[serde(skip)]
    pub is_there: bool,
}

impl Affinity {
    /// The only node that the required terms leave, by its name. Terms are alternatives.
    pub fn node(&self) -> Option<&str> {
        let affinity = self.node_affinity.as_ref()?;
        let required = affinity.required_during_scheduling_ignored_during_execution.as_ref()?;
        let mut nodes =
            required.node_selector_terms.iter().map(|term| term.match_fields.as_ref()?.node.as_deref());
        let first = nodes.next()??;
        nodes.all(|other| other == Some(first)).then_some(first)
    }
}

fn affinity<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Affinity, D::Error> {
    let affinity = Option::<Affinity>::deserialize(deserializer)?;
    Ok(affinity.map(|affinity| Affinity { is_there: true, ..affinity }).unwrap_or_default())
}

/// `spec.affinity.nodeAffinity` of a Pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeAffinity {
    /// `requiredDuringSchedulingIgnoredDuringExecution`.
    pub required_during_scheduling_ignored_during_execution: Option<RequiredNodes>,
}

/// A node selector.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequiredNodes {
    /// `nodeSelectorTerms`, as far as a patch has to know them.
    pub node_selector_terms: Vec<Term>,
    /// The whole of it.
    pub selector: Value,
}

impl<'de> Deserialize<'de> for RequiredNodes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let selector = Value::deserialize(deserializer)?;
        let terms = selector.get("nodeSelectorTerms").filter(|terms| !terms.is_null());
        let terms = terms.map(Vec::<Term>::deserialize).transpose();
        let node_selector_terms = terms.map_err(de::Error::custom)?.unwrap_or_default();
        Ok(Self { node_selector_terms, selector })
    }
}

/// A term of a node selector.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Term {
    /// `matchFields`, if the field is there.
    pub match_fields: Option<Fields>,
}

/// `matchFields` of a term, as far as it is read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fields {
    /// The node that they name: `metadata.name` in a list of one. A field can be nothing else.
    pub node: Option<Name>,
}

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Field {
            #[serde(deserialize_with = "or_default")]
            key: Name,
            #[serde(deserialize_with = "or_default")]
            operator: Name,
            #[serde(deserialize_with = "or_default")]
            values: Vec<Name>,
        }
        let fields = Vec::<Field>::deserialize(deserializer)?;
        let mut named = fields.into_iter().filter(|of| &*of.key == "metadata.name" && &*of.operator == "In");
        Ok(Self { node: named.find_map(|of| of.values.into_iter().next()) })
    }
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
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Named {
    /// `name`.
    #[serde(deserialize_with = "or_default")]
    pub name: Name,
}

/// An entry of `spec.tolerations`. An empty field matches as the API says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Toleration {
    /// `key`.
    #[serde(deserialize_with = "or_default")]
    pub key: Name,
    /// `operator`.
    #[serde(deserialize_with = "or_default")]
    pub operator: Name,
    /// `value`.
    #[serde(deserialize_with = "or_default")]
    pub value: Name,
    /// `effect`.
    #[serde(deserialize_with = "or_default")]
    pub effect: Name,
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
}

/// `resources` of a container, of a Pod, or of a status.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
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
    pub node_allocatable_resource_claim_statuses: Tolerated<Vec<NodeAllocatableResourceClaimStatus>>,
    /// `additionalNodeAllocatableResources`, Kubernetes 1.38.
    pub additional_node_allocatable_resources: Tolerated<Vec<AdditionalNodeAllocatableResources>>,
}

/// An entry of `status.containerStatuses` or `status.initContainerStatuses`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
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
