//! A Pod, as far as it takes something from its node.

use crate::amounts::Amounts;
use crate::contribution::Contribution;

/// What a Pod's spec and status say about resources.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodSpecView {
    /// `spec.containers`.
    pub containers: Vec<Container>,
    /// `spec.initContainers`, in order.
    pub init_containers: Vec<Container>,
    /// `spec.resources`, Pod level (KEP-2837).
    pub pod_level: Option<Resources>,
    /// `spec.overhead`.
    pub overhead: Amounts,
    /// What the kubelet says of the Pod as a whole.
    pub status: PodStatusView,
    /// What its claims bring along: as its status records it, or as it would.
    pub contributions: Vec<Contribution>,
}

/// Requests and limits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resources {
    /// `requests`.
    pub requests: Amounts,
    /// `limits`.
    pub limits: Amounts,
}

/// A container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Container {
    /// `name`.
    pub name: Box<str>,
    /// `resources`.
    pub resources: Resources,
    /// Whether it is an init container that keeps running (`restartPolicy: Always`).
    pub sidecar: bool,
    /// Its entry in `status.containerStatuses` or `status.initContainerStatuses`.
    pub status: Option<ContainerStatus>,
}

/// What the kubelet says of a container, for resizes in place (KEP-1287).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContainerStatus {
    /// `allocatedResources`: what the kubelet has agreed to.
    pub allocated: Option<Amounts>,
    /// `resources`: what is in force.
    pub actual: Option<Resources>,
}

/// What the kubelet says of the Pod, for resizes in place at Pod level (KEP-5419).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodStatusView {
    /// `status.allocatedResources`.
    pub allocated: Option<Amounts>,
    /// `status.resources`.
    pub actual: Option<Resources>,
    /// Whether the condition `PodResizePending` has the reason `Infeasible`.
    pub resize_infeasible: bool,
}
