//! From pools to ResourceSlices: what has to be published, and which writes bring it about. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::device::{Device, NodeAllocatable, Pool};

/// The most devices of a slice.
const DEVICES: usize = 128;
/// The same where devices have taints or consume counters.
const COMPLEX_DEVICES: usize = 64;
/// The most sets of counters of a slice.
const COUNTER_SETS: usize = 8;

/// Shape in which the API server reads the amounts that a device takes of its node (KEP-5517).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// `nodeAllocatableResourceMappings`, Kubernetes 1.36.
    Mappings,
    /// `nodeAllocatableResources`, Kubernetes 1.37 and after.
    Resources,
}

/// Publisher of slices.
#[derive(Debug, Clone)]
pub(crate) struct Publisher {
    pub(crate) driver: String,
    pub(crate) node: String,
    /// Uid of the Node: slices end with it.
    pub(crate) node_uid: String,
    pub(crate) shape: Shape,
}

/// A write.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Change {
    Create(Value),
    /// With the resourceVersion and the times of taints that were read, and the spec as it is wanted.
    Update {
        slice: Value,
        wanted: Value,
    },
    /// Name, uid and resourceVersion.
    Delete {
        name: String,
        uid: String,
        version: String,
    },
}

impl Publisher {
    /// The writes that turn the slices that were read into those of `pools`, in their order.
    ///
    /// A pool is changed in place while it keeps its number of slices: its other slices stay valid meanwhile. Otherwise all
    /// of them get the next generation, and what is left over is deleted at last. `sent` is what was sent before.
    pub(crate) fn changes(&self, pools: &[Pool], observed: &[Value], sent: &Sent) -> Vec<Change> {
        let mut changes = Vec::new();
        let mut kept = BTreeSet::new();
        for pool in pools {
            let specs = self.specs(pool);
            let names: Vec<String> = (0..specs.len()).map(|number| self.name(&pool.name, number)).collect();
            let of_pool = observed.iter().filter(|slice| text(slice, "/spec/pool/name") == pool.name);
            let of_pool: BTreeMap<&str, Place> =
                of_pool.map(|slice| (text(slice, "/metadata/name"), Place::of(slice))).collect();
            let newest = of_pool.values().map(|place| place.generation).max();
            // The newest generation was begun for this number of slices: what is missing of it is added. Otherwise a write that
            // is refused would raise the generation again and again.
            let mut of_newest = of_pool.iter().filter(|(_, of)| Some(of.generation) == newest);
            let is_begun = of_newest
                .all(|(name, of)| of.count == specs.len() as u64 && names.iter().any(|known| known == name));
            let generation = newest.filter(|_| is_begun).unwrap_or_else(|| newest.unwrap_or_default() + 1);
            let count = specs.len();
            for (name, mut spec) in names.into_iter().zip(specs) {
                let of = json!({"name": pool.name, "generation": generation, "resourceSliceCount": count});
                spec.insert("pool".to_owned(), of);
                let before = observed.iter().find(|slice| text(slice, "/metadata/name") == name);
                changes.extend(self.change(&name, spec.into(), before, sent));
                kept.insert(name);
            }
        }
        let left_over = observed.iter().filter(|slice| !kept.contains(text(slice, "/metadata/name")));
        changes.extend(left_over.map(deletion));
        changes
    }

    fn change(&self, name: &str, spec: Value, before: Option<&Value>, sent: &Sent) -> Option<Change> {
        match before {
            Some(before)
                if before.get("spec").is_some_and(|stored| sent.is_up_to_date(name, &spec, stored)) =>
            {
                None
            }
            Some(before) => {
                let mut slice = before.clone();
                slice.as_object_mut()?.insert("spec".to_owned(), with_times(spec.clone(), before));
                Some(Change::Update { slice, wanted: spec })
            }
            None => {
                let owner = json!({"apiVersion": "v1", "kind": "Node", "name": self.node, "uid": self.node_uid, "controller": true});
                Some(Change::Create(json!({
                    "apiVersion": "resource.k8s.io/v1",
                    "kind": "ResourceSlice",
                    "metadata": {"name": name, "ownerReferences": [owner]},
                    "spec": spec,
                })))
            }
        }
    }

