//! The decision about one Pod: which node, which devices.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use dragoman_accounting::cluster;
use dragoman_accounting::ledger::charge::PodCharge;
use dragoman_allocator::input::Claim;
use dragoman_allocator::{Gates, Options, Outcome, Paused, PodClaims, Policy, ShareIds, Snapshot, allocate};
use dragoman_machinery::backoff::Backoff;
use dragoman_machinery::controller::ObjectKey;
use dragoman_machinery::times;
use dragoman_objects::{Allocation as Devices, Name};
use jiff::Timestamp;

use super::aside::{Ended, Long};
use super::in_flight::InFlightAllocations;
use super::index::{Allocation, NamedClaim, PodFacts};
use super::rank::Ranking;
use super::reasons::{Reasons, Why};
use super::shapes::EquivalenceClassId;
use super::surroundings::Surroundings;
use dragoman_cluster::{Account, account, with_allocation};

/// The work that a Pod may cost on a node while others wait, in examined devices: some tens of milliseconds.
const BUDGET: u64 = 20_000;
/// The same for a Pod of a gang, all Pods of which are decided on in one go: some milliseconds.
const GANG_BUDGET: u64 = 2_000;
/// The work after which others have a turn before the next node is tried: some milliseconds.
const TURN: u64 = 4_000;
/// Times for which a node is left out after the operator refused it. Each earlier refusal of the same node
/// doubles the time.
const REFUSED: Backoff = Backoff::new(Duration::from_secs(10), Duration::from_mins(5));

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
    /// Claims of the Pod. A claim that has an allocation keeps it.
    pub(super) claims: Vec<Arc<Claim>>,
    /// Whether it is decided on together with the Pods of its gang.
    pub(super) in_gang: bool,
    /// Tells apart the requirements of other Pods that concern this one.
    pub(super) repulsion: Option<u64>,
}

/// Facts for a try of any node.
struct Prepared {
    snapshot: Snapshot,
    claims: PodClaims,
    /// The drivers whose devices the Pod asks for; absent: any.
    drivers: Option<BTreeSet<Name>>,
    surroundings: Surroundings,
    /// The extended resources of the Pod behind which there is a class.
    backed: BTreeSet<Name>,
}

/// Nodes that take a Pod with another than its first alternatives, up to which a better one is looked for.
const MOST_CONSIDERED: usize = 64;
/// The preference of a first alternative.
const FIRST: u64 = 8;

/// A search for devices on a node.
struct Searched {
    outcome: Outcome,
    /// Why the node has refused the devices that were found so far, if any were.
    refused: Option<Why>,
}

/// Outcome of a try of one node for a Pod.
enum Tries {
    /// With the preference of the alternatives that were chosen; more is better.
    Takes(Decision, u64),
    Refuses(Why),
    /// The answer is not known yet. The reason is why the node has refused the devices that were found so
    /// far, if any.
    Searches(Paused, Option<Why>),
}

impl<'a> Question<'a> {
    /// About a Pod that is decided on alone.
    pub(super) fn new(
        key: &'a ObjectKey,
        pod: &'a PodFacts,
        claims: Vec<Arc<Claim>>,
        index: &Allocation,
        decided: &InFlightAllocations,
    ) -> Self {
        let repulsion = index.repulsion(key, pod, decided);
        Self { key, pod, claims, in_gang: false, repulsion }
    }

    /// Tells the Pods apart that a node may judge differently.
    pub(super) fn equivalence_class(&self) -> EquivalenceClassId {
        let mut hasher = DefaultHasher::new();
        let view = &self.pod.accounted.view;
        // A gang is decided on as a whole, with another budget: single Pods do not wait behind it.
        (&self.pod.group, self.in_gang, self.repulsion, &self.pod.aligned_by).hash(&mut hasher);
        // Pods wait in line behind those of their shape: a tenant whose Pod waits in vain, because its
        // claims carry rejections that lie, holds up no other namespace.
        view.namespace.hash(&mut hasher);
        for claim in &self.claims {
            claim.devices.hash(&mut hasher);
            // A claim that has its devices confines the Pod, and may be charged already.
            if let Some(allocation) = &claim.allocation {
                // The id of a share is another one with each decision.
                for of in &allocation.devices.results {
                    (&of.request, &of.driver, &of.pool, &of.device, &of.consumed_capacity).hash(&mut hasher);
                }
                (&claim.uid, &allocation.node_selector).hash(&mut hasher);
            }
        }
        self.pod.placement.hash(&mut hasher);
        (&view.containers, &view.init_containers, &view.pod_level, &view.overhead).hash(&mut hasher);
        for claim in &self.pod.accounted.claims {
            claim.containers.len().hash(&mut hasher);
        }
        hasher.finish()
    }

