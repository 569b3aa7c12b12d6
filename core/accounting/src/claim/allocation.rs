//! From the allocation of a claim to its contribution (docs/accounting.md 2.1).

use std::collections::{BTreeMap, BTreeSet};

use dragoman_objects::{DeviceId, Name, own_name};
use dragoman_quantity::{Decimal, Overflow, QuantityText};

use crate::amounts::{largest, non_negative};
use crate::claim::contribution::{Contribution, Line, Source};
use crate::claim::footprint::{AccountingPolicy, Basis, DeviceCost, Mapping};
use crate::resource::Resource;
use crate::unaccounted::Unaccounted;

/// An entry of `status.allocation.devices.results` of a claim.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceResult {
    /// The request; with its subrequest where a prioritized list has one.
    pub request: Name,
    /// The driver.
    pub driver: Name,
    /// The pool.
    pub pool: Name,
    /// The device.
    pub device: Name,
    /// `consumedCapacity`; only shared devices have one.
    pub consumed: Option<BTreeMap<Name, QuantityText>>,
    /// Whether it has a `shareID`: other claims may have shares of the device, too.
    pub shared: bool,
    /// `adminAccess`: the device is monitored or administered, not used.
    pub admin_access: bool,
    /// The fields of the DeviceClass of the request (draft of KEP-5517).
    pub class: Class,
}

impl DeviceResult {
    /// Returns the identity of the device.
    pub fn id(&self) -> DeviceId {
        DeviceId::new(&self.driver, &self.pool, &self.device)
    }
}

/// `consumedCapacity` of these amounts. Only shares of a device have some.
pub fn consumed<'a>(
    amounts: impl Iterator<Item = (&'a str, String)>,
) -> Option<BTreeMap<Name, QuantityText>> {
    let amounts: BTreeMap<_, _> =
        amounts.map(|(name, amount)| (name.into(), QuantityText(amount.into()))).collect();
    (!amounts.is_empty()).then_some(amounts)
}

/// The accounting fields of a DeviceClass in the draft of KEP-5517.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Class {
    /// `managesNativeResources`: the class promises amounts. The field changes none.
    pub manages: bool,
    /// `nativeResourceAccountingPolicies`, for devices that have no policy.
    pub policies: BTreeMap<Resource, AccountingPolicy>,
}

impl DeviceResult {
    /// Whether it is a share of the device, and not the device. A device without capacity has shares as well.
    pub fn is_share(&self) -> bool {
        self.shared || self.consumed.is_some()
    }

    /// `driver/pool/device`.
    fn name(&self) -> String {
        format!("{}/{}/{}", self.driver, self.pool, self.device)
    }
}

/// The costs of a device, and the capacities that they refer to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Device {
    /// Costs of the device.
    pub cost: DeviceCost,
    /// `capacity[KEY].value`, in canonical form, by the name in the slice; without those that cannot be read.
    pub capacity: BTreeMap<Name, QuantityText>,
    /// Why some of its capacities or attributes cannot be read, if that is so.
    pub unread: Option<Name>,
}

impl Device {
    /// Returns the whole of a capacity of the device, in either spelling of the name.
    fn whole(&self, driver: &str, key: &str) -> Option<&QuantityText> {
        let own = |name: &str| own_name(driver, name) == own_name(driver, key);
        self.capacity.iter().find_map(|(name, whole)| own(name).then_some(whole))
    }

    /// Why a mapping by this capacity cannot be counted: it cannot be read, its author has misspelled it, or the driver has
    /// withdrawn it.
    fn lacks(&self, result: &DeviceResult, key: &str) -> String {
        if let Some(why) = &self.unread {
            return format!(
                "device {} cannot be read, and its costs are counted by its capacity {key:?}: {why}",
                result.name()
            );
        }
        let known: Vec<&str> = self.capacity.keys().map(AsRef::as_ref).take(SHOWN).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        format!(
            "device {} has no capacity {key:?}, by which its costs are counted; it has {known}",
            result.name()
        )
    }
}

/// The capacities of a device that a message lists.
const SHOWN: usize = 5;

/// Which judgement counts where the recommendation here differs from Kubernetes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Judgement {
    /// The recommendation: admin access costs nothing, and an exclusive device whose mapping names
    /// a capacity costs that capacity whole.
    #[default]
    Ours,
    /// Kubernetes up to 1.37: admin access costs as much as use, and such an exclusive device
    /// cannot be counted.
    Upstream,
}

/// A finding about a device that was counted, or counted as nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Remark {
    /// An exclusive device has no consumed capacity (docs/accounting.md 2.1).
    #[error("device {device} is exclusive, so its capacity {key:?} counts whole")]
    WholeCapacity {
        /// `driver/pool/device`.
        device: String,
        /// The capacity.
        key: Name,
    },
    /// The allocation consumes nothing of this capacity.
    #[error("device {device}: the allocation consumes none of the capacity {key:?}, which counts as nothing")]
    NotConsumed {
        /// `driver/pool/device`.
        device: String,
        /// The capacity.
        key: Name,
    },
    /// The class promises amounts, and the device maps none. The remark changes no amount.
    #[error("device {device}: its class manages node resources, but the device maps none")]
    NothingMapped {
        /// `driver/pool/device`.
        device: String,
    },
}

/// A claim, as one Pod uses it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClaimUse {
    /// The claim as messages name it.
    pub object: String,
    /// The claim.
    pub source: Source,
    /// The containers of the Pod that name it.
    pub containers: BTreeSet<Name>,
    /// Which judgement counts.
    pub judgement: Judgement,
}

