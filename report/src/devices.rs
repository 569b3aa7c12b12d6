//! The devices of a dump, for the claims of waiting Pods that have none yet.

use std::sync::Arc;

use dragoman_accounting::cluster::{ClaimName, Pod};
use dragoman_allocator::input::{Claim, ClaimObject, ClassObject, Cluster, SliceObject, TaintRuleObject};
use dragoman_allocator::{Gates, Options, Outcome, Overlay, PodClaims, Snapshot, allocate};
use serde::de::DeserializeOwned;

use crate::objects::{Object, Objects, Text};

/// The work that a Pod may cost on a node, in examined devices. There may be thousands of each.
const BUDGET: u64 = 10_000;

/// The devices, classes and claims of a dump.
pub(crate) struct Devices(Snapshot);

impl Devices {
    /// Returns the devices of a dump; `None` without a `DeviceClass`, because they say what a request
    /// means.
    ///
    /// # Errors
    /// An object does not decode; the text names it.
    pub(crate) fn of(objects: &Objects) -> Result<Option<Self>, String> {
        let mut cluster = Cluster::default();
        for (name, object) in objects.iter() {
            let taken = match object {
                Object::Node(node) => {
                    cluster.nodes.push(node.2.clone());
                    Ok(())
                }
                Object::Slice(_, text) => {
                    read::<SliceObject>(text).map(|slice| cluster.slices.push(slice.slice()))
                }
                Object::Class(text) => {
                    read::<ClassObject>(text).map(|class| cluster.classes.push(class.class()))
                }
                Object::TaintRule(text) => {
                    read::<TaintRuleObject>(text).map(|rule| cluster.taint_rules.push(rule.rule()))
                }
                Object::Claim(of) => read::<ClaimObject>(&of.text).map(|claim| {
                    // Its own may be that of another claim.
                    cluster.claims.push(Claim { uid: (*of.accounted.uid).into(), ..claim.claim() });
                }),
                Object::Pod(_) | Object::Footprint(..) | Object::Unreadable { .. } => Ok(()),
            };
            taken.map_err(|why| format!("{name}: {why}"))?;
        }
        if cluster.classes.is_empty() {
            return Ok(None);
        }
        Ok(Some(Self(Snapshot::default().with(cluster))))
    }

    /// The claims of a Pod, ready to be tried on nodes.
    pub(crate) fn claims(&self, pod: &Pod) -> PodClaims {
        let is_named = |claim: &&Arc<Claim>| {
            *claim.namespace == *pod.view.namespace
                && pod
                    .claims
                    .iter()
                    .any(|of| matches!(&of.claim, ClaimName::Named(name) if **name == *claim.name))
        };
        let claims = self.0.claims().filter(is_named).cloned().collect();
        PodClaims::new(&self.0, claims, Gates::default())
    }

    /// Returns why a node has no devices for the claims, in words; `None` if it has.
    pub(crate) fn against(&self, claims: &PodClaims, node: &str) -> Option<String> {
        let options = Options { budget: Some(BUDGET), ..Options::default() };
        match allocate(&self.0, &Overlay::default(), node, claims, options) {
            Outcome::Solution(_) => None,
            Outcome::Unsatisfiable(unsolved) => {
                let words = unsolved.explain().to_string();
                Some(words.lines().map(str::trim).collect::<Vec<_>>().join("; "))
            }
            Outcome::NodeError(error) => Some(error.to_string()),
            Outcome::PodError(error) => Some(error.to_string()),
            Outcome::BudgetSpent(_) | Outcome::Cancelled => {
                Some("it is unknown whether the node has the devices".to_owned())
            }
        }
    }
}

fn read<T: DeserializeOwned>(Text(text): &Text) -> Result<T, String> {
    serde_json::from_str(text).map_err(|why| why.to_string())
}

/// The claims of a Pod that have no devices yet, as `namespace/name`.
pub(crate) fn unallocated(pod: &Pod, is_allocated: impl Fn(&str) -> bool) -> Vec<String> {
    let namespace = &pod.view.namespace;
    let named = pod.claims.iter().filter_map(|of| match &of.claim {
        ClaimName::Named(name) if !is_allocated(name) => Some(format!("ResourceClaim {namespace}/{name}")),
        ClaimName::NotYet => Some("a ResourceClaim that is not created yet".to_owned()),
        _ => None,
    });
    named.collect()
}
