//! The explanation why a node has no solution. It is computed on demand.

mod reasons;
mod words;

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::sync::Arc;

use dragoman_objects::Name;
use serde::Serialize;

use crate::allocate::Choice;
use crate::cause::{Cause, Refusal};
use crate::claims::{Asked, PreparedRequest};
use crate::input::Claim;
use crate::overlay::Assumed;
use crate::search::{Ask, Attempt, Blocked, Question, RequestAt, Search, Watch};
use crate::snapshot::{NodeView, PoolStatus, Snapshot};

use self::reasons::Reasons;
pub use self::reasons::{Detail, Reason};

/// The number of devices that the search may examine to find the blocker at its deepest point.
const BUDGET: u64 = 10_000;

/// The cost of selectors, in examined devices, that an explanation for tenants may have: it is made while others wait.
const FOR_TENANTS: u64 = 5_000;

/// A node on which there is no solution.
pub struct Unsatisfiable {
    why: Why,
    /// The snapshot without the assumed allocations.
    base: Snapshot,
    assumed: Assumed,
    work: u64,
}

/// The reason why there is no solution.
pub(crate) enum Why {
    /// The node does not exist.
    NoNode,
    /// Claims that are allocated already and cannot be used on the node.
    Elsewhere(Vec<Arc<Claim>>),
    /// The search found no solution, or the node has no free device.
    Searched(Question),
}

impl fmt::Debug for Unsatisfiable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Unsatisfiable")
    }
}

/// The explanation why a node has no solution.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// Claims of the Pod, as `namespace/name`, whose allocation excludes the node. If there are any, nothing
    /// else is examined.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub elsewhere: Vec<Name>,
    /// Every request, and each of its sub-requests.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<OfRequest>,
    /// The blocker at the point where most devices were placed. Present if every request alone
    /// could be satisfied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub combination: Option<Combination>,
}

/// The devices for one request or sub-request, as if it were the only one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OfRequest {
    /// The claim, as `namespace/name`.
    pub claim: Name,
    /// `request` or `request/subrequest`.
    pub request: Name,
    /// The number of devices that the request wants.
    pub wanted: usize,
    /// The number of suitable devices.
    pub suit: usize,
    /// Reasons against devices, the most frequent first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<Reason>,
    /// The pools of the node.
    pub pools: Vec<OfPool>,
}

/// The devices of a pool, each counted once, under the first cause against it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OfPool {
    /// The driver.
    pub driver: Name,
    /// The pool.
    pub pool: Name,
    /// The number of devices that the pool has for the node: the sum of all causes.
    pub devices: usize,
    /// The number of devices under each cause.
    pub causes: BTreeMap<Cause, usize>,
    /// Claims, as `namespace/name`, whose allocation is only assumed, and the number of devices that each holds.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub in_flight: BTreeMap<Name, usize>,
}

/// The blocker at the point where most devices were placed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Combination {
    /// The claim, as `namespace/name`.
    pub claim: Name,
    /// The request that found no device there: `request` or `request/subrequest`.
    pub request: Name,
    /// The blocker.
    pub blocked: Blocked,
}

impl Explanation {
    /// With numbers in place of the names of the claims of the Pod, and without the names of others.
    fn numbered(mut self, claims: &[Arc<Claim>]) -> Self {
        let number = |name: &Name| {
            let at = claims.iter().position(|claim| named(claim) == *name);
            at.map_or_else(|| Name::from("?"), |at| (at + 1).to_string().into())
        };
        self.elsewhere = self.elsewhere.iter().map(number).collect();
        for request in &mut self.requests {
            request.claim = number(&request.claim);
            request.pools.iter_mut().for_each(|pool| pool.in_flight.clear());
            let held = |reason: &&mut Reason| matches!(reason.detail, Some(Detail::Held { .. }));
            request.reasons.iter_mut().filter(held).for_each(|reason| reason.detail = None);
        }
        if let Some(combination) = &mut self.combination {
            combination.claim = number(&combination.claim);
        }
        self
    }
}

impl OfRequest {
    fn is_enough(&self) -> bool {
        self.suit >= self.wanted.max(1)
    }
}

