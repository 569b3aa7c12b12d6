//! One attempt to allocate the claims of a Pod on one node.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use dragoman_objects::{Allocation, Name};

use crate::align::{self, Alignment};
use crate::claims::PodClaims;
use crate::error::{NodeError, PodError};
use crate::explanation::{Before, Unsatisfiable, Why};
use crate::input::Claim;
use crate::overlay::Overlay;
use crate::result::{self, ShareIds};
use crate::search::{Attempt, End, Loss, Question, Search, Stopped};
use crate::snapshot::{Held, Snapshot, ViewDevice};

/// The order in which the devices of a node are tried.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// The order of Kubernetes: by driver, pool, slice, and position in the slice.
    #[default]
    FirstFit,
    /// The devices whose allocation leaves most available come first (docs/allocator.md 3.1).
    BestFit,
}

/// The parameters of an attempt.
#[derive(Default, Clone, Copy)]
pub struct Options<'a> {
    /// The work that the search may do, in examined devices. Evaluating selectors counts in the same
    /// unit: 64 units of the cost of CEL are one device. Without a budget it runs to its end.
    pub budget: Option<u64>,
    /// Evaluates no selector or derived attribute that may take more than half a millisecond for a device: the search pauses
    /// before it, and can be resumed without this. What was evaluated before is remembered, and counts.
    pub spares_costly: bool,
    /// The order in which devices are tried.
    pub choice: Choice,
    /// Whether devices that are close to each other are preferred.
    pub align: Alignment,
    /// A flag that ends the attempt once it is set.
    pub interrupt: Option<&'a Arc<AtomicBool>>,
    /// Walks through every branch as Kubernetes does, including branches that are proved to hold no
    /// solution. Its only use is to find the error that such a branch raises.
    pub every_branch: bool,
}

/// The result of an attempt.
#[derive(Debug)]
pub enum Outcome {
    /// All claims can be allocated.
    Solution(Solution),
    /// No solution exists on this node.
    Unsatisfiable(Unsatisfiable),
    /// The node cannot be used until a pool changes.
    NodeError(NodeError),
    /// The claims cannot be allocated on any node until an object is corrected.
    PodError(PodError),
    /// The budget is spent, or something costly comes next that the options spare. The search can be resumed.
    BudgetSpent(Paused),
    /// The interrupt flag was set.
    Cancelled,
}

/// A search that can be resumed.
pub struct Paused {
    search: Box<Search>,
    is_costly: bool,
    /// The snapshot without the assumed allocations, and these allocations.
    before: Before,
}

/// Devices for all claims of a Pod; with the snapshot without the assumed allocations, and these allocations.
pub struct Solution {
    search: Box<Search>,
    before: Before,
    /// The solution that was found first, where this one is aligned and that one is not.
    plain: Option<Box<Self>>,
}

impl fmt::Debug for Paused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Paused at revision {}", self.revision())
    }
}

impl fmt::Debug for Solution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Solution of {} devices", self.search.attempt.placed.len())
    }
}

/// Allocates the claims of a Pod on one node. Returns the first solution in the order of [`Options::choice`], by default that
/// in which Kubernetes looks (KEP-4381), or the reason why there is none.
///
/// ```
/// use dragoman_allocator::scenario::Scenario;
/// use dragoman_allocator::{Options, Outcome, Overlay, Snapshot, allocate};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let scenario: Scenario = serde_json::from_str(
///     r#"{
///         "nodes": [{"metadata": {"name": "n"}}],
///         "resourceSlices": [{"metadata": {"name": "s"}, "spec": {
///             "driver": "gpu.example.com", "nodeName": "n", "devices": [{"name": "gpu-0"}],
///             "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1}}}],
///         "deviceClasses": [{"metadata": {"name": "gpu"}}],
///         "resourceClaims": [{"metadata": {"namespace": "ns", "name": "c", "uid": "u"}, "spec": {
///             "devices": {"requests": [{"name": "r", "exactly": {
///                 "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}}]}}}],
///         "allocate": ["ns/c"], "candidates": ["n"]
///     }"#,
/// )?;
/// let snapshot = scenario.snapshot(&Snapshot::default())?;
/// let claims = scenario.claims(&snapshot)?;
/// let outcome = allocate(&snapshot, &Overlay::default(), "n", &claims, Options::default());
/// let Outcome::Solution(solution) = outcome else { return Err("there is a free device".into()) };
/// let allocations = solution.allocations(&mut || "no device is shared".into())?;
/// assert_eq!(&*allocations[0].0, "u");
/// # Ok(())
/// # }
/// ```
pub fn allocate(
    snapshot: &Snapshot,
    overlay: &Overlay,
    node: &str,
    claims: &PodClaims,
    options: Options<'_>,
) -> Outcome {
    let base = snapshot;
    let snapshot = overlay.over(base);
    let prepared = claims.in_snapshot(&snapshot);
    let before = || Before { base: base.clone(), assumed: overlay.assumed().clone() };
    let unsolved = |why: Why| Outcome::Unsatisfiable(Unsatisfiable::new(why, before(), 0));
    let Some(node) = snapshot.node(node).cloned() else { return unsolved(Why::NoNode) };
    let is_elsewhere = |claim: &&Arc<Claim>| {
        let selector = claim.allocation.as_ref().and_then(|allocation| allocation.node_selector.as_ref());
        selector.is_some_and(|selector| selector.matches(&node.name, &node.labels) != Ok(true))
    };
    let elsewhere = prepared.fixed.iter().filter(is_elsewhere).cloned();
    let elsewhere: Vec<Arc<Claim>> = elsewhere.collect();
    if !elsewhere.is_empty() {
        return unsolved(Why::Elsewhere(elsewhere));
    }
    let view = snapshot.view(&node, &prepared.gates);
    let question = Question { prepared, view, node, snapshot };
    if question.is_about_nothing() {
        return unsolved(Why::Searched(question));
    }
    let search = Search::new(Attempt::new(question), options.every_branch, options.choice);
    aligned(run(Box::new(search), before, options), 0, options)
}

