//! Kinds of devices: devices that no later decision can distinguish.

use dragoman_objects::{CounterConsumption, DeviceCapacity, Name, NodeSelector};
use rustc_hash::FxHashMap;

use super::super::Stopped;
use super::super::attempt::{Ask, Attempt};
use super::super::constraints::{Values, values_of};
use crate::cause::Refusal;
use crate::claims::{AllWanted, Asked};
use crate::snapshot::Held;

/// Whether a device may be given to a request, as far as that is known before the search.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum May {
    Never,
    Perhaps,
    /// The check is an error.
    Error,
}

/// The values of a kind for a constraint.
pub(super) enum Known<'a> {
    /// The values depend on the request.
    No,
    /// The attribute is missing.
    Missing,
    /// The values of the attribute.
    Values(&'a Values),
}

/// All properties of a device that decisions depend on.
#[derive(PartialEq, Eq, Hash)]
struct Traits<'a> {
    pool: usize,
    /// Weight of the device, once a solution was refused for something that the search does not know. A
    /// device without a weight is a kind of its own: the error is its number.
    weight: Option<Result<u64, usize>>,
    shared: bool,
    held: Option<&'a Held>,
    may: Vec<May>,
    values: Vec<Option<Values>>,
    /// The values of derived attributes, by constraint and request.
    derived: Vec<Option<Values>>,
    /// The values of the attribute that all devices of the Pod have to share.
    aligned: Option<Values>,
    draws: &'a [CounterConsumption],
    capacity: Vec<(&'a Name, &'a DeviceCapacity)>,
    binds_to_node: bool,
    node: (&'a Option<Name>, &'a Option<NodeSelector>, bool),
    slice_node: (&'a Option<Name>, &'a Option<NodeSelector>, bool, bool),
}

/// The kinds of all devices of a view.
pub(in crate::search) struct Kinds {
    of: Vec<usize>,
    /// One device of each kind.
    examples: Vec<usize>,
    asks: Vec<Ask>,
    /// By kind, then by ask.
    may: Vec<Vec<May>>,
    /// By kind, then by claim and constraint.
    values: Vec<Vec<Option<Values>>>,
    /// By claim: the index of its first constraint in `values`.
    constraints: Vec<usize>,
    /// By constraint: whether its values are the same for every request that it covers.
    plain: Vec<bool>,
}

impl Kinds {
    /// Returns the kinds, unless the search has to stop. Verdicts are remembered, so the next call
    /// gets further.
    pub(in crate::search) fn new(attempt: &Attempt, wanted: &AllWanted) -> Result<Self, Stopped> {
        let all: Vec<(Ask, &Asked)> = asks(attempt).collect();
        let (mut constraints, mut plain) = (Vec::new(), Vec::new());
        for claim in &attempt.prepared.wanted {
            constraints.push(plain.len());
            let derives = |name: &Name| {
                let mut asked = claim.requests.iter().flat_map(|request| &request.asked);
                asked.any(|asked| asked.derived.iter().any(|(derived, _)| derived == name))
            };
            plain.extend(claim.constraints.iter().map(|constraint| !derives(&constraint.attribute)));
        }
        let mut kinds = Self {
            of: Vec::with_capacity(attempt.view.devices.len()),
            examples: Vec::new(),
            asks: all.iter().map(|(ask, ..)| *ask).collect(),
            may: Vec::new(),
            values: Vec::new(),
            constraints,
            plain,
        };
        let mut known: FxHashMap<Traits<'_>, usize> = FxHashMap::default();
        for (number, device) in attempt.view.devices.iter().enumerate() {
            let may = all.iter().map(|(ask, asked)| may(attempt, wanted, *ask, asked, number));
            let may = may.collect::<Result<Vec<May>, Stopped>>()?;
            let (values, derived) = kinds.values_of(attempt, number);
            let Some(slice) = attempt.view.slices.get(device.slice).map(|slice| &slice.slice) else {
                continue;
            };
            let traits = Traits {
                pool: device.pool,
                weight: attempt
                    .weights
                    .as_ref()
                    .map(|weights| weights.get(number).copied().flatten().ok_or(number)),
                shared: attempt.is_shared(device),
                held: attempt.held(device),
                may: may.clone(),
                values: values.clone(),
                derived,
                aligned: attempt.aligned_values(number),
                draws: &device.device.consumes_counters,
                capacity: device.device.capacity.iter().collect(),
                binds_to_node: device.device.binds_to_node,
                node: (&device.device.node_name, &device.device.node_selector, device.device.all_nodes),
                slice_node: (
                    &slice.node_name,
                    &slice.node_selector,
                    slice.all_nodes,
                    slice.per_device_node_selection,
                ),
            };
            let next = kinds.examples.len();
            let kind = *known.entry(traits).or_insert(next);
            if kind == next {
                kinds.examples.push(number);
                kinds.may.push(may);
                kinds.values.push(values);
            }
            kinds.of.push(kind);
        }
        // An unknown value is not a missing one.
        attempt.pace.stopped().map_or(Ok(kinds), Err)
    }

