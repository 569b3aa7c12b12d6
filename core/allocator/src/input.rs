//! The objects that the allocator searches over: what it reads of a Node and of a ResourceClaim. Of the other kinds it
//! reads all that `dragoman_objects` has.

use std::collections::BTreeMap;

use dragoman_objects::{
    self as objects, Allocation, ClaimDevices, Class, Name, ResourceClaim, Slice, TaintRule,
};

/// The objects of a cluster that concern devices.
#[derive(Debug, Clone, Default)]
pub struct Cluster {
    /// The nodes. Names are unique.
    pub nodes: Vec<Node>,
    /// The slices.
    pub slices: Vec<Slice>,
    /// The device classes. Names are unique.
    pub classes: Vec<Class>,
    /// The claims, allocated or not.
    pub claims: Vec<Claim>,
    /// The taint rules.
    pub taint_rules: Vec<TaintRule>,
}

/// A Node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Node {
    /// `metadata.name`.
    pub name: Name,
    /// `metadata.labels`.
    pub labels: BTreeMap<Name, Name>,
    /// `status.declaredFeatures`.
    pub declared_features: Vec<Name>,
}

impl From<&objects::Node> for Node {
    fn from(node: &objects::Node) -> Self {
        Self {
            name: node.metadata.name.clone(),
            labels: node.metadata.labels.clone(),
            declared_features: node.status.declared_features.clone(),
        }
    }
}

/// A ResourceClaim.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Claim {
    /// `metadata.uid`.
    pub uid: Name,
    /// `metadata.namespace`.
    pub namespace: Name,
    /// `metadata.name`.
    pub name: Name,
    /// `spec.devices`.
    pub devices: ClaimDevices,
    /// `status.allocation`.
    pub allocation: Option<Allocation>,
}

impl Claim {
    /// Returns the part of a claim that the allocator reads. A claim that was written by hand and has no uid
    /// gets `NAMESPACE/NAME` for one.
    ///
    /// # Errors
    /// The reason why its allocation does not decode.
    pub fn of(claim: &ResourceClaim) -> Result<Self, Name> {
        let meta = &claim.metadata;
        let mut allocation = claim.decoded_allocation()?.cloned();
        let results = allocation.iter_mut().flat_map(|of| &mut of.devices.results);
        // What a share consumes is not known: nothing of its device counts as left.
        for result in results.filter(|result| result.unreadable.is_some()) {
            (result.share_id, result.consumed_capacity) = (None, BTreeMap::new());
        }
        let uid = if meta.uid.is_empty() {
            format!("{}/{}", meta.namespace, meta.name).into()
        } else {
            meta.uid.clone()
        };
        Ok(Self {
            uid,
            namespace: meta.namespace.clone(),
            name: meta.name.clone(),
            devices: claim.spec.devices.clone(),
            allocation,
        })
    }
}
