//! Cutting branches that are proved to hold no solution. A search that finds one soon never
//! comes here; one that fails again and again does, and then
//!
//! - devices that cannot be told apart are tried once (a solution with the later one would
//!   be a solution with the earlier one, if the two changed places everywhere),
//! - what failed with the same devices taken, up to those that cannot be told apart, is not
//!   tried again,
//! - before each device it is asked whether enough are left for everything that is still
//!   wanted, and of one value where a constraint wants that.
//!
//! None of it ever looks at a device whose selector fails: whether that is an error is for
//! the search to find out when it comes there.

mod enough;
mod kinds;

use rustc_hash::FxHashMap;

use self::enough::Enough;
pub(super) use self::kinds::Kinds;
use super::attempt::{Ask, Attempt};
use super::constraints::Values;
use super::{Failure, Frame};
use crate::claims::AllWanted;

/// Failures before it begins: most searches end earlier.
pub(super) const AFTER_FAILURES: u64 = 32;
/// States that are remembered as failed, at most.
const MOST_REMEMBERED: usize = 200_000;

/// What is known once a search has become hard.
pub(super) struct Pruning {
    kinds: Kinds,
    failed: FxHashMap<Box<[u64]>, Failure>,
    /// The states of parts of the search that are under way, and how deep each began.
    under_way: Vec<(usize, Box<[u64]>)>,
    values: FxHashMap<Values, u64>,
    amounts: FxHashMap<Box<[dragoman_quantity::Decimal]>, u64>,
}

impl Pruning {
    pub(super) fn new(attempt: &Attempt, wanted: &AllWanted) -> Self {
        Self {
            kinds: Kinds::new(attempt, wanted),
            failed: FxHashMap::default(),
            under_way: Vec::new(),
            values: FxHashMap::default(),
            amounts: FxHashMap::default(),
        }
    }

    /// The kind of a device that nobody of this attempt has: another of the same kind would
    /// do as well, or as badly.
    pub(super) fn kind(&self, attempt: &Attempt, device: usize) -> Option<usize> {
        // What devices take from a node is not known here.
        let known = attempt.fit.is_none() && attempt.is_fresh(device);
        known.then(|| self.kinds.of(device)).flatten()
    }

    /// Whether there may be enough devices for this request from `cursor` on, of which it
    /// has `index`, and for all after it.
    pub(super) fn may_do(
        &self,
        attempt: &Attempt,
        wanted: &AllWanted,
        ask: Ask,
        index: usize,
        cursor: usize,
    ) -> bool {
        Enough { attempt, wanted, kinds: &self.kinds, ask, index, cursor }.holds()
    }

    /// Begins with a request; if the same failed before, how.
    pub(super) fn begin(
        &mut self,
        attempt: &Attempt,
        claim: usize,
        request: usize,
        depth: usize,
    ) -> Option<Failure> {
        if attempt.fit.is_some() {
            return None;
        }
        let state = self.state(attempt, claim, request);
        let failure = self.failed.get(&state).copied();
        if failure.is_none() {
            self.under_way.push((depth, state));
        }
        failure
    }

    /// What began at this depth or deeper has failed.
    pub(super) fn failed(&mut self, depth: usize, failure: Failure) {
        while let Some((_, state)) = self.under_way.pop_if(|(began, _)| *began >= depth) {
            if self.failed.len() < MOST_REMEMBERED {
                self.failed.insert(state, failure);
            }
        }
    }

    /// Everything that what comes after may depend on.
    fn state(&mut self, attempt: &Attempt, claim: usize, request: usize) -> Box<[u64]> {
        let mut state = vec![claim as u64, request as u64, attempt.results_of(claim) as u64];
        let prepared = attempt.prepared.clone();
        let constraints = prepared.wanted.get(claim).into_iter().flat_map(|claim| &claim.constraints);
        let constrained = attempt.constrained.get(claim).into_iter().flatten();
        for (constraint, known) in constraints.zip(constrained) {
            // Of a match only what is still common counts.
            let known: Vec<&Values> = if constraint.distinct {
                known.values.iter().collect()
            } else {
                known.values.last().into_iter().collect()
            };
            let numbers = known.into_iter().map(|values| number(&mut self.values, values));
            let mut numbers: Vec<u64> = numbers.collect();
            numbers.sort_unstable();
            state.push(numbers.len() as u64);
            state.extend(numbers);
        }
        let mut touched: Vec<[u64; 5]> = Vec::with_capacity(attempt.placed.len());
        for (place, placed) in attempt.placed.iter().enumerate() {
            let earlier = attempt.placed.iter().take(place);
            if earlier.into_iter().any(|other| other.device == placed.device) {
                continue;
            }
            let (marks, shares, consumed) = attempt.taken_of(placed.device);
            let here = attempt.placed.iter().filter(|other| other.device == placed.device);
            let here = here.filter(|other| other.ask.claim == claim).count() as u64;
            let kind = self.kinds.of(placed.device).unwrap_or(usize::MAX) as u64;
            let consumed = consumed.map_or(0, |consumed| number(&mut self.amounts, consumed));
            touched.push([kind, marks, shares, consumed, here]);
        }
        touched.sort_unstable();
        state.extend(touched.into_iter().flatten());
        state.into()
    }
}

/// One number for each different value, from 1 on.
fn number<K, Q>(known: &mut FxHashMap<K, u64>, value: &Q) -> u64
where
    K: std::borrow::Borrow<Q> + std::hash::Hash + Eq,
    Q: std::hash::Hash + Eq + ToOwned + ?Sized,
    Q::Owned: Into<K>,
{
    if let Some(number) = known.get(value) {
        return *number;
    }
    let next = known.len() as u64 + 1;
    known.insert(value.to_owned().into(), next);
    next
}

impl Frame {
    pub(super) fn rules_out(&self, kind: usize) -> bool {
        matches!(self, Self::Device { ruled_out, .. } if ruled_out.contains(&kind))
    }

    /// Remembers that a device of this kind was tried here in vain.
    pub(super) fn rule_out(&mut self, kind: Option<usize>) {
        if let (Self::Device { ruled_out, .. }, Some(kind)) = (self, kind)
            && !ruled_out.contains(&kind)
        {
            ruled_out.push(kind);
        }
    }
}
