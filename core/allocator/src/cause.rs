//! Reasons why a device is not given to a request.

use std::sync::Arc;

use serde::Serialize;

use crate::error::PodError;
use crate::search::Stopped;

/// The reason why a device is not given to a request. The order is that of the checks: a device
/// counts under the first cause (docs/allocator.md 1.4 and 1.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Cause {
    /// The pool of the device is incomplete.
    PoolIncomplete,
    /// The pool of the device is invalid.
    PoolInvalid,
    /// An allocated claim holds the device.
    Taken,
    /// A claim whose allocation is only assumed holds the device.
    InFlight,
    /// Another request of the same attempt has the device.
    TakenHere,
    /// The device cannot be read, for example because of a quantity that no integer holds.
    Unreadable,
    /// The device has binding conditions, and the feature gate is off.
    BindingConditions,
    /// A selector of the class does not hold.
    NotOfClass,
    /// A selector of the request does not hold.
    Selector,
    /// The node has no access to the device.
    OtherNode,
    /// The capacity of the device does not suffice.
    Capacity,
    /// The device is dedicated now, but a share from the time when it was shared is still
    /// allocated.
    DedicatedOrShared,
    /// The slice sets `skipNodeOperations`, which the node or the feature gate does not support.
    NodeOperation,
    /// The compatibility groups of the device do not go with those of the devices that draw from
    /// the same counter set.
    CompatibilityGroup,
    /// The counters of the pool do not suffice, or the feature gate is off.
    Counters,
    /// The device has a taint that the request does not tolerate.
    Tainted,
    /// A constraint of the claim excludes the device.
    Constraint,
    /// The Pod asks for devices that share an attribute, and the device does not share it with the others, or does not have it.
    Alignment,
    /// A selector or the consumed capacity cannot be evaluated for the device.
    Failed,
    /// An explanation has evaluated no selector for the device: that may cost more than an explanation for tenants does.
    Unexamined,
    /// The device is suitable, but there are fewer suitable devices than the request wants.
    TooFew,
    /// The device is suitable, and there are enough suitable devices for this request alone. The
    /// combination with constraints, counters or other requests of the Pod may have no solution.
    Combination,
}

/// The scope of a refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The device is refused.
    Device(Cause),
    /// The whole Pod is refused.
    Pod(Arc<PodError>),
    /// Nothing is refused: the search has to stop before it knows.
    Stopped(Stopped),
}

impl From<Stopped> for Refusal {
    fn from(stopped: Stopped) -> Self {
        Self::Stopped(stopped)
    }
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
