//! The rules for devices in combination. The devices are given away again, one after the other, and
//! none is taken back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dragoman_objects::{Attribute, Constraint, DeviceId, Name};
use dragoman_quantity::Decimal;

use super::Checker;
use super::ask::Ask;
use super::pools::{PoolId, Usable};
use super::rule::Rule;
use crate::capacity::{capacities, steps};

/// A device for a request.
#[derive(Debug, Clone)]
pub(super) struct Given<'a, 'b> {
    pub(super) ask: &'b Ask<'a>,
    /// The index among the devices of the node.
    pub(super) place: usize,
    pub(super) usable: Usable<'a>,
}

/// A broken rule, and the index of the first given device that breaks it.
pub(super) type Found = (Rule, usize);

#[derive(Default)]
struct Gone {
    /// The remaining values of counters; `None` where they are not known.
    counters: BTreeMap<PoolId, Option<BTreeMap<(Name, Name), Decimal>>>,
    /// The compatibility groups of each counter set.
    groups: BTreeMap<(PoolId, Name), Company>,
    consumed: BTreeMap<(usize, Name), Decimal>,
}

/// Returns every rule that the devices break in combination.
pub(super) fn broken(checker: &Checker<'_>, given: &[Given<'_, '_>]) -> Vec<Found> {
    let mut gone = Gone::default();
    let mut found = Vec::new();
    for (number, one) in given.iter().enumerate() {
        let before = given.get(..number).unwrap_or_default();
        let same_claim = before.iter().filter(|other| other.ask.claim == one.ask.claim);
        let mut same_device = before.iter().filter(|other| other.place == one.place);
        let shares = checker.shares(&one.usable);
        let twice = if one.ask.admin {
            same_claim.clone().any(|other| other.place == one.place)
        } else {
            same_device.clone().next().is_some()
        };
        let id = one.usable.id();
        let draws = !(shares && (checker.held.shared.contains(&id) || same_device.next().is_some()));
        let rules = [
            (Rule::Size, same_claim.count() < 32),
            (Rule::Twice, shares || !twice),
            (Rule::CompatibilityGroup, !draws || gone.admits(checker, &one.usable)),
            (Rule::Counters, !draws || gone.draws(checker, &one.usable)),
            (Rule::Capacity, gone.consumes(checker, one, &id, shares)),
        ];
        found.extend(rules.iter().filter(|(_, holds)| !holds).map(|(rule, _)| (*rule, number)));
    }
    found.extend(constraints(checker, given));
    found
}

impl Gone {
    /// Whether the counters of the pool suffice for the device. An overdrawn counter blocks every
    /// device that draws from the pool.
    fn draws(&mut self, checker: &Checker<'_>, usable: &Usable<'_>) -> bool {
        if usable.device.consumes_counters.is_empty() {
            return true;
        }
        let id = usable.pool();
        let left = self.counters.entry(id.clone()).or_insert_with(|| {
            let (known, held) = (checker.known(&id), held(checker, &id));
            let mut sets = known.iter().flat_map(|slice| &slice.shared_counters);
            if sets.any(|set| set.unreadable.is_some()) || held.iter().any(|held| held.device.draws_unknown) {
                return None;
            }
            let mut left = BTreeMap::new();
            for set in known.iter().flat_map(|slice| &slice.shared_counters) {
                let counters = set.counters.iter();
                left.extend(
                    counters.map(|(name, counter)| ((set.name.clone(), name.clone()), counter.value.amount)),
                );
            }
            for usable in held {
                draw(&mut left, &usable);
            }
            Some(left)
        });
        let Some(left) = left else { return false };
        draw(left, usable);
        left.values().all(|left| !left.is_negative())
    }

    /// Whether the compatibility groups of the device go with those of the devices that draw from
    /// the same counter sets.
    fn admits(&mut self, checker: &Checker<'_>, usable: &Usable<'_>) -> bool {
        if !checker.gates.compatibility_groups {
            return true;
        }
        let id = usable.pool();
        let mut admitted = true;
        for consumption in &usable.device.consumes_counters {
            let (set, groups) = (&consumption.counter_set, &consumption.compatibility_groups);
            let company = self.groups.entry((id.clone(), set.clone())).or_insert_with(|| {
                let mut company = Company::default();
                for other in held(checker, &id) {
                    let of_set = other.device.consumes_counters.iter().filter(|of| of.counter_set == *set);
                    of_set.for_each(|of| company.was_joined(&of.compatibility_groups));
                }
                company
            });
            admitted &= company.admits(groups);
        }
        admitted
    }

    /// Whether the device has the capacity that the request consumes.
    fn consumes(&mut self, checker: &Checker<'_>, one: &Given<'_, '_>, id: &DeviceId, shares: bool) -> bool {
        if !checker.gates.consumable_capacity {
            return true;
        }
        let mut suffices = true;
        for (name, capacity) in &capacities(one.usable.device) {
            let amount = capacity.consumed(name, one.ask.capacity(name), steps(&checker.gates));
            let Ok(amount) = amount else { return false };
            let ours = self.consumed.entry((one.place, name.clone())).or_default();
            let sum =
                checker.held.consumed(id, name).checked_add(*ours).and_then(|sum| sum.checked_add(amount));
            suffices &= sum.is_ok_and(|sum| sum <= capacity.value);
            if shares {
                *ours = ours.checked_add(amount).unwrap_or(*ours);
            }
        }
        suffices
    }
}

