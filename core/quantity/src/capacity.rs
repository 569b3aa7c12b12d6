//! The amounts that a request consumes of a shared device's capacity (KEP-5075).
//!
//! `consumedCapacity` of an allocation is charged to the node and is no longer available to later
//! requests. The allocator and the accounting therefore use the same rounding.

use std::collections::BTreeMap;

use crate::decimal::{Decimal, Overflow};

/// A capacity of a device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Capacity {
    /// `value`: the total.
    pub value: Decimal,
    /// `requestPolicy`.
    pub policy: Option<RequestPolicy>,
}

/// `requestPolicy` of a capacity: the amounts that may be consumed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestPolicy {
    /// `default`: the amount consumed without a request.
    pub default: Option<Decimal>,
    /// `validValues`; empty if not set.
    pub values: Vec<Decimal>,
    /// `validRange`.
    pub range: Option<Range>,
}

/// `validRange` of a request policy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Range {
    /// `min`.
    pub min: Decimal,
    /// `max`.
    pub max: Option<Decimal>,
    /// `step`, counted from `min`.
    pub step: Option<Decimal>,
}

/// The granularity of steps (feature gate `DRAFractionalCapacityRange`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Steps {
    /// Steps count whole numbers. Fractions are rounded up.
    Whole,
    /// Steps count thousandths. Finer amounts cannot be counted.
    Thousandths,
}

/// The reason why an amount cannot be consumed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The device does not have this capacity.
    #[error("the device has no capacity {0:?}")]
    NoSuchCapacity(Box<str>),
    /// The amount is negative.
    #[error("capacity {0:?}: {1} is below zero")]
    Negative(Box<str>, Decimal),
    /// The policy does not allow the amount after rounding.
    #[error("capacity {0:?}: {1} is not allowed by its request policy")]
    NotAllowed(Box<str>, Decimal),
    /// The device offers less than nothing: its capacity, or the default of the request policy, is
    /// negative. Consumed, it would make room for others.
    #[error("capacity {0:?}: the device offers {1}")]
    NegativeOffer(Box<str>, Decimal),
    /// Less than the amount is left.
    #[error("capacity {0:?}: {1} is more than is left")]
    NotLeft(Box<str>, Decimal),
    /// The amount cannot be counted in steps, or is more than 64 bits once it is rounded up to one. Kubernetes then fails the
    /// whole allocation, not only this device, though another device may have smaller steps.
    #[error("capacity {0:?}: {1} cannot be counted in steps")]
    Uncountable(Box<str>, Decimal),
}

/// Amounts by capacity.
pub type ByCapacity<T> = BTreeMap<Box<str>, T>;

/// Returns the amounts that a request consumes of every capacity of a shared device. `taken` are
/// the amounts that are consumed already.
///
/// # Errors
/// A requested capacity does not exist, less than an amount is left, or an amount is negative, not
/// allowed by the policy, or not countable in steps.
pub fn consumption(
    capacities: &ByCapacity<Capacity>,
    requests: &ByCapacity<Decimal>,
    taken: &ByCapacity<Decimal>,
    steps: Steps,
) -> Result<ByCapacity<Decimal>, Refused> {
    if let Some(name) = requests.keys().find(|name| !capacities.contains_key(*name)) {
        return Err(Refused::NoSuchCapacity(name.clone()));
    }
    let mut consumed = ByCapacity::new();
    for (name, capacity) in capacities {
        let amount = capacity.consumed(name, requests.get(name).copied(), steps)?;
        let before = taken.get(name).copied().unwrap_or_default();
        if before.checked_add(amount).is_ok_and(|sum| sum <= capacity.value) {
            consumed.insert(name.clone(), amount);
        } else {
            return Err(Refused::NotLeft(name.clone(), amount));
        }
    }
    Ok(consumed)
}

impl Capacity {
    /// Returns the amount of this capacity that a request consumes, whatever is left. Without a
    /// request that is the default of the policy, or all of the capacity. `name` is used in the
    /// error.
    ///
    /// # Errors
    /// The amount is negative, not allowed by the policy, or not countable in steps, or the device offers
    /// a negative amount.
    pub fn consumed(&self, name: &str, request: Option<Decimal>, steps: Steps) -> Result<Decimal, Refused> {
        let default = self.policy.as_ref().and_then(|policy| policy.default);
        let Some(request) = request else {
            let amount = default.unwrap_or(self.value);
            let offered = || Refused::NegativeOffer(name.into(), amount);
            return if amount.is_negative() { Err(offered()) } else { Ok(amount) };
        };
        let negative = |amount: Decimal| Err(Refused::Negative(name.into(), amount));
        let Some(policy) = &self.policy else {
            return if request.is_negative() { negative(request) } else { Ok(request) };
        };
        let uncountable = |_| Refused::Uncountable(name.into(), request);
        let (amount, allowed) = if let Some(range) = &policy.range {
            let amount = range.rounded(request, steps).map_err(uncountable)?;
            (amount, range.max.is_none_or(|max| amount <= max))
        } else if policy.values.is_empty() {
            (request, true)
        } else {
            let value = policy.values.iter().find(|value| **value >= request);
            (value.copied().unwrap_or(request), value.is_some())
        };
        // A request below `min` or below the smallest valid value is raised to it. An amount is
        // therefore negative only if no rule raises it.
        if amount.is_negative() {
            negative(amount)
        } else if allowed || Some(amount) == default {
            Ok(amount)
        } else {
            Err(Refused::NotAllowed(name.into(), amount))
        }
    }
}

