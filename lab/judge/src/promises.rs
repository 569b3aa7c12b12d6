//! The promises of the gate protocol (docs/protocol.md 4), judged step by step.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dragoman_crds::protocol::GATE;
use dragoman_simcluster::HistoryStep;
use serde_json::Value;

/// Pods, as a record names their resource.
pub const PODS: &str = "pods";
/// ResourceClaims, as a record names their resource.
pub const CLAIMS: &str = "resourceclaims.resource.k8s.io";

/// Events, as a record names their resource.
pub const EVENTS: &str = "events.events.k8s.io";

/// The cpus of a test world, in thousandths.
#[derive(Debug, Clone, Copy)]
pub struct Cpus {
    /// Cpus of every node.
    pub node: i64,
    /// Cpus that every device of the driver takes from its node.
    pub device: i64,
    /// The driver whose devices take something.
    pub driver: &'static str,
}

/// A promise that a step breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Promise {
    /// P1: a device is in two allocations.
    Allocated,
    /// P1: two Pods without the gate have a device by different claims.
    Released,
    /// P1: two bound Pods have a device by different claims.
    Bound,
    /// P2: a node takes more than it has when a Pod is bound.
    Room,
    /// P3: a released Pod lacks a claim.
    Claims,
    /// P4: an allocation goes under a bound Pod.
    Kept,
    /// A device is given that a DeviceTaintRule taints.
    Untainted,
    /// P6: a gate is closed without a reason, or no Event says what has to be said in one.
    Visible,
    /// P7: a Pod behind its gate keeps devices while it lacks others.
    Yielded,
}

impl Promise {
    /// Every promise.
    pub const ALL: [Self; 9] = [
        Self::Allocated,
        Self::Released,
        Self::Bound,
        Self::Room,
        Self::Claims,
        Self::Kept,
        Self::Untainted,
        Self::Visible,
        Self::Yielded,
    ];

    /// A word for tables.
    pub fn word(self) -> &'static str {
        match self {
            Self::Allocated => "allocated twice",
            Self::Released => "released twice",
            Self::Bound => "bound twice",
            Self::Room => "overcommitted",
            Self::Claims => "released early",
            Self::Kept => "cleared",
            Self::Untainted => "given tainted",
            Self::Visible => "silent",
            Self::Yielded => "not given back",
        }
    }
}

/// A promise that was broken, and how.
pub type Broken = (Promise, String);

/// The cluster as the steps leave it.
pub struct Cluster {
    cpus: Cpus,
    pods: BTreeMap<String, Arc<Value>>,
    claims: BTreeMap<String, Arc<Value>>,
}

/// The elements of a list, which may be missing.
pub fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Namespace and name.
pub fn key(object: &Value) -> String {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    format!("{}/{}", text("namespace"), text("name"))
}

