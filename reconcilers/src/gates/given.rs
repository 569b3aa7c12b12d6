//! Whether an allocation gives a claim what it asks for. An allocator of another make may be wrong, and a Pod that runs with other
//! devices than it asked for harms itself and the Pods that need them, and gets past the class that guards them. The rules are those of
//! the checker of the reference allocator ([`Checker`]), applied to the devices of one allocation alone.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use dragoman_accounting::cluster::SliceDevice;
use dragoman_allocator::Gates;
use dragoman_allocator::checker::{Broken, Checker, Expressions, Rule};
use dragoman_allocator::input::{Claim, Cluster, Node};
use dragoman_objects::{
    Allocation, AllocationMode, Attribute, ClaimDevices, Class, Device, DeviceAllocation, DeviceResult, Name,
    Pool, ResourceClaim, Slice, SubRequest,
};
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::configured::{Configured, JudgedClass};

/// Cost limit of the selectors of a claim in one judgement, in units of CEL: some ten milliseconds. A
/// selector beyond that counts as one that holds: the allocator has paid for it, and with it a tenant harms
/// at most the tenant's own claims. Selectors of classes are always evaluated.
const BUDGET: u64 = 200_000;
/// The characters of selectors that are kept of a claim. Those of more are not looked at: compiling them would cost [`BUDGET`].
const KEPT: usize = 20_000;

/// Requests of a claim, and the devices that it was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Given {
    /// The claim as the judge reads it: without allocation, and without what no rule here is about.
    claim: Claim,
    results: Vec<DeviceResult>,
    configured: Configured,
}

impl Given {
    /// Nothing for a claim without an allocation that decodes, and for one with a field that this version does not know: an allocator
    /// that is newer may know it.
    pub(super) fn of(whole: &ResourceClaim) -> Option<Self> {
        let mut claim = Claim::of(whole).ok()?;
        let allocation = claim.allocation.take()?;
        let result = |of: &DeviceResult| DeviceResult {
            request: of.request.clone(),
            driver: of.driver.clone(),
            pool: of.pool.clone(),
            device: of.device.clone(),
            admin_access: of.admin_access.filter(|access| *access),
            ..DeviceResult::default()
        };
        let given = &allocation.devices.results;
        let results = given.iter().map(result).collect();
        let requests = &claim.devices.requests;
        let unread = requests.iter().any(|of| of.unreadable.is_some())
            || claim.devices.unreadable.is_some()
            || given.iter().any(|of| of.unreadable.is_some());
        let configured = Configured::of(&allocation.devices.config, &claim.devices.config);
        keep_what_is_judged(&mut claim.devices);
        (!unread).then_some(Self { claim, results, configured })
    }

