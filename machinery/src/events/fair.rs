//! The shares of Events: how many a namespace and an object may cost, and whose turn it is.
//!
//! Plain data with the time passed in. Every step costs the same however many namespaces there are,
//! and what is remembered has an upper bound: a tenant may create namespaces without end.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};

use tokio::time::Instant;

use super::Event;
use crate::bounds::{Bucket, Rate, Recent};

/// The limits of a lane.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// All its events together.
    pub lane: Rate,
    /// The events of a share.
    pub share: Rate,
    /// Whether each reason has a share of its own in each namespace.
    pub by_reason: bool,
}

/// Per object: 25 at once, then one in five minutes, as client-go's spam filter.
const OBJECT: Rate = Rate { size: 25.0, per_second: 1.0 / 300.0 };
/// Shares with a bucket of their own (in a generation of [`Recent`]) and with a queue of their own. All
/// further ones have one of each together.
pub(super) const SHARES: usize = 1024;
/// Objects that have a bucket in a generation of [`Recent`]. Further ones are held back by the bucket of
/// their share.
const OBJECTS: usize = 8192;
/// Most events of a share that wait while no other share has any. The limit is divided by the number of
/// shares with waiting events; each may always have one.
const WAITING: usize = 1024;

/// Key of a share: a namespace, and in the lane of our own warnings a reason in it.
type Share = (String, Option<&'static str>);

/// Events of one importance: what may wait, and what comes next.
#[derive(Debug)]
pub(super) struct Lane {
    limits: Limits,
    all: Bucket,
    shares: Recent<Share, Bucket>,
    /// The share of the namespaces for which there is no room.
    further: Bucket,
    objects: Recent<u64, Bucket>,
    hashes: RandomState,
    waiting: HashMap<Share, VecDeque<Event>>,
    /// The shares that have events waiting, each once, in the order of their turns.
    turns: VecDeque<Share>,
}

/// Next step of a lane.
#[derive(Debug)]
pub(super) enum Turn {
    /// Send this.
    Send(Box<Event>),
    /// Wait until then.
    Wait(Instant),
    /// Nothing waits.
    Idle,
}

impl Lane {
    /// A lane in which nothing waits.
    pub(super) fn new(limits: Limits, now: Instant) -> Self {
        Self {
            limits,
            all: Bucket::full(limits.lane, now),
            shares: Recent::new(limits.share.refill(), SHARES, now),
            further: Bucket::full(limits.share, now),
            objects: Recent::new(OBJECT.refill(), OBJECTS, now),
            hashes: RandomState::new(),
            waiting: HashMap::new(),
            turns: VecDeque::new(),
        }
    }

    /// Lets `event` wait for its turn. Returns whether its object and its namespace may say so much.
    pub(super) fn admit(&mut self, event: Event, now: Instant) -> bool {
        let object = self.hashes.hash_one(&event.regarding);
        let bucket = self.objects.entry(&object, now, || Bucket::full(OBJECT, now));
        if bucket.is_some_and(|bucket| !bucket.take(OBJECT, now)) {
            return false;
        }
        let reason = self.limits.by_reason.then_some(event.reason);
        let rate = self.limits.share;
        let mut share = (event.regarding.events().to_owned(), reason);
        let bucket = self.shares.entry(&share, now, || Bucket::full(rate, now));
        if !bucket.unwrap_or(&mut self.further).take(rate, now) {
            return false;
        }
        if self.turns.len() >= SHARES && !self.waiting.contains_key(&share) {
            share = (String::new(), None);
        }
        let most = (WAITING / self.turns.len().max(1)).max(1);
        let queue = self.waiting.entry(share.clone()).or_default();
        if queue.len() >= most {
            return false;
        }
        if queue.is_empty() {
            self.turns.push_back(share);
        }
        queue.push_back(event);
        true
    }

    /// Takes the next event: namespaces take turns.
    pub(super) fn next(&mut self, now: Instant) -> Turn {
        if self.turns.is_empty() {
            return Turn::Idle;
        }
        if !self.all.take(self.limits.lane, now) {
            return Turn::Wait(self.all.next(self.limits.lane));
        }
        let Some(share) = self.turns.pop_front() else { return Turn::Idle };
        let Some(queue) = self.waiting.get_mut(&share) else { return Turn::Idle };
        let event = queue.pop_front();
        if queue.is_empty() {
            self.waiting.remove(&share);
        } else {
            self.turns.push_back(share);
        }
        event.map_or(Turn::Idle, |event| Turn::Send(Box::new(event)))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::events::tests::event_in;
    use crate::events::{COMPLAINTS, OWN};

    fn lane(now: Instant) -> Lane {
        Lane::new(COMPLAINTS, now)
    }

    /// The namespaces of the next events, as many as may be sent at `now`.
    fn sent(lane: &mut Lane, now: Instant) -> Vec<String> {
        let turn = |lane: &mut Lane| match lane.next(now) {
            Turn::Send(event) => Some(event.regarding.namespace),
            Turn::Wait(_) | Turn::Idle => None,
        };
        std::iter::from_fn(|| turn(lane)).collect()
    }

    #[test]
    fn an_object_says_twenty_five_things_at_once() {
        let now = Instant::now();
        let mut lane = lane(now);
        let mut admitted = |object: &str, n: usize| {
            (0..n).filter(|_| lane.admit(event_in("a", object, "note"), now)).count()
        };
        assert_eq!(admitted("1", 100), 25);
        assert_eq!(admitted("2", 1), 1);
    }

    #[test]
    fn a_flood_of_one_namespace_leaves_the_share_of_another() {
        let now = Instant::now();
        let mut lane = lane(now);
        for object in 0..10_000 {
            lane.admit(event_in("a", &object.to_string(), "note"), now);
        }
        assert!(lane.admit(event_in("z", "pod", "note"), now));
        let order = sent(&mut lane, now);
        assert!(order.iter().take(2).any(|namespace| namespace == "z"), "{order:?}");
        let flood = order.iter().filter(|namespace| *namespace == "a").count();
        assert_eq!(flood, 50, "the bucket of the namespace");
    }

    #[test]
    fn a_flood_of_many_namespaces_delays_another_by_one_turn_of_each() {
        let now = Instant::now();
        let mut lane = lane(now);
        for namespace in 0..500 {
            for object in 0..40 {
                lane.admit(event_in(&namespace.to_string(), &object.to_string(), "note"), now);
            }
        }
        assert!(lane.admit(event_in("z", "pod", "note"), now));
        let mut order = Vec::new();
        for second in 0..60 {
            order.extend(sent(&mut lane, now + Duration::from_secs(second)));
        }
        let place = order.iter().position(|namespace| namespace == "z");
        assert!(place.is_some_and(|place| place <= 500), "{place:?}");
    }

    #[test]
    fn all_namespaces_together_keep_the_pace_of_the_lane() {
        let now = Instant::now();
        let mut lane = lane(now);
        for namespace in 0..500 {
            lane.admit(event_in(&namespace.to_string(), "pod", "note"), now);
        }
        assert_eq!(sent(&mut lane, now).len(), 100);
        let Turn::Wait(until) = lane.next(now) else { panic!("no pace") };
        assert!(until > now && until < now + Duration::from_millis(200));
        assert_eq!(sent(&mut lane, now + Duration::from_secs(5)).len(), 50);
    }

    #[test]
    fn what_is_remembered_is_bounded_however_many_namespaces_there_are() {
        let now = Instant::now();
        let mut lane = lane(now);
        for namespace in 0..20_000 {
            for object in ["1", "2", "3"] {
                lane.admit(event_in(&format!("{namespace}"), object, "note"), now);
            }
        }
        assert!(lane.shares.len() <= 2 * SHARES);
        assert!(lane.objects.len() <= 2 * OBJECTS);
        assert!(lane.turns.len() <= SHARES + 1, "{}", lane.turns.len());
        let waiting: usize = lane.waiting.values().map(VecDeque::len).sum();
        assert!(waiting <= 5 * WAITING, "{waiting}");
    }

    #[test]
    fn a_reason_of_ours_does_not_take_the_share_of_another() {
        let now = Instant::now();
        let mut lane = Lane::new(OWN, now);
        for object in 0..10_000 {
            lane.admit(event_in("a", &object.to_string(), "note"), now);
        }
        let mut other = event_in("a", "claim", "note");
        other.reason = "SecondWriter";
        assert!(lane.admit(other, now));
    }
}
