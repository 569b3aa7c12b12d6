//! How much of a shared device's capacity a request consumes (KEP-5075).
//!
//! What is recorded as `consumedCapacity` is what a node is charged for, and what the next
//! request finds taken: the rounding is the same arithmetic for whoever allocates and for
//! whoever accounts.

use std::collections::BTreeMap;

use crate::decimal::{Decimal, Overflow};

/// A capacity of a device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Capacity {
    /// `value`: all of it.
    pub value: Decimal,
    /// `requestPolicy`.
    pub policy: Option<RequestPolicy>,
}

/// `requestPolicy` of a capacity: which amounts may be consumed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestPolicy {
    /// `default`: what is consumed where nothing is requested.
    pub default: Option<Decimal>,
    /// `validValues`; empty: not given.
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

/// How fine steps are counted (feature gate `DRAFractionalCapacityRange`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Steps {
    /// In whole numbers, fractions rounded up.
    Whole,
    /// In thousandths, and what is finer cannot be counted.
    Thousandths,
}

/// Why an amount cannot be consumed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The device does not have this capacity.
    #[error("the device has no capacity {0:?}")]
    NoSuchCapacity(Box<str>),
    /// Less than nothing.
    #[error("capacity {0:?}: {1} is below zero")]
    Negative(Box<str>, Decimal),
    /// The policy does not allow the amount, after rounding.
    #[error("capacity {0:?}: {1} is not allowed by its request policy")]
    NotAllowed(Box<str>, Decimal),
    /// Others have too much of it.
    #[error("capacity {0:?}: {1} is more than is left")]
    NotLeft(Box<str>, Decimal),
    /// It cannot be counted in steps. Kubernetes gives the whole allocation up then, not
    /// only this device.
    #[error("capacity {0:?}: {1} cannot be counted in steps")]
    Uncountable(Box<str>, Decimal),
}

/// Amounts by capacity.
pub type ByCapacity<T> = BTreeMap<Box<str>, T>;

/// What a request consumes of every capacity of a shared device, of which `taken` is
/// consumed already.
///
/// # Errors
/// The device cannot be used for it, or no device can.
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
    /// What a request, or none, consumes of this capacity, however much is left. `name` is
    /// for the error.
    ///
    /// # Errors
    /// The amount is not allowed, or is no amount.
    pub fn consumed(&self, name: &str, request: Option<Decimal>, steps: Steps) -> Result<Decimal, Refused> {
        let default = self.policy.as_ref().and_then(|policy| policy.default);
        let Some(request) = request else { return Ok(default.unwrap_or(self.value)) };
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
        // What is less than the least amount is that amount; there is less than nothing only
        // where no rule makes it more.
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
    /// The least allowed amount that is not less than the request, `max` apart.
    fn rounded(&self, request: Decimal, steps: Steps) -> Result<Decimal, Overflow> {
        let Some(step) = self.step else { return Ok(request.max(self.min)) };
        if request < self.min {
            return Ok(self.min);
        }
        // What is too large for thousandths is counted whole.
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
        Decimal::new(count, unit)
    }
}

impl Steps {
    fn unit(self) -> i32 {
        match self {
            Self::Whole => 0,
            Self::Thousandths => -3,
        }
    }

    /// A number counted in these units.
    fn count(self, number: Decimal) -> Result<i128, Overflow> {
        if self == Self::Thousandths && number.exponent() < self.unit() {
            return Err(Overflow);
        }
        let count = number.rounded_up(self.unit())?;
        // Kubernetes counts in 64 bits.
        i64::try_from(count).map(i128::from).map_err(|_| Overflow)
    }
}

/// Why a request policy is refused, as the API server says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// The device is for one claim at a time.
    #[error("requestPolicy: only for devices that allow multiple allocations")]
    Exclusive,
    /// Either, or.
    #[error("requestPolicy: validValues and validRange exclude each other")]
    Both,
    /// Nothing to consume where nothing is requested.
    #[error("requestPolicy.default: required with validValues and validRange")]
    NoDefault,
    /// There are too many, or they are not sorted, or too large, or without the default.
    #[error("requestPolicy.validValues: at most ten, ascending, none above the capacity, with the default")]
    Values,
    /// Its ends do not go together.
    #[error("requestPolicy.validRange: min <= default <= max <= the capacity")]
    Range,
    /// The steps do not lead there.
    #[error(
        "requestPolicy.validRange.step: above zero; from min to the default and to max, and within the capacity"
    )]
    Step,
}

impl Capacity {
    /// Whether the API server would take it, on a device that several claims `share` or
    /// one has for itself.
    ///
    /// # Errors
    /// The first rule that it breaks.
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
