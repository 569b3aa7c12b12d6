//! What devices take from the node besides themselves: asked of the caller.

use std::fmt;
use std::sync::Arc;

use crate::input::{Claim, Device, Name, Node};

/// Checks whether what devices bring along fits a node (KEP-5517). Made for one Pod.
pub trait Fit: Send + Sync {
    /// Begins with a node and the claims of the Pod that are allocated already.
    fn open(&self, node: &Node, fixed: &[Arc<Claim>]) -> Box<dyn FitSession>;
}

/// A growing and shrinking list of devices on one node.
pub trait FitSession: Send + Sync {
    /// Adds a device.
    ///
    /// # Errors
    /// No list that begins like this can fit. It was not added.
    fn push(&mut self, taken: &Taken<'_>) -> Result<(), Misfit>;
    /// Takes the last device back.
    fn pop(&mut self);
    /// Decides whether the list as it is fits.
    ///
    /// # Errors
    /// It does not.
    fn finish(&mut self) -> Result<(), Misfit>;
}

/// A device that a request takes.
#[derive(Debug, Clone, Copy)]
pub struct Taken<'a> {
    /// Whose request.
    pub claim: &'a Claim,
    /// `request` or `request/subrequest`.
    pub request: &'a str,
    /// The driver of the device.
    pub driver: &'a str,
    /// The pool of the device.
    pub pool: &'a str,
    /// The device.
    pub device: &'a Device,
    /// What it consumes of the capacities of a shared device, in the order of their names.
    pub consumed: Option<&'a [dragoman_quantity::Decimal]>,
}

/// What does not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misfit {
    /// The resource, for example `memory`.
    pub resource: Name,
    /// How much too little there is, in the units of the resource.
    pub missing: dragoman_quantity::Decimal,
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} more of {} needed", self.missing, self.resource)
    }
}
