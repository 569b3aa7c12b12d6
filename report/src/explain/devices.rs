//! Which nodes have the devices: the answer of the reference allocator on the objects that were read.

use std::collections::BTreeSet;
use std::sync::Arc;

use dragoman_allocator::input::Claim;
use dragoman_allocator::{
    Blocked, Cause, Detail, Gates, Object, OfRequest, Options, Outcome, Overlay, PodClaims, Reason, Solution,
    allocate,
};
use dragoman_cluster::placement::{Neighbourhood, SchedulingConstraints, UnmetConstraint, VolumeReach};
use dragoman_cluster::with_allocation;
use dragoman_crds::protocol::aligned_by;
use dragoman_objects::{Name, Pod, ResourceClaim, Tolerated};

use super::device::UNREADABLE;
use super::{Verdict, count};
use crate::cost::Refused;
use crate::facts::Facts;

/// The reason where devices are free.
pub(super) const FREE: &str = "DevicesFree";
/// The work that the search may do on a node, in examined devices: a person waits.
const BUDGET: u64 = 200_000;
/// The nodes on which the search may be given up: a claim that is made to be expensive is so on every node.
const GIVEN_UP: usize = 5;
/// The free nodes that are told: one is an answer. One more is looked for.
const FREE_NODES: usize = 3;
/// The nodes whose words are told: of many people read the few that come closest.
const TOLD: usize = 3;

/// Claims that are allocated together, and the Pod that wants them.
pub(super) struct Asked<'a> {
    pub(super) pod: Option<(&'a Pod, &'a SchedulingConstraints)>,
    /// As `namespace/name`.
    pub(super) claims: Vec<String>,
}

/// Results of the search, node by node.
#[derive(Default)]
struct Heard {
    /// The meaning of the Pods of all nodes for the Pod, where they were read.
    around: Option<Neighbourhood>,
    /// The nodes that can use the volumes of the Pod, where claims for them were read.
    reach: Option<VolumeReach>,
    free: Vec<Name>,
    given_up: usize,
    /// Nodes that do not take the Pod, whatever devices they have, with the first reason.
    elsewhere: Vec<(Name, UnmetConstraint)>,
    /// Nodes without the devices, and how many devices each has for the claims at all.
    lacking: Vec<(Name, usize, String)>,
    /// Causes against devices of requests that find too few, on any node.
    causes: BTreeSet<Cause>,
    /// Nodes that have the devices, and why their amounts keep the Pod from them.
    refused: Vec<(Name, Refused)>,
    /// Whether some node has enough devices for every request once other claims give theirs back, as far as that is known.
    is_enough_anywhere: bool,
}

/// Says whether any node has the devices, and if not, why not.
pub(super) fn verdict(facts: &Facts, asked: &Asked<'_>) -> Verdict {
    if let Some(plural) =
        ["resourceslices", "resourceclaims", "nodes"].into_iter().find(|plural| facts.lacks(plural))
    {
        let sentence = format!("whether a node has the devices cannot be told without {plural}");
        return Verdict::blocked(
            "Unknown",
            sentence,
            "get the right to read them, or let an administrator ask",
        );
    }
    let supply = &facts.supply;
    if supply.nodes.is_empty() {
        let (sentence, advice) = if facts.from_files {
            ("the files have no Node", "print the nodes too: `kubectl get nodes --output yaml`")
        } else {
            ("the cluster has no node", "add nodes")
        };
        return Verdict::blocked("NoNodes", sentence.to_owned(), advice);
    }
    if !supply.has_slices {
        return Verdict::blocked(
            "NoDevices",
            "no driver publishes devices in this cluster".to_owned(),
            "install a DRA driver, and look whether its Pods run on the nodes",
        );
    }
    let is_wanted =
        |claim: &&Arc<Claim>| asked.claims.contains(&format!("{}/{}", claim.namespace, claim.name));
    let wanted = supply.claims.iter().filter(is_wanted).cloned().collect();
    let aligned_by = asked.pod.and_then(|(pod, _)| aligned_by(&pod.metadata));
    let claims = PodClaims::aligned(&supply.snapshot, wanted, Gates::SERVED, aligned_by);
    let around = asked.pod.and_then(|(pod, constraints)| facts.around(pod, constraints));
    let reach = asked.pod.and_then(|(pod, constraints)| facts.volumes.reach(pod, constraints));
    let mut heard = Heard { around, reach, ..Heard::default() };
    for node in &supply.nodes {
        if let Some(verdict) = heard.ask(facts, node, asked, &claims) {
            return verdict;
        }
        if heard.free.len() > FREE_NODES || heard.given_up >= GIVEN_UP {
            break;
        }
    }
    heard.verdict(supply.nodes.len())
}

