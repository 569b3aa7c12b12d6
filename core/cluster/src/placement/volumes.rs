//! Nodes that can use the volumes of a Pod. The rules are those of the plugins `VolumeBinding` and `VolumeZone` of
//! kube-scheduler. Limits of a node on the number of volumes, volumes for a single Pod (`ReadWriteOncePod`) and the
//! capacity that a storage driver has left are not looked at.

use std::sync::Arc;

use dragoman_objects::{
    LabelSelector, Labels, Name, NodeSelector, PersistentVolume, PersistentVolumeClaim, Pod, ResourceList,
    StorageClass, TopologySelectorTerm, has_storage,
};

use super::{NodeView, UnmetConstraint};

/// Volumes of a Pod up to which they are looked at. Nothing else bounds their number.
const MOST_VOLUMES: usize = 64;
/// The provisioner of classes whose volumes people make.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";
/// Labels of a node, and of volumes, that name zone and region. A volume may name several, joined by `__`.
const ZONES: [&str; 4] = [
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
];

/// A `PersistentVolumeClaim` that a Pod names.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct VolumeUse {
    claim: Name,
    /// Whether the claim is made for the Pod, which owns it (`ephemeral`).
    is_own: bool,
}

/// Projection of a `PersistentVolumeClaim`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeClaimFacts {
    deleting: bool,
    /// The uid of its controller.
    owner: Option<Name>,
    /// The volume that it is bound to.
    volume: Option<Name>,
    /// The requirements on a volume, while it is not bound.
    asks: Option<Box<Asks>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Asks {
    class: Name,
    modes: Vec<Name>,
    volume_mode: Name,
    storage: ResourceList,
    selector: Option<LabelSelector>,
}

/// Projection of a `PersistentVolume`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeFacts {
    affinity: Option<NodeSelector>,
    /// The values of its labels of [`ZONES`].
    zones: Box<[(Name, Box<[Name]>)]>,
    /// The properties that a claim may ask for, while no claim has it.
    gives: Option<Box<Gives>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Gives {
    class: Name,
    modes: Vec<Name>,
    volume_mode: Name,
    storage: ResourceList,
    labels: Labels,
}

/// Projection of a `StorageClass`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageClassFacts {
    waits_for_pod: bool,
    makes_volumes: bool,
    topologies: Vec<TopologySelectorTerm>,
}

/// The volumes of a cluster.
pub trait Storage {
    /// A claim by namespace and name.
    fn claim(&self, namespace: &str, name: &str) -> Option<&VolumeClaimFacts>;
    /// A volume by name.
    fn volume(&self, name: &str) -> Option<&VolumeFacts>;
    /// A class by name.
    fn class(&self, name: &str) -> Option<&StorageClassFacts>;
    /// All volumes.
    fn volumes(&self) -> Box<dyn Iterator<Item = &VolumeFacts> + '_>;
}

/// Nodes that can use a volume.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Reach {
    /// None, for this reason.
    Nowhere(Name),
    /// Those that its volume is for.
    Volume { affinity: Option<NodeSelector>, zones: Box<[(Name, Box<[Name]>)]> },
    /// Those that one of these volumes is for, or that the class makes one for.
    Any { volumes: Vec<Option<NodeSelector>>, made_in: Option<Vec<TopologySelectorTerm>> },
}

/// Nodes that can use the volumes of a Pod, by the claims for them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct VolumeReach(Vec<(Name, Reach)>);

/// The claims that a Pod names; `None` where they are too many or cannot be read.
pub(super) fn of(pod: &Pod) -> Option<Box<[VolumeUse]>> {
    if pod.spec.volumes.is_unreadable() {
        return None;
    }
    let uses = pod.spec.volumes.items().iter().filter_map(|volume| match &volume.persistent_volume_claim {
        Some(source) => Some(VolumeUse { claim: source.claim_name.clone(), is_own: false }),
        None if volume.ephemeral => {
            let claim = format!("{}-{}", pod.metadata.name, volume.name).into();
            Some(VolumeUse { claim, is_own: true })
        }
        None => None,
    });
    let uses: Box<[VolumeUse]> = uses.take(MOST_VOLUMES + 1).collect();
    (uses.len() <= MOST_VOLUMES).then_some(uses)
}