    /// Returns the values for all constraints of all claims. A derived attribute may differ between
    /// requests, so its values are returned for every request, in the second list.
    fn values_of(&self, attempt: &Attempt, number: usize) -> (Vec<Option<Values>>, Vec<Option<Values>>) {
        let (mut values, mut derived) = (Vec::with_capacity(self.plain.len()), Vec::new());
        let Some(device) = attempt.view.devices.get(number) else { return (values, derived) };
        let driver = attempt.view.pools.get(device.pool).map(|pool| &*pool.key.driver).unwrap_or_default();
        let mut plain = self.plain.iter();
        for (claim, prepared) in attempt.prepared.wanted.iter().enumerate() {
            let object = attempt.claim_object(claim);
            for constraint in &prepared.constraints {
                let value = |asked: &Asked| {
                    let values =
                        values_of(constraint, asked, device, driver, &object, attempt.gates(), &attempt.pace);
                    values.ok().flatten()
                };
                let mut asked = prepared.requests.iter().flat_map(|request| &request.asked);
                if plain.next().copied().unwrap_or_default() {
                    values.push(asked.next().and_then(value));
                } else {
                    values.push(None);
                    derived.extend(asked.map(value));
                }
            }
        }
        (values, derived)
    }

    pub(in crate::search) fn of(&self, device: usize) -> Option<usize> {
        self.of.get(device).copied()
    }

    pub(super) fn count(&self) -> usize {
        self.examples.len()
    }

    pub(super) fn may(&self, kind: usize, ask: Ask) -> bool {
        let place = self.asks.iter().position(|known| *known == ask);
        let may = place.and_then(|place| self.may.get(kind)?.get(place));
        may.is_none_or(|may| *may != May::Never)
    }

    /// Returns the values of a kind for a constraint.
    pub(super) fn value(&self, kind: usize, claim: usize, constraint: usize) -> Known<'_> {
        let place = self.constraints.get(claim).map(|first| first + constraint);
        let plain = place.and_then(|place| self.plain.get(place)).is_some_and(|plain| *plain);
        let values = place.filter(|_| plain).and_then(|place| self.values.get(kind)?.get(place));
        values.map_or(Known::No, |values| values.as_ref().map_or(Known::Missing, Known::Values))
    }
}

fn asks(attempt: &Attempt) -> impl Iterator<Item = (Ask, &Asked)> {
    attempt.prepared.wanted.iter().enumerate().flat_map(|(claim, prepared)| {
        prepared.requests.iter().enumerate().flat_map(move |(request, prepared)| {
            let asked = prepared.asked.iter().enumerate();
            asked.map(move |(sub, asked)| (Ask { claim, request, sub }, asked))
        })
    })
}

fn may(
    attempt: &Attempt,
    wanted: &AllWanted,
    ask: Ask,
    asked: &Asked,
    number: usize,
) -> Result<May, Stopped> {
    let all =
        wanted.get(ask.claim).and_then(|requests| requests.get(ask.request)?.get(ask.sub)?.all.as_ref());
    if let Some(all) = all {
        return Ok(if all.contains(&number) { May::Perhaps } else { May::Never });
    }
    match attempt.may_ever(ask, asked, number) {
        Ok(()) => Ok(May::Perhaps),
        Err(Refusal::Device(_)) => Ok(May::Never),
        Err(Refusal::Pod(_)) => Ok(May::Error),
        Err(Refusal::Stopped(stopped)) => Err(stopped),
    }
}
