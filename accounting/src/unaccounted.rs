//! Facts that could not be counted.

use std::fmt;

use crate::resource::Resource;

/// Something that is bound or allocated, and that does not parse: it counts for
/// something, and nobody knows for how much. Whether more of the resource fits on its
/// node has no answer until it is mended.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unaccounted {
    /// The object, for example `Pod ns/name`.
    pub object: Box<str>,
    /// The field, as a path in the object.
    pub field: Box<str>,
    /// The resource; `None` where even that is not known.
    pub resource: Option<Resource>,
    /// What is wrong with it.
    pub why: Box<str>,
}

impl fmt::Display for Unaccounted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { object, field, why, .. } = self;
        write!(f, "{object}: {field}: {why}")
    }
}
