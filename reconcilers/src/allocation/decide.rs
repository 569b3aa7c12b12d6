//! The decision about one Pod: which node, which devices.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use dragoman_accounting::claim::allocation::{Class, DeviceResult, consumed};
use dragoman_accounting::cluster;
use dragoman_accounting::ledger::charge::PodCharge;
use dragoman_allocator::input::{Allocation as Devices, Claim};
use dragoman_allocator::{Gates, Options, Outcome, PodClaims, ShareIds, Snapshot, allocate};
use dragoman_crds::wire::Name;
use dragoman_machinery::controller::ObjectKey;

use super::decided::Decided;
use super::index::{Allocation, Named, PodFacts};
use super::rank::Order;
use super::reasons::{Reasons, Why};
use super::shapes::ShapeId;
use crate::gates::plan::{Account, account};

/// The work that a Pod may cost on a node, in examined devices: some tens of milliseconds.
pub(super) const BUDGET: u64 = 20_000;
/// The same for a Pod of a gang, all Pods of which are decided on in one go: some milliseconds.
pub(super) const GANG_BUDGET: u64 = 2_000;
/// How long a node is left out that the operator refused: doubled each time, up to the longest.
const REFUSED: (i64, i64) = (10, 300);

/// A node for a Pod, with the devices of each of its claims that had none.
#[derive(Debug)]
pub(super) struct Decision {
    pub(super) node: Name,
    /// By the uid of the claim.
    pub(super) allocations: Vec<(Name, Devices)>,
    pub(super) charge: PodCharge,
}

/// A Pod in question.
pub(super) struct Question<'a> {
    pub(super) key: &'a ObjectKey,
    pub(super) pod: &'a PodFacts,
    /// Its claims: those with an allocation keep it.
    pub(super) claims: Vec<Arc<Claim>>,
    /// The work that it may cost on a node, in examined devices.
    pub(super) budget: u64,
}

impl Question<'_> {
    /// Tells the Pods apart that a node may judge differently.
    pub(super) fn shape(&self) -> ShapeId {
        let mut hasher = DefaultHasher::new();
        let view = &self.pod.accounted.view;
        // A gang is decided on as a whole, with another budget: single Pods do not wait behind it.
        (&self.pod.group, self.budget).hash(&mut hasher);
        // Pods wait in line behind those of their shape: a tenant whose Pod waits in vain, because its
        // claims carry rejections that lie, holds up no other namespace.
        view.namespace.hash(&mut hasher);
        // In words, because not everything has a hash: the words are those of the same types.
        for claim in &self.claims {
            format!("{:?}", claim.devices).hash(&mut hasher);
            // A claim that has its devices confines the Pod, and may be charged already.
            if let Some(allocation) = &claim.allocation {
                (&claim.uid, format!("{allocation:?}")).hash(&mut hasher);
            }
        }
        format!("{:?}", self.pod.placement).hash(&mut hasher);
        format!("{:?}", (&view.containers, &view.init_containers, &view.pod_level, &view.overhead))
            .hash(&mut hasher);
        for claim in &self.pod.accounted.claims {
            claim.containers.len().hash(&mut hasher);
        }
        hasher.finish()
    }

    /// Tries a node.
    ///
    /// # Errors
    /// Why the node does not take the Pod.
    pub(super) fn try_node(
        &self,
        index: &Allocation,
        snapshot: &Snapshot,
        decided: &Decided,
        prepared: &PodClaims,
        node: &str,
        ids: &mut dyn ShareIds,
    ) -> Result<Decision, Why> {
        let site = index.site(node).ok_or_else(|| Why::Place("there is no such node".to_owned()))?;
        if let Some(obstacle) = site.obstacles(&self.pod.placement).first() {
            return Err(Why::Place(obstacle.to_string()));
        }
        let ledger =
            index.ledger.node(node).ok_or_else(|| Why::Room("the node has no account".to_owned()))?;
        let ledger = decided.assumed.over(ledger, node, Some(self.key));
        let options = Options { budget: Some(self.budget), ..Options::default() };
        let weight = |driver: &str, pool: &str, device: &str| index.ledger.weight(node, driver, pool, device);
        let mut refused = None;
        let mut outcome = allocate(snapshot, &decided.overlay, node, prepared, options);
        loop {
            let solution = match outcome {
                Outcome::Solution(solution) => solution,
                Outcome::Unsatisfiable(unsolved) => {
                    return Err(refused.unwrap_or_else(|| Why::Devices(Box::new(unsolved))));
                }
                Outcome::NodeError(error) => return Err(Why::Search(error.to_string())),
                Outcome::PodError(error) => return Err(Why::Search(error.to_string())),
                Outcome::BudgetSpent(_) | Outcome::Cancelled => {
                    let words = "the search for devices was given up: it is too expensive";
                    return Err(refused.unwrap_or_else(|| Why::Search(words.to_owned())));
                }
            };
            let allocations = solution.allocations(ids).map_err(|error| Why::Search(error.to_string()))?;
            let claims: Vec<cluster::Claim> =
                allocations.iter().filter_map(|(uid, devices)| self.allocated(uid, devices)).collect();
            let candidate = index.ledger.candidate_with(&self.pod.accounted, node, &claims);
            match account(&ledger, &candidate) {
                Account::Fits => {
                    let allocations = allocations.into_iter().map(|(uid, devices)| ((*uid).into(), devices));
                    let (node, charge) = (node.into(), candidate.pod);
                    return Ok(Decision { node, allocations: allocations.collect(), charge });
                }
                Account::Refused(why) | Account::Unknown(why) => drop(refused.get_or_insert(Why::Room(why))),
            }
            // Other devices may take less of the node.
            let left = self.budget.saturating_sub(solution.work());
            outcome = solution.refused(&weight, Options { budget: Some(left), ..options });
        }
    }

    /// A claim of the Pod as accounting would read it with these devices.
    fn allocated(&self, uid: &str, devices: &Devices) -> Option<cluster::Claim> {
        let claim = self.claims.iter().find(|claim| *claim.uid == *uid)?;
        let results = devices.devices.results.iter().map(|result| DeviceResult {
            request: (*result.request).into(),
            driver: (*result.driver).into(),
            pool: (*result.pool).into(),
            device: (*result.device).into(),
            consumed: consumed(result.consumed_capacity.iter().map(|(name, of)| (&**name, of.to_string()))),
            admin_access: result.admin_access == Some(true),
            class: Class::default(),
        });
        Some(cluster::Claim {
            namespace: (*claim.namespace).into(),
            name: (*claim.name).into(),
            uid: uid.into(),
            results: Some(results.collect()),
            unread: None,
        })
    }
}