    /// The devices that it was given, with a number that differs where selectors may see something else of them; nothing while one of
    /// them is in no slice, or in several: it may be on its way. `device` finds a device by driver, pool and name.
    pub(super) fn devices<'a>(
        &self,
        device: impl Fn(&DeviceResult) -> Option<&'a SliceDevice>,
    ) -> Option<(Vec<&'a SliceDevice>, u64)> {
        let devices: Vec<&SliceDevice> = self.results.iter().map(device).collect::<Option<_>>()?;
        let mut seen = DefaultHasher::new();
        for SliceDevice { device, attributes, allow_multiple_allocations, .. } in &devices {
            (&device.capacity, attributes, allow_multiple_allocations).hash(&mut seen);
        }
        Some((devices, seen.finish()))
    }

    /// Why these devices, one for each result, are not those that the claim asks for, in words for its tenant. `class` finds a class by
    /// its name; one that it does not find may be on its way, and excludes nothing.
    pub(super) fn wrong(
        &self,
        class: impl Fn(&str) -> Option<Arc<JudgedClass>>,
        given: &[&SliceDevice],
    ) -> Option<String> {
        let mut classes = self.classes_in_use().map(&class);
        if let Some(wrong) = self.configured.wrong(&mut classes) {
            return Some(wrong);
        }
        let mut pools: BTreeMap<(Name, Name), Vec<Device>> = BTreeMap::new();
        for (result, device) in self.results.iter().zip(given) {
            let devices = pools.entry((result.driver.clone(), result.pool.clone())).or_default();
            if devices.iter().all(|known| known.name != result.device) {
                devices.push(judged(device)?);
            }
        }
        let slices = pools.into_iter().map(|((driver, name), mut devices)| {
            devices.sort_by(|a, b| a.name.cmp(&b.name));
            let pool = Pool { name: name.clone(), generation: 1, resource_slice_count: 1 };
            Slice { name, driver, pool, all_nodes: true, devices, ..Slice::default() }
        });
        let cluster = Cluster {
            nodes: vec![Node::default()],
            slices: slices.collect(),
            classes: self.classes(class),
            claims: vec![self.claim.clone()],
            taint_rules: Vec::new(),
        };
        let expressions = Expressions::within(BUDGET);
        let checker =
            Checker::new(&cluster, "", std::slice::from_ref(&self.claim.uid), Gates::SERVED, &expressions)
                .ok()?;
        let devices = DeviceAllocation { results: self.results.clone(), config: Vec::new() };
        let allocation = (self.claim.uid.clone(), Allocation { devices, node_selector: None });
        let mut broken = checker.check(&[allocation], 0);
        // What the request says comes before how many devices it has.
        broken.sort_by_key(|broken| Reverse(broken.rule == Rule::Request));
        broken.iter().find_map(|broken| self.words(broken))
    }

    /// The names of the classes whose devices it was given. Another alternative of a request may name a class that is not there.
    fn classes_in_use(&self) -> impl Iterator<Item = &str> {
        self.results.iter().filter_map(|result| Some(&*self.asked(&result.request)?.device_class_name))
    }

    /// Returns what a request asks for; `request` is spelled as in a result.
    fn asked(&self, request: &str) -> Option<&SubRequest> {
        let (main, sub) = request.split_once('/').map_or((request, None), |(main, sub)| (main, Some(sub)));
        let of = self.claim.devices.requests.iter().find(|of| *of.name == *main)?;
        match sub {
            None => Some(&of.exactly.as_ref()?.asked),
            Some(sub) => of.first_available.iter().find(|of| *of.name == *sub),
        }
    }

    /// The names of the classes that the requests name.
    fn asked_classes(&self) -> Vec<&Name> {
        let asked = self.claim.devices.requests.iter().flat_map(|request| {
            let exactly = request.exactly.iter().map(|of| &of.asked);
            exactly.chain(&request.first_available).map(|of| &of.device_class_name)
        });
        let mut names: Vec<&Name> = asked.collect();
        names.sort();
        names.dedup();
        names
    }

    /// The classes that the requests name. One that is not there, or that this version cannot read, excludes nothing.
    fn classes(&self, class: impl Fn(&str) -> Option<Arc<JudgedClass>>) -> Vec<Class> {
        let known = |name: &Name| {
            let known = class(name).filter(|known| known.class.unreadable.is_none());
            let selectors = known.map(|known| known.class.selectors.clone()).unwrap_or_default();
            Class { name: name.clone(), selectors, ..Class::default() }
        };
        self.asked_classes().into_iter().map(known).collect()
    }

    /// The words for a broken rule; nothing for a rule about what is not seen here.
    fn words(&self, broken: &Broken) -> Option<String> {
        let Broken { rule, request, why, .. } = broken;
        let is = match rule {
            Rule::Request => {
                return Some(format!("a result is for request {request:?}, which the claim does not have"));
            }
            Rule::Alternative => {
                let main = request.split_once('/').map_or(&**request, |(main, _)| main);
                return Some(format!("request {main}: is met by more than one of its alternatives"));
            }
            Rule::Size => format!("{why}: a claim has 32 devices at most"),
            Rule::Class => format!("{why} is none of its class"),
            Rule::Selector => format!("{why} is excluded by its selectors"),
            Rule::Twice => format!("{why} is given twice"),
            Rule::Match => format!("{why} has another value of an attribute that has to be the same for all"),
            Rule::Distinct => format!("{why} has the same value of an attribute that has to differ"),
            Rule::AdminAccess if self.wants_admin(request) => {
                format!("{why} is given without the admin access that it asks for")
            }
            Rule::AdminAccess => format!("{why} is given with admin access, which it does not ask for"),
            Rule::Count => {
                let has = self.results.iter().filter(|result| result.request == *request).count();
                match self.wanted(request) {
                    // Which devices there are besides is not seen here.
                    None if has > 0 => return None,
                    None => "has no device, and asks for all".to_owned(),
                    Some(count) => format!(
                        "has {has} {}, and asks for {count}",
                        if has == 1 { "device" } else { "devices" }
                    ),
                }
            }
            _ => return None,
        };
        Some(format!("request {request}: {is}"))
    }

    /// Returns the number of devices that a request asks for; `None` if it asks for all of them.
    fn wanted(&self, request: &str) -> Option<i64> {
        let asked = self.asked(request)?;
        (asked.allocation_mode == AllocationMode::ExactCount).then_some(asked.count)
    }

    fn wants_admin(&self, request: &str) -> bool {
        let mut of = self.claim.devices.requests.iter().filter(|of| *of.name == *request);
        of.any(|of| of.exactly.as_ref().is_some_and(|of| of.admin_access == Some(true)))
    }
}

/// Leaves of a claim what is judged: the rest may be large, and the claim is kept as long as it has devices.
fn keep_what_is_judged(devices: &mut ClaimDevices) {
    devices.config = Vec::new();
    let mut derives = false;
    let mut characters = 0;
    for_each_request(devices, |asked| {
        // No rule here is about what they tolerate or consume.
        (asked.tolerations, asked.capacity) = (Vec::new(), None);
        derives |= !asked.derived_attributes.is_empty();
        asked.derived_attributes = Vec::new();
        characters += asked.selectors.iter().map(|of| of.expression().len()).sum::<usize>();
    });
    // Expressions that compute attributes have no budget.
    if derives {
        devices.constraints = Vec::new();
    }
    if characters > KEPT {
        for_each_request(devices, |asked| asked.selectors = Vec::new());
    }
}

fn for_each_request(devices: &mut ClaimDevices, mut act: impl FnMut(&mut SubRequest)) {
    for request in &mut devices.requests {
        request.exactly.iter_mut().for_each(|of| act(&mut of.asked));
        request.first_available.iter_mut().for_each(&mut act);
    }
}

/// A device as the judge reads it: what selectors see of it. Nothing of one with an attribute of a type that this version does not know,
/// or with an attribute or a capacity that cannot be read.
fn judged(device: &SliceDevice) -> Option<Device> {
    if device.device.unread.is_some() {
        return None;
    }
    let attributes: Value = if device.attributes.is_empty() {
        json!({})
    } else {
        serde_json::from_str(&device.attributes).ok()?
    };
    let capacity: BTreeMap<&str, Value> =
        device.device.capacity.iter().map(|(name, amount)| (&**name, json!({"value": &*amount.0}))).collect();
    let object = json!({"name": device.name, "attributes": attributes, "capacity": capacity,
        "allowMultipleAllocations": device.allow_multiple_allocations});
    let device = Device::deserialize(object).ok()?;
    let is_known = |of: &Attribute| !matches!(of, Attribute::Unknown);
    device.attributes.values().all(is_known).then_some(device)
}
