//! Which consumers of claims have ended, as far as we saw it, and in which order things were read.

use std::collections::{HashMap, VecDeque};

use dragoman_objects::Name;
use jiff::Timestamp;

/// Consumers with claims that have ended, by uid; the oldest are forgotten.
///
/// Forgetting one costs a live read. 32 768 is three times the largest burst of
/// ending Pods seen upstream, in about two megabytes.
#[derive(Debug, Default)]
pub(super) struct Ended {
    ends: HashMap<Name, End>,
    order: VecDeque<Name>,
}

const ENDED: usize = 32_768;

/// Manner in which a consumer ended, as far as it was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HowEnded {
    /// The consumer had ended or never run before it was removed.
    Orderly,
    /// The consumer is gone, and the manner of its end went unseen.
    Unseen,
    /// The consumer was removed while its containers may have been running.
    Abruptly,
}

/// The end of a consumer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct End {
    /// Manner of the end.
    pub how: HowEnded,
    /// The node that its containers may be running on, where that is kept.
    pub node: Option<Name>,
    /// When it was seen to be gone.
    pub at: Timestamp,
}

impl Ended {
    /// The consumer with `uid` has ended.
    pub(super) fn insert(&mut self, uid: Name, end: End) {
        if self.ends.insert(uid.clone(), end).is_none() {
            self.order.push_back(uid);
        }
        if self.order.len() > ENDED
            && let Some(oldest) = self.order.pop_front()
        {
            self.ends.remove(&oldest);
        }
    }

    /// The end of the consumer with `uid`, if it is known.
    pub(super) fn get(&self, uid: &str) -> Option<&End> {
        self.ends.get(uid)
    }
}

/// Which consumers have ended, and in which order things were read.
#[derive(Debug, Default)]
pub struct Evidence {
    ended: Ended,
    tick: u64,
}

impl Evidence {
    /// The clock of reads: what is read now is read after everything before.
    pub fn tick(&self) -> u64 {
        self.tick
    }

    /// Advances the clock of reads.
    pub(super) fn next_tick(&mut self) -> u64 {
        self.tick += 1;
        self.tick
    }

    /// Records a live read or a refusal that proved the consumer with `uid` to be gone: the index
    /// is stale until the watch says so too.
    pub fn proven_gone(&mut self, uid: &str, now: Timestamp) {
        if self.ended.get(uid).is_none() {
            self.ended.insert(uid.into(), End { how: HowEnded::Unseen, node: None, at: now });
        }
    }

    /// The end of the consumer with `uid` was seen.
    pub(super) fn insert(&mut self, uid: Name, end: End) {
        self.ended.insert(uid, end);
    }

    /// Returns how the consumer with `uid` ended, if it is known to be gone.
    pub fn ended(&self, uid: &str) -> Option<HowEnded> {
        self.ended.get(uid).map(|end| end.how)
    }

    /// The end of the consumer with `uid`, if it is known to be gone.
    pub(super) fn end(&self, uid: &str) -> Option<&End> {
        self.ended.get(uid)
    }
}
