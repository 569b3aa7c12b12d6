//! Topology spread of Pods that have a node and are not bound to it yet.

use std::collections::BTreeMap;
use std::sync::Arc;

use dragoman_objects::Name;

use super::{Neighbourhood, Neighbours, Nodes, is_counted};
use crate::placement::terms::{PodKind, PodTerms, Spread};
use crate::placement::{NodeView, SchedulingConstraints};

/// Pods that spread others alike, have their nodes, and are judged by that once more when they are bound there.
#[derive(Debug)]
pub struct Promised<'a> {
    /// The requirements of one of them.
    pub asks: &'a SchedulingConstraints,
    /// Their nodes.
    pub on: Vec<&'a Name>,
}

/// The Pods of a domain that a constraint counts.
#[derive(Debug, Clone, Copy, Default)]
struct Count {
    bound: i64,
    promised: i64,
}

impl Neighbours {
    /// Keeps a Pod of this kind from the nodes on which it would break the topology spread of promised Pods: kube-scheduler
    /// would not bind those. `beside`: as for [`Self::around`], with the promised Pods themselves.
    pub fn spare(
        &self,
        found: &mut Neighbourhood,
        kind: &PodKind,
        promised: &[Promised<'_>],
        beside: &[(Name, Arc<PodKind>)],
        nodes: &dyn Nodes,
    ) {
        for Promised { asks, on } in promised {
            let Some(terms) = asks.terms().filter(|terms| terms.namespace == kind.namespace) else {
                continue;
            };
            for of in terms.spread_of(kind) {
                let known = nodes.nodes().filter(|node| is_counted(of, terms, node, asks));
                let known: BTreeMap<&Name, (&NodeView, &Name)> = known
                    .filter_map(|node| Some((&node.name, (node, node.labels.get(&of.topology_key)?))))
                    .collect();
                let counts = self.counted(of, terms, &known, beside);
                let domains = on.iter().filter_map(|node| Some(known.get(node)?.1));
                let full: Vec<&Name> = domains.filter(|domain| is_full(of, &counts, domain)).collect();
                let spared = known.values().filter(|(_, domain)| full.contains(domain));
                found.spared.extend(spared.map(|(node, _)| (node.name.clone(), of.topology_key.clone())));
            }
        }
    }

    /// Counts the Pods of each domain of these nodes, as a constraint does.
    fn counted<'a>(
        &self,
        of: &Spread,
        terms: &PodTerms,
        nodes: &BTreeMap<&'a Name, (&'a NodeView, &'a Name)>,
        beside: &[(Name, Arc<PodKind>)],
    ) -> BTreeMap<&'a Name, Count> {
        let mut counts: BTreeMap<&Name, Count> =
            nodes.values().map(|(_, domain)| (*domain, Count::default())).collect();
        let mut add = |node: &Name, bound: i64, promised: i64| {
            let count = nodes.get(node).and_then(|(_, domain)| counts.get_mut(domain));
            if let Some(count) = count {
                count.bound += bound;
                count.promised += promised;
            }
        };
        let placed = self.by_namespace.get(&terms.namespace).into_iter().flatten();
        for (_, on) in placed.filter(|(kind, _)| of.counts(kind)) {
            on.iter().for_each(|(node, pods)| add(node, (*pods).into(), 0));
        }
        let beside = beside.iter().filter(|(_, kind)| kind.namespace == terms.namespace && of.counts(kind));
        beside.for_each(|(node, _)| add(node, 0, 1));
        counts
    }
}

/// Whether a Pod that is promised to a node of this domain may find no place there beside one more: in its domain all Pods count, and
/// elsewhere those that are bound. The others may be bound later than it.
fn is_full(of: &Spread, counts: &BTreeMap<&Name, Count>, domain: &Name) -> bool {
    let Some(here) = counts.get(domain) else { return false };
    let own = i64::from(of.counts_itself);
    // kube-scheduler counts the other Pods, and then adds the one that it binds.
    let others = here.bound + here.promised - own + 1;
    let elsewhere = counts.iter().filter(|(other, _)| **other != domain).map(|(_, count)| count.bound);
    let is_enough = counts.len() >= of.min_domains;
    let least = elsewhere.min().unwrap_or(others).min(others);
    let least = if is_enough { least } else { 0 };
    others + own - least > of.max_skew
}
