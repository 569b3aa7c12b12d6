//! Topology spread of Pods that have a node and are not bound to it yet.

use std::collections::BTreeMap;
use std::sync::Arc;

use dragoman_objects::Name;

use super::{Neighbourhood, Neighbours, Nodes, Seeker};
use crate::placement::terms::{PodKind, Spread};

/// Pods that ask for the same, have their nodes, and are judged by their topology spread once more when they are
/// bound there.
#[derive(Debug)]
pub struct Promised<'a> {
    /// What they ask for.
    pub asks: Seeker<'a>,
    /// Their nodes.
    pub on: Vec<&'a Name>,
}

impl Neighbours {
    /// Keeps a Pod of this kind out of the domains in which one more Pod of the kind would break the topology spread of
    /// promised Pods: kube-scheduler would not bind those.
    /// `beside`: as for [`Self::around`], with the promised Pods themselves.
    pub fn spare(
        &self,
        found: &mut Neighbourhood,
        kind: &PodKind,
        promised: &[Promised<'_>],
        beside: &[(Name, Arc<PodKind>)],
        nodes: &dyn Nodes,
    ) {
        for Promised { asks, on } in promised {
            let Some(terms) = asks.constraints.terms().filter(|terms| terms.spreads_also(kind)) else {
                continue;
            };
            let around = self.around(*asks, beside, nodes);
            let on = || on.iter().filter_map(|node| nodes.node(node));
            for (of, (counts, _)) in terms.spread.iter().zip(&around.spread).filter(|(of, _)| of.counts(kind))
            {
                let domains = on().filter_map(|node| node.labels.get(&of.topology_key));
                let full = domains.filter(|domain| is_full(of, counts, domain));
                found.spared.entry(of.topology_key.clone()).or_default().extend(full.cloned());
            }
        }
    }
}

/// Whether a Pod that is promised to a node of this domain, and counted there, has no place beside one more.
fn is_full(of: &Spread, counts: &BTreeMap<Name, i64>, domain: &Name) -> bool {
    let Some(all) = counts.get(domain) else { return false };
    let own = i64::from(of.counts_itself);
    // kube-scheduler counts the other Pods, and then adds the one that it binds.
    let others = all - own + 1;
    let elsewhere = counts.iter().filter(|(other, _)| *other != domain).map(|(_, pods)| *pods);
    let is_enough = counts.len() >= of.min_domains;
    let least = elsewhere.min().unwrap_or(others).min(others);
    let least = if is_enough { least } else { 0 };
    others + own - least > of.max_skew
}
