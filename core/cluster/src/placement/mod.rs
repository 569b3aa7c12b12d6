//! Where a scheduler would let a Pod run, devices and amounts aside: the filters of kube-scheduler. Each is a
//! function over plain data. [`NodeView::obstacles`] looks at one node and one Pod, [`Neighbourhood::obstacle`] at the
//! Pods of other nodes as well.

mod bounds;
mod neighbours;
mod taken;
mod terms;
mod volumes;

use std::collections::BTreeSet;
use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

use dragoman_objects::{
    Affinity, Labels, Name, Node, NodeSelector, NodeSelectorTerm, Pod, PreferredTerm, Taint, Toleration,
};

pub use self::neighbours::{Neighbourhood, Neighbours, Nodes, Promised, Seeker};
pub use self::taken::{HostPort, Taken, Takes};
pub use self::terms::{PodKind, PodTerms};
use self::volumes::VolumeUse;
pub use self::volumes::{Storage, StorageClassFacts, VolumeClaimFacts, VolumeFacts, VolumeReach};

/// Extended resources of a node up to which they are read: a kubelet writes any number into the status of its Node.
const MOST_EXTENDED: usize = 256;
/// The taint that a scheduler sees on a node with `spec.unschedulable`.
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// Requirements of a Pod on the nodes that it may run on.
#[derive(Debug, Clone, Default, PartialEq, Hash)]
pub struct SchedulingConstraints {
    node_selector: Labels,
    affinity: Affinity,
    tolerations: Vec<Toleration>,
    takes: Takes,
    /// Number of the parts of the requirements on nodes, where these are too long: then none of them is kept.
    too_long: Option<usize>,
    /// The requirements on the Pods near it.
    terms: Option<Arc<PodTerms>>,
    /// The claims for its volumes.
    volumes: Box<[VolumeUse]>,
    not_looked_at: Vec<&'static str>,
}

/// Tells whether a DeviceClass stands behind an extended resource: kube-scheduler makes a claim for it where no device plugin of the node
/// has it (KEP-5004).
pub type IsBacked<'a> = &'a dyn Fn(&str) -> bool;

/// Properties of a node that decide which Pods may run on it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NodeView {
    name: Name,
    labels: Labels,
    taints: Vec<Taint>,
    unschedulable: bool,
    /// The Pods that it takes, if it says so.
    most_pods: Option<usize>,
    /// The extended resources of its device plugins, in the order of their names.
    extended: Arc<[(Name, i64)]>,
    taken: Arc<Taken>,
}

/// A reason why a scheduler would not let a Pod run on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnmetConstraint {
    /// The requirements of the Pod on its node have so many parts that they are not evaluated.
    TooLong(usize),
    /// `spec.nodeSelector` names a label that the node does not have: key and value.
    NodeSelector(Name, Name),
    /// The required node affinity does not select the node.
    NodeAffinity,
    /// A taint of the node that the Pod does not tolerate.
    Taint(Taint),
    /// `spec.unschedulable` of the node.
    Unschedulable,
    /// The node has as many Pods as it takes.
    PodCount(usize),
    /// Another Pod on the node has the port.
    HostPort(HostPort),
    /// The node has less of an extended resource than the Pod requests: its name, what is requested, and what is left.
    Extended(Name, i64, i128),
    /// The node lacks the label of this topology key.
    TopologyKey(Name),
    /// No Pod that the required Pod affinity names is in the domain of this topology key.
    PodAffinity(Name),
    /// A Pod that the required Pod anti-affinity names is in the domain of this topology key.
    PodAntiAffinity(Name),
    /// The required anti-affinity of a Pod in the domain of this topology key names the Pod.
    ExistingAntiAffinity(Name),
    /// A Pod that has its node, and is not bound yet, would exceed `maxSkew` of its topology spread over this key.
    ExistingTopologySpread(Name),
    /// The Pod would exceed `maxSkew` over the domains of this topology key.
    TopologySpread(Name, i64),
    /// The node cannot use the volume of this `PersistentVolumeClaim`: the rest of the sentence.
    Volume(Name, Name),
}

