//! The room on nodes: what they have, what bound and assumed Pods take of it, and what nominated Pods are to get.

use std::collections::{BTreeMap, BTreeSet};

use dragoman_quantity::Quantity;
use serde_json::Value;

use crate::api::meta;
use crate::kinds::resources::together;

/// Cpus in thousandths, memory in bytes, and Pods.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::standins) struct Amounts {
    cpu: i64,
    memory: i64,
    pods: i64,
}

impl Amounts {
    /// Reads amounts by the names of their resources. Other resources are left out.
    pub(in crate::standins) fn of(amounts: &Value) -> Self {
        let read = |resource: &str, exponent: i32| {
            let quantity: Quantity = amounts[resource].as_str()?.parse().ok()?;
            i64::try_from(quantity.amount.rounded_up(exponent).ok()?).ok()
        };
        Self {
            cpu: read("cpu", -3).unwrap_or_default(),
            memory: read("memory", 0).unwrap_or_default(),
            pods: read("pods", 0).unwrap_or_default(),
        }
    }

    pub(super) fn is_zero(self) -> bool {
        self == Self::default()
    }

    /// Cpu and memory by their names, as the API writes them; none of those that are zero.
    pub(super) fn by_name(self) -> impl Iterator<Item = (&'static str, String)> {
        let cpu = (self.cpu != 0).then(|| ("cpu", format!("{}m", self.cpu)));
        let memory = (self.memory != 0).then(|| ("memory", self.memory.to_string()));
        cpu.into_iter().chain(memory)
    }

    pub(in crate::standins) fn plus(self, other: Self) -> Self {
        Self {
            cpu: self.cpu.saturating_add(other.cpu),
            memory: self.memory.saturating_add(other.memory),
            pods: self.pods.saturating_add(other.pods),
        }
    }

    /// The resource that a node with `all` lacks for a Pod that asks for `more`. A node that has too little may still take a Pod
    /// that asks for none of it.
    fn lacking(self, more: Self, all: Self) -> Option<&'static str> {
        let sum = self.plus(more);
        let lacks = |more: i64, sum: i64, all: i64| more > 0 && sum > all;
        [
            ("Too many pods", more.pods, sum.pods, all.pods),
            ("Insufficient cpu", more.cpu, sum.cpu, all.cpu),
            ("Insufficient memory", more.memory, sum.memory, all.memory),
        ]
        .into_iter()
        .find_map(|(word, more, sum, all)| lacks(more, sum, all).then_some(word))
    }
}

/// Returns the amounts that a Pod requests.
pub(super) fn requests(pod: &Value) -> Amounts {
    let of = |resource: &str| together(pod, "requests", resource).unwrap_or_default();
    let containers = Amounts {
        cpu: of("cpu").milli().unwrap_or(i64::MAX),
        memory: of("memory").units().unwrap_or(i64::MAX),
        pods: 1,
    };
    containers.plus(Amounts::of(&pod["spec"]["overhead"]))
}

/// Returns the amounts that the claims of a Pod take, as its status says.
fn published(pod: &Value) -> Amounts {
    let entries = meta::items(&pod["status"]["nodeAllocatableResourceClaimStatuses"]);
    let amounts = entries.flat_map(|entry| {
        let by_1_37 = meta::items(&entry["mapping"]).chain(meta::items(&entry["overhead"])).map(|of| {
            let mut amounts = Value::Null;
            meta::put(&mut amounts, &[of["name"].as_str().unwrap_or_default()], of["quantity"].clone());
            Amounts::of(&amounts)
        });
        by_1_37.chain([Amounts::of(&entry["resources"])])
    });
    amounts.fold(Amounts::default(), Amounts::plus)
}

pub(super) fn priority(pod: &Value) -> i64 {
    pod["spec"]["priority"].as_i64().unwrap_or_default()
}

pub(super) fn is_over(pod: &Value) -> bool {
    matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

/// A Pod on a node, or one that is to come to it.
#[derive(Debug, Clone)]
struct Guest {
    node: String,
    amounts: Amounts,
    priority: i64,
    name: meta::Name,
    is_deleting: bool,
}

impl Guest {
    fn new(pod: &Value, node: String, amounts: Amounts) -> Self {
        let (priority, is_deleting) = (priority(pod), meta::is_deleting(pod));
        Self { node, amounts, priority, name: meta::name_of(pod), is_deleting }
    }
}

/// A Pod that a more important one may take the place of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Victim {
    pub(super) uid: String,
    pub(super) name: meta::Name,
}

/// The Pods of a node, by uid.
#[derive(Debug, Default)]
struct On {
    guests: BTreeSet<String>,
    nominated: BTreeSet<String>,
    /// Amounts that the guests take together.
    taken: Amounts,
}

