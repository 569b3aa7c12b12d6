//! Which devices a claim gets: structured parameters (KEP-4381) with partitionable devices,
//! consumable capacity (KEP-5075), prioritized lists, taints and constraints, first fit in
//! the order of Kubernetes.
//!
//! A [`Snapshot`] is the cluster, an [`Overlay`] what was decided since, [`PodClaims`] what a
//! Pod asks for; [`allocate`] answers for one node. No clock, no runtime, no client.

mod allocate;
mod capacity;
mod cause;
pub mod cel;
pub mod checker;
mod claims;
mod error;
mod explanation;
mod fit;
mod gates;
pub mod input;
mod overlay;
mod ranking;
mod result;
pub mod scenario;
mod search;
mod selectors;
mod snapshot;

pub use allocate::{Options, Outcome, Paused, Solution, allocate};
pub use cause::Cause;
pub use claims::PodClaims;
pub use error::{NodeError, Object, PodError};
pub use explanation::{Combination, Explanation, OfPool, OfRequest, Unsolved};
pub use fit::{Fit, FitSession, Misfit, Taken};
pub use gates::Gates;
pub use overlay::Overlay;
pub use ranking::{Part, Policy, Ranked, rank};
pub use result::ShareIds;
pub use search::Blocked;
pub use snapshot::Snapshot;