impl From<&Node> for NodeView {
    /// Takes the properties of a Node, without its Pods.
    fn from(node: &Node) -> Self {
        let most_pods = node.status.allocatable.get("pods");
        Self {
            name: node.metadata.name.clone(),
            labels: node.metadata.labels.clone(),
            taints: node.spec.taints.clone(),
            unschedulable: node.spec.unschedulable,
            most_pods: most_pods.and_then(|most| most.0.parse().ok()),
            extended: node.extended_resources().take(MOST_EXTENDED).collect(),
            taken: Arc::default(),
        }
    }
}

impl NodeView {
    /// The name of the node.
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// Adds a Pod that runs on the node.
    pub fn add(&mut self, pod: &SchedulingConstraints) {
        Arc::make_mut(&mut self.taken).add(Some(&pod.takes));
    }

    /// The node with these Pods on it.
    #[must_use]
    pub fn with(self, taken: Arc<Taken>) -> Self {
        Self { taken, ..self }
    }

    /// Returns all reasons why a scheduler would not let the Pod run here.
    pub fn obstacles(&self, pod: &SchedulingConstraints, is_backed: IsBacked<'_>) -> Vec<UnmetConstraint> {
        if let Some(parts) = pod.too_long {
            return vec![UnmetConstraint::TooLong(parts)];
        }
        let labels = self.lacking(pod);
        let labels = labels.map(|(key, value)| UnmetConstraint::NodeSelector(key.clone(), value.clone()));
        let affinity = (!self.has_required_affinity(pod)).then_some(UnmetConstraint::NodeAffinity);
        let tolerated = |taint: &Taint| pod.tolerations.iter().any(|known| known.tolerates(taint));
        // A cordoned node has the taint too, as soon as the node controller has seen it.
        let taints = self.untolerated(pod).filter(|taint| &*taint.key != UNSCHEDULABLE);
        let taints = taints.cloned().map(UnmetConstraint::Taint);
        let cordoned = Taint { key: UNSCHEDULABLE.into(), effect: "NoSchedule".into(), ..Taint::default() };
        let is_cordoned = self.unschedulable || self.taints.iter().any(|taint| &*taint.key == UNSCHEDULABLE);
        let cordoned = (is_cordoned && !tolerated(&cordoned)).then_some(UnmetConstraint::Unschedulable);
        let count = self.most_pods.filter(|most| self.taken.pods >= *most).map(UnmetConstraint::PodCount);
        let ports = pod.takes.ports.iter().filter(|port| self.taken.has(port));
        let ports = ports.cloned().map(UnmetConstraint::HostPort);
        let extended =
            pod.takes.extended.iter().filter_map(|(name, units)| self.lacks(name, *units, is_backed));
        let of_node = labels.chain(affinity).chain(taints).chain(cordoned).chain(count);
        of_node.chain(ports).chain(extended).collect()
    }

    /// Whether a device plugin of the node publishes an extended resource.
    pub fn has_plugin_for(&self, name: &str) -> bool {
        self.published(name).is_some()
    }

    fn published(&self, name: &str) -> Option<i64> {
        let at = self.extended.binary_search_by(|(known, _)| (**known).cmp(name)).ok()?;
        self.extended.get(at).map(|(_, units)| *units)
    }

    /// Whether the node has less of an extended resource than is requested. A device plugin comes before a DeviceClass.
    fn lacks(&self, name: &Name, units: i64, is_backed: IsBacked<'_>) -> Option<UnmetConstraint> {
        let all = self.published(name);
        if all.is_none() && is_backed(name) {
            return None;
        }
        let taken = self.taken.extended.get(name).copied().unwrap_or_default();
        let left = i128::from(all.unwrap_or_default()) - taken;
        (i128::from(units) > left).then(|| UnmetConstraint::Extended(name.clone(), units, left.max(0)))
    }

