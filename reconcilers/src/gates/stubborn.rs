//! Allocators that allocate again what was refused a moment ago. The answer to each comes later than the one before, so that the Pods of
//! others have their turns; what is to be refused counts against no other claim meanwhile.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use dragoman_machinery::backoff::Backoff;
use dragoman_machinery::controller::ObjectKey;
use dragoman_objects::Name;
use tokio::time::Instant;

/// The time within which an allocator may not come back to a node that was refused. It has to leave the node out for ten seconds
/// (docs/protocol.md 3), by a clock of its own and in whole seconds.
const SOON: Duration = Duration::from_secs(6);
/// Pauses of one allocator.
const PAUSES: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_mins(1));
/// An allocator that has kept the rule for so long begins anew.
const FORGIVEN: Duration = Duration::from_mins(10);
/// The most allocators that are remembered.
const MOST: usize = 256;

/// Allocators that ignore refusals, and the Pods that were refused. Only what this process has done counts: a tenant writes annotations.
#[derive(Debug, Default)]
pub(super) struct Stubborn {
    allocators: HashMap<Name, Strikes>,
    refused: HashMap<ObjectKey, Refused>,
    to_refuse: HashMap<ObjectKey, BTreeSet<Name>>,
}

#[derive(Debug)]
struct Strikes {
    count: u32,
    rests_until: Instant,
}

/// The last refusal of the allocations of a Pod.
#[derive(Debug)]
struct Refused {
    node: Name,
    at: Instant,
    /// Whether the Pod was seen without them since.
    is_done: bool,
}

impl Stubborn {
    /// The allocations of a Pod on a node are refused.
    pub(super) fn refuses(&mut self, pod: &ObjectKey, node: &str, now: Instant) {
        self.refused.insert(pod.clone(), Refused { node: node.into(), at: now, is_done: false });
    }

    /// A Pod was seen without its allocations.
    pub(super) fn has_lost(&mut self, pod: &ObjectKey) {
        if let Some(refused) = self.refused.get_mut(pod) {
            refused.is_done = true;
        }
    }

    /// Whether a Pod has allocations again on a node of which they were refused so lately that its allocator should have left it out.
    pub(super) fn is_ignored(&self, pod: &ObjectKey, node: &str, now: Instant) -> bool {
        self.refused.get(pod).is_some_and(|last| {
            last.is_done && *last.node == *node && now.saturating_duration_since(last.at) < SOON
        })
    }

    /// An allocation of this allocator is to be refused, although it should not have come. Returns the time for which the refusal waits;
    /// nothing if it is due now: the next one waits.
    pub(super) fn waits(&mut self, allocator: &Name, now: Instant) -> Option<Duration> {
        self.allocators.retain(|_, of| now.saturating_duration_since(of.rests_until) < FORGIVEN);
        match self.allocators.get_mut(allocator) {
            Some(known) if known.rests_until > now => Some(known.rests_until - now),
            Some(known) => {
                known.rests_until = now + PAUSES.pause(known.count);
                known.count = known.count.saturating_add(1);
                None
            }
            None => {
                if self.allocators.len() < MOST {
                    let first = Strikes { count: 1, rests_until: now + PAUSES.pause(0) };
                    self.allocators.insert(allocator.clone(), first);
                }
                None
            }
        }
    }

    /// The refusal of the claims of these uids waits, as far as it is about this Pod.
    pub(super) fn postpone(&mut self, pod: &ObjectKey, claims: impl Iterator<Item = Name>) {
        self.to_refuse.entry(pod.clone()).or_default().extend(claims);
    }

    /// A Pod is looked at again.
    pub(super) fn looks_again(&mut self, pod: &ObjectKey) {
        self.to_refuse.remove(pod);
    }

    /// A Pod is bound, ended or gone.
    pub(super) fn forget(&mut self, pod: &ObjectKey) {
        self.to_refuse.remove(pod);
        self.refused.remove(pod);
    }

    /// Whether the refusal of the claim of this uid waits, as far as it is about this Pod.
    pub(super) fn is_to_refuse(&self, pod: &ObjectKey, claim: &Name) -> bool {
        self.to_refuse.get(pod).is_some_and(|claims| claims.contains(claim))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_of_one_allocator_come_slower_and_slower() {
        let (mut stubborn, start) = (Stubborn::default(), Instant::now());
        let second = |seconds| start + Duration::from_secs(seconds);
        let (one, other) = (Name::from("one"), Name::from("other"));
        assert_eq!(stubborn.waits(&one, second(0)), None);
        assert_eq!(stubborn.waits(&one, second(0)), Some(Duration::from_secs(1)));
        assert_eq!(stubborn.waits(&other, second(0)), None, "another one is not concerned");
        assert_eq!(stubborn.waits(&one, second(1)), None);
        assert_eq!(stubborn.waits(&one, second(1)), Some(Duration::from_secs(2)));
        for _ in 0..9 {
            let left = stubborn.waits(&one, second(1_000)).unwrap_or_default();
            assert!(left <= Duration::from_mins(1));
        }
        assert_eq!(stubborn.waits(&one, second(9_000)), None);
        assert_eq!(stubborn.waits(&one, second(9_000)), Some(Duration::from_secs(1)), "it begins anew");
    }

    #[test]
    fn names_of_allocators_fill_no_memory() {
        let (mut stubborn, now) = (Stubborn::default(), Instant::now());
        for number in 0..10_000 {
            assert_eq!(stubborn.waits(&number.to_string().as_str().into(), now), None);
        }
        assert_eq!(stubborn.allocators.len(), MOST);
    }
}
