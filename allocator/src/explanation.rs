//! Why there is no solution on a node: computed when somebody asks.

use std::collections::{BTreeMap, HashSet};
use std::fmt;

use serde::Serialize;

use crate::cause::{Cause, Refusal};
use crate::claims::{Asked, PreparedRequest};
use crate::fit::Fit;
use crate::input::Name;
use crate::overlay::Assumed;
use crate::search::{Ask, Attempt, Blocked, Question, Search, Watch};
use crate::snapshot::{PoolStatus, Snapshot};

/// How many devices are looked at to find out what blocked the deepest attempt.
const BUDGET: u64 = 10_000;

/// A node on which there is no solution.
pub struct Unsolved {
    why: Why,
    /// Without what is assumed.
    base: Snapshot,
    assumed: Assumed,
}

/// How it was found out that there is none.
pub(crate) enum Why {
    /// There is no such node.
    NoNode,
    /// Claims, by uid, are allocated already and cannot be used on the node.
    Elsewhere(Vec<Name>),
    /// Everything was tried, or there was nothing to try.
    Searched(Question),
}

impl fmt::Debug for Unsolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Unsolved")
    }
}

/// Why there is no solution on a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// Claims of the Pod, by uid, that are allocated already where the node is not. Nothing
    /// else was looked at then.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub elsewhere: Vec<Name>,
    /// Every request, and each of its sub-requests.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<OfRequest>,
    /// If every request alone could be satisfied: what stood in the way where most devices
    /// were found together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub combination: Option<Combination>,
}

/// What there is for one request, or sub-request, if it were the only one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OfRequest {
    /// The claim, by uid.
    pub claim: Name,
    /// `request` or `request/subrequest`.
    pub request: Name,
    /// How many devices it wants.
    pub wanted: usize,
    /// How many would do.
    pub suit: usize,
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
    /// How many devices it has for the node: the sum of all causes.
    pub devices: usize,
    /// How many devices each cause is against.
    pub causes: BTreeMap<Cause, usize>,
    /// Claims, by uid, that are being allocated just now, and how many devices each holds.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub in_flight: BTreeMap<Name, usize>,
}

/// What stood in the way where most devices were found together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Combination {
    /// The claim, by uid.
    pub claim: Name,
    /// The request that found no device there: `request` or `request/subrequest`.
    pub request: Name,
    /// Why not.
    pub blocked: Blocked,
}

impl OfRequest {
    fn is_enough(&self) -> bool {
        self.suit >= self.wanted.max(1)
    }
}

impl Unsolved {
    pub(crate) fn new(why: Why, (base, assumed): (Snapshot, Assumed)) -> Self {
        Self { why, base, assumed }
    }

    /// Explains. `fit` is what was given to [`crate::allocate`].
    pub fn explain(&self, fit: Option<&dyn Fit>) -> Explanation {
        let searched = match &self.why {
            Why::NoNode => return Explanation::default(),
            Why::Elsewhere(claims) => {
                return Explanation { elsewhere: claims.clone(), ..Explanation::default() };
            }
            Why::Searched(question) => question,
        };
        let fit = fit.map(|fit| fit.open(&searched.node, &searched.prepared.fixed));
        let attempt = Attempt::new(searched.clone(), fit);
        // What is wrong before the search is another outcome.
        let Ok(mut search) = Search::new(attempt, true) else { return Explanation::default() };
        let mut suits = HashSet::new();
        let mut requests = Vec::new();
        let mut each_enough = true;
        for (claim, prepared) in searched.prepared.wanted.iter().enumerate() {
            for (request, prepared_request) in prepared.requests.iter().enumerate() {
                let of_sub = |(sub, asked): (usize, &Asked)| {
                    let ask = Ask { claim, request, sub };
                    let wanted = search.count(ask);
                    self.alone(&mut search.attempt, (ask, prepared_request, asked), wanted, &mut suits)
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

    /// What there would be for a request if it were the only one.
    fn alone(
        &self,
        attempt: &mut Attempt,
        (ask, request, asked): (Ask, &PreparedRequest, &Asked),
        wanted: usize,
        suits: &mut HashSet<(Ask, usize)>,
    ) -> OfRequest {
        let view = attempt.view.clone();
        let mut pools: Vec<OfPool> = view
            .pools
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
            .collect();
        let mut suitable = Vec::new();
        for (number, device) in view.devices.iter().enumerate() {
            let Some(of_pool) = pools.get_mut(device.pool) else { continue };
            let mut cause = attempt.against(ask, request, asked, number);
            if cause == Some(Cause::Taken)
                && let Some(holder) = self.in_flight(&of_pool.driver, &of_pool.pool, &device.device.name)
            {
                cause = Some(Cause::InFlight);
                *of_pool.in_flight.entry(holder.clone()).or_default() += 1;
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
        let claim = attempt.prepared.wanted.get(ask.claim).map(|claim| claim.claim.uid.clone());
        OfRequest { claim: claim.unwrap_or_default(), request: asked.name.clone(), wanted, suit, pools }
    }

    /// The claim that is being allocated just now and has the device.
    fn in_flight(&self, driver: &str, pool: &str, device: &str) -> Option<&Name> {
        let mut assumed = self.assumed.iter().filter(|(uid, _)| {
            // What the API knows is not in flight any more.
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

fn combination(mut search: Search) -> Option<Combination> {
    search.run(BUDGET, None);
    let (ask, blocked) = search.watch.as_ref()?.deepest()?;
    let claim = search.attempt.prepared.wanted.get(ask.claim)?;
    let request = claim.requests.get(ask.request)?.asked.get(ask.sub)?.name.clone();
    Some(Combination { claim: claim.claim.uid.clone(), request, blocked: blocked.clone() })
}

impl Attempt {
    /// What is against a device for a request, in the order in which it is looked at.
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
        }
    }
}
