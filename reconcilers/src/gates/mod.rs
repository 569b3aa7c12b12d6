//! Claim gates: a gated Pod waits until every claim that it needs is allocated, reserved for it,
//! accounted for and published (docs/protocol.md).
//!
//! Everything follows from the API: after a restart the charges of Pods that were released and are not
//! bound yet are assumed anew, before the first gate is opened.

pub(crate) mod assumed;
mod attributes;
mod controller;
mod facts;
mod index;
mod metrics;
mod nominate;
pub(crate) mod plan;
mod reject;
mod rights;
#[cfg(test)]
mod tests;
mod unbound;
mod visible;
mod writes;

pub use attributes::{GIVEN, WANTED};
pub use controller::{Options, spec};
pub use rights::DELETE_UNBOUND;
pub use writes::open;
