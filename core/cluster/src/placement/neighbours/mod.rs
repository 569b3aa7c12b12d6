//! The Pods of all nodes as other Pods see them, and what they mean for a Pod that looks for a node.

mod promised;
mod repelling;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::sync::Arc;

use dragoman_objects::{Name, Pod};

pub use self::promised::Promised;
use self::repelling::Repelling;
use super::terms::{PodKind, PodTerms, Spread, Term};
use super::{NodeView, SchedulingConstraints, UnmetConstraint};

/// Names beyond those in use that are kept before the others are forgotten.
const SPARE_NAMES: usize = 4096;

/// The Pods that nodes have: by kind, because the Pods of one controller are judged alike.
#[derive(Debug, Default)]
pub struct Neighbours {
    /// The nodes of each kind with the number of Pods there, by namespace.
    by_namespace: HashMap<Name, HashMap<Arc<PodKind>, Vec<(Name, u32)>>>,
    repelling: Repelling,
    /// The texts of labels.
    names: HashSet<Name>,
    /// The number of names at which those that no Pod has are forgotten.
    sweep_at: usize,
}

/// The nodes of a cluster.
pub trait Nodes {
    /// A node by its name.
    fn node(&self, name: &str) -> Option<&NodeView>;
    /// All nodes.
    fn nodes(&self) -> Box<dyn Iterator<Item = &NodeView> + '_>;
}

impl Nodes for BTreeMap<String, NodeView> {
    fn node(&self, name: &str) -> Option<&NodeView> {
        self.get(name)
    }

    fn nodes(&self) -> Box<dyn Iterator<Item = &NodeView> + '_> {
        Box::new(self.values())
    }
}

/// A Pod that looks for a node.
#[derive(Debug, Clone, Copy)]
pub struct Seeker<'a> {
    /// The Pod as others see it.
    pub kind: &'a PodKind,
    /// The requirements of the Pod.
    pub constraints: &'a SchedulingConstraints,
}

/// The meaning of the Pods of all nodes for one Pod that looks for a node.
#[derive(Debug, Default, Hash)]
pub struct Neighbourhood {
    terms: Option<Arc<PodTerms>>,
    /// The domains, by topology key, from which the anti-affinity of other Pods keeps the Pod.
    repelled_from: BTreeMap<Name, BTreeSet<Name>>,
    /// The nodes on which the Pod would take the place of one that has its node and is not bound, each with the topology key.
    spared: BTreeMap<Name, Name>,
    /// The domains that have Pods which a term of affinity names, by term.
    near: Vec<BTreeSet<Name>>,
    /// The same for its anti-affinity.
    apart: Vec<BTreeSet<Name>>,
    /// The Pods in each domain, and the least number in a domain, by topology spread constraint.
    spread: Vec<(BTreeMap<Name, i64>, i64)>,
}

impl Neighbours {
    /// The kind of a Pod.
    pub fn kind(&mut self, pod: &Pod) -> Arc<PodKind> {
        self.shared(PodKind::of(pod))
    }

    /// A kind. One that nodes have already is shared, and so are names.
    pub fn shared(&mut self, kind: PodKind) -> Arc<PodKind> {
        let known = self.by_namespace.get(&kind.namespace).and_then(|kinds| kinds.get_key_value(&kind));
        if let Some((known, _)) = known {
            return Arc::clone(known);
        }
        if self.names.len() >= self.sweep_at {
            self.names.retain(|name| Arc::strong_count(name) > 1);
            self.sweep_at = 2 * self.names.len() + SPARE_NAMES;
        }
        let names = &mut self.names;
        Arc::new(kind.with_shared_names(|name| match names.get(name) {
            Some(known) => *name = Arc::clone(known),
            None => drop(names.insert(Arc::clone(name))),
        }))
    }

    /// Whether no node has a Pod.
    pub fn is_empty(&self) -> bool {
        self.by_namespace.is_empty() && self.repelling.is_empty()
    }