    /// Tries a node. Adds the work to `work`.
    fn try_node(
        &self,
        index: &Allocation,
        decided: &InFlightAllocations,
        Prepared { snapshot, claims, surroundings, backed, .. }: &Prepared,
        node: &str,
        ids: &mut dyn ShareIds,
        work: &mut u64,
    ) -> Tries {
        let Some(site) = index.node_view(node) else {
            return Tries::Refuses(Why::Place("there is no such node".to_owned()));
        };
        let site = surroundings.with_promised(site);
        let is_backed = |name: &str| backed.contains(name);
        let obstacle = site.obstacles(&self.pod.placement, &is_backed).into_iter().next();
        if let Some(obstacle) = obstacle.or_else(|| surroundings.obstacle(&site)) {
            return Tries::Refuses(Why::Place(obstacle.to_string()));
        }
        let outcome = allocate(snapshot, &decided.overlay, node, claims, limited(self.budget(), index));
        self.judge(index, decided, node, Searched { outcome, refused: None }, ids, work)
    }

    /// Reads what is the same for every node.
    fn prepare(&self, index: &Allocation, decided: &InFlightAllocations) -> Prepared {
        let snapshot = index.snapshot.clone();
        let claims =
            PodClaims::aligned(&snapshot, self.claims.clone(), Gates::SERVED, self.pod.aligned_by.clone());
        Prepared {
            backed: self.pod.placement.backed(|name| snapshot.is_backed(name)),
            drivers: claims.drivers(),
            claims,
            snapshot,
            surroundings: index.surroundings(self.key, self.pod, decided, self.repulsion.is_some()),
        }
    }

    /// The preference with which no node is better: each request has its first alternative.
    fn most_preferred(&self) -> u64 {
        let open = self.claims.iter().filter(|claim| claim.allocation.is_none());
        let requests = open.flat_map(|claim| &claim.devices.requests);
        requests.filter(|request| !request.first_available.is_empty()).map(|_| FIRST).sum()
    }

    fn budget(&self) -> u64 {
        if self.in_gang { GANG_BUDGET } else { BUDGET }
    }

    /// Looks whether a node takes the Pod with the devices that were found, and for others while it does not.
    fn judge(
        &self,
        index: &Allocation,
        decided: &InFlightAllocations,
        node: &str,
        Searched { mut outcome, mut refused }: Searched,
        ids: &mut dyn ShareIds,
        work: &mut u64,
    ) -> Tries {
        let Some(ledger) = index.accounts.ledger().node(node) else {
            return Tries::Refuses(Why::Room("the node has no account".to_owned()));
        };
        let ledger = decided.assumed.over(ledger, node, Some(self.key));
        let weight = |driver: &str, pool: &str, device: &str| {
            index.accounts.ledger().weight(node, driver, pool, device)
        };
        loop {
            let solution = match outcome {
                Outcome::Solution(solution) => solution,
                Outcome::Unsatisfiable(unsolved) => {
                    *work += unsolved.work();
                    return Tries::Refuses(refused.unwrap_or_else(|| Why::Devices(Box::new(unsolved))));
                }
                Outcome::NodeError(error) => {
                    *work += self.budget();
                    return Tries::Refuses(Why::Search(error.to_string()));
                }
                Outcome::PodError(error) => {
                    *work += self.budget();
                    return Tries::Refuses(Why::Search(error.to_string()));
                }
                Outcome::BudgetSpent(paused) => {
                    *work += paused.work();
                    return Tries::Searches(paused, refused);
                }
                Outcome::Cancelled => return Tries::Refuses(given_up(refused)),
            };
            let allocations = match solution.allocations(ids) {
                Ok(allocations) => allocations,
                Err(error) => return Tries::Refuses(Why::Search(error.to_string())),
            };
            let claims = self.with(index, &allocations);
            let candidate = index.accounts.ledger().candidate_with(&self.pod.accounted, node, &claims);
            match account(&ledger, &candidate) {
                Account::Fits => {
                    let allocations = allocations.into_iter().map(|(uid, devices)| ((*uid).into(), devices));
                    let (node, charge) = (node.into(), candidate.pod);
                    *work += solution.work();
                    let decision = Decision { node, allocations: allocations.collect(), charge };
                    return Tries::Takes(decision, solution.preference());
                }
                Account::Refused(why) | Account::OverBudget(why) | Account::Unknown(why) => {
                    refused.get_or_insert(Why::Room(why));
                }
            }
            // Other devices may take less of the node.
            let left = self.budget().saturating_sub(solution.work());
            outcome = solution.refused(&weight, limited(left, index));
        }
    }

