//! The invariant of every allocator: no device is promised to two claims at once, and no more
//! devices are in use than there are.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::api::HistoryStep;
use crate::api::meta;

const PODS: &str = "pods";
const CLAIMS: &str = "resourceclaims.resource.k8s.io";
const SLICES: &str = "resourceslices.resource.k8s.io";

/// Driver, pool and device.
type Device = (String, String, String);

/// The devices that claims hold and the Pods that run, followed step by step.
///
/// The steps of one kind must come in the order in which they happened. The order between kinds
/// does not matter, so that independent watches may feed it.
#[derive(Debug, Default)]
pub struct Promises {
    /// By uid of the claim.
    held: BTreeMap<String, BTreeSet<Device>>,
    /// The uid of the claim that holds a device.
    holder: BTreeMap<Device, String>,
    /// The driver and the number of devices of a slice, by its name.
    published: BTreeMap<String, (String, usize)>,
    /// Claims of their own that running Pods have, by uid of the Pod.
    running: BTreeMap<String, usize>,
    /// The most devices at once: those that slices publish, and those that claims hold of drivers
    /// without slices.
    most_devices: usize,
    most_running: usize,
    broken: Option<String>,
}

impl Promises {
    /// Takes in a step of the chronicle of [`crate::ApiServer::chronicled`].
    pub fn step(&mut self, step: &HistoryStep) {
        match (&step.before, &step.after) {
            (_, Some(object)) => self.applied(&step.resource, object),
            (Some(object), None) => self.deleted(&step.resource, object),
            (None, None) => {}
        }
    }

    /// Takes in the new state of an object; `resource` is `plural.group`.
    pub fn applied(&mut self, resource: &str, object: &Value) {
        let uid = meta::text(object, "uid").to_owned();
        match resource {
            PODS => {
                let runs = object["status"]["phase"] == "Running";
                self.running.remove(&uid);
                if runs {
                    self.running.insert(uid, own_claims(object));
                }
                self.most_running = self.most_running.max(self.running.values().sum());
            }
            CLAIMS => self.hold(&uid, meta::text(object, "name"), devices_of(object)),
            SLICES => {
                let driver = object["spec"]["driver"].as_str().unwrap_or_default().to_owned();
                let devices = meta::items(&object["spec"]["devices"]).count();
                self.published.insert(meta::text(object, "name").to_owned(), (driver, devices));
                self.count();
            }
            _ => {}
        }
    }

    /// Takes in the deletion of an object.
    pub fn deleted(&mut self, resource: &str, object: &Value) {
        let uid = meta::text(object, "uid");
        match resource {
            PODS => {
                self.running.remove(uid);
            }
            CLAIMS => self.hold(uid, "", BTreeSet::new()),
            SLICES => {
                self.published.remove(meta::text(object, "name"));
            }
            _ => {}
        }
    }

    /// The objects of a kind are listed anew: those that are not listed again are gone.
    pub fn relisted(&mut self, resource: &str) {
        match resource {
            PODS => self.running.clear(),
            CLAIMS => {
                self.held.clear();
                self.holder.clear();
            }
            SLICES => self.published.clear(),
            _ => {}
        }
    }

    fn hold(&mut self, uid: &str, name: &str, devices: BTreeSet<Device>) {
        for device in self.held.remove(uid).unwrap_or_default() {
            if self.holder.get(&device).is_some_and(|holder| holder == uid) {
                self.holder.remove(&device);
            }
        }
        for device in &devices {
            if let Some(other) = self.holder.insert(device.clone(), uid.to_owned()) {
                let (driver, pool, device) = device;
                self.broken.get_or_insert_with(|| {
                    format!("twice: {driver}/{pool}/{device} is promised to {name}, and to the claim {other}")
                });
            }
        }
        self.count();
        if !devices.is_empty() {
            self.held.insert(uid.to_owned(), devices);
        }
    }

    fn count(&mut self) {
        let published: usize = self.published.values().map(|(_, devices)| devices).sum();
        let is_foreign = |device: &&Device| self.published.values().all(|(driver, _)| *driver != device.0);
        let foreign = self.holder.keys().filter(is_foreign).count();
        self.most_devices = self.most_devices.max(published + foreign);
    }

