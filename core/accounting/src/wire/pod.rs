//! A Pod as accounting reads it.

use std::collections::BTreeMap;

use dragoman_objects::{
    ClaimEntryStatus, Container, ContainerStatus, Name, Pod, ResourceList, ResourceRequirements, Tolerated,
};

use super::pod_status::{Reading, Recorded, read};
use crate::amounts::Amounts;
use crate::cluster::{self, ClaimName, PodClaim};
use crate::few::Few;
use crate::pod::{self, PodSpecView, PodStatusView, Resources};
use crate::unaccounted::Unaccounted;

impl From<&Pod> for cluster::Pod {
    fn from(pod: &Pod) -> Self {
        let (spec, status) = (&pod.spec, &pod.status);
        let mut unaccounted = Vec::new();
        let view = PodSpecView::of(pod, &mut unaccounted);
        let made: BTreeMap<&str, &ClaimEntryStatus> =
            status.resource_claim_statuses.iter().rev().map(|made| (&*made.name, made)).collect();
        let mut naming = naming(pod);
        let claims = spec.resource_claims.iter().map(|entry| {
            let made = made.get(&*entry.name);
            let claim = match (&entry.resource_claim_name, made.map(|made| &made.resource_claim_name)) {
                (Some(name), _) | (None, Some(Some(name))) => ClaimName::Named(name.clone()),
                (None, Some(None)) => ClaimName::None,
                (None, None) => ClaimName::NotYet,
            };
            PodClaim { claim, containers: naming.remove(&*entry.name).unwrap_or_default(), extended: false }
        });
        // No container names the claim of extended resources.
        let extended = status.extended_resource_claim_status.as_ref();
        let extended = extended.map(|extended| &extended.resource_claim_name).filter(|name| !name.is_empty());
        let extended = extended.map(|name| PodClaim {
            claim: ClaimName::Named(name.clone()),
            containers: Few::default(),
            extended: true,
        });
        Self {
            node: Some(&*spec.node_name).filter(|node| !node.is_empty()).map(Into::into),
            holder: false,
            done: matches!(&*status.phase, "Succeeded" | "Failed"),
            claims: claims.chain(extended).collect(),
            left_out: spec.resource_claims.left_out,
            unaccounted,
            view,
        }
    }
}

/// The containers that name each entry.
fn naming(pod: &Pod) -> BTreeMap<&str, Few<Name>> {
    let mut naming = BTreeMap::<&str, Few<Name>>::new();
    for container in pod.spec.init_containers.iter().chain(&pod.spec.containers) {
        for claim in &container.resources.claims {
            naming.entry(&claim.name).or_default().insert(container.name.clone());
        }
    }
    naming
}

impl PodSpecView {
    /// Returns the resource fields of a Pod. An amount that does not parse, and a list that does not decode,
    /// goes to `unaccounted`.
    pub fn of(pod: &Pod, unaccounted: &mut Vec<Unaccounted>) -> Self {
        let object = format!("Pod {}/{}", pod.metadata.namespace, pod.metadata.name);
        let mut reader = Reader { object: &object, unaccounted };
        let (spec, status) = (&pod.spec, &pod.status);
        let recorded = Recorded {
            native: reader.list("nativeResourceClaimStatus", &status.native_resource_claim_status),
            statuses: reader.list(
                "nodeAllocatableResourceClaimStatuses",
                &status.node_allocatable_resource_claim_statuses,
            ),
            additional: reader
                .list("additionalNodeAllocatableResources", &status.additional_node_allocatable_resources),
        };
        let Reading { contributions, recorded: all, conflicts } = read(recorded, &object, reader.unaccounted);
        Self {
            namespace: pod.metadata.namespace.clone(),
            name: pod.metadata.name.clone(),
            uid: pod.metadata.uid.clone(),
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
                    .any(|c| &*c.r#type == "PodResizePending" && &*c.reason == "Infeasible"),
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
    /// The entries of a list in the status.
    fn list<'a, T>(&mut self, field: &str, list: &'a Tolerated<Vec<T>>) -> &'a [T] {
        match list {
            Tolerated::Read(list) => list,
            Tolerated::Unreadable(why) => {
                self.unaccounted.push(Unaccounted {
                    object: self.object.into(),
                    field: format!("status.{field}").into(),
                    resource: None,
                    why: why.clone(),
                });
                &[]
            }
        }
    }

    fn amounts(&mut self, field: &str, list: &ResourceList) -> Amounts {
        Amounts::of_fact(list, self.object, field, self.unaccounted)
    }

    fn requirements(&mut self, field: &str, both: &ResourceRequirements) -> Resources {
        Resources {
            requests: self.amounts(&format!("{field}.requests"), &both.requests),
            limits: self.amounts(&format!("{field}.limits"), &both.limits),
        }
    }

    fn containers(
        &mut self,
        list: &str,
        specs: &[Container],
        reported: &[ContainerStatus],
    ) -> Vec<pod::Container> {
        let reported: BTreeMap<&str, &ContainerStatus> = reported.iter().map(|s| (&*s.name, s)).collect();
        let container = |spec: &Container| {
            let name = &spec.name;
            let status = reported.get(&**name).map(|state| pod::ContainerStatus {
                allocated: state
                    .allocated_resources
                    .as_ref()
                    .map(|l| self.amounts(&format!("status of {name}: allocatedResources"), l)),
                actual: state
                    .resources
                    .as_ref()
                    .map(|r| self.requirements(&format!("status of {name}: resources"), r)),
            });
            pod::Container {
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
