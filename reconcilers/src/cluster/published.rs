//! Published ledger of a node, as it was read back.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use dragoman_crds::node_allocatable_dra_claim_state::{
    Condition, NodeAllocatableDRAClaimState, NodeAllocatableDRAClaimStateStatus,
};
use dragoman_machinery::write::Guard;
use dragoman_objects::{Name, Tolerated};

/// A NodeAllocatableDRAClaimState, as far as its next version depends on it. Amounts and claims are
/// known by a fingerprint only: the object of a full node has a hundred kilobytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Published {
    /// Uid and version of the object.
    pub guard: Guard,
    /// The uid of the Node that owns it.
    pub owner: Option<Name>,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// `status.revision`; absent without a status that can be read.
    pub revision: Option<i64>,
    /// `status.conditions`.
    pub conditions: Vec<Condition>,
    /// Tells amounts and claims apart.
    pub fingerprint: u64,
}

impl Published {
    /// Returns the projection of an object.
    pub fn of(state: &NodeAllocatableDRAClaimState) -> Self {
        let meta = &state.metadata;
        let status = match &state.status {
            Tolerated::Read(status) => status.as_ref(),
            Tolerated::Unreadable(_) => None,
        };
        let owner = meta.controller.as_ref().filter(|owner| &*owner.kind == "Node");
        Self {
            guard: Guard::of(meta),
            owner: owner.map(|owner| owner.uid.clone()),
            deleting: meta.deleting,
            revision: status.map(|status| status.revision),
            conditions: status.map(|status| status.conditions.clone()).unwrap_or_default(),
            fingerprint: status.map_or(0, fingerprint),
        }
    }
}

/// Tells the amounts and claims of two states apart, whatever their revisions and conditions.
pub fn fingerprint(status: &NodeAllocatableDRAClaimStateStatus) -> u64 {
    let mut plain = status.clone();
    plain.revision = 0;
    plain.conditions = Vec::new();
    plain.claims.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    let mut hasher = DefaultHasher::new();
    // A type of names and texts always encodes.
    serde_json::to_string(&plain).unwrap_or_default().hash(&mut hasher);
    hasher.finish()
}
