//! What keeps claims from being allocated for good, or on one node.

use std::fmt;
use std::sync::Arc;

use crate::input::Name;

/// The whole Pod cannot be scheduled: somebody has to mend an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodError {
    /// Whose fault it is.
    pub object: Object,
    /// Where in the object, as a path from its root.
    pub field: Arc<str>,
    /// What is wrong.
    pub message: Arc<str>,
}

/// An object of the API.
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

/// This node cannot be used while a pool is as it is; others may.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NodeError {
    /// A request for all devices, and a pool whose slices are not all there.
    #[error("{claim}: request {request}: pool {pool} of driver {driver} is currently being updated")]
    Incomplete {
        /// Whose request.
        claim: Object,
        /// Its name.
        request: Name,
        /// The driver of the pool.
        driver: Name,
        /// The pool.
        pool: Name,
    },
    /// A request for all devices, and a pool that contradicts itself.
    #[error("{claim}: request {request}: pool {pool} of driver {driver} is currently invalid: {why}")]
    InvalidForAll {
        /// Whose request.
        claim: Object,
        /// Its name.
        request: Name,
        /// The driver of the pool.
        driver: Name,
        /// The pool.
        pool: Name,
        /// The contradiction.
        why: Arc<str>,
    },
    /// There is no solution, and a pool contradicts itself: it might have one.
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
