//! Reasons against the devices of a node, grouped by the thing that a person can change.

use std::collections::{BTreeMap, BTreeSet};

use dragoman_objects::{DeviceId, Name, Taint};
use serde::Serialize;

use super::named;
use crate::cause::Cause;
use crate::search::{Attempt, Blocked, RequestAt};
use crate::selectors::Verdict;
use crate::snapshot::{NodeView, PoolStatus, PoolView, Snapshot};

/// A reason, and the number of devices that it concerns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Reason {
    /// The number of devices.
    pub devices: usize,
    /// The cause.
    pub cause: Cause,
    /// The thing behind the cause, where there is one.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub detail: Option<Detail>,
}

/// The thing behind a cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Detail {
    /// The claims that hold the devices, as `namespace/name`.
    Held {
        /// The claims.
        claims: BTreeSet<Name>,
    },
    /// A selector that does not hold.
    #[serde(rename_all = "camelCase")]
    Selector {
        /// The device class with the selector. Missing if the request has it.
        #[serde(skip_serializing_if = "Option::is_none")]
        device_class: Option<Name>,
        /// The index in `selectors`.
        index: usize,
        /// The expression.
        expression: Name,
    },
    /// A taint that the request does not tolerate.
    #[serde(rename_all = "camelCase")]
    Taint {
        /// The taint as `key=value:effect`.
        taint: String,
        /// The DeviceTaintRule with the taint. Missing if the device itself has it.
        #[serde(skip_serializing_if = "Option::is_none")]
        rule: Option<Name>,
    },
    /// An attribute that a constraint is about and the devices lack.
    #[serde(rename_all = "camelCase")]
    Attribute {
        /// The index in `spec.devices.constraints`.
        constraint: usize,
        /// The attribute.
        attribute: Name,
        /// Whether any device of the node has it.
        is_known: bool,
    },
    /// A counter, a capacity or a resource.
    Blocked(Blocked),
    /// An object that cannot be used, in words.
    Unusable {
        /// The reason.
        why: Name,
    },
}

/// The reasons against the devices of a node, for one request.
pub(super) struct Reasons<'a> {
    /// Where the holders of devices are looked up, if they are to be named.
    snapshot: Option<&'a Snapshot>,
    /// The claims that hold devices of the node, once they are asked for.
    holders: Option<BTreeMap<DeviceId, Name>>,
    view: &'a NodeView,
    found: Vec<Reason>,
}

impl<'a> Reasons<'a> {
    pub(super) fn new(snapshot: Option<&'a Snapshot>, view: &'a NodeView) -> Self {
        Self { snapshot, holders: None, view, found: Vec::new() }
    }

    /// Adds a device. Devices of one cause count together if what is behind it is the same thing.
    pub(super) fn add(&mut self, cause: Cause, detail: Option<Detail>) {
        let mut known = self.found.iter_mut().filter(|known| known.cause == cause);
        match known.find_map(|known| known.absorbs(detail.as_ref()).then_some(&mut known.devices)) {
            Some(devices) => *devices += 1,
            None => self.found.push(Reason { devices: 1, cause, detail }),
        }
    }

    /// Adds the devices of a pool that is not usable.
    pub(super) fn of_pool(&mut self, pool: &PoolView) {
        let devices = pool.slices.iter().map(|slice| slice.devices.len()).sum();
        let name = format!("pool {} of driver {}", pool.key.pool, pool.key.driver);
        let (cause, why) = match &pool.status {
            PoolStatus::Usable => return,
            PoolStatus::Incomplete => {
                let wanted = pool.slices.first().map_or(0, |slice| slice.slice.pool.resource_slice_count);
                let known = pool.all_slices().count();
                (Cause::PoolIncomplete, format!("{name} has {known} of {wanted} slices"))
            }
            PoolStatus::Invalid(why) => (Cause::PoolInvalid, format!("{name}: {why}")),
        };
        self.found.push(Reason { devices, cause, detail: Some(Detail::Unusable { why: why.into() }) });
    }

