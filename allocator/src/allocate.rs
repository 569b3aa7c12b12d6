//! One attempt to allocate the claims of a Pod on one node.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use dragoman_quantity::Decimal;

use crate::claims::PodClaims;
use crate::error::{NodeError, PodError};
use crate::explanation::{Unsolved, Why};
use crate::fit::Fit;
use crate::input::{Allocation, Claim, Name};
use crate::overlay::{Assumed, Overlay};
use crate::ranking::Part;
use crate::result::{self, ShareIds};
use crate::search::{Attempt, End, Question, Search, Stop};
use crate::snapshot::{Held, Snapshot};

/// How an attempt is made.
#[derive(Default, Clone, Copy)]
pub struct Options<'a> {
    /// What devices take from the node besides themselves.
    pub fit: Option<&'a dyn Fit>,
    /// How many devices may be looked at; nothing: as many as it takes.
    pub budget: Option<u64>,
    /// Set by somebody else to end the attempt.
    pub interrupt: Option<&'a AtomicBool>,
    /// Walks through every branch as Kubernetes does, also through those that are proved to
    /// hold no solution. Only good for finding out what is wrong in such a branch.
    pub every_branch: bool,
}

/// How an attempt ended.
#[derive(Debug)]
pub enum Outcome {
    /// All claims can be allocated.
    Solution(Solution),
    /// They cannot, on this node.
    None(Unsolved),
    /// They cannot on this node while a pool is as it is.
    NodeError(NodeError),
    /// They cannot anywhere until an object is mended.
    PodError(PodError),
    /// The budget was not enough; the search can be gone on with.
    BudgetSpent(Paused),
    /// It was interrupted.
    Cancelled,
}

/// A search that was put aside.
pub struct Paused {
    search: Box<Search>,
    /// The snapshot without what is assumed, and that.
    before: (Snapshot, Assumed),
}

/// Devices for all claims of a Pod.
pub struct Solution(Box<Search>);

impl fmt::Debug for Paused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Paused at revision {}", self.revision())
    }
}

impl fmt::Debug for Solution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Solution of {} devices", self.0.attempt.placed.len())
    }
}

/// Allocates the claims of a Pod on one node: the first solution in the order in which
/// Kubernetes looks (KEP-4381), or why there is none.
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
    let before = || (base.clone(), overlay.assumed().clone());
    let unsolved = |why: Why| Outcome::None(Unsolved::new(why, before()));
    let Some(node) = snapshot.node(node).cloned() else { return unsolved(Why::NoNode) };
    let is_elsewhere = |claim: &&Arc<Claim>| {
        let selector = claim.allocation.as_ref().and_then(|allocation| allocation.node_selector.as_ref());
        selector.is_some_and(|selector| selector.matches(&node) != Ok(true))
    };
    let elsewhere = prepared.fixed.iter().filter(is_elsewhere).map(|claim| claim.uid.clone());
    let elsewhere: Vec<Name> = elsewhere.collect();
    if !elsewhere.is_empty() {
        return unsolved(Why::Elsewhere(elsewhere));
    }
    let view = snapshot.view(&node, &prepared.gates);
    let question = Question { prepared, view, node, snapshot };
    if question.is_about_nothing() {
        return unsolved(Why::Searched(question));
    }
    let fit = options.fit.map(|fit| fit.open(&question.node, &question.prepared.fixed));
    match Search::new(Attempt::new(question, fit), options.every_branch) {
        Ok(search) => run(Box::new(search), before, options),
        Err(Stop::Pod(error)) => Outcome::PodError(error),
        Err(Stop::Node(error)) => Outcome::NodeError(error),
    }
}

fn run(
    mut search: Box<Search>,
    before: impl FnOnce() -> (Snapshot, Assumed),
    options: Options<'_>,
) -> Outcome {
    let end = search.run(options.budget.unwrap_or(u64::MAX), options.interrupt);
    if !matches!(end, End::BudgetSpent) {
        search.ended();
    }
    match end {
        End::Solved => match result::check(&search.attempt) {
            Ok(()) => Outcome::Solution(Solution(search)),
            Err(error) => Outcome::PodError(error),
        },
        End::Exhausted => {
            let question = search.attempt.into_question();
            let Some((key, why)) = question.view.invalid() else {
                return Outcome::None(Unsolved::new(Why::Searched(question), before()));
            };
            let (driver, pool, why) = (key.driver.clone(), key.pool.clone(), why.clone());
            Outcome::NodeError(NodeError::Invalid { driver, pool, why })
        }
        End::Failed(error) => Outcome::PodError(error),
        End::BudgetSpent => Outcome::BudgetSpent(Paused { search, before: before() }),
        End::Interrupted => Outcome::Cancelled,
    }
}

impl Paused {
    /// The snapshot that the search is about. With another one it means nothing any more.
    pub fn revision(&self) -> u64 {
        self.search.attempt.snapshot.revision()
    }

    /// Goes on with the search.
    pub fn resume(self, options: Options<'_>) -> Outcome {
        run(self.search, || self.before, options)
    }
}

impl Solution {
    /// The claims with what they get, by uid, in the order of the Pod's claims.
    ///
    /// # Errors
    /// None in a solution as it is given out; kept for whoever changes it.
    pub fn allocations(&self, ids: &mut dyn ShareIds) -> Result<Vec<(Name, Allocation)>, PodError> {
        let uids = self.0.attempt.prepared.wanted.iter().map(|claim| claim.claim.uid.clone());
        Ok(uids.zip(result::allocations(&self.0.attempt, ids)?).collect())
    }

    /// The sum over all requests with alternatives of 8 less the place of the chosen one, as
    /// kube-scheduler scores nodes.
    pub fn preference(&self) -> u64 {
        let attempt = &self.0.attempt;
        let mut sum = 0;
        for (claim, prepared) in attempt.prepared.wanted.iter().enumerate() {
            for (request, prepared) in prepared.requests.iter().enumerate() {
                let mut placed = attempt.placed.iter();
                let of_request = |placed: &&crate::search::Placed| {
                    placed.ask.claim == claim && placed.ask.request == request
                };
                let chosen = placed.find(of_request).filter(|_| prepared.first_available);
                sum += chosen.map_or(0, |placed| 8_u64.saturating_sub(placed.ask.sub as u64));
            }
        }
        sum
    }

    /// The devices of the node that the Pod's requests select, and how many of them somebody
    /// has, whole or in part, once the Pod has its own.
    pub fn devices(&self) -> Part {
        let attempt = &self.0.attempt;
        let (mut used, mut of) = (0_i64, 0_i64);
        for (number, device) in attempt.view.devices.iter().enumerate() {
            if attempt.is_asked_for(device) {
                let held = attempt.held(device).is_some_and(Held::at_all);
                of += 1;
                used += i64::from(held || !attempt.is_fresh(number));
            }
        }
        Part { used: Decimal::from(used), of: Decimal::from(of) }
    }

    /// How often the search had to go back on its way here.
    pub fn steps_back(&self) -> u64 {
        self.0.failures
    }

    /// The node.
    pub fn node(&self) -> &Name {
        &self.0.attempt.node.name
    }
}
