//! The objects of a dump, on their way into the accounts of a cluster.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use anyhow::{bail, ensure};
use dragoman_accounting::cluster::{self, Cluster};
use dragoman_accounting::pod::PodSpecView;
use dragoman_accounting::unaccounted::Unaccounted;
use dragoman_crds::device_footprint::DeviceFootprint;
use dragoman_crds::wire::{Node, Pod, ResourceClaim, ResourceSlice};
use dragoman_reconcilers::cluster::footprint;
use dragoman_reconcilers::placement::{Placement, Site};
use serde::Deserialize as _;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::devices::Devices;
use crate::manifests::Found;

/// The kinds that cost a node something, say what it has, or say which devices a claim may get.
const KINDS: [&str; 7] =
    ["Node", "Pod", "ResourceClaim", "ResourceSlice", "DeviceFootprint", "DeviceClass", "DeviceTaintRule"];
/// The objects that a note names; the others are counted.
const NAMED: usize = 3;

/// Kind, namespace and name of an object.
type Key = (String, String, String);

/// The objects of a dump, each once.
#[derive(Default)]
pub(super) struct Objects {
    objects: BTreeMap<Key, Value>,
    /// Objects of which the dump has several versions.
    twice: BTreeSet<String>,
}

/// The cluster of a dump, as far as it could be read.
#[derive(Default)]
pub(super) struct Dump {
    pub(super) cluster: Cluster,
    /// Objects that do not decode, each with the reason.
    pub(super) unreadable: Vec<String>,
    /// What is missing in the dump or stands there twice, for its reader.
    pub(super) notes: Vec<String>,
    /// What a scheduler looks at besides amounts: nodes by name, and Pods by what messages call them.
    pub(super) sites: BTreeMap<String, Site>,
    pub(super) placements: BTreeMap<String, Placement>,
    /// The devices, where a waiting Pod has a claim without any.
    pub(super) devices: Option<Devices>,
}

impl Objects {
    /// Takes in an object; one of a kind that costs no node anything is left out. Of two versions of an
    /// object the one of the higher resourceVersion counts, or the later one where that decides nothing.
    ///
    /// # Errors
    /// It is no Kubernetes object: nothing may vanish without a word.
    pub(super) fn take(&mut self, Found { place, object }: Found) -> anyhow::Result<()> {
        let kind = text(&object, "/kind").to_owned();
        ensure!(
            !kind.is_empty() && object.is_object(),
            "{place}: it is no Kubernetes object: it has no kind (print dumps with -o yaml or -o json)"
        );
        if ["Table", "Status"].contains(&&*kind) {
            bail!("{place}: it is a {kind} and no object of a cluster (print dumps with -o yaml or -o json)");
        }
        if !KINDS.contains(&&*kind) {
            return Ok(());
        }
        let name = text(&object, "/metadata/name").to_owned();
        ensure!(!name.is_empty(), "{place}: a {kind} without metadata.name");
        let key = (kind, text(&object, "/metadata/namespace").to_owned(), name);
        match self.objects.entry(key) {
            Entry::Vacant(entry) => drop(entry.insert(object)),
            Entry::Occupied(mut entry) if *entry.get() != object => {
                self.twice.insert(in_words(entry.key()));
                if version(&object) >= version(entry.get()) {
                    entry.insert(object);
                }
            }
            Entry::Occupied(_) => {}
        }
        Ok(())
    }

    /// Whether there is nothing to account for.
    pub(super) fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Reads the objects.
    pub(super) fn read(mut self) -> Dump {
        let mut dump = Dump::default();
        dump.note(
            "in several versions, of which the one of the highest resourceVersion counts, or the last",
            self.twice.clone(),
        );
        dump.note("without a uid of their own, so that namespace and name tell them apart", self.give_uids());
        dump.note(
            "reserved for a Pod that is not in the dump, so that it is gone or was not printed",
            self.held_from_outside(),
        );
        if self.has_unallocated() {
            match Devices::of(self.scenario()) {
                Ok(devices) => dump.devices = devices,
                Err(why) => dump.notes.push(format!("devices were not looked at: {why}")),
            }
        }
        // Nodes come before Pods.
        for (key, object) in self.objects {
            dump.place(&key, &object);
            dump.read(&key, object);
        }
        dump
    }

    /// Whether a claim has no devices yet.
    fn has_unallocated(&self) -> bool {
        let mut claims = self.objects.iter().filter(|(key, _)| key.0 == "ResourceClaim");
        claims.any(|(_, claim)| claim.pointer("/status/allocation").is_none_or(Value::is_null))
    }

    /// The objects that decide which devices a claim may get.
    fn scenario(&self) -> Value {
        let lists = [
            ("nodes", "Node"),
            ("resourceSlices", "ResourceSlice"),
            ("deviceClasses", "DeviceClass"),
            ("resourceClaims", "ResourceClaim"),
            ("deviceTaintRules", "DeviceTaintRule"),
        ];
        let of_kind = |kind: &str| {
            let objects = self.objects.iter().filter(|(key, _)| key.0 == kind);
            objects.map(|(_, object)| object.clone()).collect::<Value>()
        };
        lists.into_iter().map(|(list, kind)| (list.to_owned(), of_kind(kind))).collect()
    }

