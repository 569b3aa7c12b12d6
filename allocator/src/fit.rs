//! The interface to resources of the node that devices take besides themselves.

use std::fmt;
use std::sync::Arc;

use crate::input::{Claim, Device, Name, Node};

/// Checks whether the resources that devices take fit a node (KEP-5517). One value serves one Pod.
pub trait Fit: Send + Sync {
    /// Opens a session for a node. `fixed` are the claims of the Pod that are allocated already.
    fn open(&self, node: &Node, fixed: &[Arc<Claim>]) -> Box<dyn FitSession>;
}

/// A stack of devices on one node.
pub trait FitSession: Send + Sync {
    /// Adds a device.
    ///
    /// # Errors
    /// No list that begins with these devices fits. The device is not added.
    fn push(&mut self, taken: &Taken<'_>) -> Result<(), Misfit>;
    /// Removes the last device.
    fn pop(&mut self);
    /// Decides whether the complete list fits.
    ///
    /// # Errors
    /// The list does not fit.
    fn finish(&mut self) -> Result<(), Misfit>;
}

/// A device that a request takes.
#[derive(Debug, Clone, Copy)]
pub struct Taken<'a> {
    /// The claim of the request.
    pub claim: &'a Claim,
    /// `request` or `request/subrequest`.
    pub request: &'a str,
    /// The driver of the device.
    pub driver: &'a str,
    /// The pool of the device.
    pub pool: &'a str,
    /// The device.
    pub device: &'a Device,
    /// The amounts that the request consumes of a shared device, in the order of the capacities'
    /// names.
    pub consumed: Option<&'a [dragoman_quantity::Decimal]>,
}

/// A resource that does not suffice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misfit {
    /// The resource, for example `memory`.
    pub resource: Name,
    /// The missing amount, in the units of the resource.
    pub missing: dragoman_quantity::Decimal,
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} more of {} needed", self.missing, self.resource)
    }
}
