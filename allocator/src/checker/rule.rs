//! The rules of a result, by name.

use std::fmt;

use crate::input::Name;

/// A rule that every result obeys (allocator.md 7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// Every claim gets one allocation, in the order of claims.
    Claims,
    /// A result names a request of its claim.
    Request,
    /// Of several sub-requests one is chosen.
    Alternative,
    /// Results come in the order of requests, and of devices on the node.
    Order,
    /// A request gets as many devices as it wants.
    Count,
    /// A claim gets at most 32 devices.
    Size,
    /// A device is in a pool that is all there, of its newest generation, and without
    /// contradiction.
    Pool,
    /// The node has access to a device.
    Node,
    /// A device is of the class.
    Class,
    /// A device is what the request selects.
    Selector,
    /// A device that waits for conditions is only given away where that is supported.
    BindingConditions,
    /// A device without node operations is only given away on nodes that support it.
    NodeOperations,
    /// A device has no taint that the request does not tolerate.
    Taint,
    /// A device is nobody else's.
    Taken,
    /// A device is given away once.
    Twice,
    /// Devices draw no more from counters than there is.
    Counters,
    /// Devices that draw from the same counters go together.
    CompatibilityGroup,
    /// Shares of a device consume no more than it has, and a request finds what it wants.
    Capacity,
    /// A share consumes what the policy of the capacity makes of the request.
    ConsumedCapacity,
    /// Every share has an id of its own, and only shares have one.
    ShareId,
    /// Devices have the attribute of a `matchAttribute` in common.
    Match,
    /// Devices differ in the attribute of a `distinctAttribute`.
    Distinct,
    /// Results say whether access is that of an administrator.
    AdminAccess,
    /// Results carry the tolerations of their request.
    Tolerations,
    /// Results carry the binding conditions of their device.
    ResultConditions,
    /// Results carry what their slice says of node operations.
    ResultNodeOperations,
    /// Configuration is that of the classes, then that of the claim.
    Configuration,
    /// The node selector is that of the devices.
    NodeSelector,
    /// No solution comes before it.
    First,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// A rule that a result does not obey.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    /// The rule.
    pub rule: Rule,
    /// The claim, by uid.
    pub claim: Name,
    /// `request` or `request/subrequest`; empty where it is not about one.
    pub request: Name,
    /// What is wrong.
    pub why: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: claim {}", self.rule, self.claim)?;
        if !self.request.is_empty() {
            write!(f, ", request {}", self.request)?;
        }
        write!(f, ": {}", self.why)
    }
}
