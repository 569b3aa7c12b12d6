//! The checks before the search (docs/allocator.md 1.3). They find the number of devices of each
//! request, and the devices themselves for requests that want all. Like the search they can stop
//! anywhere and go on.

use super::attempt::{Ask, Attempt};
use super::pace::Stopped;
use crate::cause::Refusal;
use crate::claims::{AllWanted, Asked, MOST_RESULTS, PreparedRequest, Wanted};
use crate::error::{NodeError, Object, PodError};
use crate::snapshot::{PoolKey, PoolStatus};

/// The reason why a node is not searched.
pub(crate) enum Stop {
    Pod(PodError),
    Node(NodeError),
    /// The search has to stop. The checks are not done.
    Here(Stopped),
}

/// The state of the checks.
#[derive(Debug, Default)]
pub(super) struct Preflight {
    /// The claims that are done.
    claims: Vec<Vec<Vec<Wanted>>>,
    /// The requests of the next claim that are done.
    requests: Vec<Vec<Wanted>>,
    /// The sub-requests of the next request that are done.
    subs: Vec<Wanted>,
    /// The devices of the next sub-request that are found, and the place from which on the next is
    /// looked for.
    all: Vec<usize>,
    pool: usize,
    device: usize,
}

impl Preflight {
    /// Returns the devices that are wanted, or the first error in the order of claims and requests.
    pub(super) fn run(&mut self, attempt: &Attempt) -> Result<AllWanted, Stop> {
        if let Some(error) = &attempt.view.error {
            return Err(Stop::Pod(error.clone()));
        }
        if let Some(counts) = &attempt.prepared.counts {
            return Ok(counts.clone());
        }
        while let Some(claim) = attempt.prepared.wanted.get(self.claims.len()) {
            while let Some(request) = claim.requests.get(self.requests.len()) {
                self.request(attempt, request)?;
            }
            if let Some(error) = &claim.error {
                return Err(Stop::Pod(error.clone()));
            }
            self.claims.push(std::mem::take(&mut self.requests));
        }
        Ok(std::mem::take(&mut self.claims).into())
    }

    fn request(&mut self, attempt: &Attempt, request: &PreparedRequest) -> Result<(), Stop> {
        if let Some(error) = &request.error {
            return Err(Stop::Pod(error.clone()));
        }
        let (claim, number) = (self.claims.len(), self.requests.len());
        while let Some(asked) = request.asked.get(self.subs.len()) {
            let wanted = if asked.all {
                let devices =
                    self.all(attempt, Ask { claim, request: number, sub: self.subs.len() }, asked)?;
                Wanted { count: devices.len(), all: Some(devices) }
            } else {
                Wanted { count: asked.count, all: None }
            };
            self.subs.push(wanted);
        }
        let least = |wanted: &Vec<Wanted>| wanted.iter().map(|wanted| wanted.count).min().unwrap_or_default();
        let before: usize = self.requests.iter().map(least).sum();
        if least(&self.subs) > MOST_RESULTS - before {
            let field = format!("spec.devices.requests[{number}]");
            let message =
                format!("request {} exceeds the claim limit of {MOST_RESULTS} devices", request.name);
            return Err(Stop::Pod(PodError::new(attempt.claim_object(claim), field, message)));
        }
        self.requests.push(std::mem::take(&mut self.subs));
        Ok(())
    }

    /// Returns all devices that a request selects, held or not. An incomplete or invalid pool is an
    /// error, because its devices would be missing.
    fn all(&mut self, attempt: &Attempt, ask: Ask, asked: &Asked) -> Result<Vec<usize>, Stop> {
        while let Some(pool) = attempt.view.pools.get(self.pool) {
            usable(attempt.claim_object(ask.claim), asked, &pool.key, &pool.status)?;
            let of_pool =
                |device: usize| attempt.view.devices.get(device).filter(|device| device.pool == self.pool);
            while let Some(device) = of_pool(self.device) {
                attempt.pace.begin(1).map_err(Stop::Here)?;
                let is_here = device.reach != Ok(false);
                if let Some(why) = device.device.unreadable.as_ref().filter(|_| is_here) {
                    // Without it these would not be all devices.
                    let why = format!("device {}: {why}", device.device.name).into();
                    let status = PoolStatus::Invalid(why);
                    usable(attempt.claim_object(ask.claim), asked, &pool.key, &status)?;
                }
                let fits = attempt
                    .selected(ask, asked, device)
                    .and_then(|()| attempt.suffices(ask, asked, device, None));
                match fits {
                    Ok(()) => self.all.push(self.device),
                    Err(Refusal::Device(_)) => {}
                    Err(Refusal::Pod(error)) => return Err(Stop::Pod(PodError::clone(&error))),
                    Err(Refusal::Stopped(stopped)) => return Err(Stop::Here(stopped)),
                }
                self.device += 1;
            }
            self.pool += 1;
        }
        (self.pool, self.device) = (0, 0);
        Ok(std::mem::take(&mut self.all))
    }
}

fn usable(claim: Object, asked: &Asked, key: &PoolKey, status: &PoolStatus) -> Result<(), Stop> {
    let (driver, pool, request) = (key.driver.clone(), key.pool.clone(), asked.name.clone());
    match status {
        PoolStatus::Usable => Ok(()),
        PoolStatus::Incomplete => Err(Stop::Node(NodeError::Incomplete { claim, request, driver, pool })),
        PoolStatus::Invalid(why) => {
            let why = why.clone();
            Err(Stop::Node(NodeError::InvalidForAll { claim, request, driver, pool, why }))
        }
    }
}
