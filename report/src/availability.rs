//! Availability of devices. A device that no claim holds may still be excluded, by a partition that is held
//! or by a taint. A shared device may have something left (docs/allocator.md 1.9 and 1.11).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use dragoman_allocator::{Groups, contradiction};
use dragoman_objects::{
    CounterSet, Device, DeviceCapacity, DeviceId, DeviceResult, Name, Pool, Slice, Taint, TaintRule,
    Tolerated, own_name,
};
use dragoman_quantity::{Decimal, Quantity};

use crate::facts::Facts;
use crate::supply::{incomplete, newest};

/// Availability of a device to further claims.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Availability {
    /// All of it.
    Free,
    /// Claims have shares of it, and there is more: by capacity, what is left.
    Shared(BTreeMap<Name, Quantity>),
    /// Claims have shares of it, and nothing is left of this capacity.
    Full(Name),
    /// A claim has it.
    Taken,
    /// No claim has it. Others of its pool that claims have exclude it.
    Excluded(Exclusion),
    /// No claim has all of it, and it repels claims that do not tolerate these taints.
    Tainted(Vec<Taint>),
    /// No claim has all of it. Slices of its pool are missing: nothing is allocated from it.
    Incomplete,
    /// No claim has all of it, and none gets it or more of it: it cannot be read, or what others draw from its counters.
    Unreadable(Name),
    /// No claim has all of it. The slices of its pool contradict each other: nothing is allocated from it.
    Invalid(String),
}

/// The reason why devices that claims have exclude another one of their pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exclusion {
    /// They have drawn too much on this counter of a set: `set/counter`.
    Counter(String),
    /// Their compatibility groups in this counter set do not go with those of the device.
    Groups(Name),
}

impl fmt::Display for Exclusion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Counter(counter) => write!(f, "too little of counter {counter}"),
            Self::Groups(set) => write!(f, "compatibility groups in counter set {set}"),
        }
    }
}

impl Availability {
    /// The state in a word.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Free => "Free",
            Self::Shared(_) => "Shared",
            Self::Full(_) => "Full",
            Self::Taken => "Taken",
            Self::Excluded(_) => "Excluded",
            Self::Tainted(_) => "Tainted",
            Self::Incomplete => "Incomplete",
            Self::Unreadable(_) => "Unreadable",
            Self::Invalid(_) => "Invalid",
        }
    }

    /// Returns the amounts that are left, or the counter or capacity that excludes the device, for people.
    /// The text is empty if there is nothing to say.
    pub fn details(&self) -> String {
        match self {
            Self::Shared(left) => {
                let each = left.iter().map(|(name, left)| format!("{name} {left}"));
                each.collect::<Vec<_>>().join(", ")
            }
            Self::Full(name) => format!("no {name}"),
            Self::Excluded(by) => by.to_string(),
            Self::Unreadable(why) => why.to_string(),
            Self::Invalid(why) => why.clone(),
            Self::Free | Self::Taken | Self::Tainted(_) | Self::Incomplete => String::new(),
        }
    }

    /// Whether a claim can have the device, or a share of it, now.
    pub fn can_be_had(&self) -> bool {
        matches!(self, Self::Free | Self::Shared(_))
    }
}

/// Whether all is read that decides about it: a claim that could not be read may have a device, and a rule may taint it.
pub fn is_known(facts: &Facts) -> bool {
    !facts.lacks("resourceclaims") && !facts.lacks("devicetaintrules")
}

/// Use of a device by claims.
#[derive(Debug, Default)]
struct Held {
    /// By a claim that has all of it.
    whole: bool,
    /// Amounts that the shares of the device consume, by capacity.
    consumed: BTreeMap<Name, Decimal>,
}

/// Devices, capacities and counters that the claims of a cluster hold.
#[derive(Debug, Default)]
pub struct Claimed<'a> {
    held: BTreeMap<DeviceId, Held>,
    /// Amounts left of the counters of a pool, by set and counter.
    left: BTreeMap<(Name, Name), BTreeMap<(Name, Name), Decimal>>,
    /// Compatibility groups in use, by pool.
    groups: BTreeMap<(Name, Name), Groups>,
    /// Pools of which slices are missing.
    incomplete: BTreeSet<(Name, Name)>,
    /// Pools whose slices contradict each other, and why.
    invalid: BTreeMap<(Name, Name), String>,
    /// Pools of whose counters it is not known what is left, and why.
    uncounted: BTreeMap<(Name, Name), Name>,
    rules: Vec<&'a TaintRule>,
}

