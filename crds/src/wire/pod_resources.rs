//! A Pod with all fields that accounting reads.

use std::collections::{BTreeMap, BTreeSet};

use dragoman_accounting::amounts::{Amounts, ResourceList};
use dragoman_accounting::cluster::{ClaimName, Pod, PodClaim};
use dragoman_accounting::pod::{Container, ContainerStatus, PodSpecView, PodStatusView, Resources};
use dragoman_accounting::unaccounted::Unaccounted;
use dragoman_accounting::wire::pod_status::{
    AdditionalNodeAllocatableResources, NativeResourceClaimStatus, NodeAllocatableResourceClaimStatus,
    Reading, Recorded, read,
};
use serde::Deserialize;

use super::pod::ExtendedResourceClaimStatus;
use super::{ClaimEntry, ClaimEntryStatus, Meta, or_default};

/// A Pod, as far as its resources are concerned.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct PodResources {
    /// `metadata`.
    #[serde(deserialize_with = "or_default")]
    pub metadata: Meta,
    #[serde(deserialize_with = "or_default")]
    spec: Spec,
    #[serde(deserialize_with = "or_default")]
    status: Status,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    #[serde(deserialize_with = "or_default")]
    containers: Vec<ContainerSpec>,
    #[serde(deserialize_with = "or_default")]
    init_containers: Vec<ContainerSpec>,
    node_name: Option<Box<str>>,
    #[serde(deserialize_with = "or_default")]
    resource_claims: Vec<ClaimEntry>,
    resources: Option<Requirements>,
    #[serde(deserialize_with = "or_default")]
    overhead: ResourceList,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ContainerSpec {
    name: Box<str>,
    #[serde(deserialize_with = "or_default")]
    resources: Requirements,
    restart_policy: Option<Box<str>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Requirements {
    #[serde(deserialize_with = "or_default")]
    requests: ResourceList,
    #[serde(deserialize_with = "or_default")]
    limits: ResourceList,
    #[serde(deserialize_with = "or_default")]
    claims: Vec<Named>,
}

/// An entry of `resources.claims` of a container.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Named {
    name: Box<str>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[expect(clippy::struct_field_names, reason = "the names of the API")]
struct Status {
    phase: Option<Box<str>>,
    #[serde(deserialize_with = "or_default")]
    resource_claim_statuses: Vec<ClaimEntryStatus>,
    extended_resource_claim_status: Option<ExtendedResourceClaimStatus>,
    #[serde(deserialize_with = "or_default")]
    container_statuses: Vec<ContainerState>,
    #[serde(deserialize_with = "or_default")]
    init_container_statuses: Vec<ContainerState>,
    allocated_resources: Option<ResourceList>,
    resources: Option<Requirements>,
    #[serde(deserialize_with = "or_default")]
    conditions: Vec<Condition>,
    #[serde(deserialize_with = "or_default")]
    native_resource_claim_status: Vec<NativeResourceClaimStatus>,
    #[serde(deserialize_with = "or_default")]
    node_allocatable_resource_claim_statuses: Vec<NodeAllocatableResourceClaimStatus>,
    #[serde(deserialize_with = "or_default")]
    additional_node_allocatable_resources: Vec<AdditionalNodeAllocatableResources>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ContainerState {
    name: Box<str>,
    allocated_resources: Option<ResourceList>,
    resources: Option<Requirements>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Condition {
    r#type: Box<str>,
    reason: Option<Box<str>>,
}

impl PodResources {
    /// Returns the Pod with its node and its claims, as accounting reads it.
    pub fn pod(&self) -> Pod {
        let (spec, status) = (&self.spec, &self.status);
        let mut unaccounted = Vec::new();
        let view = self.view(&mut unaccounted);
        let claims = spec.resource_claims.iter().map(|entry| {
            let made = status.resource_claim_statuses.iter().find(|made| made.name == entry.name);
            let claim = match (&entry.resource_claim_name, made.map(|made| &made.resource_claim_name)) {
                (Some(name), _) | (None, Some(Some(name))) => ClaimName::Named(name.as_ref().into()),
                (None, Some(None)) => ClaimName::None,
                (None, None) => ClaimName::NotYet,
            };
            PodClaim { claim, containers: self.naming(&entry.name) }
        });
        // No container names the claim of extended resources.
        let extended = status.extended_resource_claim_status.as_ref();
        let extended =
            extended.map(|extended| &*extended.resource_claim_name).filter(|name| !name.is_empty());
        let extended = extended
            .map(|name| PodClaim { claim: ClaimName::Named(name.into()), containers: BTreeSet::new() });
        Pod {
            node: spec.node_name.clone().filter(|node| !node.is_empty()),
            done: matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")),
            claims: claims.chain(extended).collect(),
            unaccounted,
            view,
        }
    }

    /// The containers that name a claim.
    fn naming(&self, entry: &str) -> BTreeSet<Box<str>> {
        let containers = self.spec.init_containers.iter().chain(&self.spec.containers);
        let naming = containers.filter(|c| c.resources.claims.iter().any(|claim| *claim.name == *entry));
        naming.map(|container| container.name.clone()).collect()
    }

    /// Returns the resource fields. An amount that does not parse goes to `unaccounted`.
    pub fn view(&self, unaccounted: &mut Vec<Unaccounted>) -> PodSpecView {
        let object = format!("Pod {}/{}", self.metadata.namespace, self.metadata.name);
        let mut reader = Reader { object: &object, unaccounted };
        let (spec, status) = (&self.spec, &self.status);
        let recorded = Recorded {
            native: &status.native_resource_claim_status,
            statuses: &status.node_allocatable_resource_claim_statuses,
            additional: &status.additional_node_allocatable_resources,
        };
        let Reading { contributions, recorded: all, conflicts } = read(recorded, &object, reader.unaccounted);
        PodSpecView {
            namespace: self.metadata.namespace.as_ref().into(),
            name: self.metadata.name.as_ref().into(),
            uid: self.metadata.uid.as_ref().into(),
            containers: reader.containers("containers", &spec.containers, &status.container_statuses),
            init_containers: reader.containers(
                "initContainers",
                &spec.init_containers,
                &status.init_container_statuses,
            ),
            pod_level: spec.resources.as_ref().map(|r| reader.requirements("spec.resources", r)),
            overhead: reader.amounts("spec.overhead", &spec.overhead),
            status: PodStatusView {
                allocated: status
                    .allocated_resources
                    .as_ref()
                    .map(|l| reader.amounts("status.allocatedResources", l)),
                actual: status.resources.as_ref().map(|r| reader.requirements("status.resources", r)),
                resize_infeasible: status
                    .conditions
                    .iter()
                    .any(|c| &*c.r#type == "PodResizePending" && c.reason.as_deref() == Some("Infeasible")),
            },
            recorded: all,
            contributions,
            conflicts,
        }
    }
}

struct Reader<'a> {
    object: &'a str,
    unaccounted: &'a mut Vec<Unaccounted>,
}

impl Reader<'_> {
    fn amounts(&mut self, field: &str, list: &ResourceList) -> Amounts {
        Amounts::of_fact(list, self.object, field, self.unaccounted)
    }

    fn requirements(&mut self, field: &str, both: &Requirements) -> Resources {
        Resources {
            requests: self.amounts(&format!("{field}.requests"), &both.requests),
            limits: self.amounts(&format!("{field}.limits"), &both.limits),
        }
    }

    fn containers(
        &mut self,
        list: &str,
        specs: &[ContainerSpec],
        reported: &[ContainerState],
    ) -> Vec<Container> {
        let reported: BTreeMap<&str, &ContainerState> = reported.iter().map(|s| (&*s.name, s)).collect();
        let container = |spec: &ContainerSpec| {
            let name = &spec.name;
            let status = reported.get(&**name).map(|state| ContainerStatus {
                allocated: state
                    .allocated_resources
                    .as_ref()
                    .map(|l| self.amounts(&format!("status of {name}: allocatedResources"), l)),
                actual: state
                    .resources
                    .as_ref()
                    .map(|r| self.requirements(&format!("status of {name}: resources"), r)),
            });
            Container {
                name: name.clone(),
                resources: self.requirements(&format!("spec.{list}[{name}].resources"), &spec.resources),
                sidecar: list == "initContainers" && spec.restart_policy.as_deref() == Some("Always"),
                names_claims: !spec.resources.claims.is_empty(),
                status,
            }
        };
        specs.iter().map(container).collect()
    }
}