    /// Adds a Pod of this kind to a node.
    pub fn add(&mut self, node: &Name, kind: &Arc<PodKind>) {
        let kinds = self.by_namespace.entry(kind.namespace.clone()).or_default();
        let nodes = kinds.entry(Arc::clone(kind)).or_default();
        match nodes.binary_search_by(|(known, _)| known.cmp(node)) {
            Ok(at) => nodes.get_mut(at).into_iter().for_each(|(_, pods)| *pods += 1),
            Err(at) => nodes.insert(at, (node.clone(), 1)),
        }
        self.repelling.add(kind);
    }

    /// Takes a Pod of this kind from a node.
    pub fn remove(&mut self, node: &Name, kind: &Arc<PodKind>) {
        let Some(kinds) = self.by_namespace.get_mut(&kind.namespace) else { return };
        let Some(nodes) = kinds.get_mut(kind) else { return };
        let Ok(at) = nodes.binary_search_by(|(known, _)| known.cmp(node)) else { return };
        if let Some((_, pods)) = nodes.get_mut(at) {
            *pods = pods.saturating_sub(1);
            if *pods == 0 {
                nodes.remove(at);
            }
        }
        if nodes.is_empty() {
            kinds.remove(kind);
            self.repelling.remove(kind);
        }
        if kinds.is_empty() {
            self.by_namespace.remove(&kind.namespace);
        }
    }

    /// Tells apart the terms of other Pods that keep a Pod of this kind away from them; nothing if there are none.
    /// `beside`: kinds of Pods that are promised to nodes.
    pub fn repulsion<'a>(
        &'a self,
        kind: &PodKind,
        beside: impl Iterator<Item = &'a Arc<PodKind>>,
    ) -> Option<u64> {
        let placed = self.repelling.against(kind).flat_map(|(terms, _)| terms);
        let terms = placed.chain(beside.flat_map(|other| &other.repels));
        let terms: HashSet<&Term> = terms.filter(|term| term.matches(kind)).collect();
        let hashes = terms.iter().map(hashed);
        // In no order: the sum is the same in any.
        (!terms.is_empty()).then(|| hashes.fold(0, u64::wrapping_add))
    }

    /// The kinds whose Pods may mean something for a Pod, with their nodes.
    fn relevant<'a>(&'a self, seeker: Seeker<'a>) -> Vec<(&'a Arc<PodKind>, &'a Vec<(Name, u32)>)> {
        let terms = seeker.constraints.terms.as_deref();
        if terms.is_some_and(PodTerms::are_about_others) {
            return self.by_namespace.values().flatten().collect();
        }
        let own = self.by_namespace.get(&seeker.kind.namespace).filter(|_| terms.is_some());
        let is_elsewhere = |kind: &&Arc<PodKind>| own.is_none() || kind.namespace != seeker.kind.namespace;
        let repelling = self.repelling.against(seeker.kind).flat_map(|(_, kinds)| kinds).filter(is_elsewhere);
        let of = |kind: &'_ Arc<PodKind>| self.by_namespace.get(&kind.namespace)?.get_key_value(kind);
        own.into_iter().flatten().chain(repelling.filter_map(of)).collect()
    }

    /// The meaning of the Pods of all nodes, and of those that are promised to nodes, for a Pod.
    pub fn around(
        &self,
        seeker: Seeker<'_>,
        beside: &[(Name, Arc<PodKind>)],
        nodes: &dyn Nodes,
    ) -> Neighbourhood {
        let placed = self.relevant(seeker).into_iter();
        let placed = placed.flat_map(|(kind, on)| on.iter().map(move |(node, pods)| (kind, node, *pods)));
        let placed = placed.chain(beside.iter().map(|(node, kind)| (kind, node, 1)));
        let mut found = Neighbourhood::new(seeker, nodes);
        let mut judged: HashMap<*const PodKind, Bearing> = HashMap::new();
        for (kind, node, pods) in placed {
            let bearing = judged.entry(Arc::as_ptr(kind)).or_insert_with(|| Bearing::of(kind, seeker));
            if !bearing.is_nothing()
                && let Some(node) = nodes.node(node)
            {
                found.count(bearing, kind, node, pods.into(), seeker.constraints);
            }
        }
        found.conclude();
        found
    }
}