    /// The name of a slice: the same after a restart, and different for pools whose names differ in what a name may not have.
    fn name(&self, pool: &str, number: usize) -> String {
        let text = [&*self.driver, &*self.node, pool].join("\n");
        // FNV-1a: the same in every version of this program.
        let hash = text
            .bytes()
            .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        let readable: String = format!("{}-{}", self.node, self.driver).chars().take(200).collect();
        format!("{}-{hash:08x}-{number}", readable.trim_end_matches(['.', '-']))
    }

    /// The slices of a pool, without their pool. One without devices is published, too: the pool is known to be empty.
    fn specs(&self, pool: &Pool) -> Vec<Map<String, Value>> {
        let slice = |field: &str, content: Value| {
            let mut spec = Map::new();
            spec.insert("driver".to_owned(), self.driver.clone().into());
            spec.insert("nodeName".to_owned(), self.node.clone().into());
            spec.insert(field.to_owned(), content);
            spec
        };
        let counters = pool.shared_counters.chunks(COUNTER_SETS);
        let counters = counters.map(|sets| slice("sharedCounters", json!(sets)));
        let is_complex = |device: &Device| !device.taints.is_empty() || !device.consumes_counters.is_empty();
        let most = if pool.devices.iter().any(is_complex) { COMPLEX_DEVICES } else { DEVICES };
        let devices = pool.devices.chunks(most).map(|devices| {
            let devices: Vec<Value> = devices.iter().map(|device| self.device(device)).collect();
            slice("devices", devices.into())
        });
        let mut specs: Vec<_> = counters.chain(devices).collect();
        if specs.is_empty() {
            specs.push(slice("devices", json!([])));
        }
        specs
    }

    fn device(&self, device: &Device) -> Value {
        let mut published = json!(device);
        if let Some(published) = published.as_object_mut().filter(|_| !device.node_allocatable.is_empty()) {
            let (field, resources) = match self.shape {
                Shape::Mappings => {
                    ("nodeAllocatableResourceMappings", mapped(&device.node_allocatable, mapping))
                }
                Shape::Resources => ("nodeAllocatableResources", mapped(&device.node_allocatable, resource)),
            };
            published.insert(field.to_owned(), resources);
        }
        published
    }
}

fn mapped(resources: &BTreeMap<String, NodeAllocatable>, shape: fn(&NodeAllocatable) -> Value) -> Value {
    resources.iter().map(|(resource, takes)| (resource.clone(), shape(takes))).collect::<Map<_, _>>().into()
}

fn mapping(takes: &NodeAllocatable) -> Value {
    match takes {
        NodeAllocatable::PerDevice(quantity) => json!({"allocationMultiplier": quantity}),
        NodeAllocatable::PerCapacity { key, multiplier } => {
            json!({"capacityKey": key, "allocationMultiplier": multiplier})
        }
    }
}

fn resource(takes: &NodeAllocatable) -> Value {
    let mapping = match takes {
        NodeAllocatable::PerDevice(quantity) => json!({"deviceMultiplier": quantity}),
        NodeAllocatable::PerCapacity { key, multiplier } => {
            json!({"capacityKey": key, "capacityMultiplier": multiplier})
        }
    };
    json!({"mapping": mapping})
}

fn deletion(slice: &Value) -> Change {
    let owned = |pointer: &str| text(slice, pointer).to_owned();
    Change::Delete {
        name: owned("/metadata/name"),
        uid: owned("/metadata/uid"),
        version: owned("/metadata/resourceVersion"),
    }
}

/// Generation and number of slices of a pool, as one of its slices says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    generation: i64,
    count: u64,
}

impl Place {
    fn of(slice: &Value) -> Self {
        let number = |pointer: &str| slice.pointer(pointer);
        Self {
            generation: number("/spec/pool/generation").and_then(Value::as_i64).unwrap_or_default(),
            count: number("/spec/pool/resourceSliceCount").and_then(Value::as_u64).unwrap_or_default(),
        }
    }
}