impl Heard {
    /// Asks one node; an error of the claim itself is the verdict.
    fn ask(&mut self, facts: &Facts, node: &Name, asked: &Asked<'_>, claims: &PodClaims) -> Option<Verdict> {
        let site = asked.pod.zip(facts.sites.get(&**node));
        let obstacle = site.and_then(|((pod, constraints), site)| {
            let first = facts.obstacles(site, pod, constraints).into_iter().next();
            let of_pods = first.or_else(|| self.around.as_ref()?.obstacle(site));
            of_pods.or_else(|| self.reach.as_ref()?.obstacle(site))
        });
        if let Some(obstacle) = obstacle {
            self.elsewhere.push((node.clone(), obstacle));
            return None;
        }
        let outcome = match search(facts, node, asked, claims) {
            Ok(outcome) => outcome,
            Err(refused) => {
                self.refused.push((node.clone(), refused));
                return None;
            }
        };
        match outcome {
            Outcome::Solution(_) => self.free.push(node.clone()),
            Outcome::NodeError(error) => {
                self.causes.insert(Cause::PoolInvalid);
                self.lacking.push((node.clone(), 0, error.to_string()));
            }
            Outcome::PodError(error) => {
                // What follows the first line points into the expression.
                let sentence = error.to_string().lines().next().unwrap_or_default().to_owned();
                return Some(Verdict::blocked("RequestInvalid", sentence, correction(&error.object)));
            }
            Outcome::Unsatisfiable(unsatisfiable) => {
                // Words cost more than the attempt: of nodes that have nothing one is enough.
                if self.lacking.len() < 64 {
                    let explained = unsatisfiable.explain();
                    self.is_enough_anywhere |= is_enough(&explained.requests);
                    let suit = explained.requests.iter().map(|request| request.suit).sum();
                    let short = explained.requests.iter().filter(|request| request.suit < request.wanted);
                    self.causes.extend(short.flat_map(|request| &request.reasons).map(cause_of));
                    // Each request would find enough for itself.
                    if explained.requests.iter().all(|request| request.suit >= request.wanted) {
                        self.causes.insert(Cause::Combination);
                    }
                    let words = explained.to_string();
                    let words: Vec<&str> = words.lines().map(str::trim).collect();
                    self.lacking.push((node.clone(), suit, words.join("; ")));
                } else {
                    self.is_enough_anywhere = true;
                    self.lacking.push((node.clone(), 0, String::new()));
                }
            }
            Outcome::BudgetSpent(_) | Outcome::Cancelled => self.given_up += 1,
        }
        None
    }

    fn verdict(mut self, nodes: usize) -> Verdict {
        if !self.free.is_empty() {
            return Verdict::blocked(FREE, format!("the devices are free on {}", self.free_nodes()), "");
        }
        if self.given_up > 0 {
            return Verdict::blocked(
                "SearchGivenUp",
                format!(
                    "whether a node has the devices cannot be told: the search is too expensive on {} of {nodes} nodes",
                    self.given_up
                ),
                "ask for fewer devices at once, or with fewer constraints",
            );
        }
        if let Some(verdict) = self.refused.first().map(|(node, refused)| too_much(node, refused)) {
            return verdict;
        }
        if self.lacking.is_empty() {
            let words: Vec<String> =
                self.elsewhere.iter().take(TOLD).map(|(node, why)| format!("{node}: {why}")).collect();
            return Verdict::blocked(
                "NoNodeTakesThePod",
                format!(
                    "none of {} takes the Pod, whatever devices they have: {}",
                    count(nodes, "node", "nodes"),
                    words.join("; ")
                ),
                suits(&self.elsewhere.iter().map(|(_, why)| why).collect::<Vec<_>>()),
            );
        }
        self.lacking.sort_by(|a, b| (std::cmp::Reverse(a.1), &a.0).cmp(&(std::cmp::Reverse(b.1), &b.0)));
        let mut words: Vec<String> = Vec::new();
        let told = self.lacking.iter().filter(|(.., why)| !why.is_empty()).take(TOLD);
        words.extend(told.map(|(node, _, why)| format!("{node}: {why}")));
        let aside = match self.elsewhere.len() {
            0 => String::new(),
            1 => " (1 other does not take the Pod)".to_owned(),
            others => format!(" ({others} others do not take the Pod)"),
        };
        let tried = count(self.lacking.len(), "node", "nodes");
        Verdict::blocked(
            "NoDevicesFree",
            format!("no node has the devices; tried {tried}{aside}: {}", words.join("; ")),
            remedy(&self.causes, self.is_enough_anywhere),
        )
    }

