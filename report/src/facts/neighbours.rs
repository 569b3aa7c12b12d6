//! The Pods of files as other Pods see them.

use dragoman_cluster::placement::{Neighbourhood, PodKind, SchedulingConstraints, Seeker};
use dragoman_objects::Pod;

use super::Facts;

impl Facts {
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