/// Whether a Pod has ended.
pub fn is_over(pod: &Value) -> bool {
    matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

/// Whether a Pod has the gate of the protocol.
pub fn is_gated(pod: &Value) -> bool {
    items(&pod["spec"]["schedulingGates"]).any(|gate| gate["name"] == GATE)
}

/// Whether a Pod has a node.
pub fn is_bound(pod: &Value) -> bool {
    pod["spec"]["nodeName"].is_string()
}

/// Whether a claim is reserved for a Pod.
pub fn is_reserved_for(claim: &Value, pod: &Value) -> bool {
    items(&claim["status"]["reservedFor"]).any(|consumer| consumer["uid"] == pod["metadata"]["uid"])
}

/// The devices that an allocation has to itself.
fn devices(claim: &Value) -> BTreeSet<String> {
    let results = items(&claim["status"]["allocation"]["devices"]["results"]);
    let alone = results.filter(|result| result["adminAccess"] != true && result["shareID"].is_null());
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    alone.map(|result| ["driver", "pool", "device"].map(|field| text(&result[field])).join("/")).collect()
}

/// Whether the devices of a claim can be used on a node: its allocation has no selector, or one that names the node.
fn can_be_used_on(claim: &Value, node: &str) -> bool {
    let selector = &claim["status"]["allocation"]["nodeSelector"];
    selector.is_null() || selector.to_string().contains(&format!("{node:?}"))
}

/// The claim that an entry of a Pod names.
pub(crate) fn claim_name<'a>(pod: &'a Value, entry: &'a Value) -> Option<&'a str> {
    entry["resourceClaimName"].as_str().or_else(|| {
        let mut statuses = items(&pod["status"]["resourceClaimStatuses"]);
        statuses.find(|status| status["name"] == entry["name"])?["resourceClaimName"].as_str()
    })
}

fn cpu(text: &Value) -> i64 {
    let text = text.as_str().unwrap_or("0");
    let thousandths = text.strip_suffix('m').map(str::parse);
    thousandths.unwrap_or_else(|| text.parse().map(|cores: i64| cores * 1_000)).unwrap_or_default()
}

impl Cluster {
    /// An empty cluster, whose nodes and devices have these amounts.
    pub fn new(cpus: Cpus) -> Self {
        Self { cpus, pods: BTreeMap::new(), claims: BTreeMap::new() }
    }

    /// Takes in a step, and returns the promises that it breaks.
    pub fn take(&mut self, step: &HistoryStep) -> Vec<Broken> {
        let objects = match &*step.resource {
            PODS => &mut self.pods,
            CLAIMS => &mut self.claims,
            _ => return Vec::new(),
        };
        match (&step.before, &step.after) {
            (_, Some(after)) => drop(objects.insert(key(after), Arc::clone(after))),
            (Some(before), None) => drop(objects.remove(&key(before))),
            (None, None) => {}
        }
        let Some(after) = &step.after else { return Vec::new() };
        let before = step.before.as_deref().unwrap_or(&Value::Null);
        let mut broken = Vec::new();
        if &*step.resource == CLAIMS {
            broken.extend(self.allocated_twice(before, after).map(|why| (Promise::Allocated, why)));
            broken.extend(self.cleared_under_a_pod(before, after).map(|why| (Promise::Kept, why)));
            return broken;
        }
        if is_gated(before) && !is_gated(after) {
            broken.extend(self.released_early(after).map(|why| (Promise::Claims, why)));
            broken.extend(
                self.twice(after, "released", |pod| !is_gated(pod)).map(|why| (Promise::Released, why)),
            );
        }
        if !is_bound(before) && is_bound(after) {
            broken.extend(self.twice(after, "bound", is_bound).map(|why| (Promise::Bound, why)));
            broken.extend(self.overcommitted(after).map(|why| (Promise::Room, why)));
        }
        broken
    }

    /// The Pods.
    pub fn pods(&self) -> impl Iterator<Item = &Arc<Value>> {
        self.pods.values()
    }

    /// The claims of a Pod, by its entries, and the one of its extended resources.
    pub fn claims_of<'a>(&'a self, pod: &'a Value) -> impl Iterator<Item = Option<&'a Arc<Value>>> {
        let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
        let extended = pod["status"]["extendedResourceClaimStatus"]["resourceClaimName"].as_str();
        let names = items(&pod["spec"]["resourceClaims"]).map(|entry| claim_name(pod, entry));
        names.chain(extended.map(Some)).map(move |name| self.claims.get(&format!("{namespace}/{}", name?)))
    }

    fn allocated_twice(&self, before: &Value, claim: &Value) -> Option<String> {
        let (known, own) = (devices(before), devices(claim));
        let new: BTreeSet<&String> = own.difference(&known).collect();
        let mut others = self.claims.iter().filter(|(other, _)| !new.is_empty() && **other != key(claim));
        others.find_map(|(other, held)| {
            let held = devices(held);
            let device = new.iter().find(|device| held.contains(**device))?;
            Some(format!("{device} is allocated to {} and to {other}", key(claim)))
        })
    }

    fn released_early(&self, pod: &Value) -> Option<String> {
        let lacks = |claim: Option<&Arc<Value>>| {
            claim.is_none_or(|claim| claim["status"]["allocation"].is_null() || !is_reserved_for(claim, pod))
        };
        self.claims_of(pod).any(lacks).then(|| format!("{} is released and lacks a claim", key(pod)))
    }

    /// A Pod for which this holds has no device that another such Pod has by another claim.
    fn twice(&self, pod: &Value, what: &str, holds: impl Fn(&Value) -> bool) -> Option<String> {
        let own: Vec<&Arc<Value>> = self.claims_of(pod).flatten().collect();
        let taken: BTreeSet<String> = own.iter().flat_map(|claim| devices(claim)).collect();
        let others =
            self.pods.values().filter(|other| key(other) != key(pod) && holds(other) && !is_over(other));
        let mut theirs = others.flat_map(|other| {
            let claims = self.claims_of(other).flatten().filter(move |claim| is_reserved_for(claim, other));
            claims.map(move |claim| (other, claim))
        });
        let both = theirs.find(|(_, claim)| {
            own.iter().all(|own| key(own) != key(claim)) && !devices(claim).is_disjoint(&taken)
        });
        both.map(|(other, _)| format!("{} and {} are {what} with the same device", key(pod), key(other)))
    }

    fn cleared_under_a_pod(&self, before: &Value, after: &Value) -> Option<String> {
        let is_cleared = !before["status"]["allocation"].is_null() && after["status"]["allocation"].is_null();
        let mut pods = self.pods.values().filter(|_| is_cleared);
        let runs = pods.find(|pod| is_bound(pod) && !is_over(pod) && is_reserved_for(before, pod));
        runs.map(|pod| format!("the allocation of {} goes under {}", key(after), key(pod)))
    }

    /// Returns a message if bound Pods and the devices of their claims take more than the node of a Pod that
    /// was bound has.
    fn overcommitted(&self, bound: &Value) -> Option<String> {
        let node = bound["spec"]["nodeName"].as_str()?;
        let (mut taken, mut held) = (0, BTreeSet::new());
        let on_it = |pod: &&Arc<Value>| pod["spec"]["nodeName"] == node && !is_over(pod);
        for pod in self.pods.values().filter(on_it) {
            taken += items(&pod["spec"]["containers"])
                .map(|container| cpu(&container["resources"]["requests"]["cpu"]))
                .sum::<i64>();
            // A Pod that never had a gate may be put on a node that cannot use the devices of its claims. Others never are.
            let was_placed = pod["metadata"]["annotations"]["dragoman.dev/released"].is_null();
            let is_here = |claim: &&Arc<Value>| !was_placed || can_be_used_on(claim, node);
            held.extend(self.claims_of(pod).flatten().filter(is_here).flat_map(|claim| devices(claim)));
        }
        let cost = held.iter().filter(|device| device.starts_with(&format!("{}/", self.cpus.driver))).count();
        taken += self.cpus.device * i64::try_from(cost).unwrap_or(i64::MAX);
        let most = self.cpus.node;
        (taken > most)
            .then(|| format!("{} is bound: {taken} of {most} thousandths of {node} are taken", key(bound)))
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;

    const CPUS: Cpus = Cpus { node: 8_000, device: 3_000, driver: "d" };

    fn claim(name: &str, device: &str, pod: &str) -> Value {
        let results = json!([{"driver": "d", "pool": "p", "device": device}]);
        let allocation =
            if device.is_empty() { Value::Null } else { json!({"devices": {"results": results}}) };
        json!({"metadata": {"namespace": "ns", "name": name},
            "status": {"allocation": allocation, "reservedFor": [{"uid": pod}]}})
    }

    fn pod(name: &str, claim: &str, gated: bool, node: Option<&str>) -> Value {
        let gates = if gated { json!([{"name": GATE}]) } else { json!([]) };
        json!({"metadata": {"namespace": "ns", "name": name, "uid": name},
            "spec": {"nodeName": node, "schedulingGates": gates,
                "containers": [{"resources": {"requests": {"cpu": "2"}}}],
                "resourceClaims": [{"name": "device", "resourceClaimName": claim}]}})
    }

    /// Plays states of objects, each after the one before of the same name.
    fn played(states: &[Value]) -> Vec<Promise> {
        let (mut cluster, mut known) = (Cluster::new(CPUS), BTreeMap::<String, Arc<Value>>::new());
        let mut broken = Vec::new();
        for state in states {
            let resource = if state["spec"].is_null() { CLAIMS } else { PODS };
            let after = Arc::new(state.clone());
            let before = known.insert(format!("{resource} {}", key(state)), Arc::clone(&after));
            let step = HistoryStep {
                at: Timestamp::UNIX_EPOCH,
                resource: resource.to_owned(),
                before,
                after: Some(after),
            };
            broken.extend(cluster.take(&step).into_iter().map(|(promise, _)| promise));
        }
        broken
    }

    #[test]
    fn what_was_promised_and_kept_is_no_finding() {
        let life = [
            claim("c", "gpu", "a"),
            pod("a", "c", true, None),
            pod("a", "c", false, None),
            pod("a", "c", false, Some("n")),
        ];
        assert_eq!(played(&life), []);
    }

    #[test]
    fn each_broken_promise_is_found() {
        let (a, b) = (claim("c", "gpu", "a"), claim("d", "gpu", "b"));
        assert_eq!(played(&[a.clone(), b.clone()]), [Promise::Allocated]);
        let released =
            |name: &str, claim: &str| [pod(name, claim, true, None), pod(name, claim, false, None)];
        let both = [&[a.clone(), b.clone()][..], &released("a", "c"), &released("b", "d")].concat();
        assert_eq!(played(&both), [Promise::Allocated, Promise::Released]);
        let bound = [a.clone(), b, pod("a", "c", false, Some("n")), pod("b", "d", false, Some("n"))];
        assert_eq!(played(&bound), [Promise::Allocated, Promise::Bound]);
        assert_eq!(played(&released("a", "c")), [Promise::Claims]);
        let cleared = [a.clone(), pod("a", "c", false, Some("n")), claim("c", "", "a")];
        assert_eq!(played(&cleared), [Promise::Kept]);
        let others =
            [claim("d", "other", "b"), pod("a", "c", false, Some("n")), pod("b", "d", false, Some("n"))];
        assert_eq!(played(&[&[a][..], &others].concat()), [Promise::Room]);
    }
}