    /// The nodes with free devices, in words.
    fn free_nodes(&self) -> String {
        let told: Vec<&str> = self.free.iter().take(FREE_NODES).map(|node| &**node).collect();
        match told.as_slice() {
            [only] => format!("node {only}"),
            all if self.free.len() > FREE_NODES => format!("nodes {} and others", all.join(", ")),
            [all @ .., last] => format!("nodes {} and {last}", all.join(", ")),
            [] => String::new(),
        }
    }
}

/// Looks for devices on a node. An error is the reason why the Pod may have none of those that were found.
fn search(facts: &Facts, node: &Name, asked: &Asked<'_>, claims: &PodClaims) -> Result<Outcome, Refused> {
    let limited = |work: u64| Options { budget: Some(BUDGET.saturating_sub(work)), ..Options::default() };
    let weight = |driver: &str, pool: &str, device: &str| facts.costs.weight(node, driver, pool, device);
    let pod = asked.pod.map(|(pod, _)| pod);
    let mut refused = None;
    let mut outcome = allocate(&facts.supply.snapshot, &Overlay::default(), node, claims, limited(0));
    while let Outcome::Solution(solution) = outcome {
        let Some(why) = pod.and_then(|pod| refusal(facts, node, pod, &solution)) else {
            return Ok(Outcome::Solution(solution));
        };
        refused.get_or_insert(why);
        // Other devices may take less.
        let left = limited(solution.work());
        outcome = solution.refused(&weight, left);
    }
    match (outcome, refused) {
        (Outcome::Unsatisfiable(_), Some(refused)) => Err(refused),
        // A search that has not ended says nothing of the devices that it has not seen.
        (outcome, _) => Ok(outcome),
    }
}

/// The reason why the amounts of these devices, and of those that the Pod has already, keep it from the node, if they do.
fn refusal(facts: &Facts, node: &Name, pod: &Pod, solution: &Solution) -> Option<Refused> {
    if !facts.wants_costs() {
        return None;
    }
    // Nothing is written: a share needs an identity, and any will do.
    let found = solution.allocations(&mut || Name::from("share")).ok()?;
    let found = found.iter().filter_map(|(uid, of)| {
        let claim = facts.supply.claims.iter().find(|claim| claim.uid == *uid)?;
        Some(with_allocation(claim, of))
    });
    let mut claims: Vec<_> = found.collect();
    let names = pod.spec.resource_claims.iter().filter_map(|entry| super::pod::claim_name(pod, entry));
    let had = names.filter_map(|name| {
        let claim = facts.claims.get(&(pod.metadata.namespace.to_string(), name.to_owned()))?;
        claim.status.allocation.is_some().then(|| claim.into())
    });
    claims.extend(had);
    facts.costs.of(pod, node, &claims).refused()
}

/// The amounts of the devices are more than the Pod may use, or are not known.
pub(super) fn too_much(node: &str, refused: &Refused) -> Verdict {
    match refused {
        Refused::Budget(why) => Verdict::blocked(
            "OverBudget",
            format!(
                "its Pod-level resources are too small for its containers and its claims on node {node}: {why}"
            ),
            "raise spec.resources where the Pod comes from: the budget is for its containers and its claims together",
        ),
        Refused::Unknown(why) => Verdict::blocked(
            "CostUnknown",
            format!("what its devices take of node {node} is not known: {why}"),
            "correct the object that is named; the gate of the Pod is not opened before",
        ),
    }
}

/// The advice where nodes do not take a Pod, for these reasons.
pub(super) fn suits(reasons: &[&UnmetConstraint]) -> &'static str {
    let is_down = |why: &UnmetConstraint| {
        matches!(why, UnmetConstraint::Taint(taint)
            if ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"].contains(&&*taint.key))
    };
    if reasons.iter().all(|why| matches!(why, UnmetConstraint::Unschedulable)) {
        "`kubectl uncordon` lets a node take Pods again"
    } else if reasons.iter().all(|why| is_down(why)) {
        "look at the kubelets of these nodes"
    } else if reasons.iter().all(|why| matches!(why, UnmetConstraint::Volume(..))) {
        "look at the PersistentVolumeClaim of the Pod: a volume is bound to it, or made for it, on the nodes that can use it"
    } else if reasons.iter().all(|why| why.is_about_pods()) {
        "wait until the Pods that are in its way end, add nodes in other domains, or change the affinity or topology spread of the Pods"
    } else {
        "change the node selector, affinity or tolerations of the Pod, or the taints of the nodes"
    }
}