/// Readers of an explanation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reader {
    /// May read everything, and asked for it.
    Administrator,
    /// The author of a Pod, for whom it is made unasked.
    Tenant,
}

/// Snapshot and assumed allocations on which a search was made.
#[derive(Debug, Clone)]
pub(crate) struct Before {
    pub(crate) base: Snapshot,
    pub(crate) assumed: Assumed,
}

impl Unsatisfiable {
    pub(crate) fn new(why: Why, Before { base, assumed }: Before, work: u64) -> Self {
        Self { why, base, assumed, work }
    }

    /// Returns the work that the search has done, in examined devices.
    pub fn work(&self) -> u64 {
        self.work
    }

    /// Computes the explanation.
    pub fn explain(&self) -> Explanation {
        self.explained(Reader::Administrator)
    }

    /// Computes what the author of a Pod with these claims may read, and what is the same for every Pod that
    /// asks for the same: it names no claim that holds devices, and numbers the claims of the Pod from 1.
    /// It costs less, because no claim of others is looked at.
    pub fn explain_to_tenants(&self, claims: &[Arc<Claim>]) -> Explanation {
        self.explained(Reader::Tenant).numbered(claims)
    }

    fn explained(&self, reader: Reader) -> Explanation {
        let searched = match &self.why {
            Why::NoNode => return Explanation::default(),
            Why::Elsewhere(claims) => {
                let elsewhere = claims.iter().map(|claim| named(claim)).collect();
                return Explanation { elsewhere, ..Explanation::default() };
            }
            Why::Searched(question) => question,
        };
        let attempt = Attempt::new(searched.clone());
        if reader == Reader::Tenant {
            attempt.pace.spare(true);
            attempt.pace.limit(FOR_TENANTS, None);
        }
        let mut search = Search::new(attempt, true, Choice::FirstFit);
        // These errors are another outcome, so they do not occur here.
        if search.prepare().is_err() {
            return Explanation::default();
        }
        let mut suits = HashSet::new();
        let mut requests = Vec::new();
        let mut each_enough = true;
        for (claim, prepared) in searched.prepared.wanted.iter().enumerate() {
            for (request, prepared_request) in prepared.requests.iter().enumerate() {
                let of_sub = |(sub, asked): (usize, &Asked)| {
                    let ask = Ask { claim, request, sub };
                    let wanted = search.count(ask);
                    let at = RequestAt { ask, request: prepared_request, asked };
                    self.alone(&mut search.attempt, at, wanted, &mut suits, reader)
                };
                let subs: Vec<OfRequest> = prepared_request.asked.iter().enumerate().map(of_sub).collect();
                each_enough &= subs.iter().any(OfRequest::is_enough);
                requests.extend(subs);
            }
        }
        search.watch = Some(Watch::new(suits));
        let combination = if each_enough { combination(search) } else { None };
        Explanation { elsewhere: Vec::new(), requests, combination }
    }

    /// Counts the devices for a request as if it were the only one.
    fn alone(
        &self,
        attempt: &mut Attempt,
        at @ RequestAt { ask, request, asked }: RequestAt<'_>,
        wanted: usize,
        suits: &mut HashSet<(Ask, usize)>,
        reader: Reader,
    ) -> OfRequest {
        let view = attempt.view.clone();
        let mut pools = of_pools(&view);
        let (mut suitable, mut reasons) =
            (Vec::new(), Reasons::new((reader == Reader::Administrator).then_some(&self.base), &view));
        for (number, device) in view.devices.iter().enumerate() {
            let Some(of_pool) = pools.get_mut(device.pool) else { continue };
            attempt.pace.passes_over();
            let mut cause = attempt.against(ask, request, asked, number);
            if cause == Some(Cause::Taken)
                && let Some(holder) = self.in_flight(&of_pool.driver, &of_pool.pool, &device.device.name)
            {
                cause = Some(Cause::InFlight);
                *of_pool.in_flight.entry(self.named(holder)).or_default() += 1;
                reasons.add(Cause::InFlight, Some(Detail::Held { claims: [self.named(holder)].into() }));
            } else if let Some(cause) = cause {
                let detail = reasons.detail(attempt, at, number, cause);
                reasons.add(cause, detail);
            }
            match cause {
                Some(cause) => *of_pool.causes.entry(cause).or_default() += 1,
                None => suitable.push((number, device.pool)),
            }
        }
        let suit = suitable.len();
        let cause = if suit >= wanted.max(1) { Cause::Combination } else { Cause::TooFew };
        for (number, pool) in suitable {
            suits.insert((ask, number));
            if let Some(of_pool) = pools.get_mut(pool) {
                *of_pool.causes.entry(cause).or_default() += 1;
            }
        }
        for pool in view.pools.iter().filter(|pool| pool.status != PoolStatus::Usable) {
            reasons.of_pool(pool);
        }
        let claim = attempt.prepared.wanted.get(ask.claim).map(|claim| named(&claim.claim));
        let (claim, request) = (claim.unwrap_or_default(), asked.name.clone());
        OfRequest { claim, request, wanted, suit, reasons: reasons.sorted(), pools }
    }

