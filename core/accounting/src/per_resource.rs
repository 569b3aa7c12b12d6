//! A value for each resource.

use std::fmt;

use crate::ledger::words::quantity;
use crate::resource::{PageSize, Resource};

/// A value for each node-allocatable resource; a resource that was never set has the default.
///
/// Nearly every Pod names cpu and memory and nothing else, and a ledger holds a few of these values
/// for each Pod. Resources that every node has are therefore fields, not keys.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct PerResource<T> {
    cpu: T,
    ephemeral_storage: T,
    memory: T,
    /// Absent where no size has a value: few Pods name huge pages, and a pointer takes a third
    /// of the space of an empty list.
    huge_pages: Option<Box<Pages<T>>>,
}

/// The values of huge pages, sorted by size; never empty and without defaults, so that equal
/// contents are equal values.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Pages<T>(Vec<(PageSize, T)>);

/// Whole units of each resource: thousandths of cpu; bytes of the rest, pages too.
pub type Units = PerResource<i64>;

/// Sums of units. An `i128` holds the sum of as many `i64` as a cluster can have objects.
pub type Sums = PerResource<i128>;

impl<T: Copy + Default + PartialEq> PerResource<T> {
    /// The value of `resource`.
    pub fn get(&self, resource: Resource) -> T {
        match resource {
            Resource::Cpu => self.cpu,
            Resource::EphemeralStorage => self.ephemeral_storage,
            Resource::Memory => self.memory,
            Resource::HugePages(size) => {
                let at = self.pages().binary_search_by_key(&size, |(known, _)| *known);
                at.ok().and_then(|at| self.pages().get(at)).map_or_else(T::default, |(_, value)| *value)
            }
        }
    }

    /// Sets the value of `resource`.
    pub fn set(&mut self, resource: Resource, value: T) {
        match resource {
            Resource::Cpu => self.cpu = value,
            Resource::EphemeralStorage => self.ephemeral_storage = value,
            Resource::Memory => self.memory = value,
            Resource::HugePages(size) => self.set_pages(size, value),
        }
    }

    fn pages(&self) -> &[(PageSize, T)] {
        self.huge_pages.as_ref().map_or(&[], |pages| &pages.0)
    }

    fn set_pages(&mut self, size: PageSize, value: T) {
        let mut pages = self.huge_pages.take().map_or_else(Vec::new, |pages| pages.0);
        match pages.binary_search_by_key(&size, |(known, _)| *known) {
            Ok(at) if value == T::default() => {
                pages.remove(at);
            }
            Ok(at) => pages.iter_mut().skip(at).take(1).for_each(|(_, known)| *known = value),
            Err(_) if value == T::default() => {}
            Err(at) => pages.insert(at, (size, value)),
        }
        self.huge_pages = (!pages.is_empty()).then(|| Box::new(Pages(pages)));
    }

    /// Whether every value is the default.
    pub fn is_empty(&self) -> bool {
        let none = T::default();
        self.cpu == none && self.memory == none && self.ephemeral_storage == none && self.huge_pages.is_none()
    }

    /// Combines each value with the value of `other` for the same resource. Defaults of `other` are
    /// skipped.
    pub fn combine<U: Copy + Default + PartialEq>(
        &mut self,
        other: &PerResource<U>,
        into: impl Fn(&mut T, U),
    ) {
        let none = U::default();
        let fields = [
            (&mut self.cpu, other.cpu),
            (&mut self.ephemeral_storage, other.ephemeral_storage),
            (&mut self.memory, other.memory),
        ];
        fields.into_iter().filter(|(_, value)| *value != none).for_each(|(known, value)| into(known, value));
        for (size, value) in other.pages() {
            let mut known = self.get(Resource::HugePages(*size));
            into(&mut known, *value);
            self.set_pages(*size, known);
        }
    }

    /// The values that are not the default, sorted by the resource's name.
    pub fn iter(&self) -> impl Iterator<Item = (Resource, T)> {
        let pages = self.pages().iter().map(|(size, value)| (Resource::HugePages(*size), *value));
        [(Resource::Cpu, self.cpu), (Resource::EphemeralStorage, self.ephemeral_storage)]
            .into_iter()
            .chain(pages)
            .chain([(Resource::Memory, self.memory)])
            .filter(|(_, value)| *value != T::default())
    }
}

impl PerResource<bool> {
    /// The resources that are marked, sorted by name.
    pub fn into_names(self) -> impl Iterator<Item = Resource> {
        let named = |marked: bool, resource| marked.then_some(resource).into_iter();
        let pages = self.huge_pages.into_iter().flat_map(|pages| pages.0);
        let pages = pages.map(|(size, _)| Resource::HugePages(size));
        named(self.cpu, Resource::Cpu)
            .chain(named(self.ephemeral_storage, Resource::EphemeralStorage))
            .chain(pages)
            .chain(named(self.memory, Resource::Memory))
    }
}

impl Sums {
    /// Adds a charge.
    pub fn add(&mut self, units: &Units) {
        self.combine(units, |sum, count| *sum += i128::from(count));
    }

    /// Subtracts a charge.
    pub fn take(&mut self, units: &Units) {
        self.combine(units, |sum, count| *sum -= i128::from(count));
    }
}

/// `cpu 500m, memory 1Gi`, as Kubernetes spells quantities; nothing where all are zero.
impl<T: Copy + Default + PartialEq + Into<i128>> fmt::Display for PerResource<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (resource, count) in self.iter() {
            write!(f, "{separator}{resource} {}", quantity(resource, count.into()).0)?;
            separator = ", ";
        }
        Ok(())
    }
}

impl<T: Copy + Default + PartialEq> FromIterator<(Resource, T)> for PerResource<T> {
    fn from_iter<I: IntoIterator<Item = (Resource, T)>>(values: I) -> Self {
        let mut all = Self::default();
        values.into_iter().for_each(|(resource, value)| all.set(resource, value));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_contents_are_equal_however_they_came() {
        let pages = |size: &str| Resource::HugePages(PageSize::of(size).unwrap());
        let mut one: Units = [(pages("2Mi"), 4), (Resource::Cpu, 1)].into_iter().collect();
        one.set(pages("1Gi"), 7);
        one.set(pages("1Gi"), 0);
        let other: Units = [(Resource::Cpu, 1), (pages("2Mi"), 4)].into_iter().collect();
        assert_eq!(one, other);
        assert_eq!(one.to_string(), "cpu 1m, hugepages-2Mi 4");
        assert_eq!(one.iter().collect::<Vec<_>>(), [(Resource::Cpu, 1), (pages("2Mi"), 4)]);
        one.set(pages("2Mi"), 0);
        one.set(Resource::Cpu, 0);
        assert!(one.is_empty());
        assert_eq!((one.get(pages("2Mi")), one), (0, Units::default()));
    }
}