    /// The claims of the Pod as they would be with these allocations, and with those that are decided on for another Pod of its gang.
    fn with(&self, index: &Allocation, allocations: &[(Arc<str>, Devices)]) -> Vec<cluster::Claim> {
        let with = |claim: &Arc<Claim>| {
            let given = allocations.iter().find(|(uid, _)| *uid == claim.uid).map(|(_, devices)| devices);
            let is_shown = index.snapshot.claim(&claim.uid).is_some_and(|known| known.allocation.is_some());
            let devices = given.or_else(|| claim.allocation.as_ref().filter(|_| !is_shown))?;
            Some(with_allocation(claim, devices))
        };
        self.claims.iter().filter_map(with).collect()
    }
}

/// So much work may be done while others wait.
fn limited(budget: u64, index: &Allocation) -> Options<'static> {
    let (choice, align) = (index.choice, index.align);
    Options { budget: Some(budget), spares_costly: true, choice, align, ..Options::default() }
}

/// Why a node is passed over on which the search has come to no end.
fn given_up(refused: Option<Why>) -> Why {
    refused
        .unwrap_or_else(|| Why::Search("the search for devices was given up: it is too expensive".to_owned()))
}

/// Progress of a decision about a Pod over several turns.
#[derive(Debug, Default)]
pub(super) struct Tried {
    reasons: Reasons,
    considered: Considered,
    /// A search that went on aside.
    pub(super) ended: Option<Ended>,
}

/// Nodes that take a Pod, and on which one of its requests has not its first alternative.
#[derive(Debug, Default)]
struct Considered {
    nodes: BTreeSet<Name>,
    /// The preference of the best one.
    best: Option<(u64, Name)>,
}

impl Considered {
    /// Takes a node in. The first of equally good nodes is the best.
    fn put(&mut self, node: &Name, preference: u64) {
        self.nodes.insert(node.clone());
        if self.best.as_ref().is_none_or(|(best, _)| *best < preference) {
            self.best = Some((preference, node.clone()));
        }
    }

    fn is_full(&self) -> bool {
        self.nodes.len() >= MOST_CONSIDERED
    }
}

/// Outcome of one turn of a decision.
#[derive(Debug)]
pub(super) enum Attempted {
    /// A node takes the Pod.
    Decided(Decision),
    /// No node does: the reasons, for people.
    Refused(Vec<String>),
    /// Others may work, then it goes on.
    More,
    /// Others may work, and this search goes on aside; it is handed back with the next turn.
    Aside(Box<Long>),
}

/// Looks for the first node in the order of their ranks that takes a Pod, a portion of the nodes at a time.
pub(super) fn decide(
    question: &Question<'_>,
    index: &mut Allocation,
    decided: &InFlightAllocations,
    refused: &BTreeSet<Name>,
    policy: Policy,
    tried: &mut Tried,
    ids: &mut dyn ShareIds,
) -> Attempted {
    let shape = question.equivalence_class();
    if let Some(turn) =
        tried.ended.take().and_then(|ended| go_on(question, shape, index, decided, ended, tried, ids))
    {
        return turn;
    }
    let at = index.changes.last();
    let prepared = question.prepare(index, decided);
    let (placement, left_out) = (&question.pod.placement, refused | &tried.considered.nodes);
    let (candidates, has_more) = index.candidates(
        shape,
        Ranking { pod: placement, drivers: prepared.drivers.as_ref(), flying: &decided.flying, policy },
        &left_out,
        prepared.surroundings.around(),
    );
    let most = question.most_preferred();
    let mut work = 0;
    for node in &candidates {
        // The turns of a gang are counted by portions.
        if work >= TURN && !question.in_gang {
            return Attempted::More;
        }
        match question.try_node(index, decided, &prepared, node, ids, &mut work) {
            Tries::Takes(decision, preference) if question.in_gang || preference >= most => {
                return Attempted::Decided(decision);
            }
            Tries::Takes(_, preference) => tried.considered.put(node, preference),
            // The Pods of a gang that were decided on before it would be undone for it, again and again.
            Tries::Searches(paused, refused) if !question.in_gang || paused.is_before_costly() => {
                return Attempted::Aside(Box::new(Long {
                    node: node.clone(),
                    at,
                    paused,
                    align: index.align,
                    refused,
                }));
            }
            Tries::Searches(_, refused) => tried.refuses(index, shape, node, at, given_up(refused)),
            Tries::Refuses(why) => tried.refuses(index, shape, node, at, why),
        }
    }
    if has_more && !tried.considered.is_full() {
        return Attempted::More;
    }
    if let Some((_, best)) = std::mem::take(&mut tried.considered).best {
        // It may have changed while others worked: all over again.
        return decide_on(question, index, decided, &best, ids).map_or(Attempted::More, Attempted::Decided);
    }
    // A Pod that no node was left to try for is refused as the one before it was.
    let reasons = tried.reasons.closest(index.shapes.reasons(shape), &question.claims);
    let told = reasons.iter().map(ToString::to_string).collect();
    index.shapes.told(shape, reasons);
    Attempted::Refused(told)
}