impl<'a> Claimed<'a> {
    /// Adds up what the claims of a cluster have. Admin access to a device does not hold it.
    pub fn of(facts: &'a Facts) -> Self {
        let cluster = &facts.cluster;
        let (rules, incomplete) = (cluster.taint_rules.iter().collect(), incomplete(&cluster.slices));
        let mut claimed = Self { incomplete, rules, ..Self::default() };
        for claim in facts.claims.values() {
            let Some(Tolerated::Read(allocation)) = &claim.status.allocation else { continue };
            allocation.devices.results.iter().filter(|of| !of.is_admin()).for_each(|of| claimed.hold(of));
        }
        let newest = newest(&cluster.slices);
        let counts =
            |driver: &Name, pool: &Pool| newest.get(&(&**driver, &*pool.name)) == Some(&pool.generation);
        let mut slices: Vec<_> =
            cluster.slices.iter().filter(|slice| counts(&slice.driver, &slice.pool)).collect();
        // The allocator has them in this order, which decides about compatibility groups.
        slices.sort_by(|a, b| a.name.cmp(&b.name));
        let mut pools = BTreeMap::<(Name, Name), Vec<&Slice>>::new();
        for slice in &slices {
            pools.entry((slice.driver.clone(), slice.pool.name.clone())).or_default().push(slice);
        }
        let invalid = pools.into_iter().filter_map(|(pool, slices)| Some((pool, contradiction(&slices)?)));
        claimed.invalid = invalid.collect();
        for slice in &slices {
            let pool = (slice.driver.clone(), slice.pool.name.clone());
            let unread =
                |set: &CounterSet| Some(format!("counter set {}: {}", set.name, set.unreadable.as_ref()?));
            if let Some(why) = slice.shared_counters.iter().find_map(unread) {
                claimed.uncounted.insert(pool, why.into());
            }
            let left = claimed.left.entry((slice.driver.clone(), slice.pool.name.clone())).or_default();
            for set in &slice.shared_counters {
                let counters = set.counters.iter();
                left.extend(counters.map(|(name, of)| ((set.name.clone(), name.clone()), of.value.amount)));
            }
        }
        let mut drawn = BTreeSet::new();
        for slice in &slices {
            for device in &slice.devices {
                let id = DeviceId::new(&slice.driver, &slice.pool.name, &device.name);
                // A shared device draws once.
                if claimed.held.contains_key(&id) && drawn.insert(id) {
                    claimed.draw(&slice.driver, &slice.pool.name, device);
                }
            }
        }
        claimed
    }

    fn hold(&mut self, result: &DeviceResult) {
        let held = self.held.entry(result.id()).or_default();
        held.whole |= !result.is_share() || result.unreadable.is_some();
        for (name, amount) in &result.consumed_capacity {
            let sum = held.consumed.entry(own_name(&result.driver, name).into()).or_default();
            *sum = sum.checked_add(amount.amount).unwrap_or(*sum);
        }
    }

    fn draw(&mut self, driver: &Name, pool: &Name, device: &Device) {
        self.groups.entry((driver.clone(), pool.clone())).or_default().push(device);
        if device.draws_unknown
            && let Some(why) = &device.unreadable
        {
            let why = format!("device {}, which is held: {why}", device.name).into();
            self.uncounted.insert((driver.clone(), pool.clone()), why);
        }
        let Some(left) = self.left.get_mut(&(driver.clone(), pool.clone())) else { return };
        for of in &device.consumes_counters {
            for (name, counter) in &of.counters {
                if let Some(left) = left.get_mut(&(of.counter_set.clone(), name.clone())) {
                    *left = left.checked_sub(counter.value.amount).unwrap_or(*left);
                }
            }
        }
    }

    /// Whether the slices of a pool contradict each other, so that nothing is allocated from it.
    pub fn is_invalid(&self, driver: &str, pool: &str) -> bool {
        self.invalid.keys().any(|(of, name)| **of == *driver && **name == *pool)
    }

