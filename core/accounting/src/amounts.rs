//! Amounts of several resources.

use std::fmt;

use dragoman_objects::ResourceList;
use dragoman_quantity::{Decimal, Notation, Overflow, Quantity, QuantityText};

use crate::per_resource::PerResource;
use crate::resource::{NotNodeAllocatable, Resource};
use crate::unaccounted::Unaccounted;

/// Returns `amount` of `resource` as the API writes it: rounded up to a billionth, and bytes with
/// binary suffixes.
pub fn written(resource: Resource, amount: Decimal) -> QuantityText {
    let notation = if resource == Resource::Cpu { Notation::DecimalSi } else { Notation::BinarySi };
    QuantityText::of(amount, notation)
}

/// Exact amounts by resource. An absent resource counts as zero. A zero is kept, because some rules
/// ask whether a resource is named.
///
/// A Pod has about ten lists of amounts, of which two name anything: an empty one is a pointer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Amounts(Option<Box<PerResource<Option<Decimal>>>>);

impl Amounts {
    /// Reads the node-allocatable part of a list that states a fact. `object` and `field` name its
    /// place in messages. A quantity that does not parse or is negative goes to `unaccounted` and
    /// is left out of the result. A quantity above the largest int64 is lowered to it.
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

    /// Reads amounts that a person or a program states: names of resources, and quantities.
    ///
    /// ```
    /// use dragoman_accounting::amounts::Amounts;
    ///
    /// let room = Amounts::parse([("cpu", "500m"), ("memory", "1Gi")])?;
    /// assert_eq!(room.to_string(), "cpu 500m, memory 1Gi");
    /// # Ok::<(), String>(())
    /// ```
    ///
    /// # Errors
    /// A name is not node-allocatable, or a quantity does not parse or is below zero. The error is a
    /// message for people.
    pub fn parse<'a>(list: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, String> {
        let amount = |(name, text): (&str, &str)| {
            let resource =
                Resource::of(name).ok_or_else(|| NotNodeAllocatable(name.to_owned()).to_string())?;
            Ok((resource, non_negative(text).map_err(|why| format!("{name}: {why}"))?))
        };
        list.into_iter().map(amount).collect()
    }

    /// The amount of `resource`; zero where it is not named.
    pub fn get(&self, resource: Resource) -> Decimal {
        self.named(resource).unwrap_or_default()
    }

    /// The amount of `resource`, if it is named.
    pub fn named(&self, resource: Resource) -> Option<Decimal> {
        self.0.as_ref()?.get(resource)
    }

    /// Whether no resource is named.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Sets the amount of `resource`, in place of an earlier one.
    pub fn set(&mut self, resource: Resource, amount: Decimal) {
        self.0.get_or_insert_default().set(resource, Some(amount));
    }

    /// Adds `amount` of `resource`.
    ///
    /// # Errors
    /// The sum does not fit into a `Decimal`.
    pub fn add(&mut self, resource: Resource, amount: Decimal) -> Result<(), Overflow> {
        self.set(resource, self.get(resource).checked_add(amount)?);
        Ok(())
    }

    /// Marks each named resource in `named`.
    pub fn mark(&self, named: &mut PerResource<bool>) {
        if let Some(amounts) = &self.0 {
            named.combine(amounts, |known, _| *known = true);
        }
    }

    /// The named resources with their amounts, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (Resource, Decimal)> {
        let amounts = self.0.iter().flat_map(|amounts| amounts.iter());
        amounts.filter_map(|(resource, amount)| Some((resource, amount?)))
    }

    /// Returns the amounts without the resources whose amount is zero.
    #[must_use]
    pub fn without_zeros(self) -> Self {
        self.iter().filter(|(_, amount)| !amount.is_zero()).collect()
    }
}

/// `cpu 500m, memory 1Gi`, as Kubernetes spells quantities; nothing for no resource.
impl fmt::Display for Amounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (resource, amount) in self.iter() {
            write!(f, "{separator}{resource} {}", written(resource, amount).0)?;
            separator = ", ";
        }
        Ok(())
    }
}

impl FromIterator<(Resource, Decimal)> for Amounts {
    fn from_iter<I: IntoIterator<Item = (Resource, Decimal)>>(amounts: I) -> Self {
        let mut all = Self::default();
        amounts.into_iter().for_each(|(resource, amount)| all.set(resource, amount));
        all
    }
}

/// The cap of amounts that are facts: the largest int64. No computer has more of a resource, and a
/// cap on each amount keeps every sum of facts within a `Decimal`.
pub(crate) fn largest() -> Decimal {
    Decimal::from(i64::MAX)
}

/// Reads a quantity that may not be below zero.
///
/// # Errors
/// The text is not a quantity, or the quantity is negative. The error is a message for people.
pub fn non_negative(text: &str) -> Result<Decimal, String> {
    let quantity: Quantity = text.parse().map_err(|why| format!("quantity {text:?}: {why}"))?;
    if quantity.amount.is_negative() {
        return Err(format!("quantity {text:?} is below zero"));
    }
    Ok(quantity.amount)
}