impl Tried {
    /// A node has refused the Pod as it was at the change `at`.
    fn refuses(&mut self, index: &mut Allocation, shape: EquivalenceClassId, node: &Name, at: u64, why: Why) {
        self.reasons.put(node, why);
        index.shapes.refused(shape, node, at, &index.changes);
    }
}

/// Goes on with a search that was aside. Returns `None` where the other nodes are next, or this one from the start.
fn go_on(
    question: &Question<'_>,
    shape: EquivalenceClassId,
    index: &mut Allocation,
    decided: &InFlightAllocations,
    Ended { node, at, outcome, refused, .. }: Ended,
    tried: &mut Tried,
    ids: &mut dyn ShareIds,
) -> Option<Attempted> {
    let became = match outcome {
        // Devices that were free when it began may be taken by now. What was evaluated is remembered.
        Outcome::Solution(solution)
            if solution.revision() != decided.overlay.over(&index.snapshot).revision() =>
        {
            return None;
        }
        Outcome::BudgetSpent(_) => Tries::Refuses(given_up(refused)),
        outcome => question.judge(index, decided, &node, Searched { outcome, refused }, ids, &mut 0),
    };
    match became {
        Tries::Takes(decision, _) => Some(Attempted::Decided(decision)),
        Tries::Searches(paused, refused) => {
            Some(Attempted::Aside(Box::new(Long { node, at, paused, align: index.align, refused })))
        }
        Tries::Refuses(why) => {
            tried.refuses(index, shape, &node, at, why);
            None
        }
    }
}

/// Decides about a Pod on this node; nothing where the node does not take it, or where that is not known soon.
pub(super) fn decide_on(
    question: &Question<'_>,
    index: &Allocation,
    decided: &InFlightAllocations,
    node: &str,
    ids: &mut dyn ShareIds,
) -> Option<Decision> {
    let prepared = question.prepare(index, decided);
    match question.try_node(index, decided, &prepared, node, ids, &mut 0) {
        Tries::Takes(decision, _) => Some(decision),
        Tries::Refuses(_) | Tries::Searches(..) => None,
    }
}

/// The nodes that the operator refused for one of the claims a short while ago, and the time until the first of
/// them is tried again.
pub(super) fn left_out(claims: &[NamedClaim], now: Timestamp) -> (BTreeSet<Name>, Option<Duration>) {
    let (mut nodes, mut soonest) = (BTreeSet::new(), None::<Duration>);
    for NamedClaim { facts, .. } in claims {
        for (number, last) in facts.rejections.iter().enumerate() {
            let before = facts.rejections.iter().take(number).filter(|of| of.node == last.node).count();
            let wait = REFUSED.pause(u32::try_from(before).unwrap_or(u32::MAX));
            let since = last.time.parse().unwrap_or(Timestamp::UNIX_EPOCH);
            let left = wait.saturating_sub(times::passed(since, now));
            if !left.is_zero() {
                // A rejection without a node is about the devices: the Pod rests, and no node is left out.
                if !last.node.is_empty() {
                    nodes.insert(Name::from(&*last.node));
                }
                soonest = Some(soonest.map_or(left, |soonest| soonest.min(left)));
            }
        }
    }
    (nodes, soonest)
}
