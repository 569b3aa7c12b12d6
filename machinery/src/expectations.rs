//! Read your own writes.
//!
//! After a write the index is older than what we know. A key that wrote waits
//! until the index has reached the resourceVersion of the answer; then its next
//! decision is made on a state that holds the write.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::time::Duration;

use tokio::time::Instant;

/// Longest time that a key waits for the index. Every write is safe to repeat, so going on
/// early costs a request, never correctness.
pub const PATIENCE: Duration = Duration::from_mins(1);

/// Which keys wait for which index to reach what.
#[derive(Debug)]
pub struct Expectations<K, S> {
    marks: HashMap<K, Marks<S>>,
    parked: BTreeMap<(S, u64), Vec<K>>,
}

#[derive(Debug)]
struct Marks<S> {
    wanted: Vec<(S, u64)>,
    until: Instant,
}

impl<K, S> Default for Expectations<K, S> {
    fn default() -> Self {
        Self { marks: HashMap::new(), parked: BTreeMap::new() }
    }
}

/// Whether a key may be decided on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    /// The index holds every write of this key.
    Ready,
    /// The index lacks a write of this key; [`Expectations::advanced`] gives the key back.
    Parked,
    /// The index still lacks a write after [`PATIENCE`]; go on all the same.
    Overdue,
}

impl<K: Clone + Eq + Hash, S: Copy + Ord> Expectations<K, S> {
    /// `key` wrote an object of the kind in index `store`, which then had
    /// `version`. A version that is not a number is not waited for.
    pub fn expect(&mut self, key: &K, store: S, version: &str, now: Instant) {
        let Ok(version) = version.parse::<u64>() else { return };
        let marks = self
            .marks
            .entry(key.clone())
            .or_insert_with(|| Marks { wanted: Vec::new(), until: now + PATIENCE });
        marks.until = now + PATIENCE;
        match marks.wanted.iter_mut().find(|(s, _)| *s == store) {
            Some((_, wanted)) => *wanted = version.max(*wanted),
            None => marks.wanted.push((store, version)),
        }
    }

    /// Whether `key` may be decided on, given what each index has reached.
    pub fn check(&mut self, key: &K, reached: impl Fn(S) -> u64, now: Instant) -> Readiness {
        let Some(marks) = self.marks.get(key) else { return Readiness::Ready };
        let missing = marks.wanted.iter().copied().find(|(store, version)| reached(*store) < *version);
        match missing {
            None => {
                self.marks.remove(key);
                Readiness::Ready
            }
            Some(_) if now >= marks.until => {
                self.marks.remove(key);
                Readiness::Overdue
            }
            Some(mark) => {
                let parked = self.parked.entry(mark).or_default();
                if !parked.contains(key) {
                    parked.push(key.clone());
                }
                Readiness::Parked
            }
        }
    }

    /// Index `store` has reached `version`: the keys that waited for it.
    pub fn advanced(&mut self, store: S, version: u64) -> Vec<K> {
        let mut released = Vec::new();
        while let Some((mark, _)) = self.parked.range((store, 0)..=(store, version)).next() {
            let mark = *mark;
            released.extend(self.parked.remove(&mark).unwrap_or_default());
        }
        released
    }

    /// Forgets the keys that nothing has woken since their time was over: their objects are gone.
    pub fn sweep(&mut self, now: Instant) {
        self.marks.retain(|_, marks| now < marks.until);
    }

    /// Number of keys with a write the index may not hold yet.
    pub fn len(&self) -> usize {
        self.marks.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.marks.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_waits_until_every_index_holds_its_writes() {
        let now = Instant::now();
        let mut expectations = Expectations::default();
        expectations.expect(&"pod", 'c', "10", now);
        expectations.expect(&"pod", 'p', "12", now);
        let check = |e: &mut Expectations<_, _>, c, p| e.check(&"pod", |s| if s == 'c' { c } else { p }, now);
        assert_eq!(check(&mut expectations, 9, 20), Readiness::Parked);
        assert!(expectations.advanced('c', 9).is_empty());
        assert_eq!(expectations.advanced('c', 10), ["pod"]);
        assert_eq!(check(&mut expectations, 10, 11), Readiness::Parked);
        assert_eq!(expectations.advanced('p', 99), ["pod"]);
        assert_eq!(check(&mut expectations, 10, 99), Readiness::Ready);
        assert!(expectations.is_empty());
        assert_eq!(expectations.check(&"other", |_| 0, now), Readiness::Ready);
    }

    #[test]
    fn patience_ends() {
        let now = Instant::now();
        let mut expectations = Expectations::default();
        expectations.expect(&1, 'c', "10", now);
        assert_eq!(expectations.check(&1, |_| 0, now), Readiness::Parked);
        assert_eq!(expectations.check(&1, |_| 0, now + PATIENCE), Readiness::Overdue);
        assert_eq!(expectations.check(&1, |_| 0, now + PATIENCE), Readiness::Ready);
    }

    #[test]
    fn a_key_that_nothing_wakes_is_forgotten_after_its_time() {
        let now = Instant::now();
        let mut expectations = Expectations::default();
        expectations.expect(&1, 'c', "10", now);
        expectations.expect(&2, 'c', "11", now + PATIENCE);
        expectations.sweep(now + PATIENCE);
        assert_eq!(expectations.len(), 1);
        assert_eq!(expectations.check(&2, |_| 0, now + PATIENCE), Readiness::Parked);
    }
}
