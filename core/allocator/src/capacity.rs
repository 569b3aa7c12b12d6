//! Consumable capacity (docs/allocator.md 1.11): the amounts that a request consumes of a device.

use dragoman_objects::{Device, DeviceCapacity, Name};
use dragoman_quantity::capacity::{Capacity, Range, Refused, RequestPolicy, Steps};
use dragoman_quantity::{Decimal, Notation, Quantity};

use crate::gates::Gates;

/// The reason why a device cannot provide the requested capacity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Short {
    /// The device lacks the capacity, or not enough of it is left.
    Device,
    /// The requested amount is negative or cannot be counted. No device can provide it.
    Request(Refused),
}

/// The amounts consumed of a device's capacities, in the order of their names.
pub(crate) type Amounts = Box<[Decimal]>;

/// The capacities of a device, in the order of their names.
pub(crate) fn capacities(device: &Device) -> Box<[(Name, Capacity)]> {
    device.capacity.iter().map(|(name, capacity)| (name.clone(), capacity_of(capacity))).collect()
}

fn capacity_of(capacity: &DeviceCapacity) -> Capacity {
    let policy = capacity.request_policy.as_ref().map(|policy| RequestPolicy {
        default: policy.default.map(|default| default.amount),
        values: policy.valid_values.iter().map(|value| value.amount).collect(),
        range: policy.valid_range.as_ref().map(|range| Range {
            min: range.min.map(|min| min.amount).unwrap_or_default(),
            max: range.max.map(|max| max.amount),
            step: range.step.map(|step| step.amount),
        }),
    });
    Capacity { value: capacity.value.amount, policy }
}

pub(crate) fn steps(gates: &Gates) -> Steps {
    if gates.fractional_capacity_range { Steps::Thousandths } else { Steps::Whole }
}

/// Returns the amounts that a request consumes of a device. `taken` is the amount that is consumed
/// already.
pub(crate) fn consume(
    capacities: &[(Name, Capacity)],
    requests: &[(Name, Quantity)],
    taken: impl Fn(&Name, usize) -> Decimal,
    gates: &Gates,
) -> Result<Amounts, Short> {
    if requests.iter().any(|(name, _)| !capacities.iter().any(|(known, _)| known == name)) {
        return Err(Short::Device);
    }
    let mut amounts = Vec::with_capacity(capacities.len());
    let mut suffices = true;
    for (place, (name, capacity)) in capacities.iter().enumerate() {
        let request = requests.iter().find(|(requested, _)| requested == name);
        let amount = capacity.consumed(name, request.map(|(_, amount)| amount.amount), steps(gates));
        match amount {
            Ok(amount) => {
                let sum = taken(name, place).checked_add(amount);
                suffices &= sum.is_ok_and(|sum| sum <= capacity.value);
                amounts.push(amount);
            }
            // An invalid request is an error even where another capacity does not suffice.
            Err(why @ (Refused::Negative(..) | Refused::Uncountable(..))) => return Err(Short::Request(why)),
            Err(_) => suffices = false,
        }
    }
    if suffices { Ok(amounts.into()) } else { Err(Short::Device) }
}

/// A capacity that does not suffice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shortage {
    pub(crate) name: Name,
    /// The amount that the request would consume. `None` if the device does not give the amount
    /// that is asked for, whatever is left.
    pub(crate) wanted: Option<Decimal>,
    /// The amount that is left. `None` if the device has no such capacity.
    pub(crate) left: Option<Decimal>,
}

/// Returns the first capacity that the device lacks or that does not suffice.
pub(crate) fn short(
    capacities: &[(Name, Capacity)],
    requests: &[(Name, Quantity)],
    taken: impl Fn(&Name, usize) -> Decimal,
    gates: &Gates,
) -> Option<Shortage> {
    let unknown = requests.iter().find(|(name, _)| !capacities.iter().any(|(known, _)| known == name));
    let short = || {
        capacities.iter().enumerate().find_map(|(place, (name, capacity))| {
            let request = requests.iter().find(|(requested, _)| requested == name);
            let wanted = capacity.consumed(name, request.map(|(_, amount)| amount.amount), steps(gates)).ok();
            let taken = taken(name, place);
            let sum = wanted.and_then(|wanted| taken.checked_add(wanted).ok());
            let left = capacity.value.checked_sub(taken).unwrap_or(capacity.value);
            let suffices = sum.is_some_and(|sum| sum <= capacity.value);
            (!suffices).then(|| Shortage { name: name.clone(), wanted, left: Some(left) })
        })
    };
    let lacks = |(name, amount): &(Name, Quantity)| Shortage {
        name: name.clone(),
        wanted: Some(amount.amount),
        left: None,
    };
    unknown.map(lacks).or_else(short)
}

/// Returns the notation of a consumed amount: that of the quantity it derives from.
pub(crate) fn notation(capacity: &DeviceCapacity, request: Option<&Quantity>) -> Notation {
    let Some(request) = request else {
        let default = capacity.request_policy.as_ref().and_then(|policy| policy.default);
        return default.unwrap_or(capacity.value).notation;
    };
    let range = capacity.request_policy.as_ref().and_then(|policy| policy.valid_range.as_ref());
    let Some(range) = range else {
        let values = capacity.request_policy.iter().flat_map(|policy| &policy.valid_values);
        let mut chosen = values.filter(|value| *value >= request);
        return chosen.next().unwrap_or(request).notation;
    };
    match (range.min, range.step) {
        (Some(min), _) if *request < min => min.notation,
        (_, Some(step)) => step.notation,
        _ => request.notation,
    }
}
