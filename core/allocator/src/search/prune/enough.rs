//! The check whether enough devices are left for all outstanding requests.
//!
//! Requests and kinds of devices form a flow network. A request demands a number of devices. A kind
//! supplies the devices that are not taken. An edge exists where the request may ever get a device
//! of the kind. If the flow does not meet the demand, no solution exists.

use rustc_hash::FxHashMap;

use super::super::attempt::{Ask, Attempt};
use super::super::constraints::Values;
use super::kinds::{Kinds, Known};
use crate::claims::{AllWanted, PreparedConstraint};

/// The number of edges that take as long as examining one device.
const EDGES_OF_A_DEVICE: u64 = 64;

pub(super) struct Enough<'a> {
    pub(super) attempt: &'a Attempt,
    pub(super) wanted: &'a AllWanted,
    pub(super) kinds: &'a Kinds,
    /// The current request.
    pub(super) ask: Ask,
    /// The number of devices that it has.
    pub(super) index: usize,
    /// The position at which it continues.
    pub(super) cursor: usize,
}

/// The number of devices that a request still wants.
#[derive(Clone, Copy)]
struct Demand {
    ask: Ask,
    count: usize,
}

/// Devices of one kind, either before the cursor or from the cursor on.
#[derive(Clone)]
struct Supply {
    kind: usize,
    ahead: bool,
    shared: bool,
    count: usize,
}

