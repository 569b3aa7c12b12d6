//! Constraints on the devices of a claim (docs/allocator.md 1.8).

use std::fmt;

use dragoman_objects::{Attribute, Name};

use super::Pace;
use crate::cause::Refusal;
use crate::claims::{Asked, PreparedConstraint};
use crate::error::{Object, PodError};
use crate::gates::Gates;
use crate::selectors::Unsaid;
use crate::snapshot::ViewDevice;

/// The values of an attribute: a scalar, or the elements of a list. All have one type.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Values {
    Ints(Vec<i64>),
    Bools(Vec<bool>),
    Strings(Vec<Name>),
    /// Versions, as strings.
    Versions(Vec<Name>),
    /// A list while `DRAListTypeAttributes` is off. It is not compared, so only the first device of
    /// a constraint may have it.
    Opaque,
}

/// The values that a constraint has seen.
#[derive(Debug, Clone, Default)]
pub(crate) struct Constrained {
    /// For a match: the values that all devices up to this one have in common. For a distinction:
    /// the values of each device.
    pub(crate) values: Vec<Values>,
}

impl Values {
    pub(crate) fn of(attribute: &Attribute, gates: &Gates) -> Option<Self> {
        let listed = |values: Self| Some(if gates.list_type_attributes { values } else { Self::Opaque });
        match attribute {
            Attribute::Int(value) => Some(Self::Ints(vec![*value])),
            Attribute::Bool(value) => Some(Self::Bools(vec![*value])),
            Attribute::String(value) => Some(Self::Strings(vec![value.clone()])),
            Attribute::Version(value) => Some(Self::Versions(vec![value.clone()])),
            Attribute::Ints(values) => listed(Self::Ints(values.clone())),
            Attribute::Bools(values) => listed(Self::Bools(values.clone())),
            Attribute::Strings(values) => listed(Self::Strings(values.clone())),
            Attribute::Versions(values) => listed(Self::Versions(values.clone())),
            Attribute::Unknown => (!gates.list_type_attributes).then_some(Self::Opaque),
        }
    }

    /// Returns the common values. `None` if the types differ or no value is common.
    pub(crate) fn common(&self, other: &Self) -> Option<Self> {
        fn both<T: PartialEq + Clone>(a: &[T], b: &[T]) -> Option<Vec<T>> {
            let both: Vec<T> = a.iter().filter(|value| b.contains(value)).cloned().collect();
            (!both.is_empty()).then_some(both)
        }
        match (self, other) {
            (Self::Ints(a), Self::Ints(b)) => both(a, b).map(Self::Ints),
            (Self::Bools(a), Self::Bools(b)) => both(a, b).map(Self::Bools),
            (Self::Strings(a), Self::Strings(b)) => both(a, b).map(Self::Strings),
            (Self::Versions(a), Self::Versions(b)) => both(a, b).map(Self::Versions),
            _ => None,
        }
    }

    /// Whether an attribute has one of these values.
    pub(crate) fn has(&self, attribute: &Attribute, gates: &Gates) -> bool {
        match (self, attribute) {
            (Self::Ints(values), Attribute::Int(value)) => values.contains(value),
            (Self::Strings(values), Attribute::String(value)) => values.contains(value),
            (_, other) => Self::of(other, gates).is_some_and(|other| self.common(&other).is_some()),
        }
    }

    /// Each value alone. A value that is not compared is none.
    pub(crate) fn each(&self) -> Vec<Self> {
        match self {
            Self::Ints(values) => values.iter().map(|value| Self::Ints(vec![*value])).collect(),
            Self::Bools(values) => values.iter().map(|value| Self::Bools(vec![*value])).collect(),
            Self::Strings(values) => values.iter().map(|value| Self::Strings(vec![value.clone()])).collect(),
            Self::Versions(values) => {
                values.iter().map(|value| Self::Versions(vec![value.clone()])).collect()
            }
            Self::Opaque => Vec::new(),
        }
    }

    /// Returns the first value alone.
    pub(crate) fn first(&self) -> Option<Self> {
        match self {
            Self::Ints(values) => values.first().map(|value| Self::Ints(vec![*value])),
            Self::Bools(values) => values.first().map(|value| Self::Bools(vec![*value])),
            Self::Strings(values) => values.first().map(|value| Self::Strings(vec![value.clone()])),
            Self::Versions(values) => values.first().map(|value| Self::Versions(vec![value.clone()])),
            Self::Opaque => None,
        }
    }

    /// Whether there is exactly one value.
    pub(crate) fn is_single(&self) -> bool {
        match self {
            Self::Ints(values) => values.len() == 1,
            Self::Bools(values) => values.len() == 1,
            Self::Strings(values) | Self::Versions(values) => values.len() == 1,
            Self::Opaque => false,
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Ints(values) => values.is_empty(),
            Self::Bools(values) => values.is_empty(),
            Self::Strings(values) | Self::Versions(values) => values.is_empty(),
            Self::Opaque => false,
        }
    }
}

/// The values, separated by commas.
impl fmt::Display for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn list(values: &[impl ToString]) -> String {
            values.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
        }
        f.write_str(&match self {
            Self::Ints(values) => list(values),
            Self::Bools(values) => list(values),
            Self::Strings(values) | Self::Versions(values) => list(values),
            Self::Opaque => "?".to_owned(),
        })
    }
}

impl Constrained {
    /// Adds a device with these values. Returns whether the constraint allows it.
    pub(crate) fn add(&mut self, distinct: bool, values: Option<Values>) -> bool {
        let Some(values) = values.filter(|values| !values.is_empty()) else { return false };
        if values == Values::Opaque && !self.values.is_empty() {
            return false;
        }
        if distinct {
            if self.values.iter().any(|other| other.common(&values).is_some()) {
                return false;
            }
            self.values.push(values);
            return true;
        }
        let common = match self.values.last() {
            None => Some(values),
            Some(before) => before.common(&values),
        };
        let allowed = common.is_some();
        self.values.extend(common);
        allowed
    }

    /// Removes the last device.
    pub(crate) fn remove(&mut self) {
        self.values.pop();
    }
}

/// Returns the values of the constraint's attribute, for a device of a request.
///
/// # Errors
/// The expression of a derived attribute cannot be compiled or evaluated, or the search has to
/// stop.
pub(crate) fn values_of(
    constraint: &PreparedConstraint,
    asked: &Asked,
    device: &ViewDevice,
    driver: &str,
    claim: &Object,
    gates: &Gates,
    pace: &Pace,
) -> Result<Option<Values>, Refusal> {
    let Some((name, derivation)) = asked.derived.iter().find(|(name, _)| *name == constraint.attribute)
    else {
        let attribute = device.device.attribute(driver, &constraint.attribute);
        return Ok(attribute.and_then(|attribute| Values::of(attribute, gates)));
    };
    let field = || format!("{}.derivedAttributes[{name}]", asked.path);
    match derivation.of(&device.content, pace) {
        Ok(Ok(attribute)) => Ok(Values::of(&attribute, gates)),
        Ok(Err(why)) => {
            let message = format!("on device {}: {why}", device.device.name);
            Err(PodError::new(claim.clone(), field(), message).into())
        }
        Err(Unsaid::Stopped(stopped)) => Err(stopped.into()),
        Err(Unsaid::TooExpensive) => Err(PodError::too_expensive(claim.clone(), field()).into()),
    }
}