/// The requirements that a kind of Pods bears on, by their positions.
#[derive(Debug, Default)]
struct Bearing {
    /// Terms of the kind that repel the Pod.
    repels: Vec<usize>,
    /// Whether it meets the affinity of the Pod.
    is_near: bool,
    apart: Vec<usize>,
    spread: Vec<usize>,
}

impl Bearing {
    fn of(kind: &PodKind, seeker: Seeker<'_>) -> Self {
        let repels = positions(&kind.repels, |term| term.matches(seeker.kind));
        let Some(terms) = &seeker.constraints.terms else { return Self { repels, ..Self::default() } };
        let counts = |of: &Spread| kind.namespace == terms.namespace && of.counts(kind);
        Self {
            repels,
            // A Pod counts if it meets all terms.
            is_near: !terms.affinity.is_empty() && terms.affinity.iter().all(|term| term.matches(kind)),
            apart: positions(&terms.anti_affinity, |term| term.matches(kind)),
            spread: positions(&terms.spread, counts),
        }
    }

    fn is_nothing(&self) -> bool {
        self.repels.is_empty() && !self.is_near && self.apart.is_empty() && self.spread.is_empty()
    }
}

fn positions<T>(of: &[T], holds: impl Fn(&T) -> bool) -> Vec<usize> {
    of.iter().enumerate().filter(|(_, of)| holds(of)).map(|(at, _)| at).collect()
}

