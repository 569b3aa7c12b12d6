//! Errors that keep claims from being allocated: on any node, or on one node.

use std::fmt;
use std::sync::Arc;

use dragoman_objects::Name;

use crate::search::MOST_COST;

/// An error that makes the whole Pod unschedulable until an object is corrected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodError {
    /// The object with the error.
    pub object: Object,
    /// The path of the field, from the root of the object.
    pub field: Arc<str>,
    /// The error.
    pub message: Arc<str>,
}

/// An API object.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Object {
    /// A claim, by namespace and name.
    Claim(Name, Name),
    /// A device class.
    Class(Name),
    /// A slice.
    Slice(Name),
}

impl PodError {
    pub(crate) fn new(object: Object, field: impl Into<Arc<str>>, message: impl Into<Arc<str>>) -> Self {
        Self { object, field: field.into(), message: message.into() }
    }

    /// The selectors and derived attributes of a Pod cost too much on one node. The field is the
    /// one that exceeded the limit.
    pub(crate) fn too_expensive(object: Object, field: impl Into<Arc<str>>) -> Self {
        let message = format!(
            "the CEL expressions of the Pod's requests cost more than {MOST_COST} on the devices of one node"
        );
        Self::new(object, field, message)
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Claim(namespace, name) => write!(f, "claim {namespace}/{name}"),
            Self::Class(name) => write!(f, "class {name}"),
            Self::Slice(name) => write!(f, "slice {name}"),
        }
    }
}

impl fmt::Display for PodError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.object, self.field, self.message)
    }
}

impl std::error::Error for PodError {}

/// An error that makes this node unusable until a pool changes. Other nodes may be usable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NodeError {
    /// A request for all devices, while a pool is incomplete.
    #[error("{claim}: request {request}: pool {pool} of driver {driver} is currently being updated")]
    Incomplete {
        /// The claim of the request.
        claim: Object,
        /// The name of the request.
        request: Name,
        /// The driver of the pool.
        driver: Name,
        /// The pool.
        pool: Name,
    },
    /// A request for all devices, while a pool is invalid.
    #[error("{claim}: request {request}: pool {pool} of driver {driver} is currently invalid: {why}")]
    InvalidForAll {
        /// The claim of the request.
        claim: Object,
        /// The name of the request.
        request: Name,
        /// The driver of the pool.
        driver: Name,
        /// The pool.
        pool: Name,
        /// The contradiction.
        why: Arc<str>,
    },
    /// No solution exists, and a pool is invalid. Its devices might have been a solution.
    #[error("invalid resource pools were encountered: pool {pool} of driver {driver}: {why}")]
    Invalid {
        /// The driver of the pool.
        driver: Name,
        /// The pool.
        pool: Name,
        /// The contradiction.
        why: Arc<str>,
    },
}
