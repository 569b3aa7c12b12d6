//! Pods, as far as they take resources of their node.

pub mod advice;
pub mod budget;
pub mod cgroups;
mod container_totals;
pub mod limits;
mod merged;
pub mod policy;
pub mod requests;
pub mod resize;

use dragoman_objects::Name;

use crate::Uid;
use crate::amounts::Amounts;
use crate::claim::contribution::Contribution;
use crate::per_resource::PerResource;
use crate::resource::Resource;
use crate::wire::pod_status::Conflict;

/// The resource fields of a Pod's spec and status.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodSpecView {
    /// `metadata.namespace`.
    pub namespace: Name,
    /// `metadata.name`.
    pub name: Name,
    /// `metadata.uid`.
    pub uid: Uid,
    /// `spec.containers`.
    pub containers: Vec<Container>,
    /// `spec.initContainers`, in order.
    pub init_containers: Vec<Container>,
    /// `spec.resources`, the Pod-level resources (KEP-2837).
    pub pod_level: Option<Resources>,
    /// `spec.overhead`.
    pub overhead: Amounts,
    /// The status of the Pod as a whole.
    pub status: PodStatusView,
    /// The contributions of its claims: as recorded in the status, as computed, or both merged.
    pub contributions: Vec<Contribution>,
    /// The contributions in the status, as kube-scheduler reads them.
    pub recorded: Vec<Contribution>,
    /// The contradictions between generations in the status.
    pub conflicts: Vec<Conflict>,
}

/// Requests and limits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Resources {
    /// `requests`.
    pub requests: Amounts,
    /// `limits`.
    pub limits: Amounts,
}

/// A container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Container {
    /// `name`.
    pub name: Name,
    /// `resources`.
    pub resources: Resources,
    /// Whether the container is an init container that keeps running (`restartPolicy: Always`).
    pub sidecar: bool,
    /// Whether `resources.claims` names any claim.
    pub names_claims: bool,
    /// The entry of the container in `status.containerStatuses` or `status.initContainerStatuses`.
    pub status: Option<ContainerStatus>,
}

/// The status of a container, for resizes in place (KEP-1287).
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct ContainerStatus {
    /// `allocatedResources`: the requests that the kubelet has agreed to.
    pub allocated: Option<Amounts>,
    /// `resources`: the requests and limits in force.
    pub actual: Option<Resources>,
}

/// The status of the Pod, for resizes in place at Pod level (KEP-5419).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodStatusView {
    /// `status.allocatedResources`.
    pub allocated: Option<Amounts>,
    /// `status.resources`.
    pub actual: Option<Resources>,
    /// Whether the condition `PodResizePending` has the reason `Infeasible`.
    pub resize_infeasible: bool,
}

impl PodSpecView {
    /// The name of the Pod in messages: `Pod NAMESPACE/NAME`.
    pub fn object(&self) -> String {
        format!("Pod {}/{}", self.namespace, self.name)
    }

    /// The init containers, then the containers.
    pub fn all_containers(&self) -> impl Iterator<Item = &Container> {
        self.init_containers.iter().chain(&self.containers)
    }

    /// Empties the limits. No charge depends on them; [`budget`] and [`advice`] do.
    pub fn forget_limits(&mut self) {
        let containers = self.init_containers.iter_mut().chain(&mut self.containers);
        for Container { resources, status, .. } in containers {
            resources.limits = Amounts::default();
            if let Some(actual) = status.as_mut().and_then(|status| status.actual.as_mut()) {
                actual.limits = Amounts::default();
            }
        }
        for resources in self.pod_level.iter_mut().chain(&mut self.status.actual) {
            resources.limits = Amounts::default();
        }
    }

    /// Every resource that the Pod or its claims name anywhere, sorted.
    pub fn resources(&self) -> impl Iterator<Item = Resource> {
        let mut named = PerResource::<bool>::default();
        let mut both = |resources: &Resources| {
            resources.requests.mark(&mut named);
            resources.limits.mark(&mut named);
        };
        for container in self.all_containers() {
            both(&container.resources);
            container.status.iter().flat_map(|status| &status.actual).for_each(&mut both);
        }
        self.pod_level.iter().chain(&self.status.actual).for_each(both);
        let agreed = self.all_containers().flat_map(|container| &container.status);
        let agreed = agreed.flat_map(|status| &status.allocated).chain(&self.status.allocated);
        agreed.chain([&self.overhead]).for_each(|amounts| amounts.mark(&mut named));
        let lines = self.contributions.iter().flat_map(|contribution| &contribution.lines);
        lines.for_each(|line| named.set(line.resource, true));
        named.into_names()
    }
}