/// The nodes of a cluster, and the Pods on them by uid.
#[derive(Debug, Default)]
pub(super) struct Rooms {
    nodes: BTreeMap<String, Amounts>,
    /// Bound Pods, and those that are assumed to be.
    guests: BTreeMap<String, Guest>,
    assumed: BTreeSet<String>,
    nominated: BTreeMap<String, Guest>,
    on: BTreeMap<String, On>,
}

impl Rooms {
    pub(super) fn node_applied(&mut self, node: &Value) {
        let name = meta::text(node, "name").to_owned();
        self.nodes.insert(name, Amounts::of(&node["status"]["allocatable"]));
    }

    pub(super) fn node_deleted(&mut self, name: &str) {
        self.nodes.remove(name);
    }

    pub(super) fn has(&self, node: &str) -> bool {
        self.nodes.contains_key(node)
    }

    pub(super) fn nodes(&self) -> impl Iterator<Item = &String> {
        self.nodes.keys()
    }

    /// Takes in a state of a Pod. Once it is seen on its node, what was assumed of it ends.
    pub(super) fn pod_applied(&mut self, pod: &Value) {
        let uid = meta::text(pod, "uid");
        self.denominate(uid);
        if is_over(pod) {
            return self.leave(uid);
        }
        let on = |field: &Value| field.as_str().filter(|node| !node.is_empty()).map(str::to_owned);
        let amounts = || requests(pod).plus(published(pod));
        if let Some(node) = on(&pod["spec"]["nodeName"]) {
            self.enter(uid, Guest::new(pod, node, amounts()));
        } else if let Some(node) = on(&pod["status"]["nominatedNodeName"]) {
            self.on.entry(node.clone()).or_default().nominated.insert(uid.to_owned());
            self.nominated.insert(uid.to_owned(), Guest::new(pod, node, amounts()));
        }
    }

    pub(super) fn pod_deleted(&mut self, uid: &str) {
        self.denominate(uid);
        self.leave(uid);
    }

    /// A Pod counts on a node before the watch shows it there, with what the scheduler knows of its claims alone: what others have
    /// published of them counts again with the bound Pod.
    pub(super) fn assume(&mut self, pod: &Value, node: &str, costs: Amounts) {
        let uid = meta::text(pod, "uid");
        self.enter(uid, Guest::new(pod, node.to_owned(), requests(pod).plus(costs)));
        self.assumed.insert(uid.to_owned());
    }

    /// Ends what was assumed of a Pod, unless the watch has confirmed it.
    pub(super) fn forget(&mut self, uid: &str) {
        if self.assumed.contains(uid) {
            self.leave(uid);
        }
    }

    pub(super) fn is_assumed(&self, uid: &str) -> bool {
        self.assumed.contains(uid)
    }

    fn denominate(&mut self, uid: &str) {
        let node = self.nominated.remove(uid).map(|guest| guest.node);
        if let Some(on) = node.and_then(|node| self.on.get_mut(&node)) {
            on.nominated.remove(uid);
        }
    }

    fn enter(&mut self, uid: &str, guest: Guest) {
        self.leave(uid);
        let node = guest.node.clone();
        self.guests.insert(uid.to_owned(), guest);
        self.on.entry(node.clone()).or_default().guests.insert(uid.to_owned());
        self.sum(&node);
    }

    fn leave(&mut self, uid: &str) {
        self.assumed.remove(uid);
        let Some(Guest { node, .. }) = self.guests.remove(uid) else { return };
        if let Some(on) = self.on.get_mut(&node) {
            on.guests.remove(uid);
        }
        self.sum(&node);
    }

    fn sum(&mut self, node: &str) {
        let taken = self.guests(node).map(|(_, guest)| guest.amounts).fold(Amounts::default(), Amounts::plus);
        if let Some(on) = self.on.get_mut(node) {
            on.taken = taken;
        }
    }

    fn guests(&self, node: &str) -> impl Iterator<Item = (&String, &Guest)> {
        let uids = self.on.get(node).into_iter().flat_map(|on| &on.guests);
        uids.filter_map(|uid| Some((uid, self.guests.get(uid)?)))
    }