/// `volumeMode`, as the API server completes it.
fn mode(of: &Name) -> Name {
    if of.is_empty() { "Filesystem".into() } else { of.clone() }
}

impl From<&PersistentVolumeClaim> for VolumeClaimFacts {
    fn from(claim: &PersistentVolumeClaim) -> Self {
        let (meta, spec) = (&claim.metadata, &claim.spec);
        let is_bound = &*claim.status.phase == "Bound" && !spec.volume_name.is_empty();
        let asks = || Asks {
            class: spec.storage_class_name.clone(),
            modes: spec.access_modes.clone(),
            volume_mode: mode(&spec.volume_mode),
            storage: spec.resources.requests.clone(),
            selector: spec.selector.clone(),
        };
        Self {
            deleting: meta.deleting,
            owner: meta.controller.as_ref().map(|owner| owner.uid.clone()),
            volume: is_bound.then(|| spec.volume_name.clone()),
            asks: (!is_bound).then(|| Box::new(asks())),
        }
    }
}

impl From<&PersistentVolume> for VolumeFacts {
    fn from(volume: &PersistentVolume) -> Self {
        let (meta, spec) = (&volume.metadata, &volume.spec);
        let zone = |key: &&str| {
            let (key, values) = meta.labels.get_key_value(*key)?;
            Some((key.clone(), values.split("__").map(Name::from).collect()))
        };
        let gives = || Gives {
            class: spec.storage_class_name.clone(),
            modes: spec.access_modes.clone(),
            volume_mode: mode(&spec.volume_mode),
            storage: spec.capacity.clone(),
            labels: meta.labels.clone(),
        };
        Self {
            affinity: spec.node_affinity.required.clone(),
            zones: ZONES.iter().filter_map(zone).collect(),
            gives: (&*volume.status.phase == "Available").then(|| Box::new(gives())),
        }
    }
}

impl From<&StorageClass> for StorageClassFacts {
    fn from(class: &StorageClass) -> Self {
        Self {
            waits_for_pod: &*class.volume_binding_mode == "WaitForFirstConsumer",
            makes_volumes: &*class.provisioner != NO_PROVISIONER,
            topologies: class.allowed_topologies.clone(),
        }
    }
}

impl VolumeClaimFacts {
    /// Nodes that can use the volume that it is bound to, or will be. `owner`: the uid that its controller must have.
    fn reach(&self, owner: Option<&Name>, storage: &dyn Storage) -> Reach {
        if self.deleting {
            return Reach::Nowhere("is being deleted".into());
        }
        if owner.is_some() && self.owner.as_ref() != owner {
            return Reach::Nowhere("was not made for the Pod".into());
        }
        match (&self.volume, &self.asks) {
            (Some(name), _) => match storage.volume(name) {
                Some(VolumeFacts { affinity, zones, .. }) => {
                    Reach::Volume { affinity: affinity.clone(), zones: zones.clone() }
                }
                None => Reach::Nowhere(
                    format!("is bound to PersistentVolume {name}, which does not exist").into(),
                ),
            },
            (None, Some(asks)) => asks.reach(storage),
            (None, None) => Reach::Nowhere("is not bound".into()),
        }
    }
}

