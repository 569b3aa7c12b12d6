//! The objects of a dump, each once. What no question is about is not kept.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use anyhow::{bail, ensure};
use dragoman_accounting::cluster;
use dragoman_allocator::input;
use dragoman_cluster::footprint;
use dragoman_cluster::placement::{NodeView, PodKind, SchedulingConstraints};
use dragoman_crds::device_footprint::DeviceFootprint;
use dragoman_objects::{Name, Node, Pod, ResourceClaim, ResourceSlice};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::manifests::Found;

/// Kind, namespace and name of an object.
type Key = (&'static str, Name, Name);

/// Selection of the objects and texts to keep.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Keep {
    /// Everything that any question of a report needs.
    #[default]
    Everything,
    /// Only the facts that ledgers need: no device is chosen for a Pod that waits. A large cluster takes a
    /// tenth of the memory.
    Ledgers,
}

/// The objects of a dump.
#[derive(Default)]
pub struct Objects {
    keep: Keep,
    all: BTreeMap<Key, Versioned>,
    /// Objects of which the dump has several versions.
    pub(crate) twice: BTreeSet<String>,
}

/// An object, and its resourceVersion.
struct Versioned {
    version: Option<u128>,
    object: Object,
}

/// A Pod.
#[derive(PartialEq)]
pub(crate) struct ReadPod {
    pub(crate) pod: cluster::Pod,
    /// The requirements on nodes, where they count.
    pub(crate) placement: Option<Box<SchedulingConstraints>>,
    /// The Pod as others see it.
    pub(crate) kind: PodKind,
    /// The extended resources for which it has no claim yet.
    pub(crate) extended: Vec<Name>,
}

/// An object that costs a node something, says what it has, or says which devices a claim may get.
#[derive(PartialEq)]
pub(crate) enum Object {
    Node(Box<(cluster::Node, NodeView, input::Node)>),
    Pod(Box<ReadPod>),
    Claim(Claim),
    Slice(cluster::Slice, Text),
    /// With the reason why its selector is refused.
    Footprint(cluster::DeviceFootprint, Option<String>),
    Class(Text),
    TaintRule(Text),
    Unreadable {
        node: Option<Name>,
        why: String,
    },
}

impl Object {
    /// Drops what only an allocator reads.
    fn forget_text(&mut self) {
        match self {
            Self::Claim(Claim { text, .. })
            | Self::Slice(_, text)
            | Self::Class(text)
            | Self::TaintRule(text) => {
                text.0 = Box::default();
            }
            Self::Node(_) | Self::Pod(_) | Self::Footprint(..) | Self::Unreadable { .. } => {}
        }
    }
}

/// A claim, and the Pods that it is reserved for.
#[derive(PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) accounted: cluster::Claim,
    pub(crate) pods: Vec<Name>,
    pub(crate) text: Text,
}

/// The whole object, for the allocator: only a few dumps have a question for it. In JSON without blanks,
/// so that formats make no difference.
#[derive(PartialEq, Eq)]
pub(crate) struct Text(pub(crate) Box<str>);

impl Text {
    fn of(text: &[u8]) -> Self {
        let mut object: Value = serde_json::from_slice(text).unwrap_or_default();
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        Self(object.to_string().into())
    }
}

impl Objects {
    /// No objects yet.
    pub fn new(keep: Keep) -> Self {
        Self { keep, ..Self::default() }
    }

    /// Takes in an object; one of a kind that costs no node anything is left out. Of two versions of an
    /// object the one of the higher resourceVersion counts, or the later one where that decides nothing.
    ///
    /// # Errors
    /// It is no Kubernetes object: nothing may vanish without a word.
    pub fn take(&mut self, found: Found) -> anyhow::Result<()> {
        let Found { place, head, .. } = &found;
        let kind = head.kind.as_deref().unwrap_or_default();
        ensure!(
            !kind.is_empty(),
            "{place}: it is no Kubernetes object: it has no kind (print dumps with -o yaml or -o json)"
        );
        if ["Table", "Status"].contains(&kind) {
            bail!("{place}: it is a {kind} and no object of a cluster (print dumps with -o yaml or -o json)");
        }
        let Some((kind, read)) = KINDS.into_iter().find(|(known, _)| *known == kind) else { return Ok(()) };
        if !head.is_of_its_group() {
            return Ok(());
        }
        let metadata = head.metadata.clone().unwrap_or_default();
        let name = metadata.name.unwrap_or_default();
        ensure!(!name.is_empty(), "{place}: a {kind} without metadata.name");
        let version = metadata.resource_version.and_then(|version| version.parse().ok());
        let key = (kind, metadata.namespace.unwrap_or_default(), name);
        let mut object = read(found.text).unwrap_or_else(|(node, why)| Object::Unreadable { node, why });
        if self.keep == Keep::Ledgers {
            object.forget_text();
        }
        match self.all.entry(key) {
            Entry::Vacant(entry) => drop(entry.insert(Versioned { version, object })),
            Entry::Occupied(mut entry) if entry.get().object != object => {
                self.twice.insert(in_words(entry.key()));
                // A resourceVersion that is no number is below all others.
                if version >= entry.get().version {
                    entry.insert(Versioned { version, object });
                }
            }
            Entry::Occupied(_) => {}
        }
        Ok(())
    }

