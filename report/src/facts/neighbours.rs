//! Nodes, and the Pods of files, as a Pod sees them.

use dragoman_cluster::placement::{
    Neighbourhood, NodeView, PodKind, SchedulingConstraints, Seeker, UnmetConstraint,
};
use dragoman_crds::protocol::GATE;
use dragoman_objects::Pod;

use super::Facts;

impl Facts {
    /// Returns all reasons why a scheduler would not let a Pod run on a node. That its requirements are too long is one for gated Pods alone:
    /// kube-scheduler evaluates them all.
    pub(crate) fn obstacles(
        &self,
        site: &NodeView,
        pod: &Pod,
        constraints: &SchedulingConstraints,
    ) -> Vec<UnmetConstraint> {
        // Without classes it is not known which resources are theirs.
        let is_backed = |name: &str| self.lacks("deviceclasses") || self.supply.snapshot.is_backed(name);
        let is_gated = pod.spec.scheduling_gates.iter().any(|gate| &*gate.name == GATE);
        let mut obstacles = site.obstacles(constraints, &is_backed);
        obstacles.retain(|of| is_gated || !matches!(of, UnmetConstraint::TooLong(_)));
        obstacles
    }

    /// Puts the Pods of files on their nodes. Of a cluster not all Pods are read.
    pub(super) fn settle_pods(&mut self) {
        let has_ended = |pod: &Pod| matches!(&*pod.status.phase, "Succeeded" | "Failed");
        for pod in self.pods.values().filter(|_| self.from_files) {
            if !pod.spec.node_name.is_empty() && !has_ended(pod) {
                let kind = self.neighbours.kind(pod);
                self.neighbours.add(&pod.spec.node_name, &kind);
            }
        }
    }

    /// The meaning of the Pods of all nodes for a Pod, as far as they were read.
    pub(crate) fn around(&self, pod: &Pod, constraints: &SchedulingConstraints) -> Option<Neighbourhood> {
        let kind = PodKind::of(pod);
        let seeker = Seeker { kind: &kind, constraints };
        self.from_files.then(|| self.neighbours.around(seeker, &[], &self.sites))
    }
}