/// The work that looking for aligned devices may cost on a node, in examined devices: about a millisecond.
const TO_ALIGN: u64 = 500;

/// Looks for devices that are closer to each other than those that were found. Of two solutions, one with better alternatives of the
/// requests goes before. `before`: the work that was done before this part of the search.
fn aligned(found: Outcome, before: u64, options: Options<'_>) -> Outcome {
    let plain = match found {
        Outcome::Solution(plain) if options.align == Alignment::Preferred => plain,
        found => return found,
    };
    let attempt = &plain.search.attempt;
    let having = align::having(attempt);
    let known = align::closeness(attempt, &having);
    let done = plain.work().saturating_sub(before);
    let most = options.budget.map_or(TO_ALIGN, |budget| budget.saturating_sub(done).min(TO_ALIGN));
    let (mut left, mut best): (u64, Option<([bool; 2], Box<Search>)>) = (most, None);
    for place in align::better_places(attempt, &having) {
        if left == 0 {
            break;
        }
        let is_a_root = place.is_a_root();
        let question = plain.search.in_plain_order.clone().unwrap_or_else(|| attempt.question());
        let mut confined = Attempt::new(question);
        confined.confined = Some(place);
        // Pruning does not know the place: every branch is looked at, as far as the work goes.
        let mut search = Box::new(Search::new(confined, true, options.choice));
        search.attempt.pace.spare(options.spares_costly);
        let end = search.run(left, options.interrupt);
        left = left.saturating_sub(search.attempt.pace.work().max(1));
        let is_solved = matches!(end, End::Solved) && result::check(&search.attempt).is_ok();
        let close = align::closeness(&search.attempt, &having);
        let is_better = close > best.as_ref().map_or(known, |(best, _)| *best);
        if !is_solved || !is_better || search.attempt.preference() < plain.preference() {
            continue;
        }
        search.ended(true);
        best = Some((close, search));
        // No other place is closer: roots come first, and the next ones are as good.
        if close == [true, true] || !is_a_root {
            break;
        }
    }
    let spent = most - left;
    let Some((_, search)) = best else {
        attempt.pace.did(spent);
        return Outcome::Solution(plain);
    };
    let own = search.attempt.pace.work();
    search.attempt.pace.did(plain.work() + spent.saturating_sub(own));
    let before = plain.before.clone();
    Outcome::Solution(Solution { search, before, plain: Some(Box::new(plain)) })
}

fn run(mut search: Box<Search>, before: impl FnOnce() -> Before, options: Options<'_>) -> Outcome {
    search.attempt.pace.spare(options.spares_costly);
    let work_before = search.attempt.pace.work();
    let end = search.run(options.budget.unwrap_or(u64::MAX), options.interrupt);
    if !matches!(end, End::Stopped(_)) {
        search.ended(matches!(end, End::Solved));
    }
    let end = match end {
        End::Solved => result::check(&search.attempt).map_or_else(End::Failed, |()| End::Solved),
        end => end,
    };
    match end {
        End::Solved => Outcome::Solution(Solution { search, before: before(), plain: None }),
        End::Exhausted => {
            let work = search.attempt.pace.work();
            let plain = search.in_plain_order.take();
            let question = plain.unwrap_or_else(|| search.attempt.into_question());
            let Some((key, why)) = question.view.invalid() else {
                return Outcome::Unsatisfiable(Unsatisfiable::new(Why::Searched(question), before(), work));
            };
            let (driver, pool, why) = (key.driver.clone(), key.pool.clone(), why.clone());
            Outcome::NodeError(NodeError::Invalid { driver, pool, why })
        }
        // A selector may fail on a device that first fit does not look at: first fit decides, with the rest of the budget.
        End::Failed(error) => match search.in_plain_order.take() {
            Some(question) => {
                let mut again = Search::new(Attempt::new(question), options.every_branch, Choice::FirstFit);
                again.attempt.pace = std::mem::take(&mut search.attempt.pace);
                let done = again.attempt.pace.work() - work_before;
                let budget = options.budget.map(|budget| budget.saturating_sub(done));
                run(Box::new(again), before, Options { budget, ..options })
            }
            None => Outcome::PodError(error),
        },
        End::Unusable(error) => Outcome::NodeError(error),
        End::Stopped(stopped @ (Stopped::Budget | Stopped::Costly)) => {
            let is_costly = stopped == Stopped::Costly;
            Outcome::BudgetSpent(Paused { search, is_costly, before: before() })
        }
        End::Stopped(Stopped::Interrupt) => Outcome::Cancelled,
    }
}