/// Returns the held devices of a pool, each once.
fn held<'a>(checker: &Checker<'a>, id: &PoolId) -> Vec<Usable<'a>> {
    let slices = checker.known(id);
    let devices =
        slices.into_iter().flat_map(|slice| slice.devices.iter().map(move |device| Usable { slice, device }));
    devices.filter(|usable| checker.held.at_all(&usable.id())).collect()
}

fn draw(left: &mut BTreeMap<(Name, Name), Decimal>, usable: &Usable<'_>) {
    for consumption in &usable.device.consumes_counters {
        for (name, counter) in &consumption.counters {
            if let Some(left) = left.get_mut(&(consumption.counter_set.clone(), name.clone())) {
                *left = left.checked_sub(counter.value.amount).unwrap_or(*left);
            }
        }
    }
}

/// The compatibility groups of the devices that draw from a counter set. The first device decides
/// whether groups are used.
#[derive(Default)]
struct Company {
    somebody: bool,
    grouped: bool,
    common: Vec<Name>,
}

impl Company {
    /// Adds a device without a check. Only a device with groups narrows the common ones.
    fn was_joined(&mut self, groups: &[Name]) {
        if !self.somebody {
            *self = Self { somebody: true, grouped: !groups.is_empty(), common: groups.to_vec() };
        } else if self.grouped && !groups.is_empty() {
            self.common.retain(|group| groups.contains(group));
        }
    }

    fn admits(&mut self, groups: &[Name]) -> bool {
        let first = !self.somebody;
        self.was_joined(groups);
        if first {
            return true;
        }
        if self.grouped { !groups.is_empty() && !self.common.is_empty() } else { groups.is_empty() }
    }
}

/// The values of an attribute. All have one type.
#[derive(Clone, PartialEq, Eq)]
struct Values {
    kind: &'static str,
    values: BTreeSet<String>,
}

fn values(attribute: &Attribute) -> Values {
    fn of<T: ToString>(kind: &'static str, values: &[T]) -> Values {
        Values { kind, values: values.iter().map(T::to_string).collect() }
    }
    match attribute {
        Attribute::Int(value) => of("int", &[*value]),
        Attribute::Bool(value) => of("bool", &[*value]),
        Attribute::String(value) => of("string", std::slice::from_ref(value)),
        Attribute::Version(value) => of("version", std::slice::from_ref(value)),
        Attribute::Ints(values) => of("int", values),
        Attribute::Bools(values) => of("bool", values),
        Attribute::Strings(values) => of("string", values),
        Attribute::Versions(values) => of("version", values),
        Attribute::Unknown => Values { kind: "unknown", values: BTreeSet::new() },
    }
}

fn constraints(checker: &Checker<'_>, given: &[Given<'_, '_>]) -> Vec<Found> {
    let mut found = Vec::new();
    for (number, claim) in checker.wanted.iter().enumerate() {
        for constraint in &claim.devices.constraints {
            let requests = &claim.devices.requests;
            let covered = given.iter().enumerate().filter(|(_, one)| {
                let main = requests.get(one.ask.request).map(|request| &request.name);
                one.ask.claim == number
                    && (constraint.requests.is_empty()
                        || constraint.requests.iter().any(|name| Some(name) == main || *name == one.ask.name))
            });
            let covered: Vec<(usize, &Given<'_, '_>)> = covered.collect();
            found.extend(unsatisfied(checker, constraint, &covered));
        }
    }
    found
}

/// Returns the first device that breaks a constraint.
fn unsatisfied(
    checker: &Checker<'_>,
    constraint: &Constraint,
    covered: &[(usize, &Given<'_, '_>)],
) -> Option<Found> {
    let rule = if constraint.match_attribute.is_some() { Rule::Match } else { Rule::Distinct };
    let name = constraint.match_attribute.as_ref().or(constraint.distinct_attribute.as_ref())?;
    let mut before: Vec<Values> = Vec::new();
    for (number, one) in covered {
        let attribute = attribute(checker, one, name);
        let list = matches!(
            attribute,
            Some(
                Attribute::Ints(_)
                    | Attribute::Bools(_)
                    | Attribute::Strings(_)
                    | Attribute::Versions(_)
                    | Attribute::Unknown
            )
        );
        // While list attributes are off, only the first device may have a list: nothing is compared
        // with it.
        let uncompared = list && !checker.gates.list_type_attributes;
        let Some(values) = attribute.as_ref().map(values) else { return Some((rule, *number)) };
        let empty = values.values.is_empty() && !uncompared;
        let common = |other: &Values| {
            other.kind == values.kind
                && !uncompared
                && other.values.intersection(&values.values).next().is_some()
        };
        let fine = match rule {
            _ if uncompared => before.is_empty(),
            Rule::Match => before.last().is_none_or(common),
            _ => !before.iter().any(common),
        };
        if empty || !fine {
            return Some((rule, *number));
        }
        let values = match before.last().filter(|_| rule == Rule::Match) {
            Some(so_far) => {
                Values { values: so_far.values.intersection(&values.values).cloned().collect(), ..values }
            }
            None if uncompared => Values { kind: "uncompared", ..values },
            None => values,
        };
        before.push(values);
    }
    None
}

fn attribute(checker: &Checker<'_>, one: &Given<'_, '_>, name: &Name) -> Option<Attribute> {
    let driver = &one.usable.slice.driver;
    let derived = one.ask.spec.derived_attributes.iter().find(|derived| derived.name == *name);
    match derived {
        Some(derived) => {
            checker.expressions.derive(&derived.expression, driver, &Arc::new(one.usable.device.clone()))
        }
        None => one.usable.device.attribute(driver, name).cloned(),
    }
}
