//! The checks before the search (docs/allocator.md 1.3). They return the number of devices of each
//! request, and the devices themselves for requests that want all.

use super::attempt::{Ask, Attempt};
use crate::cause::Refusal;
use crate::claims::{AllWanted, Asked, MOST_RESULTS, PreparedRequest, Wanted};
use crate::error::{NodeError, PodError};
use crate::snapshot::PoolStatus;

/// The error that keeps a node from being searched.
pub(crate) enum Stop {
    Pod(PodError),
    Node(NodeError),
}

/// Returns the devices that are wanted, or the first error in the order of claims and requests.
pub(crate) fn wanted(attempt: &Attempt) -> Result<AllWanted, Stop> {
    if let Some(error) = &attempt.view.error {
        return Err(Stop::Pod(error.clone()));
    }
    if let Some(counts) = &attempt.prepared.counts {
        return Ok(counts.clone());
    }
    let claims = attempt.prepared.wanted.iter().enumerate();
    claims
        .map(|(claim, prepared)| {
            let mut sum = 0;
            let mut requests = Vec::with_capacity(prepared.requests.len());
            for (request, prepared) in prepared.requests.iter().enumerate() {
                let ask = Ask { claim, request, sub: 0 };
                let wanted = of_request(attempt, ask, prepared)?;
                let least = wanted.iter().map(|wanted| wanted.count).min().unwrap_or_default();
                if least > MOST_RESULTS - sum {
                    let field = format!("spec.devices.requests[{request}]");
                    let message = format!(
                        "request {} exceeds the claim limit of {MOST_RESULTS} devices",
                        prepared.name
                    );
                    return Err(Stop::Pod(PodError::new(attempt.claim_object(claim), field, message)));
                }
                sum += least;
                requests.push(wanted);
            }
            prepared.error.clone().map_or(Ok(requests), |error| Err(Stop::Pod(error)))
        })
        .collect()
}

fn of_request(attempt: &Attempt, ask: Ask, request: &PreparedRequest) -> Result<Vec<Wanted>, Stop> {
    if let Some(error) = &request.error {
        return Err(Stop::Pod(error.clone()));
    }
    let asked = request.asked.iter().enumerate();
    asked
        .map(|(sub, asked)| {
            if !asked.all {
                return Ok(Wanted { count: asked.count, all: None });
            }
            let devices = all(attempt, Ask { sub, ..ask }, asked)?;
            Ok(Wanted { count: devices.len(), all: Some(devices) })
        })
        .collect()
}

/// Returns all devices that a request selects, held or not. An incomplete or invalid pool is an
/// error, because its devices would be missing.
fn all(attempt: &Attempt, ask: Ask, asked: &Asked) -> Result<Vec<usize>, Stop> {
    let mut all = Vec::new();
    let mut devices = attempt.view.devices.iter().enumerate().peekable();
    for (pool_number, pool) in attempt.view.pools.iter().enumerate() {
        let (driver, name) = (pool.key.driver.clone(), pool.key.pool.clone());
        let (claim, request) = (attempt.claim_object(ask.claim), asked.name.clone());
        match &pool.status {
            PoolStatus::Usable => {}
            PoolStatus::Incomplete => {
                return Err(Stop::Node(NodeError::Incomplete { claim, request, driver, pool: name }));
            }
            PoolStatus::Invalid(why) => {
                let why = why.clone();
                return Err(Stop::Node(NodeError::InvalidForAll { claim, request, driver, pool: name, why }));
            }
        }
        while let Some((number, device)) = devices.next_if(|(_, device)| device.pool == pool_number) {
            let fits = attempt
                .selected(ask, asked, device)
                .and_then(|()| attempt.suffices(ask, asked, device, None));
            match fits {
                Ok(()) => all.push(number),
                Err(Refusal::Device(_)) => {}
                Err(Refusal::Pod(error)) => return Err(Stop::Pod(PodError::clone(&error))),
            }
        }
    }
    Ok(all)
}
