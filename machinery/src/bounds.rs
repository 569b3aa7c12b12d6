//! Token buckets, and a map that cannot grow without end. Plain data with the time passed in.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use tokio::time::Instant;

/// The size of a bucket, and how many tokens it gains in a second.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rate {
    /// Most tokens that a bucket holds.
    pub size: f64,
    /// Tokens that a bucket gains in a second.
    pub per_second: f64,
}

impl Rate {
    /// Returns the time that an empty bucket takes to fill. A bucket left alone so long is as good as new.
    pub(crate) fn refill(self) -> Duration {
        Duration::from_secs_f64(self.size / self.per_second)
    }
}

/// A token bucket.
#[derive(Debug, Clone)]
pub(crate) struct Bucket {
    tokens: f64,
    filled: Instant,
}

impl Bucket {
    /// A full one.
    pub(crate) fn full(rate: Rate, now: Instant) -> Self {
        Self { tokens: rate.size, filled: now }
    }

    /// Takes a token, if there is one.
    pub(crate) fn take(&mut self, rate: Rate, now: Instant) -> bool {
        let gained = now.saturating_duration_since(self.filled).as_secs_f64() * rate.per_second;
        self.tokens = (self.tokens + gained).min(rate.size);
        self.filled = now;
        let taken = self.tokens >= 1.0;
        if taken {
            self.tokens -= 1.0;
        }
        taken
    }

    /// When there is a token again, for one that has none.
    pub(crate) fn next(&self, rate: Rate) -> Instant {
        // A millisecond more: the sum of fractions may stay just below one.
        let missing = (1.0 - self.tokens).max(0.0) / rate.per_second;
        self.filled + Duration::from_secs_f64(missing) + Duration::from_millis(1)
    }
}

/// A map of a bounded size that forgets entries. An entry that was not asked for within `age` may be
/// forgotten, and after twice that time it is. There are two generations, so that forgetting never
/// looks through the entries.
#[derive(Debug)]
pub(crate) struct Recent<K, V> {
    age: Duration,
    most: usize,
    turned: Instant,
    young: HashMap<K, V>,
    old: HashMap<K, V>,
}

impl<K: Hash + Eq + Clone, V> Recent<K, V> {
    /// Remembers up to `most` entries of each generation.
    pub(crate) fn new(age: Duration, most: usize, now: Instant) -> Self {
        Self { age, most, turned: now, young: HashMap::new(), old: HashMap::new() }
    }

    fn turn(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.turned);
        if passed < self.age {
            return;
        }
        self.old = std::mem::take(&mut self.young);
        if passed >= self.age * 2 {
            self.old = HashMap::new();
        }
        self.turned = now;
    }

    /// The entry of `key`; a new one if there is none, and no entry if there is no room for it.
    pub(crate) fn entry(&mut self, key: &K, now: Instant, new: impl FnOnce() -> V) -> Option<&mut V> {
        self.turn(now);
        let room = self.young.len() < self.most;
        if !self.young.contains_key(key) && room {
            let value = self.old.remove(key).unwrap_or_else(new);
            self.young.insert(key.clone(), value);
        }
        match self.young.get_mut(key) {
            Some(value) => Some(value),
            None => self.old.get_mut(key),
        }
    }

    /// The entry of `key`, if there is one. It does not get younger by that.
    pub(crate) fn get<Q: Hash + Eq + ?Sized>(&mut self, key: &Q, now: Instant) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        self.turn(now);
        match self.young.get_mut(key) {
            Some(value) => Some(value),
            None => self.old.get_mut(key),
        }
    }

    /// Returns the number of entries.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }

    /// Forgets the entry of `key`.
    pub(crate) fn forget(&mut self, key: &K) {
        self.young.remove(key);
        self.old.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_forgotten_only_when_it_would_be_full_again() {
        let now = Instant::now();
        let rate = Rate { size: 50.0, per_second: 2.0 };
        let mut buckets = Recent::new(rate.refill(), 2, now);
        let mut take = |key: &str, seconds: u64| {
            let now = now + Duration::from_secs(seconds);
            let bucket = buckets.entry(&key.to_owned(), now, || Bucket::full(rate, now));
            bucket.map(|bucket| (0..100).filter(|_| bucket.take(rate, now)).count())
        };
        assert_eq!(take("a", 0), Some(50));
        assert_eq!(take("a", 10), Some(20));
        // The generations turned in between.
        assert_eq!(take("a", 26), Some(32));
        assert_eq!(take("b", 26), Some(50));
        assert_eq!(take("c", 26), None, "there is room for two");
        assert_eq!(take("c", 51), Some(50));
    }
}
