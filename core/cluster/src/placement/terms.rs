//! Requirements of a Pod on the Pods near it: required Pod affinity and anti-affinity, and topology spread. The rules
//! are those of the plugins `InterPodAffinity` and `PodTopologySpread` of kube-scheduler; preferences are not read.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use dragoman_objects::{
    Affinity, LabelSelector, Name, NodeSelectorRequirement, Pod, PodAffinity, PodAffinityTerm, Tolerated,
    TopologySpreadConstraint,
};

/// Parts of selectors up to which the terms of a Pod are kept and evaluated. A tenant writes them, and every search
/// pays for them.
const MOST_PARTS: usize = 128;
/// Labels of a Pod up to which they are kept. Nothing else bounds their number.
const MOST_LABELS: usize = 64;
/// The label that every namespace has: its name.
const NAME_OF_NAMESPACE: &str = "kubernetes.io/metadata.name";

/// A Pod as the Pods near it see it. The Pods of a controller are mostly of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PodKind {
    pub(super) namespace: Name,
    /// In the order of their keys.
    labels: Box<[(Name, Name)]>,
    /// Whether it is being deleted: it does not count for topology spread any more.
    pub(super) is_ending: bool,
    /// The required anti-affinity of the Pod, which holds for Pods that come later as well.
    pub(super) repels: Box<[Term]>,
}

/// A required term of affinity or anti-affinity.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Term {
    pub(super) topology_key: Name,
    selector: Option<LabelSelector>,
    namespaces: Box<[Name]>,
    namespace_selector: Option<LabelSelector>,
}

/// A topology spread constraint with `whenUnsatisfiable: DoNotSchedule`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Spread {
    pub(super) topology_key: Name,
    pub(super) max_skew: i64,
    pub(super) min_domains: usize,
    pub(super) honors_affinity: bool,
    pub(super) honors_taints: bool,
    /// Whether the Pod itself is one of those that are spread.
    pub(super) counts_itself: bool,
    selector: Option<LabelSelector>,
}

/// The requirements of a Pod. They say nothing about its other labels, so that Pods which differ in those only are
/// judged alike.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PodTerms {
    pub(super) namespace: Name,
    pub(super) affinity: Box<[Term]>,
    /// Whether the Pod meets its affinity itself: it may be the first of those that it asks for.
    pub(super) is_near_itself: bool,
    pub(super) anti_affinity: Box<[Term]>,
    pub(super) spread: Box<[Spread]>,
}

impl PodKind {
    /// Returns the kind of a Pod. Labels beyond [`MOST_LABELS`], and anti-affinity beyond [`MOST_PARTS`], are left out.
    pub fn of(pod: &Pod) -> Self {
        let meta = &pod.metadata;
        let labels = meta.labels.iter().take(MOST_LABELS);
        let repels = terms(&pod.spec.affinity.pod_anti_affinity, &meta.namespace);
        Self {
            namespace: meta.namespace.clone(),
            labels: labels.map(|(key, value)| (key.clone(), value.clone())).collect(),
            is_ending: meta.deleting,
            repels: repels.unwrap_or_default().into(),
        }
    }

    /// Whether it keeps other Pods away.
    pub fn repels(&self) -> bool {
        !self.repels.is_empty()
    }

    /// Whether its anti-affinity is about Pods of its own namespace only.
    pub(super) fn repels_here(&self) -> bool {
        self.repels.iter().all(|term| term.is_only_of(&self.namespace))
    }

    /// The value of a label.
    fn label(&self, key: &str) -> Option<&Name> {
        let found = self.labels.binary_search_by(|(known, _)| (**known).cmp(key)).ok()?;
        self.labels.get(found).map(|(_, value)| value)
    }

    /// The same with names that are shared with other Pods.
    pub(super) fn with_shared_names(mut self, mut share: impl FnMut(&mut Name)) -> Self {
        share(&mut self.namespace);
        for (key, value) in &mut self.labels {
            share(key);
            share(value);
        }
        self
    }
}

impl Term {
    /// Reads a term of a Pod of this namespace; `None` where only the labels of namespaces decide.
    fn of(term: &PodAffinityTerm, namespace: &Name) -> Option<Self> {
        let selector = term.namespace_selector.clone();
        let is_known = |of: &LabelSelector| of.keys().all(|key| &**key == NAME_OF_NAMESPACE);
        if !selector.as_ref().is_none_or(is_known) {
            return None;
        }
        let mut namespaces = term.namespaces.clone();
        if namespaces.is_empty() && selector.is_none() {
            namespaces.push(namespace.clone());
        }
        Some(Self {
            topology_key: term.topology_key.clone(),
            selector: term.label_selector.clone(),
            namespaces: namespaces.into(),
            namespace_selector: selector,
        })
    }

    /// Whether a Pod is one of those that the term names.
    pub(super) fn matches(&self, pod: &PodKind) -> bool {
        let label = |key: &str| (key == NAME_OF_NAMESPACE).then_some(&pod.namespace);
        let is_there = self.namespaces.contains(&pod.namespace)
            || self.namespace_selector.as_ref().is_some_and(|selector| selector.matches(label));
        is_there && self.selector.as_ref().is_some_and(|selector| selector.matches(|key| pod.label(key)))
    }