    /// Returns the availability of a device of the newest generation of its pool.
    pub fn availability(&self, driver: &Name, pool: &Name, device: &Device) -> Availability {
        let held = self.held.get(&DeviceId::new(driver, pool, &device.name));
        if let Some(held) = held
            && (held.whole || !device.allow_multiple_allocations)
        {
            return Availability::Taken;
        }
        if self.incomplete.contains(&(driver.clone(), pool.clone())) {
            return Availability::Incomplete;
        }
        if let Some(why) = self.invalid.get(&(driver.clone(), pool.clone())) {
            return Availability::Invalid(why.clone());
        }
        if let Some(why) = &device.unreadable {
            return Availability::Unreadable(why.clone());
        }
        // A further share of a device draws nothing more.
        if let (None, Some(why)) = (held, self.uncounted.get(&(driver.clone(), pool.clone())))
            && !device.consumes_counters.is_empty()
        {
            return Availability::Unreadable(why.clone());
        }
        let mut taints = self.taints(driver, pool, device);
        taints.retain(Taint::repels);
        if !taints.is_empty() {
            return Availability::Tainted(taints);
        }
        match held {
            Some(held) => left_of(driver, device, held),
            None => self.exclusion(driver, pool, device).map_or(Availability::Free, Availability::Excluded),
        }
    }

    /// The reason why a device that no claim holds cannot be had beside those that claims hold.
    fn exclusion(&self, driver: &Name, pool: &Name, device: &Device) -> Option<Exclusion> {
        let groups = self.groups.get(&(driver.clone(), pool.clone()));
        let set = || groups?.refusing(device).map(|set| Exclusion::Groups(set.clone()));
        self.short(driver, pool, device).map(Exclusion::Counter).or_else(set)
    }

    /// The counter of which too little is left for a device. A counter that is overdrawn blocks every device of its pool that draws
    /// on any.
    fn short(&self, driver: &Name, pool: &Name, device: &Device) -> Option<String> {
        let left = self.left.get(&(driver.clone(), pool.clone()))?;
        let named = |(set, counter): (&Name, &Name)| format!("{set}/{counter}");
        for of in &device.consumes_counters {
            for (name, counter) in &of.counters {
                let is_short = left
                    .get(&(of.counter_set.clone(), name.clone()))
                    .is_none_or(|left| *left < counter.value.amount);
                if is_short {
                    return Some(named((&of.counter_set, name)));
                }
            }
        }
        let mut overdrawn =
            left.iter().filter(|(_, left)| left.is_negative() && !device.consumes_counters.is_empty());
        overdrawn.next().map(|((set, name), _)| named((set, name)))
    }

    /// The taints of a device: those of its slice, and those of rules.
    pub fn taints(&self, driver: &Name, pool: &Name, device: &Device) -> Vec<Taint> {
        let rules =
            self.rules.iter().filter(|rule| rule.selects(driver, pool, &device.name)).map(|rule| &rule.taint);
        device.taints.iter().chain(rules).cloned().collect()
    }
}

/// Returns the availability of a device that claims share already: the capacities that are left, or the first
/// one of which too little is left.
fn left_of(driver: &Name, device: &Device, held: &Held) -> Availability {
    let mut left = BTreeMap::new();
    for (name, capacity) in &*device.capacity {
        let consumed = held.consumed.get(own_name(driver, name)).copied().unwrap_or_default();
        let of = capacity.value.amount.checked_sub(consumed).unwrap_or_default();
        // A share of a device without any of it takes nothing of it.
        let is_used_up = of.is_zero() && !capacity.value.amount.is_zero();
        if of.is_negative() || is_used_up || of < least(capacity) {
            return Availability::Full(name.clone());
        }
        left.insert(name.clone(), Quantity { amount: of, ..capacity.value });
    }
    Availability::Shared(left)
}

