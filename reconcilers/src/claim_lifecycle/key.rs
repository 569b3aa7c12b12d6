//! Keys of the queue.

use std::sync::Arc;

use dragoman_machinery::queue::Keyed;

/// The kinds that are reconciled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Subject {
    /// A claim: release, deallocate, finalizer, delete.
    Claim,
    /// A Pod: claims from templates, their names in its status, reservations.
    Pod,
    /// A PodGroup: claims from templates, their names in its status.
    PodGroup,
}

/// An object to reconcile.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Kind of the object.
    pub subject: Subject,
    /// Namespace of the object.
    pub namespace: Arc<str>,
    /// Name of the object.
    pub name: Arc<str>,
}

impl Key {
    /// A key; names are shared where the caller has them shared.
    pub fn new(subject: Subject, namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self { subject, namespace: namespace.into(), name: name.into() }
    }

    /// Keys in an order of their own, so that the same history has the same consequences.
    pub(super) fn in_order(keys: impl Iterator<Item = Self>) -> Vec<Self> {
        let mut keys: Vec<Self> = keys.collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }
}

/// Which keys go first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lane {
    /// Gives something back to the cluster.
    Release,
    /// Takes something.
    Create,
}

impl Keyed for Key {
    type Rank = Lane;
    /// Claims first: what they give back is what new Pods wait for.
    fn rank(&self) -> Lane {
        match self.subject {
            Subject::Claim => Lane::Release,
            Subject::Pod | Subject::PodGroup => Lane::Create,
        }
    }

    fn namespace(&self) -> Option<Arc<str>> {
        Some(Arc::clone(&self.namespace))
    }
}