/// The costs of a claim for each Pod that uses it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cost {
    /// The amounts, with the containers that name the claim.
    pub contribution: Contribution,
    /// The findings, for people.
    pub remarks: Vec<Remark>,
    /// The results and resources that cannot be counted. The rest counts.
    pub unaccounted: Vec<Unaccounted>,
}

/// Computes the contribution of a claim with these `results` to a Pod. `device` finds the device of a
/// result among the slices that apply to the node.
pub fn cost<'a>(
    of: ClaimUse,
    results: &[DeviceResult],
    device: impl Fn(&DeviceResult) -> Option<&'a Device>,
) -> Cost {
    let ClaimUse { object, source, containers, judgement } = of;
    let mut counter = Counter { object, judgement, cost: Cost::default(), lines: BTreeMap::new() };
    for (i, result) in results.iter().enumerate() {
        if result.admin_access && judgement == Judgement::Ours {
            continue;
        }
        let field = format!("status.allocation.devices.results[{i}]");
        match device(result) {
            Some(device) => counter.count(result, device, &field),
            None => counter.doubt(&field, None, "the device is in no slice of the node".to_owned()),
        }
    }
    let lines = counter.lines.into_values().collect();
    let contribution = Contribution { source, containers, lines, ..Contribution::default() };
    Cost { contribution, ..counter.cost }
}

struct Counter {
    object: String,
    judgement: Judgement,
    cost: Cost,
    lines: BTreeMap<(Resource, Name, Option<AccountingPolicy>, bool), Line>,
}

impl Counter {
    fn doubt(&mut self, field: &str, resource: Option<Resource>, why: String) {
        let object = self.object.as_str().into();
        self.cost.unaccounted.push(Unaccounted { object, field: field.into(), resource, why: why.into() });
    }

    fn count(&mut self, result: &DeviceResult, device: &Device, field: &str) {
        let maps = device.cost.resources.values().any(|footprint| footprint.mapping.is_some());
        if result.class.manages && !maps {
            self.cost.remarks.push(Remark::NothingMapped { device: result.name() });
        }
        for (&resource, footprint) in &device.cost.resources {
            let mapped = footprint.mapping.as_ref().map(|mapping| self.mapped(result, device, mapping));
            let mapped = match mapped.transpose() {
                Ok(mapped) => mapped,
                Err(why) => {
                    self.doubt(field, Some(resource), why);
                    // The overhead counts without the mapping.
                    None
                }
            };
            let overhead = footprint.overhead;
            let class = result.class.policies.get(&resource).copied();
            let policy = AccountingPolicy::resolved(footprint.policy, class);
            let key = (resource, result.driver.clone(), policy, footprint.local);
            let line = self.lines.entry(key).or_insert_with(|| Line {
                driver: result.driver.clone(),
                policy,
                local: footprint.local,
                ..Line::empty(resource)
            });
            let sums = [
                add(&mut line.mapping, mapped),
                add(&mut line.per_pod, overhead.and_then(|o| o.per_pod)),
                add(&mut line.per_container, overhead.and_then(|o| o.per_container)),
            ];
            if sums.contains(&Err(Overflow)) {
                self.doubt(field, Some(resource), Overflow.to_string());
            }
        }
    }

    /// Returns the mapped amount of one result, or the reason why it is unknown.
    fn mapped(
        &mut self,
        result: &DeviceResult,
        device: &Device,
        mapping: &Mapping,
    ) -> Result<Decimal, String> {
        let key = match &mapping.basis {
            // Once for each result: a request for n devices has n results.
            Basis::PerDevice => return Ok(mapping.multiplier),
            Basis::Capacity(key) => key,
        };
        let consumed = match (&result.consumed, self.judgement) {
            (Some(consumed), judgement) => {
                let amount = recorded(consumed, &result.driver, key, judgement)?;
                if amount.is_none() {
                    if judgement == Judgement::Ours && device.whole(&result.driver, key).is_none() {
                        return Err(device.lacks(result, key));
                    }
                    self.cost.remarks.push(Remark::NotConsumed { device: result.name(), key: key.clone() });
                }
                amount.unwrap_or_default()
            }
            (None, Judgement::Upstream) => {
                return Err(format!("consumedCapacity is missing, but the mapping needs {key:?}"));
            }
            (None, Judgement::Ours) => {
                let whole = device.whole(&result.driver, key).ok_or_else(|| device.lacks(result, key))?;
                self.cost.remarks.push(Remark::WholeCapacity { device: result.name(), key: key.clone() });
                non_negative(&whole.0)?
            }
        };
        consumed.checked_mul(mapping.multiplier).map_err(|overflow| overflow.to_string())
    }
}

/// The amount of a capacity in `consumedCapacity`; nothing where it has no such entry. Up to 1.37 kube-scheduler compares
/// names as they are written.
fn recorded(
    consumed: &BTreeMap<Name, QuantityText>,
    driver: &str,
    key: &str,
    judgement: Judgement,
) -> Result<Option<Decimal>, String> {
    let is_it = |name: &str| match judgement {
        Judgement::Ours => own_name(driver, name) == own_name(driver, key),
        Judgement::Upstream => name == key,
    };
    let mut sum = None;
    for (_, text) in consumed.iter().filter(|(name, _)| is_it(name)) {
        add(&mut sum, Some(non_negative(&text.0)?)).map_err(|overflow| overflow.to_string())?;
    }
    Ok(sum)
}

fn add(sum: &mut Option<Decimal>, amount: Option<Decimal>) -> Result<(), Overflow> {
    if let Some(amount) = amount {
        *sum = Some(sum.unwrap_or_default().checked_add(amount.min(largest()))?);
    }
    Ok(())
}
