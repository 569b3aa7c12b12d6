//! The work queue: no key twice, none in work twice, in the order of the controller, fair between
//! namespaces.
//!
//! A namespace is a tenant: its users may add as many keys as they like, and make each of them slow.
//! Three rules keep the others from waiting for it:
//! - Within a rank, namespaces take turns.
//! - One namespace may have half of the workers that the others leave, so that some are always free.
//! - One take in [`AGED`] goes to the key that has waited longest, whatever its rank.
//!
//! [`Queue`] is plain data with the time passed in; [`SharedQueue`] lets watch
//! tasks and workers share one.

mod lane;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use self::lane::{Lane, Tenant};
use crate::backoff::Backoff;
use crate::metrics::QueueMetrics;

/// The longest back-off of a failing key.
pub const MAX_DELAY: Duration = Duration::from_mins(1);
/// One take in this many goes to the key that has waited longest.
const AGED: u32 = 2;
/// Most lanes, and most namespaces of each lane, that are searched for the key that has waited longest.
const LOOKED_AT: usize = 64;
/// The first wait of a failing key.
const FIRST_DELAY: Duration = Duration::from_millis(50);
/// The waits of a failing key.
const BACKOFF: Backoff = Backoff::new(FIRST_DELAY, MAX_DELAY);

/// The time between two retries in a namespace, once [`RETRIES_AT_ONCE`] are under way there: an API
/// server that refuses everything gets a hundred requests a second for it, however many keys fail. The
/// retries of one tenant never wait for those of another.
const BETWEEN_RETRIES: Duration = Duration::from_millis(10);
const RETRIES_AT_ONCE: u32 = 1000;
/// The longest that a retry waits for the others of its namespace.
const LONGEST_TURN: Duration = Duration::from_mins(5);

/// A key that knows its place in the queue.
pub trait Keyed: Clone + Eq + Hash + Ord + Send + std::fmt::Debug + 'static {
    /// Rank of a key, which decides the order of the keys: a lane, or priority and age.
    type Rank: Copy + Ord + Send + std::fmt::Debug;
    /// The rank of the key. The lowest goes first; keys of one rank and namespace go in the order in
    /// which they were added.
    fn rank(&self) -> Self::Rank;
    /// The namespace of the key, which is the tenant that it works for; `None` for cluster-scoped
    /// objects, which are no tenant's.
    fn namespace(&self) -> Option<Arc<str>>;
}

#[derive(Debug, Default)]
struct Slot {
    /// In a lane since then.
    queued: Option<Instant>,
    /// In work since then.
    running: Option<Instant>,
    /// Added while in work: goes back into its lane when done.
    again: bool,
    /// In `delayed` until then.
    due: Option<Instant>,
    /// Consecutive failures.
    failing: Option<Failing>,
}

/// Consecutive failures of a key.
#[derive(Debug, Clone)]
pub struct Failing {
    /// Time of the first failure.
    pub since: Instant,
    /// Number of the failures.
    pub count: u32,
    /// Reason of the last failure, for people.
    pub why: Box<str>,
}

/// The queue proper.
#[derive(Debug)]
pub struct Queue<K: Keyed> {
    ready: BTreeMap<K::Rank, Lane<K>>,
    slots: HashMap<K, Slot>,
    delayed: BTreeSet<(Instant, K)>,
    /// The keys in work, those that have been so longest first.
    running: BTreeSet<(Instant, K)>,
    /// The keys that fail, those that have failed longest first.
    failing: BTreeSet<(Instant, K)>,
    /// The keys in work of each namespace.
    working: HashMap<Tenant, usize>,
    workers: usize,
    takes: u32,
    /// When the retries that were promised in a namespace end, at their rate. A time that has passed may
    /// be forgotten.
    retries_until: HashMap<Tenant, Instant>,
}

