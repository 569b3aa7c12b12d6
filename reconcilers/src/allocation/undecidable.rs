//! Slices, classes, rules and allocations of which a part is not understood: a newer API has a field that this version does not know, or
//! a quantity is larger than any integer. No device that the part concerns is given, and the object says why.

use std::collections::{BTreeMap, BTreeSet};

use dragoman_machinery::kind::{DEVICE_CLASS, DEVICE_TAINT_RULES, Kind, RESOURCE_CLAIM, RESOURCE_SLICES};
use dragoman_objects::{Class, Meta, Name, ResourceClaim, Slice, TaintRule};

/// The kinds of such objects.
pub(super) const KINDS: [Kind; 4] = [RESOURCE_SLICES[0], DEVICE_CLASS, DEVICE_TAINT_RULES[0], RESOURCE_CLAIM];

/// The most objects of a kind that are reported at a time.
const MOST: usize = 20;

/// The objects of which a part is not understood, by kind and name: `NAMESPACE/NAME` where the kind has namespaces.
#[derive(Debug, Default)]
pub(super) struct Undecidable {
    of: BTreeMap<(Kind, Name), Part>,
    /// Those whose present state was not reported yet.
    news: BTreeSet<(Kind, Name)>,
}

/// A part of an object that is not understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    /// The uid of the object.
    pub(super) uid: Name,
    /// The consequence, and the field.
    pub(super) why: Name,
}

impl Undecidable {
    /// Takes in an object of which a part is not understood, or none. A driver may publish anew each second: the same is said once.
    pub(super) fn put(&mut self, kind: Kind, meta: &Meta, why: Option<String>) {
        let name = if meta.namespace.is_empty() {
            meta.name.clone()
        } else {
            format!("{}/{}", meta.namespace, meta.name).into()
        };
        let Some(why) = why else { return self.remove(kind, &name) };
        let (place, part) = ((kind, name), Part { uid: meta.uid.clone(), why: why.into() });
        if self.of.get(&place) != Some(&part) {
            self.of.insert(place.clone(), part);
            self.news.insert(place);
        }
    }

    /// Forgets an object that is gone.
    pub(super) fn remove(&mut self, kind: Kind, name: &str) {
        let place = (kind, Name::from(name));
        self.of.remove(&place);
        self.news.remove(&place);
    }

    /// Returns the objects that were not reported yet, of each kind the first [`MOST`]: a driver may publish the same on thousands of
    /// nodes.
    pub(super) fn news(&mut self) -> Vec<(Kind, Name, Part)> {
        let news = std::mem::take(&mut self.news);
        let first = KINDS.iter().flat_map(|kind| news.iter().filter(move |(of, _)| of == kind).take(MOST));
        first.filter_map(|place| Some((place.0, place.1.clone(), self.of.get(place)?.clone()))).collect()
    }

    /// Has everything that is not understood reported again: an Event is kept for an hour.
    pub(super) fn again(&mut self) {
        self.news = self.of.keys().cloned().collect();
    }

    /// The number of objects of a kind.
    pub(super) fn count(&self, kind: Kind) -> usize {
        self.of.keys().filter(|(of, _)| *of == kind).count()
    }
}

/// Returns what a class does not give.
pub(super) fn of_class(class: &Class) -> Option<String> {
    let why = class.unreadable.as_ref()?;
    Some(format!("claims that ask for this class get no devices: {why}"))
}

/// Returns what a rule keeps from being given.
pub(super) fn of_rule(rule: &TaintRule) -> Option<String> {
    rule.taint
        .is_unreadable()
        .then(|| format!("no device that the rule selects is given: {}", rule.taint.value))
}

/// Returns what is not given of the devices that a claim has.
pub(super) fn of_claim(claim: &ResourceClaim) -> Option<String> {
    let allocation = match claim.decoded_allocation() {
        Ok(allocation) => allocation?,
        Err(why) => {
            return Some(format!(
                "devices that were known before stay taken, others of the claim are not known: {why}"
            ));
        }
    };
    let mut results =
        allocation.devices.results.iter().filter_map(|of| Some((&of.device, of.unreadable.as_ref()?)));
    let (device, why) = results.next()?;
    let others = results.count();
    let all = if others == 0 { String::new() } else { format!(" and {others} more") };
    Some(format!("of device {device}{all}, which the claim has, nothing is left for others: {why}"))
}

/// Returns what a slice does not give. A driver that fills an unknown field does so on every device: the first one is named.
pub(super) fn of_slice(slice: &Slice) -> Option<String> {
    let mut devices =
        slice.devices.iter().filter_map(|device| Some((&device.name, device.unreadable.as_ref()?)));
    if let Some((device, why)) = devices.next() {
        let others = devices.count();
        let all = if others == 0 { String::new() } else { format!(" and {others} more") };
        return Some(format!("device {device}{all} of the slice cannot be given: {why}"));
    }
    let mut sets = slice.shared_counters.iter().filter_map(|set| Some((&set.name, set.unreadable.as_ref()?)));
    let (set, why) = sets.next()?;
    Some(format!("no device of the pool that draws on counters can be given: counter set {set}: {why}"))
}

