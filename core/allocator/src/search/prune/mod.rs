//! Pruning of branches that are proved to hold no solution. It begins after a number of failures,
//! so most searches never use it:
//!
//! - Devices that cannot be distinguished are tried once. If the later one had a solution, the
//!   earlier one would have it too, with the two exchanged everywhere.
//! - A state that failed is not tried again. States are equal up to devices that cannot be
//!   distinguished.
//! - Before each device, a flow check decides whether enough devices are left for all outstanding
//!   requests, under each value that a `matchAttribute` may take.
//!
//! Pruning raises no error for a device whose selector fails. The ordered search raises it when it
//! reaches the device.

mod enough;
mod kinds;

use rustc_hash::FxHashMap;

use self::enough::Enough;
pub(super) use self::kinds::Kinds;
use super::attempt::{Ask, Attempt};
use super::constraints::Values;
use super::{Failure, Frame, Stopped};
use crate::claims::AllWanted;

/// The number of failures after which pruning begins. Most searches end earlier.
pub(super) const AFTER_FAILURES: u64 = 32;
/// The largest number of failed states that are remembered.
const MOST_REMEMBERED: usize = 200_000;

/// The state of pruning.
pub(super) struct Pruning {
    kinds: Kinds,
    failed: FxHashMap<Box<[u64]>, Failure>,
    /// The states of the search that are in progress, and the depth at which each began.
    under_way: Vec<(usize, Box<[u64]>)>,
    values: FxHashMap<Values, u64>,
    amounts: FxHashMap<Box<[dragoman_quantity::Decimal]>, u64>,
}

impl Pruning {
    pub(super) fn new(attempt: &Attempt, wanted: &AllWanted) -> Result<Self, Stopped> {
        Ok(Self {
            kinds: Kinds::new(attempt, wanted)?,
            failed: FxHashMap::default(),
            under_way: Vec::new(),
            values: FxHashMap::default(),
            amounts: FxHashMap::default(),
        })
    }

    /// Returns the kind of a device that this attempt has not taken. Devices of one kind are
    /// interchangeable.
    pub(super) fn kind(&self, attempt: &Attempt, device: usize) -> Option<usize> {
        attempt.is_fresh(device).then(|| self.kinds.of(device)).flatten()
    }

    /// Whether enough devices may exist for the current request, which has `index` devices and
    /// continues at `cursor`, and for all requests after it.
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

    /// Starts a request. Returns the failure if the same state failed before.
    pub(super) fn begin(
        &mut self,
        attempt: &Attempt,
        claim: usize,
        request: usize,
        depth: usize,
    ) -> Option<Failure> {
        let state = self.state(attempt, claim, request);
        let failure = self.failed.get(&state).copied();
        if failure.is_none() {
            self.under_way.push((depth, state));
        }
        failure
    }

    /// Marks the states that began at this depth or deeper as failed.
    pub(super) fn failed(&mut self, depth: usize, failure: Failure) {
        while let Some((_, state)) = self.under_way.pop_if(|(began, _)| *began >= depth) {
            if self.failed.len() < MOST_REMEMBERED {
                self.failed.insert(state, failure);
            }
        }
    }

    /// Returns the state that the rest of the search depends on.
    fn state(&mut self, attempt: &Attempt, claim: usize, request: usize) -> Box<[u64]> {
        let mut state = vec![claim as u64, request as u64, attempt.results_of(claim) as u64];
        let prepared = attempt.prepared.clone();
        let constraints = prepared.wanted.get(claim).into_iter().flat_map(|claim| &claim.constraints);
        let constrained = attempt.constrained.get(claim).into_iter().flatten();
        for (constraint, known) in constraints.zip(constrained) {
            // A match depends only on the values that are still common.
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
        state.push(attempt.aligned().map_or(0, |values| number(&mut self.values, values)));
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

/// Returns the number of a value. Numbers count from 1, one for each distinct value.
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

    /// Drops what is known of kinds.
    pub(super) fn forget_kinds(&mut self) {
        if let Self::Device { ruled_out, .. } = self {
            ruled_out.clear();
        }
    }

    /// Records that a device of this kind failed here.
    pub(super) fn rule_out(&mut self, kind: Option<usize>) {
        if let (Self::Device { ruled_out, .. }, Some(kind)) = (self, kind)
            && !ruled_out.contains(&kind)
        {
            ruled_out.push(kind);
        }
    }
}
