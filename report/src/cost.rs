//! The amounts that the claims of a Pod bring along: whether its Pod-level resources allow them, and what the kubelet makes of them.

use dragoman_accounting::claim::contribution::Generation;
use dragoman_accounting::cluster::{self, ClusterLedger, Rules};
use dragoman_accounting::pod::PodSpecView;
use dragoman_accounting::pod::advice::{Advice, advice};
use dragoman_accounting::pod::budget::{Checks, unschedulable};
use dragoman_accounting::pod::cgroups::Kubelet;
use dragoman_crds::protocol::GATE;
use dragoman_objects::Pod;

/// The amounts that ResourceSlices and DeviceFootprints declare for devices.
#[derive(Debug, Default)]
pub(crate) struct Costs {
    /// Whether the question is about amounts. A cluster has many slices, and other questions do without them.
    pub(crate) are_wanted: bool,
    /// Whether DeviceFootprints could not be read.
    pub(crate) lacks_footprints: bool,
    pub(crate) slices: Vec<cluster::Slice>,
    pub(crate) footprints: Vec<cluster::DeviceFootprint>,
    doubt: Option<String>,
    /// Boxed: facts are handed from future to future.
    ledger: Box<ClusterLedger>,
}

impl Costs {
    /// Everything has been read. `doubt`: a DeviceFootprint that does not decode, which may be about any device.
    pub(crate) fn settle(&mut self, doubt: Option<String>) {
        self.doubt = doubt;
        self.ledger = ClusterLedger::new(Rules::default()).into();
        for slice in std::mem::take(&mut self.slices) {
            self.ledger.put_slice(slice);
        }
        for footprint in std::mem::take(&mut self.footprints) {
            self.ledger.put_footprint(footprint);
        }
    }

    /// Adds what was read at the same time.
    pub(crate) fn merge(&mut self, other: Self) {
        self.lacks_footprints |= other.lacks_footprints;
        self.slices.extend(other.slices);
        self.footprints.extend(other.footprints);
    }

    /// A number for a device, as the search asks for it: devices of one number take the same from the node.
    pub(crate) fn weight(&self, node: &str, driver: &str, pool: &str, device: &str) -> Option<u64> {
        self.ledger.weight(node, driver, pool, device)
    }

    /// A Pod on `node` with these claims.
    pub(crate) fn of(&self, pod: &Pod, node: &str, claims: &[cluster::Claim]) -> Cost {
        let (view, unknown) = self.ledger.pod_with(&cluster::Pod::from(pod), node, claims);
        let is_gated = pod.spec.scheduling_gates.iter().any(|gate| &*gate.name == GATE);
        let is_bound = !pod.spec.node_name.is_empty();
        let doubts = unknown.iter().map(ToString::to_string).chain(self.doubt.clone());
        let unknown = doubts.collect();
        Cost { view, unknown, is_gated, is_bound, is_complete: !self.lacks_footprints }
    }
}

/// A Pod with the amounts that its claims bring along on a node.
pub(crate) struct Cost {
    view: PodSpecView,
    unknown: Vec<String>,
    is_gated: bool,
    is_bound: bool,
    is_complete: bool,
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
        if !self.is_gated {
            return self.refused_by_kube_scheduler();
        }
        match unschedulable(&self.view, Checks::V1_37) {
            Err(_) => Some(Refused::Unknown("a sum of its amounts is larger than any amount".to_owned())),
            Ok(over) if !over.is_empty() => over.first().map(|over| Refused::Budget(over.to_string())),
            Ok(_) => self.unknown.first().cloned().map(Refused::Unknown),
        }
    }

    /// kube-scheduler reads no DeviceFootprint. It checks requests in each version that counts claims; a limit that it refuses, too,
    /// stands in its message.
    fn refused_by_kube_scheduler(&self) -> Option<Refused> {
        let mut seen = self.view.clone();
        for claim in &mut seen.contributions {
            claim.lines.retain(|line| !line.local);
        }
        seen.contributions.retain(|claim| !claim.lines.is_empty());
        let over = unschedulable(&seen, Checks::V1_36).ok()?;
        over.first().map(|over| Refused::Budget(over.to_string()))
    }

    /// Returns what the kubelet makes of the Pod, and advice to its author; nothing where its claims bring no amounts. The cgroups of a
    /// Pod without a node depend on a kubelet that is not known yet.
    pub(crate) fn advice(&self) -> Vec<Advice> {
        if !self.is_complete || self.view.contributions.iter().all(|claim| claim.lines.is_empty()) {
            return Vec::new();
        }
        let is_told = |of: &Advice| match of {
            // Cgroups of single containers are many lines; the verdict has what exceeds the budget.
            Advice::Container { .. } | Advice::OverBudget(_) => false,
            Advice::Pod(_) | Advice::LimitBelowClaim { .. } => self.is_bound,
            _ => true,
        };
        let all = advice(&self.view, kubelet(&self.view)).unwrap_or_default();
        all.into_iter().filter(is_told).collect()
    }
}

/// The kubelet of a bound Pod. One whose status records the amounts as 1.37 does runs under a kubelet that adds them to its limits.
pub(crate) fn kubelet(pod: &PodSpecView) -> Kubelet {
    let is_recorded = pod.contributions.iter().any(|of| of.recorded >= Some(Generation::V1_37));
    if is_recorded { Kubelet::V1_37 } else { Kubelet::V1_36 }
}