impl Range {
    /// Returns the least amount in steps from `min` that is not less than the request. Without a
    /// step, that is the larger of the request and `min`. `max` is not considered.
    fn rounded(&self, request: Decimal, steps: Steps) -> Result<Decimal, Overflow> {
        let Some(step) = self.step else { return Ok(request.max(self.min)) };
        if request < self.min {
            return Ok(self.min);
        }
        // A range whose bounds exceed 64 bits in thousandths is counted in whole numbers.
        let bounds = [Some(self.min), self.max, Some(step)];
        let small = bounds.iter().flatten().all(|bound| bound.milli().is_some());
        let steps = if small { steps } else { Steps::Whole };
        let unit = steps.unit();
        let [request, min, step] = [request, self.min, step].map(|number| steps.count(number));
        let (above, step) = (request?.checked_sub(min?).ok_or(Overflow)?, step?);
        if step <= 0 {
            return Err(Overflow);
        }
        let whole = above.checked_add(step - 1).ok_or(Overflow)? / step;
        let count = whole.checked_mul(step).and_then(|above| above.checked_add(min.ok()?)).ok_or(Overflow)?;
        Decimal::new(counted(count)?, unit)
    }
}

impl Steps {
    fn unit(self) -> i32 {
        match self {
            Self::Whole => 0,
            Self::Thousandths => -3,
        }
    }

    /// Counts a number in these units.
    fn count(self, number: Decimal) -> Result<i128, Overflow> {
        if self == Self::Thousandths && number.exponent() < self.unit() {
            return Err(Overflow);
        }
        counted(number.rounded_up(self.unit())?)
    }
}

/// Kubernetes counts in 64 bits: numbers that it reads as well as those that it computes.
fn counted(count: i128) -> Result<i128, Overflow> {
    i64::try_from(count).map(i128::from).map_err(|_| Overflow)
}

/// The reason why the API server refuses a request policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// The device does not allow multiple allocations.
    #[error("requestPolicy: only for devices that allow multiple allocations")]
    Exclusive,
    /// `validValues` and `validRange` are both set.
    #[error("requestPolicy: validValues and validRange exclude each other")]
    Both,
    /// `default` is missing although `validValues` or `validRange` is set.
    #[error("requestPolicy.default: required with validValues and validRange")]
    NoDefault,
    /// `validValues` has too many or unsorted values, a value above the capacity, or not the
    /// default.
    #[error("requestPolicy.validValues: at most ten, ascending, none above the capacity, with the default")]
    Values,
    /// `min`, `default`, `max` and the total are not in ascending order.
    #[error("requestPolicy.validRange: min <= default <= max <= the capacity")]
    Range,
    /// `step` is not positive, does not lead from `min` to the default and to `max`, or exceeds the
    /// total.
    #[error(
        "requestPolicy.validRange.step: above zero; from min to the default and to max, and within the capacity"
    )]
    Step,
}

impl Capacity {
    /// Checks whether the API server accepts the capacity. `shared` says whether the device allows
    /// multiple allocations.
    ///
    /// # Errors
    /// The first rule that the capacity breaks.
    pub fn check(&self, shared: bool, steps: Steps) -> Result<(), Invalid> {
        let Some(policy) = &self.policy else { return Ok(()) };
        let RequestPolicy { default, values, range } = policy;
        let wrong = |condition: bool, why: Invalid| if condition { Err(why) } else { Ok(()) };
        wrong(!shared, Invalid::Exclusive)?;
        wrong(!values.is_empty() && range.is_some(), Invalid::Both)?;
        if values.is_empty() && range.is_none() {
            return Ok(());
        }
        let default = default.ok_or(Invalid::NoDefault)?;
        if let Some(range) = range {
            return range.check(self.value, default, steps);
        }
        let ascending = values.is_sorted_by(|a, b| a < b);
        let small = values.iter().all(|value| *value <= self.value);
        wrong(values.len() > 10 || !ascending || !small || !values.contains(&default), Invalid::Values)
    }
}

impl Range {
    fn check(&self, value: Decimal, default: Decimal, steps: Steps) -> Result<(), Invalid> {
        let within = self.max.is_none_or(|max| self.min <= max && max <= value && default <= max);
        if !(self.min <= value && self.min <= default && within) {
            return Err(Invalid::Range);
        }
        let Some(step) = self.step else { return Ok(()) };
        let all = [Some(self.min), Some(default), self.max, Some(step)];
        let fine = all.iter().flatten().any(|number| number.exponent() < 0);
        let steps = if fine { steps } else { Steps::Whole };
        let led = || -> Result<bool, Overflow> {
            let [min, default, step] = [self.min, default, step].map(|number| steps.count(number));
            let (min, default, step) = (min?, default?, step?);
            let max = self.max.map(|max| steps.count(max)).transpose()?;
            let within = self.min.checked_add(self.step.unwrap_or_default())? <= value;
            let led = |to: i128| (to - min).checked_rem(step) == Some(0);
            Ok(step > 0 && min >= 0 && default >= 0 && within && led(default) && max.is_none_or(led))
        };
        if led() == Ok(true) { Ok(()) } else { Err(Invalid::Step) }
    }
}