    /// Returns `namespace/name` of a claim; its uid if it is not known.
    fn named(&self, uid: &Name) -> Name {
        self.base.claim(uid).map_or_else(|| uid.clone(), |claim| named(claim))
    }

    /// Returns the claim that holds the device by an assumed allocation.
    fn in_flight(&self, driver: &str, pool: &str, device: &str) -> Option<&Name> {
        let mut assumed = self.assumed.iter().filter(|(uid, _)| {
            // A claim that has its allocation in the snapshot is not in flight.
            self.base.claim(uid).is_none_or(|claim| claim.allocation.is_none())
        });
        let holder = assumed.find(|(_, allocation)| {
            let mut results = allocation.devices.results.iter();
            results.any(|result| {
                (&*result.driver, &*result.pool, &*result.device) == (driver, pool, device)
                    && result.admin_access != Some(true)
            })
        });
        holder.map(|(uid, _)| uid)
    }
}

/// Returns the pools of a node. Of a pool that is not usable every device counts under that cause.
fn of_pools(view: &NodeView) -> Vec<OfPool> {
    view.pools
        .iter()
        .map(|pool| {
            let devices = pool.slices.iter().map(|slice| slice.devices.len()).sum();
            let all = match &pool.status {
                PoolStatus::Usable => None,
                PoolStatus::Incomplete => Some((Cause::PoolIncomplete, devices)),
                PoolStatus::Invalid(_) => Some((Cause::PoolInvalid, devices)),
            };
            OfPool {
                driver: pool.key.driver.clone(),
                pool: pool.key.pool.clone(),
                devices,
                causes: all.into_iter().filter(|_| devices > 0).collect(),
                in_flight: BTreeMap::new(),
            }
        })
        .collect()
}

fn named(claim: &Claim) -> Name {
    format!("{}/{}", claim.namespace, claim.name).into()
}

fn combination(mut search: Search) -> Option<Combination> {
    search.run(BUDGET, None);
    let (ask, blocked) = search.watch.as_ref()?.deepest()?;
    let claim = search.attempt.prepared.wanted.get(ask.claim)?;
    let request = claim.requests.get(ask.request)?.asked.get(ask.sub)?.name.clone();
    Some(Combination { claim: named(&claim.claim), request, blocked: blocked.clone() })
}

impl Attempt {
    /// Returns the first cause against a device for a request, in the order of the checks.
    fn against(
        &mut self,
        ask: Ask,
        request: &PreparedRequest,
        asked: &Asked,
        number: usize,
    ) -> Option<Cause> {
        if let Some(cause) = self.in_use(ask, asked.admin, number) {
            return Some(cause);
        }
        let view = self.view.clone();
        let device = view.devices.get(number)?;
        let placed = self
            .selected(ask, asked, device)
            .and_then(|()| self.consumed(ask, asked, number, device))
            .and_then(|_| self.place(ask, request, asked, number));
        match placed {
            Ok(()) => {
                self.unplace();
                None
            }
            Err(Refusal::Device(cause)) => Some(cause),
            Err(Refusal::Pod(_)) => Some(Cause::Failed),
            Err(Refusal::Stopped(_)) => Some(Cause::Unexamined),
        }
    }
}
