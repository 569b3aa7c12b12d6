//! Why a device is not given to a request.

use std::sync::Arc;

use serde::Serialize;

use crate::error::PodError;

/// Why a device is not given to a request. The order is the one in which they are looked
/// at: a device counts under the first (allocator.md 1.4 and 1.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Cause {
    /// Its pool is being updated.
    PoolIncomplete,
    /// Its pool contradicts itself.
    PoolInvalid,
    /// A claim holds it.
    Taken,
    /// A claim that is being allocated just now holds it, by uid in the explanation.
    InFlight,
    /// Another request of the same attempt has it.
    TakenHere,
    /// It waits for conditions, which are not supported here.
    BindingConditions,
    /// A selector of the class does not hold.
    NotOfClass,
    /// A selector of the request does not hold.
    Selector,
    /// Another node has access to it.
    OtherNode,
    /// Its capacity does not suffice.
    Capacity,
    /// It was shared, is for one alone now, and somebody still has a share.
    DedicatedOrShared,
    /// The node does not support what it needs, or rather needs not.
    NodeOperation,
    /// What draws from its counters is of another kind.
    CompatibilityGroup,
    /// The counters of its pool do not suffice, or are not supported here.
    Counters,
    /// It has a taint that the request does not tolerate.
    Tainted,
    /// A constraint of the claim does not allow it.
    Constraint,
    /// What it takes from the node does not fit.
    Fit,
    /// A selector of it, or what it consumes, cannot be evaluated.
    Failed,
    /// None: it would do, but there are too few such devices.
    TooFew,
    /// None: alone there would be enough such devices for this request. Constraints,
    /// counters or other requests of the Pod are in the way, or nothing is.
    Combination,
}

/// Not this device, or nothing at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Not this device.
    Device(Cause),
    /// Nothing for this Pod.
    Pod(Arc<PodError>),
}

impl From<Cause> for Refusal {
    fn from(cause: Cause) -> Self {
        Self::Device(cause)
    }
}

impl From<PodError> for Refusal {
    fn from(error: PodError) -> Self {
        Self::Pod(Arc::new(error))
    }
}