#[cfg(test)]
mod tests {
    use dragoman_objects::{DeviceClass, DeviceTaintRule, ResourceSlice};
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};

    use super::*;

    fn read<T: DeserializeOwned>(object: Value) -> T {
        serde_json::from_value(object).expect("an object")
    }

    fn slice(devices: &Value) -> Option<String> {
        let slice = json!({"metadata": {"name": "s"}, "spec": {"driver": "d", "nodeName": "n", "devices": devices,
            "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1}}});
        of_slice(&read::<ResourceSlice>(slice).slice())
    }

    /// Fails unless the sentence has these words.
    fn says(why: Option<String>, words: [&str; 2]) {
        let why = why.expect("a sentence");
        assert!(words.iter().all(|word| why.contains(word)), "{why}");
    }

    #[test]
    fn each_kind_says_what_is_not_given_and_the_field() {
        let devices = json!([{"name": "a"}, {"name": "b", "sharing": 1}, {"name": "c", "sharing": 1}]);
        says(slice(&devices), ["device b and 1 more of the slice cannot be given", "sharing"]);
        let counters = json!({"memory": {"value": "9".repeat(39)}});
        let of_counters = json!({"metadata": {"name": "s"}, "spec": {"driver": "d", "nodeName": "n",
            "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1},
            "sharedCounters": [{"name": "card", "counters": counters}]}});
        let why = of_slice(&read::<ResourceSlice>(of_counters).slice());
        says(
            why,
            ["no device of the pool that draws on counters can be given: counter set card: ", "too large"],
        );
        let class = json!({"metadata": {"name": "gpu"}, "spec": {"onlyFor": "tenants"}});
        says(of_class(&read::<DeviceClass>(class).class()), ["claims that ask for this class", "onlyFor"]);
        let rule = json!({"metadata": {"name": "r"},
            "spec": {"deviceSelector": {"rack": "x"}, "taint": {"key": "k", "effect": "NoSchedule"}}});
        says(of_rule(&read::<DeviceTaintRule>(rule).rule()), ["no device that the rule selects", "rack"]);
    }

    #[test]
    fn an_allocation_says_what_is_not_left_for_others() {
        let of = |allocation: Value| {
            let claim =
                json!({"metadata": {"namespace": "ns", "name": "c"}, "status": {"allocation": allocation}});
            of_claim(&read::<ResourceClaim>(claim))
        };
        let result = |device: &str, field: &str| json!({"request": "r", "driver": "d", "pool": "p", "device": device, field: 1});
        let results = |results: &[Value]| json!({"devices": {"results": results}});
        let two = results(&[result("a", "shareID2"), result("b", "shareID2")]);
        says(of(two), ["of device a and 1 more, which the claim has, nothing is left", "shareID2"]);
        says(of(json!({"devices": 1})), ["devices that were known before stay taken", "status.allocation"]);
        let plain = json!({"request": "r", "driver": "d", "pool": "p", "device": "a"});
        assert_eq!((of(results(&[plain])), of(Value::Null)), (None, None));
    }

    #[test]
    fn the_same_is_said_once_and_what_is_corrected_counts_no_more() {
        let (mut undecidable, kind) = (Undecidable::default(), RESOURCE_SLICES[0]);
        let meta = Meta { name: "s".into(), ..Meta::default() };
        let broken = || slice(&json!([{"name": "a", "sharing": 1}]));
        undecidable.put(kind, &meta, broken());
        assert_eq!(undecidable.news().len(), 1);
        undecidable.put(kind, &meta, broken());
        assert_eq!((undecidable.news(), undecidable.count(kind)), (Vec::new(), 1));
        undecidable.put(kind, &meta, slice(&json!([{"name": "a"}])));
        assert_eq!(undecidable.count(kind), 0);
        undecidable.put(kind, &meta, broken());
        assert_eq!(undecidable.news().len(), 1, "it is broken again");
        undecidable.again();
        assert_eq!(undecidable.news().len(), 1, "its Event is gone after an hour");
        undecidable.put(kind, &meta, broken());
        undecidable.again();
        undecidable.remove(kind, "s");
        assert_eq!((undecidable.news(), undecidable.count(kind)), (Vec::new(), 0));
        for number in 0..30 {
            undecidable.put(
                kind,
                &Meta { name: format!("s-{number:02}").into(), ..Meta::default() },
                broken(),
            );
        }
        let told = undecidable.news();
        assert_eq!((told.len(), &*told[0].1, undecidable.news()), (MOST, "s-00", Vec::new()));
    }
}
