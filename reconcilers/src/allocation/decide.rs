//! The decision about one Pod: which node, which devices.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use dragoman_accounting::cluster;
use dragoman_accounting::ledger::charge::PodCharge;
use dragoman_allocator::input::{Allocation as Devices, Claim};
use dragoman_allocator::{Gates, Options, Outcome, Overlay, PodClaims, ShareIds, Snapshot, allocate};
use dragoman_crds::wire::{Name, ResourceClaim};
use dragoman_machinery::controller::ObjectKey;
use serde_json::json;

use super::index::{Allocation, PodFacts};
use super::shapes::ShapeId;
use crate::gates::assumed::Assumed;
use crate::gates::plan::{Account, account};

/// The work that a Pod may cost on a node, in examined devices: some tens of milliseconds.
const BUDGET: u64 = 20_000;

/// A node for a Pod, with the devices of each of its claims that had none.
#[derive(Debug)]
pub(super) struct Decision {
    pub(super) node: Name,
    /// By the uid of the claim.
    pub(super) allocations: Vec<(Name, Devices)>,
    pub(super) charge: PodCharge,
}

/// What is known beside the index: decisions that it does not show yet.
#[derive(Debug, Default)]
pub(super) struct Decided {
    pub(super) overlay: Overlay,
    pub(super) assumed: Assumed,
}

/// A Pod in question.
pub(super) struct Question<'a> {
    pub(super) key: &'a ObjectKey,
    pub(super) pod: &'a PodFacts,
    /// Its claims: those with an allocation keep it.
    pub(super) claims: Vec<Arc<Claim>>,
}

impl Question<'_> {
    /// Tells the Pods apart that a node may judge differently; absent for a Pod that is confined by
    /// devices which it has already.
    pub(super) fn shape(&self) -> Option<ShapeId> {
        if self.claims.iter().any(|claim| claim.allocation.is_some()) {
            return None;
        }
        let mut hasher = DefaultHasher::new();
        let view = &self.pod.accounted.view;
        // In words, because not everything has a hash: the words are those of the same types.
        for claim in &self.claims {
            format!("{:?}", claim.devices).hash(&mut hasher);
        }
        format!("{:?}", self.pod.placement).hash(&mut hasher);
        format!("{:?}", (&view.containers, &view.init_containers, &view.pod_level, &view.overhead))
            .hash(&mut hasher);
        for claim in &self.pod.accounted.claims {
            claim.containers.len().hash(&mut hasher);
        }
        Some(hasher.finish())
    }

    /// Tries a node.
    ///
    /// # Errors
    /// Why the node does not take the Pod, for people.
    pub(super) fn try_node(
        &self,
        index: &Allocation,
        snapshot: &Snapshot,
        decided: &Decided,
        prepared: &PodClaims,
        node: &str,
        ids: &mut dyn ShareIds,
    ) -> Result<Decision, String> {
        let site = index.site(node).ok_or("there is no such node")?;
        if let Some(obstacle) = site.obstacles(&self.pod.placement).first() {
            return Err(obstacle.to_string());
        }
        let options = Options { budget: Some(BUDGET), ..Options::default() };
        let solution = match allocate(snapshot, &decided.overlay, node, prepared, options) {
            Outcome::Solution(solution) => solution,
            Outcome::Unsatisfiable(unsolved) => {
                let words = unsolved.explain(None).to_string();
                let lines: Vec<&str> = words.lines().map(str::trim).collect();
                return Err(lines.join("; "));
            }
            Outcome::NodeError(error) => return Err(error.to_string()),
            Outcome::PodError(error) => return Err(error.to_string()),
            Outcome::BudgetSpent(_) | Outcome::Cancelled => {
                return Err("the search for devices was given up: it is too expensive".to_owned());
            }
        };
        let allocations = solution.allocations(ids).map_err(|error| error.to_string())?;
        let claims: Vec<cluster::Claim> =
            allocations.iter().filter_map(|(uid, devices)| self.allocated(uid, devices)).collect();
        let candidate = index.ledger.candidate_with(&self.pod.accounted, node, &claims);
        let ledger = index.ledger.node(node).ok_or("the node has no account")?;
        match account(&decided.assumed.over(ledger, node, self.key), &candidate) {
            Account::Fits => {
                let allocations = allocations.into_iter().map(|(uid, devices)| ((*uid).into(), devices));
                Ok(Decision { node: node.into(), allocations: allocations.collect(), charge: candidate.pod })
            }
            Account::Refused(why) | Account::Unknown(why) => Err(why),
        }
    }

    /// A claim of the Pod as accounting would read it with these devices.
    fn allocated(&self, uid: &str, devices: &Devices) -> Option<cluster::Claim> {
        let claim = self.claims.iter().find(|claim| *claim.uid == *uid)?;
        let (namespace, name) = (&claim.namespace, &claim.name);
        // Both speak the spelling of the API.
        let read = serde_json::from_value::<ResourceClaim>(json!({
            "metadata": {"namespace": namespace, "name": name, "uid": uid},
            "status": {"allocation": devices},
        }));
        read.ok()?.accounted().ok()
    }
}

/// How far a decision has come.
#[derive(Debug, Default)]
pub(super) struct Tried {
    /// The last node that was tried, for a Pod without a shape.
    last: Option<Name>,
    /// Why some nodes refused it.
    why: Vec<String>,
}

/// Nodes that are tried at once: some milliseconds.
const PORTION: usize = 32;
/// The nodes whose reason is told.
const TOLD: usize = 3;

/// The first node that takes a Pod. Returns `None` after a portion of the nodes: others may work, then it
/// goes on. The error is why nodes refused the Pod, for people.
pub(super) fn decide(
    question: &Question<'_>,
    index: &mut Allocation,
    decided: &Decided,
    refused: &BTreeSet<Name>,
    tried: &mut Tried,
    ids: &mut dyn ShareIds,
) -> Option<Result<Decision, Vec<String>>> {
    let shape = question.shape();
    let at = index.changes.last();
    let candidates = match shape {
        Some(shape) => {
            let all = index.node_names();
            index.shapes.candidates(shape, &index.changes, move || all)
        }
        None => {
            let mut all = index.node_names();
            all.retain(|node| tried.last.as_ref().is_none_or(|last| node > last));
            all.sort_unstable();
            all
        }
    };
    let snapshot = index.snapshot.clone();
    let prepared = PodClaims::new(&snapshot, question.claims.clone(), Gates::default());
    let candidates: Vec<Name> = candidates.into_iter().filter(|node| !refused.contains(node)).collect();
    for node in candidates.iter().take(PORTION) {
        match question.try_node(index, &snapshot, decided, &prepared, node, ids) {
            Ok(decision) => return Some(Ok(decision)),
            Err(said) => {
                if tried.why.len() < TOLD {
                    tried.why.push(format!("{node}: {said}"));
                }
                tried.last = Some(node.clone());
                if let Some(shape) = shape {
                    index.shapes.refused(shape, node, at, &index.changes, Some(format!("{node}: {said}")));
                }
            }
        }
    }
    if candidates.len() > PORTION {
        return None;
    }
    let told = std::mem::take(&mut tried.why);
    // A Pod that no node was left to try for is refused as the one before it was.
    Some(Err(match shape {
        Some(shape) if told.is_empty() => index.shapes.why(shape).to_vec(),
        _ => told,
    }))
}
