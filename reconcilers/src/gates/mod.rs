//! Claim gates: a gated Pod waits until every claim that it needs is allocated, reserved for it,
//! accounted for and published (docs/protocol.md).
//!
//! Everything follows from the API: after a restart the charges of Pods that were released and are not
//! bound yet are assumed anew, before the first gate is opened.

mod attributes;
mod configured;
mod controller;
mod decide;
mod facts;
mod given;
mod groups;
mod index;
mod memory;
mod metrics;
mod pass;
mod plan;
mod refuse;
mod released;
mod rights;
mod settings;
mod stubborn;
#[cfg(test)]
mod tests;
mod visible;
mod writes;

pub use attributes::{GIVEN, WANTED};
pub use controller::{NAME, Options, spec};
pub use index::Gates;
pub use rights::DELETE_UNBOUND;
pub use settings::Settings;
pub use writes::open;