/// The object to correct, and its owner.
pub(super) fn correction(object: &Object) -> String {
    match object {
        Object::Claim(..) => "correct the claim, or the template that it comes from".to_owned(),
        Object::Class(name) => format!(
            "an administrator corrects DeviceClass {name}; where a newer API server has stored it, a newer version of Dragoman reads it"
        ),
        Object::Slice(name) => format!("the driver publishes ResourceSlice {name} anew; look at its log"),
    }
}

/// The advice where no node has as many devices as a request wants, free or held.
const TOO_FEW: &str = "no node has as many such devices, and none would if all of them were free: ask for less, or add nodes that have more";

/// Whether a node has enough devices for every request, were those free that other claims hold.
fn is_enough(requests: &[OfRequest]) -> bool {
    let held = |request: &OfRequest| -> usize {
        let reasons = request.reasons.iter().filter(|reason| HELD.contains(&cause_of(reason)));
        reasons.map(|reason| reason.devices).sum()
    };
    // One alternative is enough, and the others say nothing.
    let is_alternative = |request: &OfRequest| request.request.contains('/');
    requests.iter().all(|request| is_alternative(request) || request.suit + held(request) >= request.wanted)
}

/// Returns the cause behind a reason. Where it is not known what is left of counters, the end of a claim does not help.
fn cause_of(reason: &Reason) -> Cause {
    match reason.detail {
        Some(Detail::Blocked(Blocked::Uncounted { .. })) => Cause::Unreadable,
        _ => reason.cause,
    }
}

/// Causes that end with other claims.
const HELD: [Cause; 5] =
    [Cause::Taken, Cause::InFlight, Cause::DedicatedOrShared, Cause::CompatibilityGroup, Cause::Counters];

/// The advice where devices are lacking, by the causes against those that there are.
fn remedy(causes: &BTreeSet<Cause>, is_enough_anywhere: bool) -> &'static str {
    let any = |of: &[Cause]| of.iter().any(|cause| causes.contains(cause));
    if any(&HELD) && !is_enough_anywhere {
        TOO_FEW
    } else if any(&HELD) {
        "wait until a claim that holds one ends (`kubectl dra devices` says which, `kubectl dra reclaim --all-namespaces` which hold \
         devices for nothing), ask for less, or add nodes"
    } else if any(&[Cause::Tainted]) {
        "tolerate the taint in the request, or have the taint taken away: by the driver, or with its DeviceTaintRule"
    } else if any(&[Cause::Unreadable]) {
        UNREADABLE
    } else if any(&[Cause::PoolIncomplete, Cause::PoolInvalid]) {
        "the driver has to publish its devices anew; look at its log"
    } else if any(&[Cause::Capacity]) {
        "ask for less of the capacity, or add nodes with larger devices; shares of other claims come back when these end"
    } else if any(&[Cause::Selector, Cause::NotOfClass]) {
        "compare the selectors of the request and of its class with what the driver publishes (`kubectl get resourceslices --output yaml`), or add nodes with such devices"
    } else if any(&[Cause::Alignment]) {
        "add nodes with such devices, or change the annotation dragoman.dev/aligned-by of the Pod"
    } else if any(&[Cause::Combination, Cause::Constraint]) {
        "loosen the constraints, ask for less, or add nodes; devices of other claims come back when these end"
    } else {
        "ask for less, or add nodes with such devices"
    }
}

/// The devices of an allocation that no slice of the newest generation of their pool lists.
pub(super) fn lost<'a>(facts: &'a Facts, claim: &'a ResourceClaim) -> impl Iterator<Item = String> + 'a {
    let results = match &claim.status.allocation {
        Some(Tolerated::Read(allocation)) if facts.supply.has_slices && !facts.lacks("resourceslices") => {
            allocation.devices.results.as_slice()
        }
        _ => &[],
    };
    results
        .iter()
        .filter(|of| facts.supply.is_whole(&of.driver, &of.pool))
        .filter(|of| facts.supply.place(&of.driver, &of.pool, &of.device).is_none())
        .map(|of| format!("{}/{}/{}", of.driver, of.pool, of.device))
}

/// The slice and the node of a device that a claim holds, in words.
pub(super) fn place(facts: &Facts, driver: &str, pool: &str, device: &str) -> String {
    match facts.supply.place(driver, pool, device) {
        None if !facts.supply.has_slices => "slices not read".to_owned(),
        place => in_words(place),
    }
}

/// A slice and a node, in words; `None` where no slice lists the device.
pub(super) fn in_words(place: Option<(&str, Option<&str>)>) -> String {
    match place {
        Some((slice, Some(node))) => format!("slice {slice}, node {node}"),
        Some((slice, None)) => format!("slice {slice}, of several nodes"),
        None => "in no slice any more".to_owned(),
    }
}