impl Paused {
    /// Returns the revision of the snapshot that the search runs on, with the assumed allocations.
    /// The result of the search is valid for that revision only.
    pub fn revision(&self) -> u64 {
        self.search.attempt.snapshot.revision()
    }

    /// Whether the search has stopped before a costly expression, and not at the end of its budget.
    pub fn is_before_costly(&self) -> bool {
        self.is_costly
    }

    /// Returns the work that the search has done, in examined devices.
    pub fn work(&self) -> u64 {
        self.search.attempt.pace.work()
    }

    /// Returns the cost of CEL of all selectors that the search has evaluated. They are remembered: another search does not pay
    /// for them.
    pub fn evaluated(&self) -> u64 {
        self.search.attempt.pace.cost()
    }

    /// Resumes the search.
    pub fn resume(self, options: Options<'_>) -> Outcome {
        let before = self.work();
        aligned(run(self.search, || self.before, options), before, options)
    }
}

impl Solution {
    /// Returns the allocation of every claim, by uid, in the order of the Pod's claims.
    ///
    /// # Errors
    /// A node selector does not have exactly one term. [`allocate`] checks that before it returns a
    /// solution, so this does not occur.
    pub fn allocations(&self, ids: &mut dyn ShareIds) -> Result<Vec<(Name, Allocation)>, PodError> {
        let uids = self.search.attempt.prepared.wanted.iter().map(|claim| claim.claim.uid.clone());
        Ok(uids.zip(result::allocations(&self.search.attempt, ids)?).collect())
    }

    /// Returns the sum of 8 − the index of the chosen sub-request, over all requests with
    /// `firstAvailable`. kube-scheduler scores nodes the same way.
    pub fn preference(&self) -> u64 {
        self.search.attempt.preference()
    }

    /// Returns the number of devices of the node that the Pod's requests select, and that nothing uses, not even in part, with this
    /// solution.
    pub fn free_devices(&self) -> i64 {
        let attempt = &self.search.attempt;
        let devices = attempt.view.devices.iter().enumerate();
        let is_free = |(number, device): &(usize, &Arc<ViewDevice>)| {
            let is_held = attempt.held(device).is_some_and(Held::at_all);
            attempt.is_asked_for(device) && !is_held && attempt.is_fresh(*number)
        };
        devices.filter(is_free).count().try_into().unwrap_or(i64::MAX)
    }

    /// Returns the devices that best fit has chosen, each as driver, pool and name, with the reason. Empty where every order is as good.
    /// Devices with admin access are left out: they take nothing away.
    pub fn losses(&self) -> Vec<([Name; 3], Loss)> {
        let attempt = &self.search.attempt;
        let of = |placed: &crate::search::Placed| {
            let device = attempt.view.devices.get(placed.device).filter(|_| !attempt.is_admin(placed.ask))?;
            let key = &attempt.view.pools.get(device.pool)?.key;
            let names = [key.driver.clone(), key.pool.clone(), device.device.name.clone()];
            Some((names, *attempt.losses.get(placed.device)?))
        };
        attempt.placed.iter().filter_map(of).collect()
    }

    /// Looks for the next solution, where this one is refused for something that the search does not know, like the cpus that the
    /// devices take from their node. `weight` returns the same number for devices (driver, pool, name) that are the same in that
    /// respect, and none for a device that is like no other: of devices that neither it nor the search can tell apart, one is tried.
    pub fn refused(self, weight: &dyn Fn(&str, &str, &str) -> Option<u64>, options: Options<'_>) -> Outcome {
        let Self { mut search, before, plain } = self;
        if let Some(plain) = plain {
            // Those that were found first, whatever they are beside. Other aligned ones may be as many as there are combinations.
            plain.search.attempt.pace.did(search.attempt.pace.work().saturating_sub(plain.work()));
            return Outcome::Solution(*plain);
        }
        search.passes_over(weight);
        run(search, || before, options)
    }

    /// Returns the closest place that all devices share which say where they are, and its value: a PCIe root or a NUMA node. None where
    /// fewer than two devices do.
    pub fn place(&self) -> Option<(&'static str, String)> {
        align::shared_place(&self.search.attempt)
    }

    /// Returns the work that the search has done, in examined devices.
    pub fn work(&self) -> u64 {
        self.search.attempt.pace.work()
    }

    /// Returns the revision of the snapshot with the assumed allocations that the solution is valid for.
    pub fn revision(&self) -> u64 {
        self.search.attempt.snapshot.revision()
    }

    /// Returns how often the search went back.
    pub fn steps_back(&self) -> u64 {
        self.search.failures
    }

    /// The node of the solution.
    pub fn node(&self) -> &Name {
        &self.search.attempt.node.name
    }
}