impl Asks {
    fn reach(&self, storage: &dyn Storage) -> Reach {
        let Some(class) = storage.class(&self.class).filter(|class| class.waits_for_pod) else {
            return Reach::Nowhere("is not bound, and its StorageClass does not wait for a Pod".into());
        };
        let fits = |gives: &Gives| {
            gives.class == self.class
                && gives.volume_mode == self.volume_mode
                && has_storage(&gives.storage, &self.storage)
                && self.modes.iter().all(|mode| gives.modes.contains(mode))
                && self.selector.as_ref().is_none_or(|of| of.matches(|key| gives.labels.get(key)))
        };
        let free = storage.volumes().filter(|volume| volume.gives.as_deref().is_some_and(fits));
        let volumes = free.map(|volume| volume.affinity.clone()).collect();
        // A selector of labels says which volumes there have to be: none is made for it.
        let is_made = class.makes_volumes && self.selector.is_none();
        Reach::Any { volumes, made_in: is_made.then(|| class.topologies.clone()) }
    }
}

impl VolumeReach {
    /// Returns the nodes that can use the volumes of a Pod; nothing for a Pod without such volumes.
    pub(super) fn of(uses: &[VolumeUse], namespace: &str, uid: &Name, storage: &dyn Storage) -> Option<Self> {
        let reach = |VolumeUse { claim, is_own }: &VolumeUse| {
            let facts = storage.claim(namespace, claim);
            let reach = facts.map(|facts| facts.reach(is_own.then_some(uid), storage));
            (claim.clone(), reach.unwrap_or_else(|| Reach::Nowhere("does not exist".into())))
        };
        (!uses.is_empty()).then(|| Self(uses.iter().map(reach).collect()))
    }

    /// Returns the reason why a node cannot use the volumes.
    pub fn obstacle(&self, node: &NodeView) -> Option<UnmetConstraint> {
        self.0.iter().find_map(|(claim, reach)| {
            let why = reach.obstacle(node)?;
            Some(UnmetConstraint::Volume(claim.clone(), why))
        })
    }
}

impl Reach {
    fn obstacle(&self, node: &NodeView) -> Option<Name> {
        let selects =
            |affinity: &Option<NodeSelector>| affinity.as_ref().is_none_or(|of| node.is_selected(of));
        match self {
            Self::Nowhere(why) => Some(Arc::clone(why)),
            Self::Volume { affinity, .. } if !selects(affinity) => {
                Some("is bound to a volume that the node cannot use (nodeAffinity)".into())
            }
            Self::Volume { zones, .. } if !is_in(zones, &node.labels) => {
                Some("is bound to a volume of another zone".into())
            }
            Self::Volume { .. } => None,
            Self::Any { volumes, .. } if volumes.iter().any(selects) => None,
            Self::Any { made_in: None, .. } => {
                Some("finds no free volume for the node, and its StorageClass makes none".into())
            }
            Self::Any { made_in: Some(topologies), .. } => {
                let matches = |term: &TopologySelectorTerm| {
                    let mut all = term.match_label_expressions.iter();
                    all.all(|of| node.labels.get(&of.key).is_some_and(|value| of.values.contains(value)))
                };
                let is_made = topologies.is_empty() || topologies.iter().any(matches);
                (!is_made).then(|| {
                    "has a StorageClass that makes no volume for the node (allowedTopologies)".into()
                })
            }
        }
    }
}

/// Whether a node is in the zones of a volume. One that names no zone is in all.
fn is_in(zones: &[(Name, Box<[Name]>)], labels: &Labels) -> bool {
    let has_zones = ZONES.iter().any(|key| labels.contains_key(*key));
    !has_zones
        || zones.iter().all(|(key, values)| zone_of(labels, key).is_some_and(|zone| values.contains(zone)))
}

