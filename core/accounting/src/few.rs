//! Sets of few elements.

use std::borrow::Borrow;

/// A set that nearly always has one element, or none. A tree has a node for eleven of them; this has
/// room for what it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Few<T>(
    /// Sorted, each once.
    Vec<T>,
);

impl<T> Default for Few<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Ord> Few<T> {
    /// Adds an element.
    pub fn insert(&mut self, element: T) {
        if let Err(at) = self.0.binary_search(&element) {
            // The few that have many grow as a list does, or each would be copied for every one.
            if self.0.is_empty() {
                self.0.reserve_exact(1);
            }
            self.0.insert(at, element);
        }
    }

    /// Removes an element.
    pub fn remove<Q: Ord + ?Sized>(&mut self, element: &Q)
    where
        T: Borrow<Q>,
    {
        if let Ok(at) = self.0.binary_search_by(|known| known.borrow().cmp(element)) {
            self.0.remove(at);
        }
    }

    /// Whether an element is among them.
    pub fn contains<Q: Ord + ?Sized>(&self, element: &Q) -> bool
    where
        T: Borrow<Q>,
    {
        self.0.binary_search_by(|known| known.borrow().cmp(element)).is_ok()
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The elements, sorted.
    pub fn iter(&self) -> std::slice::Iter<'_, T> {
        self.0.iter()
    }
}

impl<T: Ord> FromIterator<T> for Few<T> {
    fn from_iter<I: IntoIterator<Item = T>>(elements: I) -> Self {
        let mut few = Self::default();
        few.extend(elements);
        few
    }
}

impl<T: Ord> Extend<T> for Few<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, elements: I) {
        elements.into_iter().for_each(|element| self.insert(element));
    }
}

impl<T> IntoIterator for Few<T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a, T> IntoIterator for &'a Few<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_sorted_set() {
        let mut few: Few<String> = ["b", "a", "b"].into_iter().map(String::from).collect();
        assert_eq!(few.iter().collect::<Vec<_>>(), ["a", "b"]);
        few.remove("c");
        few.remove("a");
        assert_eq!(
            (few.len(), few.is_empty(), few.contains("b"), few.contains("a")),
            (1, false, true, false)
        );
        assert_eq!(few.into_iter().collect::<Vec<_>>(), ["b"]);
    }
}