    /// Gives Pods and claims a uid that share theirs or have none, as in dumps that were cleaned or
    /// edited; one of them would count for all. Returns these objects.
    fn give_uids(&mut self) -> BTreeSet<String> {
        let mut alike: BTreeMap<(&str, &str), Vec<&Key>> = BTreeMap::new();
        let are_known_by_it = |(key, _): &(&Key, &Value)| ["Pod", "ResourceClaim"].contains(&&*key.0);
        for (key, object) in self.objects.iter().filter(are_known_by_it) {
            alike.entry((&key.0, text(object, "/metadata/uid"))).or_default().push(key);
        }
        let alike = alike.into_iter().filter(|((_, uid), keys)| uid.is_empty() || keys.len() > 1);
        let alike: Vec<Key> = alike.flat_map(|(_, keys)| keys).cloned().collect();
        if !alike.is_empty() {
            // All get one, so that none can be like a uid of the dump.
            for (key, object) in &mut self.objects {
                if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
                    metadata.insert("uid".to_owned(), in_words(key).into());
                }
            }
        }
        alike.iter().map(in_words).collect()
    }

    /// The claims that are reserved for Pods which the dump does not have.
    fn held_from_outside(&self) -> BTreeSet<String> {
        let is_here = |namespace: &str, name: &str| {
            self.objects.contains_key(&("Pod".to_owned(), namespace.to_owned(), name.to_owned()))
        };
        let claims = self.objects.iter().filter(|(key, claim)| {
            let consumers = claim.pointer("/status/reservedFor").and_then(Value::as_array);
            let mut pods =
                consumers.into_iter().flatten().filter(|consumer| text(consumer, "/resource") == "pods");
            key.0 == "ResourceClaim" && pods.any(|pod| !is_here(&key.1, text(pod, "/name")))
        });
        claims.map(|(key, _)| in_words(key)).collect()
    }
}

impl Dump {
    /// Notes what is true of some objects.
    fn note(&mut self, what: &str, objects: BTreeSet<String>) {
        let others = objects.len().saturating_sub(NAMED);
        let others = if others == 0 { String::new() } else { format!(" and {others} more") };
        let named: Vec<String> = objects.into_iter().take(NAMED).collect();
        if !named.is_empty() {
            self.notes.push(format!("{}{others}: {what}", named.join(", ")));
        }
    }

    /// Takes in what an object says about where Pods may run. One that does not decode is reported when
    /// it is read.
    fn place(&mut self, key: &Key, object: &Value) {
        match &*key.0 {
            "Node" => {
                let site = Site::deserialize(object).unwrap_or_default();
                self.sites.insert(key.2.clone(), site);
            }
            "Pod" if !["Succeeded", "Failed"].contains(&text(object, "/status/phase")) => {
                let placement = Placement::deserialize(object).unwrap_or_default();
                let node = text(object, "/spec/nodeName");
                match self.sites.get_mut(node) {
                    Some(site) => site.add(&placement),
                    None => drop(self.placements.insert(in_words(key), placement)),
                }
            }
            _ => {}
        }
    }

    /// Reads an object. One that does not decode costs something that is unknown.
    fn read(&mut self, key: &Key, object: Value) {
        let (kind, name) = (key.0.as_str(), in_words(key));
        let node = text(&object, "/spec/nodeName").to_owned();
        let taken = match kind {
            "Node" => read::<Node>(object).map(|read| self.cluster.nodes.push(read.accounted())),
            "Pod" => read::<Pod>(object).map(|read| self.cluster.pods.push(read.accounted())),
            "ResourceClaim" => read::<ResourceClaim>(object)
                .and_then(|read| read.accounted().map_err(String::from))
                .map(|read| self.cluster.claims.push(read)),
            "ResourceSlice" => {
                read::<ResourceSlice>(object).map(|read| self.cluster.slices.push(read.accounted()))
            }
            "DeviceFootprint" => {
                read::<DeviceFootprint>(object).and_then(|read| footprint(&read)).map(|(read, refused)| {
                    self.unreadable.extend(refused.map(|why| format!("{name}: {why}")));
                    self.cluster.footprints.push(read);
                })
            }
            _ => Ok(()),
        };
        if let Err(why) = taken {
            self.unread(kind, &name, node, &why);
        }
    }

    /// Counts an object that does not decode as an unknown cost.
    fn unread(&mut self, kind: &str, name: &str, node: String, why: &str) {
        let unread = Unaccounted { object: name.into(), field: "".into(), resource: None, why: why.into() };
        match kind {
            "Pod" if !node.is_empty() => self.cluster.pods.push(unreadable(name, node, unread)),
            // It may cost any node something, or the one it names.
            "ResourceSlice" if !node.is_empty() => self.cluster.unread.push((Some(node.into()), unread)),
            "ResourceSlice" | "DeviceFootprint" | "ResourceClaim" => {
                self.cluster.unread.push((None, unread));
            }
            // A Node that is not listed is unknown, and so are Pods whose claim is not.
            _ => {}
        }
        self.unreadable.push(format!("{name}: {why}"));
    }
}

fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    object.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

/// `KIND NAMESPACE/NAME`, or `KIND NAME` where there is no namespace.
fn in_words((kind, namespace, name): &Key) -> String {
    if namespace.is_empty() { format!("{kind} {name}") } else { format!("{kind} {namespace}/{name}") }
}

/// Orders versions of an object. A resourceVersion that is no number is below all others.
fn version(object: &Value) -> Option<u128> {
    text(object, "/metadata/resourceVersion").parse().ok()
}

fn read<T: DeserializeOwned>(object: Value) -> Result<T, String> {
    serde_json::from_value(object).map_err(|why| why.to_string())
}

/// A Pod that takes an unknown amount from its node.
fn unreadable(name: &str, node: String, unaccounted: Unaccounted) -> cluster::Pod {
    let view = PodSpecView { uid: name.into(), ..PodSpecView::default() };
    cluster::Pod { view, node: Some(node.into()), unaccounted: vec![unaccounted], ..cluster::Pod::default() }
}