/// The value of a label of [`ZONES`], under its old or its new name.
fn zone_of<'a>(labels: &'a Labels, key: &str) -> Option<&'a Name> {
    let kind = key.rsplit('/').next();
    let mut same = ZONES.iter().filter(|known| known.rsplit('/').next() == kind);
    labels.get(key).or_else(|| same.find_map(|known| labels.get(*known)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use dragoman_objects::Node;
    use serde_json::{Value, json};

    use super::super::SchedulingConstraints;
    use super::*;

    /// A cluster with node a in zone a and node b in zone b.
    #[derive(Default)]
    struct World {
        claims: BTreeMap<String, VolumeClaimFacts>,
        volumes: BTreeMap<String, VolumeFacts>,
        classes: BTreeMap<String, StorageClassFacts>,
    }

    impl Storage for World {
        fn claim(&self, namespace: &str, name: &str) -> Option<&VolumeClaimFacts> {
            self.claims.get(name).filter(|_| namespace == "ns")
        }

        fn volume(&self, name: &str) -> Option<&VolumeFacts> {
            self.volumes.get(name)
        }

        fn class(&self, name: &str) -> Option<&StorageClassFacts> {
            self.classes.get(name)
        }

        fn volumes(&self) -> Box<dyn Iterator<Item = &VolumeFacts> + '_> {
            Box::new(self.volumes.values())
        }
    }

    fn read<T: serde::de::DeserializeOwned>(object: &Value) -> T {
        serde_json::from_str(&object.to_string()).expect("an object")
    }

    fn node(name: &str) -> NodeView {
        (&read::<Node>(&json!({"metadata": {"name": name, "labels": {"topology.kubernetes.io/zone": name}}})))
            .into()
    }

    impl World {
        fn claim(mut self, claim: &Value) -> Self {
            self.claims.insert("data".to_owned(), (&read::<PersistentVolumeClaim>(claim)).into());
            self
        }

        fn volume(mut self, name: &str, volume: &Value) -> Self {
            self.volumes.insert(name.to_owned(), (&read::<PersistentVolume>(volume)).into());
            self
        }

        fn class(mut self, class: &Value) -> Self {
            self.classes.insert("fast".to_owned(), (&read::<StorageClass>(class)).into());
            self
        }

        /// The obstacles of the nodes a and b to a Pod with these volumes.
        fn judged(&self, volumes: &Value) -> [Option<String>; 2] {
            let pod = json!({"metadata": {"namespace": "ns", "name": "p", "uid": "u"}, "spec": {"volumes": volumes}});
            let constraints = SchedulingConstraints::from(&read::<Pod>(&pod));
            let reach = constraints.reach("ns", &"u".into(), self);
            ["a", "b"].map(|name| reach.as_ref()?.obstacle(&node(name)).map(|why| why.to_string()))
        }

        fn says(&self) -> [Option<String>; 2] {
            self.judged(&json!([{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]))
        }

        /// The nodes that can use it.
        fn nodes(&self) -> String {
            let said = self.says();
            ["a", "b"].iter().zip(said).filter(|(_, said)| said.is_none()).map(|(node, _)| *node).collect()
        }
    }

    fn both(why: &str) -> [Option<String>; 2] {
        [(); 2].map(|()| Some(format!("PersistentVolumeClaim data {why}")))
    }

    fn only_in(zone: &str) -> Value {
        json!({"required": {"nodeSelectorTerms": [{"matchExpressions":
            [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]}]}]}})
    }

    fn bound() -> Value {
        json!({"spec": {"volumeName": "pv"}, "status": {"phase": "Bound"}})
    }

    fn open() -> Value {
        json!({"spec": {"storageClassName": "fast", "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "10Gi"}}}, "status": {"phase": "Pending"}})
    }

    #[test]
    fn a_volume_is_used_where_it_is() {
        let world = || World::default().claim(&bound());
        assert_eq!(world().volume("pv", &json!({"spec": {"nodeAffinity": only_in("b")}})).nodes(), "b");
        assert_eq!(world().volume("pv", &json!({})).nodes(), "ab");
        let zones = |key: &str, value: &str| {
            world().volume("pv", &json!({"metadata": {"labels": {key: value}}})).nodes()
        };
        assert_eq!(zones("topology.kubernetes.io/zone", "a"), "a");
        assert_eq!(zones("failure-domain.beta.kubernetes.io/zone", "b__c"), "b");
        assert_eq!(zones("topology.kubernetes.io/zone", "a__b"), "ab");
        assert_eq!(world().says(), both("is bound to PersistentVolume pv, which does not exist"));
    }

    #[test]
    fn a_claim_has_to_be_there() {
        assert_eq!(World::default().says(), both("does not exist"));
        let mut deleting = bound();
        deleting["metadata"] = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
        assert_eq!(World::default().claim(&deleting).says(), both("is being deleted"));
        assert_eq!(World::default().judged(&json!([{"name": "v", "emptyDir": {}}])), [None, None]);
        // That of an ephemeral volume belongs to the Pod.
        let owned = |uid: &str| {
            let mut claim = bound();
            claim["metadata"] = json!({"ownerReferences": [{"kind": "Pod", "uid": uid, "controller": true}]});
            let mut world = World::default().claim(&claim).volume("pv", &json!({}));
            let claim = world.claims.remove("data").expect("a claim");
            world.claims.insert("p-scratch".to_owned(), claim);
            world.judged(&json!([{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}]))[0].clone()
        };
        assert_eq!(owned("u"), None);
        assert_eq!(owned("x").as_deref(), Some("PersistentVolumeClaim p-scratch was not made for the Pod"));
    }

    #[test]
    fn a_volume_is_made_where_its_class_makes_volumes() {
        let world = |class: Value| World::default().claim(&open()).class(&class);
        let waits = "WaitForFirstConsumer";
        let immediate = world(json!({"provisioner": "csi", "volumeBindingMode": "Immediate"}));
        assert_eq!(immediate.says(), both("is not bound, and its StorageClass does not wait for a Pod"));
        assert_eq!(world(json!({"provisioner": "csi", "volumeBindingMode": waits})).nodes(), "ab");
        let topologies = json!([{"matchLabelExpressions": [{"key": "topology.kubernetes.io/zone", "values": ["a", "c"]}]}]);
        let class =
            json!({"provisioner": "csi", "volumeBindingMode": waits, "allowedTopologies": topologies});
        assert_eq!(world(class).nodes(), "a");
    }

    #[test]
    fn a_free_volume_has_to_suit_the_claim() {
        let class = json!({"provisioner": NO_PROVISIONER, "volumeBindingMode": "WaitForFirstConsumer"});
        let world = || World::default().claim(&open()).class(&class);
        let why = "finds no free volume for the node, and its StorageClass makes none";
        assert_eq!(world().says(), both(why));
        let suits = |path: &[&str], value: Value| {
            let mut volume = json!({"metadata": {"labels": {"tier": "1"}}, "spec": {"storageClassName": "fast",
                "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "20Gi"}, "nodeAffinity": only_in("b")},
                "status": {"phase": "Available"}});
            let mut at = &mut volume;
            for part in path {
                at = &mut at[*part];
            }
            *at = value;
            world().volume("free", &volume).nodes()
        };
        assert_eq!(suits(&["spec", "capacity", "storage"], json!("10Gi")), "b");
        assert_eq!(suits(&["spec", "capacity", "storage"], json!("9Gi")), "");
        assert_eq!(suits(&["spec", "storageClassName"], json!("slow")), "");
        assert_eq!(suits(&["spec", "accessModes"], json!(["ReadOnlyMany"])), "");
        assert_eq!(suits(&["spec", "volumeMode"], json!("Block")), "");
        assert_eq!(suits(&["status", "phase"], json!("Bound")), "");
    }

    #[test]
    fn volumes_are_bounded() {
        let volumes: Vec<Value> = (0..5_000)
            .map(|n| json!({"name": format!("v{n}"), "persistentVolumeClaim": {"claimName": "data"}}))
            .collect();
        assert_eq!(World::default().judged(&json!(volumes)), [None, None]);
    }
}