    /// Whether there is nothing to account for.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The objects, with what messages call them. Nodes come before Pods.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (String, &Object)> {
        self.all.iter().map(|(key, versioned)| (in_words(key), &versioned.object))
    }

    /// Takes the Pods out.
    pub(crate) fn pods(&mut self) -> Self {
        let first = |kind| (kind, Name::default(), Name::default());
        let mut pods = self.all.split_off(&first("Pod"));
        // No namespace comes before the empty one.
        self.all.append(&mut pods.split_off(&first("ResourceClaim")));
        Self { all: pods, ..Self::default() }
    }

    /// The objects, given away one by one.
    pub(crate) fn into_iter(self) -> impl Iterator<Item = (Key, String, Object)> {
        self.all.into_iter().map(|(key, versioned)| {
            let name = in_words(&key);
            (key, name, versioned.object)
        })
    }

    /// Gives Pods and claims a uid that share theirs or have none, as in dumps that were cleaned or
    /// edited; one of them would count for all. Returns these objects.
    pub(crate) fn give_uids(&mut self) -> BTreeSet<String> {
        let mut alike: BTreeMap<(&str, &str), Vec<&Key>> = BTreeMap::new();
        for (key, Versioned { object, .. }) in &self.all {
            if let Some(uid) = uid(object) {
                alike.entry((key.0, uid)).or_default().push(key);
            }
        }
        let alike = alike.into_iter().filter(|((_, uid), keys)| uid.is_empty() || keys.len() > 1);
        let alike: BTreeSet<String> = alike.flat_map(|(_, keys)| keys).map(in_words).collect();
        if !alike.is_empty() {
            // All get one, so that none can be like a uid of the dump.
            for (key, Versioned { object, .. }) in &mut self.all {
                match object {
                    Object::Pod(pod) => pod.pod.view.uid = in_words(key).into(),
                    Object::Claim(Claim { accounted: claim, .. }) => claim.uid = in_words(key).into(),
                    _ => {}
                }
            }
        }
        alike
    }

    /// The claims that are reserved for Pods which the dump does not have.
    pub(crate) fn held_from_outside(&self) -> BTreeSet<String> {
        let claims = self.all.iter().filter(|((_, namespace, _), Versioned { object, .. })| {
            let is_here = |name: &str| self.all.contains_key(&("Pod", namespace.clone(), name.into()));
            matches!(object, Object::Claim(claim) if !claim.pods.iter().all(|name| is_here(name)))
        });
        claims.map(|(key, _)| in_words(key)).collect()
    }

    /// Whether devices may be asked for: a claim has none yet, and the texts are kept.
    pub(crate) fn has_unallocated(&self) -> bool {
        if self.keep == Keep::Ledgers {
            return false;
        }
        let mut objects = self.all.values();
        objects.any(|of| matches!(&of.object, Object::Claim(Claim { accounted: claim, .. }) if claim.results.is_none()))
    }
}

/// `KIND NAMESPACE/NAME`, or `KIND NAME` where there is no namespace.
fn in_words((kind, namespace, name): &Key) -> String {
    if namespace.is_empty() { format!("{kind} {name}") } else { format!("{kind} {namespace}/{name}") }
}

fn uid(object: &Object) -> Option<&str> {
    match object {
        Object::Pod(pod) => Some(&pod.pod.view.uid),
        Object::Claim(Claim { accounted: claim, .. }) => Some(&claim.uid),
        _ => None,
    }
}

/// Reads an object; the error is the node that it is about, and the reason why it does not decode.
type Read = fn(Box<[u8]>) -> Result<Object, (Option<Name>, String)>;

/// The kinds that count.
const KINDS: [(&str, Read); 7] = [
    ("Node", |text| {
        let node = &decoded::<Node>(&text)?;
        Ok(Object::Node(Box::new((node.into(), node.into(), node.into()))))
    }),
    ("Pod", |text| {
        let mut read = decoded::<Pod>(&text)?;
        read.complete_requests();
        let read = &read;
        let (pod, placement) = (cluster::Pod::from(read), SchedulingConstraints::from(read));
        // A Pod that has ended runs nowhere. Of one that has a node only what it takes counts.
        let counts = !pod.done && (pod.node.is_none() || !placement.takes().is_nothing());
        let has_claim = read.status.extended_resource_claim_status.is_some();
        let extended = if has_claim { Vec::new() } else { read.extended_resources().into_keys().collect() };
        let (placement, kind) = (counts.then(|| Box::new(placement)), PodKind::of(read));
        Ok(Object::Pod(Box::new(ReadPod { pod, placement, kind, extended })))
    }),
    ("ResourceClaim", |text| {
        let read = decoded::<ResourceClaim>(&text)?;
        let pods = read.status.reserved_for.iter().filter(|consumer| &*consumer.resource == "pods");
        let pods = pods.map(|pod| (*pod.name).into()).collect();
        read.decoded_allocation().map_err(|why| (None, why.to_string()))?;
        Ok(Object::Claim(Claim { accounted: (&read).into(), pods, text: Text::of(&text) }))
    }),
    ("ResourceSlice", |text| Ok(Object::Slice((&decoded::<ResourceSlice>(&text)?).into(), Text::of(&text)))),
    ("DeviceFootprint", |text| {
        let (read, refused) = footprint(&decoded::<DeviceFootprint>(&text)?).map_err(|why| (None, why))?;
        Ok(Object::Footprint(read, refused))
    }),
    ("DeviceClass", |text| Ok(Object::Class(Text::of(&text)))),
    ("DeviceTaintRule", |text| Ok(Object::TaintRule(Text::of(&text)))),
];

fn decoded<T: DeserializeOwned>(text: &[u8]) -> Result<T, (Option<Name>, String)> {
    serde_json::from_slice(text).map_err(|why| (node_of(text), why.to_string()))
}

/// `spec.nodeName` of an object of which other fields do not decode.
fn node_of(text: &[u8]) -> Option<Name> {
    #[derive(Deserialize)]
    struct Placed {
        spec: Spec,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Spec {
        node_name: Option<Name>,
    }
    serde_json::from_slice::<Placed>(text).ok()?.spec.node_name.filter(|node| !node.is_empty())
}
