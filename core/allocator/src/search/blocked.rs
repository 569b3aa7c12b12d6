//! The blocker at the deepest point of a search. It is found by repeating the refused placement,
//! and only for an explanation.

use std::collections::HashSet;

use dragoman_objects::Name;
use dragoman_quantity::Quantity;
use serde::Serialize;

use super::attempt::{Ask, Attempt, RequestAt};
use super::constraints::values_of;
use crate::capacity::short;
use crate::cause::Cause;
use crate::claims::{Asked, PreparedRequest};

/// The blocker of a device, given the devices of the other requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Blocked {
    /// A constraint of the claim.
    #[serde(rename_all = "camelCase")]
    Constraint {
        /// The index in `spec.devices.constraints`.
        index: usize,
        /// The attribute that must match or differ.
        attribute: Name,
    },
    /// A counter of a pool.
    #[serde(rename_all = "camelCase")]
    Counters {
        /// The counter set.
        counter_set: Name,
        /// The counter that does not suffice.
        counter: Name,
    },
    /// Counters of a pool of which it is not known what is left.
    #[serde(rename_all = "camelCase")]
    Uncounted {
        /// The object that cannot be read, and the reason.
        why: Name,
    },
    /// The compatibility groups of devices that draw from the same counter set.
    #[serde(rename_all = "camelCase")]
    CompatibilityGroup {
        /// The counter set.
        counter_set: Name,
    },
    /// A capacity of the device.
    Capacity {
        /// The name of the capacity.
        name: Name,
        /// The amount that the request would consume. Missing if the device does not give the amount
        /// that is asked for, whatever is left (`requestPolicy`).
        #[serde(skip_serializing_if = "Option::is_none")]
        wanted: Option<Quantity>,
        /// The amount that is left. Missing if the device has no such capacity.
        #[serde(skip_serializing_if = "Option::is_none")]
        left: Option<Quantity>,
    },
    /// The attribute that all devices of the Pod have to share.
    Alignment {
        /// The name of the attribute.
        attribute: Name,
    },
    /// Other requests have all suitable devices.
    Devices,
    /// The limit of 32 devices for a claim.
    ClaimSize,
}

/// A recorder of the point where most devices were placed.
#[derive(Debug)]
pub(crate) struct Watch {
    /// The suitable devices of each request, if it were the only one.
    suits: HashSet<(Ask, usize)>,
    deepest: Option<(usize, Ask, Blocked)>,
}

impl Watch {
    pub(crate) fn new(suits: HashSet<(Ask, usize)>) -> Self {
        Self { suits, deepest: None }
    }

    /// Returns the unsatisfied request at the deepest point, and its blocker.
    pub(crate) fn deepest(&self) -> Option<(Ask, &Blocked)> {
        self.deepest.as_ref().map(|(_, ask, blocked)| (*ask, blocked))
    }

    /// Whether a refusal with `depth` placed devices replaces the recorded one.
    /// [`Blocked::Devices`] is the weakest blocker.
    fn is_news(&self, depth: usize, cause: Option<Cause>) -> bool {
        self.deepest.as_ref().is_none_or(|(deepest, _, blocked)| {
            let says_more = *blocked == Blocked::Devices && cause != Some(Cause::TakenHere);
            depth > *deepest || (depth == *deepest && says_more)
        })
    }

    /// Records the refusal of a device.
    pub(crate) fn refused(
        &mut self,
        attempt: &mut Attempt,
        RequestAt { ask, request, asked }: RequestAt<'_>,
        number: usize,
        cause: Cause,
    ) {
        let depth = attempt.placed.len();
        if self.suits.contains(&(ask, number)) && self.is_news(depth, Some(cause)) {
            self.deepest = Some((depth, ask, attempt.blocked(ask, request, asked, number, cause)));
        }
    }

    /// Records a claim that would exceed its limit.
    pub(crate) fn ended(&mut self, depth: usize, ask: Ask, blocked: Blocked) {
        if self.is_news(depth, None) {
            self.deepest = Some((depth, ask, blocked));
        }
    }
}

impl Attempt {
    /// Returns the blocker behind a refusal.
    pub(crate) fn blocked(
        &mut self,
        ask: Ask,
        request: &PreparedRequest,
        asked: &Asked,
        number: usize,
        cause: Cause,
    ) -> Blocked {
        let found = match cause {
            Cause::Constraint => self.constraint_in_the_way(ask, request, asked, number),
            Cause::Counters => self.counter_in_the_way(number),
            Cause::CompatibilityGroup => self.company_in_the_way(number),
            Cause::Capacity => self.capacity_in_the_way(asked, number),
            Cause::Alignment => {
                let attribute = self.prepared.aligned_by.clone();
                attribute.map(|attribute| Blocked::Alignment { attribute })
            }
            _ => None,
        };
        found.unwrap_or(Blocked::Devices)
    }

    fn constraint_in_the_way(
        &self,
        ask: Ask,
        request: &PreparedRequest,
        asked: &Asked,
        number: usize,
    ) -> Option<Blocked> {
        let device = self.view.devices.get(number)?;
        let claim = self.prepared.wanted.get(ask.claim)?;
        let (driver, object) = (&self.view.pools.get(device.pool)?.key.driver, self.claim_object(ask.claim));
        let known = self.constrained.get(ask.claim)?;
        let refuses = claim.constraints.iter().zip(known).position(|(constraint, known)| {
            let values = || {
                values_of(constraint, asked, device, driver, &object, self.gates(), &self.pace).ok().flatten()
            };
            constraint.covers(request, asked) && !known.clone().add(constraint.distinct, values())
        });
        let index = refuses?;
        let attribute = claim.constraints.get(index)?.attribute.clone();
        Some(Blocked::Constraint { index, attribute })
    }

    fn counter_in_the_way(&mut self, number: usize) -> Option<Blocked> {
        let view = self.view.clone();
        let device = view.devices.get(number)?;
        let drawn = self.drawn(device.pool)?;
        if let Some(why) = drawn.unknown() {
            return Some(Blocked::Uncounted { why: why.clone() });
        }
        let counter = drawn.short(device)?;
        let (counter_set, counter) = view.pools.get(device.pool)?.counters.name(counter)?;
        Some(Blocked::Counters { counter_set: counter_set.clone(), counter: counter.clone() })
    }

    fn company_in_the_way(&mut self, number: usize) -> Option<Blocked> {
        let view = self.view.clone();
        let device = view.devices.get(number)?;
        let counter_set = self.groups(device.pool)?.refusing(&device.device)?.clone();
        Some(Blocked::CompatibilityGroup { counter_set })
    }

    fn capacity_in_the_way(&self, asked: &Asked, number: usize) -> Option<Blocked> {
        let device = self.view.devices.get(number)?;
        let taken = |name: &Name, place: usize| self.taken(number, name, place);
        let short = short(&device.content.capacities, &asked.capacity, taken, self.gates())?;
        let request = asked.capacity.iter().find(|(name, _)| *name == short.name);
        let capacity = device.device.capacity.get(&short.name).map(|capacity| capacity.value.notation);
        let notation = request.map(|(_, amount)| amount.notation).or(capacity)?;
        let quantity = |amount| Quantity { amount, notation };
        let (wanted, left) = (short.wanted.map(quantity), short.left.map(quantity));
        Some(Blocked::Capacity { name: short.name, wanted, left })
    }
}