/// The least that a share consumes of a capacity.
fn least(capacity: &DeviceCapacity) -> Decimal {
    let Some(policy) = &capacity.request_policy else { return Decimal::ZERO };
    let values = policy.valid_values.iter().map(|value| value.amount).min();
    let range = || policy.valid_range.as_ref()?.min.map(|min| min.amount);
    values.or_else(range).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// The state of every device of pool `p`, in words.
    fn states(devices: &Value, counters: &Value, results: &[Value], rules: &[Value]) -> Vec<String> {
        let mut objects = vec![
            json!({"kind": "ResourceSlice", "metadata": {"name": "s"}, "spec": {"driver": "d", "nodeName": "n",
            "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}, "devices": devices, "sharedCounters": counters}}),
        ];
        objects.extend(rules.iter().map(|taint| {
            json!({"kind": "DeviceTaintRule", "metadata": {"name": "r"}, "spec": {"deviceSelector": {"driver": "d"}, "taint": taint}})
        }));
        let claim = json!({"kind": "ResourceClaim", "metadata": {"namespace": "a", "name": "c", "uid": "u"},
            "spec": {}, "status": {"allocation": {"devices": {"results": results}}}});
        objects.push(claim);
        let mut facts = Facts::default();
        let list = json!({"kind": "List", "items": objects}).to_string();
        facts.take_file(std::path::Path::new("f"), &list).expect("objects");
        let claimed = Claimed::of(&facts);
        let slice = &facts.cluster.slices[0];
        let state = |device: &Device| {
            let of = claimed.availability(&slice.driver, &slice.pool.name, device);
            let words = [&*device.name, of.word(), &*of.details()].join(" ");
            words.trim().to_owned()
        };
        slice.devices.iter().map(state).collect()
    }

    fn result(device: &str) -> Value {
        json!({"request": "r", "driver": "d", "pool": "p", "device": device})
    }

    #[test]
    fn partitions_that_counters_exclude_are_not_free() {
        let draws = |name: &str, slots: u8| json!({"name": name, "consumesCounters": [{"counterSet": "gpu", "counters": {"slots": {"value": slots.to_string()}}}]});
        let devices = json!([draws("whole", 7), draws("half", 4), draws("third", 3), draws("one", 1)]);
        let counters = json!([{"name": "gpu", "counters": {"slots": {"value": "7"}}}]);
        let states = |held: &[Value]| states(&devices, &counters, held, &[]);
        assert_eq!(states(&[]), ["whole Free", "half Free", "third Free", "one Free"]);
        let excluded = [
            "whole Taken",
            "half Excluded too little of counter gpu/slots",
            "third Excluded too little of counter gpu/slots",
            "one Excluded too little of counter gpu/slots",
        ];
        assert_eq!(states(&[result("whole")]), excluded);
        let half = ["whole Excluded too little of counter gpu/slots", "half Taken", "third Free", "one Free"];
        assert_eq!(states(&[result("half")]), half);
        let mut watched = result("whole");
        watched["adminAccess"] = json!(true);
        assert_eq!(states(&[watched]), states(&[]), "who watches a device holds nothing");
    }

    /// The allocator gives none of them together: a device without groups goes with none that has some.
    #[test]
    fn devices_whose_groups_do_not_go_together_exclude_each_other() {
        let draws = |name: &str, groups: &[&str]| {
            json!({"name": name, "consumesCounters": [{"counterSet": "gpu",
            "counters": {"slots": {"value": "1"}}, "compatibilityGroups": groups}]})
        };
        let devices =
            json!([draws("a", &["x", "y"]), draws("b", &["y"]), draws("c", &["z"]), draws("d", &[])]);
        let counters = json!([{"name": "gpu", "counters": {"slots": {"value": "7"}}}]);
        let states = |held: &[Value]| states(&devices, &counters, held, &[]);
        let excluded = |name: &str| format!("{name} Excluded compatibility groups in counter set gpu");
        assert_eq!(states(&[result("a")]), ["a Taken".into(), "b Free".into(), excluded("c"), excluded("d")]);
        assert_eq!(states(&[result("d")]), [excluded("a"), excluded("b"), excluded("c"), "d Taken".into()]);
    }

    /// As for the allocator: what is not known concerns the devices that draw on counters, and a contradiction the pool.
    #[test]
    fn of_counters_that_are_not_known_nothing_can_be_had() {
        let draws = |name: &str, counter: Value| json!({"name": name, "consumesCounters": [{"counterSet": "set", "counters": {"c": counter}}]});
        let (known, newer) = (json!({"value": "1"}), json!({"valueFrom": {"capacityName": "m"}}));
        let devices = json!([draws("newer", newer), draws("known", known.clone()), {"name": "plain"}]);
        let counters = |counter: Value| json!([{"name": "set", "counters": {"c": counter}}]);
        let words = |counters: &Value, held: &[Value]| -> Vec<String> {
            let states = states(&devices, counters, held, &[]);
            states.iter().map(|state| state.split(' ').nth(1).unwrap_or_default().to_owned()).collect()
        };
        let nine = counters(json!({"value": "9"}));
        assert_eq!(words(&nine, &[]), ["Unreadable", "Free", "Free"]);
        assert_eq!(words(&nine, &[result("newer")]), ["Taken", "Unreadable", "Free"]);
        let odd = counters(json!({"value": "9", "requestPolicy": {}}));
        assert_eq!(words(&odd, &[]), ["Unreadable", "Unreadable", "Free"]);
        let undeclared = json!([{"name": "another", "counters": {"c": known}}]);
        assert_eq!(words(&undeclared, &[]), ["Invalid", "Invalid", "Invalid"]);
    }

    #[test]
    fn of_a_shared_device_the_rest_can_be_had() {
        let devices = json!([{"name": "gpu", "allowMultipleAllocations": true, "capacity": {"memory": {"value": "40Gi"}}},
            {"name": "link", "allowMultipleAllocations": true}]);
        let share = |device: &str, memory: &str| {
            let mut result = result(device);
            result["shareID"] = json!("x");
            result["consumedCapacity"] = json!({"d/memory": memory});
            result
        };
        let states = |held: &[Value]| states(&devices, &json!([]), held, &[]);
        let three = [share("gpu", "4Gi"), share("gpu", "4Gi"), share("gpu", "4Gi")];
        assert_eq!(states(&three), ["gpu Shared memory 28Gi", "link Free"], "either spelling of the name");
        assert_eq!(states(&[share("gpu", "40Gi")]), ["gpu Full no memory", "link Free"]);
        assert_eq!(states(&[result("gpu")]), ["gpu Taken", "link Free"]);
        assert_eq!(states(&[share("link", "0")]), ["gpu Free", "link Shared"]);
    }

    /// A driver publishes a pool slice by slice.
    #[test]
    fn of_a_pool_that_lacks_slices_nothing_can_be_had() {
        let slice = json!({"kind": "ResourceSlice", "metadata": {"name": "s"}, "spec": {"driver": "d", "nodeName": "n",
            "pool": {"name": "p", "generation": 1, "resourceSliceCount": 2},
            "devices": [{"name": "free"}, {"name": "shared", "allowMultipleAllocations": true}]}});
        let mut share = result("shared");
        share["shareID"] = json!("x");
        let claim = json!({"kind": "ResourceClaim", "metadata": {"namespace": "a", "name": "c", "uid": "u"},
            "spec": {}, "status": {"allocation": {"devices": {"results": [share]}}}});
        let mut facts = Facts::default();
        let list = json!({"kind": "List", "items": [slice, claim]}).to_string();
        facts.take_file(std::path::Path::new("f"), &list).expect("objects");
        let (claimed, slice) = (Claimed::of(&facts), &facts.cluster.slices[0]);
        let words =
            slice.devices.iter().map(|of| claimed.availability(&slice.driver, &slice.pool.name, of).word());
        assert_eq!(words.collect::<Vec<_>>(), ["Incomplete", "Incomplete"]);
    }

    #[test]
    fn taints_of_slices_and_of_rules_close_a_device() {
        let tainted =
            json!([{"name": "a", "taints": [{"key": "broken", "effect": "NoSchedule"}]}, {"name": "b"}]);
        let states = |rules: &[Value]| states(&tainted, &json!([]), &[result("b")], rules);
        assert_eq!(states(&[]), ["a Tainted", "b Taken"]);
        let plain = json!([{"name": "a"}, {"name": "b", "taints": [{"key": "seen", "effect": "None"}]}]);
        let of_rule = |effect: &str| {
            super::tests::states(&plain, &json!([]), &[], &[json!({"key": "k", "effect": effect})])
        };
        assert_eq!(of_rule("NoExecute"), ["a Tainted", "b Tainted"]);
        assert_eq!(of_rule("None"), ["a Free", "b Free"]);
    }
}