/// A text of an object; empty where it is missing.
pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Specs of the slices that were sent, by name, each with the spec that the API server made of it: the API
/// server drops fields while their feature gate is off, adds defaults, and spells quantities in its own way.
#[derive(Debug, Default)]
pub(crate) struct Sent(BTreeMap<String, (Value, Value)>);

impl Sent {
    /// A slice was sent because this spec was wanted, and answered.
    pub(crate) fn answered(&mut self, wanted: Value, answer: &Value) {
        let stored = answer.get("spec").cloned().unwrap_or_default();
        self.0.insert(text(answer, "/metadata/name").to_owned(), (wanted, stored));
    }

    /// Whether what is stored has everything that is wanted, or is what the API server made of just that.
    fn is_up_to_date(&self, name: &str, wanted: &Value, stored: &Value) -> bool {
        let is_answer = self.0.get(name).is_some_and(|(sent, answer)| sent == wanted && answer == stored);
        is_answer || says_as_much(wanted, stored)
    }
}

/// Gives taints that are there already the time at which they were added: an eviction counts from it.
fn with_times(mut spec: Value, before: &Value) -> Value {
    let of = |device: &Value| device.get("taints").and_then(Value::as_array).cloned().unwrap_or_default();
    let known: BTreeMap<&str, Vec<Value>> = before
        .pointer("/spec/devices")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .map(|device| (text(device, "/name"), of(device)))
        .collect();
    let is_same = |one: &Value, other: &Value| {
        ["key", "value", "effect"].iter().all(|field| one.get(field) == other.get(field))
    };
    for device in spec.get_mut("devices").and_then(Value::as_array_mut).into_iter().flatten() {
        let name = text(device, "/name").to_owned();
        for taint in device.get_mut("taints").and_then(Value::as_array_mut).into_iter().flatten() {
            let before = known.get(&*name).into_iter().flatten().find(|known| is_same(known, taint));
            let added = before.and_then(|before| before.get("timeAdded")).cloned();
            if let (Some(taint), Some(added)) = (taint.as_object_mut(), added) {
                taint.insert("timeAdded".to_owned(), added);
            }
        }
    }
    spec
}

/// Whether what is stored has everything that is wanted; the API server may add defaults.
fn says_as_much(wanted: &Value, stored: &Value) -> bool {
    match (wanted, stored) {
        (Value::Object(wanted), Value::Object(stored)) => {
            let is_said = |(field, value): (&String, &Value)| match stored.get(field) {
                Some(there) => says_as_much(value, there),
                None => value.as_array().is_some_and(Vec::is_empty),
            };
            let is_wanted =
                |field: &String| wanted.contains_key(field) || !PUBLISHED.contains(&field.as_str());
            wanted.iter().all(is_said) && stored.keys().all(is_wanted)
        }
        (Value::Array(wanted), Value::Array(stored)) => {
            wanted.len() == stored.len()
                && wanted.iter().zip(stored).all(|(wanted, there)| says_as_much(wanted, there))
        }
        (wanted, stored) => wanted == stored,
    }
}

