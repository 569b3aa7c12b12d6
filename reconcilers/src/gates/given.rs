//! Whether an allocation gives a claim what it asks for. An allocator of another make may be wrong, and a Pod that runs with other
//! devices than it asked for harms itself, the Pods that need them, and whoever guards them by a class. The judge is the one of the
//! reference allocator ([`Checker`]); here it sees the devices of one allocation alone.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use dragoman_accounting::cluster::SliceDevice;
use dragoman_allocator::Gates;
use dragoman_allocator::checker::{Broken, Checker, Expressions, Rule};
use dragoman_allocator::input::{
    Allocation, AllocationMode, Claim, ClaimObject, Class, Cluster, Device, DeviceAllocation, DeviceResult,
    Name, Node, Pool, Slice,
};
use dragoman_crds::wire::ResourceClaim;
use serde::Deserialize as _;
use serde_json::{Value, json};

/// What selectors may cost for one allocation, in units of CEL: some ten milliseconds. A selector beyond that counts as one that holds:
/// the allocator has paid for it, and a tenant may harm the claims of its own with it, at most.
const BUDGET: u64 = 200_000;

/// What a claim asks for, and what it was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Given {
    /// The claim as the judge reads it: without allocation, and without configuration, which no rule here is about.
    claim: Claim,
    results: Vec<DeviceResult>,
}

impl Given {
    /// Nothing for a claim without an allocation that decodes, and for one with a field that this version does not know: an allocator
    /// that is newer may know it.
    pub(super) fn of(claim: &ResourceClaim) -> Option<Self> {
        let accounted = claim.accounted().ok()?;
        let result = |of: &dragoman_accounting::claim::allocation::DeviceResult| DeviceResult {
            request: (*of.request).into(),
            driver: (*of.driver).into(),
            pool: (*of.pool).into(),
            device: (*of.device).into(),
            admin_access: of.admin_access.then_some(true),
            ..DeviceResult::default()
        };
        let results = accounted.results?.iter().map(result).collect();
        let meta = &claim.metadata;
        let text = if claim.spec.text.is_empty() { "{}" } else { &*claim.spec.text };
        let devices: Value = serde_json::from_str(text).ok()?;
        let object = json!({"metadata": {"namespace": meta.namespace, "name": meta.name, "uid": meta.uid}, "spec": {"devices": devices}});
        let mut claim = serde_json::from_str::<ClaimObject>(&object.to_string()).ok()?.claim();
        claim.devices.config = Vec::new();
        // Expressions that compute attributes have no budget here.
        let requests = &claim.devices.requests;
        if requests.iter().any(|of| of.exactly.iter().any(|of| !of.asked.derived_attributes.is_empty())) {
            claim.devices.constraints = Vec::new();
        }
        let unread = requests.iter().any(|of| of.unreadable.is_some()) || claim.devices.unreadable.is_some();
        (!unread).then_some(Self { claim, results })
    }

    /// Why the devices are not those that the claim asks for, in words for its tenant. `class` and `device` find a class by its name
    /// and a device by driver, pool and name. Nothing is said of what they do not find: it may be on its way.
    pub(super) fn wrong<'a>(
        &self,
        class: impl Fn(&str) -> Option<Arc<Class>>,
        device: impl Fn(&DeviceResult) -> Option<&'a SliceDevice>,
    ) -> Option<String> {
        let mut pools: BTreeMap<(Name, Name), Vec<Device>> = BTreeMap::new();
        for result in &self.results {
            let devices = pools.entry((result.driver.clone(), result.pool.clone())).or_default();
            if devices.iter().all(|known| known.name != result.device) {
                devices.push(judged(device(result)?)?);
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
            Checker::new(&cluster, "", std::slice::from_ref(&self.claim.uid), Gates::default(), &expressions)
                .ok()?;
        let devices = DeviceAllocation { results: self.results.clone(), config: Vec::new() };
        let allocation = (self.claim.uid.clone(), Allocation { devices, node_selector: None });
        let mut broken = checker.check(&[allocation], 0);
        // What the request says comes before how many devices it has.
        broken.sort_by_key(|broken| Reverse(broken.rule == Rule::Request));
        broken.iter().find_map(|broken| self.words(broken))
    }

    /// The classes that the requests name. One that is not there, or that this version cannot read, excludes nothing.
    fn classes(&self, class: impl Fn(&str) -> Option<Arc<Class>>) -> Vec<Class> {
        let asked = self.claim.devices.requests.iter().flat_map(|request| {
            let exactly = request.exactly.iter().map(|of| &of.asked);
            exactly.chain(&request.first_available).map(|of| &of.device_class_name)
        });
        let mut names: Vec<&Name> = asked.collect();
        names.sort();
        names.dedup();
        let known = |name: &Name| {
            let known = class(name).filter(|class| class.unreadable.is_none());
            let selectors = known.map(|class| class.selectors.clone()).unwrap_or_default();
            Class { name: name.clone(), selectors, ..Class::default() }
        };
        names.into_iter().map(known).collect()
    }

    /// The words for a broken rule; nothing for a rule about what is not seen here.
    fn words(&self, broken: &Broken) -> Option<String> {
        let Broken { rule, request, why, .. } = broken;
        let is = match rule {
            Rule::Request => {
                return Some(format!("a result is for request {request:?}, which the claim does not have"));
            }
            Rule::Alternative => "is met by more than one of its alternatives".to_owned(),
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

    /// How many devices a request asks for; nothing if it is all of them.
    fn wanted(&self, request: &str) -> Option<i64> {
        let (main, sub) = request.split_once('/').map_or((request, None), |(main, sub)| (main, Some(sub)));
        let of = self.claim.devices.requests.iter().find(|of| *of.name == *main)?;
        let asked = match sub {
            None => &of.exactly.as_ref()?.asked,
            Some(sub) => of.first_available.iter().find(|of| *of.name == *sub)?,
        };
        (asked.allocation_mode == AllocationMode::ExactCount).then_some(asked.count)
    }

    fn wants_admin(&self, request: &str) -> bool {
        let mut of = self.claim.devices.requests.iter().filter(|of| *of.name == *request);
        of.any(|of| of.exactly.as_ref().is_some_and(|of| of.admin_access == Some(true)))
    }
}

/// A device as the judge reads it: what selectors see of it.
fn judged(device: &SliceDevice) -> Option<Device> {
    let attributes: Value = if device.attributes.is_empty() {
        json!({})
    } else {
        serde_json::from_str(&device.attributes).ok()?
    };
    let capacity: BTreeMap<&str, Value> =
        device.device.capacity.iter().map(|(name, amount)| (&**name, json!({"value": &*amount.0}))).collect();
    let object = json!({"name": device.name, "attributes": attributes, "capacity": capacity,
        "allowMultipleAllocations": device.allow_multiple_allocations});
    Device::deserialize(object).ok()
}