impl<K: Keyed> Queue<K> {
    /// An empty queue for so many workers.
    pub fn new(workers: usize) -> Self {
        Self {
            ready: BTreeMap::new(),
            slots: HashMap::new(),
            delayed: BTreeSet::new(),
            running: BTreeSet::new(),
            failing: BTreeSet::new(),
            working: HashMap::new(),
            workers,
            takes: 0,
            retries_until: HashMap::new(),
        }
    }

    /// Wants `key` worked on as soon as possible. Returns whether it was not
    /// already waiting. Something has changed, so a pending backoff is cut short.
    pub fn add(&mut self, key: K, now: Instant) -> bool {
        let slot = self.slots.entry(key.clone()).or_default();
        if let Some(due) = slot.due.take() {
            self.delayed.remove(&(due, key.clone()));
        }
        if slot.running.is_some() {
            return !std::mem::replace(&mut slot.again, true);
        }
        if slot.queued.is_some() {
            return false;
        }
        slot.queued = Some(now);
        self.ready.entry(key.rank()).or_default().push(key.namespace(), key);
        true
    }

    /// Wants `key` worked on after `delay`, or earlier if it is added.
    pub fn add_after(&mut self, key: K, delay: Duration, now: Instant) {
        let due = now + delay;
        let slot = self.slots.entry(key.clone()).or_default();
        if slot.queued.is_some() || slot.again || slot.due.is_some_and(|earlier| earlier <= due) {
            return;
        }
        if let Some(later) = slot.due.replace(due) {
            self.delayed.remove(&(later, key.clone()));
        }
        self.delayed.insert((due, key));
    }

    /// Takes the next key into work; returns it with the time it has waited.
    pub fn take(&mut self, now: Instant) -> Option<(K, Duration)> {
        while let Some((due, key)) = self.delayed.pop_first() {
            if due > now {
                self.delayed.insert((due, key));
                break;
            }
            if let Some(slot) = self.slots.get_mut(&key) {
                slot.due = None;
            }
            self.add(key, now);
        }
        let key = self.take_ready()?;
        *self.working.entry(key.namespace()).or_default() += 1;
        let slot = self.slots.entry(key.clone()).or_default();
        let waited = slot.queued.take().map_or(Duration::ZERO, |since| now - since);
        slot.running = Some(now);
        self.running.insert((now, key.clone()));
        Some((key, waited))
    }

    /// Takes a key out of its lane, if a namespace may have another key in work.
    fn take_ready(&mut self) -> Option<K> {
        let Self { ready, slots, working, workers, takes, .. } = self;
        let total: usize = working.values().sum();
        let may = |tenant: &Tenant| {
            let own = working.get(tenant).copied().unwrap_or_default();
            // Half of what the others leave, and always one.
            let share = workers.saturating_sub(total - own).div_ceil(2);
            tenant.is_none() || own < share.max(1)
        };
        *takes = takes.wrapping_add(1);
        let aged = takes.is_multiple_of(AGED).then(|| {
            let since = |key: &K| slots.get(key).and_then(|slot| slot.queued);
            let oldest = |lane: &Lane<K>| {
                let heads = lane.heads().take(LOOKED_AT).filter(|(tenant, _)| may(tenant));
                heads.filter_map(|(_, key)| since(key)).min()
            };
            let lanes = ready.iter().take(LOOKED_AT);
            lanes.filter_map(|(rank, lane)| Some((oldest(lane)?, *rank))).min().map(|(_, rank)| rank)
        });
        let aged = aged.flatten().and_then(|rank| Some((rank, ready.get_mut(&rank)?.take(may)?)));
        let mut lanes = ready.iter_mut();
        let (rank, key) = aged.or_else(|| lanes.find_map(|(rank, lane)| Some((*rank, lane.take(may)?))))?;
        if ready.get(&rank).is_some_and(|lane| lane.len() == 0) {
            ready.remove(&rank);
        }
        Some(key)
    }

