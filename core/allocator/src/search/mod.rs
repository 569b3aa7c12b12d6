//! The search: depth first, devices in the order of the view, the first solution wins
//! (docs/allocator.md 1.4). The stack is explicit, so that a search can be paused and resumed, and
//! its depth does not depend on the stack of the thread.

mod attempt;
mod best_fit;
mod blocked;
mod constraints;
mod counters;
mod pace;
mod preflight;
mod prune;

pub(crate) use attempt::{Ask, Attempt, Placed, Question, RequestAt};
pub use best_fit::Loss;
pub(crate) use best_fit::Sizes;
pub use blocked::Blocked;
pub(crate) use blocked::Watch;
pub(crate) use constraints::{Constrained, Values};
pub use counters::Groups;
pub(crate) use pace::{MOST_COST, Pace, Stopped};

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use self::preflight::{Preflight, Stop};
use self::prune::{AFTER_FAILURES, Pruning};
use crate::allocate::Choice;
use crate::cause::{Cause, Refusal};
use crate::claims::{AllWanted, Asked, MOST_RESULTS, PreparedRequest, Wanted};
use crate::error::{NodeError, PodError};
use crate::snapshot::ViewDevice;

/// The work of a solution that is refused, in examined devices: the caller has judged it.
const REFUSED: u64 = 32;

/// A decision of the search.
#[derive(Debug)]
enum Frame {
    /// The next device of a request.
    Device {
        ask: Ask,
        /// The number of devices that the request has already.
        index: usize,
        /// The device to try next.
        cursor: usize,
        /// Whether this decision has placed a device.
        placed: bool,
        /// The kinds of devices that failed here.
        ruled_out: Vec<usize>,
    },
    /// The sub-request of a request.
    Sub {
        claim: usize,
        request: usize,
        next: usize,
        /// Whether a sub-request failed for another reason than the size of the claim.
        plain: bool,
    },
    /// The boundary between two claims.
    Claim,
}

/// The reason why a part of the search failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failure {
    Plain,
    /// The claim would get too many devices, whichever they are.
    Size,
}

/// The next step of a search.
enum Step {
    /// Decide about a request of a claim.
    Request(usize, usize),
    /// Find the device with this index for a request, from this position on.
    Device(Ask, usize, usize),
    /// Go back.
    Back(Failure),
    /// Continue with the top frame.
    Again,
}

/// Result of the search for one more device.
enum Found {
    /// The device with this number, which is placed.
    Placed(usize),
    /// No device.
    Nothing,
    /// The search has to stop before this device.
    Stopped(usize),
}

/// The reason why `run` returned.
pub(crate) enum End {
    Solved,
    Exhausted,
    Failed(PodError),
    /// The node cannot be searched.
    Unusable(NodeError),
    Stopped(Stopped),
}

/// A search on one node.
pub(crate) struct Search {
    pub(crate) attempt: Attempt,
    /// The checks before the search, until they are done.
    preflight: Option<Preflight>,
    wanted: AllWanted,
    frames: Vec<Frame>,
    /// The step that `run` continues with.
    next: Step,
    /// The number of times that the search went back.
    pub(crate) failures: u64,
    every_branch: bool,
    choice: Choice,
    /// The question in the order of Kubernetes, once best fit has put the devices in another one.
    pub(crate) in_plain_order: Option<Question>,
    pruning: Option<Pruning>,
    /// Present only if the search serves an explanation.
    pub(crate) watch: Option<Watch>,
}

impl Search {
    pub(crate) fn new(attempt: Attempt, every_branch: bool, choice: Choice) -> Self {
        Self {
            attempt,
            preflight: Some(Preflight::default()),
            wanted: AllWanted::default(),
            frames: Vec::new(),
            next: Step::Request(0, 0),
            failures: 0,
            every_branch,
            choice,
            in_plain_order: None,
            pruning: None,
            watch: None,
        }
    }

    /// Returns the number of devices that a request wants.
    pub(crate) fn count(&self, ask: Ask) -> usize {
        self.asked(ask).map_or(0, |(_, _, wanted)| wanted.count)
    }