    /// Returns how much a scheduler would like the Pod to run here: the number of taints with effect
    /// `PreferNoSchedule` that it does not tolerate, and the sum of the weights of its preferred node
    /// affinity that matches.
    pub fn preference(&self, pod: &SchedulingConstraints) -> (usize, i64) {
        let tolerated = |taint: &Taint| pod.tolerations.iter().any(|known| known.tolerates(taint));
        let soft = self.taints.iter().filter(|taint| &*taint.effect == "PreferNoSchedule");
        let repels = soft.filter(|taint| !tolerated(taint)).count();
        let selects = |term: &&PreferredTerm| term.preference.selects(&self.name, &self.labels);
        let liked = pod.affinity.preferred().iter().filter(selects);
        (repels, liked.map(|preferred| i64::from(preferred.weight)).sum())
    }

    /// The labels that `spec.nodeSelector` names and the node does not have.
    fn lacking<'a>(&'a self, pod: &'a SchedulingConstraints) -> impl Iterator<Item = (&'a Name, &'a Name)> {
        pod.node_selector.iter().filter(|(key, value)| self.labels.get(*key) != Some(*value))
    }

    fn has_required_affinity(&self, pod: &SchedulingConstraints) -> bool {
        let selects = |term: &NodeSelectorTerm| term.selects(&self.name, &self.labels);
        pod.affinity.required().is_none_or(|selector| selector.node_selector_terms.iter().any(selects))
    }

    /// Whether `spec.nodeSelector` and the required node affinity select the node.
    fn is_selected_by(&self, pod: &SchedulingConstraints) -> bool {
        self.lacking(pod).next().is_none() && self.has_required_affinity(pod)
    }

    /// The taints that keep the Pod away.
    fn untolerated<'a>(&'a self, pod: &'a SchedulingConstraints) -> impl Iterator<Item = &'a Taint> {
        let tolerated = |taint: &Taint| pod.tolerations.iter().any(|known| known.tolerates(taint));
        self.taints.iter().filter(move |taint| taint.repels() && !tolerated(taint))
    }

    /// Whether a node selector selects the node.
    pub fn is_selected(&self, selector: &NodeSelector) -> bool {
        selector.matches(&self.name, &self.labels) == Ok(true)
    }
}

impl From<&Pod> for SchedulingConstraints {
    fn from(pod: &Pod) -> Self {
        let spec = &pod.spec;
        let (terms, mut not_looked_at) = terms::of(pod);
        // What does not decode is not looked at.
        let volumes = volumes::of(pod);
        let has_volume_claims = volumes.as_ref().is_none_or(|volumes| !volumes.is_empty());
        let mut containers = spec.containers.iter().chain(&spec.init_containers);
        let has_unknown_ports = containers.any(|container| container.ports.is_unreadable());
        let all = [(has_volume_claims, "volumes"), (has_unknown_ports, "host ports")];
        not_looked_at.extend(all.into_iter().filter(|(is, _)| *is).map(|(_, what)| what));
        let takes = Takes::of(pod);
        let length = bounds::parts(pod, takes.ports.len() + takes.extended.len());
        if length > bounds::MOST_PARTS {
            return Self { takes, not_looked_at, too_long: Some(length), ..Self::default() };
        }
        Self {
            node_selector: spec.node_selector.clone(),
            affinity: bounds::evaluated(&spec.affinity),
            tolerations: spec.tolerations.clone(),
            takes,
            too_long: None,
            terms: terms.map(Arc::new),
            volumes: volumes.unwrap_or_default(),
            not_looked_at,
        }
    }
}

impl SchedulingConstraints {
    /// Returns the requirements that a scheduler looks at and these filters do not.
    pub fn not_looked_at(&self) -> &[&'static str] {
        &self.not_looked_at
    }

    /// Whether the requirements of the Pod on its node are too long to be evaluated: no node takes it.
    pub fn is_too_long(&self) -> bool {
        self.too_long.is_some()
    }

    /// The nodes that can use the volumes of the Pod with this namespace and uid; nothing without such volumes.
    pub fn reach(&self, namespace: &str, uid: &Name, storage: &dyn Storage) -> Option<VolumeReach> {
        VolumeReach::of(&self.volumes, namespace, uid, storage)
    }