    /// Returns in words the resource that a node lacks for a Pod, beside the Pods on it and beside nominated
    /// Pods that are at least as important.
    pub(super) fn lacks(&self, node: &str, uid: &str, priority: i64, more: Amounts) -> Option<&'static str> {
        let Some(all) = self.nodes.get(node) else { return Some("No such node") };
        let taken = self.on.get(node).map(|on| on.taken).unwrap_or_default();
        self.held(node, uid, priority).plus(taken).lacking(more, *all)
    }

    /// Returns the amounts of other Pods that are nominated for the node, at least as important, and not on
    /// it yet.
    fn held(&self, node: &str, uid: &str, priority: i64) -> Amounts {
        let others = self.on.get(node).into_iter().flat_map(|on| &on.nominated);
        let others = others.filter(|other| *other != uid && !self.guests.contains_key(*other));
        let held = others.filter_map(|other| self.nominated.get(other));
        held.filter(|guest| guest.priority >= priority)
            .map(|guest| guest.amounts)
            .fold(Amounts::default(), Amounts::plus)
    }

    /// The fewest less important Pods without which a node has room, the least important first. `None` if it has no room without all
    /// of them either.
    pub(super) fn victims(&self, node: &str, uid: &str, priority: i64, more: Amounts) -> Option<Vec<Victim>> {
        let all = self.nodes.get(node)?;
        let mut less: Vec<_> = self.guests(node).filter(|(_, guest)| guest.priority < priority).collect();
        less.sort_by_key(|(_, guest)| guest.priority);
        let kept = self.guests(node).filter(|(_, guest)| guest.priority >= priority);
        let kept = kept.map(|(_, guest)| guest.amounts).fold(self.held(node, uid, priority), Amounts::plus);
        if kept.lacking(more, *all).is_some() {
            return None;
        }
        // The more important ones stay as long as there is room.
        let (mut taken, mut victims) = (kept, Vec::new());
        for (uid, guest) in less.into_iter().rev() {
            if taken.plus(guest.amounts).lacking(more, *all).is_none() {
                taken = taken.plus(guest.amounts);
            } else {
                victims.push(Victim { uid: uid.clone(), name: guest.name.clone() });
            }
        }
        victims.reverse();
        Some(victims)
    }

    /// Whether less important Pods are about to leave a node.
    pub(super) fn is_leaving(&self, node: &str, priority: i64) -> bool {
        self.guests(node).any(|(_, guest)| guest.is_deleting && guest.priority < priority)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, cpu: &str, priority: i64, node: Option<&str>, nominated: Option<&str>) -> Value {
        json!({"metadata": {"name": name, "uid": name}, "spec": {"nodeName": node, "priority": priority,
            "containers": [{"resources": {"requests": {"cpu": cpu}}}]}, "status": {"nominatedNodeName": nominated}})
    }

    fn rooms() -> Rooms {
        let mut rooms = Rooms::default();
        let allocatable = json!({"cpu": "8", "memory": "1Gi", "pods": "10"});
        rooms.node_applied(&json!({"metadata": {"name": "n"}, "status": {"allocatable": allocatable}}));
        rooms
    }

    fn lacks(rooms: &Rooms, cpu: &str, priority: i64) -> Option<&'static str> {
        rooms.lacks("n", "new", priority, requests(&pod("new", cpu, priority, None, None)))
    }

    #[test]
    fn a_nomination_holds_room_against_pods_that_are_not_more_important() {
        let mut rooms = rooms();
        rooms.pod_applied(&pod("gated", "6", 0, None, Some("n")));
        assert_eq!(lacks(&rooms, "4", 0), Some("Insufficient cpu"));
        assert_eq!(lacks(&rooms, "2", 0), None);
        assert_eq!(lacks(&rooms, "4", 1), None);
        rooms.pod_applied(&pod("gated", "6", 0, None, None));
        assert_eq!(lacks(&rooms, "4", 0), None);
    }

    #[test]
    fn what_others_publish_of_a_pod_counts_before_and_after_it_is_assumed() {
        let mut rooms = rooms();
        let entry = json!({"resourceClaimName": "c", "mapping": [{"name": "cpu", "quantity": "5"}]});
        let with_costs = |mut pod: Value| {
            pod["status"]["nodeAllocatableResourceClaimStatuses"] = json!([entry]);
            pod
        };
        let waits = with_costs(pod("gated", "1", 0, None, Some("n")));
        rooms.pod_applied(&waits);
        assert_eq!(lacks(&rooms, "4", 0), Some("Insufficient cpu"));
        rooms.assume(&waits, "n", Amounts::default());
        assert_eq!(lacks(&rooms, "4", 0), None);
        rooms.pod_applied(&with_costs(pod("gated", "1", 0, Some("n"), None)));
        assert_eq!(lacks(&rooms, "4", 0), Some("Insufficient cpu"));
        rooms.forget("gated");
        assert_eq!(lacks(&rooms, "4", 0), Some("Insufficient cpu"), "the watch has confirmed it");
    }

    #[test]
    fn the_least_important_pods_make_room() {
        let mut rooms = rooms();
        for (name, cpu, priority) in [("a", "3", 0), ("b", "3", 1), ("c", "2", 5)] {
            rooms.pod_applied(&pod(name, cpu, priority, Some("n"), None));
        }
        let victims = |cpu: &str, priority: i64| {
            let new = requests(&pod("new", cpu, priority, None, None));
            let victims = rooms.victims("n", "new", priority, new)?;
            Some(victims.into_iter().map(|victim| victim.uid).collect::<Vec<_>>())
        };
        assert_eq!(victims("3", 3).as_deref(), Some(&["a".to_owned()][..]));
        assert_eq!(victims("6", 3).as_deref(), Some(&["a".to_owned(), "b".to_owned()][..]));
        assert_eq!(victims("7", 3), None);
    }
}