/// How far a decision has come.
#[derive(Debug, Default)]
pub(super) struct Tried {
    reasons: Reasons,
}

/// The first node in the order of their ranks that takes a Pod. Returns `None` after a portion of the nodes: others may work, then it
/// goes on. The error is why nodes refused the Pod, for people.
pub(super) fn decide(
    question: &Question<'_>,
    index: &mut Allocation,
    decided: &Decided,
    (refused, order): (&BTreeSet<Name>, Order),
    tried: &mut Tried,
    ids: &mut dyn ShareIds,
) -> Option<Result<Decision, Vec<String>>> {
    let shape = question.shape();
    let at = index.changes.last();
    let (candidates, has_more) =
        index.candidates(shape, &question.pod.placement, (&decided.flying, order), refused);
    let snapshot = index.snapshot.clone();
    let prepared = PodClaims::new(&snapshot, question.claims.clone(), Gates::default());
    for node in &candidates {
        match question.try_node(index, &snapshot, decided, &prepared, node, ids) {
            Ok(decision) => return Some(Ok(decision)),
            Err(why) => {
                tried.reasons.put(node, why);
                index.shapes.refused(shape, node, at, &index.changes);
            }
        }
    }
    if has_more {
        return None;
    }
    // A Pod that no node was left to try for is refused as the one before it was.
    let reasons = tried.reasons.closest(index.shapes.reasons(shape), &question.claims);
    let told = reasons.iter().map(ToString::to_string).collect();
    index.shapes.told(shape, reasons);
    Some(Err(told))
}

/// The nodes that the operator refused for one of the claims a short while ago, and the seconds until the
/// first of them is tried again.
pub(super) fn left_out(claims: &[Named], now: i64) -> (BTreeSet<Name>, Option<u64>) {
    let (mut nodes, mut soonest) = (BTreeSet::new(), None);
    for (_, _, facts) in claims {
        for (number, last) in facts.rejections.iter().enumerate() {
            let before = facts.rejections.iter().take(number).filter(|of| of.node == last.node).count();
            let wait = (REFUSED.0 << before.min(10)).min(REFUSED.1);
            let since = last.time.parse::<jiff::Timestamp>().map_or(0, jiff::Timestamp::as_second);
            let until = since.min(now).saturating_add(wait);
            if until > now {
                nodes.insert(Name::from(&*last.node));
                let left = (until - now).unsigned_abs();
                soonest = Some(soonest.map_or(left, |soonest: u64| soonest.min(left)));
            }
        }
    }
    (nodes, soonest)
}
