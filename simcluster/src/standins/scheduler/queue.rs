//! The queue of Pods that wait for a node.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use crate::api::meta::Name;

/// The pause after the first failed attempt. It doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Changes that an unschedulable Pod waits for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct WaitsFor {
    /// Cpu, memory or a place on a node.
    pub(super) room: bool,
    /// Claims, or devices for them.
    pub(super) claims: bool,
}

/// Where a Pod is in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// The Pod is to be tried next.
    Active,
    /// Something has changed for it. It is to be tried at this time, or before where no other Pod is to be tried.
    Woken(Instant),
    /// A write for it was refused. It is to be tried at this time.
    Failed(Instant),
    /// Nothing has changed for it since the last attempt, before which pause it is not tried ahead of others.
    Waiting(WaitsFor, Instant),
    /// A Pod that is on its way to a node.
    Leaving,
}

#[derive(Debug)]
struct Entry {
    place: Place,
    priority: i64,
    arrival: u64,
    attempts: u32,
}

/// The queue.
#[derive(Debug, Default)]
pub(super) struct Queue {
    entries: BTreeMap<Name, Entry>,
    /// The most important Pod first, and of those the oldest.
    active: BTreeSet<(Reverse<i64>, u64, Name)>,
    /// By the time at which each is to be tried, and whether it may be tried before.
    paused: BTreeSet<(Instant, Name)>,
    arrivals: u64,
}

impl Queue {
    /// Adds a Pod that is not there yet.
    pub(super) fn add(&mut self, name: &Name, priority: i64) {
        if self.entries.contains_key(name) {
            return;
        }
        self.arrivals += 1;
        let entry = Entry { place: Place::Leaving, priority, arrival: self.arrivals, attempts: 0 };
        self.entries.insert(name.clone(), entry);
        self.put(name, Place::Active);
    }

    pub(super) fn forget(&mut self, name: &Name) {
        self.put(name, Place::Leaving);
        self.entries.remove(name);
    }

    /// The Pod to try next.
    pub(super) fn next(&self, now: Instant) -> Option<Name> {
        let next = self.active.first().map(|(_, _, name)| name.clone());
        let may_be_early =
            |name: &Name| matches!(self.entries.get(name), Some(Entry { place: Place::Woken(_), .. }));
        next.or_else(|| {
            let mut paused = self.paused.iter().filter(|(due, name)| *due <= now || may_be_early(name));
            paused.next().map(|(_, name)| name.clone())
        })
    }

    /// Takes a Pod out for an attempt.
    pub(super) fn take(&mut self, name: &Name) {
        self.put(name, Place::Leaving);
        if let Some(entry) = self.entries.get_mut(name) {
            entry.attempts += 1;
        }
    }

    /// The time at which a Pod is to be tried after a refused write.
    pub(super) fn due(&self) -> Option<Instant> {
        self.paused.first().map(|(due, _)| *due)
    }

    /// Puts a Pod back that has no node.
    pub(super) fn wait(&mut self, name: &Name, waits_for: WaitsFor, now: Instant) {
        let until = now + self.pause(name);
        self.put(name, Place::Waiting(waits_for, until));
    }

    /// Puts a Pod back for which a write was refused.
    pub(super) fn fail(&mut self, name: &Name, now: Instant) {
        let until = now + self.pause(name);
        self.put(name, Place::Failed(until));
    }

    /// Something has changed for Pods that wait for this.
    pub(super) fn wake(&mut self, changed: WaitsFor) {
        let is_for = |waits: WaitsFor| (waits.room && changed.room) || (waits.claims && changed.claims);
        let woken: Vec<(Name, Instant)> = self
            .entries
            .iter()
            .filter_map(|(name, entry)| match entry.place {
                Place::Waiting(waits, until) if is_for(waits) => Some((name.clone(), until)),
                _ => None,
            })
            .collect();
        woken.iter().for_each(|(name, until)| self.put(name, Place::Woken(*until)));
    }

    /// A waiting Pod has changed itself.
    pub(super) fn touch(&mut self, name: &Name) {
        if let Some(Entry { place: Place::Waiting(_, until), .. }) = self.entries.get(name) {
            let until = *until;
            self.put(name, Place::Woken(until));
        }
    }

    fn pause(&self, name: &Name) -> Duration {
        let attempts = self.entries.get(name).map_or(1, |entry| entry.attempts.max(1));
        FIRST_PAUSE.saturating_mul(1 << (attempts - 1).min(8)).min(LONGEST_PAUSE)
    }

    fn put(&mut self, name: &Name, place: Place) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        match entry.place {
            Place::Active => {
                self.active.remove(&(Reverse(entry.priority), entry.arrival, name.clone()));
            }
            Place::Woken(due) | Place::Failed(due) => {
                self.paused.remove(&(due, name.clone()));
            }
            Place::Waiting(..) | Place::Leaving => {}
        }
        entry.place = place;
        match place {
            Place::Active => {
                self.active.insert((Reverse(entry.priority), entry.arrival, name.clone()));
            }
            Place::Woken(due) | Place::Failed(due) => {
                self.paused.insert((due, name.clone()));
            }
            Place::Waiting(..) | Place::Leaving => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        ("ns".to_owned(), text.to_owned())
    }

    impl Queue {
        fn pop(&mut self, now: Instant) -> Option<Name> {
            let name = self.next(now)?;
            self.take(&name);
            Some(name)
        }
    }

    #[test]
    fn the_most_important_pod_is_first_and_then_the_oldest() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        for (pod, priority) in [("a", 0), ("b", 5), ("c", 0)] {
            queue.add(&name(pod), priority);
        }
        let order: Vec<Name> = std::iter::from_fn(|| queue.pop(now)).collect();
        assert_eq!(order, [name("b"), name("a"), name("c")]);
    }

    #[test]
    fn a_waiting_pod_is_woken_by_what_it_waits_for() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.add(&name("a"), 0);
        let a = queue.pop(now).expect("a");
        queue.wait(&a, WaitsFor { room: true, claims: false }, now);
        queue.wake(WaitsFor { room: false, claims: true });
        assert_eq!(queue.pop(now), None);
        queue.wake(WaitsFor { room: true, claims: false });
        assert_eq!(queue.pop(now), Some(a));
    }

    #[test]
    fn a_refused_write_is_repeated_after_a_pause_that_grows() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.add(&name("a"), 0);
        for seconds in [1, 2, 4, 8, 10, 10] {
            let a = queue.pop(now + LONGEST_PAUSE).expect("a");
            queue.fail(&a, now);
            assert_eq!(queue.pop(now), None);
            assert_eq!(queue.due(), Some(now + Duration::from_secs(seconds)));
        }
    }
}
