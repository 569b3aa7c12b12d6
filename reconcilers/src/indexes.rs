//! Everything that the controllers of the operator know of the cluster, under one lock: a decision is made on one moment, and no
//! room is given twice.

use dragoman_machinery::controller::{Holds, ObjectKey, Whole};

use crate::claim_lifecycle::State;
use crate::cluster::{Assumed, Cluster, node_key};
use crate::gates::{self, Gates};
use crate::holders::{self, Holders};
use crate::pod_status::PodStatuses;

/// The indexes of the controllers, and what none of them reads from the API. A controller that is off leaves its index empty.
#[derive(Default)]
pub struct Indexes {
    /// Claims, their consumers and their templates.
    pub claim_lifecycle: State,
    /// Amounts that Pods and claims take from every node.
    pub cluster: Cluster,
    /// Records of claims in the status of Pods.
    pub(crate) pod_status: PodStatuses,
    /// Holder Pods.
    pub(crate) holders: Holders,
    /// Pods with closed gates.
    pub(crate) gates: Gates,
    /// Charges that the API does not show yet.
    pub(crate) assumed: Assumed,
}

impl Whole for Indexes {
    fn take_woken(&mut self) -> Vec<(&'static str, ObjectKey)> {
        let (nodes, pods) = self.holders.take_woken();
        let nodes = nodes.iter().map(|node| (holders::NAME, node_key(node)));
        let mut woken: Vec<_> = nodes.chain(pods.into_iter().map(|pod| (gates::NAME, pod))).collect();
        for node in self.cluster.take_moved() {
            woken.extend(self.gates.turn_of_waiting_for(&node).into_iter().map(|pod| (gates::NAME, pod)));
        }
        woken
    }
}

/// The field of each index.
macro_rules! holds {
    ($($index:ty: $field:ident),*) => {
        $(impl Holds<$index> for Indexes {
            fn part(&self) -> &$index {
                &self.$field
            }

            fn part_mut(&mut self) -> &mut $index {
                &mut self.$field
            }
        })*
    };
}

holds!(State: claim_lifecycle, Cluster: cluster, PodStatuses: pod_status, Holders: holders, Gates: gates);
