//! Amounts of several resources.

use std::collections::BTreeMap;

use dragoman_quantity::{Decimal, Notation, Overflow, Quantity};
use serde::{Deserialize, Deserializer, Serialize};

use crate::per_resource::PerResource;
use crate::resource::Resource;
use crate::unaccounted::Unaccounted;

/// A quantity as it stands in an API object, unread. Numbers without quotes are taken as
/// the API takes them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Text(pub Box<str>);

impl Text {
    /// An amount of a resource as the API writes it: rounded up to a billionth, and bytes
    /// with binary suffixes.
    pub fn of(resource: Resource, amount: Decimal) -> Self {
        const BILLIONTH: i32 = -9;
        let notation = if resource == Resource::Cpu { Notation::DecimalSi } else { Notation::BinarySi };
        let rounded = amount.rounded_up(BILLIONTH).and_then(|count| Decimal::new(count, BILLIONTH));
        let amount = if amount.exponent() < BILLIONTH { rounded.unwrap_or(amount) } else { amount };
        Self(Quantity { amount, notation }.to_string().into())
    }
}

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
pub struct Amounts(PerResource<Option<Decimal>>);

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
                Ok(amount) => amounts.set(resource, amount.min(largest())),
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
    pub fn get(&self, resource: Resource) -> Decimal {
        self.named(resource).unwrap_or_default()
    }

    /// The amount of `resource`, if it is named.
    pub fn named(&self, resource: Resource) -> Option<Decimal> {
        self.0.get(resource)
    }

    /// Whether no resource is named.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Names `resource` with `amount`, whatever it was before.
    pub fn set(&mut self, resource: Resource, amount: Decimal) {
        self.0.set(resource, Some(amount));
    }

    /// Adds `amount` of `resource`.
    ///
    /// # Errors
    /// The sum cannot be held.
    pub fn add(&mut self, resource: Resource, amount: Decimal) -> Result<(), Overflow> {
        self.set(resource, self.get(resource).checked_add(amount)?);
        Ok(())
    }

    /// Marks each resource that is named.
    pub fn mark(&self, named: &mut PerResource<bool>) {
        named.combine(&self.0, |known, _| *known = true);
    }

    /// Each resource that is named, with its amount, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (Resource, Decimal)> {
        self.0.iter().filter_map(|(resource, amount)| Some((resource, amount?)))
    }

    /// Without what is zero.
    #[must_use]
    pub fn without_zeros(self) -> Self {
        self.iter().filter(|(_, amount)| !amount.is_zero()).collect()
    }
}

impl FromIterator<(Resource, Decimal)> for Amounts {
    fn from_iter<I: IntoIterator<Item = (Resource, Decimal)>>(amounts: I) -> Self {
        Self(amounts.into_iter().map(|(resource, amount)| (resource, Some(amount))).collect())
    }
}

/// Nothing on a computer is larger, whatever somebody wrote into an object: amounts that
/// are facts are capped here, so that no sum of them can fail.
pub(crate) fn largest() -> Decimal {
    Decimal::from(i64::MAX)
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
