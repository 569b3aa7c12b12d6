//! Facts that could not be counted.

use std::fmt;

use dragoman_objects::Name;

use crate::resource::Resource;

/// A field of a bound Pod or an allocated claim that cannot be read. Its amount is unknown and is
/// not counted as zero: headroom of the resource on the node is unknown until the field is
/// corrected.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unaccounted {
    /// The object, for example `Pod ns/name`.
    pub object: Name,
    /// The field, as a path in the object.
    pub field: Name,
    /// The resource; `None` if the resource is not known either.
    pub resource: Option<Resource>,
    /// The reason, for people.
    pub why: Name,
}

impl fmt::Display for Unaccounted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { object, field, why, .. } = self;
        if field.is_empty() { write!(f, "{object}: {why}") } else { write!(f, "{object}: {field}: {why}") }
    }
}