    /// `key` is done for now: it succeeded, so its failures are forgotten.
    pub fn succeeded(&mut self, key: &K, now: Instant) {
        if let Some(failing) = self.slots.get_mut(key).and_then(|slot| slot.failing.take()) {
            self.failing.remove(&(failing.since, key.clone()));
        }
        self.leave(key, now);
    }

    /// `key` failed: it comes back after a backoff, which is returned with its failures. `jitter` is
    /// in 0..1.
    pub fn failed(&mut self, key: &K, why: &str, jitter: f64, now: Instant) -> (Duration, Failing) {
        let before = self.slots.get(key).and_then(|slot| slot.failing.as_ref());
        let (since, count) = before.map_or((now, 0), |before| (before.since, before.count));
        let failing = Failing { since, count: count.saturating_add(1), why: why.into() };
        if let Some(slot) = self.slots.get_mut(key) {
            slot.failing = Some(failing.clone());
            self.failing.insert((since, key.clone()));
        }
        let delay = BACKOFF.pause(failing.count - 1).mul_f64(0.5 + 0.5 * jitter.clamp(0.0, 1.0));
        let delay = delay.max(self.next_retry(key.namespace(), now));
        self.leave(key, now);
        self.add_after(key.clone(), delay, now);
        (delay, failing)
    }

    /// Promises a retry; returns how long it has to wait for those of other keys of the namespace.
    fn next_retry(&mut self, tenant: Tenant, now: Instant) -> Duration {
        const REMEMBERED: usize = 1000;
        if self.retries_until.len() > REMEMBERED {
            self.retries_until.retain(|_, until| *until > now);
        }
        let promised = self.retries_until.entry(tenant).or_insert(now);
        let until = now.max(*promised);
        // Keys that were woken or succeeded give nothing back: what is promised has an end.
        *promised = (until + BETWEEN_RETRIES).min(now + LONGEST_TURN);
        (until - now).saturating_sub(BETWEEN_RETRIES * RETRIES_AT_ONCE)
    }

    fn leave(&mut self, key: &K, now: Instant) {
        let Some(slot) = self.slots.get_mut(key) else { return };
        if let Some(since) = slot.running.take() {
            self.running.remove(&(since, key.clone()));
            let tenant = key.namespace();
            let left = self.working.get(&tenant).copied().unwrap_or_default().saturating_sub(1);
            if left == 0 {
                self.working.remove(&tenant);
            } else {
                self.working.insert(tenant, left);
            }
        }
        if std::mem::take(&mut slot.again) {
            self.add(key.clone(), now);
        } else if slot.failing.is_none() && slot.queued.is_none() && slot.due.is_none() {
            self.slots.remove(key);
            // A burst of ten thousand keys must not be paid for ever after.
            if self.slots.is_empty() {
                *self = Self::new(self.workers);
            }
        }
    }

    /// When the next delayed key is due.
    pub fn next_due(&self) -> Option<Instant> {
        self.delayed.first().map(|(due, _)| *due)
    }

    /// Keys ready to be taken.
    pub fn ready(&self) -> usize {
        self.ready.values().map(Lane::len).sum()
    }

    /// The keys that fail, those that have failed longest first.
    pub fn failing(&self) -> Vec<(&K, &Failing)> {
        let failing = |key| self.slots.get(key).and_then(|slot| slot.failing.as_ref());
        self.failing.iter().filter_map(|(_, key)| Some((key, failing(key)?))).collect()
    }

    /// The number of keys that fail, and since when the oldest does.
    pub fn failures(&self) -> (usize, Option<Instant>) {
        (self.failing.len(), self.failing.first().map(|(since, _)| *since))
    }

    /// The keys that wait for a worker, those that have waited longest first.
    pub fn waiting(&self) -> Vec<(&K, Instant)> {
        let mut waiting: Vec<_> =
            self.slots.iter().filter_map(|(key, slot)| Some((key, slot.queued?))).collect();
        waiting.sort_unstable_by(|a, b| (a.1, a.0).cmp(&(b.1, b.0)));
        waiting
    }