    /// Drops the limits, and what a search does not need that cannot go on.
    pub(crate) fn ended(&mut self, is_solved: bool) {
        self.attempt.pace.limit(u64::MAX, None);
        if !is_solved {
            self.pruning = None;
            self.frames = Vec::new();
        }
    }

    /// Goes on behind the solution that was refused. Devices of one weight are the same for the caller.
    pub(crate) fn passes_over(&mut self, weight: &dyn Fn(&str, &str, &str) -> Option<u64>) {
        self.attempt.pace.did(REFUSED);
        if self.attempt.weights.is_none() {
            let of = |device: &Arc<ViewDevice>| {
                let key = &self.attempt.view.pools.get(device.pool)?.key;
                weight(&key.driver, &key.pool, &device.device.name)
            };
            self.attempt.weights = Some(self.attempt.view.devices.iter().map(of).collect());
            // The kinds are others from now on, and have other numbers.
            self.pruning = None;
            self.frames.iter_mut().for_each(Frame::forget_kinds);
        }
        self.next = Step::Back(Failure::Plain);
    }

    fn asked(&self, ask: Ask) -> Option<(&PreparedRequest, &Asked, &Wanted)> {
        let request = self.attempt.prepared.wanted.get(ask.claim)?.requests.get(ask.request)?;
        let wanted = self.wanted.get(ask.claim)?.get(ask.request)?.get(ask.sub)?;
        Some((request, request.asked.get(ask.sub)?, wanted))
    }

    /// Makes the checks before the search, once.
    pub(crate) fn prepare(&mut self) -> Result<(), Stop> {
        if let Some(preflight) = &mut self.preflight {
            self.wanted = preflight.run(&self.attempt)?;
            self.preflight = None;
            if self.choice == Choice::BestFit {
                let plain = self.attempt.question();
                if let Some(wanted) = self.attempt.prefer_best_fit(&self.wanted) {
                    self.wanted = wanted;
                    self.in_plain_order = Some(plain);
                }
            }
        }
        Ok(())
    }

    /// Runs until the end, or until this much more work was done.
    pub(crate) fn run(&mut self, budget: u64, interrupt: Option<&Arc<AtomicBool>>) -> End {
        self.attempt.pace.limit(budget, interrupt);
        match self.prepare() {
            Ok(()) => {}
            Err(Stop::Pod(error)) => return End::Failed(error),
            Err(Stop::Node(error)) => return End::Unusable(error),
            Err(Stop::Here(stopped)) => return End::Stopped(stopped),
        }
        if self.attempt.weights.is_some() && self.pruning.is_none() && !self.every_branch {
            // A search that has to stop tries it again when it goes on.
            self.pruning = Pruning::new(&self.attempt, &self.wanted).ok();
        }
        let mut step = std::mem::replace(&mut self.next, Step::Again);
        loop {
            if let Some(stopped) = self.attempt.pace.stopped() {
                self.next = step;
                return End::Stopped(stopped);
            }
            step = match step {
                Step::Request(claim, request) => match self.request(claim, request) {
                    Some(step) => step,
                    None => return End::Solved,
                },
                Step::Device(ask, index, cursor) => self.device(ask, index, cursor),
                Step::Back(failure) => match self.back(failure) {
                    Some(step) => step,
                    None => return End::Exhausted,
                },
                Step::Again => match self.again() {
                    Ok(Some(step)) => step,
                    Ok(None) => return End::Exhausted,
                    Err(error) => return End::Failed(error),
                },
            };
        }
    }

    /// Starts a request. `None` after the last claim.
    fn request(&mut self, claim: usize, request: usize) -> Option<Step> {
        self.attempt.prepared.wanted.get(claim)?;
        if let Some(pruning) = &mut self.pruning {
            let failed = pruning.begin(&self.attempt, claim, request, self.frames.len());
            if let Some(failure) = failed {
                return Some(Step::Back(failure));
            }
        }
        let of_claim = self.attempt.prepared.wanted.get(claim)?;
        let Some(prepared) = of_claim.requests.get(request) else {
            self.frames.push(Frame::Claim);
            return Some(Step::Request(claim + 1, 0));
        };
        if prepared.first_available {
            self.frames.push(Frame::Sub { claim, request, next: 0, plain: false });
            return Some(Step::Again);
        }
        Some(Step::Device(Ask { claim, request, sub: 0 }, 0, 0))
    }