    /// The reasons, that of most devices first.
    pub(super) fn sorted(mut self) -> Vec<Reason> {
        self.found.sort_by_key(|reason| (std::cmp::Reverse(reason.devices), reason.cause));
        self.found
    }

    /// Returns the thing behind a cause.
    pub(super) fn detail(
        &mut self,
        attempt: &mut Attempt,
        RequestAt { ask, request, asked }: RequestAt<'_>,
        number: usize,
        cause: Cause,
    ) -> Option<Detail> {
        let device = self.view.devices.get(number)?;
        match cause {
            Cause::Taken => {
                let key = &self.view.pools.get(device.pool)?.key;
                let id = DeviceId::new(&key.driver, &key.pool, &device.device.name);
                let holder = self.holders().get(&id)?.clone();
                Some(Detail::Held { claims: [holder].into() })
            }
            Cause::NotOfClass | Cause::Selector => {
                let (index, of_request) = match asked.selectors.say(&device.content, &attempt.pace).ok()? {
                    Verdict::NotOfClass(number) => (number, false),
                    Verdict::NotOfRequest(number) => (number, true),
                    _ => return None,
                };
                let device_class = (!of_request).then(|| asked.class.name.clone());
                Some(Detail::Selector {
                    device_class,
                    index,
                    expression: asked.selectors.text(of_request, index),
                })
            }
            Cause::Tainted => {
                let tolerated = |taint: &Taint| asked.tolerations.iter().any(|known| known.tolerates(taint));
                let repels = device.taints.iter().find(|repels| !tolerated(&repels.taint))?;
                Some(Detail::Taint { taint: repels.taint.to_string(), rule: repels.rule.clone() })
            }
            Cause::Unreadable => Some(Detail::Unusable { why: device.device.unreadable.clone()? }),
            Cause::Constraint => match attempt.blocked(ask, request, asked, number, cause) {
                Blocked::Constraint { index, attribute } => {
                    let is_known = self.view.devices.iter().any(|device| {
                        let driver = self.view.pools.get(device.pool).map_or("", |pool| &*pool.key.driver);
                        device.device.attribute(driver, &attribute).is_some()
                    });
                    Some(Detail::Attribute { constraint: index, attribute, is_known })
                }
                _ => None,
            },
            Cause::Counters | Cause::CompatibilityGroup | Cause::Capacity | Cause::Alignment => {
                let blocked = attempt.blocked(ask, request, asked, number, cause);
                (blocked != Blocked::Devices).then_some(Detail::Blocked(blocked))
            }
            _ => None,
        }
    }

    /// The claims that hold devices of the pools of this node.
    fn holders(&mut self) -> &BTreeMap<DeviceId, Name> {
        let (snapshot, view) = (self.snapshot, self.view);
        self.holders.get_or_insert_with(|| {
            let mut holders = BTreeMap::new();
            for claim in snapshot.into_iter().flat_map(Snapshot::claims) {
                for result in claim.allocation.iter().flat_map(|allocation| &allocation.devices.results) {
                    let mut pools = view.pools.iter().map(|pool| &pool.key);
                    if pools.any(|key| key.pool == result.pool && key.driver == result.driver) {
                        holders.entry(result.id()).or_insert_with(|| named(claim));
                    }
                }
            }
            holders
        })
    }
}

impl Reason {
    /// Whether a device with this detail belongs here. What differs in amounts or holders is merged.
    fn absorbs(&mut self, other: Option<&Detail>) -> bool {
        match (&mut self.detail, other) {
            (Some(Detail::Held { claims }), Some(Detail::Held { claims: more })) => {
                claims.extend(more.iter().cloned());
                true
            }
            (
                Some(Detail::Blocked(Blocked::Capacity { name, wanted, left })),
                Some(Detail::Blocked(Blocked::Capacity { name: other, wanted: other_wanted, left: more })),
            ) if name == other && wanted == other_wanted && left.is_some() == more.is_some() => {
                if more.is_some_and(|more| left.is_some_and(|left| more > left)) {
                    *left = *more;
                }
                true
            }
            (known, other) => known.as_ref() == other,
        }
    }
}
