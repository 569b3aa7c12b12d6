//! The scheduler's view of devices: their nodes, the claims that hold them, and the class selectors.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use serde_json::{Value, json};

use super::scheduler::Amounts;
use crate::api::meta;

/// Driver, pool and device.
pub(super) type DeviceId = (String, String, String);

/// A device of a node.
struct Device {
    id: DeviceId,
    /// The name of its slice: a pool may have several on a node.
    slice: String,
    /// The variable `device` of selectors.
    seen: Value,
    /// Amounts that the device takes from its node.
    cost: Amounts,
}

/// All devices, by node.
#[derive(Default)]
pub(super) struct Devices {
    by_node: BTreeMap<String, Vec<Device>>,
    /// By uid of the claim.
    held: BTreeMap<String, Vec<DeviceId>>,
    /// Number of claims that hold each device: a device that one of two holders frees is not free.
    taken: BTreeMap<DeviceId, usize>,
    /// The devices of allocations that are being written, by uid of the claim.
    reserved: BTreeMap<String, Vec<DeviceId>>,
    /// Selectors of classes that have been compiled; none for what does not compile.
    programs: BTreeMap<String, Option<cel::Program>>,
}

impl Devices {
    /// Adds the devices of a slice with a node name. Other slices are ignored.
    pub(super) fn slice_applied(&mut self, slice: &Value) {
        self.slice_deleted(slice);
        let spec = &slice["spec"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (driver, pool) = (text(&spec["driver"]), text(&spec["pool"]["name"]));
        let Some(node) = spec["nodeName"].as_str() else { return };
        let of_node = self.by_node.entry(node.to_owned()).or_default();
        for device in meta::items(&spec["devices"]) {
            let id = (driver.clone(), pool.clone(), text(&device["name"]));
            let slice = meta::text(slice, "name").to_owned();
            of_node.push(Device { seen: seen(&driver, device), cost: cost(device), slice, id });
        }
        of_node.sort_by(|a, b| a.id.cmp(&b.id));
    }

    pub(super) fn slice_deleted(&mut self, slice: &Value) {
        let name = meta::text(slice, "name");
        if let Some(devices) = slice["spec"]["nodeName"].as_str().and_then(|node| self.by_node.get_mut(node))
        {
            devices.retain(|device| device.slice != *name);
        }
    }

    /// Records the devices that the status of a claim allocates, without those for admin access.
    pub(super) fn claim_applied(&mut self, claim: &Value) {
        let uid = meta::text(claim, "uid");
        self.release(uid);
        let devices = held_by(claim);
        self.take(&devices);
        self.held.insert(uid.to_owned(), devices);
    }

    fn take(&mut self, devices: &[DeviceId]) {
        for device in devices {
            *self.taken.entry(device.clone()).or_default() += 1;
        }
    }

    /// Takes the devices of an allocation that is being written.
    pub(super) fn reserve(&mut self, uid: &str, devices: Vec<DeviceId>) {
        self.take(&devices);
        self.reserved.insert(uid.to_owned(), devices);
    }

    /// An allocation has been written, or is not going to be.
    pub(super) fn unreserve(&mut self, uid: &str) {
        let devices = self.reserved.remove(uid).unwrap_or_default();
        self.free(devices);
    }

    /// Returns the amounts that a device takes from its node.
    pub(super) fn cost(&self, node: &str, device: &DeviceId) -> Amounts {
        let mut of_node = self.by_node.get(node).into_iter().flatten();
        of_node.find(|known| known.id == *device).map(|known| known.cost).unwrap_or_default()
    }

    /// Frees what a claim that was deleted held.
    pub(super) fn release(&mut self, uid: &str) {
        let devices = self.held.remove(uid).unwrap_or_default();
        self.free(devices);
    }

    fn free(&mut self, devices: Vec<DeviceId>) {
        for device in devices {
            if let Entry::Occupied(mut holders) = self.taken.entry(device) {
                *holders.get_mut() -= 1;
                if *holders.get() == 0 {
                    holders.remove();
                }
            }
        }
    }

    /// Returns the first free devices of a node that satisfy the requests of a claim, with the names of the
    /// requests. The devices in `but` are not free.
    pub(super) fn first_fit(
        &mut self,
        node: &str,
        claim: &Value,
        classes: &dyn Fn(&str) -> Option<Value>,
        but: &[DeviceId],
    ) -> Option<Vec<(String, DeviceId)>> {
        let mut chosen: Vec<(String, DeviceId)> = Vec::new();
        for request in meta::items(&claim["spec"]["devices"]["requests"]) {
            let name = request["name"].as_str().unwrap_or_default();
            let exactly = [(name.to_owned(), &request["exactly"])];
            let subs = meta::items(&request["firstAvailable"])
                .map(|sub| (format!("{name}/{}", sub["name"].as_str().unwrap_or_default()), sub));
            let alternatives: Vec<(String, &Value)> =
                exactly.into_iter().filter(|(_, exactly)| exactly.is_object()).chain(subs).collect();
            let found = alternatives.into_iter().find_map(|(name, asked)| {
                let devices = self.devices_for(node, asked, classes, but, &chosen)?;
                Some(devices.into_iter().map(move |device| (name.clone(), device)))
            })?;
            chosen.extend(found.collect::<Vec<_>>());
        }
        Some(chosen)
    }

    fn devices_for(
        &mut self,
        node: &str,
        asked: &Value,
        classes: &dyn Fn(&str) -> Option<Value>,
        but: &[DeviceId],
        chosen: &[(String, DeviceId)],
    ) -> Option<Vec<DeviceId>> {
        let class = classes(asked["deviceClassName"].as_str()?)?;
        let wanted = usize::try_from(asked["count"].as_u64().unwrap_or(1)).ok()?;
        let Self { by_node, taken, programs, .. } = self;
        let free = |device: &&Device| {
            !taken.contains_key(&device.id)
                && !but.contains(&device.id)
                && chosen.iter().all(|(_, other)| *other != device.id)
        };
        let selectors = || meta::items(&class["spec"]["selectors"]).chain(meta::items(&asked["selectors"]));
        let mut selected = |device: &&Device| {
            selectors().all(|selector| {
                let text = selector["cel"]["expression"].as_str().unwrap_or_default();
                let program =
                    programs.entry(text.to_owned()).or_insert_with(|| cel::Program::compile(text).ok());
                program.as_ref().is_some_and(|program| holds(program, &device.seen))
            })
        };
        let devices = by_node.get(node)?.iter().filter(free).filter(|device| selected(device));
        let devices: Vec<DeviceId> = devices.take(wanted).map(|device| device.id.clone()).collect();
        (devices.len() == wanted).then_some(devices)
    }

    /// Returns the nodes with devices.
    pub(super) fn nodes(&self) -> impl Iterator<Item = &String> {
        self.by_node.keys()
    }
}

/// The devices that the status of a claim allocates, without those for admin access.
pub(super) fn held_by(claim: &Value) -> Vec<DeviceId> {
    let results = meta::items(&claim["status"]["allocation"]["devices"]["results"]);
    let held = results.filter(|result| result["adminAccess"] != true).map(|result| {
        let text = |field: &str| result[field].as_str().unwrap_or_default().to_owned();
        (text("driver"), text("pool"), text("device"))
    });
    held.collect()
}

/// Returns the amounts that a device of a slice takes from its node (KEP-5517). Only a fixed amount for each
/// device is read.
fn cost(device: &Value) -> Amounts {
    let mapped = device["nodeAllocatableResources"].as_object().into_iter().flatten();
    let mut amounts = json!({});
    for (resource, of) in mapped {
        amounts[resource] = of["mapping"]["deviceMultiplier"].clone();
    }
    let mapped = device["nodeAllocatableResourceMappings"].as_object().into_iter().flatten();
    for (resource, of) in mapped {
        amounts[resource] = of["allocationMultiplier"].clone();
    }
    Amounts::of(&amounts)
}

/// Returns the variable `device` of selectors: the driver, and the attributes by domain and name.
fn seen(driver: &str, device: &Value) -> Value {
    let mut attributes = json!({driver: {}});
    for (name, value) in device["attributes"].as_object().into_iter().flatten() {
        let (domain, name) = name.split_once('/').unwrap_or((driver, name));
        let value = value.as_object().and_then(|value| value.values().next()).cloned().unwrap_or_default();
        meta::put(&mut attributes, &[domain, name], value);
    }
    json!({"driver": driver, "attributes": attributes})
}

fn holds(program: &cel::Program, device: &Value) -> bool {
    let mut context = cel::Context::default();
    context.add_variable("device", device).is_ok()
        && matches!(program.execute(&context), Ok(cel::Value::Bool(true)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(name: &str, device: &str) -> Value {
        let pool = json!({"name": "p"});
        let devices = json!([{"name": device}]);
        json!({"metadata": {"name": name}, "spec": {"driver": "d", "pool": pool, "nodeName": "n", "devices": devices}})
    }

    fn claim(uid: &str, device: &str) -> Value {
        let results = json!([{"driver": "d", "pool": "p", "device": device}]);
        json!({"metadata": {"uid": uid}, "status": {"allocation": {"devices": {"results": results}}}})
    }

    fn free(devices: &mut Devices) -> usize {
        let request = json!({"name": "r", "exactly": {"deviceClassName": "c"}});
        let wanted = json!({"spec": {"devices": {"requests": [request]}}});
        let class = |_: &str| Some(json!({"spec": {}}));
        let mut taken = Vec::new();
        while let Some(found) = devices.first_fit("n", &wanted, &class, &taken) {
            taken.extend(found.into_iter().map(|(_, device)| device));
        }
        taken.len()
    }

    #[test]
    fn a_device_with_two_holders_is_free_after_the_second() {
        let mut devices = Devices::default();
        devices.slice_applied(&slice("s", "gpu"));
        devices.claim_applied(&claim("u", "gpu"));
        devices.claim_applied(&claim("v", "gpu"));
        devices.release("u");
        assert_eq!(free(&mut devices), 0);
        devices.release("v");
        assert_eq!(free(&mut devices), 1);
    }

    #[test]
    fn slices_of_one_pool_stand_beside_each_other() {
        let mut devices = Devices::default();
        devices.slice_applied(&slice("s", "one"));
        devices.slice_applied(&slice("t", "two"));
        devices.slice_applied(&slice("s", "one"));
        assert_eq!(free(&mut devices), 2);
        devices.slice_deleted(&slice("s", "one"));
        assert_eq!(free(&mut devices), 1);
    }
}