    fn device(&mut self, ask: Ask, index: usize, cursor: usize) -> Step {
        let Some((_, _, wanted)) = self.asked(ask) else { return Step::Back(Failure::Plain) };
        if wanted.all.as_ref().is_some_and(Vec::is_empty) {
            return Step::Back(Failure::Plain);
        }
        if index >= wanted.count {
            return Step::Request(ask.claim, ask.request + 1);
        }
        if wanted.count - index > MOST_RESULTS.saturating_sub(self.attempt.results_of(ask.claim)) {
            if let Some(watch) = &mut self.watch {
                watch.ended(self.attempt.placed.len(), ask, Blocked::ClaimSize);
            }
            return Step::Back(Failure::Size);
        }
        if let Some(pruning) = &self.pruning {
            self.attempt.pace.did(1);
            if !pruning.may_do(&self.attempt, &self.wanted, ask, index, cursor) {
                return Step::Back(Failure::Plain);
            }
        }
        self.frames.push(Frame::Device { ask, index, cursor, placed: false, ruled_out: Vec::new() });
        Step::Again
    }

    /// Goes back to the last decision and undoes its placement. `None` if no decision is left.
    fn back(&mut self, failure: Failure) -> Option<Step> {
        self.failures += 1;
        if let Some(pruning) = &mut self.pruning {
            pruning.failed(self.frames.len(), failure);
        } else if self.failures > AFTER_FAILURES && !self.every_branch {
            // A search that has to stop tries it again when it goes on.
            self.pruning = Pruning::new(&self.attempt, &self.wanted).ok();
        }
        let frame = self.frames.last_mut()?;
        match frame {
            Frame::Claim => {
                self.frames.pop();
                Some(Step::Back(Failure::Plain))
            }
            Frame::Sub { plain, .. } => {
                *plain |= failure == Failure::Plain;
                Some(Step::Again)
            }
            Frame::Device { ask, placed, .. } => {
                let ask = *ask;
                if std::mem::take(placed) {
                    let device = self.attempt.placed.last().map(|placed| placed.device);
                    self.attempt.unplace();
                    let pruning = self.pruning.as_ref();
                    frame.rule_out(device.and_then(|device| pruning?.kind(&self.attempt, device)));
                }
                // Other devices do not make a claim smaller, and a request for all devices has no
                // other devices.
                if failure == Failure::Size || self.asked(ask).is_none_or(|(_, asked, _)| asked.all) {
                    self.frames.pop();
                    return Some(Step::Back(failure));
                }
                Some(Step::Again)
            }
        }
    }

    /// Tries the next choice of the top frame. `None` if no frame is left.
    fn again(&mut self) -> Result<Option<Step>, PodError> {
        match self.frames.last_mut() {
            None => Ok(None),
            Some(Frame::Claim) => Ok(Some(Step::Back(Failure::Plain))),
            Some(Frame::Sub { claim, request, next, plain }) => {
                let ask = Ask { claim: *claim, request: *request, sub: *next };
                *next += 1;
                let failure = if *plain { Failure::Plain } else { Failure::Size };
                if self.asked(ask).is_some() {
                    return Ok(Some(Step::Device(ask, 0, 0)));
                }
                self.frames.pop();
                Ok(Some(Step::Back(failure)))
            }
            Some(Frame::Device { ask, index, cursor, .. }) => {
                let (ask, index, cursor) = (*ask, *index, *cursor);
                let (device, next) = match self.next_device(ask, index, cursor)? {
                    Found::Placed(device) => (Some(device), device + 1),
                    Found::Stopped(device) => (None, device),
                    Found::Nothing => {
                        self.attempt.pace.did(1);
                        self.frames.pop();
                        return Ok(Some(Step::Back(Failure::Plain)));
                    }
                };
                if let Some(Frame::Device { cursor, placed, .. }) = self.frames.last_mut() {
                    *cursor = next;
                    *placed = device.is_some();
                }
                Ok(Some(device.map_or(Step::Again, |_| Step::Device(ask, index + 1, next))))
            }
        }
    }

