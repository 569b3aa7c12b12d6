//! Quotas that limit claims and their devices: by number of claims, and by devices of a class.

use std::collections::BTreeMap;

use dragoman_objects::{AllocationMode, ClaimDevices, Request, SubRequest};
use dragoman_quantity::Quantity;

use crate::facts::Quota;

/// The number of claims, as a quota spells it.
const CLAIMS: &str = "count/resourceclaims.resource.k8s.io";
/// Devices of a class, as a quota spells them behind the name of the class.
const DEVICES: &str = ".deviceclass.resource.k8s.io/devices";
/// The devices that a claim can have at most. A request for all devices is charged with so many.
const MOST_DEVICES: i64 = 32;

/// A limit of a quota.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Limit {
    /// The limited resource, in words.
    pub(crate) resource: String,
    pub(crate) used: i64,
    pub(crate) hard: i64,
}

impl Quota {
    /// The limits on claims and devices, each with what a claim adds that asks for these amounts.
    fn limits<'a>(&'a self, wanted: &'a BTreeMap<String, i64>) -> impl Iterator<Item = (Limit, i64)> + 'a {
        let number = |text: &String| text.parse::<Quantity>().ok()?.amount.units();
        self.status.hard.iter().filter_map(move |(name, hard)| {
            let resource = match name.strip_suffix(DEVICES) {
                Some(class) => format!("devices of DeviceClass {class}"),
                None if name == CLAIMS => "claims".to_owned(),
                None => return None,
            };
            let used = self.status.used.get(name).map_or(Some(0), number)?;
            let limit = Limit { resource, used, hard: number(hard)? };
            Some((limit, wanted.get(name).copied().unwrap_or_default()))
        })
    }

    /// The limits that are used up. A quota of zero forbids: no Pod waits for it.
    pub(crate) fn full(&self) -> Vec<Limit> {
        let none = BTreeMap::new();
        let limits = self.limits(&none).map(|(limit, _)| limit);
        limits.filter(|limit| limit.hard > 0 && limit.used >= limit.hard).collect()
    }

    /// Whether it limits claims or their devices.
    pub(crate) fn is_about_claims(&self) -> bool {
        self.limits(&BTreeMap::new()).next().is_some()
    }

    /// The first limit that does not admit a claim with these amounts, and what the claim adds.
    pub(crate) fn refuses(&self, wanted: &BTreeMap<String, i64>) -> Option<(Limit, i64)> {
        let is_exceeded =
            |(limit, more): &(Limit, i64)| *more > 0 && limit.used.saturating_add(*more) > limit.hard;
        self.limits(wanted).find(is_exceeded)
    }
}

/// The amounts that quotas charge for a claim, by resource. Of alternatives the dearest counts, by class.
pub(crate) fn charges(devices: &ClaimDevices) -> BTreeMap<String, i64> {
    let mut charges = BTreeMap::from([(CLAIMS.to_owned(), 1)]);
    let of = |asked: &SubRequest| {
        let count = if asked.allocation_mode == AllocationMode::All { MOST_DEVICES } else { asked.count };
        (asked.device_class_name.to_string(), count)
    };
    for Request { exactly, first_available, .. } in &devices.requests {
        let mut of_request: BTreeMap<String, i64> = BTreeMap::new();
        for (class, count) in exactly.iter().map(|of| &of.asked).chain(first_available).map(of) {
            let known = of_request.entry(class).or_default();
            *known = count.max(*known);
        }
        for (class, count) in of_request.into_iter().filter(|(class, _)| !class.is_empty()) {
            // A tenant writes the numbers.
            let known: &mut i64 = charges.entry(format!("{class}{DEVICES}")).or_default();
            *known = known.saturating_add(count);
        }
    }
    charges
}

#[cfg(test)]
mod tests {
    use dragoman_objects::ClaimSpec;
    use serde_json::{Value, json};

    use super::*;

    fn charged(requests: &Value) -> BTreeMap<String, i64> {
        let spec = json!({"devices": {"requests": requests}});
        charges(&serde_json::from_value::<ClaimSpec>(spec).expect("a spec").devices)
    }

    fn quota(hard: &Value, used: &Value) -> Quota {
        serde_json::from_value(json!({"status": {"hard": hard, "used": used}})).expect("a quota")
    }

    #[test]
    fn a_claim_is_charged_as_the_api_server_charges_it() {
        let exactly = |class: &str, more: &Value| {
            let mut exactly = json!({"deviceClassName": class});
            exactly.as_object_mut().expect("an object").extend(more.as_object().cloned().expect("an object"));
            json!({"name": "r", "exactly": exactly})
        };
        let devices = |class: &str| format!("{class}.deviceclass.resource.k8s.io/devices");
        let all = charged(&json!([
            exactly("a", &json!({})),
            exactly("a", &json!({"count": 2})),
            exactly("b", &json!({"allocationMode": "All"})),
            {"name": "s", "firstAvailable": [{"name": "x", "deviceClassName": "c", "count": 4}, {"name": "y", "deviceClassName": "c"}]},
        ]));
        let expected = [(devices("a"), 3), (devices("b"), 32), (devices("c"), 4), (CLAIMS.to_owned(), 1)];
        assert_eq!(all, BTreeMap::from(expected));
    }

    #[test]
    fn a_quota_refuses_by_what_is_left() {
        let gpus = "gpu.deviceclass.resource.k8s.io/devices";
        let of = quota(
            &json!({gpus: "4", CLAIMS: "10", "pods": "1"}),
            &json!({gpus: "3", CLAIMS: "2", "pods": "1"}),
        );
        assert!(of.is_about_claims() && of.full().is_empty());
        let one = charged(&json!([{"name": "r", "exactly": {"deviceClassName": "gpu"}}]));
        assert_eq!(of.refuses(&one), None);
        let two = charged(&json!([{"name": "r", "exactly": {"deviceClassName": "gpu", "count": 2}}]));
        let limit = Limit { resource: "devices of DeviceClass gpu".to_owned(), used: 3, hard: 4 };
        assert_eq!(of.refuses(&two), Some((limit, 2)));
        assert!(!quota(&json!({"pods": "1"}), &json!({"pods": "1"})).is_about_claims());
        assert_eq!(quota(&json!({CLAIMS: "2"}), &json!({CLAIMS: "2"})).full().len(), 1);
    }
}