    /// Forgets a device that is promised twice: where two allocators work for a moment, another party takes
    /// one of the promises back.
    pub fn forgive(&mut self) {
        self.broken = None;
    }

    /// The first thing that cannot be: a device with two claims, or more claims of running Pods
    /// than there have ever been devices.
    pub fn broken(&self) -> Option<String> {
        self.broken.clone().or_else(|| {
            let (running, devices) = (self.most_running, self.most_devices);
            (running > devices).then(|| {
                format!(
                    "twice: {running} claims of running Pods at once, and never more than {devices} devices"
                )
            })
        })
    }
}

/// The devices that a claim has for itself: no other claim can have them at the same time.
fn devices_of(claim: &Value) -> BTreeSet<Device> {
    let results = meta::items(&claim["status"]["allocation"]["devices"]["results"]);
    let exclusive = results.filter(|result| result["adminAccess"] != true && result["shareID"].is_null());
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    exclusive
        .map(|result| (text(&result["driver"]), text(&result["pool"]), text(&result["device"])))
        .collect()
}

/// Counts the claims that a Pod shares with no other Pod: those from templates, unless the Pod has a
/// PodGroup, whose members share its claims.
fn own_claims(pod: &Value) -> usize {
    if !pod["spec"]["schedulingGroup"].is_null() {
        return 0;
    }
    meta::items(&pod["spec"]["resourceClaims"])
        .filter(|entry| !entry["resourceClaimTemplateName"].is_null())
        .count()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn claim(uid: &str, device: &str) -> Value {
        let results = json!([{"driver": "d", "pool": "p", "device": device}]);
        let results = if device.is_empty() { Value::Null } else { results };
        json!({"metadata": {"uid": uid, "name": uid}, "status": {"allocation": {"devices": {"results": results}}}})
    }

    #[test]
    fn a_device_has_one_claim_at_a_time() {
        let mut promises = Promises::default();
        promises.applied(CLAIMS, &claim("a", "gpu"));
        promises.applied(CLAIMS, &claim("a", "gpu"));
        promises.applied(CLAIMS, &claim("a", ""));
        promises.applied(CLAIMS, &claim("b", "gpu"));
        promises.deleted(CLAIMS, &claim("b", "gpu"));
        promises.applied(CLAIMS, &claim("c", "gpu"));
        assert_eq!(promises.broken(), None);
        promises.applied(CLAIMS, &claim("d", "gpu"));
        assert!(promises.broken().is_some_and(|why| why.contains("d/p/gpu is promised to d")));
    }

    #[test]
    fn shared_devices_and_those_of_admins_may_be_promised_again() {
        let mut promises = Promises::default();
        for (field, value) in [("adminAccess", json!(true)), ("shareID", json!("s"))] {
            for uid in ["a", "b"] {
                let mut claim = claim(uid, field);
                claim["status"]["allocation"]["devices"]["results"][0][field] = value.clone();
                promises.applied(CLAIMS, &claim);
            }
        }
        assert_eq!(promises.broken(), None);
    }

    #[test]
    fn no_more_pods_run_than_there_are_devices() {
        let mut promises = Promises::default();
        let pod = |uid: &str, phase: &str| {
            let entries = json!([{"name": "gpu", "resourceClaimTemplateName": "one"}]);
            json!({"metadata": {"uid": uid}, "spec": {"resourceClaims": entries}, "status": {"phase": phase}})
        };
        promises.applied(SLICES, &json!({"metadata": {"name": "s"}, "spec": {"devices": [{"name": "gpu"}]}}));
        promises.applied(PODS, &pod("a", "Running"));
        promises.applied(PODS, &pod("b", "Pending"));
        promises.applied(PODS, &pod("a", "Succeeded"));
        promises.applied(PODS, &pod("b", "Running"));
        assert_eq!(promises.broken(), None);
        promises.applied(PODS, &pod("c", "Running"));
        assert!(promises.broken().is_some_and(|why| why.contains("2 claims of running Pods")));
    }
}
