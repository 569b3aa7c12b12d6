//! The amounts that the claims of a Pod bring along: whether its Pod-level resources allow them, and what the kubelet makes of them.

use dragoman_accounting::cluster::{self, ClusterLedger, Rules};
use dragoman_accounting::pod::PodSpecView;
use dragoman_accounting::pod::advice::{Advice, advice};
use dragoman_accounting::pod::budget::{Checks, unschedulable};
use dragoman_accounting::pod::cgroups::Kubelet;
use dragoman_accounting::unaccounted::Unaccounted;
use dragoman_objects::Pod;
use dragoman_reconcilers::protocol::GATE;

/// The amounts that ResourceSlices and DeviceFootprints declare for devices.
#[derive(Debug, Default)]
pub(crate) struct Costs {
    pub(crate) slices: Vec<cluster::Slice>,
    pub(crate) footprints: Vec<cluster::DeviceFootprint>,
    /// Boxed: facts are handed from future to future.
    ledger: Box<ClusterLedger>,
    /// Whether a slice has amounts: then the API server has the field, and kube-scheduler counts them.
    has_published: bool,
}

impl Costs {
    /// Everything has been read.
    pub(crate) fn settle(&mut self) {
        self.ledger = ClusterLedger::new(Rules::default()).into();
        for slice in std::mem::take(&mut self.slices) {
            self.has_published |= slice.devices.iter().any(|device| !device.device.cost.resources.is_empty());
            self.ledger.put_slice(slice);
        }
        for footprint in std::mem::take(&mut self.footprints) {
            self.ledger.put_footprint(footprint);
        }
    }

    /// Adds what was read at the same time.
    pub(crate) fn merge(&mut self, other: Self) {
        self.slices.extend(other.slices);
        self.footprints.extend(other.footprints);
    }

    /// A number for a device, as the search asks for it: devices of one number take the same from the node.
    pub(crate) fn weight(&self, node: &str, driver: &str, pool: &str, device: &str) -> Option<u64> {
        self.ledger.weight(node, driver, pool, device)
    }

    /// Whether a component refuses the Pod where its claims take more than its Pod-level resources allow: kube-scheduler where it
    /// counts claims, and the owner of our gate.
    pub(crate) fn may_refuse(&self, pod: &Pod) -> bool {
        self.has_published || is_gated(pod)
    }

    /// A Pod on `node` with these claims.
    pub(crate) fn of(&self, pod: &Pod, node: &str, claims: &[cluster::Claim]) -> Cost {
        let (view, unknown) = self.ledger.pod_with(&cluster::Pod::from(pod), node, claims);
        Cost { view, unknown, is_gated: is_gated(pod) }
    }
}

fn is_gated(pod: &Pod) -> bool {
    pod.spec.scheduling_gates.iter().any(|gate| &*gate.name == GATE)
}

/// A Pod with the amounts that its claims bring along on a node.
pub(crate) struct Cost {
    view: PodSpecView,
    unknown: Vec<Unaccounted>,
    is_gated: bool,
}

/// The reason why the amounts keep a Pod from a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The Pod-level resources are too small: the field and both amounts.
    Budget(String),
    /// An amount is not known, and a gate is not opened until it is: the object and the field.
    Unknown(String),
}

impl Cost {
    /// Returns why the amounts keep the Pod from the node, if they do.
    pub(crate) fn refused(&self) -> Option<Refused> {
        // A sum that no amount can be is above every budget, and the API server takes no such requests.
        let over = unschedulable(&self.view, Checks::V1_37).unwrap_or_default();
        let unknown =
            || self.unknown.first().filter(|_| self.is_gated).map(|of| Refused::Unknown(of.to_string()));
        over.first().map(|over| Refused::Budget(over.to_string())).or_else(unknown)
    }

    /// Returns what the kubelet makes of the Pod, and advice to its author; nothing where its claims bring no amounts.
    pub(crate) fn advice(&self) -> Vec<Advice> {
        if self.view.contributions.iter().all(|claim| claim.lines.is_empty()) {
            return Vec::new();
        }
        // The cgroups of single containers are many lines; the verdict has what exceeds the budget.
        let is_told = |of: &Advice| !matches!(of, Advice::Container { .. } | Advice::OverBudget(_));
        let all = advice(&self.view, kubelet(&self.view)).unwrap_or_default();
        all.into_iter().filter(is_told).collect()
    }
}

/// The kubelet of a Pod. One whose status records the amounts runs under a kubelet that adds them to its limits.
pub(crate) fn kubelet(pod: &PodSpecView) -> Kubelet {
    let is_recorded = pod.contributions.iter().any(|of| of.recorded.is_some());
    if is_recorded { Kubelet::V1_37 } else { Kubelet::V1_36 }
}
