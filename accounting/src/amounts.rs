//! Amounts of several resources.

use std::collections::BTreeMap;
use std::collections::btree_map::{self, Entry};

use dragoman_quantity::{Decimal, Overflow, Quantity};
use serde::{Deserialize, Deserializer, Serialize};

use crate::resource::Resource;
use crate::unaccounted::Unaccounted;

/// A quantity as it stands in an API object, unread. Numbers without quotes are taken as
/// the API takes them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Text(pub Box<str>);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Text(Box<str>),
            Whole(i64),
            Fraction(f64),
        }
        Ok(Self(match Written::deserialize(deserializer)? {
            Written::Text(text) => text,
            Written::Whole(number) => number.to_string().into(),
            Written::Fraction(number) => number.to_string().into(),
        }))
    }
}

/// A list of quantities as it stands in an API object, unread: resource name → text.
pub type ResourceList = BTreeMap<Box<str>, Text>;

/// Amounts by resource, exact. What is absent is nothing; a zero is kept, because some
/// rules ask whether a resource is named.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Amounts(BTreeMap<Resource, Decimal>);

impl Amounts {
    /// Reads the node-allocatable part of a list that is a fact: `object` and `field`
    /// say where it stands. What does not parse, or is negative, goes to `unaccounted`
    /// and counts for nothing here.
    pub fn of_fact(
        list: &ResourceList,
        object: &str,
        field: &str,
        unaccounted: &mut Vec<Unaccounted>,
    ) -> Self {
        let mut amounts = Self::default();
        for (name, text) in list {
            let Some(resource) = Resource::of(name) else { continue };
            match non_negative(&text.0) {
                Ok(amount) => {
                    amounts.0.insert(resource, amount);
                }
                Err(why) => unaccounted.push(Unaccounted {
                    object: object.into(),
                    field: format!("{field}[{name}]").into(),
                    resource: Some(resource),
                    why: why.into(),
                }),
            }
        }
        amounts
    }

    /// The amount of `resource`; zero where it is not named.
    pub fn get(&self, resource: &Resource) -> Decimal {
        self.0.get(resource).copied().unwrap_or_default()
    }

    /// Whether `resource` is named, with zero if need be.
    pub fn names(&self, resource: &Resource) -> bool {
        self.0.contains_key(resource)
    }

    /// Whether no resource is named.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Names `resource` with `amount`, whatever it was before.
    pub fn set(&mut self, resource: Resource, amount: Decimal) {
        self.0.insert(resource, amount);
    }

    /// Adds `amount` of `resource`.
    ///
    /// # Errors
    /// The sum cannot be held.
    pub fn add(&mut self, resource: &Resource, amount: Decimal) -> Result<(), Overflow> {
        match self.0.entry(resource.clone()) {
            Entry::Occupied(mut known) => {
                let sum = known.get().checked_add(amount)?;
                known.insert(sum);
            }
            Entry::Vacant(place) => {
                place.insert(amount);
            }
        }
        Ok(())
    }

    /// Adds all of `other`.
    ///
    /// # Errors
    /// A sum cannot be held.
    pub fn add_all(&mut self, other: &Self) -> Result<(), Overflow> {
        other.iter().try_for_each(|(resource, amount)| self.add(resource, amount))
    }

    /// The sum of both.
    ///
    /// # Errors
    /// A sum cannot be held.
    pub fn plus(&self, other: &Self) -> Result<Self, Overflow> {
        let mut sum = self.clone();
        sum.add_all(other)?;
        Ok(sum)
    }

    /// Raises each resource to what `other` has of it.
    pub fn raise(&mut self, other: &Self) {
        for (resource, amount) in other.iter() {
            match self.0.entry(resource.clone()) {
                Entry::Occupied(mut known) => {
                    let most = amount.max(*known.get());
                    known.insert(most);
                }
                Entry::Vacant(place) => {
                    place.insert(amount);
                }
            }
        }
    }

    /// Each resource with its amount, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&Resource, Decimal)> {
        self.0.iter().map(|(resource, amount)| (resource, *amount))
    }

    /// Without what is zero.
    #[must_use]
    pub fn without_zeros(mut self) -> Self {
        self.0.retain(|_, amount| !amount.is_zero());
        self
    }
}

impl FromIterator<(Resource, Decimal)> for Amounts {
    fn from_iter<I: IntoIterator<Item = (Resource, Decimal)>>(amounts: I) -> Self {
        Self(amounts.into_iter().collect())
    }
}

impl IntoIterator for Amounts {
    type Item = (Resource, Decimal);
    type IntoIter = btree_map::IntoIter<Resource, Decimal>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// Reads a quantity that may not be below zero.
///
/// # Errors
/// Why it is none, for people.
pub fn non_negative(text: &str) -> Result<Decimal, String> {
    let quantity: Quantity = text.parse().map_err(|why| format!("quantity {text:?}: {why}"))?;
    if quantity.amount.is_negative() {
        return Err(format!("quantity {text:?} is below zero"));
    }
    Ok(quantity.amount)
}