/// The same number for the same value.
fn hashed(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

impl Neighbourhood {
    /// Tells apart what the Pods of the nodes mean: while it stays the same, a node that they exclude stays excluded.
    pub fn fingerprint(&self) -> u64 {
        hashed(self)
    }

    /// Without Pods: every domain that topology spread knows has none.
    fn new(seeker: Seeker<'_>, nodes: &dyn Nodes) -> Self {
        let Some(terms) = &seeker.constraints.terms else { return Self::default() };
        let domains = |of: &Spread| {
            let known = nodes.nodes().filter(|node| is_counted(of, terms, node, seeker.constraints));
            let domains = known.filter_map(|node| node.labels.get(&of.topology_key));
            (domains.map(|domain| (domain.clone(), 0)).collect(), 0)
        };
        Self {
            terms: Some(Arc::clone(terms)),
            near: vec![BTreeSet::new(); terms.affinity.len()],
            apart: vec![BTreeSet::new(); terms.anti_affinity.len()],
            spread: terms.spread.iter().map(domains).collect(),
            repelled_from: BTreeMap::new(),
            spared: BTreeMap::new(),
        }
    }

    /// Counts Pods of a kind on a node.
    fn count(
        &mut self,
        bearing: &Bearing,
        kind: &PodKind,
        node: &NodeView,
        pods: i64,
        constraints: &SchedulingConstraints,
    ) {
        for term in bearing.repels.iter().filter_map(|at| kind.repels.get(*at)) {
            if let Some(domain) = node.labels.get(&term.topology_key) {
                let domains = self.repelled_from.entry(term.topology_key.clone()).or_default();
                domains.insert(domain.clone());
            }
        }
        let Some(terms) = &self.terms else { return };
        if bearing.is_near {
            for (near, term) in self.near.iter_mut().zip(&terms.affinity) {
                near.extend(node.labels.get(&term.topology_key).cloned());
            }
        }
        for at in &bearing.apart {
            if let (Some(apart), Some(term)) = (self.apart.get_mut(*at), terms.anti_affinity.get(*at)) {
                apart.extend(node.labels.get(&term.topology_key).cloned());
            }
        }
        for at in &bearing.spread {
            let (Some((domains, _)), Some(of)) = (self.spread.get_mut(*at), terms.spread.get(*at)) else {
                continue;
            };
            let domain =
                node.labels.get(&of.topology_key).filter(|_| is_counted(of, terms, node, constraints));
            if let Some(count) = domain.and_then(|domain| domains.get_mut(domain)) {
                *count += pods;
            }
        }
    }

    /// All Pods are counted.
    fn conclude(&mut self) {
        let Some(terms) = &self.terms else { return };
        for ((domains, least), of) in self.spread.iter_mut().zip(&terms.spread) {
            let is_enough = domains.len() >= of.min_domains;
            *least = domains.values().min().copied().filter(|_| is_enough).unwrap_or_default();
        }
    }

    /// Returns the reason why the Pods of the nodes keep the Pod from this one.
    pub fn obstacle(&self, node: &NodeView) -> Option<UnmetConstraint> {
        // What its author can change comes first.
        let own = self.terms.as_ref().and_then(|terms| {
            let affinity = self.is_far(terms, node).or_else(|| self.is_too_near(terms, node));
            affinity.or_else(|| self.skews(terms, node))
        });
        own.or_else(|| {
            let is_in = |key: &Name, domains: &BTreeSet<Name>| {
                node.labels.get(key).is_some_and(|domain| domains.contains(domain))
            };
            let repels = self.repelled_from.iter().find(|(key, domains)| is_in(key, domains));
            let repels = repels.map(|(key, _)| UnmetConstraint::ExistingAntiAffinity(key.clone()));
            let spared = || self.spared.get(&node.name).cloned();
            repels.or_else(|| spared().map(UnmetConstraint::ExistingTopologySpread))
        })
    }

    /// Affinity. A Pod that asks for Pods like itself may be the first of them.
    fn is_far(&self, terms: &PodTerms, node: &NodeView) -> Option<UnmetConstraint> {
        let is_first = terms.is_near_itself && self.near.iter().all(BTreeSet::is_empty);
        terms.affinity.iter().zip(&self.near).find_map(|(Term { topology_key, .. }, near)| {
            match node.labels.get(topology_key) {
                None => Some(UnmetConstraint::TopologyKey(topology_key.clone())),
                Some(domain) if is_first || near.contains(domain) => None,
                Some(_) => Some(UnmetConstraint::PodAffinity(topology_key.clone())),
            }
        })
    }

    fn is_too_near(&self, terms: &PodTerms, node: &NodeView) -> Option<UnmetConstraint> {
        let mut all = terms.anti_affinity.iter().zip(&self.apart);
        let (term, _) = all.find(|(term, apart)| {
            node.labels.get(&term.topology_key).is_some_and(|domain| apart.contains(domain))
        })?;
        Some(UnmetConstraint::PodAntiAffinity(term.topology_key.clone()))
    }

    fn skews(&self, terms: &PodTerms, node: &NodeView) -> Option<UnmetConstraint> {
        terms.spread.iter().zip(&self.spread).find_map(|(of, (domains, least))| {
            let Some(domain) = node.labels.get(&of.topology_key) else {
                return Some(UnmetConstraint::TopologyKey(of.topology_key.clone()));
            };
            let pods = domains.get(domain).copied().unwrap_or_default() + i64::from(of.counts_itself);
            let is_skewed = pods - least > of.max_skew;
            is_skewed.then(|| UnmetConstraint::TopologySpread(of.topology_key.clone(), of.max_skew))
        })
    }
}

/// Whether the Pods of a node count for a topology spread constraint, and its domain does: it has the topology keys of
/// all constraints, and is one of the nodes that the policies leave.
fn is_counted(of: &Spread, all: &PodTerms, node: &NodeView, constraints: &SchedulingConstraints) -> bool {
    all.spread.iter().all(|other| node.labels.contains_key(&other.topology_key))
        && (!of.honors_affinity || node.is_selected_by(constraints))
        && (!of.honors_taints || node.untolerated(constraints).next().is_none())
}