impl Enough<'_> {
    pub(super) fn holds(&self) -> bool {
        let Some((demands, reserved)) = self.demands() else { return false };
        let supplies = self.supplies(&reserved);
        if !self.flows(&demands, &supplies, None) {
            return false;
        }
        // A `matchAttribute` without a value yet has one in every solution, and the devices under a
        // `distinctAttribute` have different ones.
        let claims = self.attempt.prepared.wanted.iter().enumerate().skip(self.ask.claim);
        for (claim, prepared) in claims {
            for (number, constraint) in prepared.constraints.iter().enumerate() {
                let suffices = if constraint.distinct {
                    self.values_suffice(&demands, &supplies, claim, number, constraint)
                } else {
                    self.fixed(claim, number).is_some()
                        || self.some_value_flows(&demands, &supplies, claim, number, constraint)
                };
                if !suffices {
                    return false;
                }
            }
        }
        true
    }

    fn fixed(&self, claim: usize, constraint: usize) -> Option<&Values> {
        self.attempt.constrained.get(claim)?.get(constraint)?.values.last()
    }

    /// Returns the outstanding demands, and the devices that requests for all will take. `None` if
    /// one of these devices is gone.
    fn demands(&self) -> Option<(Vec<Demand>, Vec<usize>)> {
        let (mut demands, mut reserved) = (Vec::new(), Vec::new());
        let claims = self.attempt.prepared.wanted.iter().enumerate().skip(self.ask.claim);
        for (claim, prepared) in claims {
            let first = if claim == self.ask.claim { self.ask.request } else { 0 };
            for (request, prepared) in prepared.requests.iter().enumerate().skip(first) {
                let current = (claim, request) == (self.ask.claim, self.ask.request);
                if prepared.first_available && !current {
                    continue;
                }
                let ask = if current { self.ask } else { Ask { claim, request, sub: 0 } };
                let Some(asked) = prepared.asked.get(ask.sub).filter(|asked| !asked.admin) else { continue };
                let wanted = self.wanted.get(claim)?.get(request)?.get(ask.sub)?;
                let done = if current { self.index } else { 0 };
                if asked.all {
                    let left = wanted.all.iter().flatten().copied().skip(done);
                    reserved.extend(left.filter(|device| !self.is_shared(*device)));
                } else {
                    demands.push(Demand { ask, count: wanted.count.saturating_sub(done) });
                }
            }
        }
        let gone = reserved.iter().any(|device| !self.attempt.is_fresh(*device));
        (!gone).then_some((demands, reserved))
    }

    fn is_shared(&self, device: usize) -> bool {
        self.attempt.view.devices.get(device).is_some_and(|device| self.attempt.is_shared(device))
    }

    fn supplies(&self, reserved: &[usize]) -> Vec<Supply> {
        let mut supplies: Vec<Supply> = Vec::new();
        let mut places: Vec<[Option<usize>; 2]> = vec![[None, None]; self.kinds.count()];
        for (number, device) in self.attempt.view.devices.iter().enumerate() {
            let shared = self.attempt.is_shared(device);
            if !shared && (!self.attempt.is_fresh(number) || reserved.contains(&number)) {
                continue;
            }
            let Some(kind) = self.kinds.of(number) else { continue };
            let ahead = number >= self.cursor;
            let place = places.get_mut(kind).and_then(|places| places.get_mut(usize::from(ahead)));
            match place {
                Some(Some(place)) => {
                    if let Some(supply) = supplies.get_mut(*place) {
                        supply.count += 1;
                    }
                }
                Some(place) => {
                    *place = Some(supplies.len());
                    supplies.push(Supply { kind, ahead, shared, count: 1 });
                }
                None => {}
            }
        }
        supplies
    }

    fn some_value_flows(
        &self,
        demands: &[Demand],
        supplies: &[Supply],
        claim: usize,
        number: usize,
        constraint: &PreparedConstraint,
    ) -> bool {
        if !demands.iter().any(|demand| self.covers(demand.ask, claim, constraint)) {
            return true;
        }
        let mut tried: Vec<&Values> = Vec::new();
        for supply in supplies {
            let value = match self.kinds.value(supply.kind, claim, number) {
                Known::No => return true,
                Known::Values(value) if !tried.contains(&value) => value,
                _ => continue,
            };
            // The common value of lists may be a subset, so a list proves nothing.
            if !value.is_single() || self.flows(demands, supplies, Some((claim, number, value))) {
                return true;
            }
            tried.push(value);
        }
        false
    }

    fn covers(&self, ask: Ask, claim: usize, constraint: &PreparedConstraint) -> bool {
        let request =
            self.attempt.prepared.wanted.get(claim).and_then(|claim| claim.requests.get(ask.request));
        let asked = request.and_then(|request| Some((request, request.asked.get(ask.sub)?)));
        ask.claim == claim && asked.is_some_and(|(request, asked)| constraint.covers(request, asked))
    }

    /// Whether a request may take devices of a kind, given the fixed values of constraints and, if
    /// `supposed` is set, one more value.
    fn takes(&self, ask: Ask, supply: &Supply, supposed: Option<(usize, usize, &Values)>) -> bool {
        if (ask == self.ask && !supply.ahead) || !self.kinds.may(supply.kind, ask) {
            return false;
        }
        let Some(claim) = self.attempt.prepared.wanted.get(ask.claim) else { return true };
        claim.constraints.iter().enumerate().all(|(number, constraint)| {
            if constraint.distinct || !self.covers(ask, ask.claim, constraint) {
                return true;
            }
            let value = match self.kinds.value(supply.kind, ask.claim, number) {
                Known::No => return true,
                Known::Missing => return false,
                Known::Values(value) => value,
            };
            let supposed = supposed.filter(|(claim, other, _)| (*claim, *other) == (ask.claim, number));
            let fixed = supposed.map(|(.., value)| value).or_else(|| self.fixed(ask.claim, number));
            fixed.is_none_or(|fixed| fixed.common(value).is_some())
        })
    }

    /// Whether all demands can be met at once.
    fn flows(
        &self,
        demands: &[Demand],
        supplies: &[Supply],
        supposed: Option<(usize, usize, &Values)>,
    ) -> bool {
        let places = supplies.iter().map(|supply| Place { shared: supply.shared, count: supply.count });
        self.grows(demands, places.collect(), |demand, place| {
            supplies.get(place).is_some_and(|supply| self.takes(demand.ask, supply, supposed))
        })
    }

    /// Whether the outstanding devices under a `distinctAttribute` can have values of their own. Each
    /// value is the place of one device. A device with a list takes the place of its first value,
    /// which no other device may have either.
    fn values_suffice(
        &self,
        demands: &[Demand],
        supplies: &[Supply],
        claim: usize,
        number: usize,
        constraint: &PreparedConstraint,
    ) -> bool {
        let covered: Vec<Demand> =
            demands.iter().filter(|demand| self.covers(demand.ask, claim, constraint)).copied().collect();
        let seen = self.attempt.constrained.get(claim).and_then(|of_claim| of_claim.get(number));
        let is_seen = |value: &Values| {
            seen.is_some_and(|seen| seen.values.iter().any(|other| other.common(value).is_some()))
        };
        let mut places: FxHashMap<Values, Vec<&Supply>> = FxHashMap::default();
        for supply in supplies {
            match self.kinds.value(supply.kind, claim, number) {
                Known::Missing => {}
                Known::No | Known::Values(Values::Opaque) => return true,
                Known::Values(value) if is_seen(value) => {}
                Known::Values(value) => {
                    if let Some(first) = value.first() {
                        places.entry(first).or_default().push(supply);
                    }
                }
            }
        }
        let places: Vec<Vec<&Supply>> = places.into_values().collect();
        self.grows(&covered, vec![Place { shared: false, count: 1 }; places.len()], |demand, place| {
            let mut supplies = places.get(place).into_iter().flatten();
            supplies.any(|supply| self.takes(demand.ask, supply, None))
        })
    }

    /// Whether all demands find places at once. The flow grows along augmenting paths.
    fn grows(&self, demands: &[Demand], places: Vec<Place>, takes: impl Fn(&Demand, usize) -> bool) -> bool {
        // A search that has to stop proves nothing.
        if self.attempt.pace.begin((demands.len() * places.len()) as u64 / EDGES_OF_A_DEVICE).is_err() {
            return true;
        }
        let of_demand = |demand: &Demand| (0..places.len()).map(|place| takes(demand, place)).collect();
        let mut flow = Flow {
            takes: demands.iter().map(of_demand).collect(),
            taken: vec![vec![0; places.len()]; demands.len()],
            left: places.iter().map(|place| place.count).collect(),
            places,
        };
        demands.iter().enumerate().all(|(number, demand)| (0..demand.count).all(|_| flow.grow(number)))
    }
}