    /// Returns the time for which each key in work has been in work.
    pub fn running(&self, now: Instant) -> impl Iterator<Item = Duration> {
        self.running.iter().map(move |(since, _)| now.saturating_duration_since(*since))
    }
}

/// A queue shared by watch tasks and workers. Cheap to clone.
#[derive(Clone)]
pub struct SharedQueue<K: Keyed> {
    queue: Arc<Mutex<Queue<K>>>,
    changed: Arc<Notify>,
    metrics: QueueMetrics,
}

impl<K: Keyed> SharedQueue<K> {
    /// An empty queue for so many workers, which reports to `metrics`.
    pub fn new(workers: usize, metrics: QueueMetrics) -> Self {
        Self { queue: Arc::new(Mutex::new(Queue::new(workers))), changed: Arc::default(), metrics }
    }

    /// As [`Queue::add`], for many keys at once.
    pub fn add_all(&self, keys: Vec<K>) {
        // Watches and workers get the lock in between.
        const PORTION: usize = 1000;
        let now = Instant::now();
        let mut keys = keys.into_iter().peekable();
        while keys.peek().is_some() {
            let mut queue = self.lock();
            let added = keys.by_ref().take(PORTION).map(|key| queue.add(key, now));
            self.metrics.adds.inc_by(added.filter(|added| *added).count() as u64);
            self.changed(&queue);
        }
    }

    /// As [`Queue::add_after`].
    pub fn add_after(&self, key: K, delay: Duration) {
        let mut queue = self.lock();
        queue.add_after(key, delay, Instant::now());
        self.changed(&queue);
    }

    /// Waits for a key and takes it into work.
    pub async fn next(&self) -> K {
        loop {
            let changed = self.changed.notified();
            let due = {
                let mut queue = self.lock();
                if let Some((key, waited)) = queue.take(Instant::now()) {
                    self.metrics.queue_duration.observe(waited.as_secs_f64());
                    self.changed(&queue);
                    return key;
                }
                queue.next_due()
            };
            match due {
                Some(due) => tokio::select! {
                    biased;
                    () = changed => {}
                    () = sleep_until(due) => {}
                },
                None => changed.await,
            }
        }
    }

    /// As [`Queue::succeeded`].
    pub fn succeeded(&self, key: &K) {
        let mut queue = self.lock();
        queue.succeeded(key, Instant::now());
        self.changed(&queue);
    }

    /// As [`Queue::failed`].
    pub fn failed(&self, key: &K, why: &str) -> (Duration, Failing) {
        let mut queue = self.lock();
        let failed = queue.failed(key, why, fastrand::f64(), Instant::now());
        self.metrics.retries.inc();
        self.changed(&queue);
        failed
    }

    /// The keys that fail and those that wait for a worker, in words: the oldest of each.
    pub fn describe(&self) -> Vec<String> {
        const NAMED: usize = 10;
        let (queue, now) = (self.lock(), Instant::now());
        let age = |since: Instant| now.saturating_duration_since(since).as_secs();
        let (failing, waiting) = (queue.failing(), queue.waiting());
        let mut lines = vec![format!("keys that fail: {}", failing.len())];
        for (key, Failing { since, count, why }) in failing.into_iter().take(NAMED) {
            lines.push(format!("  {key:?}: {count} times in {} s: {why}", age(*since)));
        }
        lines.push(format!("keys that wait for a worker: {}", waiting.len()));
        let waiting = waiting.into_iter().take(NAMED);
        lines.extend(waiting.map(|(key, since)| format!("  {key:?}: for {} s", age(since))));
        lines
    }