    /// Whether topology spread counts the same for both.
    pub fn spreads_like(&self, other: &Self) -> bool {
        self.terms().map(|terms| &terms.spread) == other.terms().map(|terms| &terms.spread)
            && self.node_selector == other.node_selector
            && self.affinity.required() == other.affinity.required()
            && self.tolerations == other.tolerations
    }

    /// The requirements on the Pods near it.
    pub fn terms(&self) -> Option<&PodTerms> {
        self.terms.as_deref()
    }

    /// The extended resources of the Pod behind which there is a class.
    pub fn backed(&self, is_behind: impl Fn(&str) -> bool) -> BTreeSet<Name> {
        let names = self.takes.extended.iter().map(|(name, _)| name);
        names.filter(|name| is_behind(name)).cloned().collect()
    }

    /// The ports and extended resources that the Pod takes of its node.
    pub fn takes(&self) -> &Takes {
        &self.takes
    }
}

impl UnmetConstraint {
    /// Whether it goes away with the Pods of the nodes.
    pub fn is_about_pods(&self) -> bool {
        matches!(
            self,
            Self::PodAffinity(_)
                | Self::PodAntiAffinity(_)
                | Self::ExistingAntiAffinity(_)
                | Self::ExistingTopologySpread(_)
                | Self::TopologySpread(..)
        )
    }
}

