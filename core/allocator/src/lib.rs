//! The allocator for structured parameters (KEP-4381). It covers partitionable devices, consumable
//! capacity (KEP-5075), prioritized lists, taints and constraints. The first solution wins: in the
//! order in which Kubernetes looks, or by best fit ([`Choice`]).
//!
//! A [`Snapshot`] is the cluster, an [`Overlay`] holds the allocations that the snapshot does not
//! have yet, and [`PodClaims`] are the claims of a Pod. [`allocate`] answers for one node. The
//! crate has no clock, no runtime and no client.

mod align;
mod allocate;
mod capacity;
mod cause;
pub mod cel;
pub mod checker;
mod claims;
mod error;
mod explanation;
mod gates;
pub mod input;
mod overlay;
mod ranking;
mod result;
pub mod scenario;
mod search;
mod selectors;
mod snapshot;

pub use align::Alignment;
pub use allocate::{Choice, Options, Outcome, Paused, Solution, allocate};
pub use cause::Cause;
pub use claims::PodClaims;
pub use error::{NodeError, Object, PodError};
pub use explanation::{Combination, Detail, Explanation, OfPool, OfRequest, Reason, Unsatisfiable};
pub use gates::Gates;
pub use overlay::Overlay;
pub use ranking::{Policy, Rank, Standing};
pub use result::ShareIds;
pub use search::{Blocked, Groups, Loss};
pub use snapshot::{Snapshot, contradiction};