    /// Places the first possible device from `cursor` on.
    fn next_device(&mut self, ask: Ask, index: usize, cursor: usize) -> Result<Found, PodError> {
        let all = self.asked(ask).is_some_and(|(_, asked, _)| asked.all);
        let Some(first) = (if all { Some(cursor) } else { self.first_free(ask, cursor) }) else {
            self.attempt.pace.did(self.attempt.view.devices.len().saturating_sub(cursor) as u64);
            return Ok(Found::Nothing);
        };
        let prepared = self.attempt.prepared.clone();
        let request = prepared.wanted.get(ask.claim).and_then(|claim| claim.requests.get(ask.request));
        let Some((request, asked)) = request.and_then(|request| Some((request, request.asked.get(ask.sub)?)))
        else {
            return Ok(Found::Nothing);
        };
        if let Some(all) = self.asked(ask).and_then(|(_, _, wanted)| wanted.all.as_ref()) {
            let Some(number) = all.get(index).copied() else { return Ok(Found::Nothing) };
            self.attempt.pace.did(1);
            return match self.attempt.place(ask, request, asked, number) {
                Ok(()) => Ok(Found::Placed(number)),
                Err(Refusal::Device(Cause::Constraint)) => Err(self.unsatisfied(ask, number)),
                Err(Refusal::Device(cause)) => {
                    self.refused(RequestAt { ask, request, asked }, number, cause);
                    Ok(Found::Nothing)
                }
                Err(Refusal::Pod(error)) => Err(PodError::clone(&error)),
                Err(Refusal::Stopped(_)) => Ok(Found::Stopped(cursor)),
            };
        }
        let view = self.attempt.view.clone();
        self.attempt.pace.did(first.saturating_sub(cursor) as u64);
        for (number, device) in view.devices.iter().enumerate().skip(first) {
            if self.attempt.pace.begin(1).is_err() {
                return Ok(Found::Stopped(number));
            }
            if let Some(cause) = self.attempt.in_use(ask, asked.admin, number) {
                self.refused(RequestAt { ask, request, asked }, number, cause);
                continue;
            }
            let kind = self.pruning.as_ref().and_then(|pruning| pruning.kind(&self.attempt, number));
            if kind.is_some_and(|kind| self.frames.last().is_some_and(|frame| frame.rules_out(kind))) {
                continue;
            }
            let placed = self
                .attempt
                .selected(ask, asked, device)
                .and_then(|()| self.attempt.consumed(ask, asked, number, device))
                .and_then(|_| self.attempt.place(ask, request, asked, number));
            match placed {
                Ok(()) => return Ok(Found::Placed(number)),
                Err(Refusal::Device(cause)) => {
                    self.refused(RequestAt { ask, request, asked }, number, cause);
                    if let Some(frame) = self.frames.last_mut() {
                        frame.rule_out(kind);
                    }
                }
                Err(Refusal::Pod(error)) => return Err(PodError::clone(&error)),
                Err(Refusal::Stopped(_)) => return Ok(Found::Stopped(number)),
            }
        }
        Ok(Found::Nothing)
    }

    /// Returns the first device from `cursor` on that is not in use. On a full node there is none,
    /// which is quick to find out. A watched search examines every device.
    fn first_free(&self, ask: Ask, cursor: usize) -> Option<usize> {
        if self.watch.is_some() {
            return Some(cursor);
        }
        let admin = self.asked(ask).is_some_and(|(_, asked, _)| asked.admin);
        (cursor..self.attempt.view.devices.len())
            .find(|number| self.attempt.in_use(ask, admin, *number).is_none())
    }

    fn refused(&mut self, asked: RequestAt<'_>, number: usize, cause: Cause) {
        if let Some(watch) = &mut self.watch {
            watch.refused(&mut self.attempt, asked, number, cause);
        }
    }

    /// The error of a request for all devices where a constraint refuses one of them.
    fn unsatisfied(&self, ask: Ask, number: usize) -> PodError {
        let device = self.attempt.view.devices.get(number).map(|device| device.device.name.clone());
        let device = device.unwrap_or_default();
        let message = format!("cannot add device {device} because a claim constraint would not be satisfied");
        PodError::new(self.attempt.claim_object(ask.claim), "spec.devices.constraints", message)
    }
}