/// The devices that a demand can be met with: so many, of which a request takes each once.
#[derive(Clone)]
struct Place {
    shared: bool,
    count: usize,
}

struct Flow {
    places: Vec<Place>,
    takes: Vec<Vec<bool>>,
    /// By demand, then by place.
    taken: Vec<Vec<usize>>,
    left: Vec<usize>,
}

impl Flow {
    /// Gives one more device to a demand, along an augmenting path if necessary.
    fn grow(&mut self, demand: usize) -> bool {
        // Breadth first: `reached` has the place through which a demand was reached, `through` the
        // demand from which a place was reached.
        let mut reached: Vec<Option<usize>> = vec![None; self.taken.len()];
        let mut through: Vec<Option<usize>> = vec![None; self.places.len()];
        let mut queue = std::collections::VecDeque::from([demand]);
        while let Some(from) = queue.pop_front() {
            for (place, supply) in self.places.iter().enumerate() {
                let seen = through.get(place).copied().flatten().is_some();
                if seen || !self.may_take(from, place, supply) {
                    continue;
                }
                if let Some(through) = through.get_mut(place) {
                    *through = Some(from);
                }
                if supply.shared || self.left.get(place).is_some_and(|left| *left > 0) {
                    self.shift(demand, place, &through, &reached);
                    return true;
                }
                for (other, taken) in self.taken.iter().enumerate() {
                    let has = taken.get(place).is_some_and(|taken| *taken > 0);
                    let new = other != demand && reached.get(other).copied().flatten().is_none();
                    if has && new {
                        if let Some(reached) = reached.get_mut(other) {
                            *reached = Some(place);
                        }
                        queue.push_back(other);
                    }
                }
            }
        }
        false
    }

    /// A request takes a device at most once, even a shared one.
    fn may_take(&self, demand: usize, place: usize, supply: &Place) -> bool {
        let may = self.takes.get(demand).and_then(|takes| takes.get(place)).copied();
        let has = self.taken.get(demand).and_then(|taken| taken.get(place)).copied();
        may.unwrap_or_default() && has.is_some_and(|has| has < supply.count)
    }

    fn shift(&mut self, demand: usize, last: usize, through: &[Option<usize>], reached: &[Option<usize>]) {
        let mut place = last;
        if let Some(left) = self.left.get_mut(place) {
            *left = left.saturating_sub(1);
        }
        while let Some(from) = through.get(place).copied().flatten() {
            self.change(from, place, true);
            if from == demand {
                return;
            }
            let Some(before) = reached.get(from).copied().flatten() else { return };
            self.change(from, before, false);
            place = before;
        }
    }

    fn change(&mut self, demand: usize, place: usize, more: bool) {
        if let Some(taken) = self.taken.get_mut(demand).and_then(|taken| taken.get_mut(place)) {
            *taken = if more { *taken + 1 } else { taken.saturating_sub(1) };
        }
    }
}