impl Display for UnmetConstraint {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong(parts) => {
                let most = bounds::MOST_PARTS;
                write!(
                    f,
                    "nodeSelector, nodeAffinity, tolerations, host ports and extended resources of the Pod have {parts} parts; no more than {most} are evaluated"
                )
            }
            Self::NodeSelector(key, value) => {
                write!(f, "the node does not have the label {key}={value} (nodeSelector)")
            }
            Self::NodeAffinity => f.write_str("the required node affinity does not select the node"),
            Self::Taint(taint) => write!(f, "taint {taint} of the node is not tolerated"),
            Self::Unschedulable => f.write_str("the node is cordoned"),
            Self::PodCount(most) => write!(f, "the node has its {most} Pods"),
            Self::HostPort(HostPort { address, protocol, number }) => {
                write!(f, "another Pod of the node has the host port {address}:{number}/{protocol}")
            }
            Self::Extended(name, units, left) => {
                write!(f, "the node has {left} of {name} left, and the Pod requests {units}")
            }
            Self::Volume(claim, why) => write!(f, "PersistentVolumeClaim {claim} {why}"),
            Self::TopologyKey(key) => write!(f, "the node does not have the label {key} (topologyKey)"),
            Self::PodAffinity(key) => {
                write!(f, "no Pod that the required Pod affinity asks for runs in the same {key}")
            }
            Self::PodAntiAffinity(key) => {
                write!(f, "a Pod that the required Pod anti-affinity excludes runs in the same {key}")
            }
            Self::ExistingAntiAffinity(key) => {
                write!(f, "the anti-affinity of another Pod in the same {key} excludes the Pod")
            }
            Self::ExistingTopologySpread(key) => {
                write!(
                    f,
                    "the topology spread of a Pod that is about to be bound in the same {key} excludes the Pod"
                )
            }
            Self::TopologySpread(key, skew) => {
                write!(f, "the Pod would exceed maxSkew {skew} of its topology spread over {key}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn placement(pod: &Value) -> SchedulingConstraints {
        SchedulingConstraints::from(&serde_json::from_str::<Pod>(&pod.to_string()).expect("a Pod"))
    }

    fn site(node: &Value) -> NodeView {
        NodeView::from(&serde_json::from_str::<Node>(&node.to_string()).expect("a Node"))
    }

    fn obstacles(pod: &Value, node: &Value) -> Vec<String> {
        let pod = placement(&json!({"spec": pod.clone()}));
        let mut site = site(node);
        let taken = json!({"spec": {"containers": [{"ports": [{"hostPort": 80, "hostIP": "10.0.0.1"}]}]}});
        site.add(&placement(&taken));
        site.obstacles(&pod, &|_| false).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_pod_runs_where_nothing_is_against_it() {
        assert_eq!(obstacles(&json!({}), &json!({"metadata": {"name": "n"}})), Vec::<String>::new());
    }

    #[test]
    fn an_extended_resource_is_that_of_a_device_plugin_or_of_a_class() {
        let wants = |units: &str| {
            let limits = json!({"example.com/gpu": units, "cpu": "900"});
            placement(&json!({"spec": {"containers": [{"resources": {"limits": limits}}]}}))
        };
        let node = |units: &str| {
            let allocatable = json!({"example.com/gpu": units, "cpu": "1"});
            site(&json!({"metadata": {"name": "n"}, "status": {"allocatable": allocatable}}))
        };
        let said = |site: &NodeView, pod: &SchedulingConstraints, is_backed: bool| {
            site.obstacles(pod, &|_| is_backed).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let mut four = node("4");
        four.add(&wants("3"));
        assert_eq!(said(&four, &wants("1"), false), Vec::<String>::new());
        for is_backed in [true, false] {
            let lacks = ["the node has 1 of example.com/gpu left, and the Pod requests 2"];
            assert_eq!(said(&four, &wants("2"), is_backed), lacks, "the plugin has it");
        }
        let lacks = ["the node has 0 of example.com/gpu left, and the Pod requests 1"];
        assert_eq!(said(&node("0"), &wants("1"), false), lacks);
        assert_eq!(said(&node("0"), &wants("1"), true), Vec::<String>::new(), "kube-scheduler makes a claim");
        assert_eq!(wants("1").backed(|_| true), ["example.com/gpu".into()].into());
        // More than all numbers hold, for a moment.
        let most = i64::MAX.to_string();
        let (mut sum, of) = (Taken::default(), |units: &str| wants(units).takes().clone());
        sum.add(Some(&of("3")));
        sum.add(Some(&of(&most)));
        sum.remove(Some(&of(&most)));
        let full = node("4").with(Arc::new(sum));
        assert_eq!(said(&full, &wants("2"), false).len(), 1, "three are taken as before");
    }

    #[test]
    fn labels_select_nodes() {
        let node = || json!({"metadata": {"name": "n", "labels": {"zone": "a"}}});
        assert_eq!(
            obstacles(&json!({"nodeSelector": {"zone": "b"}}), &node()),
            ["the node does not have the label zone=b (nodeSelector)"]
        );
        let affinity = |values: &[&str]| {
            json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": values}]}]}}}})
        };
        assert_eq!(obstacles(&affinity(&["a", "c"]), &node()), Vec::<String>::new());
        assert_eq!(
            obstacles(&affinity(&["c"]), &node()),
            ["the required node affinity does not select the node"]
        );
    }

    #[test]
    fn requirements_without_end_are_not_evaluated() {
        let node = || json!({"metadata": {"name": "n", "labels": {"zone": "a"}}});
        let values: Vec<String> = (0..300).map(|i| format!("zone-{i}")).collect();
        let requirement = |values: &[String]| json!({"key": "zone", "operator": "In", "values": values});
        let required = |expressions: &[Value]| {
            json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": expressions}]}}}})
        };
        let preferred = json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1, "preference": {"matchExpressions": [requirement(&values)]}}]}}});
        let labels: serde_json::Map<String, Value> =
            values.iter().map(|label| (label.clone(), json!("x"))).collect();
        let tolerations: Vec<Value> = values.iter().map(|key| json!({"key": key})).collect();
        let ports: Vec<Value> = (1..300).map(|port| json!({"hostPort": port})).collect();
        let long = "x".repeat(20_000);
        for pod in [
            required(&[requirement(&values)]),
            required(&[requirement(std::slice::from_ref(&long))]),
            preferred,
            json!({"nodeSelector": labels}),
            json!({"nodeSelector": {"zone": long}}),
            json!({"tolerations": tolerations}),
            json!({"tolerations": [{"key": "k", "value": long}]}),
            json!({"containers": [{"ports": ports}]}),
        ] {
            let said = obstacles(&pod, &node());
            let [said] = said.as_slice() else { panic!("one obstacle of {pod}: {said:?}") };
            assert!(said.ends_with("parts; no more than 256 are evaluated"), "{said}");
            let pod = placement(&json!({"spec": pod}));
            assert!(pod.is_too_long() && pod.affinity == Affinity::default() && pod.tolerations.is_empty());
        }
        assert_eq!(
            obstacles(&required(&[requirement(&values[..200])]), &node()),
            ["the required node affinity does not select the node"]
        );
    }

    #[test]
    fn a_term_that_cannot_be_evaluated_selects_nothing() {
        let node = json!({"metadata": {"name": "n", "labels": {"zone": "a"}}});
        let term = |operator: &str| json!({"matchExpressions": [{"key": "zone", "operator": operator, "values": ["a"]}]});
        let required = |terms: &[Value]| {
            json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": terms}}}})
        };
        assert_eq!(obstacles(&required(&[term("Like")]), &node).len(), 1);
        assert_eq!(obstacles(&required(&[term("Like"), term("In")]), &node), Vec::<String>::new());
    }

    #[test]
    fn preferences_are_weighed() {
        let term = |weight: i32, zone: &str| {
            json!({"weight": weight, "preference": {"matchExpressions": [
                {"key": "zone", "operator": "In", "values": [zone]}]}})
        };
        let preferred = [term(10, "a"), term(5, "a"), term(70, "b")];
        let pod = json!({"spec": {"affinity": {"nodeAffinity":
            {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}}});
        let pod = placement(&pod);
        let site = json!({"metadata": {"name": "n", "labels": {"zone": "a"}},
            "spec": {"taints": [{"key": "soft", "effect": "PreferNoSchedule"}, {"key": "hard", "effect": "NoSchedule"}]}});
        let site = self::site(&site);
        assert_eq!(site.preference(&pod), (1, 15));
    }

    #[test]
    fn taints_repel() {
        let node = json!({"metadata": {"name": "n"}, "spec": {"unschedulable": true, "taints": [
            {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
            {"key": "gpu", "value": "yes", "effect": "NoExecute"}, {"key": "soft", "effect": "PreferNoSchedule"}]}});
        assert_eq!(
            obstacles(&json!({}), &node.clone()),
            ["taint gpu=yes:NoExecute of the node is not tolerated", "the node is cordoned"]
        );
        assert_eq!(obstacles(&json!({"tolerations": [{"operator": "Exists"}]}), &node), Vec::<String>::new());
    }

    #[test]
    fn a_node_takes_so_many_pods() {
        let node = |pods: &str| json!({"metadata": {"name": "n"}, "status": {"allocatable": {"pods": pods}}});
        assert_eq!(obstacles(&json!({}), &node("1")), ["the node has its 1 Pods"]);
        assert_eq!(obstacles(&json!({}), &node("2")), Vec::<String>::new());
    }

    #[test]
    fn a_host_port_is_taken_once() {
        let wants = |port: Value| obstacles(&json!({"containers": [{"ports": [port]}]}), &json!({}));
        let taken = ["another Pod of the node has the host port 0.0.0.0:80/TCP"];
        assert_eq!(wants(json!({"hostPort": 80})), taken);
        assert_eq!(wants(json!({"hostPort": 80, "hostIP": "10.0.0.2"})), Vec::<String>::new());
        assert_eq!(wants(json!({"hostPort": 80, "protocol": "UDP"})), Vec::<String>::new());
        assert_eq!(wants(json!({"containerPort": 80})), Vec::<String>::new());
    }

    #[test]
    fn what_is_not_looked_at_is_said() {
        let pod = json!({"spec": {"affinity": {"podAntiAffinity": 1}, "topologySpreadConstraints": 1,
            "volumes": [{"persistentVolumeClaim": {"claimName": "c"}}]}});
        let pod = placement(&pod);
        assert_eq!(pod.not_looked_at(), ["Pod anti-affinity", "topology spread", "volumes"]);
    }
}