/// Fields that this kit writes. One that is stored and not wanted is a change.
const PUBLISHED: [&str; 10] = [
    "devices",
    "sharedCounters",
    "attributes",
    "capacity",
    "taints",
    "consumesCounters",
    "allowMultipleAllocations",
    "requestPolicy",
    "nodeAllocatableResourceMappings",
    "nodeAllocatableResources",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Attribute, Capacity, CounterSet, Taint};

    fn publisher(shape: Shape) -> Publisher {
        let text = |text: &str| text.to_owned();
        Publisher { driver: text("gpu.example.com"), node: text("n"), node_uid: text("u"), shape }
    }

    fn pool(devices: usize) -> Pool {
        let device = |number| Device {
            name: format!("d-{number}"),
            attributes: [("model".to_owned(), Attribute::String("a".to_owned()))].into(),
            ..Device::default()
        };
        Pool { name: "n".to_owned(), devices: (0..devices).map(device).collect(), ..Pool::default() }
    }

    /// Publishes pools on an API server that has these slices; returns the number of writes.
    fn publish(ours: &Publisher, pools: &[Pool], slices: &mut Vec<Value>) -> usize {
        let changes = ours.changes(pools, slices, &Sent::default());
        apply(slices, changes)
    }

    /// Makes the writes, as an API server does.
    fn apply(slices: &mut Vec<Value>, changes: Vec<Change>) -> usize {
        let count = changes.len();
        for change in changes {
            match change {
                Change::Create(mut slice) => {
                    slice["metadata"]["uid"] = json!("u");
                    slice["metadata"]["resourceVersion"] = json!("1");
                    slices.push(slice);
                }
                Change::Update { slice, .. } => {
                    let name = slice["metadata"]["name"].clone();
                    let old = slices.iter_mut().find(|old| old["metadata"]["name"] == name).expect("a slice");
                    *old = slice;
                }
                Change::Delete { name, .. } => slices.retain(|slice| slice["metadata"]["name"] != *name),
            }
        }
        count
    }

    fn generations(slices: &[Value]) -> Vec<i64> {
        slices.iter().filter_map(|slice| slice["spec"]["pool"]["generation"].as_i64()).collect()
    }

    #[test]
    fn what_is_published_is_not_written_again() {
        let ours = publisher(Shape::Resources);
        let mut slices = Vec::new();
        assert_eq!(publish(&ours, &[pool(300)], &mut slices), 3);
        assert_eq!(publish(&ours, &[pool(300)], &mut slices), 0);
        assert_eq!(slices[2]["spec"]["devices"].as_array().map(Vec::len), Some(44));
        assert_eq!(slices[0]["metadata"]["ownerReferences"][0]["uid"], "u");
    }

    /// One device changes: its slice is written, and no pool is incomplete at any time.
    #[test]
    fn a_change_that_keeps_the_number_of_slices_keeps_the_generation() {
        let ours = publisher(Shape::Resources);
        let (mut slices, mut changed) = (Vec::new(), pool(300));
        publish(&ours, std::slice::from_ref(&changed), &mut slices);
        changed.devices[200].capacity.insert("memory".to_owned(), Capacity::of("1Gi"));
        let writes = ours.changes(std::slice::from_ref(&changed), &slices, &Sent::default());
        assert!(
            matches!(&writes[..], [Change::Update { slice, .. }] if slice["metadata"]["resourceVersion"] == "1")
        );
        apply(&mut slices, writes);
        assert_eq!(generations(&slices), [1, 1, 1]);
        changed.devices[200].capacity.clear();
        assert_eq!(
            ours.changes(&[changed], &slices, &Sent::default()).len(),
            1,
            "what is taken away is a change"
        );
    }

    #[test]
    fn a_pool_that_grows_or_shrinks_gets_the_next_generation() {
        let ours = publisher(Shape::Resources);
        let mut slices = Vec::new();
        publish(&ours, &[pool(100)], &mut slices);
        publish(&ours, &[pool(200)], &mut slices);
        assert_eq!(generations(&slices), [2, 2]);
        let changes = ours.changes(&[pool(10)], &slices, &Sent::default());
        assert!(matches!(changes.last(), Some(Change::Delete { .. })), "the rest goes last");
        apply(&mut slices, changes);
        assert_eq!(generations(&slices), [3]);
        publish(&ours, &[], &mut slices);
        assert!(slices.is_empty(), "a pool that is gone takes its slices with it");
    }

    /// The process died between two writes, or a person deleted a slice.
    #[test]
    fn a_pool_that_is_half_published_is_made_whole() {
        let ours = publisher(Shape::Resources);
        for lost in 0..3 {
            let mut slices = Vec::new();
            publish(&ours, &[pool(300)], &mut slices);
            slices.remove(lost);
            publish(&ours, &[pool(300)], &mut slices);
            assert_eq!((slices.len(), generations(&slices)), (3, vec![1, 1, 1]));
            assert!(ours.changes(&[pool(300)], &slices, &Sent::default()).is_empty());
        }
    }

    /// The API server refuses one of several writes, for a quota or because it is overloaded.
    #[test]
    fn a_write_that_is_refused_does_not_raise_the_generation_again() {
        let ours = publisher(Shape::Resources);
        let mut slices = Vec::new();
        publish(&ours, &[pool(200)], &mut slices);
        for _ in 0..3 {
            let mut changes = ours.changes(&[pool(300)], &slices, &Sent::default());
            changes.truncate(1);
            apply(&mut slices, changes);
        }
        publish(&ours, &[pool(300)], &mut slices);
        assert_eq!(generations(&slices), [2, 2, 2]);
    }

    #[test]
    fn a_taint_that_stays_keeps_its_time() {
        let ours = publisher(Shape::Resources);
        let (mut slices, mut broken) = (Vec::new(), pool(2));
        broken.devices[0].taints =
            vec![Taint { key: "k".to_owned(), effect: "NoExecute".to_owned(), ..Taint::default() }];
        publish(&ours, std::slice::from_ref(&broken), &mut slices);
        slices[0]["spec"]["devices"][0]["taints"][0]["timeAdded"] = json!("2026-01-01T00:00:00Z");
        broken.devices[1].taints = broken.devices[0].taints.clone();
        publish(&ours, &[broken], &mut slices);
        let added = |device: usize| &slices[0]["spec"]["devices"][device]["taints"][0]["timeAdded"];
        assert_eq!((added(0), added(1)), (&json!("2026-01-01T00:00:00Z"), &Value::Null));
    }

    #[test]
    fn what_an_api_server_drops_or_adds_is_no_change() {
        let ours = publisher(Shape::Resources);
        let mut shared = pool(1);
        shared.devices[0].allow_multiple_allocations = true;
        shared.devices[0]
            .node_allocatable
            .insert("cpu".to_owned(), NodeAllocatable::PerDevice("2".to_owned()));
        let mut slices = Vec::new();
        publish(&ours, std::slice::from_ref(&shared), &mut slices);
        let wanted = slices[0]["spec"].clone();
        let stored = slices[0]["spec"]["devices"][0].as_object_mut().expect("a device");
        stored.insert("bindsToNode".to_owned(), json!(false));
        assert!(ours.changes(std::slice::from_ref(&shared), &slices, &Sent::default()).is_empty());
        let stored = slices[0]["spec"]["devices"][0].as_object_mut().expect("a device");
        stored.remove("nodeAllocatableResources");
        stored.remove("allowMultipleAllocations");
        let mut sent = Sent::default();
        // It may never have been sent: the driver is another one than before, or the gate is on now.
        assert_eq!(ours.changes(std::slice::from_ref(&shared), &slices, &sent).len(), 1);
        sent.answered(wanted, &slices[0]);
        assert!(ours.changes(std::slice::from_ref(&shared), &slices, &sent).is_empty());
        shared.devices[0]
            .node_allocatable
            .insert("cpu".to_owned(), NodeAllocatable::PerDevice("3".to_owned()));
        assert_eq!(ours.changes(&[shared], &slices, &sent).len(), 1, "another amount is sent");
    }

    #[test]
    fn counters_taints_and_the_node_have_their_fields() {
        let mut complex = pool(65);
        complex.shared_counters = vec![CounterSet::default(); 9];
        complex.devices[0].taints =
            vec![Taint { key: "k".to_owned(), effect: "NoSchedule".to_owned(), ..Taint::default() }];
        let cpu = NodeAllocatable::PerCapacity { key: "cores".to_owned(), multiplier: "1".to_owned() };
        complex.devices[0].node_allocatable.insert("cpu".to_owned(), cpu);
        let specs = publisher(Shape::Resources).specs(&complex);
        assert_eq!(specs.len(), 4, "two slices of counters, two of devices");
        assert!(specs[0].contains_key("sharedCounters") && !specs[0].contains_key("devices"));
        let device = &specs[2]["devices"][0];
        assert_eq!(device["nodeAllocatableResources"]["cpu"]["mapping"]["capacityMultiplier"], "1");
        let older = publisher(Shape::Mappings).specs(&complex);
        assert_eq!(older[2]["devices"][0]["nodeAllocatableResourceMappings"]["cpu"]["capacityKey"], "cores");
        assert_eq!(device["taints"][0]["effect"], "NoSchedule");
        assert_ne!(publisher(Shape::Resources).name("a/b", 0), publisher(Shape::Resources).name("a.b", 0));
    }
}