    /// Brings the gauges up to date that age by themselves.
    pub fn measure(&self) {
        let queue = self.lock();
        let now = Instant::now();
        let (mut sum, mut longest) = (Duration::ZERO, Duration::ZERO);
        for running in queue.running(now) {
            sum += running;
            longest = longest.max(running);
        }
        self.metrics.unfinished.set(sum.as_secs_f64());
        self.metrics.longest_running.set(longest.as_secs_f64());
        let (failing, oldest) = queue.failures();
        self.metrics.failing.set(i64::try_from(failing).unwrap_or(i64::MAX));
        let oldest = oldest.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        self.metrics.failing_oldest.set(oldest.as_secs_f64());
    }

    /// Observes how long a key was in work.
    pub fn worked(&self, took: Duration) {
        self.metrics.work_duration.observe(took.as_secs_f64());
    }

    fn changed(&self, queue: &Queue<K>) {
        self.metrics.depth.set(i64::try_from(queue.ready()).unwrap_or(i64::MAX));
        self.changed.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Queue<K>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Keyed for (u8, u32) {
        type Rank = u8;
        fn rank(&self) -> u8 {
            self.0
        }
        fn namespace(&self) -> Option<Arc<str>> {
            None
        }
    }

    /// A key of a namespace, with its rank.
    #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
    struct Of(&'static str, u8, u32);

    impl Keyed for Of {
        type Rank = u8;
        fn rank(&self) -> u8 {
            self.1
        }
        fn namespace(&self) -> Option<Arc<str>> {
            Some(self.0.into())
        }
    }

    #[test]
    fn namespaces_take_turns() {
        let now = Instant::now();
        let mut queue = Queue::new(100);
        (0..50).for_each(|n| assert!(queue.add(Of("flood", 1, n), now)));
        queue.add(Of("quiet", 1, 0), now);
        let order: Vec<Of> = std::iter::from_fn(|| queue.take(now).map(|(key, _)| key)).collect();
        assert!(order.iter().position(|key| key.0 == "quiet") <= Some(1), "{order:?}");
    }

    #[test]
    fn no_namespace_has_all_workers() {
        let now = Instant::now();
        let mut queue = Queue::new(8);
        for namespace in ["a", "b", "c"] {
            (0..50).for_each(|n| assert!(queue.add(Of(namespace, 1, n), now)));
        }
        let mut taken = HashMap::new();
        while let Some((key, _)) = queue.take(now) {
            *taken.entry(key.0).or_insert(0) += 1;
        }
        // Eight workers: whatever three namespaces want, there is one left for a fourth.
        assert!(taken.values().sum::<i32>() < 8, "{taken:?}");
        queue.add(Of("quiet", 1, 0), now);
        assert_eq!(queue.take(now).map(|(key, _)| key.0), Some("quiet"));
        // One that is alone has half of them.
        let mut queue = Queue::new(8);
        (0..50).for_each(|n| assert!(queue.add(Of("a", 1, n), now)));
        assert_eq!(std::iter::from_fn(|| queue.take(now)).count(), 4);
        queue.succeeded(&Of("a", 1, 0), now);
        assert_eq!(queue.take(now).map(|(key, _)| key.2), Some(4));
    }

    #[test]
    fn a_low_rank_gets_its_share() {
        let now = Instant::now();
        let mut queue = Queue::new(1000);
        queue.add(Of("a", 2, 0), now);
        let later = now + Duration::from_millis(1);
        (0..100).for_each(|n| assert!(queue.add(Of("a", 1, n), later)));
        let order: Vec<Of> = (0..8).filter_map(|_| queue.take(later).map(|(key, _)| key)).collect();
        assert!(order.contains(&Of("a", 2, 0)), "{order:?}");
    }

    const A: (u8, u32) = (1, 1);
    const B: (u8, u32) = (1, 2);
    const R: (u8, u32) = (0, 1);

    #[test]
    fn the_lowest_rank_goes_first_and_no_key_twice() {
        let now = Instant::now();
        let mut queue = Queue::new(100);
        assert!(queue.add(A, now));
        assert!(queue.add(B, now));
        assert!(!queue.add(A, now));
        assert!(queue.add(R, now));
        let order: Vec<_> = std::iter::from_fn(|| queue.take(now).map(|(k, _)| k)).collect();
        assert_eq!(order, [R, A, B]);
    }

    #[test]
    fn a_key_added_while_in_work_runs_again_but_never_beside_itself() {
        let now = Instant::now();
        let mut queue = Queue::new(100);
        queue.add(A, now);
        queue.take(now);
        queue.add(A, now);
        queue.add(A, now);
        assert!(queue.take(now).is_none());
        queue.succeeded(&A, now);
        assert_eq!(queue.take(now).map(|(k, _)| k), Some(A));
        queue.succeeded(&A, now);
        assert!(queue.take(now).is_none());
        assert!(queue.slots.is_empty());
    }

    #[test]
    fn backoff_grows_to_a_minute_and_is_forgotten_on_success() {
        let began = Instant::now();
        let mut now = began;
        let mut queue = Queue::new(100);
        queue.add(A, now);
        let mut delays = Vec::new();
        for times in 1..=14 {
            queue.take(now).expect("due");
            let (delay, failing) = queue.failed(&A, "down", 1.0, now);
            assert_eq!((failing.count, failing.since), (times, began));
            assert!(queue.take(now).is_none());
            delays.push(delay);
            now += delay;
        }
        assert!(delays.is_sorted());
        assert_eq!(delays[0], FIRST_DELAY);
        assert_eq!(delays[13], MAX_DELAY);
        queue.take(now).expect("due");
        queue.succeeded(&A, now);
        queue.add(A, now);
        queue.take(now);
        assert_eq!(queue.failed(&A, "down", 1.0, now).0, FIRST_DELAY);
    }

    #[test]
    fn retries_of_a_namespace_have_one_rate() {
        let now = Instant::now();
        let mut queue = Queue::new(100_000);
        let failed = |queue: &mut Queue<Of>, key: Of, now| {
            queue.add(key.clone(), now);
            while queue.take(now).expect("due").0 != key {}
            queue.failed(&key, "down", 1.0, now).0
        };
        let delays: Vec<Duration> =
            (0..6000).map(|number| failed(&mut queue, Of("flood", 1, number), now)).collect();
        assert!(delays[..1000].iter().all(|delay| *delay == FIRST_DELAY));
        // Five thousand more take fifty seconds.
        assert_eq!(delays[5999], BETWEEN_RETRIES * 4999);
        assert_eq!(failed(&mut queue, Of("quiet", 1, 0), now), FIRST_DELAY, "the other namespace waits");
        assert_eq!(failed(&mut queue, Of("flood", 2, 0), now + Duration::from_mins(2)), FIRST_DELAY);
    }

    #[test]
    fn the_keys_that_fail_and_wait_are_named_oldest_first() {
        let now = Instant::now();
        let mut queue = Queue::new(100);
        for (key, at) in [(B, 1), (A, 2)] {
            let at = now + Duration::from_millis(at);
            queue.add(key, at);
            queue.take(at);
            queue.failed(&key, "down", 1.0, at);
        }
        let failing: Vec<_> =
            queue.failing().into_iter().map(|(key, failing)| (*key, &*failing.why)).collect();
        assert_eq!(failing, [(B, "down"), (A, "down")]);
        queue.add(R, now);
        assert_eq!(queue.waiting(), [(&R, now)]);
        queue.succeeded(&B, now);
        assert_eq!(queue.failing().len(), 1);
        assert_eq!(queue.failures(), (1, Some(now + Duration::from_millis(2))));
    }

    #[test]
    fn a_change_cuts_a_backoff_short() {
        let now = Instant::now();
        let mut queue = Queue::new(100);
        queue.add(A, now);
        queue.take(now);
        queue.failed(&A, "down", 1.0, now);
        queue.add(A, now);
        assert_eq!(queue.take(now).map(|(k, _)| k), Some(A));
        assert!(queue.next_due().is_none());
    }
}