    /// Whether the term is about Pods of this namespace only.
    fn is_only_of(&self, namespace: &Name) -> bool {
        self.namespace_selector.is_none() && self.namespaces.iter().all(|known| known == namespace)
    }

    fn parts(&self) -> usize {
        let selectors = [&self.selector, &self.namespace_selector];
        let of_selectors: usize = selectors.into_iter().flatten().map(LabelSelector::len).sum();
        1 + self.namespaces.len() + of_selectors
    }
}

impl Spread {
    fn of(constraint: &TopologySpreadConstraint, pod: &PodKind) -> Self {
        let mut selector = constraint.label_selector.clone();
        for key in &constraint.match_label_keys {
            if let (Some(selector), Some(value)) = (&mut selector, pod.label(key)) {
                let (key, operator, values) = (key.clone(), "In".into(), vec![value.clone()]);
                selector.match_expressions.push(NodeSelectorRequirement { key, operator, values });
            }
        }
        let is_set = |policy: &Option<Name>, to: &str| policy.as_deref() == Some(to);
        let counts_itself = selector.as_ref().is_some_and(|of| of.matches(|key| pod.label(key)));
        Self {
            topology_key: constraint.topology_key.clone(),
            max_skew: constraint.max_skew.into(),
            min_domains: constraint.min_domains.and_then(|least| least.try_into().ok()).unwrap_or(1),
            honors_affinity: !is_set(&constraint.node_affinity_policy, "Ignore"),
            honors_taints: is_set(&constraint.node_taints_policy, "Honor"),
            counts_itself,
            selector,
        }
    }

    /// Whether a Pod of the same namespace is one of those that are spread.
    pub(super) fn counts(&self, pod: &PodKind) -> bool {
        !pod.is_ending && self.selector.as_ref().is_some_and(|of| of.matches(|key| pod.label(key)))
    }

    fn parts(&self) -> usize {
        1 + self.selector.as_ref().map_or(0, LabelSelector::len)
    }
}

impl PodTerms {
    /// Whether there is topology spread among them.
    pub fn spreads(&self) -> bool {
        !self.spread.is_empty()
    }

    /// The constraints that count Pods of this kind.
    pub(super) fn spread_of(&self, kind: &PodKind) -> impl Iterator<Item = &Spread> {
        self.spread.iter().filter(|of| self.namespace == kind.namespace && of.counts(kind))
    }

    /// Tells apart the constraints that count Pods of this kind; nothing where none does.
    pub fn spread_also(&self, kind: &PodKind) -> Option<u64> {
        let mut hasher = DefaultHasher::new();
        let counting: Vec<&Spread> = self.spread_of(kind).collect();
        counting.hash(&mut hasher);
        (!counting.is_empty()).then(|| hasher.finish())
    }

    /// Whether Pods of other namespaces count.
    pub fn are_about_others(&self) -> bool {
        let mut terms = self.affinity.iter().chain(&self.anti_affinity);
        !terms.all(|term| term.is_only_of(&self.namespace))
    }
}

/// The requirements of a Pod on the Pods near it, and those that are not looked at, by their names.
pub(super) fn of(pod: &Pod) -> (Option<PodTerms>, Vec<&'static str>) {
    let (kind, spec) = (PodKind::of(pod), &pod.spec);
    let Affinity { pod_affinity, pod_anti_affinity, .. } = &spec.affinity;
    let (mut not_looked_at, mut parts) = (Vec::new(), 0);
    let mut read = |of: &Tolerated<PodAffinity>, what| {
        let terms = terms(of, &kind.namespace).filter(|terms| {
            parts += terms.iter().map(Term::parts).sum::<usize>();
            parts <= MOST_PARTS
        });
        terms.unwrap_or_else(|| {
            not_looked_at.push(what);
            Vec::new()
        })
    };
    let affinity = read(pod_affinity, "Pod affinity");
    let anti_affinity = read(pod_anti_affinity, "Pod anti-affinity");
    let constraints = &spec.topology_spread_constraints;
    let hard = constraints.items().iter().filter(|of| &*of.when_unsatisfiable == "DoNotSchedule");
    let mut spread: Vec<Spread> = hard.map(|constraint| Spread::of(constraint, &kind)).collect();
    if constraints.is_unreadable() || spread.iter().map(Spread::parts).sum::<usize>() > MOST_PARTS {
        not_looked_at.push("topology spread");
        spread.clear();
    }
    let is_any = !(affinity.is_empty() && anti_affinity.is_empty() && spread.is_empty());
    let terms = PodTerms {
        is_near_itself: affinity.iter().all(|term| term.matches(&kind)),
        namespace: kind.namespace,
        affinity: affinity.into(),
        anti_affinity: anti_affinity.into(),
        spread: spread.into(),
    };
    (is_any.then_some(terms), not_looked_at)
}

/// The required terms; `None` where one cannot be read or decided, or where there are too many.
fn terms(affinity: &Tolerated<PodAffinity>, namespace: &Name) -> Option<Vec<Term>> {
    let Tolerated::Read(affinity) = affinity else { return None };
    let required = &affinity.required_during_scheduling_ignored_during_execution;
    if required.len() > MOST_PARTS {
        return None;
    }
    let terms: Option<Vec<Term>> = required.iter().map(|term| Term::of(term, namespace)).collect();
    terms.filter(|terms| terms.iter().map(Term::parts).sum::<usize>() <= MOST_PARTS)
}
