//! Which consumers of claims have ended, as far as we saw it, and in which order things were read.

use std::collections::{HashMap, VecDeque};

use dragoman_crds::wire::Name;

/// Uids of consumers with claims whose end was seen; the oldest are forgotten.
///
/// Forgetting one costs a live read. 32 768 is three times the largest burst of
/// ending Pods seen upstream, in about two megabytes.
#[derive(Debug, Default)]
pub(super) struct Ended {
    uids: HashMap<Name, HowEnded>,
    order: VecDeque<Name>,
}

const ENDED: usize = 32_768;

/// How a consumer ended, as far as we saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HowEnded {
    /// It had ended or never run, then it was removed; or its end went unseen.
    Orderly,
    /// It was removed while its containers may have been running.
    Abruptly,
}

impl Ended {
    /// The consumer with `uid` has ended.
    pub(super) fn insert(&mut self, uid: Name, how: HowEnded) {
        if self.uids.insert(uid.clone(), how).is_none() {
            self.order.push_back(uid);
        }
        if self.order.len() > ENDED
            && let Some(oldest) = self.order.pop_front()
        {
            self.uids.remove(&oldest);
        }
    }

    /// How the consumer with `uid` ended, if that was seen.
    pub(super) fn get(&self, uid: &str) -> Option<HowEnded> {
        self.uids.get(uid).copied()
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
    pub fn proven_gone(&mut self, uid: &str) {
        self.ended.insert(uid.into(), HowEnded::Orderly);
    }

    /// The end of the consumer with `uid` was seen.
    pub(super) fn insert(&mut self, uid: Name, how: HowEnded) {
        self.ended.insert(uid, how);
    }

    /// How the consumer with `uid` ended, if its end was seen.
    pub fn ended(&self, uid: &str) -> Option<HowEnded> {
        self.ended.get(uid)
    }
}
