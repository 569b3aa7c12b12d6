//! The rules of a result, by name.

use std::fmt;

use dragoman_objects::Name;

/// A rule that every result obeys (docs/allocator.md 7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// Every claim has one allocation, in the order of claims.
    Claims,
    /// A result names a request of its claim.
    Request,
    /// A request uses one of its sub-requests only.
    Alternative,
    /// Results are in the order of requests, and within a request in the order of devices.
    Order,
    /// A request has as many devices as it wants.
    Count,
    /// A claim has at most 32 devices.
    Size,
    /// The pool of a device is complete, valid and of its newest generation.
    Pool,
    /// The node has access to a device.
    Node,
    /// The selectors of the class hold for a device.
    Class,
    /// The selectors of the request hold for a device.
    Selector,
    /// A device with binding conditions requires the feature gate.
    BindingConditions,
    /// A device with `skipNodeOperations` requires the feature gate and a node that declares the
    /// feature.
    NodeOperations,
    /// A request tolerates all taints of a device.
    Taint,
    /// No claim holds the device already.
    Taken,
    /// A dedicated device is given once; with admin access, once in each claim.
    Twice,
    /// Devices draw no more from a counter than its value.
    Counters,
    /// The compatibility groups of devices that draw from the same counter set go together.
    CompatibilityGroup,
    /// The shares of a device consume no more than its capacity, and the device has every requested
    /// capacity.
    Capacity,
    /// A share consumes the amount that the request policy yields.
    ConsumedCapacity,
    /// Every share has a unique id, and only shares have one.
    ShareId,
    /// Devices have a common value of a `matchAttribute`.
    Match,
    /// Devices have different values of a `distinctAttribute`.
    Distinct,
    /// `adminAccess` of a result is that of the request.
    AdminAccess,
    /// `tolerations` of a result are those of the request.
    Tolerations,
    /// `bindingConditions` and `bindingFailureConditions` of a result are those of the device.
    ResultConditions,
    /// `skipNodeOperations` of a result is that of the slice.
    ResultNodeOperations,
    /// The configuration is that of the classes, followed by that of the claim.
    Configuration,
    /// The node selector is the one that the devices imply.
    NodeSelector,
    /// No other solution comes first.
    First,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// A broken rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    /// The rule.
    pub rule: Rule,
    /// The claim, by uid.
    pub claim: Name,
    /// `request` or `request/subrequest`; empty if the rule is not about a request.
    pub request: Name,
    /// The details.
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
